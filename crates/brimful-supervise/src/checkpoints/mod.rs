//! The newest checkpoint that is whole, to go on from.
//!
//! A training that dies may die while it writes. What is half-written is found by reading how each kind of file says
//! where it ends, and skipped with its reason; no value inside of a checkpoint is read, and no file is believed.
//!
//! Read first: [`newest_complete`].

mod file;
mod find;
mod folder;
mod step;
mod torch_zip;

use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Candidates that are looked into, the newest first. Who keeps more of them has an older one that is whole among these.
const MOST_CANDIDATES: usize = 64;

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Checkpoints {
    /// The newest that is complete.
    pub chosen: Option<Checkpoint>,
    /// Newer ones that are not, the newest first, and why.
    pub skipped: Vec<(PathBuf, Incomplete)>,
}

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
    /// A folder as Hugging Face's Trainer or Accelerate writes it.
    HuggingFace,
    /// A folder of `torch.distributed.checkpoint`, also as FSDP and Lightning write it.
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
    #[error("a folder of no known kind of checkpoint")]
    UnknownFolder,
    #[error("neither a file nor a folder")]
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
    fn part(name: impl Into<String>) -> impl FnOnce(Incomplete) -> Incomplete {
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

/// The newest complete checkpoint among those that `patterns` name, below `folder`.
///
/// A pattern has `*`, `?`, `[…]` and `**` for any number of folders. The newest is the one that was written last.
pub fn newest_complete(folder: &Path, patterns: &[String]) -> Checkpoints {
    let mut found = Checkpoints::default();
    let mut candidates = find::candidates(folder, patterns);
    candidates.sort_by(|a, b| {
        (b.modified, step::of_name(&b.path), &b.path).cmp(&(
            a.modified,
            step::of_name(&a.path),
            &a.path,
        ))
    });
    for candidate in candidates.into_iter().take(MOST_CANDIDATES) {
        match judge(&candidate) {
            Ok(checkpoint) => {
                found.chosen = Some(checkpoint);
                break;
            }
            Err(why) => found.skipped.push((candidate.path, why)),
        }
    }
    found
}

/// A file or folder that a pattern names.
#[derive(Clone, Debug)]
struct Candidate {
    path: PathBuf,
    modified: SystemTime,
}

fn judge(candidate: &Candidate) -> Result<Checkpoint, Incomplete> {
    let path = &candidate.path;
    if is_temporary(path) {
        return Err(Incomplete::BeingWritten);
    }
    let before = std::fs::metadata(path)?;
    let (kind, step) = if before.is_dir() {
        folder::check(path)?
    } else if before.is_file() {
        (file::check(path)?, None)
    } else {
        return Err(Incomplete::NoFile);
    };
    let after = std::fs::metadata(path)?;
    let facts = |facts: &Metadata| (facts.len(), facts.modified().ok());
    if facts(&before) != facts(&after) {
        return Err(Incomplete::Changing);
    }
    Ok(Checkpoint {
        path: path.clone(),
        kind,
        modified: candidate.modified,
        step: step.or_else(|| step::of_name(path)),
    })
}

/// `last.pt.tmp`, `.last.pt.part`, `tmp-checkpoint-500`.
fn is_temporary(path: &Path) -> bool {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
        return false;
    };
    let name = name.to_lowercase();
    name.starts_with("tmp-checkpoint")
        || name.split('.').skip(1).any(|part| {
            matches!(
                part,
                "tmp" | "temp" | "part" | "partial" | "incomplete" | "saving" | "writing"
            )
        })
}

#[cfg(test)]
mod tests;
