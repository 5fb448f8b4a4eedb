//! What is said on a platform whose facts cannot be read yet.

/// The facts of this platform cannot be read yet.
///
/// Profiles and cards do not need the machine, so `brimful probe --as NAME` works everywhere.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected Linux, found {platform}: brimful cannot read this platform's memory limits yet")]
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

    pub fn hint(&self) -> &'static str {
        "`brimful probe --as NAME` describes a recorded machine on any platform; `brimful probe --list` names them"
    }
}
