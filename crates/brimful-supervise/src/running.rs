//! A run while it goes on: events come in one at a time, and what `brimful` decides is carried out.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use brimful::record::{ActionLine, AttemptLine, GapLine, Line, Peaks, merged};
use brimful::watch::{Action, Sample, StopReason, Watch, next_action, next_interval};
use brimful_probe::ProcessFacts;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions};

use crate::contain::Containment;
use crate::exit_status::Ended;
use crate::fault;
use crate::hook::Staged;
use crate::keeper::{Keeper, Report};
use crate::metrics;
use crate::recorder::Recorder;
use crate::relay::Relay;
use crate::run::{Audience, Notice, RunSettings};
use crate::sampler::Sampler;
use crate::send::{Training, send_to};
use crate::signals::{Arrived, PASSED_ON};
use crate::start::number;
use crate::state::StoredRun;
use crate::steps::{StartStep, panic_message, step};
use crate::terminal::{self, Control};

/// Samples go to the record at most this often, the highest figures of those between merged into them.
const RECORD_EVERY: Duration = Duration::from_millis(250);
const METRICS_EVERY: Duration = Duration::from_secs(5);
const HOOK_EVERY: Duration = Duration::from_millis(500);
const STATUS_EVERY: Duration = Duration::from_millis(900);
/// A command that ends sooner shows no status line.
const STATUS_AFTER: Duration = Duration::from_millis(900);
/// A run while it goes on.
pub(crate) struct Running<'a> {
    pub(crate) settings: &'a RunSettings,
    pub(crate) audience: &'a mut dyn Audience,
    pub(crate) recorder: &'a mut Recorder,
    pub(crate) stored: Option<&'a StoredRun>,
    pub(crate) events: &'a Receiver<Arrived>,
    /// The attempt's first line on record.
    pub(crate) line: AttemptLine,
    pub(crate) contained: Containment,
    pub(crate) sampler: Sampler,
    pub(crate) relay: Option<Relay>,
    pub(crate) keeper: Option<Keeper>,
    pub(crate) control: Control,
    pub(crate) training: Training,
    pub(crate) id: &'a str,
    pub(crate) started: Instant,
    pub(crate) watch: Watch,
    pub(crate) peaks: Peaks,
    pub(crate) last: Option<Sample>,
    /// Samples not yet in the record, as one.
    pub(crate) pending: Option<Sample>,
    pub(crate) recorded_at: Option<Instant>,
    pub(crate) status_at: Option<Instant>,
    pub(crate) metrics_at: Option<Instant>,
    pub(crate) hook_at: Instant,
    /// The last signal that was passed on to the training.
    pub(crate) forwarded: Option<i32>,
    pub(crate) stopped_by_us: Option<(StopReason, Option<i32>)>,
    /// Off after a bug of ours: the training goes on unwatched.
    pub(crate) watching: bool,
    pub(crate) status_line: bool,
    pub(crate) speaks_through_relay: bool,
    pub(crate) rows_told: Option<u16>,
    pub(crate) n_samples: u64,
    pub(crate) orphans: Vec<(u32, i32)>,
    pub(crate) ended: Option<Ended>,
}

