//! A job on several nodes: every rank of an attempt trains with the same settings from the same checkpoint.
//!
//! brimful runs on every node and starts a new `torchrun` for each attempt. Its ranks begin as brimful (`rank.rs`): they
//! meet in the key-value store that torchrun has opened for them (`store.rs`), each with the proposal of its node
//! (`order.rs`); rank 0 decides, chooses the checkpoint and stores the decision in the directory of the checkpoints
//! (`shared.rs`); then every rank becomes the training. See docs/design/2026-11-nodes.md.

mod decision;
mod ladder;
mod order;
mod rank;
mod shared;
mod store;

pub(crate) use ladder::{AttemptOnNodes, NodesLadder, NodesSetup};
pub(crate) use order::torchrun;
pub use rank::{RANK_ARGUMENT, RankError, become_rank};
pub use shared::NoSharedDirectory;
pub use store::{Store, StoreError};
