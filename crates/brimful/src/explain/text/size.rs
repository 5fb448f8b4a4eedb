//! Sizes and numbers in a text without white space.

use crate::units::Bytes;

/// The longest number that is looked at.
const MAX_DIGITS: usize = 26;

/// The size a text begins with: `1.99gib`, `5077901088bytes`, `26,184,840kb`. `GB` and `MB` are taken as binary, as
/// PyTorch and the kernel mean them.
pub(super) fn size_at_start(text: &str) -> Option<Bytes> {
    let digits = number_length(text);
    let value = number(&text[..digits])?;
    let unit = &text[digits..];
    scaled(value, unit_factor(unit)?)
}

/// The size a text ends with.
pub(super) fn size_at_end(text: &str) -> Option<Bytes> {
    let letters = text
        .bytes()
        .rev()
        .take(5)
        .take_while(u8::is_ascii_alphabetic)
        .count();
    let (rest, unit) = text.split_at(text.len() - letters);
    let digits = rest
        .bytes()
        .rev()
        .take(MAX_DIGITS)
        .take_while(|b| b.is_ascii_digit() || *b == b'.' || *b == b',')
        .count();
    let value = number(rest[rest.len() - digits..].trim_start_matches(['.', ',']))?;
    scaled(value, unit_factor(unit)?)
}

/// The integer a text begins with, sign and all.
pub(super) fn integer_at_start(text: &str) -> Option<i64> {
    let length = text
        .bytes()
        .take(12)
        .enumerate()
        .take_while(|(idx, b)| b.is_ascii_digit() || (*idx == 0 && *b == b'-'))
        .count();
    text[..length].parse().ok()
}

fn number_length(text: &str) -> usize {
    text.bytes()
        .take(MAX_DIGITS)
        .take_while(|b| b.is_ascii_digit() || *b == b'.' || *b == b',')
        .count()
}

/// A comma before exactly three digits separates thousands, any other one is a decimal point of some languages.
fn number(text: &str) -> Option<f64> {
    let text = text.trim_end_matches(['.', ',']);
    let is_decimal = text.matches(',').count() == 1
        && !text.contains('.')
        && text.rsplit(',').next().is_some_and(|end| end.len() < 3);
    let plain = if is_decimal {
        text.replace(',', ".")
    } else {
        text.replace(',', "")
    };
    plain.parse().ok()
}

fn unit_factor(unit: &str) -> Option<u64> {
    const UNITS: [(&str, u64); 15] = [
        ("tib", Bytes::TIB),
        ("gib", Bytes::GIB),
        ("mib", Bytes::MIB),
        ("kib", Bytes::KIB),
        ("tb", Bytes::TIB),
        ("gb", Bytes::GIB),
        ("mb", Bytes::MIB),
        ("kb", Bytes::KIB),
        ("bytes", 1),
        ("byte", 1),
        ("gi", Bytes::GIB),
        ("mi", Bytes::MIB),
        ("g", Bytes::GIB),
        ("m", Bytes::MIB),
        ("b", 1),
    ];
    UNITS
        .iter()
        .find(|(name, _)| unit.starts_with(name))
        .map(|(_, factor)| *factor)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked: finite, not negative, below u64::MAX"
)]
fn scaled(value: f64, factor: u64) -> Option<Bytes> {
    let bytes = value * factor as f64;
    (bytes.is_finite() && (0.0..1.8e19).contains(&bytes)).then_some(Bytes(bytes.round() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_from_both_sides() {
        assert_eq!(size_at_start("1.50gib.gpu0"), Some(Bytes(3 << 29)));
        assert_eq!(size_at_start("512bytes"), Some(Bytes(512)));
        assert_eq!(size_at_start("1,024kb,"), Some(Bytes::from_mib(1)));
        assert_eq!(size_at_start("1,5gib"), Some(Bytes(3 << 29)));
        assert_eq!(size_at_end("ofwhich0bytes"), Some(Bytes(0)));
        assert_eq!(size_at_end("gpu0;2.00gib"), Some(Bytes::from_gib(2)));
        assert_eq!(size_at_end("."), None);
        assert_eq!(size_at_start("gib"), None);
        assert_eq!(size_at_start("99999999999999999999999tib"), None);
    }

    #[test]
    fn integers_keep_their_sign() {
        assert_eq!(integer_at_start("-9)local"), Some(-9));
        assert_eq!(integer_at_start("137"), Some(137));
        assert_eq!(integer_at_start("--9"), None);
        assert_eq!(integer_at_start(""), None);
    }
}
