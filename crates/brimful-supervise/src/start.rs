//! The start of an attempt: its group, its streams, its hook, its first line on record.
//!
//! Every step is one of [`StartStep`] and may fail; what the training then has to do without becomes a gap.

use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use brimful::explain::Verdict;
use brimful::fact::Fact;
use brimful::plan::Observed;
use brimful::record::{
    AttemptLine, EndLine, GapLine, KernelCounts, Line, Outcome, OwnCost, Peaks, Stream,
};
use brimful::units::Bytes;
use brimful::watch::Watch;
use brimful_probe::{GpuMeter, Meter};
use rustix::process::{Pid, Resource};
use rustix::time::{ClockId, clock_gettime};

use crate::contain::{Containment, NoGroup};
use crate::ending::Finished;
use crate::hook::Staged;
use crate::keeper::Keeper;
use crate::ladder::{AttemptEnd, NextAttempt};
use crate::last_resort;
use crate::launch::{Launching, NotStarted};
use crate::relay::Relay;
use crate::run::{Run, RunSettings, recorded, unix_ms};
use crate::running::Running;
use crate::sampler::Sampler;
use crate::scope::{self, Scope};
use crate::send::Training;
use crate::state::StoredRun;
use crate::steps::{StartStep, panic_message, step};
use crate::streams::{Direct, Streams};
use crate::terminal::Control;

/// An attempt that runs.
pub(crate) struct Started<'a> {
    running: Running<'a>,
    direct: Vec<Direct>,
    hook: Option<Staged>,
}

impl Started<'_> {
    /// Whatever bug there is in the watch or in the ending, the training is waited for and its exit code kept.
    pub(crate) fn watch_and_finish(mut self) -> Finished {
        let watched = catch_unwind(AssertUnwindSafe(|| {
            self.running.watch_until_the_end(&mut self.hook);
        }));
        if let Err(payload) = watched {
            self.running.watching = false;
            let _ = catch_unwind(AssertUnwindSafe(|| {
                let message = panic_message(payload.as_ref());
                self.running.gap(&format!(
                    "a bug in brimful ended the watch; the training goes on: {message}"
                ));
            }));
            while self.running.ended.is_none() {
                std::thread::sleep(Duration::from_millis(50));
                let _ = catch_unwind(AssertUnwindSafe(|| self.running.reap()));
            }
        }
        let (outcome, exit_code) = (self.running.outcome(), self.running.exit_code());
        last_resort::ended(exit_code);
        let number = self.running.line.number;
        let finished = catch_unwind(AssertUnwindSafe(move || {
            self.running.finish(self.direct, self.hook)
        }));
        finished.unwrap_or_else(|_| Finished {
            end: AttemptEnd {
                n_false_alarms: 0,
                number,
                settings: None,
                outcome,
                verdict: Verdict::cannot_tell(),
                peaks: Peaks::default(),
                limit: None,
                wall_ms: 0,
                observed: Observed::default(),
                exit_code,
            },
            last: None,
            by_user: false,
            all_gone: false,
        })
    }
}

