//! The outward form of a prediction beside its measurement: what `brimful verify` writes to `brimful-verify.json`.

use brimful::units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::json::{LowLikelyHigh, SCHEMA_VERSION};

/// A prediction and what a real GPU measured for the same steps. It contains no path, name or argument of the user.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "brimful verify")]
pub struct VerifyDocument {
    /// The schema version of this document.
    pub schema_version: u32,
    /// The version of brimful that wrote it.
    pub brimful_version: String,
    /// The GPU.
    pub gpu: VerifiedGpu,
    /// Number of training processes.
    pub world_size: u32,
    /// The PyTorch version.
    pub torch_version: String,
    /// The CUDA version that PyTorch was built for; `null` if it is not known.
    pub cuda_version: Option<String>,
    /// The version of cuDNN, as PyTorch numbers it; `null` without cuDNN.
    pub cudnn_version: Option<u64>,
    /// The allocator settings, as in `PYTORCH_CUDA_ALLOC_CONF`.
    pub alloc_conf: String,
    /// `finished`, or `out_of_memory` if the GPU's memory ran out before the last step.
    pub outcome: String,
    /// Number of optimizer steps that were requested, of the rehearsal and of the run.
    pub requested_steps: u32,
    /// Number of optimizer steps that were made on the GPU.
    pub steps: u32,
    /// How many of them were timed: all but the first ones.
    pub timed_steps: u32,
    /// How your files were protected from the script: `overlay`, `redirect`, or `off` if writes were allowed.
    pub isolation: String,
    /// Peak of allocated bytes, as `torch.cuda.max_memory_allocated` reports.
    pub allocated: VerifiedBytes,
    /// Peak of reserved bytes, as `torch.cuda.max_memory_reserved` reports.
    pub reserved: VerifiedBytes,
    /// What the process holds outside PyTorch's allocator: the CUDA context with loaded kernels, and NCCL.
    pub context: VerifiedBytes,
    /// Peak GPU memory of the process.
    pub total: VerifiedBytes,
    /// Optimizer steps per second.
    pub steps_per_second: VerifiedRate,
    /// Number of times PyTorch freed cached memory and retried.
    pub retries: u64,
    /// IDs of the caveats of the prediction.
    pub caveats: Vec<String>,
}

/// The GPU that the values are of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VerifiedGpu {
    /// The product name, as the driver prints it.
    pub name: String,
    /// The ID of the model in brimful's catalogue.
    pub model: String,
    /// Total memory, as the driver reports it; `null` if it does not.
    pub total_bytes: Option<u64>,
    /// The version of the driver; `null` if it is not known.
    pub driver_version: Option<String>,
    /// Memory that others used before the run; `null` if it is not known.
    pub used_before_bytes: Option<u64>,
    /// Memory that others used after the run; `null` if it is not known.
    pub used_after_bytes: Option<u64>,
}

/// A predicted and a measured number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VerifiedBytes {
    /// The likely value.
    pub predicted_bytes: u64,
    /// The safe value; `null` if there is none.
    pub safe_bytes: Option<u64>,
    /// The measured value; `null` if it could not be measured.
    pub measured_bytes: Option<u64>,
    /// How much larger the prediction is, as a share of the measured value.
    pub error: Option<f64>,
}

/// A predicted and a measured rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VerifiedRate {
    /// The predicted rate; `null` if it could not be predicted.
    pub predicted: Option<LowLikelyHigh>,
    /// The measured rate; `null` if too few steps were timed.
    pub measured: Option<f64>,
    /// How much faster the prediction is, as a share of the measured rate.
    pub error: Option<f64>,
}

impl VerifyDocument {
    pub const SCHEMA_VERSION: u32 = SCHEMA_VERSION;
    pub const FINISHED: &'static str = "finished";
    pub const OUT_OF_MEMORY: &'static str = "out_of_memory";

    /// Whether a file holds such a document.
    pub fn is_one(bytes: &[u8]) -> bool {
        serde_json::from_slice::<VerifyDocument>(bytes).is_ok()
    }

    /// Whether the measured total stayed below the safe value, where both are known.
    pub fn is_safe(&self) -> Option<bool> {
        Some(self.total.measured_bytes? <= self.total.safe_bytes?)
    }
}

impl VerifiedBytes {
    pub fn of(predicted: Bytes, safe: Option<Bytes>, measured: Option<Bytes>) -> VerifiedBytes {
        let share = |measured: Bytes| error(predicted.get() as f64, measured.get() as f64);
        VerifiedBytes {
            predicted_bytes: predicted.get(),
            safe_bytes: safe.map(Bytes::get),
            measured_bytes: measured.map(Bytes::get),
            error: measured.and_then(share),
        }
    }
}

impl VerifiedRate {
    pub fn of(predicted: Option<LowLikelyHigh>, measured: Option<f64>) -> VerifiedRate {
        let error = |(predicted, measured): (LowLikelyHigh, f64)| error(predicted.likely, measured);
        VerifiedRate {
            predicted,
            measured: measured.map(|rate| (rate * 1e4).round() / 1e4),
            error: predicted.zip(measured).and_then(error),
        }
    }
}

/// As `docs/accuracy.md` has it: above zero, the prediction was too high.
fn error(predicted: f64, measured: f64) -> Option<f64> {
    (measured > 0.0).then(|| ((predicted / measured - 1.0) * 1e4).round() / 1e4)
}
