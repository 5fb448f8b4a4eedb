//! The Python that would run the job, and its PyTorch, told from files alone.

use std::fmt;

use crate::fact::Fact;

/// A Python installation; nothing of it was started or imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Python {
    pub executable: String,
    pub version: Fact<PythonVersion>,
    /// How it was chosen, in a few words.
    pub found_by: String,
    pub torch: Fact<Torch>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PythonVersion {
    pub major: u32,
    pub minor: u32,
}

/// An installed PyTorch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torch {
    pub version: TorchVersion,
    /// The version as written, such as `2.9.1+cu128`.
    pub version_text: String,
    pub accelerator: Fact<Accelerator>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TorchVersion {
    pub major: u32,
    pub minor: u32,
    pub patch: u32,
}

/// What the build can compute on besides the processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Accelerator {
    None,
    /// The CUDA toolkit version it was built with.
    Cuda {
        major: u32,
        minor: u32,
    },
    Rocm(String),
}

impl TorchVersion {
    pub const fn new(major: u32, minor: u32, patch: u32) -> TorchVersion {
        TorchVersion {
            major,
            minor,
            patch,
        }
    }

    /// Reads `2.9.1`, `2.9.1+cu128`, `2.10.0a0+git1234`, `2.9`.
    pub fn parse(text: &str) -> Option<TorchVersion> {
        let release = text.split('+').next()?;
        let mut parts = release.split('.').map(leading_number);
        Some(TorchVersion {
            major: parts.next()??,
            minor: parts.next()??,
            patch: parts.next().flatten().unwrap_or(0),
        })
    }
}

fn leading_number(text: &str) -> Option<u32> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .map_or(text, |end| &text[..end]);
    digits.parse().ok()
}

impl PythonVersion {
    pub const fn new(major: u32, minor: u32) -> PythonVersion {
        PythonVersion { major, minor }
    }

    /// Reads `3.11`, `3.11.7`, `3.14.0rc1`.
    pub fn parse(text: &str) -> Option<PythonVersion> {
        let mut parts = text.trim().split('.').map(leading_number);
        Some(PythonVersion {
            major: parts.next()??,
            minor: parts.next()??,
        })
    }
}

impl fmt::Display for TorchVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl fmt::Display for PythonVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl fmt::Display for Accelerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Accelerator::None => f.write_str("CPU only"),
            Accelerator::Cuda { major, minor } => write!(f, "CUDA {major}.{minor}"),
            Accelerator::Rocm(version) => write!(f, "ROCm {version}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_in_every_published_form() {
        let check = |text, expected| assert_eq!(TorchVersion::parse(text), expected, "{text}");
        check("2.9.1", Some(TorchVersion::new(2, 9, 1)));
        check("2.9.1+cu128", Some(TorchVersion::new(2, 9, 1)));
        check("2.10.0a0+git1234", Some(TorchVersion::new(2, 10, 0)));
        check("2.9", Some(TorchVersion::new(2, 9, 0)));
        check("", None);
        check("two", None);
        check("99999999999999.1", None);
    }
}
