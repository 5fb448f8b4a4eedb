//! Sizes and durations for one line of a terminal.

use crate::units::{Bytes, rounded};

/// Three digits and a unit: `9.8 GiB`, `12.7 GiB`, `312 MiB`.
pub(crate) fn size(bytes: u64) -> String {
    const STEPS: [(u64, &str); 4] = [
        (Bytes::TIB, "TiB"),
        (Bytes::GIB, "GiB"),
        (Bytes::MIB, "MiB"),
        (Bytes::KIB, "KiB"),
    ];
    for (unit, name) in STEPS {
        if bytes >= unit {
            let value = bytes as f64 / unit as f64;
            let text = if value < 99.95 {
                format!("{value:.1}")
            } else {
                format!("{value:.0}")
            };
            return format!("{} {name}", text.strip_suffix(".0").unwrap_or(&text));
        }
    }
    format!("{bytes} B")
}

/// The same for a computed value; negative values become zero.
pub(crate) fn size_of(bytes: f64) -> String {
    size(rounded(bytes))
}

/// A span of time in the unit people would use, rounded as they would.
pub(crate) fn span(ms: u64) -> String {
    let seconds = ms as f64 / 1e3;
    let (value, unit) = match seconds {
        s if s < 9.5 => return format!("{s:.1} s"),
        s if s < 90.0 => return format!("{s:.0} s"),
        s if s < 90.0 * 60.0 => (s / 60.0, "minutes"),
        s if s < 36.0 * 3600.0 => (s / 3600.0, "hours"),
        s => (s / 86_400.0, "days"),
    };
    format!("{value:.0} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_size(bytes: u64, expected: &str) {
        assert_eq!(size(bytes), expected);
    }

    #[test]
    fn sizes_have_three_figures() {
        check_size(0, "0 B");
        check_size(1000, "1000 B");
        check_size(12 << 20, "12 MiB");
        check_size(13_604_309_238, "12.7 GiB");
        check_size(312 << 20, "312 MiB");
        check_size(104_857_600 - 1, "100 MiB");
        check_size(u64::MAX, "16777216 TiB");
        assert_eq!(size_of(-5.0), "0 B");
        assert_eq!(size_of(f64::INFINITY), "16777216 TiB");
    }

    fn check_span(ms: u64, expected: &str) {
        assert_eq!(span(ms), expected);
    }

    #[test]
    fn spans_have_the_unit_people_use() {
        check_span(800, "0.8 s");
        check_span(30_000, "30 s");
        check_span(240_000, "4 minutes");
        check_span(3 * 3_600_000, "3 hours");
        check_span(3 * 86_400_000, "3 days");
        assert!(span(u64::MAX).ends_with("days"));
    }
}
