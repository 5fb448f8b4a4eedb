//! The start of an attempt: its cgroup, its streams, its hook, its first line on record.
//!
//! Every step is one of [`StartStep`] and may fail; what the training then has to do without becomes a gap.
//! [`Preparation`] holds what was created; until the training begins, dropping it undoes that.

use std::ffi::OsString;
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use brimful::env_vars;
use brimful::fact::Fact;
use brimful::record::{AttemptLine, GapLine, Line, Outcome};
use brimful::units::Bytes;
use brimful_probe::{GpuMeter, Meter};
use rustix::process::{Pid, Resource};

use crate::checkpoint_watch::CheckpointWatch;
use crate::clock::{monotonic_ns, unix_ms};
use crate::command::recorded;
use crate::contain::{Containment, NoCgroup};
use crate::context::RunContext;
use crate::display::Display;
use crate::hook::Staged;
use crate::keeper::Keeper;
use crate::ladder::NextAttempt;
use crate::launch::{Launching, NotStarted};
use crate::metrics::MetricsFile;
use crate::process_control::ProcessControl;
use crate::recorder::end_line;
use crate::recording::Recording;
use crate::relay::Relay;
use crate::running::Running;
use crate::sampler::Sampler;
use crate::scope::{self, Scope};
use crate::send::{TrainingProcess, process_number};
use crate::settings::RunSettings;
use crate::start_step::StartStep;
use crate::state::StoredRun;
use crate::steps::step;
use crate::streams::Streams;
use crate::terminal::TerminalControl;
use crate::undo::UndoOnDrop;
use crate::watcher::Watcher;

/// How long systemd has to put the training into its scope.
const SCOPE_TIMEOUT: Duration = Duration::from_secs(2);

/// Starts an attempt. `gaps` are those of the run so far, reported once there is a way to report them.
pub(crate) fn start<'a>(
    run: &'a mut RunContext<'_>,
    next: &NextAttempt,
    number: u32,
    gaps: Vec<String>,
) -> Result<Running<'a>, NotStarted> {
    let prepared = Preparation::new(run, next, number, gaps);
    let mut launched = prepared.launch(run)?;
    launched.move_to_scope();
    // Before anything that the training prints is passed on: whoever has seen a line of it finds the attempt on record.
    let line = launched.record_attempt(run, next, number);
    launched.begin_relay(run);
    let mut running = launched.into_running(run, next, line);
    if number > 1 {
        running.pass_on_what_came_before();
    }
    Ok(running)
}

/// What an attempt needs before its training can begin. Dropped, it removes what it has created.
struct Preparation<'n> {
    next: &'n NextAttempt,
    number: u32,
    gaps: Vec<String>,
    started: Instant,
    contained: UndoOnDrop<Containment>,
    scope: Option<Scope>,
    sampler: Sampler,
    streams: Streams,
    relay: Option<Relay>,
    hook: Option<UndoOnDrop<Staged>>,
    terminal: TerminalControl,
}

impl<'n> Preparation<'n> {
    fn new(
        run: &mut RunContext<'_>,
        next: &'n NextAttempt,
        number: u32,
        mut gaps: Vec<String>,
    ) -> Preparation<'n> {
        let started = Instant::now();
        gaps.extend(next.refused.iter().cloned());
        // A group or scope of the attempt before may take a moment to go.
        let id = match number {
            1 => run.id.clone(),
            _ => format!("{}-{number}", run.id),
        };
        let meter = Meter::live();
        let (contained, scope) = contain(&meter, &id, &mut gaps);
        let contained = UndoOnDrop::new(contained, Containment::remove);
        let gpus = gpu_meter(run, &mut gaps);
        let mut sampler = Sampler::new(meter, gpus, started);

