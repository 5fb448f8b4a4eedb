//! Short texts.

use brimful::units::Bytes;
use brimful_report::text::grouped;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// A text cut to this width, with a mark where it was cut.
pub(crate) fn cut(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let mut short = String::new();
    let mut width = 0;
    for c in text.chars() {
        let next = width + c.width().unwrap_or(0);
        if next >= columns {
            break;
        }
        short.push(c);
        width = next;
    }
    if columns > 0 {
        short.push('…');
    }
    short
}

/// The end of a text, cut to this width: of a command it says more than the path of an interpreter.
pub(crate) fn cut_front(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let mut width = 1;
    let mut kept: Vec<char> = Vec::new();
    for c in text.chars().rev() {
        let next = width + c.width().unwrap_or(0);
        if next > columns {
            break;
        }
        kept.push(c);
        width = next;
    }
    let mark = if columns > 0 { "…" } else { "" };
    mark.chars().chain(kept.into_iter().rev()).collect()
}

/// A text in lines of at most so many columns, broken at spaces where there are some.
pub(crate) fn wrap(text: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(2);
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let gap = usize::from(!line.is_empty());
        if line.width() + gap + word.width() <= columns {
            if gap == 1 {
                line.push(' ');
            }
            line.push_str(word);
            continue;
        }
        if !line.is_empty() {
            lines.push(std::mem::take(&mut line));
        }
        for c in word.chars() {
            if line.width() + c.width().unwrap_or(0) > columns {
                lines.push(std::mem::take(&mut line));
            }
            line.push(c);
        }
    }
    if !line.is_empty() || lines.is_empty() {
        lines.push(line);
    }
    lines
}

pub(crate) fn pad(text: &str, columns: usize) -> String {
    let text = cut(text, columns);
    let pad = columns.saturating_sub(text.width());
    format!("{text}{}", " ".repeat(pad))
}

/// The largest unit that keeps a size above 1, and its name.
pub(crate) fn unit_of(bytes: Bytes) -> (u64, &'static str) {
    let steps = [
        (Bytes::TIB, "TiB"),
        (Bytes::GIB, "GiB"),
        (Bytes::MIB, "MiB"),
    ];
    let fits = steps.into_iter().find(|(unit, _)| bytes.get() >= *unit);
    fits.unwrap_or((Bytes::KIB, "KiB"))
}

/// A size in a unit, with one decimal below 100.
pub(crate) fn in_unit(bytes: Bytes, unit: u64) -> String {
    let value = bytes.get() as f64 / unit as f64;
    if value < 99.95 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

/// `9 h 31 min`, `4 min 10 s`, `40 s`: two units at most.
pub(crate) fn time(ms: u64) -> String {
    let seconds = ms / 1000;
    let (days, hours) = (seconds / 86_400, seconds / 3600 % 24);
    let (minutes, rest) = (seconds / 60 % 60, seconds % 60);
    let two = |a: u64, a_unit: &str, b: u64, b_unit: &str| match b {
        0 => format!("{a} {a_unit}"),
        b => format!("{a} {a_unit} {b} {b_unit}"),
    };
    match seconds {
        0..60 => format!("{rest} s"),
        60..600 => two(minutes, "min", rest, "s"),
        600..3600 => format!("{minutes} min"),
        3600..86_400 => two(hours, "h", minutes, "min"),
        _ => two(days, "d", hours, "h"),
    }
}

/// The time of an event in 7 columns: `9 h 31`, `4 m 10`.
pub(crate) fn clock(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} m {:02}", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {:02}", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {:02}", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// `48,120`
pub(crate) fn count(number: u64) -> String {
    grouped(&number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_to_columns_not_characters() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdef", 5), "abcd…");
        assert_eq!(cut("数据数据", 5), "数据…");
        assert_eq!(cut("abc", 0), "");
        assert_eq!(cut_front("python train.py", 9), "…train.py");
        assert_eq!(pad("数", 4), "数  ");
        assert_eq!(wrap("aa bb 数据据", 5), ["aa bb", "数据", "据"]);
    }

    #[test]
    fn times_have_two_units() {
        assert_eq!(time(40_000), "40 s");
        assert_eq!(time(250_000), "4 min 10 s");
        assert_eq!(time(34_260_000), "9 h 31 min");
        assert_eq!(time(21_000_000), "5 h 50 min");
        assert_eq!(time(2 * 86_400_000), "2 d");
        assert_eq!(clock(34_080_000), "9 h 28");
        assert!(!time(u64::MAX).is_empty());
    }

    #[test]
    fn large_numbers_have_separators() {
        assert_eq!(count(7), "7");
        assert_eq!(count(48_120), "48,120");
        assert_eq!(count(1_000_000), "1,000,000");
    }
}
