//! The training's processes: signals to them, their terminal, their end.

use std::time::{Duration, Instant};

use brimful::record::Outcome;
use brimful::watch::StopReason;
use brimful_probe::{ProcessFacts, Processes};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions};

use crate::contain::Containment;
use crate::display::Display;
use crate::exit_status::Ended;
use crate::keeper::{Keeper, Report};
use crate::send::{TrainingProcess, process_number, send_to};
use crate::signals::{self, Arrived, PASSED_ON};
use crate::terminal::{self, TerminalControl};

/// What shells and launchers end with after Ctrl-C. Where the training has the terminal, brimful does not hear of it.
const BY_CTRL_C: i32 = 130;
/// How long a signal to the process group may take to come to the keeper, which reports it.
const KEEPER_REPORTS_WITHIN: Duration = Duration::from_millis(30);
/// A report of the keeper and a signal to brimful further apart are two signals.
const SAME_SIGNAL_WITHIN: Duration = Duration::from_secs(1);
/// Processes whose end by a signal is recorded.
const MAX_ORPHANS: usize = 64;

/// Signals the training's processes and learns how they end.
pub(crate) struct ProcessControl {
    pub(crate) contained: Containment,
    pub(crate) keeper: Option<Keeper>,
    terminal: TerminalControl,
    training: TrainingProcess,
    /// The last signal that was passed on to the training.
    forwarded: Option<i32>,
    /// The last signal that came to the keeper too, and so to everybody in the process group, and when.
    to_group: Option<(i32, Instant)>,
    stopped_by_us: Option<StopReason>,
    orphans: Vec<(u32, i32)>,
    ended: Option<Ended>,
}

impl ProcessControl {
    pub(crate) fn new(
        contained: Containment,
        keeper: Option<Keeper>,
        terminal: TerminalControl,
        training: TrainingProcess,
    ) -> ProcessControl {
        ProcessControl {
            contained,
            keeper,
            terminal,
            training,
            forwarded: None,
            to_group: None,
            stopped_by_us: None,
            orphans: Vec::new(),
            ended: None,
        }
    }

