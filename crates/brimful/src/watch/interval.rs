//! When to look again.

use std::time::Duration;

use crate::units::Bytes;
use crate::watch::state::WatchState;

/// The fastest burst that must not come as a surprise is 1 GB/s; four looks have to fit into it.
const BYTES_PER_SECOND: f64 = 4e9;
/// Looks that fit into the time that is left at the present rate. The first look into a burst that began shortly
/// before shows a fraction of its rate; the next must come soon.
const LOOKS_LEFT: f64 = 16.0;
const FASTEST_MS: u64 = 20;
const CALM_MS: u64 = 1_000;
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

/// The time to the next look with so much left, falling at so many bytes per second.
pub(crate) fn interval_ms(headroom: u64, rate: f64) -> u64 {
    let headroom = headroom as f64;
    let mut seconds = headroom / BYTES_PER_SECOND;
    if rate > 0.0 {
        seconds = seconds.min(headroom / rate / LOOKS_LEFT);
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "neither negative nor NaN, and clamped right after"
    )]
    let ms = (seconds * 1e3) as u64;
    ms.clamp(FASTEST_MS, CALM_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(headroom_mb: u64, mb_per_second: f64, expected_ms: u64) {
        assert_eq!(
            interval_ms(headroom_mb * 1_000_000, mb_per_second * 1e6),
            expected_ms
        );
    }

    #[test]
    fn calm_is_once_a_second() {
        check(64_000, 0.0, 1000);
        check(4_000, 0.0, 1000);
        check(4_000, 200.0, 1000);
    }

    #[test]
    fn near_the_brim_looks_are_frequent() {
        check(2_000, 0.0, 500);
        check(200, 0.0, 50);
        check(100, 0.0, 25);
        check(0, 0.0, 20);
    }

    #[test]
    fn a_steep_rise_is_followed_closely() {
        check(8_000, 4_000.0, 125);
        check(1_000, 1_000.0, 62);
        check(0, 1_000.0, 20);
    }

    #[test]
    fn nothing_known_is_calm() {
        assert_eq!(
            next_interval(&WatchState::default()),
            Duration::from_secs(1)
        );
    }
}
