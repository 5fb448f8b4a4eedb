//! When to look again.

use std::time::Duration;

use crate::units::Bytes;
use crate::watch::looks::{CALM_MS, interval_ms};
use crate::watch::state::WatchState;

/// A `/dev/shm` as small as a container's default fills and empties within a second; seeing it full is the proof.
const SMALL_SHM: Bytes = Bytes::from_gib(1);
const SMALL_SHM_MS: u64 = 200;
/// While a job that was asked to end has not ended.
const ENDING_MS: u64 = 100;

/// Seldom in calm, often near the brim.
///
/// With 4 GB and more left this is once a second: at 0.3 ms a look 0.03 % of a core. The 0.5 % that a calm job may
/// cost are reached at 60 ms, with 240 MB left; below that, seeing the end come is worth up to 1.5 %.
pub fn next_interval(state: &WatchState) -> Duration {
    let calm = Duration::from_millis(CALM_MS);
    let Some(headroom) = state.fresh_headroom() else {
        return calm;
    };
    let mut ms = interval_ms(headroom, state.steepest_fall());
    let shm = state.latest().and_then(|sample| sample.shm);
    if shm.is_some_and(|shm| shm.total <= SMALL_SHM && shm.total > Bytes::ZERO) {
        ms = ms.min(SMALL_SHM_MS);
    }
    if state.pressure().is_ending() {
        ms = ms.min(ENDING_MS);
    }
    Duration::from_millis(ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_known_is_calm() {
        assert_eq!(
            next_interval(&WatchState::default()),
            Duration::from_secs(1)
        );
    }
}