impl Running<'_> {
    pub(crate) fn watch_until_the_end(&mut self, hook: &mut Option<Staged>) {
        let mut next_look = Instant::now();
        // It may have ended before the first signal was listened to.
        self.reap();
        while self.ended.is_none() {
            let wait = next_look.saturating_duration_since(Instant::now());
            match self.events.recv_timeout(wait) {
                Ok(arrived) => self.arrived(arrived),
                Err(RecvTimeoutError::Timeout) => {
                    if self.watching {
                        let looked = catch_unwind(AssertUnwindSafe(|| self.look(hook.as_mut())));
                        match looked {
                            Ok(interval) => next_look = Instant::now() + interval,
                            Err(payload) => {
                                self.watching = false;
                                self.gap(&format!(
                                    "a bug in brimful ended the watch; the training goes on: {}",
                                    panic_message(payload.as_ref())
                                ));
                            }
                        }
                    } else {
                        next_look = Instant::now() + Duration::from_secs(1);
                        self.reap();
                    }
                }
                // The thread that listens is gone; look for the end now and then.
                Err(RecvTimeoutError::Disconnected) => {
                    std::thread::sleep(Duration::from_millis(50));
                    self.reap();
                }
            }
        }
    }

    /// Signals that came between the last look for them and the start: the terminal has sent them to nobody of this
    /// attempt.
    pub(crate) fn pass_on_what_came_before(&mut self) {
        for mut arrived in self.events.try_iter().collect::<Vec<_>>() {
            arrived.by_terminal = false;
            self.arrived(arrived);
        }
    }

    fn arrived(&mut self, arrived: Arrived) {
        match arrived.signal {
            signal_hook::consts::SIGCHLD => self.reap(),
            signal_hook::consts::SIGWINCH => {
                if let Some(relay) = &self.relay {
                    relay.resized();
                }
                // The kernel tells only those that have the real terminal.
                if self.control.own_group() {
                    self.signal_training(Signal::WINCH);
                }
            }
            signal_hook::consts::SIGCONT => {
                self.control.hand_over(self.pid());
                if matches!(self.control, Control::Handed { .. }) {
                    self.continue_group();
                }
            }
            signal if PASSED_ON.contains(&signal) => {
                self.forwarded = Some(signal);
                // The terminal has sent it to everybody in the group already.
                let has_it = arrived.by_terminal && !self.control.own_group();
                if !has_it && let Some(signal) = Signal::from_named_raw(signal) {
                    self.signal_training(signal);
                }
            }
            _ => {}
        }
    }

    pub(crate) fn pid(&self) -> Pid {
        self.training.pid
    }

    /// Sends a signal to the training's first process, as long as it is not known to have ended.
    fn signal_training(&self, signal: Signal) {
        if self.ended.is_none() {
            self.training.send(signal);
        }
    }

    /// Lets the training's process group continue. Nobody else can have its number: the training is not reaped yet.
    fn continue_group(&self) {
        if self.ended.is_none() {
            let _ = rustix::process::kill_process_group(self.pid(), Signal::CONT);
        }
    }

    /// Takes note of every process that has ended or stopped.
    pub(crate) fn reap(&mut self) {
        let reports = self.keeper.as_mut().map_or_else(Vec::new, Keeper::reports);
        for report in reports {
            match report {
                Report::Ended(ended) => {
                    self.ended.get_or_insert(ended);
                    if let Some(keeper) = &self.keeper {
                        keeper.heard_of_the_end();
                    }
                }
                Report::Stopped => self.stop_with_it(),
                Report::AtGate(_) | Report::Started | Report::NotStarted(_) => {}
            }
        }
        let options = WaitOptions::NOHANG | WaitOptions::UNTRACED | WaitOptions::CONTINUED;
        loop {
            let (pid, status) = match rustix::process::wait(options) {
                Ok(Some(waited)) => waited,
                // No child at all is left, no keeper either: somebody else has become the training's parent.
                Err(Errno::CHILD) if self.ended.is_none() && self.training.is_gone() => {
                    self.ended = Some(Ended::Unknown);
                    break;
                }
                _ => break,
            };
            // Without a keeper, or after its end, the training is a child of brimful.
            if pid == self.pid() {
                if let Some(code) = status.exit_status() {
                    self.ended = Some(Ended::Exited(code));
                } else if let Some(signal) = status.terminating_signal() {
                    self.ended = Some(Ended::Signaled(signal));
                } else if status.stopped() {
                    self.stop_with_it();
                }
            } else if let Some(signal) = status.terminating_signal()
                && !self.is_keeper(pid)
            {
                self.orphans.push((number(pid), signal));
                self.orphans.truncate(64);
            }
        }
    }

    fn is_keeper(&self, pid: Pid) -> bool {
        let keeper = self.keeper.as_ref().map(|keeper| keeper.pid);
        keeper == Some(number(pid))
    }

    /// The training was stopped from its terminal: brimful stops too, so that the shell has its prompt back.
    fn stop_with_it(&mut self) {
        if !matches!(self.control, Control::Handed { .. }) {
            return;
        }
        if let Some(relay) = &self.relay {
            relay.take_down();
        }
        self.control.take_back(self.pid());
        terminal::stop_here();
        // Let go on again: `fg` has given the terminal to brimful, `bg` has not.
        self.control.hand_over(self.pid());
        self.continue_group();
        self.status_at = None;
    }

    /// Takes one sample and does what follows from it; says when to look again.
    fn look(&mut self, hook: Option<&mut Staged>) -> Duration {
        if let Some(hook) = hook
            && self.hook_at.elapsed() >= HOOK_EVERY
        {
            self.hook_at = Instant::now();
            self.take_hook_lines(hook);
        }
        if self.n_samples == 0
            && let Err(error) = fault::inject(StartStep::FirstSample)
        {
            self.gap(&format!("the first sample failed: {error}"));
        }
        let sample = self.sampler.sample(&self.contained);
        // What was read of a job that had ended by then would be taken for its last moment.
        self.reap();
        if self.ended.is_some() {
            return Duration::ZERO;
        }
        self.n_samples += 1;
        self.peaks.include(&sample);
        let alarms = self.watch.observe(&sample);
        if !alarms.is_empty() {
            // The processes at this moment are what an explanation will want.
            self.sampler.look_closely();
        }
        self.record_sample(&sample, !alarms.is_empty());
        for alarm in &alarms {
            self.recorder.write(&Line::Alarm(alarm.clone()));
            self.tell(&Notice::Alarm(alarm));
        }
        let action = next_action(&self.settings.rules, self.watch.state());
        if action != Action::KeepWatching {
            self.act(&action, sample.at_ms);
        }
        self.show_status(&sample);
        self.write_metrics(&sample);
        self.last = Some(sample);
        if let Some(problem) = self.recorder.take_problem() {
            self.gap(&problem);
        }
        self.reap();
        next_interval(self.watch.state())
    }

    pub(crate) fn take_hook_lines(&mut self, hook: &mut Staged) {
        for line in hook.new_lines() {
            self.recorder.write(&Line::Hook(line));
        }
    }

    fn record_sample(&mut self, sample: &Sample, now: bool) {
        let pending = match self.pending.take() {
            Some(pending) => merged(&pending, sample),
            None => sample.clone(),
        };
        let due = self
            .recorded_at
            .is_none_or(|at| at.elapsed() >= RECORD_EVERY);
        if due || now {
            self.recorder.write(&Line::Sample(pending));
            self.recorded_at = Some(Instant::now());
        } else {
            self.pending = Some(pending);
        }
    }

    fn act(&mut self, action: &Action, at_ms: u64) {
        let dry_run = self.settings.dry_run;
        let done = match action {
            Action::KeepWatching => return,
            Action::AskForCheckpoint { .. } => self.ask_for_checkpoint(),
            Action::AskToStop { reason } => {
                if !dry_run {
                    self.stopped_by_us
                        .get_or_insert_with(|| (reason.clone(), None));
                    self.signal_training(Signal::TERM);
                }
                format!("SIGTERM to process {}", number(self.pid()))
            }
            Action::Kill { reason } => {
                if !dry_run {
                    self.stopped_by_us
                        .get_or_insert_with(|| (reason.clone(), None));
                    self.contained.kill_all(self.sampler.processes());
                }
                "SIGKILL to every process of the job".into()
            }
        };
        let line = ActionLine {
            at_ms,
            action: action.clone(),
            dry_run,
            done,
        };
        self.recorder.write(&Line::Action(line.clone()));
        self.watch.acted(action, at_ms);
        self.tell(&Notice::Action(&line));
    }

    /// Sends the checkpoint signal to whoever has a handler for it: to anybody else it would be the end.
    fn ask_for_checkpoint(&mut self) -> String {
        let signal = self.settings.checkpoint_signal;
        let name = signal_name(signal);
        let processes = self.sampler.processes();
        let main = processes.one(number(self.pid()));
        let catches = |process: &ProcessFacts| processes.catches(process.pid, signal) == Some(true);
        let takers = if let Some(main) = main.filter(catches) {
            vec![main]
        } else {
            // A launcher: its ranks may know the signal.
            let mut ranks = self.contained.processes(processes);
            ranks.retain(catches);
            ranks
        };
        if takers.is_empty() {
            return format!("nothing: no process of the job has a handler for {name}");
        }
        if !self.settings.dry_run
            && let Some(signal) = Signal::from_named_raw(signal)
        {
            send_to(processes, &takers, signal);
        }
        let list: Vec<String> = takers
            .iter()
            .map(|process| process.pid.to_string())
            .collect();
        let noun = if list.len() == 1 {
            "process"
        } else {
            "processes"
        };
        format!("{name} to {noun} {}", list.join(", "))
    }

    fn show_status(&mut self, sample: &Sample) {
        let Some(relay) = &self.relay else { return };
        let due = self.status_at.is_none_or(|at| at.elapsed() >= STATUS_EVERY);
        if !self.status_line || !due || self.started.elapsed() < STATUS_AFTER {
            return;
        }
        if self.status_at.is_none() && fault::inject(StartStep::StatusLine).is_err() {
            self.status_line = false;
            return;
        }
        self.status_at = Some(Instant::now());
        relay.show(self.audience.status(sample, self.watch.state()));
        let rows = relay.rows_in_use();
        if rows != self.rows_told {
            self.rows_told = rows;
            if let Some(keeper) = &self.keeper {
                keeper.status_line_is_up(rows);
            }
        }
    }

    fn write_metrics(&mut self, sample: &Sample) {
        let Some(path) = &self.settings.metrics_file else {
            return;
        };
        if self
            .metrics_at
            .is_some_and(|at| at.elapsed() < METRICS_EVERY)
        {
            return;
        }
        let first = self.metrics_at.is_none();
        self.metrics_at = Some(Instant::now());
        let written = if first {
            step(StartStep::Metrics, || metrics::write(path, self.id, sample))
        } else {
            metrics::write(path, self.id, sample)
        };
        if let Err(error) = written
            && first
        {
            let message = format!("{} cannot be written: {error}", path.display());
            self.gap(&message);
        }
    }

    pub(crate) fn gap(&mut self, message: &str) {
        self.recorder.write(&Line::Gap(GapLine {
            at_ms: self.sampler.at_ms(),
            message: message.to_owned(),
        }));
        self.tell(&Notice::Gap(message));
    }

    fn tell(&mut self, notice: &Notice<'_>) {
        let Some(line) = self.audience.line(notice) else {
            return;
        };
        match &self.relay {
            Some(relay) if self.speaks_through_relay => relay.say(line),
            _ => self.audience.print(&line),
        }
    }
}

fn signal_name(signal: i32) -> String {
    signal_hook::low_level::signal_name(signal)
        .map_or_else(|| format!("signal {signal}"), str::to_owned)
}
