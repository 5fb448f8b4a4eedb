//! A checkpoint: its kind, and what may be missing in it.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// A checkpoint that can be gone on from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    pub path: PathBuf,
    pub kind: CheckpointKind,
    pub modified: SystemTime,
    /// Optimizer steps made, where the checkpoint or its name says so.
    pub step: Option<u64>,
}

/// What a checkpoint is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointKind {
    /// What `torch.save` writes, Lightning's `.ckpt` too.
    TorchZip,
    /// `torch.save` before PyTorch 1.6, or a plain pickle: that nothing is missing cannot be proved.
    Pickle,
    Safetensors,
    /// A directory as Hugging Face's Trainer or Accelerate writes it.
    HuggingFace,
    /// A directory of `torch.distributed.checkpoint`, also as FSDP and Lightning write it.
    Distributed,
    DeepSpeed,
    /// A file of another kind: that nothing is missing cannot be proved.
    Other,
}

/// Why a checkpoint cannot be gone on from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Incomplete {
    #[error("its name says that it is still being written")]
    BeingWritten,
    #[error("it is empty")]
    Empty,
    #[error("it is cut short: {0}")]
    CutShort(&'static str),
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
    #[error("`{0}` is missing")]
    Missing(String),
    #[error("`{name}` in it: {why}")]
    Part { name: String, why: Box<Incomplete> },
    #[error("a directory of no known kind of checkpoint")]
    UnknownDirectory,
    #[error("neither a file nor a directory")]
    NoFile,
    #[error("it changed while it was looked at")]
    Changing,
    #[error("it cannot be read: {0}")]
    Unreadable(String),
}

impl Checkpoint {
    /// The time since it was written; nothing where the clock went back.
    pub fn age(&self, now: SystemTime) -> Option<Duration> {
        now.duration_since(self.modified).ok()
    }
}

impl CheckpointKind {
    /// Whether the form says where it ends, so that a missing part is noticed.
    pub fn proves_completeness(self) -> bool {
        !matches!(self, CheckpointKind::Pickle | CheckpointKind::Other)
    }
}

impl Incomplete {
    pub(super) fn part(name: impl Into<String>) -> impl FnOnce(Incomplete) -> Incomplete {
        let name = name.into();
        move |why| Incomplete::Part {
            name,
            why: Box::new(why),
        }
    }
}

impl From<std::io::Error> for Incomplete {
    fn from(error: std::io::Error) -> Incomplete {
        Incomplete::Unreadable(error.to_string())
    }
}
