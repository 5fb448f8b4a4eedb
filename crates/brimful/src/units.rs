//! Byte counts that cannot be mistaken for anything else.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A number of bytes.
///
/// Shown to people in binary units with at most two decimals: `12.67 GiB`, `64 MiB`, `512 B`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    pub const KIB: u64 = 1 << 10;
    pub const MIB: u64 = 1 << 20;
    pub const GIB: u64 = 1 << 30;
    pub const TIB: u64 = 1 << 40;

    pub const ZERO: Bytes = Bytes(0);

    pub const fn from_kib(kib: u64) -> Bytes {
        Bytes(kib.saturating_mul(Self::KIB))
    }

    pub const fn from_mib(mib: u64) -> Bytes {
        Bytes(mib.saturating_mul(Self::MIB))
    }

    pub const fn from_gib(gib: u64) -> Bytes {
        Bytes(gib.saturating_mul(Self::GIB))
    }

    /// Hundredths of a GiB: how PyTorch's messages and most public reports give a size.
    pub const fn from_centi_gib(hundredths: u64) -> Bytes {
        Bytes(hundredths.saturating_mul(Self::GIB) / 100)
    }

    pub const fn get(self) -> u64 {
        self.0
    }

    pub const fn saturating_sub(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(other.0))
    }

    pub const fn saturating_add(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_add(other.0))
    }

    /// This many bytes as a share of `whole`, from 0 to 1 and beyond; 0 where `whole` is zero.
    pub fn share_of(self, whole: Bytes) -> f64 {
        if whole.0 == 0 {
            0.0
        } else {
            self.0 as f64 / whole.0 as f64
        }
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const STEPS: [(u64, &str); 4] = [
            (Bytes::TIB, "TiB"),
            (Bytes::GIB, "GiB"),
            (Bytes::MIB, "MiB"),
            (Bytes::KIB, "KiB"),
        ];
        for (unit, name) in STEPS {
            if self.0 >= unit {
                let text = format!("{:.2}", self.0 as f64 / unit as f64);
                let text = text.trim_end_matches('0').trim_end_matches('.');
                return f.pad(&format!("{text} {name}"));
            }
        }
        f.pad(&format!("{} B", self.0))
    }
}

/// A size in text was not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{found}` is not a size; write for example `16GiB`, `512MiB` or `8GB`")]
pub struct BadSize {
    pub found: String,
}

/// A memory limit that no training could live with, most often a size without its unit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("memory limit {found} is out of range (1 MiB to 1024 TiB)")]
pub struct ImplausibleLimit {
    pub found: Bytes,
}

impl Bytes {
    /// This size as a memory limit, if it can be one.
    pub fn as_memory_limit(self) -> Result<Bytes, ImplausibleLimit> {
        if (Self::MIB..=1024 * Self::TIB).contains(&self.0) {
            Ok(self)
        } else {
            Err(ImplausibleLimit { found: self })
        }
    }
}

impl FromStr for Bytes {
    type Err = BadSize;

    /// Reads `16GiB`, `512 MiB`, `8GB` (decimal), `8G` and `8Gi` (binary, as Docker, Slurm and Kubernetes mean them) or
    /// plain bytes.
    fn from_str(text: &str) -> Result<Bytes, BadSize> {
        let bad = || BadSize {
            found: text.chars().take(40).collect(),
        };
        let trimmed = text.trim();
        let split = trimmed
            .find(|c: char| !(c.is_ascii_digit() || c == '.'))
            .unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(split);
        let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "ki" | "kib" => Bytes::KIB,
            "m" | "mi" | "mib" => Bytes::MIB,
            "g" | "gi" | "gib" => Bytes::GIB,
            "t" | "ti" | "tib" => Bytes::TIB,
            "kb" => 1_000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            _ => return Err(bad()),
        };
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(factor).map(Bytes).ok_or_else(bad);
        }
        let value: f64 = number.parse().map_err(|_| bad())?;
        let bytes = value * factor as f64;
        if !bytes.is_finite() || bytes >= u64::MAX as f64 {
            return Err(bad());
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "checked above: finite, not negative (no sign is accepted), below u64::MAX"
        )]
        Ok(Bytes(bytes.round() as u64))
    }
}

/// The nearest whole number that is not negative.
pub fn rounded(value: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "`as` takes the nearest u64 for what is out of range, which is what is wanted"
    )]
    let rounded = value.round() as u64;
    rounded
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(bytes: u64, expected: &str) {
        assert_eq!(Bytes(bytes).to_string(), expected);
    }

    #[test]
    fn sizes_read_as_people_write_them() {
        check(0, "0 B");
        check(512, "512 B");
        check(64 * Bytes::MIB, "64 MiB");
        check(13_604_309_238, "12.67 GiB");
        check(5 * Bytes::GIB + 4 * Bytes::GIB / 5, "5.8 GiB");
        check(u64::MAX, "16777216 TiB");
    }

    fn check_parse(text: &str, expected: Option<u64>) {
        assert_eq!(text.parse::<Bytes>().ok(), expected.map(Bytes), "{text:?}");
    }

    #[test]
    fn sizes_are_understood_in_the_usual_forms() {
        check_parse("16GiB", Some(16 * Bytes::GIB));
        check_parse("16 gib", Some(16 * Bytes::GIB));
        check_parse("16G", Some(16 * Bytes::GIB));
        check_parse("16Gi", Some(16 * Bytes::GIB));
        check_parse("8GB", Some(8_000_000_000));
        check_parse("1.5GiB", Some(3 * Bytes::GIB / 2));
        check_parse("4096", Some(4096));
        for text in [
            "",
            "GiB",
            "-1GiB",
            "1e3",
            "12 parsecs",
            "1.2.3G",
            "99999999999TiB",
            ".",
        ] {
            check_parse(text, None);
        }
    }

    #[test]
    fn a_size_without_its_unit_is_no_limit() {
        assert!(Bytes(16).as_memory_limit().is_err());
        assert!(Bytes(u64::MAX).as_memory_limit().is_err());
        assert!(Bytes::from_gib(16).as_memory_limit().is_ok());
    }

    proptest! {
        #[test]
        fn whole_bytes_survive_the_round_trip(bytes: u64) {
            prop_assert_eq!(bytes.to_string().parse::<Bytes>(), Ok(Bytes(bytes)));
        }

        #[test]
        fn no_text_panics(text in ".*") {
            let _ = text.parse::<Bytes>();
        }
    }
}
