//! The best settings that fit, for `brimful.plan()`.

use std::path::PathBuf;

use brimful::job::forms::Form;
use brimful_probe::{PythonHint, current_environment};
use brimful_report::{html, json, text};
use brimful_workflow::{JobRequest, MachineRequest, PlanRequest, state_dir};
use pyo3::prelude::*;

use crate::border::{Failure, call};
use crate::machine::memory_size;
use crate::progress::Callback;
use crate::rehearsal::RehearsalArguments;

/// Searches for the best settings of a job.
///
/// Returns the JSON document, the page for a terminal, the HTML for a notebook, and the settings under the names of
/// Hugging Face and of Lightning.
#[pyfunction]
#[expect(
    clippy::too_many_arguments,
    reason = "named arguments on Python's side"
)]
#[pyo3(signature = (*, job, mode, overrides, as_machine, gpu, memory, fresh, rehearsal, progress))]
pub(crate) fn plan(
    py: Python<'_>,
    job: Option<PathBuf>,
    mode: Option<String>,
    overrides: Vec<String>,
    as_machine: Option<String>,
    gpu: Option<String>,
    memory: Option<String>,
    fresh: bool,
    rehearsal: RehearsalArguments,
    progress: Option<Py<PyAny>>,
) -> PyResult<(String, String, String, String, String)> {
    // Read while Python's lock is held: another thread may be setting a variable.
    let environment = current_environment();
    let state = state_dir(None);
    call(py, move || {
        let request = PlanRequest {
            job: JobRequest {
                path: job,
                mode,
                overrides,
            },
            machine: MachineRequest {
                as_machine,
                gpu,
                memory: memory_size(memory.as_deref())?,
                environment,
                python: PythonHint::default(),
            },
            gpu_memory: None,
            shm: None,
            state,
            forget: false,
            fresh,
            rehearsal: rehearsal.options()?,
        };
        let mut callback = Callback::new(progress);
        let planned = brimful_workflow::plan(request, |progress| callback.report(progress));
        if let Some(error) = callback.raised() {
            return Err(Failure::Python(error));
        }
        let planned = planned?;
        let document = planned.document();
        let page = text::plan(&planned.context, &planned.answer, &text::Page::plain(80));
        let card = html::plan(&document, &page).map_err(Failure::internal)?;
        let settings =
            |form: Form| form.write(&planned.job, planned.answer.settings(), planned.is_on_gpu);
        Ok((
            json::to_text(&document).map_err(Failure::internal)?,
            page,
            card,
            settings(Form::Hf),
            settings(Form::Lightning),
        ))
    })
}
