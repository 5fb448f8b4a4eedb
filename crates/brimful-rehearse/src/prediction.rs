//! A prediction from end to end: rehearse on every card, replay, add what lies outside of the allocator.

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use brimful::cards::{self, Card, UnknownCard};
use brimful::plan::{Measurements, Pace};
use brimful::predict::host::HostFacts;
use brimful::predict::{AssumedCase, Footprint, Target, Workload, footprint, likely_context};
use brimful::speed::{Speed, StepFacts};
use brimful::user_error::{ErrorKind, Hint, UserError};
use brimful_allocsim::settings::{AllocatorSettings, SettingsError};
use brimful_allocsim::trace::Trace;
use brimful_allocsim::version::TorchVersion;

use crate::error::RehearsalError;
use crate::events::{Event, Progress};
use crate::host::{host_facts, pace};
use crate::outcome::Variant;
use crate::protection::Protection;
use crate::reports::LastStep;
use crate::request::RehearsalRequest;
use crate::results::Rehearsed;
use crate::run::rehearse;
use crate::side_effects::SideEffects;
use crate::workload::{other_cases, phantom_devices, workload};

/// What is to be predicted.
#[derive(Clone, Debug)]
pub struct Question {
    pub command: Vec<OsString>,
    /// Cards with commas between them: `t4,2x a100-40gb`; or [`NO_CARD`].
    pub gpu: String,
    pub steps: u32,
    /// Of `eval` and `save`.
    pub with: Vec<String>,
    /// Whether to rehearse again with other assumptions, where shapes depend on values that only the model computes.
    pub ranges: bool,
    pub alloc_conf: Option<String>,
    pub phantom: PathBuf,
    pub time_limit: Duration,
    pub output: Option<PathBuf>,
    pub protection: Protection,
    /// What earlier runs measured on GPUs.
    pub measured: Measurements,
}

/// The answer.
#[derive(Clone, Debug)]
pub struct Prediction {
    pub side_effects: SideEffects,
    /// One for each card on which the script ran, in the order asked.
    pub footprints: Vec<Footprint>,
    /// For each of `footprints` its index in the requested list of GPU models.
    pub requested: Vec<usize>,
    /// For each of `footprints` the speed; nothing where no step could be captured, or the card's rates are unknown.
    pub speeds: Vec<Option<Speed>>,
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
    /// Its index in the requested list of GPU models.
    pub requested: usize,
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

/// What most people can rent by the hour.
pub const USUAL_CARDS: &str = "t4,l4,a100-40gb,h100";

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
    let usual = on_cards(question, &wanted, AssumedCase::Usual, &mut look)?;
    let range = range(question, &wanted, &usual, &mut look)?;
    let (side_effects, variants) = match &range {
        Some(range) => (range.side_effects.clone(), &range.balanced),
        None => (usual.side_effects.clone(), &usual.variants),
    };
    let assumed = match range {
        Some(_) => AssumedCase::Balanced,
        None => AssumedCase::Usual,
    };
    let mut answered = Vec::new();
    let mut failed = Vec::new();
    for (at, (wanted, variant)) in wanted.iter().zip(variants).enumerate() {
        match fullest(question, wanted.card, &variant.processes, assumed)? {
            Some((found, process)) => {
                let worst = match &range {
                    Some(range) => fullest(
                        question,
                        wanted.card,
                        &range.worst[at].processes,
                        AssumedCase::Worst,
                    )?,
                    None => None,
                };
                let footprint = match worst {
                    Some((worst, _)) => found.with_worst_case(&worst),
                    None => found,
                };
                answered.push((at, footprint, speed(process, wanted.card), process.clone()));
            }
            None => failed.push(FailedCard {
                requested: at,
                name: wanted.card.name,
                reason: variant.failure.clone(),
            }),
        }
    }
    // The first one is shown in detail: that should be a whole run.
    answered.sort_by_key(|(_, footprint, ..)| footprint.is_lower_bound);
    let mut footprints = Vec::new();
    let mut speeds = Vec::new();
    let mut requested = Vec::new();
    let mut processes = Vec::new();
    for (at, footprint, speed, process) in answered {
        requested.push(at);
        footprints.push(footprint);
        speeds.push(speed);
        processes.push(process);
    }
    let seconds = start.elapsed().as_secs_f64();
    answer(processes, side_effects, seconds).map(|answer| Prediction {
        footprints,
        requested,
        speeds,
        failed,
        ..answer
    })
}

/// How fast a process is on a card.
fn speed(process: &Rehearsed, card: &Card) -> Option<Speed> {
    let step = process.step.as_ref()?;
    Speed::of(step, card, &step_facts(process))
}

/// What a process says about its batches.
fn step_facts(process: &Rehearsed) -> StepFacts {
    let report = process.facts.host.as_ref();
    let host = report.and_then(host_facts).unwrap_or_default();
    let ranks = u64::from(process.facts.world_size);
    let sample_seconds = report
        .and_then(pace)
        .map_or(0.0, |pace| pace.sample_seconds);
    let makers = host.workers.max(1).saturating_mul(ranks.max(1)) as f64;
    StepFacts {
        micro_batch: host.micro_batch,
        dataset_samples: host.dataset.samples,
        ranks,
        loading_rate: (sample_seconds > 0.0).then(|| makers / sample_seconds),
        scale: None,
    }
}

/// What one case of assumed values gives on every card.
struct OnCards {
    side_effects: SideEffects,
    variants: Vec<Variant>,
}

