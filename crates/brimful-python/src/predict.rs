//! The footprint, for `brimful.predict()`.

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use brimful_rehearse::{PredictionError, Question, RehearsalError, USUAL_CARDS, job_file};
use brimful_report::{html, json, text};
use pyo3::prelude::*;

use crate::border::{Failure, call};
use crate::protection::{AskedProtection, side_effects};

/// Rehearses a command and predicts its memory.
///
/// Returns the JSON document, the page for a terminal and the card for a notebook. `progress` is called with one line
/// whenever there is something to tell.
#[pyfunction]
#[expect(
    clippy::too_many_arguments,
    reason = "named arguments on Python's side"
)]
#[pyo3(signature = (*, command, shown, gpu, steps, with_, alloc_conf, phantom, beside_driver, time_limit, protection, progress))]
pub(crate) fn predict(
    py: Python<'_>,
    command: Vec<OsString>,
    shown: Vec<String>,
    gpu: Option<String>,
    steps: u32,
    with_: Vec<String>,
    alloc_conf: Option<String>,
    phantom: PathBuf,
    beside_driver: bool,
    time_limit: f64,
    protection: AskedProtection,
    progress: Option<Py<PyAny>>,
) -> PyResult<(String, String, String)> {
    call(py, move || {
        let limit = Duration::try_from_secs_f64(time_limit).unwrap_or(Duration::MAX);
        let question = Question {
            command,
            gpu: gpu.unwrap_or_else(|| USUAL_CARDS.to_owned()),
            steps,
            with: with_,
            alloc_conf,
            phantom,
            beside_driver,
            time_limit: limit,
            output: None,
            protection: protection.create(job_file::checkpoints_here())?,
        };
        let mut interruption = None;
        let mut looks = 0_u32;
        let predicted = brimful_rehearse::predict(&question, |told| {
            looks = looks.wrapping_add(1);
            let line = told.and_then(|told| told.event.line());
            if line.is_none() && !looks.is_multiple_of(16) {
                return ControlFlow::Continue(());
            }
            let asked = Python::attach(|py| {
                if let (Some(callback), Some(line)) = (&progress, line) {
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
        let predicted = match (predicted, interruption) {
            (_, Some(error)) => return Err(Failure::Python(error)),
            (predicted, None) => predicted?,
        };
        let rehearsed = json::Rehearsed {
            command: brimful::secrets::mask_command(&shown),
            torch_version: predicted.torch,
            world_size: predicted.world_size,
            seconds: predicted.seconds,
            failed: predicted
                .failed
                .iter()
                .map(|card| (card.name.to_owned(), card.reason.clone()))
                .collect(),
            steps: predicted
                .processes
                .first()
                .map_or(0, |process| process.facts.steps),
            host: predicted.host,
            side_effects: side_effects(predicted.side_effects),
        };
        let footprints = &predicted.footprints;
        let internal = |error: &dyn std::error::Error| Failure::Internal {
            message: error.to_string(),
        };
        Ok((
            json::to_text(&json::PredictDocument::of(&rehearsed, footprints))
                .map_err(|error| internal(&error))?,
            text::predict(&rehearsed, footprints, &text::Page::plain(80)),
            html::predict(&rehearsed, footprints).map_err(|error| internal(&error))?,
        ))
    })
}

impl From<PredictionError> for Failure {
    fn from(error: PredictionError) -> Failure {
        let message = match &error {
            PredictionError::Rehearsal(inner) => match inner.output().map(str::trim_end) {
                Some(output) if !output.is_empty() => {
                    format!("{error}\n\nthe end of its own output:\n{output}")
                }
                _ => error.to_string(),
            },
            _ => error.to_string(),
        };
        let hints = match &error {
            PredictionError::Rehearsal(RehearsalError::NotIsolated { reasons }) => reasons
                .iter()
                .map(|(isolation, reason)| format!("{isolation} is not available: {reason}"))
                .chain([
                    "allow user namespaces or Landlock, or pass allow_writes=True: the training then writes for real"
                        .to_owned(),
                ])
                .collect(),
            PredictionError::Rehearsal(RehearsalError::ScratchFull(_)) => vec![
                "pass a larger scratch, such as scratch=\"20GiB\", or have the training write less in its first steps"
                    .to_owned(),
            ],
            PredictionError::Rehearsal(inner) => vec![inner.hint().to_owned()],
            _ => Vec::new(),
        };
        match error {
            PredictionError::UnknownCard(error) => error.into(),
            PredictionError::BesideDriver => Failure::Machine {
                message,
                hints: vec![
                    "pass beside_driver=True: the training then sees the phantom and never the real card".into(),
                ],
            },
            PredictionError::Rehearsal(
                RehearsalError::Stage(_)
                | RehearsalError::NotIsolated { .. }
                | RehearsalError::ScratchFull(_)
                    | RehearsalError::Guard(_)
                    | RehearsalError::NotRestored(_)
                | RehearsalError::Unhooked { .. }
                | RehearsalError::Phantom { .. }
                | RehearsalError::Output { .. },
            ) => Failure::Machine { message, hints },
            PredictionError::Rehearsal(RehearsalError::Result { .. } | RehearsalError::Snapshot(_))
            | PredictionError::NoFigures => Failure::Internal { message },
            PredictionError::Rehearsal(_)
            | PredictionError::NotNvidia { .. }
            | PredictionError::TooMany { .. }
            | PredictionError::Settings(_) => Failure::Input { message, hints },
        }
    }
}
