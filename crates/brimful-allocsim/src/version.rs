//! Which rules a PyTorch release follows.

use std::fmt;
use std::str::FromStr;

/// A PyTorch release, as far as the allocator's rules depend on it: `2.13`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TorchVersion {
    pub major: u16,
    pub minor: u16,
}

impl TorchVersion {
    /// The newest release whose rules were checked against the real allocator.
    pub const NEWEST_CHECKED: TorchVersion = TorchVersion::new(2, 15);

    pub const fn new(major: u16, minor: u16) -> Self {
        TorchVersion { major, minor }
    }

    /// Among free blocks of one size, which one is taken first. Found by running the published builds.
    pub fn tie(self) -> Tie {
        match (self.major, self.minor) {
            (..=1, _) | (2, ..=11) => Tie::LowestAddress,
            (2, 12) => Tie::OldestBlock,
            _ => Tie::OldestSegment,
        }
    }

    /// Whether a full card is cleared and tried again while a private pool is in use without a graph capture.
    pub(crate) fn retries_in_pools(self) -> bool {
        self >= FIRST_WITH_RETRIES_IN_POOLS
    }
}

const FIRST_WITH_RETRIES_IN_POOLS: TorchVersion = TorchVersion::new(2, 13);

/// Which of several free blocks of one size is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tie {
    /// The block at the lowest address. It depends on where the driver placed the segments, which nobody can
    /// foresee, so on these releases a prediction of reserved bytes carries about 1 % of noise.
    LowestAddress,
    /// The block that was made first; what is cut off the front of a block is a new one. 2.12 alone.
    OldestBlock,
    /// The block of the segment that was made first.
    OldestSegment,
}

impl fmt::Display for TorchVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// `text` is not the version of a PyTorch release.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected a PyTorch version such as 2.13.0+cu130, found `{0}`")]
pub struct VersionError(String);

impl FromStr for TorchVersion {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, VersionError> {
        let mut parts = text.trim().split('.');
        let (Some(major), Some(minor)) = (parts.next(), parts.next()) else {
            return Err(VersionError(text.to_owned()));
        };
        // `2.14a0+git`: the minor number ends where its digits end.
        let digits = minor
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(minor.len());
        match (major.parse(), minor[..digits].parse()) {
            (Ok(major), Ok(minor)) => Ok(TorchVersion { major, minor }),
            _ => Err(VersionError(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_as_torch_prints_them() {
        for (text, expected) in [
            ("2.13.0+cu130", TorchVersion::new(2, 13)),
            ("2.9.1", TorchVersion::new(2, 9)),
            ("2.14a0+gitabc", TorchVersion::new(2, 14)),
        ] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
        for text in ["", "2", "two.one", "2.", ".1"] {
            assert!(text.parse::<TorchVersion>().is_err(), "{text}");
        }
    }
}
