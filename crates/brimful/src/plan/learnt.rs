//! What an earlier run of a job taught, as it is kept in its history.

use serde::{Deserialize, Serialize};

use crate::explain::Cause;
use crate::job::Settings;
use crate::plan::Observed;

/// One attempt of an earlier run of the same job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LearntRun {
    /// Milliseconds since 1970, at its end.
    pub at_unix_ms: u64,
    pub settings: Settings,
    /// What it died of; nothing where it finished.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    pub observed: Observed,
}
