//! The documentation site, built by mkdocs from `docs/` and the documents at the root.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::shell::{cache, root, run};
use crate::tools::docs_tools;

/// Where the site is built unless another directory is named.
pub(crate) fn default_directory() -> PathBuf {
    cache().join("site")
}

/// Builds the site; a broken link, a missing page or any other warning is an error.
pub(crate) fn build(out: &Path) -> Result<()> {
    run(docs_tools()?
        .tool("mkdocs", &["build", "--strict", "--quiet", "--site-dir"])
        .arg(root().join(out))
        // Hides a notice about the next major release of mkdocs.
        .env("NO_MKDOCS_2_WARNING", "1"))
}
