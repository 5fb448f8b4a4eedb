//! Training on several nodes with one `torchrun` on each: its command line, and how the nodes agree on an attempt.
//!
//! Every rank of an attempt must train with the same settings from the same checkpoint. The nodes do not decide that on
//! their own: each makes a [`Proposal`], one rank decides ([`decide`]), and all ranks of that attempt follow.
//!
//! Read first: [`Torchrun`], then [`Proposal`] and [`AgreedRun`]; [`after_attempt`] for what follows the end of one.

mod agreement;
mod report;
mod torchrun;

pub use agreement::{AgreedRun, Disagreement, Proposal, decide};
pub use report::{AfterAttempt, NodeEnd, NodeReport, after_attempt};
pub use torchrun::{RankCommand, Torchrun};
