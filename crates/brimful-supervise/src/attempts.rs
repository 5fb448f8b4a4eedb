//! A run from its first line on record to its last attempt.

use std::panic::{AssertUnwindSafe, catch_unwind};

use brimful::explain::Verdict;
use brimful::record::{Line, Outcome, Peaks, RunLine, SCHEMA_VERSION};
use brimful::watch::Sample;

use crate::clock::unix_ms;
use crate::command::recorded;
use crate::context::RunContext;
use crate::ending::{FinishedAttempt, watch_and_finish};
use crate::host_name::host_name;
use crate::ladder::{AttemptEnd, Ladder, NextAttempt};
use crate::launch::NotStarted;
use crate::notice::Notice;
use crate::recorder::Recorder;
use crate::start::start;
use crate::start_step::StartStep;
use crate::state::{StoredRun, Unfinished};
use crate::steps::step;

/// Whatever a ladder says. The plan's own bound is lower.
const MAX_ATTEMPTS: u32 = 100;

/// How a run ended: as its last attempt.
#[derive(Clone, Debug)]
pub struct RunEnd {
    pub outcome: Outcome,
    pub peaks: Peaks,
    pub last: Option<Sample>,
    pub verdict: Verdict,
    pub run: Option<StoredRun>,
    /// The training's own, or 128 and the signal.
    pub exit_code: u8,
    /// The signal that ended the training.
    pub signal: Option<i32>,
    /// All of them, oldest first.
    pub attempts: Vec<AttemptEnd>,
}

/// The first line of the record, and what became of the last run here.
pub(crate) fn open(run: &mut RunContext<'_>, place: &str, gaps: &mut Vec<String>) {
    let written = step(StartStep::RunLine, || {
        run.recorder.write(&Line::Run(RunLine {
            schema_version: SCHEMA_VERSION,
            id: run.id.clone(),
            brimful_version: run.settings.brimful_version.clone(),
            started_at_unix_ms: unix_ms(),
            command: recorded(&run.settings.command),
            folder: place.to_owned(),
            host_name: host_name(),
            supervisor_pid: std::process::id(),
            job: run.settings.job.clone(),
            records: run.settings.records.clone(),
        }));
        Ok(())
    });
    if let Err(error) = written {
        // Nobody can read a record without its first line.
        gaps.push(format!("no run record: {error}"));
        run.recorder = Recorder::none();
        if let Some(stored) = run.stored.take() {
            let _ = std::fs::remove_dir_all(stored.directory);
        }
    }
    let told = step(StartStep::EarlierRun, || {
        report_earlier_run(run, place);
        Ok(())
    });
    if let Err(error) = told {
        gaps.push(format!(
            "failed to check whether the previous run was interrupted: {error}"
        ));
    }
}

fn report_earlier_run(run: &mut RunContext<'_>, place: &str) {
    let Some(state) = &run.settings.state else {
        return;
    };
    match state.unfinished_before(place, &run.id) {
        Some(Unfinished::StillRunning { run: earlier, pid }) => {
            run.notice(&Notice::StillRunning { run: &earlier, pid });
        }
        Some(Unfinished::CutOff {
            run: earlier,
            record,
        }) => {
            if let Some(verdict) = record.last_attempt().and_then(|last| last.verdict.clone()) {
                run.notice(&Notice::CutOff {
                    run: &earlier,
                    record: &record,
                    verdict: &verdict,
                });
            }
        }
        None => {}
    }
}

fn stopped(ladder: &mut dyn Ladder) {
    // The run has ended, whatever the ladder makes of it.
    let _ = catch_unwind(AssertUnwindSafe(|| ladder.stopped()));
}

/// Makes one attempt after the other until the ladder has no next one.
pub(crate) fn run_ladder(
    mut run: RunContext<'_>,
    mut ladder: Option<&mut dyn Ladder>,
    mut next: NextAttempt,
    mut gaps: Vec<String>,
) -> Result<RunEnd, NotStarted> {
    let mut ends: Vec<AttemptEnd> = Vec::new();
    let mut last_sample = None;
    for number in 1..=MAX_ATTEMPTS {
        let finished = match start(&mut run, &next, number, std::mem::take(&mut gaps)) {
            Ok(running) => watch_and_finish(running),
            Err(why) if number == 1 => return Err(why),
            Err(NotStarted::Command(source) | NotStarted::Brimful(source)) => {
                run.gap(&format!("attempt {number} could not be started: {source}"));
                if let Some(ladder) = &mut ladder {
                    stopped(*ladder);
                }
                break;
            }
        };
        let FinishedAttempt {
            end,
            last,
            by_user,
            all_gone,
        } = finished;
        last_sample = last;
        let ended = end.clone();
        ends.push(end);
        let Some(ladder) = &mut ladder else { break };
        if by_user || run.interrupted() {
            stopped(*ladder);
            break;
        }
        if !all_gone {
            run.gap("no further attempt: processes of the last one do not end");
            stopped(*ladder);
            break;
        }
        let asked = catch_unwind(AssertUnwindSafe(|| {
            let following = ladder.next(&ended, &mut |length| run.pause(length));
            (following, ladder.max_attempts())
        }));
        let of = match asked {
            Ok((Some(following), of)) => {
                next = following;
                of
            }
            Ok((None, _)) => {
                if run.interrupted() {
                    stopped(*ladder);
                }
                if ended.outcome != Outcome::Finished && ended.verdict.cause.is_memory() {
                    run.notice(&Notice::LadderAtItsEnd { ended: &ended });
                }
                break;
            }
            Err(_) => {
                run.gap("no further attempt: a bug in brimful, where the next one is chosen");
                stopped(*ladder);
                break;
            }
        };
        // To choose the next one may have taken a while.
        if run.interrupted() {
            stopped(*ladder);
            break;
        }
        run.notice(&Notice::ComingBack {
            ended: &ended,
            next: &next,
            number: number + 1,
            of,
        });
    }
    let last = ends.last().expect("the first attempt was started").clone();
    Ok(RunEnd {
        outcome: last.outcome,
        peaks: last.peaks,
        last: last_sample,
        verdict: last.verdict,
        run: run.stored,
        exit_code: last.exit_code,
        signal: last.signal,
        attempts: ends,
    })
}
