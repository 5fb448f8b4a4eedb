//! A plan: the best settings of a job that fit a machine.

use std::ops::ControlFlow;
use std::path::PathBuf;

use brimful::cards::Card;
use brimful::job::Job;
use brimful::machine::Machine;
use brimful::plan::{LearntRun, PlanLimits};
use brimful::units::Bytes;
use brimful_rehearse::{Cache, PlanEvent, PlanQuestion, Planned};
use brimful_report::{json, text};
use brimful_supervise::{StateDir, job_file_stem, job_key};

use crate::error::WorkflowError;
use crate::job::{FoundJob, JobRequest, find_job};
use crate::machine::{MachineRequest, describe_machine};
use crate::measured::measurements;
use crate::nodes::torchrun;
use crate::options::{RehearsalOptions, side_effects_document};
use crate::planned::PlannedJob;
use crate::progress::Progress;
use crate::state::working_directory;

/// What to plan.
#[derive(Clone, Debug)]
pub struct PlanRequest {
    pub job: JobRequest,
    pub machine: MachineRequest,
    /// Memory of each GPU that the job may use, if less than it has.
    pub gpu_memory: Option<Bytes>,
    /// The size of /dev/shm, in place of the machine's own.
    pub shm: Option<Bytes>,
    pub state: Option<StateDir>,
    /// Ignore measurements of earlier runs of this job from now on.
    pub forget: bool,
    /// Rehearse again what is in the cache.
    pub fresh: bool,
    pub rehearsal: RehearsalOptions,
}

/// Finds the best settings that fit.
pub fn plan(
    request: PlanRequest,
    mut progress: impl FnMut(Progress<'_>) -> ControlFlow<()>,
) -> Result<PlannedJob, WorkflowError> {
    let found = find_job(&request.job)?;
    let is_here = request.machine.is_here();
    let is_without_gpu = request.machine.is_without_gpu();
    let machine = describe_machine(request.machine)?;
    let mut search = Search::of(
        &found.job,
        machine,
        is_without_gpu,
        request.state,
        request.forget,
        &mut progress,
    );
    search.is_here = is_here;
    search.room.shm = request.shm.or(search.room.shm);
    if let Some(left) = request.gpu_memory {
        for (_, bytes) in &mut search.room.gpus {
            *bytes = (*bytes).min(left);
        }
    }
    for problem in found.job.problems() {
        let _ = progress(Progress::JobProblem(problem.to_string()));
    }
    let mode = request.job.mode;
    let planned = search.run(&found.job, &request.rehearsal, request.fresh, &mut progress)?;
    Ok(search.finish(found, mode, planned))
}

/// What a search needs besides the job.
#[derive(Debug)]
pub(crate) struct Search {
    machine: Machine,
    pub(crate) room: PlanLimits,
    /// The room is that of this machine.
    is_here: bool,
    card: Option<(&'static Card, usize)>,
    pub(crate) learnt: Vec<LearntRun>,
    pub(crate) state: Option<StateDir>,
    /// The job's name in the state directory.
    pub(crate) key: String,
}

impl Search {
    pub(crate) fn of(
        job: &Job,
        machine: Machine,
        is_without_gpu: bool,
        state: Option<StateDir>,
        forget: bool,
        progress: &mut impl FnMut(Progress<'_>) -> ControlFlow<()>,
    ) -> Search {
        let (mut room, card) = PlanLimits::for_job(&machine, is_without_gpu);
        room.ranks = torchrun(&job.command).and_then(|found| found.n_ranks());
        let key = job_key(&working_directory(), &job.command);
        if forget {
            let n_runs = state.as_ref().map_or(0, |state| state.forget(&key));
            let _ = progress(Progress::Forgotten { n_runs });
        }
        let learnt = state
            .as_ref()
            .map_or_else(Vec::new, |state| state.history(&key));
        Search {
            machine,
            room,
            is_here: true,
            card,
            learnt,
            state,
            key,
        }
    }

    /// Rehearses until the search has an answer.
    pub(crate) fn run(
        &self,
        job: &Job,
        options: &RehearsalOptions,
        fresh: bool,
        progress: &mut impl FnMut(Progress<'_>) -> ControlFlow<()>,
    ) -> Result<Planned, WorkflowError> {
        let cache = self.state.as_ref().and_then(StateDir::rehearsals);
        let question = PlanQuestion {
            job: job.clone(),
            room: self.room.clone(),
            here: self.is_here,
            card: self.card,
            learnt: self.learnt.clone(),
            measured: measurements(self.state.as_ref(), job_file_stem(&self.key)),
            cache: cache.map(|folder| Cache { folder }),
            fresh,
            steps: options.steps,
            time_limit: options.time_limit,
            phantom: match self.card {
                Some(_) => options.libraries.phantom()?,
                None => PathBuf::new(),
            },
            brimful_version: env!("CARGO_PKG_VERSION").into(),
            protection: options
                .isolation
                .protection(&options.libraries, job.checkpoints.clone())?,
        };
        let planned = brimful_rehearse::plan(&question, |told| match told {
            PlanEvent::Rehearsing { number, settings } => progress(Progress::Rehearsal {
                label: format!("rehearsal {number} ({})", text::short(settings)),
            }),
            PlanEvent::Progress(told) => progress(Progress::of_event(&told.event)),
            PlanEvent::Reused { .. } | PlanEvent::Look => progress(Progress::Idle),
        })?;
        Ok(planned)
    }

    /// Puts the answer together with what documents say about it.
    pub(crate) fn finish(
        &self,
        found: FoundJob,
        mode: Option<String>,
        planned: Planned,
    ) -> PlannedJob {
        let rendered = found.job.render(planned.answer.settings(), None);
        let context = json::PlanContext {
            job: found.path.display().to_string(),
            mode,
            machine: text::machine_title(&self.machine, self.card),
            command: rendered.command,
            variables: rendered.variables,
            config: rendered.config,
            rehearsals: planned.rehearsals,
            side_effects: planned.side_effects.map(side_effects_document),
            measured_context: planned.measured_context,
            seconds: planned.seconds,
        };
        PlannedJob {
            job: found.job,
            answer: planned.answer,
            context,
            is_on_gpu: self.card.is_some(),
            card: self.card,
            cpus: self.room.cpus,
            shapes: planned.shapes,
        }
    }
}
