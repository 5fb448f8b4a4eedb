//! A prediction: rehearse a command and describe the memory it needs.

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::path::PathBuf;

use brimful::predict::{FitVerdict, Footprint};
use brimful::secrets::mask_command;
use brimful_allocsim::trace::Trace;
use brimful_probe::Environment;
use brimful_rehearse::{Event, NO_CARD, Protection, Question, job_file};
use brimful_report::json;
use brimful_supervise::StateDir;

use crate::error::WorkflowError;
use crate::gpus::GpuChoice;
use crate::measured::{command_digest, measurements};
use crate::options::{RehearsalOptions, side_effects_document};
use crate::progress::Progress;

/// What to predict.
#[derive(Clone, Debug)]
pub struct PredictRequest {
    pub command: Vec<OsString>,
    /// The command as documents show it, where it differs from what is started.
    pub shown_command: Option<Vec<String>>,
    /// GPU models with commas between them, `none` for CPUs; without it those of this machine, else the usual ones.
    pub gpu: Option<String>,
    /// The environment variables of this process, which choose the GPUs of this machine.
    pub environment: Environment,
    /// Phases after the steps, of `eval` and `save`.
    pub with: Vec<String>,
    pub alloc_conf: Option<String>,
    /// Where the script's own output goes; nowhere without it.
    pub output: Option<PathBuf>,
    /// Where earlier runs stored what they measured on GPUs.
    pub state: Option<StateDir>,
    pub rehearsal: RehearsalOptions,
}

/// A prediction and what documents say about its rehearsal.
#[derive(Debug)]
pub struct PredictedRun {
    pub rehearsed: json::Rehearsed,
    pub footprints: Vec<Footprint>,
    /// For each footprint, then for each GPU on which the script failed, its index in the requested list.
    pub requested: (Vec<usize>, Vec<usize>),
    /// The allocations of the fullest process.
    pub trace: Trace,
}

impl PredictedRun {
    /// Whether it fits at least one of the GPUs; true where only host memory was asked for.
    pub fn fits(&self) -> bool {
        self.footprints.is_empty()
            || self
                .footprints
                .iter()
                .any(|footprint| footprint.verdict == FitVerdict::Fits)
    }

    pub fn document(&self) -> json::PredictDocument {
        json::PredictDocument::of(&self.rehearsed, &self.footprints)
    }
}

/// Rehearses the command on every GPU model and predicts its memory.
pub fn predict(
    request: PredictRequest,
    progress: impl FnMut(Progress<'_>) -> ControlFlow<()>,
) -> Result<PredictedRun, WorkflowError> {
    let options = &request.rehearsal;
    let protection = options
        .isolation
        .protection(&options.libraries, job_file::checkpoints_here())?;
    predict_within(request, protection, progress)
}

/// The same inside a protection that something else uses too.
pub(crate) fn predict_within(
    request: PredictRequest,
    protection: Protection,
    mut progress: impl FnMut(Progress<'_>) -> ControlFlow<()>,
) -> Result<PredictedRun, WorkflowError> {
    let options = &request.rehearsal;
    let is_without_gpu = request.gpu.as_deref().map(str::trim) == Some(NO_CARD);
    let chosen = match request.gpu {
        Some(models) => GpuChoice::requested(models),
        None => GpuChoice::here(request.environment),
    };
    let question = Question {
        gpu: chosen.models,
        steps: options.steps,
        with: request.with,
        ranges: true,
        alloc_conf: request.alloc_conf,
        phantom: if is_without_gpu {
            PathBuf::new()
        } else {
            options.libraries.phantom()?
        },
        time_limit: options.time_limit,
        output: request.output,
        protection,
        measured: measurements(request.state.as_ref(), command_digest(&request.command)),
        command: request.command,
    };
    let mut is_reported = false;
    let predicted = brimful_rehearse::predict(&question, |told| {
        let Some(told) = told else {
            return progress(Progress::Idle);
        };
        if let Event::NoCuda { torch } = &told.event
            && !std::mem::replace(&mut is_reported, true)
        {
            progress(Progress::WithoutCuda {
                torch: torch.clone(),
            })?;
        }
        progress(Progress::of_event(&told.event))
    })?;
    let shown = request.shown_command.unwrap_or_else(|| {
        let words = question.command.iter();
        words
            .map(|word| word.to_string_lossy().into_owned())
            .collect()
    });
    let rehearsed = json::Rehearsed {
        command: mask_command(&shown),
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
        speeds: predicted.speeds,
        side_effects: side_effects_document(predicted.side_effects),
        gpus_from: chosen.from,
        machine_gpus: chosen.of_machine,
    };
    let failed = predicted.failed.iter().map(|card| card.requested);
    Ok(PredictedRun {
        requested: (predicted.requested, failed.collect()),
        rehearsed,
        footprints: predicted.footprints,
        trace: predicted.trace,
    })
}
