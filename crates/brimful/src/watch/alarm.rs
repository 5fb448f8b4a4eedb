//! What a detector says.

use serde::{Deserialize, Serialize};

/// A sign of trouble, said once until it is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alarm {
    /// Milliseconds since the attempt began.
    pub at_ms: u64,
    /// The detector's id, such as `below_reserve`.
    pub detector: String,
    pub urgency: Urgency,
    /// One sentence with its figures, fit for one line of a terminal.
    pub message: String,
}

/// Detectors that say that memory will run out: what they say comes true or does not.
const FORETELLING: [&str; 4] = [
    "time_to_brim",
    "below_reserve",
    "steady_leak",
    "shm_nearly_full",
];

impl Alarm {
    /// Whether it warns that memory runs out, so that a run which ends otherwise proves it wrong.
    pub fn foretells_the_end(&self) -> bool {
        self.urgency >= Urgency::Warning && FORETELLING.contains(&self.detector.as_str())
    }
}

/// What an alarm is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Urgency {
    /// Good to know.
    Note,
    /// Will end badly if it goes on.
    Warning,
    /// The end is near: acting now is right.
    Critical,
}

/// What a detector reports while its trouble lasts.
#[derive(Debug)]
pub(crate) struct DetectorOutput {
    pub urgency: Urgency,
    /// One sentence with its figures, at most about 110 characters.
    pub message: String,
}
