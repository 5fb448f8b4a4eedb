//! The type stub of the compiled module, from the Rust signatures.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use pyo3_introspection::{introspect_cdylib, module_stub_files};

use crate::build::{build_everything, built};
use crate::generate::Generated;

const MODULE: &str = "_native";

/// `python/brimful/_native.pyi`, from what PyO3 has put into the extension about its signatures.
pub(super) fn native() -> Result<Generated> {
    build_everything()?;
    let module = introspect_cdylib(built("lib_native.so"), MODULE)?;
    ensure!(
        !module.incomplete,
        "expected signatures of everything in the extension, found parts without"
    );
    let mut files = module_stub_files(&module);
    let content = files
        .remove(Path::new("__init__.pyi"))
        .with_context(|| format!("no stub among {:?}", files.keys()))?;
    Ok(Generated {
        path: "python/brimful/_native.pyi",
        content,
    })
}
