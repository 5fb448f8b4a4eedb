//! An attempt while it runs: events come in one at a time, and what `brimful` decides is carried out.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use brimful::record::{ActionLine, CheckpointLine, Line};
use brimful::watch::{Action, next_action, next_interval};

use crate::checkpoint_watch::CheckpointWatch;
use crate::display::Display;
use crate::fault;
use crate::metrics::MetricsFile;
use crate::notice::Notice;
use crate::own_pages;
use crate::process_control::ProcessControl;
use crate::recording::Recording;
use crate::sampler::FIRST_LOOKS_MS;
use crate::settings::RunSettings;
use crate::signals::Arrived;
use crate::start_step::StartStep;
use crate::steps::panic_message;
use crate::watcher::Watcher;

/// How often the end of an unwatched training is looked for.
const UNWATCHED_INTERVAL: Duration = Duration::from_secs(1);
/// The same where no signal announces it.
const UNANNOUNCED_INTERVAL: Duration = Duration::from_millis(50);

/// How often to look at a job at first whose memory no cgroup counts.
const BETWEEN_FIRST_LOOKS: Duration = Duration::from_millis(100);

/// An attempt while it runs.
pub(crate) struct Running<'a> {
    pub(crate) settings: &'a RunSettings,
    pub(crate) events: &'a Receiver<Arrived>,
    pub(crate) recording: Recording<'a>,
    pub(crate) display: Display<'a>,
    pub(crate) control: ProcessControl,
    pub(crate) watcher: Watcher,
    pub(crate) metrics: Option<MetricsFile<'a>>,
    pub(crate) checkpoints: Option<CheckpointWatch>,
}

impl Running<'_> {
    /// Watches the training until it has ended. A bug in the watch ends the watch, not the training.
    pub(crate) fn watch_until_the_end(&mut self) {
        own_pages::let_go_of_code();
        let watched = catch_unwind(AssertUnwindSafe(|| self.handle_events()));
        if let Err(payload) = watched {
            self.watcher.is_active = false;
            let _ = catch_unwind(AssertUnwindSafe(|| {
                self.watch_failed(&panic_message(payload.as_ref()));
            }));
            while !self.control.has_ended() {
                std::thread::sleep(UNANNOUNCED_INTERVAL);
                let _ = catch_unwind(AssertUnwindSafe(|| self.reap()));
            }
        }
    }

    fn handle_events(&mut self) {
        let mut next_look = Instant::now();
        // It may have ended before the first signal was listened to.
        self.reap();
        while !self.control.has_ended() {
            let wait = next_look.saturating_duration_since(Instant::now());
            match self.events.recv_timeout(wait) {
                Ok(arrived) => self.control.handle(arrived, &mut self.display),
                Err(RecvTimeoutError::Timeout) if self.watcher.is_active => {
                    match catch_unwind(AssertUnwindSafe(|| self.look())) {
                        Ok(interval) => next_look = Instant::now() + interval,
                        Err(payload) => {
                            self.watcher.is_active = false;
                            self.watch_failed(&panic_message(payload.as_ref()));
                        }
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    next_look = Instant::now() + UNWATCHED_INTERVAL;
                    self.reap();
                }
                // The thread that listens is gone; look for the end now and then.
                Err(RecvTimeoutError::Disconnected) => {
                    std::thread::sleep(UNANNOUNCED_INTERVAL);
                    self.reap();
                }
            }
        }
    }

    fn watch_failed(&mut self, message: &str) {
        self.gap(&format!(
            "a bug in brimful stopped the monitoring; the training continues: {message}"
        ));
    }

    /// Signals that came between the last look for them and the start: the terminal has sent them to nobody of this
    /// attempt.
    pub(crate) fn pass_on_what_came_before(&mut self) {
        for mut arrived in self.events.try_iter().collect::<Vec<_>>() {
            arrived.by_terminal = false;
            self.control.handle(arrived, &mut self.display);
        }
    }

    fn reap(&mut self) {
        self.control.reap(&mut self.display);
    }

    /// Takes one sample and does what follows from it; returns the time until the next one.
    fn look(&mut self) -> Duration {
        for line in self.watcher.hook_lines_if_due() {
            self.recording.write(&Line::Hook(line));
        }
        if let Some(newest) = self.checkpoints.as_ref().and_then(CheckpointWatch::take) {
            self.recording.write(&Line::Checkpoint(CheckpointLine {
                at_ms: self.watcher.at_ms(),
                path: newest.path.display().to_string(),
                written_at_unix_ms: newest.written_at_unix_ms,
            }));
        }
        if self.watcher.n_samples == 0
            && let Err(error) = fault::inject(StartStep::FirstSample)
        {
            self.gap(&format!("the first sample failed: {error}"));
        }
        let sample = self.watcher.sampler.sample(&self.control.contained);
        // What was read of a job that had ended by then would be taken for its last moment.
        self.reap();
        if self.control.has_ended() {
            return Duration::ZERO;
        }
        let alarms = self.watcher.observe(&sample);
        self.recording.sample(&sample, !alarms.is_empty());
        for alarm in &alarms {
            self.recording.write(&Line::Alarm(alarm.clone()));
            self.display.notice(&Notice::Alarm(alarm));
        }
        let action = next_action(&self.settings.rules, self.watcher.watch.state());
        if action != Action::KeepWatching {
            self.act(&action, sample.at_ms);
        }
        let (state, keeper) = (self.watcher.watch.state(), self.control.keeper.as_ref());
        self.display.look_at_window();
        self.display.status(&sample, state, keeper);
        if let Some(Err(problem)) = self.metrics.as_mut().map(|file| file.update(&sample)) {
            self.gap(&problem);
        }
        self.watcher.last = Some(sample);
        if let Some(problem) = self.recording.take_problem() {
            self.gap(&problem);
        }
        self.reap();
        let interval = next_interval(self.watcher.watch.state());
        let is_short_so_far = self.watcher.at_ms() < FIRST_LOOKS_MS;
        if is_short_so_far && self.control.contained.counting_group().is_none() {
            return interval.min(BETWEEN_FIRST_LOOKS);
        }
        interval
    }

    fn act(&mut self, action: &Action, at_ms: u64) {
        let dry_run = self.settings.dry_run;
        let processes = self.watcher.sampler.processes();
        let done = match action {
            Action::KeepWatching => return,
            Action::AskForCheckpoint { .. } => {
                let signal = self.settings.checkpoint_signal;
                self.control.ask_for_checkpoint(processes, signal, dry_run)
            }
            Action::AskToStop { reason } => self.control.ask_to_stop(reason, dry_run),
            Action::Kill { reason } => self.control.kill(processes, reason, dry_run),
        };
        let line = ActionLine {
            at_ms,
            action: action.clone(),
            dry_run,
            done,
        };
        self.recording.write(&Line::Action(line.clone()));
        self.watcher.watch.acted(action, at_ms);
        self.display.notice(&Notice::Action(&line));
    }

    pub(crate) fn gap(&mut self, message: &str) {
        self.recording.gap(self.watcher.at_ms(), message);
        self.display.notice(&Notice::Gap(message));
    }
}
