//! Causes of death, one file each.
//!
//! A rule examines the evidence and returns a verdict, or nothing. The first verdict wins, so the rules are in the order
//! of the strength of their evidence. To add one, copy the nearest file, add it to [`CATALOGUE`], and test it with its own
//! evidence. A new wording of a known cause is not a rule: it belongs in the tables of `explain/text/`.

mod cannot_tell;
mod card_full;
mod everything_killed;
mod finished;
mod host_allocation_refused;
mod killed_by_someone;
mod killed_for_memory;
mod killed_unknown;
mod limit_reached;
mod not_started;
mod others_on_card;
mod rule;
mod shared_memory_full;
mod something_else;
mod stopped_before_the_kernel;
mod stopped_by_user;
mod telling;
mod worker_killed_for_memory;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use rule::Rule;

use crate::explain::signs::Signs;
use crate::explain::{Evidence, Verdict};

/// Every rule, heaviest evidence first: how it ended by our own doing, what the kernel counted, how the process ended,
/// what was sampled, what the allocator held, what was printed.
pub const CATALOGUE: &[Rule] = &[
    finished::RULE,
    not_started::RULE,
    stopped_by_user::RULE,
    stopped_before_the_kernel::RULE,
    worker_killed_for_memory::RULE,
    killed_for_memory::RULE,
    everything_killed::RULE,
    killed_by_someone::RULE,
    shared_memory_full::RULE,
    card_full::RULE,
    host_allocation_refused::RULE,
    limit_reached::RULE,
    killed_unknown::RULE,
    something_else::RULE,
    cannot_tell::RULE,
];

/// The first verdict of the catalogue.
pub(super) fn first_verdict(evidence: &Evidence, signs: &Signs<'_>) -> Option<Verdict> {
    CATALOGUE
        .iter()
        .find_map(|rule| (rule.check)(evidence, signs))
}
