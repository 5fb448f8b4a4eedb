//! What a run reports while it runs, and who turns it into text.

use brimful::explain::Verdict;
use brimful::record::{ActionLine, Record};
use brimful::watch::{Alarm, Sample, WatchState};

use crate::ladder::{AttemptEnd, NextAttempt};
use crate::state::StoredRun;

/// Something worth a line.
#[derive(Clone, Debug)]
pub enum Notice<'a> {
    /// The last run in this place was cut off.
    CutOff {
        run: &'a StoredRun,
        record: &'a Record,
        verdict: &'a Verdict,
    },
    /// The last run here lost brimful, and its training still runs, as this process.
    StillRunning {
        run: &'a StoredRun,
        pid: u32,
    },
    /// Something could not be done; the training continues.
    Gap(&'a str),
    /// Nothing can be supervised, for this reason: the command takes the place of brimful.
    Unsupervised(&'a str),
    Alarm(&'a Alarm),
    Action(&'a ActionLine),
    /// An attempt has died and the next one begins.
    ComingBack {
        ended: &'a AttemptEnd,
        next: &'a NextAttempt,
        /// The next one's number, and of how many where that is known.
        number: u32,
        of: Option<u32>,
    },
    /// The last attempt died of memory, and there is nothing further to try.
    LadderAtItsEnd {
        ended: &'a AttemptEnd,
    },
}

/// Who makes sentences of it. The supervisor prints nothing by itself.
pub trait Audience {
    /// A line for a notice, without its end; `None` to say nothing.
    fn line(&mut self, notice: &Notice<'_>) -> Option<String>;
    /// The text of the status line.
    fn status(&mut self, sample: &Sample, state: &WatchState) -> String;
    /// Prints a line where the supervisor does not stand between the training and standard error.
    fn print(&mut self, line: &str);

    /// Prints a notice while nothing runs.
    fn print_notice(&mut self, notice: &Notice<'_>) {
        if let Some(line) = self.line(notice) {
            self.print(&line);
        }
    }
}
