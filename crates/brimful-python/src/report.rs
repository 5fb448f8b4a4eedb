//! Reports, for `brimful.report()` and the method `report()` of results.

use std::path::PathBuf;

use brimful_workflow::{check_report_path, state_dir, write_report};
use pyo3::prelude::*;

use crate::border::call;

/// Writes the report of runs or files: the last run if none is named.
#[pyfunction]
#[pyo3(signature = (*, what, path, force, state_dir))]
pub(crate) fn report(
    py: Python<'_>,
    what: Vec<String>,
    path: PathBuf,
    force: bool,
    state_dir: Option<PathBuf>,
) -> PyResult<()> {
    let state = self::state_dir(state_dir);
    call(py, move || {
        check_report_path(&path, force)?;
        let page = brimful_workflow::report(&what, state.as_ref())?;
        Ok(write_report(&path, &page, force)?)
    })
}

/// Writes the report of a document that was printed as JSON.
#[pyfunction]
#[pyo3(signature = (*, document, path, force))]
pub(crate) fn report_document(
    py: Python<'_>,
    document: String,
    path: PathBuf,
    force: bool,
) -> PyResult<()> {
    call(py, move || {
        check_report_path(&path, force)?;
        let page = brimful_workflow::report_document(document.as_bytes())?;
        Ok(write_report(&path, &page, force)?)
    })
}
