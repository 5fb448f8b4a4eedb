//! The error on a platform whose limits cannot be read yet.

use brimful::user_error::{ErrorKind, Hint, UserError};

/// The facts of this platform cannot be read yet.
///
/// Profiles and cards do not need the machine, so `brimful probe --as NAME` works everywhere.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("brimful cannot read memory limits on {platform} yet, only on Linux")]
pub struct PlatformUnsupported {
    pub platform: &'static str,
}

impl PlatformUnsupported {
    /// The error for the platform this was built for.
    pub fn here() -> PlatformUnsupported {
        PlatformUnsupported {
            platform: std::env::consts::OS,
        }
    }
}

impl UserError for PlatformUnsupported {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Environment
    }

    fn hints(&self) -> Vec<Hint> {
        vec![Hint::DescribeRecordedMachine]
    }
}

#[cfg(not(target_os = "linux"))]
impl crate::surroundings::Surroundings {
    /// The machine this process runs on: not readable on this platform yet.
    pub fn live(
        _env: crate::environment::Environment,
        _python: crate::python::PythonHint,
    ) -> Result<Self, PlatformUnsupported> {
        Err(PlatformUnsupported::here())
    }
}
