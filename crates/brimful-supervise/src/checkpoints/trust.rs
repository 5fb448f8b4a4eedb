//! Whether a checkpoint may be passed to a program that loads it, which runs what a pickle says.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::checkpoints::criteria::Criteria;
use crate::checkpoints::find::Candidate;
use crate::checkpoints::refusal::Refusal;

/// Clocks of machines that share a file system differ by less.
const MAX_AHEAD: Duration = Duration::from_mins(5);
/// Files of one checkpoint whose owners are checked: one of several thousand ranks has as many.
const MAX_FILES: usize = 65_536;
const MAX_DEPTH: usize = 4;

/// What speaks against a candidate without looking into it.
pub(super) fn refusal(candidate: &Candidate, criteria: &Criteria<'_>) -> Option<Refusal> {
    let foreign = candidate
        .version
        .owners
        .into_iter()
        .find(|owner| !is_trusted(*owner, criteria));
    if let Some(uid) = foreign {
        return Some(Refusal::Owner { uid });
    }
    if let Ok(ahead) = candidate.version.modified.duration_since(criteria.now)
        && ahead > MAX_AHEAD
    {
        return Some(Refusal::FromTheFuture { ahead });
    }
    criteria
        .rehearsed
        .is_some_and(|rehearsed| rehearsed.has(&candidate.version))
        .then_some(Refusal::WrittenDuringRehearsal)
}

/// What the owners of a directory's files say against it.
pub(super) fn refusal_of_files(directory: &Path, criteria: &Criteria<'_>) -> Option<Refusal> {
    let mut n_left = MAX_FILES;
    let mut directories: Vec<(PathBuf, usize)> = vec![(directory.to_owned(), 1)];
    while let Some((parent, depth)) = directories.pop() {
        let Ok(entries) = std::fs::read_dir(&parent) else {
            continue;
        };
        for entry in entries.flatten() {
            if n_left == 0 {
                return Some(Refusal::TooManyFiles);
            }
            n_left -= 1;
            let path = entry.path();
            // A link belongs to who made it, what it leads to perhaps to another.
            let own = entry.metadata().ok();
            let target = std::fs::metadata(&path).ok();
            let is_directory = target.as_ref().is_some_and(Metadata::is_dir);
            for facts in own.iter().chain(&target) {
                if !is_trusted(facts.uid(), criteria) {
                    let name = path.strip_prefix(directory).unwrap_or(&path);
                    return Some(Refusal::PartOwner {
                        name: name.display().to_string(),
                        uid: facts.uid(),
                    });
                }
            }
            if is_directory && depth < MAX_DEPTH {
                directories.push((path, depth + 1));
            }
        }
    }
    None
}

fn is_trusted(uid: u32, criteria: &Criteria<'_>) -> bool {
    uid == 0 || uid == criteria.uid
}
