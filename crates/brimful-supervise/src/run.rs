//! One run: what to run, what is said about it, and its start. `running.rs` goes on from there, `ending.rs` ends it.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use brimful::explain::Verdict;
use brimful::fact::Fact;
use brimful::record::{
    ActionLine, AttemptLine, EndLine, GapLine, KernelCounts, Line, Outcome, OwnCost, Peaks, Record,
    RunLine, SCHEMA_VERSION, Stream,
};
use brimful::units::Bytes;
use brimful::watch::{Alarm, Sample, Watch, WatchRules, WatchState};
use brimful_probe::{GpuMeter, Meter};
use rustix::process::{Pid, Resource};
use rustix::time::{ClockId, clock_gettime};

use crate::contain::{Containment, NoGroup};
use crate::hook::Staged;
use crate::keeper::Keeper;
use crate::launch::{Launch, launch};
use crate::recorder::Recorder;
use crate::relay::Relay;
use crate::running::Running;
use crate::sampler::Sampler;
use crate::scope::{self, Scope};
use crate::signals;
use crate::state::{StateDir, StoredRun, place_of};
use crate::streams::Streams;
use crate::terminal::{self, Control};

/// What to run, and how.
#[derive(Clone, Debug)]
pub struct RunSettings {
    pub command: Vec<OsString>,
    pub brimful_version: String,
    /// Where runs are kept; `None` where no place is known.
    pub state: Option<StateDir>,
    pub rules: WatchRules,
    /// What makes the training write a checkpoint.
    pub checkpoint_signal: i32,
    /// Say what would be done, do nothing.
    pub dry_run: bool,
    pub hook: bool,
    pub trace_allocations: bool,
    pub metrics_file: Option<PathBuf>,
    /// Whether a status line may be shown, where there is a terminal.
    pub status_line: bool,
    /// The program that keeps the streams open: brimful itself, as [`crate::keeper::keep`].
    pub keeper: Option<PathBuf>,
}

