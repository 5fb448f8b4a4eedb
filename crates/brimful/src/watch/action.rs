//! What the supervisor can do about memory that runs out.

use serde::{Deserialize, Serialize};

/// What the user wants done when memory runs out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnPressure {
    /// Say it, do nothing.
    #[default]
    Warn,
    /// Send the signal that makes the training write a checkpoint, once per rise; then let it go on.
    Checkpoint,
    /// Send that signal, wait for the grace, then end the training before the kernel does.
    Stop,
}

/// The user's wishes, and how long things may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchRules {
    pub on_pressure: OnPressure,
    /// From the checkpoint signal to the request to end.
    pub grace_ms: u64,
    /// From the request to end (SIGTERM) to the kill.
    pub stop_grace_ms: u64,
}

/// What the supervisor does next. It carries it out, or only says it in a dry run, and tells the state that it did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Action {
    KeepWatching,
    /// Send the checkpoint signal.
    AskForCheckpoint {
        reason: StopReason,
    },
    /// Ask the training to end (SIGTERM).
    AskToStop {
        reason: StopReason,
    },
    /// End every process of the job at once (SIGKILL).
    Kill {
        reason: StopReason,
    },
}

impl Action {
    pub(crate) fn reason_mut(&mut self) -> Option<&mut StopReason> {
        match self {
            Action::KeepWatching => None,
            Action::AskForCheckpoint { reason }
            | Action::AskToStop { reason }
            | Action::Kill { reason } => Some(reason),
        }
    }
}

/// Why the supervisor acts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopReason {
    /// The detector that said so.
    pub detector: String,
    pub message: String,
}
