//! Why a prediction has no measurement.

use std::path::PathBuf;
use std::time::Duration;

use brimful::user_error::{ErrorKind, Hint, UserError};
use brimful_rehearse::ScriptEnd;

use crate::idle::GpuBusy;

/// A prediction has no measurement.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    #[error("this machine has no NVIDIA GPU that PyTorch could use{}", because(.reason.as_deref()))]
    NoGpu { reason: Option<String> },
    #[error("this machine has no GPU {index}; PyTorch sees {found}")]
    NoSuchGpu { index: u32, found: usize },
    #[error(
        "this machine has several models of GPUs, and the driver does not say which of them PyTorch numbers first"
    )]
    UnknownOrder,
    #[error("GPU {index} is divided into MIG instances, whose memory `verify` does not measure")]
    Mig { index: u32 },
    #[error(
        "`{name}` is not in brimful's catalogue of GPU models, so there is no prediction for it"
    )]
    UnknownModel { name: String },
    #[error("the GPUs are of different models, and a prediction is for one")]
    DifferentModels,
    #[error("the command trains on several nodes, and `verify` measures one machine")]
    SeveralNodes,
    #[error(transparent)]
    Busy(#[from] GpuBusy),
    #[error("the command ended with {ended} on the GPU {after}: {summary}")]
    Failed {
        ended: ScriptEnd,
        after: String,
        summary: String,
        output: String,
    },
    #[error(
        "the run on the GPU timed out after {} seconds with {made} of {steps} steps completed",
        limit.as_secs()
    )]
    TimeLimit {
        limit: Duration,
        made: u32,
        steps: u32,
        output: String,
    },
    #[error("the command ended on the GPU without an optimizer step that brimful could count")]
    NoStep { output: String },
    #[error("`{}` already exists and was not written by `brimful verify`", path.display())]
    FileExists { path: PathBuf },
}

impl UserError for VerifyError {
    fn kind(&self) -> ErrorKind {
        match self {
            VerifyError::Busy(error) => error.kind(),
            VerifyError::NoGpu { .. }
            | VerifyError::Mig { .. }
            | VerifyError::UnknownModel { .. } => ErrorKind::Environment,
            VerifyError::NoSuchGpu { .. }
            | VerifyError::UnknownOrder
            | VerifyError::DifferentModels
            | VerifyError::SeveralNodes
            | VerifyError::Failed { .. }
            | VerifyError::TimeLimit { .. }
            | VerifyError::NoStep { .. }
            | VerifyError::FileExists { .. } => ErrorKind::Input,
        }
    }

    fn hints(&self) -> Vec<Hint> {
        let words = match self {
            VerifyError::Busy(error) => return error.hints(),
            VerifyError::TimeLimit { .. } => return vec![Hint::RaiseTimeLimitOrLowerSteps],
            VerifyError::NoGpu { .. } => {
                "`brimful predict` needs no GPU; `brimful probe` shows what the driver reports"
            }
            VerifyError::NoSuchGpu { .. } => {
                "`brimful probe` shows the GPUs and how PyTorch numbers them"
            }
            VerifyError::UnknownOrder => "set CUDA_DEVICE_ORDER=PCI_BUS_ID, as `nvidia-smi` counts",
            VerifyError::Mig { .. } => "use a GPU without MIG",
            VerifyError::UnknownModel { .. } => {
                "`brimful probe --list` lists all models; please report the name that the driver prints"
            }
            VerifyError::SeveralNodes => {
                "verify the command with `--nnodes=1`: a rank then holds what it holds among those of one node"
            }
            VerifyError::DifferentModels => "name GPUs of one model, or one at a time",
            VerifyError::Failed { .. } => {
                "see the end of its output; the same command without brimful shows whether it works on this GPU"
            }
            VerifyError::NoStep { .. } => {
                "brimful counts the steps of torch.optim optimizers; it must run at least one"
            }
            VerifyError::FileExists { .. } => {
                "name another file with `--save`, or move this one away"
            }
        };
        vec![Hint::text(words)]
    }

    fn script_output(&self) -> Option<&str> {
        match self {
            VerifyError::Failed { output, .. }
            | VerifyError::TimeLimit { output, .. }
            | VerifyError::NoStep { output } => Some(output),
            _ => None,
        }
    }
}

fn because(reason: Option<&str>) -> String {
    reason.map_or_else(String::new, |reason| format!(": {reason}"))
}
