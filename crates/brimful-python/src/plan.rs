//! The best settings that fit, for `brimful.plan()`.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use brimful::job::forms::Form;
use brimful::job::{JobError, Override};
use brimful::plan::Room;
use brimful_probe::{PythonHint, current_environment};
use brimful_rehearse::{Cache, JobFileError, NO_CARD, PlanError, PlanQuestion, Told, job_file};
use brimful_report::{html, json, text};
use brimful_supervise::{StateDir, job_key};
use pyo3::prelude::*;

use crate::border::{Failure, call};
use crate::machine::described;
use crate::protection::{AskedProtection, side_effects};

/// Searches for the best settings of a job.
///
/// Returns the JSON document, the page for a terminal, the card for a notebook, and the settings under the names of
/// Hugging Face and of Lightning.
#[pyfunction]
#[expect(
    clippy::too_many_arguments,
    reason = "named arguments on Python's side"
)]
#[pyo3(signature = (*, job, mode, overrides, as_machine, gpu, memory, fresh, steps, beside_driver, time_limit, phantom, protection, progress))]
pub(crate) fn plan(
    py: Python<'_>,
    job: Option<PathBuf>,
    mode: Option<String>,
    overrides: Vec<String>,
    as_machine: Option<String>,
    gpu: Option<String>,
    memory: Option<String>,
    fresh: bool,
    steps: u32,
    beside_driver: bool,
    time_limit: f64,
    phantom: PathBuf,
    protection: AskedProtection,
    progress: Option<Py<PyAny>>,
) -> PyResult<(String, String, String, String, String)> {
    // Read while Python's lock is held: another thread may be setting a variable.
    let env = current_environment();
    let folder = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let state = StateDir::choose(
        folder("BRIMFUL_STATE_DIR"),
        folder("XDG_STATE_HOME"),
        folder("HOME"),
    );
    let place = std::env::current_dir().unwrap_or_default();
    call(py, move || {
        let (path, file) = job_file::find(job.as_deref())?.ok_or_else(|| Failure::Input {
            message: "expected a job in this folder, found neither brimful.toml nor [tool.brimful] in pyproject.toml"
                .into(),
            hints: vec!["write one with `brimful init -- python train.py`".into()],
        })?;
        let overrides = overrides
            .iter()
            .map(|text| text.parse::<Override>())
            .collect::<Result<Vec<_>, _>>()?;
        let job = file.job(mode.as_deref(), &overrides)?;
        let on_cpus = gpu.as_deref() == Some(NO_CARD);
        let here = as_machine.is_none() && memory.is_none();
        let machine = described(
            as_machine.as_deref(),
            gpu.as_deref().filter(|_| !on_cpus),
            memory.as_deref(),
            env,
            PythonHint::default(),
        )?;
        let (room, card) = Room::for_job(&machine, on_cpus);
        let key = job_key(&place, &job.command);
        let question = PlanQuestion {
            job: job.clone(),
            room,
            here,
            card,
            learnt: state
                .as_ref()
                .map_or_else(Vec::new, |state| state.history(&key)),
            cache: state
                .as_ref()
                .and_then(StateDir::rehearsals)
                .map(|folder| Cache { folder }),
            fresh,
            steps,
            time_limit: Duration::try_from_secs_f64(time_limit).unwrap_or(Duration::MAX),
            phantom,
            beside_driver,
            brimful_version: env!("CARGO_PKG_VERSION").into(),
            protection: protection.create(job.checkpoints.clone())?,
        };
        let planned = search(&question, progress.as_ref())?;
        let settings = planned.answer.settings();
        let rendered = job.render(settings, None);
        let context = json::PlanContext {
            job: path.display().to_string(),
            mode,
            machine: text::machine_title(&machine, card),
            command: rendered.command,
            variables: rendered.variables,
            config: rendered.config,
            rehearsals: planned.rehearsals.clone(),
            side_effects: planned.side_effects.clone().map(side_effects),
            seconds: planned.seconds,
        };
        let page = text::Page::plain(80);
        let document = json::PlanDocument::of(&context, &planned.answer);
        let words = text::plan(&context, &planned.answer, &page);
        let internal = |error: &dyn std::error::Error| Failure::Internal {
            message: error.to_string(),
        };
        let card_html = html::plan(&document, &words).map_err(|error| internal(&error))?;
        Ok((
            json::to_text(&document).map_err(|error| internal(&error))?,
            words,
            card_html,
            Form::Hf.write(&job, settings, card.is_some()),
            Form::Lightning.write(&job, settings, card.is_some()),
        ))
    })
}

fn search(
    question: &PlanQuestion,
    progress: Option<&Py<PyAny>>,
) -> Result<brimful_rehearse::Planned, Failure> {
    let mut interruption = None;
    let mut looks = 0_u32;
    let mut lead = String::from("planning");
    let planned = brimful_rehearse::plan(question, |told| {
        looks = looks.wrapping_add(1);
        let line = match told {
            Told::Rehearsing { number, settings } => {
                lead = format!("rehearsal {number} ({})", text::short(settings));
                Some(lead.clone())
            }
            Told::Progress(progress) => progress.event.line().map(|line| format!("{lead}: {line}")),
            Told::Reused { .. } | Told::Look => None,
        };
        if line.is_none() && !looks.is_multiple_of(16) {
            return ControlFlow::Continue(());
        }
        let asked = Python::attach(|py| {
            if let (Some(callback), Some(line)) = (progress, line) {
                callback.call1(py, (line,))?;
            }
            // Ctrl-C, or a notebook's "interrupt".
            py.check_signals()
        });
        match asked {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                interruption = Some(error);
                ControlFlow::Break(())
            }
        }
    });
    match (planned, interruption) {
        (_, Some(error)) => Err(Failure::Python(error)),
        (planned, None) => Ok(planned?),
    }
}

impl From<PlanError> for Failure {
    fn from(error: PlanError) -> Failure {
        match error {
            PlanError::Prediction(error) => error.into(),
            PlanError::Config(error) => {
                let why = std::error::Error::source(&error)
                    .map_or_else(String::new, |source| format!(": {source}"));
                Failure::Input {
                    hints: vec![error.hint()],
                    message: format!("{error}{why}"),
                }
            }
            PlanError::Endless => Failure::Internal {
                message: error.to_string(),
            },
        }
    }
}

impl From<JobError> for Failure {
    fn from(error: JobError) -> Failure {
        Failure::Input {
            hints: error.hints(),
            message: error.to_string(),
        }
    }
}

impl From<JobFileError> for Failure {
    fn from(error: JobFileError) -> Failure {
        Failure::Input {
            hints: error.hints(),
            message: error.to_string(),
        }
    }
}
