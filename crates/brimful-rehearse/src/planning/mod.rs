//! A plan from end to end: rehearse what the search asks for, or take it from the cache, until it can answer.

mod cache;
mod question;
mod shape;

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::time::Instant;

use brimful::explain::Cause;
use brimful::job::{Choices, Rendered, Settings, knobs};
use brimful::plan::{
    Answer, LearntRun, Measurements, Observed, Reason, ReasonKind, RehearsalUsed, Shape, Step,
    next_step,
};
use brimful::predict::MeasuredContext;
use brimful::user_error::{ErrorKind, Hint, UserError};

pub use cache::Cache;
use cache::unix_ms;
pub(crate) use cache::{Kept, Key};
pub use question::PlanQuestion;
use shape::shape;

use crate::config_files::{ConfigFileError, ConfigFiles};
use crate::error::RehearsalError;
use crate::events::Progress;
use crate::prediction::{NO_CARD, PredictionError, Question, predict};
use crate::reports::LastStep;
use crate::side_effects::SideEffects;

/// A search that asks for more than this has lost its way.
const MAX_REHEARSALS: usize = 40;

/// What came of it.
#[derive(Clone, Debug)]
pub struct Planned {
    pub answer: Answer,
    /// What the answer rests on.
    pub shapes: Vec<Shape>,
    /// In the order in which they were asked for.
    pub rehearsals: Vec<RehearsalUsed>,
    /// Of all rehearsals that were made now; nothing where none was needed.
    pub side_effects: Option<SideEffects>,
    /// Where the context on the GPU is not calculated.
    pub measured_context: Option<MeasuredContext>,
    pub seconds: f64,
}

/// Something worth telling while it plans.
#[derive(Clone, Copy, Debug)]
pub enum PlanEvent<'a> {
    /// The next rehearsal begins.
    Rehearsing {
        number: usize,
        settings: &'a Settings,
    },
    /// It was rehearsed before.
    Reused {
        settings: &'a Settings,
    },
    Progress(&'a Progress),
    /// Nothing new: a chance to stop.
    Look,
}

