//! The end of an attempt: nothing left running, the record closed, the verdict.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use brimful::explain::Verdict;
use brimful::plan::Observed;
use brimful::record::{
    Attempt, EndLine, KernelCounts, Line, Outcome, OwnCost, Peaks, Record, VerdictLine,
};
use brimful::watch::Sample;
use brimful_probe::Processes;
use rustix::process::WaitOptions;

use crate::explained::explain_record;
use crate::ladder::AttemptEnd;
use crate::last_resort;
use crate::notice::Notice;
use crate::recorder::end_line;
use crate::running::Running;

/// What a process that the training left behind has to end by itself.
const LEFT_BEHIND_GRACE: Duration = Duration::from_millis(500);

/// An attempt that has ended.
#[derive(Debug)]
pub(crate) struct FinishedAttempt {
    pub(crate) end: AttemptEnd,
    pub(crate) last: Option<Sample>,
    /// The user asked for it, whatever it died of then.
    pub(crate) by_user: bool,
    /// No process of it is left.
    pub(crate) all_gone: bool,
}

/// Waits for the end of an attempt and closes its record.
///
/// Whatever bug there is in the watch or in the ending, the training is waited for and its exit code kept.
pub(crate) fn watch_and_finish(mut running: Running<'_>) -> FinishedAttempt {
    running.watch_until_the_end();
    let (outcome, ended) = (running.control.outcome(), running.control.end());
    last_resort::ended(ended);
    let number = running.recording.attempt.number;
    let finished = catch_unwind(AssertUnwindSafe(move || finish(running)));
    finished.unwrap_or_else(|_| FinishedAttempt {
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
            exit_code: ended.exit_code(),
            signal: ended.signal(),
        },
        last: None,
        by_user: false,
        all_gone: false,
    })
}

/// Ends what is left, closes the record of this attempt, and says how it ended.
fn finish(mut running: Running<'_>) -> FinishedAttempt {
    running.control.take_terminal_back();
    let at_ms = running.watcher.at_ms();
    // Before anything is cleaned up: the figures at the end.
    let kernel = last_kernel_counts(&mut running);
    let processes = Processes::live();
    let leftovers = end_leftovers(&running, &processes);
    record_last_lines(&mut running, at_ms);
    let end = EndLine {
        kernel,
        n_left_behind: leftovers.n_found,
        ..measured_end(&mut running, &processes, at_ms)
    };
    running.recording.write(&Line::End(Box::new(end.clone())));
    running.display.remove_tail_files();
    running.watcher.remove_hook();
    let (verdict, attempt) = explained(&running, &end);
    let n_false_alarms = attempt.n_false_alarms(&verdict);
    running.recording.write(&Line::Verdict(VerdictLine {
        at_ms,
        verdict: verdict.clone(),
        n_false_alarms,
    }));
    let by_user = running.control.is_ended_by_user(&end.outcome);
    let start = running.recording.attempt.clone();
    let ended = running.control.end();
    release(running);
    FinishedAttempt {
        end: AttemptEnd {
            number: start.number,
            settings: start.settings,
            outcome: end.outcome,
            verdict,
            n_false_alarms,
            peaks: end.peaks,
            limit: start.limit,
            wall_ms: at_ms,
            observed: Observed::of(&attempt),
            exit_code: ended.exit_code(),
            signal: ended.signal(),
        },
        last: end.last,
        by_user,
        all_gone: leftovers.all_gone,
    }
}

fn last_kernel_counts(running: &mut Running<'_>) -> KernelCounts {
    let (watcher, control) = (&mut running.watcher, &running.control);
    catch_unwind(AssertUnwindSafe(|| {
        watcher.kernel_counts(&control.contained)
    }))
    .unwrap_or_default()
}

/// Processes that the training left behind.
struct Leftovers {
    n_found: u32,
    all_gone: bool,
}

fn end_leftovers(running: &Running<'_>, processes: &Processes) -> Leftovers {
    let contained = &running.control.contained;
    let n_found = contained.end(processes, LEFT_BEHIND_GRACE, || {
        while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
    });
    Leftovers {
        n_found,
        all_gone: n_found == 0 || contained.processes(processes).is_empty(),
    }
}

/// Records what was still on its way: output, lines of the hook, samples.
fn record_last_lines(running: &mut Running<'_>, at_ms: u64) {
    running.display.drain();
    for line in running.watcher.last_hook_lines(at_ms) {
        running.recording.write(&Line::Hook(line));
    }
    running.recording.flush_samples();
    let relayed = running.display.tails(at_ms);
    running.recording.outputs(at_ms, relayed);
}

fn measured_end(running: &mut Running<'_>, processes: &Processes, at_ms: u64) -> EndLine {
    let outcome: Outcome = running.control.outcome();
    let own_cost = processes
        .cost(std::process::id())
        .map(|(cpu, resident)| OwnCost {
            cpu_ms: u64::try_from(cpu.as_millis()).unwrap_or(u64::MAX),
            resident,
            n_samples: running.watcher.n_samples,
        });
    EndLine {
        peaks: running.watcher.peaks.clone(),
        last: running.watcher.last.clone(),
        orphans: running.control.take_orphans(),
        own_cost: own_cost.unwrap_or_default(),
        ..end_line(at_ms, outcome)
    }
}

/// From the record where there is one, so that what is said now is what `brimful explain` says later.
fn explained(running: &Running<'_>, end: &EndLine) -> (Verdict, Attempt) {
    let recording = &running.recording;
    let mut record = recording.read_back().unwrap_or_else(|| {
        let mut record = Record::default();
        record.attempts.push(Attempt {
            start: recording.attempt.clone(),
            end: Some(end.clone()),
            output: running.display.tails(end.at_ms),
            ..Attempt::default()
        });
        record
    });
    let explained = catch_unwind(AssertUnwindSafe(|| {
        explain_record(&record, recording.directory())
    }));
    (
        explained.unwrap_or_else(|_| Verdict::cannot_tell()),
        record.attempts.pop().unwrap_or_default(),
    )
}

/// Ends the keeper, removes the cgroup, and reports what could not be recorded.
fn release(mut running: Running<'_>) {
    // Before the cgroups: the keeper is in the one that brimful is in.
    if let Some(keeper) = running.control.keeper.take() {
        keeper.dismiss();
        running.recording.remove_exit_status();
    }
    running.control.contained.remove();
    if let Some(problem) = running.recording.take_problem() {
        running.display.last_notice(&Notice::Gap(&problem));
    }
}
