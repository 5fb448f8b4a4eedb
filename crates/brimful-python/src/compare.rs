//! Comparisons of GPUs, for `brimful.compare()`.

use std::ffi::OsString;
use std::path::PathBuf;

use brimful_probe::{PythonHint, current_environment};
use brimful_report::{html, json, text};
use brimful_workflow::{
    CompareOptions, ComparePlansRequest, CompareRequest, JobRequest, MachineRequest, PlanRequest,
    PredictRequest, RequestedLength, state_dir,
};
use pyo3::prelude::*;

use crate::border::{Failure, call};
use crate::progress::Callback;
use crate::rehearsal::RehearsalArguments;

/// Compares GPUs and machines for a command, or for a job if the command is empty.
///
/// Returns the JSON document, the page for a terminal and the HTML for a notebook. `progress` is called with one line
/// at a time.
#[pyfunction]
#[expect(
    clippy::too_many_arguments,
    reason = "named arguments on Python's side"
)]
#[pyo3(signature = (*, command, shown, gpus, machines, prices, epochs, total_steps, job, mode, rehearsal, progress))]
pub(crate) fn compare(
    py: Python<'_>,
    command: Vec<OsString>,
    shown: Vec<String>,
    gpus: Vec<String>,
    machines: Vec<String>,
    prices: Vec<(String, f64)>,
    epochs: Option<f64>,
    total_steps: Option<u64>,
    job: Option<PathBuf>,
    mode: Option<String>,
    rehearsal: RehearsalArguments,
    progress: Option<Py<PyAny>>,
) -> PyResult<(String, String, String)> {
    // Read while Python's lock is held: another thread may be setting a variable.
    let environment = current_environment();
    let state = state_dir(None);
    call(py, move || {
        let options = CompareOptions {
            gpus,
            machines,
            prices,
            length: RequestedLength::of(epochs, total_steps),
        };
        let rehearsal = rehearsal.options()?;
        let mut callback = Callback::new(progress);
        let compared = if command.is_empty() {
            let request = ComparePlansRequest {
                plan: PlanRequest {
                    job: JobRequest {
                        path: job,
                        mode,
                        overrides: Vec::new(),
                    },
                    machine: MachineRequest {
                        environment,
                        python: PythonHint::default(),
                        ..MachineRequest::default()
                    },
                    gpu_memory: None,
                    shm: None,
                    state,
                    forget: false,
                    fresh: false,
                    rehearsal,
                },
                options,
            };
            brimful_workflow::compare_plans(&request, |progress| callback.report(progress))
        } else {
            let request = CompareRequest {
                predict: PredictRequest {
                    command,
                    shown_command: Some(shown),
                    gpu: None,
                    environment,
                    with: Vec::new(),
                    alloc_conf: None,
                    output: None,
                    state,
                    rehearsal,
                },
                options,
            };
            brimful_workflow::compare(request, |progress| callback.report(progress))
        };
        if let Some(error) = callback.raised() {
            return Err(Failure::Python(error));
        }
        let document = compared?;
        let page = text::compare(&document, &text::Page::plain(80));
        let card = html::compare(&document, &page).map_err(Failure::internal)?;
        Ok((
            json::to_text(&document).map_err(Failure::internal)?,
            page,
            card,
        ))
    })
}
