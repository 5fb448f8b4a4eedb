//! How often memory is sampled with so much of it left.

/// The fastest burst that must not come as a surprise is 1 GB/s; four looks have to fit into it.
const BYTES_PER_SECOND: f64 = 4e9;
/// Looks that fit into the time that is left at the present rate. The first look into a burst that began shortly
/// before shows a fraction of its rate; the next must come soon.
const LOOKS_LEFT: f64 = 16.0;
const FASTEST_MS: u64 = 20;
/// The interval while memory is not short.
pub(crate) const CALM_MS: u64 = 1_000;

/// The time to the next sample, with this many bytes left and falling at this rate.
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
}
