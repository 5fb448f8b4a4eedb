//! Chooses the furthest checkpoint that is proven.

use std::fs::Metadata;
use std::path::{Path, PathBuf};

use crate::checkpoints::checkpoint::{Checkpoint, CheckpointKind, Incomplete};
use crate::checkpoints::criteria::Criteria;
use crate::checkpoints::find::{self, Candidate};
use crate::checkpoints::order::{self, Rank};
use crate::checkpoints::refusal::Refusal;
use crate::checkpoints::{directory, file, step, trust, zeros};

/// Candidates that are looked into, the newest first. Who keeps more of them has an older one that is whole among these.
const MAX_CANDIDATES: usize = 64;
/// Refusals that are kept to be shown.
pub(super) const MAX_REFUSED: usize = 64;
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

/// The furthest proven checkpoint among those that `patterns` name, below `directory`.
///
/// A pattern has `*`, `?`, `[…]` and `**` for any number of directories. The step inside a checkpoint decides, and
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
        if kept.len() >= MAX_CANDIDATES {
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
            directory::progress(&candidate.path)
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
        directory::check(path)?
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
