//! A run from its first line on record to its last attempt.

use std::panic::{AssertUnwindSafe, catch_unwind};

use brimful::record::{GapLine, Line, Outcome, RunLine, SCHEMA_VERSION};

use crate::ending::Finished;
use crate::ladder::{AttemptEnd, Ladder, NextAttempt};
use crate::launch::NotStarted;
use crate::recorder::Recorder;
use crate::run::{NotRun, Notice, Run, RunEnd, recorded, unix_ms};
use crate::signals;
use crate::start::start;
use crate::state::Unfinished;
use crate::steps::{StartStep, step};

/// Whatever a ladder says. The plan's own bound is lower.
const MAX_ATTEMPTS: u32 = 100;

impl Run<'_> {
    /// The first line of the record, and what became of the last run here.
    pub(crate) fn open(&mut self, place: &str, gaps: &mut Vec<String>) {
        let written = step(StartStep::RunLine, || {
            self.recorder.write(&Line::Run(RunLine {
                schema_version: SCHEMA_VERSION,
                id: self.id.clone(),
                brimful_version: self.settings.brimful_version.clone(),
                started_at_unix_ms: unix_ms(),
                command: recorded(&self.settings.command),
                folder: place.to_owned(),
                host_name: rustix::system::uname()
                    .nodename()
                    .to_string_lossy()
                    .into_owned(),
                supervisor_pid: std::process::id(),
            }));
            Ok(())
        });
        if let Err(error) = written {
            // Nobody can read a record without its first line.
            gaps.push(format!("no run record: {error}"));
            self.recorder = Recorder::none();
            if let Some(run) = self.stored.take() {
                let _ = std::fs::remove_dir_all(run.folder);
            }
        }
        let told = step(StartStep::EarlierRun, || {
            self.tell_of_earlier_run(place);
            Ok(())
        });
        if let Err(error) = told {
            gaps.push(format!(
                "whether the last run here was cut off is not known: {error}"
            ));
        }
    }

    fn tell_of_earlier_run(&mut self, place: &str) {
        let Some(state) = &self.settings.state else {
            return;
        };
        match state.unfinished_before(place, &self.id) {
            Some(Unfinished::StillRunning { run, pid }) => {
                self.say(&Notice::StillRunning { run: &run, pid });
            }
            Some(Unfinished::CutOff { run, record }) => {
                if let Some(verdict) = record.last_attempt().and_then(|last| last.verdict.clone()) {
                    self.say(&Notice::CutOff {
                        run: &run,
                        record: &record,
                        verdict: &verdict,
                    });
                }
            }
            None => {}
        }
    }

    pub(crate) fn attempts(
        mut self,
        mut ladder: Option<&mut dyn Ladder>,
        mut next: NextAttempt,
        mut gaps: Vec<String>,
    ) -> Result<RunEnd, NotRun> {
        let mut ends: Vec<AttemptEnd> = Vec::new();
        let mut last_sample = None;
        for number in 1..=MAX_ATTEMPTS {
            let finished = match start(&mut self, &next, number, std::mem::take(&mut gaps)) {
                Ok(started) => started.watch_and_finish(),
                Err(NotStarted::Command(source)) if number == 1 => {
                    return Err(NotRun::Command(source));
                }
                Err(NotStarted::Brimful(source)) if number == 1 => {
                    return Err(NotRun::Brimful(source));
                }
                Err(NotStarted::Command(source) | NotStarted::Brimful(source)) => {
                    self.gap(&format!("attempt {number} could not be started: {source}"));
                    break;
                }
            };
            let Finished {
                end,
                last,
                by_user,
                all_gone,
            } = finished;
            last_sample = last;
            let ended = end.clone();
            ends.push(end);
            let Some(ladder) = &mut ladder else { break };
            if by_user || self.interrupted() {
                break;
            }
            if !all_gone {
                self.gap("no further attempt: processes of the last one do not end");
                break;
            }
            let asked = catch_unwind(AssertUnwindSafe(|| {
                (ladder.next(&ended), ladder.most_attempts())
            }));
            let of = match asked {
                Ok((Some(following), of)) => {
                    next = following;
                    of
                }
                Ok((None, _)) => {
                    if ended.outcome != Outcome::Finished && ended.verdict.cause.is_memory() {
                        self.say(&Notice::LadderAtItsEnd { ended: &ended });
                    }
                    break;
                }
                Err(_) => {
                    self.gap("no further attempt: a bug in brimful, where the next one is chosen");
                    break;
                }
            };
            // To choose the next one may have taken a while.
            if self.interrupted() {
                break;
            }
            self.say(&Notice::ComingBack {
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
            run: self.stored,
            exit_code: last.exit_code,
            attempts: ends,
        })
    }

    /// Whether somebody has asked brimful to end while nothing ran.
    pub(crate) fn interrupted(&mut self) -> bool {
        let signals: Vec<i32> = self
            .events
            .try_iter()
            .map(|arrived| arrived.signal)
            .filter(|signal| signals::ends(*signal))
            .collect();
        if let Some(signal) = signals.first() {
            self.gap(&format!(
                "no further attempt: signal {signal} came between two of them"
            ));
        }
        !signals.is_empty()
    }

    /// Whether this gap is new.
    pub(crate) fn is_news(&mut self, gap: &str) -> bool {
        let is_news = !self.told.iter().any(|told| told == gap);
        if is_news {
            self.told.push(gap.to_owned());
        }
        is_news
    }

    /// A gap while nothing runs.
    fn gap(&mut self, message: &str) {
        self.recorder.write(&Line::Gap(GapLine {
            at_ms: 0,
            message: message.to_owned(),
        }));
        self.say(&Notice::Gap(message));
    }

    /// Says something while nothing runs.
    fn say(&mut self, notice: &Notice<'_>) {
        self.audience.print_notice(notice);
    }
}