/// Starts an attempt. `gaps` are those of the run so far, told once there is a way to tell them.
pub(crate) fn start<'a>(
    run: &'a mut Run<'_>,
    next: &NextAttempt,
    number: u32,
    mut gaps: Vec<String>,
) -> Result<Started<'a>, NotStarted> {
    let started = Instant::now();
    gaps.extend(next.refused.iter().cloned());
    // A group or scope of the attempt before may take a moment to go.
    let id = match number {
        1 => run.id.clone(),
        _ => format!("{}-{number}", run.id),
    };
    let meter = Meter::live();
    let (mut contained, scope) = contain(&meter, &id, &mut gaps);
    let gpus = gpu_meter(run, &mut gaps);
    let mut sampler = Sampler::new(meter, gpus, started);

    let (mut streams, relay) = open_streams(&mut gaps);
    let hook = stage_hook(run.settings, run.stored.as_ref(), &mut gaps);
    let control = step(StartStep::JobControl, || Ok(Control::choose())).unwrap_or_else(|error| {
        gaps.push(format!("the terminal is shared with brimful: {error}"));
        Control::Shared
    });
    let prepared = step(StartStep::Sampler, || {
        sampler.begin(&contained, hook.as_ref().map(Staged::gauges));
        Ok(())
    });
    if let Err(error) = prepared {
        gaps.push(format!("what the kernel counts is not known: {error}"));
    }

    let mut command = scope.as_ref().map_or_else(Vec::new, Scope::prefix);
    command.extend(next.command.iter().cloned());
    let launching = Launching {
        settings: run.settings,
        stored: run.stored.as_ref(),
        command: &command,
        variables: &variables(next, hook.as_ref(), run.settings.trace_allocations),
        streams: &streams,
        control: &control,
        has_scope: scope.is_some(),
        number,
    };
    let group = contained.path().map(str::to_owned);
    let (pid, keeper) = match launching.launch(&mut contained, &mut gaps) {
        Ok(launched) => launched,
        Err(why) => {
            // Without a first attempt there is nothing else to tell of this run; a later one is told as a gap.
            if number == 1
                && let NotStarted::Command(source) = &why
            {
                run.recorder.write(&Line::Attempt(AttemptLine {
                    number,
                    ..AttemptLine::default()
                }));
                let error = source.to_string();
                let outcome = Outcome::NotStarted { error };
                run.recorder
                    .write(&Line::End(Box::new(end_line(0, outcome))));
            }
            if let Some(hook) = hook {
                hook.remove();
            }
            contained.remove();
            return Err(why);
        }
    };
    // The other ends are the training's alone now.
    (streams.stdout, streams.stderr) = (None, None);
    let training = Training::new(pid);
    control.hand_over(pid);
    if contained.path() != group.as_deref() {
        sampler.begin(&contained, hook.as_ref().map(Staged::gauges));
    }
    if let Some(scope) = &scope {
        let found = step(StartStep::ScopeGroup, || {
            Ok(scope.group_of(self::number(pid), Duration::from_secs(2)))
        });
        match found {
            Ok(Some(group)) => {
                contained.move_to_scope(group);
                sampler.begin(&contained, hook.as_ref().map(Staged::gauges));
            }
            Ok(None) => {}
            Err(error) => gaps.push(format!(
                "no cgroup of its own ({error}): kills are counted with others'"
            )),
        }
    }
    sampler.watch_process(self::number(pid));
    // Before anything that the training prints is handed on: whoever has seen a line of it finds the attempt on record.
    let written = step(StartStep::AttemptLine, || {
        let line = AttemptLine {
            number,
            command: recorded(&next.command),
            settings: next.settings.clone(),
            resumed_from: next
                .resumed_from
                .as_ref()
                .map(|path| path.display().to_string()),
            changed: next.changed.clone(),
            why: Some(next.why.clone()).filter(|why| !why.is_empty()),
            hook: hook.is_some(),
            ..attempt_line(&sampler, &contained, pid)
        };
        run.recorder.write(&Line::Attempt(line.clone()));
        Ok(line)
    });
    let line = written.unwrap_or_else(|error| {
        gaps.push(format!(
            "the attempt is recorded without its facts: {error}"
        ));
        let line = AttemptLine {
            number,
            started_at_unix_ms: unix_ms(),
            pid: self::number(pid),
            ..AttemptLine::default()
        };
        run.recorder.write(&Line::Attempt(line.clone()));
        line
    });
    let has_terminal = streams.ways.iter().any(|way| way.is_terminal);
    let speaks_through_relay = streams.ways.iter().any(|way| way.stream != Stream::Stdout);
    if let Some(relay) = &relay {
        let folder = run.stored.as_ref().map(|run| run.folder.as_path());
        let beside = step(StartStep::BeginRelay, || {
            let line = keeper.as_ref().map(Keeper::line).transpose()?;
            Ok((folder, line))
        });
        let (folder, line) = beside.unwrap_or_else(|error| {
            gaps.push(format!(
                "the end of the output is kept in memory only: {error}"
            ));
            (None, None)
        });
        relay.begin(streams.ways, folder, line);
    }
    gaps.retain(|gap| run.is_news(gap));
    let mut running = Running {
        settings: run.settings,
        audience: &mut *run.audience,
        recorder: &mut run.recorder,
        stored: run.stored.as_ref(),
        events: &run.events,
        line,
        contained,
        sampler,
        relay,
        keeper,
        control,
        training,
        id: &run.id,
        started,
        watch: Watch::default(),
        peaks: Peaks::default(),
        last: None,
        pending: None,
        recorded_at: None,
        status_at: None,
        metrics_at: None,
        hook_at: started,
        forwarded: None,
        stopped_by_us: None,
        watching: true,
        status_line: run.settings.status_line && has_terminal,
        speaks_through_relay,
        rows_told: None,
        n_samples: 0,
        orphans: Vec::new(),
        ended: None,
    };
    for gap in gaps {
        running.gap(&gap);
    }
    if number > 1 {
        running.pass_on_what_came_before();
    }
    Ok(Started {
        running,
        direct: streams.direct,
        hook,
    })
}

