//! The type stub of the compiled module, from the Rust signatures.

use std::fs;

use anyhow::{Context, Result};

use crate::generate::Generated;
use crate::shell::{cache, root, run};
use crate::tools::python_tools;

/// `python/brimful/_native.pyi`, as maturin makes it out of the built extension.
pub(super) fn native() -> Result<Generated> {
    let tools = python_tools()?;
    let out = cache().join("stubs");
    if out.exists() {
        fs::remove_dir_all(&out)?;
    }
    // maturin wants the data folder to be there, though it does not look into it.
    fs::create_dir_all(root().join("brimful.data"))?;
    run(tools
        .tool("maturin", &["generate-stubs", "--quiet", "--target-dir"])
        .arg(cache().join("stub-target"))
        .arg("--out")
        .arg(&out))?;
    let made = out.join("brimful/_native.pyi");
    Ok(Generated {
        path: "python/brimful/_native.pyi",
        content: fs::read_to_string(made).context("maturin wrote no stub")?,
    })
}
