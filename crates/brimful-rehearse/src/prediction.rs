//! A prediction from end to end: rehearse on every card, replay, add what lies outside of the allocator.

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use brimful::cards::{self, Card, UnknownCard};
use brimful::plan::Pace;
use brimful::predict::host::HostFacts;
use brimful::predict::{Footprint, Target, context, footprint};
use brimful::user_error::{ErrorKind, Hint, UserError};
use brimful_allocsim::settings::{AllocatorSettings, SettingsError};
use brimful_allocsim::trace::Trace;
use brimful_allocsim::version::TorchVersion;

use crate::error::RehearsalError;
use crate::events::Progress;
use crate::host::{host_facts, pace};
use crate::protection::Protection;
use crate::reports::LastStep;
use crate::request::RehearsalRequest;
use crate::results::Rehearsed;
use crate::run::rehearse;
use crate::side_effects::SideEffects;
use crate::stage::has_driver;
use crate::workload::{phantom_devices, workload};

/// What is to be predicted.
#[derive(Clone, Debug)]
pub struct Question {
    pub command: Vec<OsString>,
    /// Cards with commas between them: `t4,2x a100-40gb`; or [`NO_CARD`].
    pub gpu: String,
    pub steps: u32,
    /// Of `eval` and `save`.
    pub with: Vec<String>,
    pub alloc_conf: Option<String>,
    pub phantom: PathBuf,
    pub beside_driver: bool,
    pub time_limit: Duration,
    pub output: Option<PathBuf>,
    pub protection: Protection,
}

/// The answer.
#[derive(Clone, Debug)]
pub struct Prediction {
    pub side_effects: SideEffects,
    /// One for each card on which the script ran, in the order asked.
    pub footprints: Vec<Footprint>,
    /// Cards on which it died before its first step, of something else than memory.
    pub failed: Vec<FailedCard>,
    pub torch: String,
    pub world_size: u32,
    pub seconds: f64,
    /// The trace of the first card's fullest process.
    pub trace: Trace,
    /// For each of `footprints` the process that it is of; without a card the first process.
    pub processes: Vec<Rehearsed>,
    /// Memory of the host; nothing where it could not be measured.
    pub host: Option<HostFacts>,
    pub pace: Option<Pace>,
    /// Python files of the script itself, from outside of installed packages and the standard library.
    pub sources: Vec<PathBuf>,
}

/// A card on which the script did not run.
#[derive(Clone, Debug)]
pub struct FailedCard {
    pub name: &'static str,
    /// The last line of its output.
    pub reason: String,
}

