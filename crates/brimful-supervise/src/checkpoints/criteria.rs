//! What a checkpoint must satisfy besides being complete.

use std::time::SystemTime;

use crate::checkpoints::inventory::Inventory;

/// What a checkpoint must satisfy besides being complete.
#[derive(Clone, Debug)]
pub struct Criteria<'a> {
    /// Accept checkpoints of other users, from the future, and of zeros.
    pub(super) force: bool,
    pub(super) now: SystemTime,
    /// The user whose checkpoints are accepted, besides root's.
    pub(super) uid: u32,
    /// Written while the job was rehearsed.
    pub(super) rehearsed: Option<&'a Inventory>,
    /// Not candidates at all.
    pub(super) ignored: Option<&'a Inventory>,
}

impl Criteria<'_> {
    /// What holds at this moment for the user of this process.
    pub fn now() -> Criteria<'static> {
        Criteria {
            force: false,
            now: SystemTime::now(),
            uid: rustix::process::geteuid().as_raw(),
            rehearsed: None,
            ignored: None,
        }
    }

    /// The same without the refusals that [`is_lifted_by_force`](super::Refusal::is_lifted_by_force) names.
    pub fn forced() -> Criteria<'static> {
        Criteria {
            force: true,
            ..Criteria::now()
        }
    }
}
