//! Values of curves, as small as text can be.

use std::fmt::Write;

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// Stands for a column without a value.
const NO_VALUE: u16 = u16::MAX;

/// Shares of `top` in 16 bits each, little-endian, in base64.
pub(super) fn shares(values: impl Iterator<Item = Option<u64>>, top: u64) -> String {
    let mut bytes = Vec::new();
    for value in values {
        let share = value.map_or(NO_VALUE, |value| {
            let scaled = u128::from(value.min(top)) * u128::from(NO_VALUE - 1);
            u16::try_from(scaled / u128::from(top.max(1))).unwrap_or(NO_VALUE - 1)
        });
        bytes.extend(share.to_le_bytes());
    }
    encode(&bytes)
}

pub(super) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk
            .iter()
            .fold(0_u32, |word, byte| word << 8 | u32::from(*byte))
            << (8 * (3 - chunk.len()));
        for place in 0..4 {
            if place <= chunk.len() {
                let digit = word >> (18 - 6 * place) & 63;
                text.push(char::from(DIGITS[digit as usize]));
            } else {
                let _ = write!(text, "=");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_encoded_as_the_standard_says() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn a_missing_value_is_no_share() {
        let text = shares([Some(0), Some(10), None, Some(99)].into_iter(), 10);
        assert_eq!(text, encode(&[0, 0, 0xfe, 0xff, 0xff, 0xff, 0xfe, 0xff]));
        assert_eq!(
            shares([Some(u64::MAX)].into_iter(), u64::MAX),
            encode(&[0xfe, 0xff])
        );
        assert_eq!(shares([Some(0)].into_iter(), 0), encode(&[0, 0]));
    }
}
