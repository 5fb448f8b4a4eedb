//! Which checkpoint each attempt of a run resumes from.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::checkpoints::choose::{Checkpoints, choose};
use crate::checkpoints::criteria::Criteria;
use crate::checkpoints::file;
use crate::checkpoints::inventory::Inventory;
use crate::checkpoints::region::{BLOCK, Region};
use crate::checkpoints::version::version_of;

/// Files of a directory whose contents are compared.
const MAX_COMPARED: usize = 1000;
/// Blocks that are compared, spread over all files and over all of each.
const MAX_BLOCKS: u64 = 4096;
/// Blocks of one file.
const MAX_BLOCKS_OF_ONE: u64 = 64;

/// Chooses the checkpoint of each attempt of a run.
///
/// That of the first attempt is chosen when this is made, before anything is rehearsed. What a rehearsal writes in
/// spite of its isolation is refused from then on.
#[derive(Debug)]
pub struct Selector {
    directory: PathBuf,
    patterns: Vec<String>,
    options: SelectorOptions,
    first: Checkpoints,
    /// Samples of the first choice, to tell whether it is still what was chosen.
    digest: Option<u64>,
    before: Inventory,
    excluded: Excluded,
}

/// Checkpoints that a run does not resume from. Written to a file, it tells other nodes of the same run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Excluded {
    /// Written while the job was rehearsed.
    rehearsed: Option<Inventory>,
    /// There before the run, and so another run's.
    ignored: Option<Inventory>,
    force: bool,
}

impl Excluded {
    /// The furthest of the others.
    pub fn choose(&self, directory: &Path, patterns: &[String]) -> Checkpoints {
        let criteria = Criteria {
            force: self.force,
            rehearsed: self.rehearsed.as_ref(),
            ignored: self.ignored.as_ref(),
            ..Criteria::now()
        };
        choose(directory, patterns, &criteria)
    }
}

/// What the user asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SelectorOptions {
    /// The first attempt resumes from what is there.
    pub resume: bool,
    /// Lift the refusals that [`crate::checkpoints::Refusal::is_lifted_by_force`] names.
    pub force: bool,
}

impl Selector {
    pub fn new(directory: &Path, patterns: &[String], options: SelectorOptions) -> Selector {
        let before = Inventory::take(directory, patterns);
        let first = if options.resume {
            let criteria = Criteria {
                force: options.force,
                ..Criteria::now()
            };
            choose(directory, patterns, &criteria)
        } else {
            Checkpoints::default()
        };
        let digest = first
            .chosen
            .as_ref()
            .and_then(|chosen| digest(&chosen.path));
        Selector {
            directory: directory.to_owned(),
            patterns: patterns.to_vec(),
            options,
            first,
            digest,
            before,
            excluded: Excluded {
                force: options.force,
                ..Excluded::default()
            },
        }
    }

    /// To be called once the job was rehearsed, or is not going to be, before the first attempt starts.
    pub fn rehearsals_ended(&mut self) {
        let now = Inventory::take(&self.directory, &self.patterns);
        if !self.options.resume {
            self.excluded.ignored = Some(now);
            return;
        }
        let mut rehearsed = now.new_since(&self.before);
        let unchanged = self.first.chosen.as_ref().filter(|chosen| {
            let now = digest(&chosen.path);
            now.is_some() && now == self.digest
        });
        let version = self
            .first
            .chosen
            .as_ref()
            .and_then(|chosen| version_of(&chosen.path));
        if let Some(version) = version {
            if unchanged.is_some() {
                // Copied aside and put back, perhaps without its times.
                rehearsed.leave_out(&version);
            } else {
                // Perhaps with the times of what was there.
                rehearsed.add(&version);
            }
        }
        let is_lost = self.first.chosen.is_some() && unchanged.is_none();
        self.excluded.rehearsed = Some(rehearsed);
        if is_lost {
            self.first = self.choose();
        }
    }

    /// What was there before anything was rehearsed; nothing for a run that starts from the beginning.
    pub fn first(&self) -> &Checkpoints {
        &self.first
    }

    /// What a later attempt resumes from: what earlier ones wrote, or what the first one resumed from.
    pub fn later(&self) -> Checkpoints {
        self.choose()
    }

    /// What no attempt resumes from.
    pub fn excluded(&self) -> &Excluded {
        &self.excluded
    }

    fn choose(&self) -> Checkpoints {
        self.excluded.choose(&self.directory, &self.patterns)
    }
}

/// A digest of samples of a file, or of all files of a directory, with their names and lengths.
fn digest(path: &Path) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    let mut files = Vec::new();
    if path.is_dir() {
        files_below(path, 1, &mut files);
        files.sort();
    } else {
        files.push(path.to_owned());
    }
    let n_files = files.len().max(1) as u64;
    let max_blocks = (MAX_BLOCKS / n_files).clamp(2, MAX_BLOCKS_OF_ONE);
    for path in files {
        path.hash(&mut hasher);
        let Ok((file, length)) = file::open(&path) else {
            // Empty, or no file: it has no contents.
            continue;
        };
        length.hash(&mut hasher);
        let region = Region::whole(&file, length);
        let n_blocks = region.n_blocks();
        let mut bytes = [0; BLOCK];
        for idx in 0..n_blocks.min(max_blocks) {
            // The first block and the last one are among them.
            let block = if n_blocks <= max_blocks {
                idx
            } else {
                idx * (n_blocks - 1) / (max_blocks - 1)
            };
            region.read_block(block, &mut bytes)?.hash(&mut hasher);
        }
    }
    Some(hasher.finish())
}

fn files_below(directory: &Path, depth: usize, files: &mut Vec<PathBuf>) {
    const MAX_DEPTH: usize = 3;
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        if files.len() >= MAX_COMPARED {
            return;
        }
        let path = entry.path();
        if path.is_dir() {
            if depth < MAX_DEPTH {
                files_below(&path, depth + 1, files);
            }
        } else {
            files.push(path);
        }
    }
}