/// No answer.
#[derive(Debug, thiserror::Error)]
pub enum PredictionError {
    #[error(transparent)]
    UnknownCard(#[from] UnknownCard),
    #[error("{name} is not an NVIDIA GPU; the phantom GPU emulates only those")]
    NotNvidia { name: &'static str },
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error("this machine has an NVIDIA driver, which the phantom GPU does not replace by default")]
    BesideDriver,
    #[error(transparent)]
    Rehearsal(#[from] RehearsalError),
    #[error("the rehearsal produced no measurements")]
    NoFigures,
    #[error("{count} GPUs are too many; the phantom emulates at most {MAX_CARDS} in one machine")]
    TooMany { count: usize },
}

impl PredictionError {
    /// How far the rehearsal had come, where the person interrupted it.
    pub fn interrupted(&self) -> Option<LastStep> {
        match self {
            PredictionError::Rehearsal(RehearsalError::Interrupted { progress }) => Some(*progress),
            _ => None,
        }
    }
}

impl UserError for PredictionError {
    fn kind(&self) -> ErrorKind {
        match self {
            PredictionError::Rehearsal(error) => error.kind(),
            PredictionError::BesideDriver => ErrorKind::Environment,
            PredictionError::NoFigures => ErrorKind::Bug,
            PredictionError::UnknownCard(_)
            | PredictionError::NotNvidia { .. }
            | PredictionError::Settings(_)
            | PredictionError::TooMany { .. } => ErrorKind::Input,
        }
    }

    fn hints(&self) -> Vec<Hint> {
        match self {
            PredictionError::Rehearsal(error) => error.hints(),
            PredictionError::UnknownCard(error) => error.hints(),
            PredictionError::NotNvidia { .. } => vec![Hint::ListGpus],
            PredictionError::BesideDriver => vec![Hint::UseBesideDriver],
            PredictionError::TooMany { .. } => vec![Hint::NameFewerGpus],
            PredictionError::Settings(_) | PredictionError::NoFigures => Vec::new(),
        }
    }

    fn script_output(&self) -> Option<&str> {
        match self {
            PredictionError::Rehearsal(error) => error.script_output(),
            _ => None,
        }
    }
}

/// In place of a card: the script trains on CPUs, and only the host is measured.
pub const NO_CARD: &str = "none";

/// What most people can get.
pub const USUAL_CARDS: &str = "t4,l4,a100-40gb";

/// Devices of the phantom.
const MAX_CARDS: usize = 16;

/// A card and how many of it one machine has.
#[derive(Clone, Copy, Debug)]
struct GpuCount {
    card: &'static Card,
    count: usize,
}

/// Rehearses, replays and answers.
pub fn predict(
    question: &Question,
    mut look: impl FnMut(Option<&Progress>) -> ControlFlow<()>,
) -> Result<Prediction, PredictionError> {
    let start = Instant::now();
    if question.gpu.trim() == NO_CARD {
        return on_cpus(question, &mut look, start);
    }
    let wanted = wanted(&question.gpu)?;
    if let Some(conf) = &question.alloc_conf {
        // Which release will read it is known later; what no release accepts is told now.
        AllocatorSettings::parse(conf, TorchVersion::NEWEST_CHECKED)?;
    }
    if has_driver() && !question.beside_driver {
        return Err(PredictionError::BesideDriver);
    }
    let first = rehearse(&rehearsal_request(question, &wanted), &mut look)?;
    let mut side_effects = first.side_effects;
    let mut variants = first.variants;
    // Where the script has several processes it may have run on the first card only.
    for at in 1..wanted.len() {
        let first_only = variants[0]
            .processes
            .first()
            .is_some_and(|process| process.facts.variant.is_none());
        if first_only && variants[at].processes.is_empty() {
            let twin = (0..at).find(|earlier| same_kernels(&wanted[*earlier], &wanted[at]));
            variants[at] = if let Some(twin) = twin {
                variants[twin].clone()
            } else {
                let mut next = rehearse(&rehearsal_request(question, &wanted[at..=at]), &mut look)?;
                side_effects = side_effects.and(next.side_effects);
                next.variants.swap_remove(0)
            };
        }
    }
    let mut footprints = Vec::new();
    let mut failed = Vec::new();
    let mut processes = Vec::new();
    for (wanted, variant) in wanted.iter().zip(&variants) {
        match fullest(question, wanted.card, &variant.processes)? {
            Some((found, process)) => {
                footprints.push(found);
                processes.push(process.clone());
            }
            None => failed.push(FailedCard {
                name: wanted.card.name,
                reason: last_words(&variant.output),
            }),
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    answer(processes, side_effects, seconds).map(|answer| Prediction {
        footprints,
        failed,
        ..answer
    })
}

/// A rehearsal without any card: no footprints, only the host.
fn on_cpus(
    question: &Question,
    look: &mut dyn FnMut(Option<&Progress>) -> ControlFlow<()>,
    start: Instant,
) -> Result<Prediction, PredictionError> {
    let request = RehearsalRequest {
        on_cpus: true,
        variants: vec![Vec::new()],
        ..rehearsal_request(question, &[])
    };
    let rehearsal = rehearse(&request, look)?;
    let side_effects = rehearsal.side_effects;
    let processes = rehearsal.variants.into_iter().flat_map(|v| v.processes);
    // The launcher of several processes has no loader of its own.
    let mut processes: Vec<Rehearsed> = processes.collect();
    processes.sort_by_key(|process| (process.facts.steps == 0, process.facts.rank));
    processes.truncate(1);
    answer(processes, side_effects, start.elapsed().as_secs_f64())
}

/// What is said besides the footprints.
fn answer(
    processes: Vec<Rehearsed>,
    side_effects: SideEffects,
    seconds: f64,
) -> Result<Prediction, PredictionError> {
    let first = processes.first().ok_or(PredictionError::NoFigures)?;
    let report = first.facts.host.as_ref();
    Ok(Prediction {
        side_effects,
        footprints: Vec::new(),
        failed: Vec::new(),
        torch: first.facts.torch.clone(),
        world_size: first.facts.world_size,
        seconds,
        trace: first.trace.clone(),
        host: report.and_then(host_facts),
        pace: report.and_then(pace),
        sources: first.facts.sources.clone(),
        processes,
    })
}

/// The last line that says something: where Python's tracebacks end.
fn last_words(output: &str) -> String {
    let line = output.lines().rev().find(|line| !line.trim().is_empty());
    line.unwrap_or("it said nothing")
        .trim()
        .chars()
        .take(300)
        .collect()
}

fn wanted(list: &str) -> Result<Vec<GpuCount>, PredictionError> {
    let mut wanted = Vec::new();
    for part in list.split(',') {
        let found = cards::find_all(part)?;
        let Some(&card) = found.first() else { continue };
        if card.compute_capability.is_none() {
            return Err(PredictionError::NotNvidia { name: card.name });
        }
        if found.len() > MAX_CARDS {
            return Err(PredictionError::TooMany { count: found.len() });
        }
        wanted.push(GpuCount {
            card,
            count: found.len(),
        });
    }
    Ok(wanted)
}

fn same_kernels(a: &GpuCount, b: &GpuCount) -> bool {
    a.count == b.count && a.card.compute_capability == b.card.compute_capability
}

fn rehearsal_request(question: &Question, wanted: &[GpuCount]) -> RehearsalRequest {
    RehearsalRequest {
        command: question.command.clone(),
        phantom: question.phantom.clone(),
        on_cpus: false,
        variants: wanted.iter().map(tries).collect(),
        steps: question.steps,
        with: question.with.clone(),
        alloc_conf: question.alloc_conf.clone(),
        beside_driver: question.beside_driver,
        time_limit: question.time_limit,
        output: question.output.clone(),
        protection: question.protection.clone(),
    }
}

/// The card as it is, since what is free decides which convolution plans PyTorch can use; then, for a run that does
/// not fit, with endless room, to tell how much is missing.
fn tries(wanted: &GpuCount) -> Vec<String> {
    let context = context(wanted.card.multiprocessors.value, true);
    let room = wanted
        .card
        .torch_visible
        .value
        .saturating_sub(context.likely);
    vec![
        phantom_devices(wanted.card, wanted.count, Some(room.get())),
        phantom_devices(wanted.card, wanted.count, None),
    ]
}

/// The footprint of the process that takes most.
fn fullest<'a>(
    question: &Question,
    card: &'static Card,
    processes: &'a [Rehearsed],
) -> Result<Option<(Footprint, &'a Rehearsed)>, PredictionError> {
    let mut fullest: Option<(Footprint, &Rehearsed)> = None;
    for process in processes {
        let version = process
            .facts
            .torch
            .parse()
            .unwrap_or(TorchVersion::NEWEST_CHECKED);
        let conf = question
            .alloc_conf
            .as_deref()
            .unwrap_or(&process.trace.settings);
        let target = Target {
            name: card.name.to_owned(),
            total: card.torch_visible.value,
            multiprocessors: card.multiprocessors.value,
            settings: AllocatorSettings::parse(conf, version)?,
        };
        let found = footprint(&workload(process, question.steps), &target);
        if fullest
            .as_ref()
            .is_none_or(|(most, _)| found.device.likely > most.device.likely)
        {
            fullest = Some((found, process));
        }
    }
    Ok(fullest)
}