/// A cgroup of our own, a scope of systemd, or the tree of processes.
fn contain(meter: &Meter, id: &str, gaps: &mut Vec<String>) -> (Containment, Option<Scope>) {
    let mut no_group = None;
    let made = step(StartStep::Cgroup, || Ok(Containment::group(meter, id)));
    let contained = match made {
        Ok(Ok(contained)) => contained,
        Ok(Err(NoGroup(reason))) => {
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
            "no control group of its own ({reason}): kills are counted with others'"
        ));
    }
    (contained, scope)
}

fn gpu_meter(run: &mut Run<'_>, gaps: &mut Vec<String>) -> Option<GpuMeter> {
    let why = match step(StartStep::GpuMeter, || Ok(GpuMeter::live())) {
        Ok(Fact::Known(gpus)) => return Some(gpus),
        Ok(Fact::Missing(gap)) => gap.to_string(),
        Err(error) => error.to_string(),
    };
    // Worth a word only where there is a card.
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
        if streams.ways.is_empty() {
            return Ok((streams, None));
        }
        let relay = step(StartStep::Relay, Relay::start)?;
        Ok((streams, Some(relay)))
    });
    opened.unwrap_or_else(|error| {
        gaps.push(format!("the output passes by unseen: {error}"));
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
        .find(|(name, _)| name == "PYTHONPATH")
        .map(|(_, value)| value.clone())
        .or_else(|| std::env::var_os("PYTHONPATH"));
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
    let folder = &stored?.folder;
    match step(StartStep::Hook, || Staged::new(folder)) {
        Ok(staged) => Some(staged),
        Err(error) => {
            gaps.push(format!("nothing is seen inside of the training: {error}"));
            None
        }
    }
}

fn attempt_line(sampler: &Sampler, contained: &Containment, pid: Pid) -> AttemptLine {
    let brim = sampler.meter().brim();
    let brim = brim.known();
    let limit = |resource| rustix::process::getrlimit(resource).current;
    AttemptLine {
        started_at_unix_ms: unix_ms(),
        pid: number(pid),
        containment: contained.kind().into(),
        cgroup: contained.path().map(str::to_owned),
        limit: brim.map(|brim| brim.limit),
        limit_set_by: brim.map(|brim| brim.set_by.to_string()),
        open_files_limit: limit(Resource::Nofile),
        address_space_limit: limit(Resource::As).map(Bytes),
        ..AttemptLine::default()
    }
}

pub(crate) fn end_line(at_ms: u64, outcome: Outcome) -> EndLine {
    EndLine {
        at_ms,
        outcome,
        kernel: KernelCounts::default(),
        peaks: Peaks::default(),
        last: None,
        n_left_behind: 0,
        orphans: Vec::new(),
        own_cost: OwnCost::default(),
    }
}

pub(crate) fn number(pid: Pid) -> u32 {
    u32::try_from(pid.as_raw_nonzero().get()).unwrap_or(0)
}

fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}