        let (streams, relay) = open_streams(&mut gaps);
        let hook = stage_hook(run.settings, run.stored.as_ref(), &mut gaps)
            .map(|hook| UndoOnDrop::new(hook, Staged::remove));
        let terminal = step(StartStep::JobControl, || Ok(TerminalControl::choose()))
            .unwrap_or_else(|error| {
                gaps.push(format!("the terminal is shared with brimful: {error}"));
                TerminalControl::Shared
            });
        let prepared = step(StartStep::Sampler, || {
            sampler.begin(&contained, hook.as_ref().map(|hook| hook.gauges()));
            Ok(())
        });
        if let Err(error) = prepared {
            gaps.push(format!("what the kernel counts is not known: {error}"));
        }
        Preparation {
            next,
            number,
            gaps,
            started,
            contained,
            scope,
            sampler,
            streams,
            relay,
            hook,
            terminal,
        }
    }

    /// Starts the training. From then on nothing is undone: it runs.
    fn launch(mut self, run: &mut RunContext<'_>) -> Result<Launched, NotStarted> {
        let mut command = self.scope.as_ref().map_or_else(Vec::new, Scope::prefix);
        command.extend(self.next.command.iter().cloned());
        let hook = self.hook.as_deref();
        let launching = Launching {
            settings: run.settings,
            stored: run.stored.as_ref(),
            command: &command,
            variables: &variables(self.next, hook, run.settings.trace_allocations),
            streams: &self.streams,
            control: &self.terminal,
            has_scope: self.scope.is_some(),
            number: self.number,
        };
        let group = self.contained.path().map(str::to_owned);
        let launched = launching.launch(&mut self.contained, &mut self.gaps);
        let (pid, keeper) = launched.inspect_err(|why| self.record_failure(run, why))?;

        let mut launched = Launched {
            gaps: self.gaps,
            started: self.started,
            contained: self.contained.keep(),
            scope: self.scope,
            sampler: self.sampler,
            streams: self.streams,
            relay: self.relay,
            hook: self.hook.map(UndoOnDrop::keep),
            terminal: self.terminal,
            pid,
            keeper,
            training: TrainingProcess::new(pid),
        };
        // The other ends are the training's alone now.
        (launched.streams.stdout, launched.streams.stderr) = (None, None);
        if let Some(callers) = run.callers_descriptors.take() {
            callers.close();
            // Nobody who writes into a pipe shall wait for brimful, which does not read it.
            if let Ok(nothing) = File::open("/dev/null") {
                let _ = rustix::stdio::dup2_stdin(nothing);
            }
        }
        launched.terminal.hand_over(pid);
        if launched.contained.path() != group.as_deref() {
            launched.begin_sampling();
        }
        Ok(launched)
    }

    /// Without a first attempt there is nothing else to record of this run; a later one is reported as a gap.
    fn record_failure(&self, run: &mut RunContext<'_>, why: &NotStarted) {
        if self.number == 1
            && let NotStarted::Command(source) = why
        {
            run.recorder.write(&Line::Attempt(AttemptLine {
                number: self.number,
                ..AttemptLine::default()
            }));
            let error = source.to_string();
            let outcome = Outcome::NotStarted { error };
            run.recorder
                .write(&Line::End(Box::new(end_line(0, outcome))));
        }
    }
}

/// An attempt whose training has begun.
struct Launched {
    gaps: Vec<String>,
    started: Instant,
    contained: Containment,
    scope: Option<Scope>,
    sampler: Sampler,
    streams: Streams,
    relay: Option<Relay>,
    hook: Option<Staged>,
    terminal: TerminalControl,
    pid: Pid,
    keeper: Option<Keeper>,
    training: TrainingProcess,
}

impl Launched {
    fn begin_sampling(&mut self) {
        let gauges = self.hook.as_ref().map(Staged::gauges);
        self.sampler.begin(&self.contained, gauges);
    }

