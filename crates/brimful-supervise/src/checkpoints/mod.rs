//! The furthest checkpoint that is proven, to resume from.
//!
//! A training that dies may die while it writes. What is half-written is found by reading how each kind of file says
//! where it ends. A checkpoint of another user, one from the future, one that was written while the job was rehearsed
//! and one whose tensors are all zero are refused too, each with its reason. No file is believed: every read is bounded,
//! and nothing of a pickle is run.
//!
//! Read first: [`Selector`], which chooses for each attempt of a run, then [`choose`].

mod file;
mod find;
mod folder;
mod order;
mod pickled;
mod region;
mod selector;
mod step;
mod torch_zip;
mod trust;
mod version;
mod zeros;

use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::checkpoints::find::Candidate;
use crate::checkpoints::order::Rank;
use crate::checkpoints::version::Inventory;

pub use selector::{Selector, SelectorOptions};

/// Candidates that are looked into, the newest first. Who keeps more of them has an older one that is whole among these.
const MOST_CANDIDATES: usize = 64;
/// Refusals that are kept to be shown.
const MAX_REFUSED: usize = 64;
/// Bytes that are read for the steps of all candidates.
const MAX_READ_FOR_STEPS: u64 = 256 << 20;

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Checkpoints {
    /// The furthest that is proven.
    pub chosen: Option<Checkpoint>,
    /// Those that were refused before it was found, and why.
    pub refused: Vec<(PathBuf, Refusal)>,
    /// One that was written after the chosen one and is at an earlier step, with that step.
    pub newer: Option<(PathBuf, u64)>,
}

/// What a checkpoint must satisfy besides being complete.
#[derive(Clone, Debug)]
pub struct Criteria<'a> {
    /// Accept checkpoints of other users, from the future, and of zeros.
    force: bool,
    now: SystemTime,
    /// The user whose checkpoints are accepted, besides root's.
    uid: u32,
    /// Written while the job was rehearsed.
    rehearsed: Option<&'a Inventory>,
    /// Not candidates at all.
    ignored: Option<&'a Inventory>,
}

impl Criteria<'_> {
    /// What holds at this moment for the user of this process.
    pub fn now() -> Criteria<'static> {
        Criteria {
            force: false,
            now: SystemTime::now(),
            uid: rustix::process::geteuid().as_raw(),
            rehearsed: None,
            ignored: None,
        }
    }

    /// The same without the refusals that [`Refusal::is_lifted_by_force`] names.
    pub fn forced() -> Criteria<'static> {
        Criteria {
            force: true,
            ..Criteria::now()
        }
    }
}

/// Why a checkpoint is not resumed from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(transparent)]
    Incomplete(#[from] Incomplete),
    #[error("it belongs to another user (uid {uid})")]
    Owner { uid: u32 },
    #[error("`{name}` in it belongs to another user (uid {uid})")]
    PartOwner { name: String, uid: u32 },
    #[error("it has too many files to check their owners")]
    TooManyFiles,
    #[error("its modification time is {} in the future", rounded(*ahead))]
    FromTheFuture { ahead: Duration },
    #[error("it was written while the job was rehearsed")]
    WrittenDuringRehearsal,
    #[error("its tensors are all zero")]
    AllZero,
    #[error("its path is not valid UTF-8")]
    PathNotText,
}

impl Refusal {
    /// Whether `brimful run --force` accepts it all the same.
    ///
    /// Not what was written while this very run rehearsed: nobody wants to resume from that, and the next run no longer
    /// knows of it.
    pub fn is_lifted_by_force(&self) -> bool {
        matches!(
            self,
            Refusal::Owner { .. }
                | Refusal::PartOwner { .. }
                | Refusal::TooManyFiles
                | Refusal::FromTheFuture { .. }
                | Refusal::AllZero
        )
    }

    /// Whether a training may have put its progress there. A directory of another kind and a file that is still being
    /// written hold none.
    pub fn may_hold_progress(&self) -> bool {
        !matches!(
            self,
            Refusal::Incomplete(
                Incomplete::UnknownFolder | Incomplete::BeingWritten | Incomplete::NoFile
            )
        )
    }
}

