//! Watching a process that brimful did not start, such as the kernel of a notebook.
//!
//! The watch runs in a process and a session of its own, so that it outlives the kernel, its restart and its process
//! group, and writes an ordinary run record. It is no parent of the process: the kernel's counts say what it died of.

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use brimful::fact::Fact;
use brimful::record::{ActionLine, EndLine, Line, Outcome, RunLine, SCHEMA_VERSION, VerdictLine};
use brimful::watch::{Action, OnPressure, WatchRules, next_action, next_interval};
use brimful_probe::{GpuMeter, Meter, Processes};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::clock::unix_ms;
use crate::command::recorded;
use crate::contain::Containment;
use crate::explained::explain_record;
use crate::notice::{Audience, Notice};
use crate::recorder::{Recorder, end_line};
use crate::recording::Recording;
use crate::sampler::Sampler;
use crate::start::attempt_line;
use crate::state::{StateDir, StoredRun, place_of};
use crate::watcher::Watcher;

/// The kernel counts a kill a moment after the process is gone.
const COUNTS_WITHIN: Duration = Duration::from_millis(300);

/// Between two interrupts of one rise.
const GRACE_MS: u64 = 30_000;

/// What to watch, and what to do about it.
#[derive(Clone, Debug)]
pub struct ProcessWatchSettings {
    pub pid: u32,
    pub state: StateDir,
    pub brimful_version: String,
    /// Interrupt the process (SIGINT) before host memory runs out.
    pub interrupt: bool,
    /// The signal to send to the process after a notice was printed for it.
    pub notify: Option<i32>,
}

/// The process cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum ProcessWatchError {
    #[error("process {pid} does not exist")]
    NoSuchProcess { pid: u32 },
    #[error("cannot use the state directory")]
    State(#[source] std::io::Error),
}

/// What the watched process says through standard input of the watch.
mod said {
    /// It is about to exit in order.
    pub(super) const LEAVING: u8 = b'q';
    /// It wants to be watched no longer.
    pub(super) const STOP: u8 = b's';
}

/// Leaves the session of whoever started this process, so that a signal to their process group does not reach it.
pub fn leave_session() {
    let _ = rustix::process::setsid();
}

/// Watches a process until it has ended or asks to be left alone. `ready` gets the run once it is on record.
pub fn watch_process(
    settings: &ProcessWatchSettings,
    audience: &mut dyn Audience,
    ready: impl FnOnce(&StoredRun),
) -> Result<(), ProcessWatchError> {
    let pid = i32::try_from(settings.pid).ok().and_then(Pid::from_raw);
    let no_such_process = ProcessWatchError::NoSuchProcess { pid: settings.pid };
    let pid = pid.ok_or(ProcessWatchError::NoSuchProcess { pid: settings.pid })?;
    let process = pidfd_open(pid, PidfdFlags::empty()).map_err(|_| no_such_process)?;
    let stored = (settings.state.new_run(unix_ms())).map_err(ProcessWatchError::State)?;
    let mut recorder = Recorder::create(&stored.directory);
    recorder.write(&Line::Run(run_line(settings, &stored)));

    let started = Instant::now();
    let contained = Containment::of_process(settings.pid);
    let gpus = match GpuMeter::live() {
        Fact::Known(gpus) => Some(gpus),
        Fact::Missing(_) => None,
    };
    let mut sampler = Sampler::new(Meter::live(), gpus, started);
    sampler.begin(&contained, None);
    sampler.watch_process(settings.pid);
    let attempt = brimful::record::AttemptLine {
        number: 1,
        command: arguments(settings.pid),
        ..attempt_line(&sampler, &contained, pid)
    };
    recorder.write(&Line::Attempt(attempt.clone()));
    ready(&stored);

    let mut attached = Attached {
        settings,
        process,
        contained,
        watcher: Watcher::new(sampler, None, started),
        recording: Recording::new(&mut recorder, Some(&stored), attempt, Vec::new()),
        audience,
        is_leaving: false,
        hears: true,
    };
    attached.watch_until_the_end();
    attached.finish();
    Ok(())
}

fn run_line(settings: &ProcessWatchSettings, stored: &StoredRun) -> RunLine {
    let directory = std::env::current_dir().unwrap_or_default();
    RunLine {
        schema_version: SCHEMA_VERSION,
        id: stored.id.clone(),
        brimful_version: settings.brimful_version.clone(),
        started_at_unix_ms: unix_ms(),
        command: arguments(settings.pid),
        folder: place_of(&directory),
        host_name: rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned(),
        supervisor_pid: std::process::id(),
        ..RunLine::default()
    }
}

fn arguments(pid: u32) -> Vec<String> {
    let words = Processes::live().arguments(pid);
    let words: Vec<_> = words.into_iter().map(Into::into).collect();
    recorded(&words)
}

/// A process while it is watched.
struct Attached<'a> {
    settings: &'a ProcessWatchSettings,
    process: OwnedFd,
    contained: Containment,
    watcher: Watcher,
    recording: Recording<'a>,
    audience: &'a mut dyn Audience,
    is_leaving: bool,
    /// Whether standard input is open.
    hears: bool,
}

/// Why the watch goes no further.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Woken {
    /// It is time for the next sample.
    Due,
    Ended,
    Stopped,
}