    /// Finds the cgroup of the scope, which exists only once the training runs.
    fn move_to_scope(&mut self) {
        let pid = process_number(self.pid);
        if let Some(scope) = &self.scope {
            let found = step(StartStep::ScopeGroup, || {
                Ok(scope.group_of(pid, SCOPE_TIMEOUT))
            });
            match found {
                Ok(Some(group)) => {
                    self.contained.move_to_scope(group);
                    self.begin_sampling();
                }
                Ok(None) => {}
                Err(error) => self.gaps.push(format!(
                    "no cgroup for this run ({error}): its OOM kills are counted together with those of other processes"
                )),
            }
        }
        self.sampler.watch_process(pid);
    }

    fn record_attempt(
        &mut self,
        run: &mut RunContext<'_>,
        next: &NextAttempt,
        number: u32,
    ) -> AttemptLine {
        let written = step(StartStep::AttemptLine, || {
            let line = AttemptLine {
                number,
                command: recorded(&next.command),
                settings: next.settings.clone(),
                predicted: next.predicted.clone(),
                resumed_from: next
                    .resumed_from
                    .as_ref()
                    .map(|path| path.display().to_string()),
                changed: next.changed.clone(),
                next_rung: next.next_rung.clone(),
                why: Some(next.why.clone()).filter(|why| !why.is_empty()),
                hook: self.hook.is_some(),
                ..attempt_line(&self.sampler, &self.contained, self.pid)
            };
            run.recorder.write(&Line::Attempt(line.clone()));
            Ok(line)
        });
        written.unwrap_or_else(|error| {
            self.gaps.push(format!(
                "the attempt is recorded without its facts: {error}"
            ));
            let line = AttemptLine {
                number,
                started_at_unix_ms: unix_ms(),
                pid: process_number(self.pid),
                ..AttemptLine::default()
            };
            run.recorder.write(&Line::Attempt(line.clone()));
            line
        })
    }

    /// Passes the training's output on from now on.
    fn begin_relay(&mut self, run: &RunContext<'_>) {
        let Some(relay) = &self.relay else { return };
        let directory = run.stored.as_ref().map(|run| run.directory.as_path());
        let beside = step(StartStep::BeginRelay, || {
            let line = self.keeper.as_ref().map(Keeper::line).transpose()?;
            Ok((directory, line))
        });
        let (directory, line) = beside.unwrap_or_else(|error| {
            self.gaps.push(format!(
                "the end of the output is kept in memory only: {error}"
            ));
            (None, None)
        });
        relay.begin(std::mem::take(&mut self.streams.routes), directory, line);
    }

    fn into_running<'a>(
        self,
        run: &'a mut RunContext<'_>,
        next: &NextAttempt,
        line: AttemptLine,
    ) -> Running<'a> {
        let gaps: Vec<String> = self
            .gaps
            .into_iter()
            .filter(|gap| run.is_news(gap))
            .collect();
        let settings = run.settings;
        let mut running = Running {
            settings,
            events: &run.events,
            recording: Recording::new(
                &mut run.recorder,
                run.stored.as_ref(),
                line,
                self.streams.direct,
            ),
            display: Display::new(
                &mut *run.audience,
                self.relay,
                self.streams.relays_stderr,
                settings.status_line && self.streams.relays_terminal,
                self.started,
            ),
            control: ProcessControl::new(self.contained, self.keeper, self.terminal, self.training),
            watcher: Watcher::new(self.sampler, self.hook, self.started),
            metrics: settings
                .metrics_file
                .as_deref()
                .map(|path| MetricsFile::new(path, &run.id)),
            checkpoints: std::env::current_dir()
                .ok()
                .and_then(|job| CheckpointWatch::begin(job, next.checkpoints.clone())),
        };
        for gap in gaps {
            running.gap(&gap);
        }
        running
    }
}

