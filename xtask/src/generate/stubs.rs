//! The type stub of the compiled module, from the Rust signatures.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::generate::Generated;
use crate::shell::{cache, root, run};
use crate::tools::python_tools;

/// `python/brimful/_native.pyi`, as maturin makes it out of the built extension; made once for the same signatures, since
/// it takes a build of its own.
pub(super) fn native() -> Result<Generated> {
    let kept = cache().join(format!("stubs-{:016x}.pyi", digest_of_signatures()?));
    if !kept.exists() {
        let content = generate()?;
        // Never half of one.
        let aside = kept.with_extension("new");
        fs::write(&aside, content)?;
        fs::rename(aside, &kept)?;
    }
    Ok(Generated {
        path: "python/brimful/_native.pyi",
        content: fs::read_to_string(kept)?,
    })
}

fn generate() -> Result<String> {
    let tools = python_tools()?;
    let out = cache().join("stubs");
    if out.exists() {
        fs::remove_dir_all(&out)?;
    }
    // maturin wants the data folder to be there, though it does not look into it.
    fs::create_dir_all(root().join("brimful.data"))?;
    // In cargo's own target directory, where the tests have built all that the extension depends on.
    run(tools
        .tool("maturin", &["generate-stubs", "--quiet", "--out"])
        .arg(&out))?;
    fs::read_to_string(out.join("brimful/_native.pyi")).context("maturin wrote no stub")
}

/// Of all that the stub is made from: the extension's own files, the versions of its dependencies, and the tools.
fn digest_of_signatures() -> Result<u64> {
    let mut files = vec![
        root().join("Cargo.lock"),
        root().join("pyproject.toml"),
        root().join("python/requirements-dev.txt"),
        root().join("crates/brimful-python/Cargo.toml"),
    ];
    add_files(&root().join("crates/brimful-python/src"), &mut files)?;
    files.sort();
    let mut hasher = DefaultHasher::new();
    for path in files {
        path.strip_prefix(root())?.hash(&mut hasher);
        fs::read(&path)
            .with_context(|| path.display().to_string())?
            .hash(&mut hasher);
    }
    Ok(hasher.finish())
}

fn add_files(directory: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            add_files(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}
