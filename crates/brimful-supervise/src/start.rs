//! The start of an attempt: its group, its streams, its hook, its first line on record.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use brimful::fact::Fact;
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
use crate::ladder::NextAttempt;
use crate::launch::{Launch, launch};
use crate::relay::Relay;
use crate::run::{Run, RunSettings, recorded, unix_ms};
use crate::running::Running;
use crate::sampler::Sampler;
use crate::scope::{self, Scope};
use crate::state::StoredRun;
use crate::streams::{Direct, Streams};
use crate::terminal::Control;

/// An attempt that runs.
pub(crate) struct Started<'a> {
    running: Running<'a>,
    direct: Vec<Direct>,
    hook: Option<Staged>,
}

impl Started<'_> {
    pub(crate) fn watch_and_finish(mut self) -> Finished {
        self.running.watch_until_the_end(&mut self.hook);
        self.running.finish(self.direct, self.hook)
    }
}

/// Starts an attempt. `gaps` are those of the run so far, told once there is a way to tell them.
pub(crate) fn start<'a>(
    run: &'a mut Run<'_>,
    next: &NextAttempt,
    number: u32,
    mut gaps: Vec<String>,
) -> io::Result<Started<'a>> {
    let started = Instant::now();
    gaps.extend(next.refused.iter().cloned());
    // A group or scope of the attempt before may take a moment to go.
    let id = match number {
        1 => run.id.clone(),
        _ => format!("{}-{number}", run.id),
    };
    let meter = Meter::live();
    let mut no_group = None;
    let mut contained = match Containment::group(&meter, &id) {
        Ok(contained) => contained,
        Err(NoGroup(reason)) => {
            no_group = Some(reason);
            Containment::tree()
        }
    };
    let scope = if contained.counting_group().is_none() {
        scope::available(&meter, &id)
    } else {
        None
    };
    if let (Some(reason), None) = (no_group, &scope) {
        gaps.push(format!(
            "no control group of its own ({reason}): kills are counted with others'"
        ));
    }
    let gpus = match GpuMeter::live() {
        Fact::Known(gpus) => Some(gpus),
        Fact::Missing(gap) => {
            // Worth a word only where there is a card.
            let message = format!("the GPUs are not watched: {gap}");
            if Path::new("/dev/nvidiactl").exists() {
                gaps.push(message);
            } else if run.is_news(&message) {
                run.recorder
                    .write(&Line::Gap(GapLine { at_ms: 0, message }));
            }
            None
        }
    };
    let mut sampler = Sampler::new(meter, gpus, started);

    let streams = Streams::open().unwrap_or_else(|error| {
        gaps.push(format!("the output passes by unseen: {error}"));
        Streams::inherited()
    });
    let keeper = start_keeper(run.settings, &streams, &mut gaps);
    if let Some(keeper) = &keeper {
        contained.leave_out(keeper.pid);
    }
    let hook = stage_hook(run.settings, run.stored.as_ref(), &mut gaps);
    sampler.begin(&contained, hook.as_ref().map(Staged::gauges));
    let control = Control::choose();
    let door = match &scope {
        Some(_) => None,
        None => contained.door().ok().flatten(),
    };
    let mut command = scope.as_ref().map_or_else(Vec::new, Scope::prefix);
    command.extend(next.command.iter().cloned());
    let offer = control.offer();
    let is_offered = offer.is_some();
    let launched = launch(Launch {
        command: &command,
        variables: variables(next, hook.as_ref(), run.settings.trace_allocations),
        stdout: streams.stdout,
        stderr: streams.stderr,
        own_group: control.own_group(),
        door,
        terminal: offer,
    });
    let pid = match launched {
        Ok(pid) => pid,
        Err(source) => {
            if is_offered {
                control.take_back_offer();
            }
            // Without a first attempt there is nothing else to tell of this run; a later one is told as a gap.
            if number == 1 {
                run.recorder.write(&Line::Attempt(AttemptLine {
                    number,
                    ..AttemptLine::default()
                }));
                let error = source.to_string();
                let outcome = Outcome::NotStarted { error };
                run.recorder
                    .write(&Line::End(Box::new(end_line(0, outcome))));
            }
            if let Some(keeper) = keeper {
                keeper.dismiss();
            }
            if let Some(hook) = hook {
                hook.remove();
            }
            contained.remove();
            return Err(source);
        }
    };
    control.hand_over(pid);
    if let Some(scope) = &scope
        && let Some(group) = scope.group_of(self::number(pid), Duration::from_secs(2))
    {
        contained.move_to_scope(group);
        sampler.begin(&contained, hook.as_ref().map(Staged::gauges));
    }
    sampler.watch_process(self::number(pid));
    // Before anything that the training prints is handed on: whoever has seen a line of it finds the attempt on record.
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
    let has_terminal = streams.ways.iter().any(|way| way.is_terminal);
    let speaks_through_relay = streams.ways.iter().any(|way| way.stream != Stream::Stdout);
    let relay = Relay::start(
        streams.ways,
        run.stored.as_ref().map(|run| run.folder.as_path()),
        keeper.as_ref().and_then(|keeper| keeper.line().ok()),
    );
    let relay = match relay {
        Ok(relay) => Some(relay),
        Err(error) => {
            // Without it the training would block on its first line. The keeper hands on once it is alone.
            gaps.push(format!("the output passes by unseen: {error}"));
            None
        }
    };
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
        pid,
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

/// What the training gets beside what brimful has itself.
fn variables(
    next: &NextAttempt,
    hook: Option<&Staged>,
    trace_allocations: bool,
) -> Vec<(std::ffi::OsString, std::ffi::OsString)> {
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

fn start_keeper(
    settings: &RunSettings,
    streams: &Streams,
    gaps: &mut Vec<String>,
) -> Option<Keeper> {
    let program = settings.keeper.as_ref()?;
    if streams.ways.is_empty() {
        return None;
    }
    match Keeper::start(program, &streams.ways) {
        Ok(keeper) => Some(keeper),
        Err(error) => {
            gaps.push(format!(
                "should brimful be killed, the training may end at its next line: {error}"
            ));
            None
        }
    }
}

fn stage_hook(
    settings: &RunSettings,
    stored: Option<&StoredRun>,
    gaps: &mut Vec<String>,
) -> Option<Staged> {
    if !settings.hook {
        return None;
    }
    match Staged::new(&stored?.folder) {
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
