//! What `plan` and `run` share: the job, the machine it is for, and the search.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use brimful::cards::Card;
use brimful::job::{Job, Override};
use brimful::machine::Machine;
use brimful::plan::{LearntRun, Room};
use brimful_rehearse::{Cache, NO_CARD, PlanError, PlanQuestion, Planned, Told, job_file};
use brimful_supervise::StateDir;

use crate::args::{JobArguments, PlanRehearsalArguments, ProbeArguments};
use crate::commands::predict::Interruption;
use crate::commands::probe::described_machine;
use crate::commands::protection::{phantom_library, protection};
use crate::error::CommandError;
use crate::output::Output;

/// A job and where its description stands.
pub(crate) struct FoundJob {
    pub job: Job,
    pub path: PathBuf,
}

/// The job that was named, or the one of this folder.
pub(crate) fn find_job(
    arguments: &JobArguments,
    overrides: &[String],
) -> Result<FoundJob, CommandError> {
    let Some((path, file)) = job_file::find(arguments.job.as_deref())? else {
        return Err(CommandError::NoJob);
    };
    let overrides = overrides
        .iter()
        .map(|text| text.parse::<Override>())
        .collect::<Result<Vec<_>, _>>()?;
    let job = file.job(arguments.mode.as_deref(), &overrides)?;
    Ok(FoundJob { job, path })
}

/// The machine to plan for.
pub(crate) fn machine(
    as_machine: Option<&str>,
    gpu: Option<&str>,
    memory: Option<brimful::units::Bytes>,
) -> Result<Machine, CommandError> {
    described_machine(&ProbeArguments {
        as_machine: as_machine.map(str::to_owned),
        gpu: gpu.filter(|gpu| *gpu != NO_CARD).map(str::to_owned),
        memory,
        ..ProbeArguments::default()
    })
}

/// What a search needs besides the job.
pub(crate) struct Search {
    pub room: Room,
    /// The room is that of this machine.
    pub here: bool,
    pub card: Option<(&'static Card, usize)>,
    pub learnt: Vec<LearntRun>,
}

/// Searches, with progress on standard error.
pub(crate) fn search(
    job: &Job,
    search: &Search,
    arguments: &PlanRehearsalArguments,
    state: Option<&StateDir>,
    output: &Output,
) -> Result<Planned, CommandError> {
    let question = PlanQuestion {
        job: job.clone(),
        room: search.room.clone(),
        here: search.here,
        card: search.card,
        learnt: search.learnt.clone(),
        cache: state
            .and_then(StateDir::rehearsals)
            .map(|folder| Cache { folder }),
        fresh: arguments.fresh,
        steps: arguments.rehearsal.steps,
        time_limit: Duration::from_secs(arguments.rehearsal.time_limit),
        phantom: match search.card {
            Some(_) => phantom_library(arguments.rehearsal.phantom.as_deref())?,
            None => arguments.rehearsal.phantom.clone().unwrap_or_default(),
        },
        beside_driver: arguments.rehearsal.beside_driver,
        brimful_version: env!("CARGO_PKG_VERSION").into(),
        protection: protection(&arguments.rehearsal.protection, Some(job))?,
    };
    output.status("planning");
    let stop = Interruption::watch();
    let mut lead = String::from("a rehearsal");
    let planned = brimful_rehearse::plan(&question, |told| {
        match told {
            Told::Rehearsing { number, settings } => {
                lead = format!(
                    "rehearsal {number} ({})",
                    brimful_report::text::short(settings)
                );
                output.status(&lead);
            }
            Told::Progress(progress) => {
                if let Some(line) = progress.event.line() {
                    output.status(&format!("{lead}: {line}"));
                }
            }
            Told::Reused { .. } | Told::Look => {}
        }
        if stop.asked() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    output.clear_status();
    // Everything that was started has ended by now.
    if let Err(PlanError::Prediction(error)) = &planned
        && let Some(progress) = error.interrupted()
    {
        output.talk(&format!("interrupted in {lead} {progress}\n"));
    }
    // What the script wrote goes, also where the signal ends us.
    drop(question);
    stop.obey();
    Ok(planned?)
}
