//! Recorded runs and traces, for `brimful.explain()`, `brimful.runs()` and `brimful.replay()`.

use std::path::PathBuf;

use brimful::units::Bytes;
use brimful_report::{html, json, text};
use brimful_workflow::{Explained, ReplayRequest, state_dir};
use pyo3::prelude::*;

use crate::border::{Failure, call};

/// Explains a file, a run by its ID, or the last run: the JSON document, the page for a terminal and the HTML for a
/// notebook.
#[pyfunction]
#[pyo3(signature = (*, what, state_dir))]
pub(crate) fn explain(
    py: Python<'_>,
    what: Option<String>,
    state_dir: Option<PathBuf>,
) -> PyResult<(String, String, String)> {
    // Reads the environment, so Python's lock is held.
    let state = self::state_dir(state_dir);
    call(py, move || {
        // Standard input belongs to the interpreter.
        let what = what.map(|what| if what == "-" { "./-".to_owned() } else { what });
        forms(brimful_workflow::explain(what.as_deref(), state.as_ref())?)
    })
}

/// Why the last watched process of this directory was killed, once, in the same forms.
#[pyfunction]
#[pyo3(signature = (*, directory, state_dir))]
pub(crate) fn unshown_kill(
    py: Python<'_>,
    directory: String,
    state_dir: Option<PathBuf>,
) -> PyResult<Option<(String, String, String)>> {
    let state = self::state_dir(state_dir);
    call(py, move || {
        state
            .and_then(|state| brimful_workflow::unshown_kill(&state, &directory))
            .map(forms)
            .transpose()
    })
}

fn forms(explained: Explained) -> Result<(String, String, String), Failure> {
    let subject = match &explained.run {
        Some(run) => run.command.join(" "),
        None => explained.name.clone(),
    };
    let as_html = html::explain(&subject, &explained.verdict, &explained.attempts)
        .map_err(Failure::internal)?;
    let page = text::Page::plain(80);
    let as_text = text::explain_attempts(&explained.verdict, &explained.attempts, &page);
    let document = explained.document();
    Ok((
        json::to_text(&document).map_err(Failure::internal)?,
        as_text,
        as_html,
    ))
}

/// The recorded runs, newest first: the JSON document and the page for a terminal.
#[pyfunction]
#[pyo3(signature = (*, last, state_dir))]
pub(crate) fn runs(
    py: Python<'_>,
    last: Option<usize>,
    state_dir: Option<PathBuf>,
) -> PyResult<(String, String)> {
    let state = self::state_dir(state_dir);
    call(py, move || {
        let document = brimful_workflow::runs(state.as_ref(), last)?;
        Ok((
            json::to_text(&document).map_err(Failure::internal)?,
            text::runs(&document.state_dir, &document.runs, &text::Page::plain(80)),
        ))
    })
}

/// The ID of the run that this process of brimful supervises or has supervised.
#[pyfunction]
#[pyo3(signature = (*, supervisor_pid, state_dir))]
pub(crate) fn run_of_supervisor(
    py: Python<'_>,
    supervisor_pid: u32,
    state_dir: Option<PathBuf>,
) -> PyResult<Option<String>> {
    let state = self::state_dir(state_dir);
    call(py, move || {
        Ok(state.and_then(|state| brimful_workflow::run_of_supervisor(&state, supervisor_pid)))
    })
}

/// Replays a trace or a memory snapshot: the JSON document and the page for a terminal.
#[pyfunction]
#[pyo3(signature = (*, file, gpu, capacity, alloc_conf, device, torch))]
pub(crate) fn replay(
    py: Python<'_>,
    file: PathBuf,
    gpu: Vec<String>,
    capacity: Vec<String>,
    alloc_conf: Vec<String>,
    device: Option<u32>,
    torch: Option<String>,
) -> PyResult<(String, String)> {
    call(py, move || {
        let capacity: Result<Vec<Bytes>, _> = capacity.iter().map(|size| size.parse()).collect();
        let document = brimful_workflow::replay(&ReplayRequest {
            file,
            gpu,
            capacity: capacity?,
            alloc_conf,
            device,
            torch,
            with_layout: false,
        })?;
        Ok((
            json::to_text(&document).map_err(Failure::internal)?,
            text::replay(&document, &text::Page::plain(80)),
        ))
    })
}