/// No answer.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error(transparent)]
    Prediction(#[from] PredictionError),
    #[error(transparent)]
    Config(#[from] ConfigFileError),
    #[error("the search for settings did not converge within {MAX_REHEARSALS} rehearsals")]
    Endless,
}

impl UserError for PlanError {
    fn kind(&self) -> ErrorKind {
        match self {
            PlanError::Prediction(error) => error.kind(),
            PlanError::Config(error) => error.kind(),
            PlanError::Endless => ErrorKind::Bug,
        }
    }

    fn hints(&self) -> Vec<Hint> {
        match self {
            PlanError::Prediction(error) => error.hints(),
            PlanError::Config(error) => error.hints(),
            PlanError::Endless => vec![Hint::text(
                "this is a bug; please report it with the job file",
            )],
        }
    }

    fn script_output(&self) -> Option<&str> {
        match self {
            PlanError::Prediction(error) => error.script_output(),
            PlanError::Config(_) | PlanError::Endless => None,
        }
    }
}

/// Searches, rehearses and answers.
pub fn plan(
    question: &PlanQuestion,
    mut look: impl FnMut(PlanEvent<'_>) -> ControlFlow<()>,
) -> Result<Planned, PlanError> {
    let start = Instant::now();
    let mut config = ConfigFiles::open(&question.job)?;
    let mut shapes: Vec<Shape> = Vec::new();
    let mut rehearsals = Vec::new();
    let mut side_effects: Option<SideEffects> = None;
    let mut learnt = question.learnt.clone();
    let mut answer = loop {
        let mut settings = match next_step(&question.job, &question.room, &shapes, &learnt) {
            Step::Rehearse(settings) => settings,
            Step::Done(plan) => break Answer::Plan(plan),
            Step::Impossible(closest) => break Answer::Impossible(closest),
        };
        if shapes.len() >= MAX_REHEARSALS {
            return Err(PlanError::Endless);
        }
        let number = rehearsals.len() + 1;
        let (mut kept, mut reused) =
            rehearsed(question, &settings, config.as_mut(), number, &mut look)?;
        if let (Some(_), Some(alone)) = (&kept.failed, without_workers(question, &settings)) {
            // One worker was too much already: what the rest needs is told without it.
            rehearsals.push(used(&settings, &kept, reused));
            learnt.extend(question.here.then(|| died(question, settings)));
            settings = alone;
            let number = rehearsals.len() + 1;
            (kept, reused) = rehearsed(question, &settings, config.as_mut(), number, &mut look)?;
        }
        side_effects = match (side_effects.take(), kept.side_effects.clone()) {
            (Some(before), Some(now)) => Some(before.and(now)),
            (before, now) => before.or(now),
        };
        rehearsals.push(used(&settings, &kept, reused));
        shapes.push(shape(question, settings, &kept));
    };
    let measured_context = measured_context(question, &shapes);
    if let Some(measured) = &measured_context {
        give_reason(&mut answer, measured);
    }
    Ok(Planned {
        answer,
        shapes,
        rehearsals,
        side_effects,
        measured_context,
        seconds: start.elapsed().as_secs_f64(),
    })
}

/// The context that the footprints of all shapes have in common.
fn measured_context(question: &PlanQuestion, shapes: &[Shape]) -> Option<MeasuredContext> {
    let (card, _) = question.card?;
    let torch = shapes.iter().find(|shape| !shape.torch.is_empty())?;
    question.measured.context(card, &torch.torch)
}

fn give_reason(answer: &mut Answer, measured: &MeasuredContext) {
    let reasons = match answer {
        Answer::Plan(plan) => &mut plan.reasons,
        Answer::Impossible(closest) => &mut closest.reasons,
    };
    reasons.push(Reason {
        kind: ReasonKind::Learnt,
        text: format!("the CUDA context is {measured}"),
        ..Reason::default()
    });
}

fn used(settings: &Settings, kept: &Kept, reused: bool) -> RehearsalUsed {
    RehearsalUsed {
        settings: settings.clone(),
        reused,
        age_seconds: unix_ms().saturating_sub(kept.at_unix_ms) as f64 / 1000.0,
        seconds: kept.seconds,
        failed: kept.failed.clone(),
    }
}

/// The same without workers, where the job may have none.
fn without_workers(question: &PlanQuestion, settings: &Settings) -> Option<Settings> {
    let allowed = match &question.job.knob(knobs::WORKERS)?.choices {
        Choices::Auto => true,
        Choices::Listed(values) => values.iter().any(|value| value.count() == Some(0)),
    };
    let has_some = settings.count(knobs::WORKERS).is_some_and(|n| n > 0);
    (allowed && has_some).then(|| settings.with(knobs::WORKERS, 0_u64).sound())
}

/// A rehearsal on this machine that the kernel ended is as good as a run that it ended.
fn died(question: &PlanQuestion, settings: Settings) -> LearntRun {
    LearntRun {
        at_unix_ms: unix_ms(),
        settings,
        cause: Some(Cause::HostOomKill),
        observed: Observed {
            host_limit: question.room.host,
            ..Observed::default()
        },
        measured_on: None,
    }
}

/// One rehearsal, from the cache or now.
fn rehearsed(
    question: &PlanQuestion,
    settings: &Settings,
    mut config: Option<&mut ConfigFiles>,
    number: usize,
    look: &mut impl FnMut(PlanEvent<'_>) -> ControlFlow<()>,
) -> Result<(Kept, bool), PlanError> {
    let rendered = question.job.render(settings, None);
    let cards = cards_of(question);
    let key = key_of(question, &rendered, &cards);
    if let Some(cache) = question.cache.as_ref().filter(|_| !question.fresh)
        && let Some(kept) = cache.get(&key)
    {
        let _ = look(PlanEvent::Reused { settings });
        return Ok((kept, true));
    }
    if look(PlanEvent::Rehearsing { number, settings }).is_break() {
        return Err(PredictionError::from(RehearsalError::Interrupted {
            progress: LastStep::default(),
        })
        .into());
    }
    let start = Instant::now();
    let command = match config.as_deref_mut() {
        Some(files) => files.write(&rendered)?,
        None => rendered.command,
    };
    let asked = Question {
        command: command.into_iter().map(OsString::from).collect(),
        gpu: if cards.is_empty() {
            NO_CARD.to_owned()
        } else {
            cards
        },
        steps: question.steps,
        with: Vec::new(),
        ranges: false,
        alloc_conf: None,
        phantom: question.phantom.clone(),
        time_limit: question.time_limit,
        output: None,
        protection: question.protection.clone(),
        // The GPU's memory is reckoned from what is kept.
        measured: Measurements::default(),
    };
    let predicted = predict(&asked, |progress| {
        look(progress.map_or(PlanEvent::Look, PlanEvent::Progress))
    });
    let mut kept = Kept {
        at_unix_ms: unix_ms(),
        ..Kept::default()
    };
    let mut sources = Vec::new();
    match predicted {
        Ok(found) => {
            if found.processes.iter().any(|process| process.ran_out) {
                kept.failed = Some("GPU memory ran out before its first steps".to_owned());
            }
            kept.side_effects = Some(found.side_effects);
            kept.world_size = found.world_size;
            if question.card.is_some() {
                kept.processes = found.processes;
            }
            kept.host = found.host.unwrap_or_default();
            kept.pace = found.pace.unwrap_or_default();
            sources = found.sources;
        }
        // Killed, or out of memory before its first step: these settings do not fit here. With no step there is
        // nothing else to learn from them.
        Err(PredictionError::Rehearsal(error)) => match error.died_of_memory() {
            Some(words) => kept.failed = Some(words),
            None => return Err(PredictionError::from(error).into()),
        },
        Err(error) => return Err(error.into()),
    }
    kept.seconds = start.elapsed().as_secs_f64();
    if let Some(files) = config {
        sources.extend(files.paths());
    }
    if let Some(cache) = question.cache.as_ref().filter(|_| kept.failed.is_none()) {
        // A plan that cannot be kept is still a plan.
        let _ = cache.put(&key, &kept, &sources);
    }
    Ok((kept, false))
}

/// The GPUs of a rehearsal, as `predict` is asked for them; empty for a job on CPUs.
fn cards_of(question: &PlanQuestion) -> String {
    match question.card {
        None => String::new(),
        Some((card, count)) if count > 1 => format!("{count}x {}", card.id),
        Some((card, _)) => card.id.to_owned(),
    }
}

/// What a rehearsal depends on: the same key gives the same result.
fn key_of(question: &PlanQuestion, rendered: &Rendered, cards: &str) -> Key {
    Key {
        command: rendered.command.clone(),
        variables: rendered.variables.clone(),
        config: rendered
            .config
            .iter()
            .flat_map(|file| &file.entries)
            .map(|(key, value)| (key.clone(), format!("{value:?}")))
            .collect(),
        folder: std::env::current_dir()
            .map(|folder| folder.display().to_string())
            .unwrap_or_default(),
        cards: cards.to_owned(),
        steps: question.steps,
        brimful_version: question.brimful_version.clone(),
    }
}