/// Rehearses on every card.
fn on_cards(
    question: &Question,
    wanted: &[GpuCount],
    assumed: AssumedCase,
    look: &mut dyn FnMut(Option<&Progress>) -> ControlFlow<()>,
) -> Result<OnCards, PredictionError> {
    let first = rehearse(&rehearsal_request(question, wanted, assumed), &mut *look)?;
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
                let request = rehearsal_request(question, &wanted[at..=at], assumed);
                match rehearse(&request, &mut *look) {
                    Ok(mut next) => {
                        side_effects = side_effects.and(next.side_effects);
                        next.variants.swap_remove(0)
                    }
                    Err(error @ RehearsalError::Died { .. }) => Variant {
                        failure: error.to_string(),
                        ..Variant::default()
                    },
                    Err(error) => return Err(error.into()),
                }
            };
        }
    }
    Ok(OnCards {
        side_effects,
        variants,
    })
}

/// The two ends of what the values of the model may lead to.
struct Range {
    side_effects: SideEffects,
    balanced: Vec<Variant>,
    worst: Vec<Variant>,
}

/// Rehearses the other cases, if the usual one says that shapes depend on them. `None` if they do not, or if the
/// script fails with other values: then the usual case stands alone, with its caveats.
fn range(
    question: &Question,
    wanted: &[GpuCount],
    usual: &OnCards,
    look: &mut dyn FnMut(Option<&Progress>) -> ControlFlow<()>,
) -> Result<Option<Range>, PredictionError> {
    if !question.ranges {
        return Ok(None);
    }
    let others = other_cases(usual.variants.iter().flat_map(|variant| &variant.processes));
    if !others.balanced && !others.worst {
        return Ok(None);
    }
    let mut side_effects = usual.side_effects.clone();
    let mut case = |is_needed: bool, assumed: AssumedCase| {
        if !is_needed {
            return Ok(Some(usual.variants.clone()));
        }
        let again = Progress::own(Event::OtherCase(assumed));
        if look(Some(&again)).is_break() {
            return Err(RehearsalError::Interrupted {
                progress: LastStep::default(),
            }
            .into());
        }
        match on_cards(question, wanted, assumed, look) {
            Ok(found) => {
                side_effects = side_effects.clone().and(found.side_effects);
                let is_complete = (usual.variants.iter().zip(&found.variants))
                    .all(|(usual, found)| usual.processes.is_empty() || has_steps(found));
                Ok(is_complete.then_some(found.variants))
            }
            Err(error) if error.interrupted().is_some() => Err(error),
            Err(_) => Ok(None),
        }
    };
    let Some(balanced) = case(others.balanced, AssumedCase::Balanced)? else {
        return Ok(None);
    };
    let Some(worst) = case(others.worst, AssumedCase::Worst)? else {
        return Ok(None);
    };
    Ok(Some(Range {
        side_effects,
        balanced,
        worst,
    }))
}

/// Whether a rehearsal came to its steps and did not end with an error.
fn has_steps(variant: &Variant) -> bool {
    (variant.processes.iter()).any(|process| process.facts.steps > 0 && !process.died)
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
        ..rehearsal_request(question, &[], AssumedCase::Usual)
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
        requested: Vec::new(),
        speeds: Vec::new(),
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

fn wanted(list: &str) -> Result<Vec<GpuCount>, PredictionError> {
    let mut wanted = Vec::new();
    for part in cards::alternatives(list)? {
        let (card, count) = cards::find_counted(part)?;
        if card.compute_capability.is_none() {
            return Err(PredictionError::NotNvidia { name: card.name });
        }
        if count > MAX_CARDS {
            return Err(PredictionError::TooMany { count });
        }
        wanted.push(GpuCount { card, count });
    }
    Ok(wanted)
}

fn same_kernels(a: &GpuCount, b: &GpuCount) -> bool {
    a.count == b.count && a.card.compute_capability == b.card.compute_capability
}

fn rehearsal_request(
    question: &Question,
    wanted: &[GpuCount],
    assumed: AssumedCase,
) -> RehearsalRequest {
    RehearsalRequest {
        command: question.command.clone(),
        phantom: question.phantom.clone(),
        on_cpus: false,
        variants: wanted.iter().map(tries).collect(),
        assumed,
        steps: question.steps,
        with: question.with.clone(),
        alloc_conf: question.alloc_conf.clone(),
        time_limit: question.time_limit,
        // What the script prints with other values would replace what was asked for.
        output: match assumed {
            AssumedCase::Usual => question.output.clone(),
            AssumedCase::Balanced | AssumedCase::Worst => None,
        },
        protection: question.protection.clone(),
    }
}

/// The card as it is, since what is free decides which convolution plans PyTorch can use; then, for a run that does
/// not fit, with endless room, to tell how much is missing.
fn tries(wanted: &GpuCount) -> Vec<String> {
    let card = wanted.card;
    let room = card
        .torch_visible
        .value
        .saturating_sub(likely_context(card));
    vec![
        phantom_devices(card, wanted.count, Some(room.get())),
        phantom_devices(card, wanted.count, None),
    ]
}

/// The footprint of the process that takes most.
fn fullest<'a>(
    question: &Question,
    card: &'static Card,
    processes: &'a [Rehearsed],
    assumed: AssumedCase,
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
            compute_capability: card.compute_capability,
            settings: AllocatorSettings::parse(conf, version)?,
            measured_context: question.measured.context(card, &process.facts.torch),
        };
        let workload = Workload {
            assumed,
            ..workload(process, question.steps)
        };
        let found = footprint(&workload, &target);
        if fullest
            .as_ref()
            .is_none_or(|(most, _)| found.device.likely > most.device.likely)
        {
            fullest = Some((found, process));
        }
    }
    Ok(fullest)
}
