//! What rank 0 tells all ranks.

use brimful::nodes::AgreedRun;
use serde::{Deserialize, Serialize};

/// What rank 0 tells all ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Decision {
    /// A number that each rank has chosen, in the order of the ranks: rank 0 has seen the proposal that came with it.
    pub(crate) seen: Vec<u64>,
    /// Starts of brimful that take part, one on each node.
    pub(crate) nodes: Vec<String>,
    pub(crate) agreed: Agreed,
}

/// What all ranks do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Agreed {
    /// Train.
    Attempt {
        run: Box<AgreedRun>,
        checkpoint: Option<String>,
        checkpoint_step: Option<u64>,
    },
    /// The run ends here: why, in one sentence.
    Stop { why: String },
    /// The attempt does not take place, and is tried again.
    Abort { why: String },
}