impl Attached<'_> {
    fn watch_until_the_end(&mut self) {
        let mut interval = Duration::ZERO;
        while self.wait(interval) == Woken::Due {
            let sample = self.watcher.sampler.sample(&self.contained);
            // What was read of a process that had ended by then would be taken for its last moment.
            if self.wait(Duration::ZERO) != Woken::Due {
                break;
            }
            let alarms = self.watcher.observe(&sample);
            self.recording.sample(&sample, !alarms.is_empty());
            for alarm in &alarms {
                self.recording.write(&Line::Alarm(alarm.clone()));
                self.tell(&Notice::Alarm(alarm));
            }
            let action = next_action(&self.rules(), self.watcher.watch.state());
            if let Action::AskForCheckpoint { .. } = &action {
                self.interrupt(&action, sample.at_ms);
            }
            self.watcher.last = Some(sample);
            interval = next_interval(self.watcher.watch.state());
        }
    }

    fn rules(&self) -> WatchRules {
        WatchRules {
            on_pressure: if self.settings.interrupt {
                OnPressure::Checkpoint
            } else {
                OnPressure::Warn
            },
            grace_ms: GRACE_MS,
            stop_grace_ms: GRACE_MS,
        }
    }

    /// Waits for the end of the process, for what it says, or until the time has passed.
    fn wait(&mut self, time: Duration) -> Woken {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let left = Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            };
            let stdin = std::io::stdin();
            let mut watched = vec![PollFd::new(&self.process, PollFlags::IN)];
            if self.hears {
                watched.push(PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN));
            }
            let n_ready = poll(&mut watched, Some(&left)).unwrap_or(0);
            let has_ended = !watched[0].revents().is_empty();
            let has_said = watched
                .get(1)
                .is_some_and(|line| !line.revents().is_empty());
            if has_said && self.listen() {
                return Woken::Stopped;
            }
            if has_ended {
                return Woken::Ended;
            }
            if n_ready == 0 && Instant::now() >= until {
                return Woken::Due;
            }
        }
    }

    /// Reads what the process says; whether the watch is to stop.
    fn listen(&mut self) -> bool {
        let mut said = [0_u8; 16];
        let n_read = std::io::stdin().read(&mut said).unwrap_or(0);
        self.hears = n_read > 0;
        let said = &said[..n_read];
        self.is_leaving = self.is_leaving || said.contains(&said::LEAVING);
        said.contains(&said::STOP)
    }

    fn tell(&mut self, notice: &Notice<'_>) {
        self.audience.print_notice(notice);
        if let Some(signal) = self.settings.notify.and_then(Signal::from_named_raw) {
            let _ = pidfd_send_signal(&self.process, signal);
        }
    }

    fn interrupt(&mut self, action: &Action, at_ms: u64) {
        let done = match pidfd_send_signal(&self.process, Signal::INT) {
            Ok(()) => format!("SIGINT to process {}", self.settings.pid),
            Err(error) => format!("SIGINT to process {} failed: {error}", self.settings.pid),
        };
        let line = ActionLine {
            at_ms,
            action: action.clone(),
            dry_run: false,
            done,
        };
        self.recording.write(&Line::Action(line.clone()));
        self.watcher.watch.acted(action, at_ms);
        self.tell(&Notice::Action(&line));
    }

    /// Closes the record, with the verdict.
    fn finish(mut self) {
        let at_ms = self.watcher.at_ms();
        let kernel = self.kernel_counts();
        let killed = kernel.oom_kills.unwrap_or(0) > 0 || kernel.oom_kills_around.unwrap_or(0) > 0;
        let has_ended = self.has_ended();
        let outcome = match (has_ended, self.is_leaving, killed) {
            (false, ..) | (true, true, _) => Outcome::Finished,
            (true, false, true) => Outcome::Killed {
                signal: Signal::KILL.as_raw(),
            },
            (true, false, false) => Outcome::Unseen,
        };
        self.recording.flush_samples();
        let end = EndLine {
            kernel,
            peaks: self.watcher.peaks.clone(),
            last: self.watcher.last.clone(),
            ..end_line(at_ms, outcome)
        };
        self.recording.write(&Line::End(Box::new(end)));
        if let Some(record) = self.recording.read_back() {
            let verdict = explain_record(&record, self.recording.directory());
            let n_false_alarms =
                (record.last_attempt()).map_or(0, |attempt| attempt.n_false_alarms(&verdict));
            self.recording.write(&Line::Verdict(VerdictLine {
                at_ms,
                verdict,
                n_false_alarms,
            }));
        }
    }

    fn has_ended(&self) -> bool {
        let mut process = [PollFd::new(&self.process, PollFlags::IN)];
        let _ = poll(&mut process, Some(&Timespec::default()));
        !process[0].revents().is_empty()
    }

    /// What the kernel counted, once it has counted.
    fn kernel_counts(&mut self) -> brimful::record::KernelCounts {
        let until = Instant::now() + COUNTS_WITHIN;
        loop {
            let counts = self.watcher.kernel_counts(&self.contained);
            let has_counted = counts.oom_kills_around.unwrap_or(0) > 0;
            if has_counted || self.is_leaving || Instant::now() >= until {
                return counts;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
