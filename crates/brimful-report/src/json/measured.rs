//! The outward form of a CUDA context that earlier runs measured.

use brimful::predict::MeasuredContext;
use brimful::units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What earlier runs on this GPU model held outside PyTorch's allocator, used in place of the calculated CUDA context.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ContextMeasurement {
    /// Bytes.
    pub bytes: u64,
    /// Number of runs that were measured.
    pub runs: u64,
    /// Whether it is from the last run of this job; otherwise it is the median of the runs.
    pub same_job: bool,
    /// The release of PyTorch of these runs.
    pub torch_version: String,
    /// The version of the driver; `null` if it is not known.
    pub driver_version: Option<String>,
}

impl ContextMeasurement {
    pub fn of(measured: &MeasuredContext) -> ContextMeasurement {
        ContextMeasurement {
            bytes: measured.context.get(),
            runs: measured.n_runs as u64,
            same_job: measured.same_job,
            torch_version: measured.torch.clone(),
            driver_version: measured.driver.clone(),
        }
    }

    /// The words of the value that it was made of.
    pub(crate) fn words(&self) -> String {
        let measured = MeasuredContext {
            context: Bytes(self.bytes),
            n_runs: usize::try_from(self.runs).unwrap_or(usize::MAX),
            same_job: self.same_job,
            torch: self.torch_version.clone(),
            driver: self.driver_version.clone(),
        };
        measured.to_string()
    }
}
