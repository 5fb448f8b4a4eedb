//! What happened in a run: alarms, actions, attempts.

use crate::printable::is_printable;
use crate::record::{ActionLine, Outcome};
use crate::watch::Urgency;

/// Characters of one text that are kept. The longest message of ours is one sentence.
const MAX_CHARS: usize = 400;

/// Something that happened in a run.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveEvent {
    /// Milliseconds since the run began.
    pub at_ms: u64,
    pub kind: EventKind,
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum EventKind {
    Alarm {
        urgency: Urgency,
        message: String,
    },
    Action(ActionLine),
    /// brimful could not do something.
    Gap {
        message: String,
    },
    /// PyTorch ran out of GPU memory, by its own numbering of devices.
    CudaOom {
        device: u32,
    },
    Exception {
        message: String,
    },
    AttemptStarted {
        number: u32,
        changed: Vec<String>,
    },
    AttemptEnded {
        number: u32,
        outcome: Outcome,
    },
}

/// A text of a record as it may be shown: short, on one line, without characters that control a terminal.
pub fn plain_text(text: &str) -> String {
    let mut plain = String::new();
    for c in text.chars().take(MAX_CHARS) {
        if c.is_whitespace() {
            plain.push(' ');
        } else if is_printable(c) {
            plain.push(c);
        }
    }
    plain.truncate(plain.trim_end().len());
    plain
}

/// The same for the texts inside an outcome.
pub(crate) fn plain_outcome(outcome: &Outcome) -> Outcome {
    match outcome {
        Outcome::StoppedByUs {
            detector,
            message,
            signal,
        } => Outcome::StoppedByUs {
            detector: plain_text(detector),
            message: plain_text(message),
            signal: *signal,
        },
        Outcome::NotStarted { error } => Outcome::NotStarted {
            error: plain_text(error),
        },
        other => other.clone(),
    }
}

/// The same for the texts of an action.
pub(crate) fn plain_action(line: &ActionLine) -> ActionLine {
    let mut line = line.clone();
    line.done = plain_text(&line.done);
    if let Some(reason) = line.action.reason_mut() {
        reason.detector = plain_text(&reason.detector);
        reason.message = plain_text(&reason.message);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_lose_what_controls_a_terminal() {
        assert_eq!(plain_text("a\u{1b}[31mb\u{202e}c\nd\t "), "a[31mbc d");
        assert_eq!(plain_text(&"x".repeat(10_000)).len(), MAX_CHARS);
        assert_eq!(plain_text("数据"), "数据");
    }
}
