//! What all attempts of a run share.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use brimful::record::{GapLine, Line};

use crate::caller::CallersDescriptors;
use crate::notice::{Audience, Notice};
use crate::recorder::Recorder;
use crate::settings::RunSettings;
use crate::signals::{self, Arrived};
use crate::state::StoredRun;

/// What all attempts of a run share.
pub(crate) struct RunContext<'a> {
    pub(crate) settings: &'a RunSettings,
    pub(crate) audience: &'a mut dyn Audience,
    pub(crate) recorder: Recorder,
    pub(crate) stored: Option<StoredRun>,
    pub(crate) id: String,
    pub(crate) events: Receiver<Arrived>,
    /// Descriptors of the caller, until an attempt that is the only one has them.
    pub(crate) callers_descriptors: Option<CallersDescriptors>,
    /// Somebody has asked brimful to end during a pause.
    pub(crate) is_interrupted: bool,
    /// Gaps that were reported: the next attempt has most of them too.
    pub(crate) reported_gaps: Vec<String>,
}

impl RunContext<'_> {
    /// Whether somebody has asked brimful to end while nothing ran.
    pub(crate) fn interrupted(&mut self) -> bool {
        let was_interrupted = self.is_interrupted;
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
        was_interrupted || !signals.is_empty()
    }

    /// Waits while nothing runs; false if somebody has asked brimful to end.
    pub(crate) fn pause(&mut self, length: Duration) -> bool {
        let until = Instant::now() + length;
        while !self.is_interrupted {
            let left = until.saturating_duration_since(Instant::now());
            match self.events.recv_timeout(left) {
                Ok(arrived) => self.is_interrupted |= signals::ends(arrived.signal),
                Err(RecvTimeoutError::Timeout) => return true,
                Err(RecvTimeoutError::Disconnected) => {
                    std::thread::sleep(left);
                    return true;
                }
            }
        }
        false
    }

    /// Whether this gap has not been reported yet.
    pub(crate) fn is_news(&mut self, gap: &str) -> bool {
        let is_news = !self.reported_gaps.iter().any(|reported| reported == gap);
        if is_news {
            self.reported_gaps.push(gap.to_owned());
        }
        is_news
    }

    /// Reports a gap while nothing runs.
    pub(crate) fn gap(&mut self, message: &str) {
        self.recorder.write(&Line::Gap(GapLine {
            at_ms: 0,
            message: message.to_owned(),
        }));
        self.notice(&Notice::Gap(message));
    }

    /// Prints a notice while nothing runs.
    pub(crate) fn notice(&mut self, notice: &Notice<'_>) {
        self.audience.print_notice(notice);
    }
}