    fn pid(&self) -> Pid {
        self.training.pid
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Handles a signal that brimful has received.
    pub(crate) fn handle(&mut self, arrived: Arrived, display: &mut Display<'_>) {
        match arrived.signal {
            signal_hook::consts::SIGCHLD => self.reap(display),
            signal_hook::consts::SIGWINCH => {
                display.resized();
                // The kernel notifies only processes on the real terminal.
                if self.terminal.own_group() {
                    self.signal_training(Signal::WINCH);
                }
            }
            signal_hook::consts::SIGCONT => {
                self.terminal.hand_over(self.pid());
                if matches!(self.terminal, TerminalControl::Handed { .. }) {
                    self.continue_group();
                }
            }
            signal if PASSED_ON.contains(&signal) => {
                self.forwarded = Some(signal);
                let has_it = !self.terminal.own_group()
                    && (arrived.by_terminal || self.came_to_group(signal, display));
                if !has_it && let Some(signal) = Signal::from_named_raw(signal) {
                    self.signal_training(signal);
                }
            }
            _ => {}
        }
    }

    /// Whether a signal was sent to the whole process group, which the training shares with brimful: then it has it
    /// already. The keeper is in the group too, and reports what it gets.
    fn came_to_group(&mut self, signal: i32, display: &mut Display<'_>) -> bool {
        let give_up = Instant::now() + KEEPER_REPORTS_WITHIN;
        while self.keeper.is_some() && !self.has_ended() {
            self.reap(display);
            if let Some((reported, at)) = self.to_group
                && reported == signal
                && at.elapsed() < SAME_SIGNAL_WITHIN
            {
                self.to_group = None;
                return true;
            }
            if Instant::now() >= give_up {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        false
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
    pub(crate) fn reap(&mut self, display: &mut Display<'_>) {
        let reports = self.keeper.as_mut().map_or_else(Vec::new, Keeper::reports);
        for report in reports {
            match report {
                Report::Ended(ended) => {
                    self.ended.get_or_insert(ended);
                    if let Some(keeper) = &self.keeper {
                        keeper.heard_of_the_end();
                    }
                }
                Report::Stopped => self.stop_with_it(display),
                Report::Signaled(signal) => self.to_group = Some((signal, Instant::now())),
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
                    self.stop_with_it(display);
                }
            } else if let Some(signal) = status.terminating_signal()
                && !self.is_keeper(pid)
            {
                self.orphans.push((process_number(pid), signal));
                self.orphans.truncate(MAX_ORPHANS);
            }
        }
    }

    fn is_keeper(&self, pid: Pid) -> bool {
        let keeper = self.keeper.as_ref().map(|keeper| keeper.pid);
        keeper == Some(process_number(pid))
    }

    /// The training was stopped from its terminal: brimful stops too, so that the shell has its prompt back.
    fn stop_with_it(&mut self, display: &mut Display<'_>) {
        if !matches!(self.terminal, TerminalControl::Handed { .. }) {
            return;
        }
        display.remove_status_line();
        self.terminal.take_back(self.pid());
        terminal::stop_here();
        // Let go on again: `fg` has given the terminal to brimful, `bg` has not.
        self.terminal.hand_over(self.pid());
        // The window may have another size than before.
        display.resized();
        self.continue_group();
        display.status_line_is_due();
    }

    /// Sends the checkpoint signal to whoever has a handler for it: to anybody else it would be the end.
    pub(crate) fn ask_for_checkpoint(
        &self,
        processes: &Processes,
        signal: i32,
        dry_run: bool,
    ) -> String {
        let name = signal_name(signal);
        let main = processes.one(process_number(self.pid()));
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
        if !dry_run && let Some(signal) = Signal::from_named_raw(signal) {
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

    /// Asks the training to end by itself.
    pub(crate) fn ask_to_stop(&mut self, reason: &StopReason, dry_run: bool) -> String {
        if !dry_run {
            self.stopped_by_us.get_or_insert_with(|| reason.clone());
            self.signal_training(Signal::TERM);
        }
        format!("SIGTERM to process {}", process_number(self.pid()))
    }

    /// Ends every process of the job at once.
    pub(crate) fn kill(
        &mut self,
        processes: &Processes,
        reason: &StopReason,
        dry_run: bool,
    ) -> String {
        if !dry_run {
            self.stopped_by_us.get_or_insert_with(|| reason.clone());
            self.contained.kill_all(processes);
        }
        "SIGKILL to every process of the job".into()
    }

    /// Takes the terminal back from the training.
    pub(crate) fn take_terminal_back(&self) {
        self.terminal.take_back(self.pid());
    }

    /// Other processes of the job that a signal has ended.
    pub(crate) fn take_orphans(&mut self) -> Vec<(u32, i32)> {
        std::mem::take(&mut self.orphans)
    }

    /// How the training ended, and who ended it.
    pub(crate) fn outcome(&self) -> Outcome {
        let signal = match self.ended {
            Some(Ended::Signaled(signal)) => Some(signal),
            _ => None,
        };
        if let (Some(reason), Some(ended)) = (&self.stopped_by_us, self.ended)
            && !matches!(ended, Ended::Exited(0))
        {
            return Outcome::StoppedByUs {
                detector: reason.detector.clone(),
                message: reason.message.clone(),
                signal,
            };
        }
        match self.ended {
            Some(Ended::Exited(0)) => Outcome::Finished,
            _ if signal == Some(signal_hook::consts::SIGINT) => Outcome::StoppedByUser {
                signal: signal_hook::consts::SIGINT,
            },
            // Killed by something else than what was passed on: somebody else was faster.
            Some(Ended::Signaled(signal)) if self.forwarded != Some(signal) => {
                Outcome::Killed { signal }
            }
            Some(Ended::Exited(code)) if !self.forwarded.is_some_and(signals::ends) => {
                Outcome::Failed { code }
            }
            Some(Ended::Unknown) | None => Ended::Unknown.into(),
            Some(_) => Outcome::StoppedByUser {
                signal: self
                    .forwarded
                    .or(signal)
                    .unwrap_or(signal_hook::consts::SIGTERM),
            },
        }
    }

    /// Whether the user asked for the end, whatever the training died of then.
    pub(crate) fn is_ended_by_user(&self, outcome: &Outcome) -> bool {
        self.forwarded.is_some_and(signals::ends)
            || matches!(outcome, Outcome::StoppedByUser { .. })
            || matches!(self.ended, Some(Ended::Exited(BY_CTRL_C)))
    }

    /// How the training ended.
    pub(crate) fn end(&self) -> Ended {
        self.ended.unwrap_or(Ended::Unknown)
    }
}

fn signal_name(signal: i32) -> String {
    signal_hook::low_level::signal_name(signal)
        .map_or_else(|| format!("signal {signal}"), str::to_owned)
}
