//! What precedes the first attempt of a job, and what follows the last one.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use brimful::env_vars::BRIMFUL_KEEP_RUNS;
use brimful::job::{Job, Settings};
use brimful::nodes::Torchrun;
use brimful::plan::{Answer, Revision, revise, wanted};
use brimful::user_error::{ErrorKind, UserError};
use brimful_rehearse::{ConfigFiles, PredictionError, RehearsalError};
use brimful_supervise::checkpoints::{Checkpoints, Refusal, Selector, SelectorOptions};
use brimful_supervise::{StartStep, StateDir, step};

use crate::error::WorkflowError;
use crate::job::{JobRequest, find_job};
use crate::ladder::JobLadder;
use crate::machine::{MachineRequest, describe_machine};
use crate::nodes::{NodesLadder, NodesSetup, torchrun};
use crate::options::RehearsalOptions;
use crate::plan::Search;
use crate::planned::PlannedJob;
use crate::progress::Progress;
use crate::state::working_directory;

/// Run records that are kept by default: some months of work, less than 4 GB in total.
const KEPT_RUNS: usize = 200;

/// A run of a job that may restart.
#[derive(Debug)]
pub struct RunRequest {
    pub job: JobRequest,
    pub machine: MachineRequest,
    pub state: Option<StateDir>,
    pub max_attempts: usize,
    /// Resume from a checkpoint that was there before the run.
    pub resume: bool,
    /// Accept checkpoints that look wrong.
    pub force: bool,
    /// Start with the settings of the job file, without a plan.
    pub as_wanted: bool,
    pub forget: bool,
    pub fresh: bool,
    pub rehearsal: RehearsalOptions,
}

