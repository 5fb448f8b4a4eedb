//! When to look again.

use std::time::Duration;

use crate::watch::state::WatchState;

/// Seldom in calm, often near the brim.
pub fn next_interval(_state: &WatchState) -> Duration {
    Duration::from_secs(1)
}
