//! A value with its uncertainty.

use brimful::predict::DeviceBytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A value and one that 95 of 100 runs stay below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LikelyAndSafe {
    /// The most likely value.
    pub likely: u64,
    /// What 95 of 100 runs stay below.
    pub safe: u64,
}

impl From<DeviceBytes> for LikelyAndSafe {
    fn from(bytes: DeviceBytes) -> Self {
        LikelyAndSafe {
            likely: bytes.likely.get(),
            safe: bytes.safe.get(),
        }
    }
}