/// Something worth a line.
#[derive(Clone, Debug)]
pub enum Notice<'a> {
    /// The last run in this place was cut off.
    CutOff {
        run: &'a StoredRun,
        record: &'a Record,
        verdict: &'a Verdict,
    },
    /// Something could not be done; the training goes on.
    Gap(&'a str),
    Alarm(&'a Alarm),
    Action(&'a ActionLine),
}

/// Who makes sentences of it. The supervisor prints nothing by itself.
pub trait Audience {
    /// A line for a notice, without its end; `None` to say nothing.
    fn line(&mut self, notice: &Notice<'_>) -> Option<String>;
    /// The text of the status line.
    fn status(&mut self, sample: &Sample, state: &WatchState) -> String;
    /// Prints a line where the supervisor does not stand between the training and standard error.
    fn print(&mut self, line: &str);
}

/// How a run ended.
#[derive(Clone, Debug)]
pub struct RunEnd {
    pub outcome: Outcome,
    pub peaks: Peaks,
    pub last: Option<Sample>,
    pub verdict: Verdict,
    pub run: Option<StoredRun>,
    /// The training's own, or 128 and the signal.
    pub exit_code: u8,
}

/// The training could not be started.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("`{program}` cannot be started")]
    NotStarted {
        program: String,
        #[source]
        source: io::Error,
    },
    #[error("the supervisor cannot listen for signals")]
    Signals(#[source] io::Error),
}

/// Runs a command, watches it, and says how it ended.
pub fn run(settings: &RunSettings, audience: &mut dyn Audience) -> Result<RunEnd, RunError> {
    terminal::hold_off_terminal_stops();
    let started = Instant::now();
    let mut gaps: Vec<String> = Vec::new();
    let place = std::env::current_dir()
        .map(|folder| place_of(&folder))
        .unwrap_or_default();
    let stored = open_record(settings, &mut gaps);
    let mut recorder = match &stored {
        Some(run) => Recorder::create(&run.folder),
        None => Recorder::none(),
    };
    let id = stored
        .as_ref()
        .map_or_else(|| std::process::id().to_string(), |run| run.id.clone());
    recorder.write(&Line::Run(RunLine {
        schema_version: SCHEMA_VERSION,
        id: id.clone(),
        brimful_version: settings.brimful_version.clone(),
        started_at_unix_ms: unix_ms(),
        command: settings
            .command
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect(),
        folder: place.clone(),
        host_name: rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned(),
        supervisor_pid: std::process::id(),
    }));
    if let Some(state) = &settings.state
        && let Some((run, record)) = state.unfinished_before(&place, &id)
        && let Some(verdict) = record.last_attempt().and_then(|last| last.verdict.clone())
    {
        let notice = Notice::CutOff {
            run: &run,
            record: &record,
            verdict: &verdict,
        };
        if let Some(line) = audience.line(&notice) {
            audience.print(&line);
        }
    }

    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
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
            } else {
                recorder.write(&Line::Gap(GapLine { at_ms: 0, message }));
            }
            None
        }
    };
    let mut sampler = Sampler::new(meter, gpus, started);

    let (events_in, events) = mpsc::channel();
    signals::listen(events_in).map_err(RunError::Signals)?;

    let streams = Streams::open().unwrap_or_else(|error| {
        gaps.push(format!("the output passes by unseen: {error}"));
        Streams::inherited()
    });
    let keeper = start_keeper(settings, &streams, &mut gaps);
    if let Some(keeper) = &keeper {
        contained.leave_out(keeper.pid);
    }
    let mut hook = stage_hook(settings, stored.as_ref(), &mut gaps);
    sampler.begin(&contained, hook.as_ref().map(Staged::gauges));
    let control = Control::choose();
    let door = match &scope {
        Some(_) => None,
        None => contained.door().ok().flatten(),
    };
    let mut command = scope.as_ref().map_or_else(Vec::new, Scope::prefix);
    command.extend(settings.command.iter().cloned());
    let pid = launch(Launch {
        command: &command,
        variables: hook.as_ref().map_or_else(Vec::new, |hook| {
            hook.environment(
                std::env::var_os("PYTHONPATH").as_deref(),
                monotonic_ns(),
                settings.trace_allocations,
            )
        }),
        stdout: streams.stdout,
        stderr: streams.stderr,
        own_group: control.own_group(),
        door,
    });
    let pid = match pid {
        Ok(pid) => pid,
        Err(source) => {
            let outcome = Outcome::NotStarted {
                error: source.to_string(),
            };
            recorder.write(&Line::Attempt(AttemptLine {
                number: 1,
                ..AttemptLine::default()
            }));
            recorder.write(&Line::End(Box::new(end_line(0, outcome))));
            if let Some(keeper) = keeper {
                keeper.dismiss();
            }
            if let Some(hook) = hook {
                hook.remove();
            }
            contained.remove();
            return Err(RunError::NotStarted {
                program: settings
                    .command
                    .first()
                    .map_or_else(String::new, |word| word.to_string_lossy().into_owned()),
                source,
            });
        }
    };
    control.hand_over(pid);
    if let Some(scope) = &scope
        && let Some(group) = scope.group_of(number(pid), Duration::from_secs(2))
    {
        contained.move_to_scope(group);
        sampler.begin(&contained, hook.as_ref().map(Staged::gauges));
    }
    sampler.watch_process(number(pid));
    // Before anything that the training prints is handed on: whoever has seen a line of it finds the attempt on record.
    recorder.write(&Line::Attempt(attempt_line(
        &sampler,
        &contained,
        pid,
        hook.is_some(),
    )));
    let has_terminal = streams.ways.iter().any(|way| way.is_terminal);
    let speaks_through_relay = streams.ways.iter().any(|way| way.stream != Stream::Stdout);
    let relay = Relay::start(
        streams.ways,
        stored.as_ref().map(|run| run.folder.as_path()),
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

    let mut running = Running {
        settings,
        audience,
        recorder,
        contained,
        sampler,
        relay,
        keeper,
        control,
        pid,
        id,
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
        status_line: settings.status_line && has_terminal,
        speaks_through_relay,
        rows_told: None,
        n_samples: 0,
        orphans: Vec::new(),
        ended: None,
    };
    for gap in gaps {
        running.gap(&gap);
    }
    running.watch_until_the_end(&events, &mut hook);
    Ok(running.finish(streams.direct, hook, stored))
}

fn open_record(settings: &RunSettings, gaps: &mut Vec<String>) -> Option<StoredRun> {
    let Some(state) = &settings.state else {
        gaps.push(
            "no run record: neither HOME nor XDG_STATE_HOME is set; name a folder with --state-dir"
                .into(),
        );
        return None;
    };
    match state.new_run(unix_ms()) {
        Ok(run) => Some(run),
        Err(error) => {
            gaps.push(format!(
                "no run record: {} cannot be used: {error}",
                state.folder.display()
            ));
            None
        }
    }
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

fn attempt_line(sampler: &Sampler, contained: &Containment, pid: Pid, hook: bool) -> AttemptLine {
    let brim = sampler.meter().brim();
    let brim = brim.known();
    let limit = |resource| rustix::process::getrlimit(resource).current;
    AttemptLine {
        number: 1,
        started_at_unix_ms: unix_ms(),
        pid: number(pid),
        containment: contained.kind().into(),
        cgroup: contained.path().map(str::to_owned),
        limit: brim.map(|brim| brim.limit),
        limit_set_by: brim.map(|brim| brim.set_by.to_string()),
        open_files_limit: limit(Resource::Nofile),
        address_space_limit: limit(Resource::As).map(Bytes),
        hook,
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

fn unix_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| {
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
        })
}

fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}