/// Minutes, hours or days: a clock that is wrong is wrong by many of them.
fn rounded(time: Duration) -> String {
    let minutes = (time.as_secs() + 30) / 60;
    match minutes {
        0..120 => format!("{minutes} minutes"),
        120..2880 => format!("{} hours", (minutes + 30) / 60),
        _ => format!("{} days", (minutes + 720) / 1440),
    }
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

/// The furthest proven checkpoint among those that `patterns` name, below `directory`.
///
/// A pattern has `*`, `?`, `[…]` and `**` for any number of directories. The step inside of a checkpoint decides, and
/// where there is none, the time of its last modification.
pub fn choose(directory: &Path, patterns: &[String], criteria: &Criteria<'_>) -> Checkpoints {
    let mut candidates = find::candidates(directory, patterns).candidates;
    if let Some(ignored) = criteria.ignored {
        candidates.retain(|candidate| !ignored.has(&candidate.version));
    }
    let mut found = Checkpoints::default();
    let (mut ranks, mut candidates): (Vec<Rank>, Vec<Candidate>) =
        trusted(candidates, criteria, &mut found.refused)
            .into_iter()
            .unzip();
    let all = ranks.clone();
    while let Some(idx) = order::best(&ranks) {
        let (rank, candidate) = (ranks.swap_remove(idx), candidates.swap_remove(idx));
        match judge(&candidate, &rank, criteria) {
            Ok(checkpoint) => {
                found.newer = newer(&rank, &all);
                found.chosen = Some(checkpoint);
                break;
            }
            Err(why) => refuse(&mut found.refused, candidate.path, why),
        }
    }
    found
}

/// Candidates that nothing speaks against so far, with what decides between them.
fn trusted(
    mut candidates: Vec<Candidate>,
    criteria: &Criteria<'_>,
    refused: &mut Vec<(PathBuf, Refusal)>,
) -> Vec<(Rank, Candidate)> {
    let key = |candidate: &Candidate| {
        let step = step::of_name(&candidate.path);
        (candidate.version.modified, step, candidate.path.clone())
    };
    candidates.sort_by_cached_key(|candidate| std::cmp::Reverse(key(candidate)));
    let mut n_left = MAX_READ_FOR_STEPS;
    let mut kept = Vec::new();
    for candidate in candidates {
        if kept.len() >= MOST_CANDIDATES {
            break;
        }
        let is_directory = candidate.path.is_dir();
        let refusal = trust::refusal(&candidate, criteria).or_else(|| {
            is_directory
                .then(|| trust::refusal_of_files(&candidate.path, criteria))
                .flatten()
        });
        match refusal {
            Some(why) if !(criteria.force && why.is_lifted_by_force()) => {
                refuse(refused, candidate.path, why);
                continue;
            }
            _ => {}
        }
        let progress = if is_directory {
            folder::progress(&candidate.path)
        } else {
            file::progress(&candidate.path, &mut n_left)
        };
        let rank = Rank {
            step: progress.step,
            modified: candidate.version.modified,
            epoch: progress.epoch,
            named_step: step::of_name(&candidate.path),
            path: candidate.path.clone(),
        };
        kept.push((rank, candidate));
    }
    kept
}

fn refuse(refused: &mut Vec<(PathBuf, Refusal)>, path: PathBuf, why: Refusal) {
    if refused.len() < MAX_REFUSED {
        refused.push((path, why));
    }
}

/// The newest that was written after the chosen one, where both have a step.
fn newer(chosen: &Rank, all: &[Rank]) -> Option<(PathBuf, u64)> {
    let step = chosen.step?;
    all.iter()
        .filter(|rank| rank.modified > chosen.modified)
        .filter_map(|rank| Some((rank.modified, rank, rank.step?)))
        .filter(|(_, _, other)| *other < step)
        .max_by_key(|(modified, ..)| *modified)
        .map(|(_, rank, step)| (rank.path.clone(), step))
}

fn judge(
    candidate: &Candidate,
    rank: &Rank,
    criteria: &Criteria<'_>,
) -> Result<Checkpoint, Refusal> {
    let path = &candidate.path;
    if path.to_str().is_none() {
        return Err(Refusal::PathNotText);
    }
    let kind = complete(path)?;
    if !criteria.force && zeros::are_all(path, kind) {
        return Err(Refusal::AllZero);
    }
    Ok(Checkpoint {
        path: path.clone(),
        kind,
        modified: candidate.version.modified,
        step: rank.step.or(rank.named_step),
    })
}

fn complete(path: &Path) -> Result<CheckpointKind, Incomplete> {
    if is_temporary(path) {
        return Err(Incomplete::BeingWritten);
    }
    let before = std::fs::metadata(path)?;
    let kind = if before.is_dir() {
        folder::check(path)?
    } else if before.is_file() {
        file::check(path)?
    } else {
        return Err(Incomplete::NoFile);
    };
    let after = std::fs::metadata(path)?;
    let facts = |facts: &Metadata| (facts.len(), facts.modified().ok());
    if facts(&before) != facts(&after) {
        return Err(Incomplete::Changing);
    }
    Ok(kind)
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
mod refusal_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod zero_tests;
