//! The furthest checkpoint that is proven, to resume from.
//!
//! A training that dies may die while it writes. What is half-written is found by reading how each kind of file says
//! where it ends. A checkpoint of another user, one from the future, one that was written while the job was rehearsed
//! and one whose tensors are all zero are refused too, each with its reason. No file is believed: every read is bounded,
//! and nothing of a pickle is run.
//!
//! Read first: [`Selector`], which chooses for each attempt of a run, then [`choose()`].

mod checkpoint;
mod choose;
mod criteria;
mod directory;
mod file;
mod find;
mod inventory;
mod order;
mod pickled;
mod refusal;
mod region;
mod selector;
mod step;
mod tensor_source;
mod torch_zip;
mod trust;
mod version;
mod zeros;

pub(crate) use find::newest_written;

pub use find::SHARED_STATE;

pub use checkpoint::{Checkpoint, CheckpointKind, Incomplete};
pub use choose::{Checkpoints, choose};
pub use criteria::Criteria;
pub use refusal::Refusal;
pub use selector::{Excluded, Selector, SelectorOptions};

#[cfg(test)]
mod refusal_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod zero_tests;