/// Plans the job and chooses the checkpoint to start from.
pub fn prepare(
    request: RunRequest,
    mut progress: impl FnMut(Progress<'_>) -> ControlFlow<()>,
) -> Result<JobLadder, WorkflowError> {
    let found = find_job(&request.job)?;
    let config = ConfigFiles::open(&found.job)?;
    let several_nodes = has_several_nodes(&found.job)?;
    // Before anything is rehearsed: a checkpoint that a rehearsal might write is not a candidate.
    let mut checkpoints = Selector::new(
        &working_directory(),
        &found.job.checkpoints,
        SelectorOptions {
            resume: request.resume,
            force: request.force,
        },
    );
    check_usable(checkpoints.first())?;
    let is_without_gpu = request.machine.is_without_gpu();
    let machine = describe_machine(request.machine)?;
    let search = Search::of(
        &found.job,
        machine,
        is_without_gpu,
        request.state,
        request.forget,
        &mut progress,
    );
    let job = found.job.clone();
    let planned = if request.as_wanted {
        None
    } else {
        let planned = step(StartStep::Plan, || {
            Ok(search.run(&job, &request.rehearsal, request.fresh, &mut progress))
        });
        match planned {
            Ok(Ok(planned)) => Some(search.finish(found, request.job.mode, planned)),
            Ok(Err(error)) if !is_own_failure(&error) => return Err(error),
            Ok(Err(error)) => plan_failed(&error, &mut progress),
            Err(error) => plan_failed(&error, &mut progress),
        }
    };
    let (first, first_predicted, rungs, shapes, samples_per_second) = if let Some(planned) = planned
    {
        let _ = progress(Progress::Planned(&planned));
        let Answer::Plan(plan) = planned.answer else {
            return Err(WorkflowError::NothingFits);
        };
        let speed = plan.throughput.samples_per_second;
        let (settings, brims) = (plan.settings, plan.brims);
        (settings, brims, plan.rungs, planned.shapes, Some(speed))
    } else {
        let settings = wanted(&job, &search.room);
        (settings, Vec::new(), Vec::new(), Vec::new(), None)
    };
    checkpoints.rehearsals_ended();
    check_usable(checkpoints.first())?;
    if checkpoints.first().chosen.is_some() {
        let _ = progress(Progress::Resuming(checkpoints.first()));
    }
    let mut ladder = JobLadder {
        job,
        room: search.room,
        shapes,
        learnt: search.learnt,
        first,
        first_predicted,
        rungs,
        tried: Vec::new(),
        max_attempts: request.max_attempts,
        checkpoints,
        has_resumed: false,
        state: search.state,
        key: search.key,
        config,
        prepared: None,
        nodes: None,
        gave_up: None,
    };
    if several_nodes {
        join_nodes(&mut ladder, samples_per_second)?;
    }
    Ok(ladder)
}

/// Whether several nodes train together.
fn has_several_nodes(job: &Job) -> Result<bool, WorkflowError> {
    let rendered = job.render(&Settings::default(), None);
    let found = torchrun(&rendered.command).filter(Torchrun::has_several_nodes);
    let Some(launcher) = found else {
        return Ok(false);
    };
    if launcher.has_virtual_local_ranks {
        return Err(WorkflowError::VirtualLocalRanks);
    }
    match launcher.nodes {
        None => Err(WorkflowError::UnknownNodes),
        Some((least, most)) if least != most => Err(WorkflowError::ElasticNodes { least, most }),
        Some(_) => Ok(true),
    }
}

/// Makes the ladder one that agrees with the other nodes on each attempt.
///
/// A node that was killed in a run that the others are still in explains that attempt now: if it ran out of memory, the
/// node proposes other settings.
fn join_nodes(
    ladder: &mut JobLadder,
    samples_per_second: Option<f64>,
) -> Result<(), WorkflowError> {
    let config = ladder.config.as_ref();
    let mut nodes = NodesLadder::new(NodesSetup {
        job: &ladder.job,
        working_directory: working_directory(),
        config: config.map_or_else(Vec::new, |files| files.texts().to_vec()),
        excluded: ladder.checkpoints.excluded().clone(),
        max_attempts: ladder.max_attempts,
        settings: ladder.first.clone(),
        samples_per_second,
    })?;
    if let Some(unfinished) = nodes.unfinished() {
        let run = unfinished.agreed;
        nodes.proposal.run = Some(run.run.clone());
        let interrupted = ladder
            .state
            .as_ref()
            .and_then(|state| state.interrupted_in(&working_directory()));
        if let Some((verdict, observed)) = interrupted
            && verdict.cause.is_memory()
            && let Revision::Next { settings, .. } = revise(
                &ladder.job,
                &ladder.room,
                &ladder.shapes,
                &ladder.learnt,
                &run.tried,
                &verdict,
                &observed,
            )
        {
            nodes.propose(&run, settings);
        }
    }
    ladder.nodes = Some(nodes);
    Ok(())
}

/// A plan that brimful fails to make does not keep the job from starting: it starts with the settings of the job file.
fn plan_failed(
    error: &dyn std::error::Error,
    progress: &mut impl FnMut(Progress<'_>) -> ControlFlow<()>,
) -> Option<PlannedJob> {
    let _ = progress(Progress::PlanFailed {
        error: error.to_string(),
    });
    None
}

/// Whether brimful itself failed, so that neither the user's input nor the job is to blame.
fn is_own_failure(error: &WorkflowError) -> bool {
    let is_staging = matches!(
        error,
        WorkflowError::Prediction(PredictionError::Rehearsal(
            RehearsalError::Stage(_) | RehearsalError::Output { .. }
        ))
    );
    is_staging || error.kind() == ErrorKind::Bug
}

/// If there are checkpoints and none of them can be used, the job is not started: it would overwrite them from its first
/// step on.
fn check_usable(found: &Checkpoints) -> Result<(), WorkflowError> {
    let may_hold_progress = |(_, why): &&(PathBuf, Refusal)| why.may_hold_progress();
    let refused: Vec<(PathBuf, Refusal)> = found
        .refused
        .iter()
        .filter(may_hold_progress)
        .cloned()
        .collect();
    if found.chosen.is_none() && !refused.is_empty() {
        return Err(WorkflowError::NoUsableCheckpoint { refused });
    }
    Ok(())
}

/// Removes the oldest run records. Called after the training process has ended, so that nobody waits for it.
pub fn prune_records(state: Option<&StateDir>) {
    let keep = std::env::var(BRIMFUL_KEEP_RUNS).unwrap_or_default();
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    if let (Some(state), Ok(now)) = (state, now)
        && keep != "all"
    {
        let keep = keep.parse().unwrap_or(KEPT_RUNS);
        state.prune(keep, u64::try_from(now.as_millis()).unwrap_or(0));
    }
}
