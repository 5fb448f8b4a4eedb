//! The footprint, for `brimful.predict()`.

use std::ffi::OsString;

use brimful_probe::current_environment;
use brimful_report::{html, json, text};
use brimful_workflow::{PredictRequest, state_dir};
use pyo3::prelude::*;

use crate::border::{Failure, call};
use crate::progress::Callback;
use crate::rehearsal::RehearsalArguments;

/// Rehearses a command and predicts its memory.
///
/// Returns the JSON document, the page for a terminal and the HTML for a notebook. `progress` is called with one line
/// at a time.
#[pyfunction]
#[expect(
    clippy::too_many_arguments,
    reason = "named arguments on Python's side"
)]
#[pyo3(signature = (*, command, shown, gpu, with_, alloc_conf, rehearsal, progress))]
pub(crate) fn predict(
    py: Python<'_>,
    command: Vec<OsString>,
    shown: Vec<String>,
    gpu: Option<String>,
    with_: Vec<String>,
    alloc_conf: Option<String>,
    rehearsal: RehearsalArguments,
    progress: Option<Py<PyAny>>,
) -> PyResult<(String, String, String)> {
    // Read while Python's lock is held: another thread may be setting a variable.
    let state = state_dir(None);
    let environment = current_environment();
    call(py, move || {
        let request = PredictRequest {
            command,
            shown_command: Some(shown),
            gpu,
            environment,
            with: with_,
            alloc_conf,
            output: None,
            state,
            rehearsal: rehearsal.options()?,
        };
        let mut callback = Callback::new(progress);
        let predicted = brimful_workflow::predict(request, |progress| callback.report(progress));
        if let Some(error) = callback.raised() {
            return Err(Failure::Python(error));
        }
        let predicted = predicted?;
        let footprints = &predicted.footprints;
        Ok((
            json::to_text(&predicted.document()).map_err(Failure::internal)?,
            text::predict(&predicted.rehearsed, footprints, &text::Page::plain(80)),
            html::predict(&predicted.rehearsed, footprints).map_err(Failure::internal)?,
        ))
    })
}
