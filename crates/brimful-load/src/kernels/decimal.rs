//! Numbers from text: exact, and fast for the short decimals of which mesh files are made.

/// A number, and how many bytes of text it took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Number<T> {
    pub(crate) value: T,
    pub(crate) len: usize,
}

/// The powers of ten that `f64` holds exactly.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// Reads the `f32` nearest to the decimal at the beginning of `text`, up to a space, the end of a line or `#`.
/// The words for infinity and for no number are read too.
#[inline]
pub(crate) fn read_f32(text: &[u8]) -> Option<Number<f32>> {
    short_f32(text).or_else(|| any_f32(text))
}

/// Reads the number of at most 19 digits at the beginning of `text`, up to a space, the end of a line or `#`.
#[inline]
pub(crate) fn read_usize(text: &[u8]) -> Option<Number<usize>> {
    let (mut value, mut len) = (0_u64, 0);
    while let Some(digit) = digit(text, len) {
        value = value.wrapping_mul(10).wrapping_add(digit);
        len += 1;
    }
    if len == 0 || len > 19 || !ends(text, len) {
        return None;
    }
    let value = usize::try_from(value).ok()?;
    Some(Number { value, len })
}

/// What `f64` computes exactly: below 2^53 as a whole number, times or over a power of ten that it holds.
///
/// The result of that one operation is the nearest `f64`, and rounding it again gives the nearest `f32`, unless it lies
/// in the middle between two of them (or among the subnormal ones): those are left to the general reader.
#[inline]
fn short_f32(text: &[u8]) -> Option<Number<f32>> {
    let negative = text.first() == Some(&b'-');
    let mut len = usize::from(negative);
    let mut digits = 0_u64;
    let whole = len;
    while let Some(digit) = digit(text, len) {
        digits = digits.wrapping_mul(10).wrapping_add(digit);
        len += 1;
    }
    let mut n_digits = len - whole;
    let mut exponent = 0_i32;
    if text.get(len) == Some(&b'.') {
        len += 1;
        let fraction = len;
        while let Some(digit) = digit(text, len) {
            digits = digits.wrapping_mul(10).wrapping_add(digit);
            len += 1;
        }
        n_digits += len - fraction;
        exponent = -i32::try_from(len - fraction).ok()?;
    }
    // Nineteen digits cannot have wrapped around.
    if n_digits == 0 || n_digits > 19 || digits >= 1 << 53 {
        return None;
    }
    if let Some(b'e' | b'E') = text.get(len) {
        len += 1;
        let down = text.get(len) == Some(&b'-');
        len += usize::from(down || text.get(len) == Some(&b'+'));
        let first = len;
        let mut power = 0_i32;
        while let Some(digit) = digit(text, len) {
            if len - first == 4 {
                return None;
            }
            power = 10 * power + i32::try_from(digit).ok()?;
            len += 1;
        }
        if len == first {
            return None;
        }
        exponent += if down { -power } else { power };
    }
    if !ends(text, len) {
        return None;
    }
    let power = *POWERS.get(usize::try_from(exponent.unsigned_abs()).ok()?)?;
    let value = if exponent < 0 {
        digits as f64 / power
    } else {
        digits as f64 * power
    };
    // The 29 bits that `f32` has not: a one and zeros are the middle.
    let is_middle = value.to_bits() & 0x1fff_ffff == 0x1000_0000;
    if is_middle || (value < f64::from(f32::MIN_POSITIVE) && digits != 0) {
        return None;
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "meant to round; too large is infinite"
    )]
    let value = value as f32;
    let value = if negative { -value } else { value };
    Some(Number { value, len })
}

#[cold]
fn any_f32(text: &[u8]) -> Option<Number<f32>> {
    let len = (0..text.len())
        .find(|&at| ends(text, at))
        .unwrap_or(text.len());
    let value = std::str::from_utf8(&text[..len]).ok()?.parse().ok()?;
    Some(Number { value, len })
}

#[inline]
fn digit(text: &[u8], at: usize) -> Option<u64> {
    let digit = text.get(at)?.wrapping_sub(b'0');
    (digit < 10).then_some(u64::from(digit))
}

/// Whether a word ends before `at`.
#[inline]
fn ends(text: &[u8], at: usize) -> bool {
    matches!(
        text.get(at),
        None | Some(b' ' | b'\t' | b'\n' | b'\r' | b'#')
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check_as_std(text: &str) {
        let expected: Option<f32> = text.parse().ok();
        let found = read_f32(text.as_bytes());
        assert_eq!(
            found.map(|number| number.value.to_bits()),
            expected.map(f32::to_bits),
            "{text}"
        );
        if let Some(number) = found {
            assert_eq!(number.len, text.len());
            let followed = format!("{text}\n1.5");
            assert_eq!(
                read_f32(followed.as_bytes()).map(|n| n.len),
                Some(text.len())
            );
        }
    }

    #[test]
    fn numbers_are_those_of_the_standard_library() {
        for text in [
            "0",
            "-0",
            "0.0",
            "1",
            "-1.5",
            "+1.5",
            ".5",
            "5.",
            "1e5",
            "1E-5",
            "1e+05",
            "2.77556e-17",
            "16777217",
            "16777219",
            "16777217.0000000001",
            "9007199791611904",
            "9007199791611905",
            "1e-45",
            "1.17549435e-38",
            "1.1754943e-38",
            "3.4028236e38",
            "3.4028235677973366e38",
            "1e39",
            "123456789012345678901234567890",
            "0.000000000000000000000000000000000000001",
            "00000000000000000000000001.5",
            "1e99999",
            "inf",
            "-inf",
            "",
            ".",
            "-",
            "e5",
            "1e",
            "1e-",
            "1.5x",
            "0x10",
            "1..5",
            "--1",
            "1_000",
        ] {
            check_as_std(text);
        }
        assert!(read_f32(b"nan").unwrap().value.is_nan());
    }

    #[test]
    fn whole_numbers_are_read_up_to_the_end_of_the_word() {
        let value = |text: &str| read_usize(text.as_bytes()).map(|number| number.value);
        assert_eq!(value("17 3"), Some(17));
        assert_eq!(value("0017\n"), Some(17));
        assert_eq!(
            value("9999999999999999999"),
            Some(9_999_999_999_999_999_999)
        );
        for text in ["", "-1", "+1", "1.0", "1a", "10000000000000000000"] {
            assert_eq!(value(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_plain_decimal_is_that_of_the_standard_library(
            sign in "-?", whole in "[0-9]{0,12}", fraction in "(\\.[0-9]{0,12})?", power in "(e-?[0-9]{1,2})?",
        ) {
            check_as_std(&format!("{sign}{whole}{fraction}{power}"));
        }

        #[test]
        fn the_middle_between_two_numbers_is_rounded_as_it_should_be(bits in 0x0080_0000_u32..0x7f00_0000, nudge in -1_i64..=1) {
            let (low, high) = (f32::from_bits(bits), f32::from_bits(bits + 1));
            let middle = f64::midpoint(f64::from(low), f64::from(high));
            let near = f64::from_bits(middle.to_bits().wrapping_add_signed(nudge));
            check_as_std(&format!("{near}"));
            check_as_std(&format!("{near:e}"));
        }

        #[test]
        fn every_number_comes_back(number: f32) {
            prop_assume!(!number.is_nan());
            check_as_std(&format!("{number}"));
            check_as_std(&format!("{number:e}"));
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = (read_f32(&bytes), read_usize(&bytes));
        }
    }
}