/// A cgroup of our own, a scope of systemd, or the tree of processes.
fn contain(meter: &Meter, id: &str, gaps: &mut Vec<String>) -> (Containment, Option<Scope>) {
    let mut no_group = None;
    let made = step(StartStep::Cgroup, || Ok(Containment::group(meter, id)));
    let contained = match made {
        Ok(Ok(contained)) => contained,
        Ok(Err(NoCgroup(reason))) => {
            no_group = Some(reason);
            Containment::tree()
        }
        Err(error) => {
            no_group = Some(error.to_string());
            Containment::tree()
        }
    };
    let scope = if contained.counting_group().is_none() {
        // Where it is not to be had, the reason above is the one to tell.
        step(StartStep::Scope, || Ok(scope::available(meter, id))).unwrap_or(None)
    } else {
        None
    };
    if let (Some(reason), None) = (no_group, &scope) {
        gaps.push(format!(
            "no cgroup for this run ({reason}): its OOM kills are counted together with those of other processes"
        ));
    }
    (contained, scope)
}

fn gpu_meter(run: &mut RunContext<'_>, gaps: &mut Vec<String>) -> Option<GpuMeter> {
    let why = match step(StartStep::GpuMeter, || Ok(GpuMeter::live())) {
        Ok(Fact::Known(gpus)) => return Some(gpus),
        Ok(Fact::Missing(gap)) => gap.to_string(),
        Err(error) => error.to_string(),
    };
    // Reported only where there is a GPU.
    let message = format!("the GPUs are not watched: {why}");
    if Path::new("/dev/nvidiactl").exists() {
        gaps.push(message);
    } else if run.is_news(&message) {
        run.recorder
            .write(&Line::Gap(GapLine { at_ms: 0, message }));
    }
    None
}

/// The streams and the thread that reads them; neither without the other, since nobody would read what is printed.
fn open_streams(gaps: &mut Vec<String>) -> (Streams, Option<Relay>) {
    let opened = step(StartStep::Streams, Streams::open).and_then(|streams| {
        if streams.routes.is_empty() {
            return Ok((streams, None));
        }
        let relay = step(StartStep::Relay, Relay::start)?;
        Ok((streams, Some(relay)))
    });
    opened.unwrap_or_else(|error| {
        gaps.push(format!("output is not captured: {error}"));
        (Streams::inherited(), None)
    })
}

/// What the training gets beside what brimful has itself.
fn variables(
    next: &NextAttempt,
    hook: Option<&Staged>,
    trace_allocations: bool,
) -> Vec<(OsString, OsString)> {
    let mut variables = next.variables.clone();
    let python_path = variables
        .iter()
        .rev()
        .find(|(name, _)| name == env_vars::PYTHONPATH)
        .map(|(_, value)| value.clone())
        .or_else(|| std::env::var_os(env_vars::PYTHONPATH));
    if let Some(hook) = hook {
        // Last: the hook's PYTHONPATH holds the other one.
        variables.extend(hook.environment(
            python_path.as_deref(),
            monotonic_ns(),
            trace_allocations,
        ));
    }
    variables
}

fn stage_hook(
    settings: &RunSettings,
    stored: Option<&StoredRun>,
    gaps: &mut Vec<String>,
) -> Option<Staged> {
    if !settings.hook {
        return None;
    }
    let directory = &stored?.directory;
    match step(StartStep::Hook, || Staged::new(directory)) {
        Ok(staged) => Some(staged),
        Err(error) => {
            gaps.push(format!("the Python hook was not installed: {error}"));
            None
        }
    }
}

pub(crate) fn attempt_line(sampler: &Sampler, contained: &Containment, pid: Pid) -> AttemptLine {
    let brim = sampler.meter().brim();
    let brim = brim.known();
    let limit = |resource| rustix::process::getrlimit(resource).current;
    let (gpus, driver) = sampler.gpu_models();
    AttemptLine {
        started_at_unix_ms: unix_ms(),
        pid: process_number(pid),
        containment: contained.kind().into(),
        cgroup: contained.path().map(str::to_owned),
        limit: brim.map(|brim| brim.limit),
        limit_set_by: brim.map(|brim| brim.set_by.to_string()),
        open_files_limit: limit(Resource::Nofile),
        address_space_limit: limit(Resource::As).map(Bytes),
        gpus,
        driver,
        ..AttemptLine::default()
    }
}
