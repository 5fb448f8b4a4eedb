//! The end of a run: nothing left running, the record closed, the verdict.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use brimful::explain::Verdict;
use brimful::plan::Observed;
use brimful::record::{Attempt, EndLine, Line, Outcome, OwnCost, Record, VerdictLine};
use brimful::watch::Sample;
use brimful_probe::Processes;
use rustix::process::WaitOptions;

use crate::exit_status::{self, Ended};
use crate::explained::explain_record;
use crate::hook::Staged;
use crate::ladder::AttemptEnd;
use crate::run::Notice;
use crate::running::Running;
use crate::signals;
use crate::start::end_line;
use crate::streams::Direct;
use crate::tail;

/// What a process that the training left behind has to end by itself.
const LEFT_BEHIND_GRACE: Duration = Duration::from_millis(500);
/// For what is still on its way through the streams once every process has ended.
const DRAIN: Duration = Duration::from_secs(2);
/// What shells and launchers end with after Ctrl-C. Where the training has the terminal, brimful does not hear of it.
const BY_CTRL_C: i32 = 130;

/// An attempt that has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) end: AttemptEnd,
    pub(crate) last: Option<Sample>,
    /// The user asked for it, whatever it died of then.
    pub(crate) by_user: bool,
    /// No process of it is left.
    pub(crate) all_gone: bool,
}

impl Running<'_> {
    /// Ends what is left, closes the record of this attempt, and says how it ended.
    pub(crate) fn finish(mut self, direct: Vec<Direct>, mut hook: Option<Staged>) -> Finished {
        self.control.take_back(self.pid());
        let at_ms = self.sampler.at_ms();
        // Before anything is cleaned up: the figures at the end.
        let last_look = catch_unwind(AssertUnwindSafe(|| {
            self.sampler.kernel_counts(&self.contained)
        }));
        let processes = Processes::live();
        let n_left_behind = self.contained.end(&processes, LEFT_BEHIND_GRACE, || {
            while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
        });
        let all_gone = n_left_behind == 0 || self.contained.processes(&processes).is_empty();
        if let Some(relay) = &mut self.relay {
            relay.finish(DRAIN);
        }
        if let Some(hook) = &mut hook {
            self.take_hook_lines(hook);
            if let Some(line) = hook.error_file(at_ms) {
                self.recorder.write(&Line::Hook(line));
            }
        }
        if let Some(pending) = self.pending.take() {
            self.recorder.write(&Line::Sample(pending));
        }
        let outputs = self
            .relay
            .as_ref()
            .map_or_else(Vec::new, |relay| relay.tails(at_ms));
        for output in outputs.into_iter().chain(
            direct
                .into_iter()
                .filter_map(|mut direct| tail::of_file(&mut direct, at_ms)),
        ) {
            if !output.tail.is_empty() {
                self.recorder.write(&Line::Output(output));
            }
        }
        let outcome = self.outcome();
        let mut end = end_line(at_ms, outcome.clone());
        end.kernel = last_look.unwrap_or_default();
        end.peaks = self.peaks.clone();
        end.last.clone_from(&self.last);
        end.n_left_behind = n_left_behind;
        end.orphans = std::mem::take(&mut self.orphans);
        if let Some((cpu, resident)) = processes.cost(std::process::id()) {
            end.own_cost = OwnCost {
                cpu_ms: u64::try_from(cpu.as_millis()).unwrap_or(u64::MAX),
                resident,
                n_samples: self.n_samples,
            };
        }
        self.recorder.write(&Line::End(Box::new(end.clone())));
        if let Some(relay) = &self.relay {
            relay.remove_tail_files();
        }
        if let Some(hook) = hook {
            hook.remove();
        }
        let (verdict, attempt) = self.explained(&end);
        let n_false_alarms = attempt.n_false_alarms(&verdict);
        self.recorder.write(&Line::Verdict(VerdictLine {
            at_ms,
            verdict: verdict.clone(),
            n_false_alarms,
        }));
        let exit_code = self.exit_code();
        // Before the cgroups: the keeper is in the one that brimful is in.
        if let Some(keeper) = self.keeper.take() {
            keeper.dismiss();
            if let Some(run) = self.stored {
                exit_status::remove(&run.folder);
            }
        }
        self.contained.remove();
        if let Some(problem) = self.recorder.take_problem()
            && let Some(line) = self.audience.line(&Notice::Gap(&problem))
        {
            self.audience.print(&line);
        }
        let by_user = self.forwarded.is_some_and(signals::ends)
            || matches!(outcome, Outcome::StoppedByUser { .. })
            || matches!(self.ended, Some(Ended::Exited(BY_CTRL_C)));
        Finished {
            end: AttemptEnd {
                number: self.line.number,
                settings: self.line.settings.clone(),
                outcome,
                verdict,
                n_false_alarms,
                peaks: end.peaks,
                limit: self.line.limit,
                wall_ms: at_ms,
                observed: Observed::of(&attempt),
                exit_code,
            },
            last: end.last,
            by_user,
            all_gone,
        }
    }

    /// From the record where there is one, so that what is said now is what `brimful explain` says later.
    fn explained(&self, end: &EndLine) -> (Verdict, Attempt) {
        let record = self
            .stored
            .and_then(|run| run.read().ok())
            .filter(Record::has_end);
        let folder = self.stored.map(|run| run.folder.as_path());
        let mut record = record.unwrap_or_else(|| {
            let outputs = self
                .relay
                .as_ref()
                .map_or_else(Vec::new, |relay| relay.tails(end.at_ms));
            let mut record = Record::default();
            record.attempts.push(Attempt {
                start: self.line.clone(),
                end: Some(end.clone()),
                output: outputs,
                ..Attempt::default()
            });
            record
        });
        let explained = catch_unwind(AssertUnwindSafe(|| explain_record(&record, folder)));
        (
            explained.unwrap_or_else(|_| Verdict::cannot_tell()),
            record.attempts.pop().unwrap_or_default(),
        )
    }

    pub(crate) fn outcome(&self) -> Outcome {
        let signal = match self.ended {
            Some(Ended::Signaled(signal)) => Some(signal),
            _ => None,
        };
        if let (Some((reason, _)), Some(ended)) = (&self.stopped_by_us, self.ended)
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

    pub(crate) fn exit_code(&self) -> u8 {
        self.ended.unwrap_or(Ended::Unknown).exit_code()
    }
}
