//! Files and directories that a pattern names, with a bound on how far is looked.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

use glob::{MatchOptions, Pattern};

use crate::checkpoints::directory;
use crate::checkpoints::version::{Version, version_of};

/// Entries that are looked at for one pattern: a directory of data may have millions.
const MAX_ENTRIES: usize = 200_000;
/// Directories below directories that `**` goes down to.
const MAX_DEPTH: usize = 16;
const MAX_FOUND: usize = 10_000;
/// The directory beside checkpoints in which the nodes of a job share their state.
pub const SHARED_STATE: &str = ".brimful";
const MAX_PATTERN: usize = 1000;

const OPTIONS: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};

/// A file or directory that a pattern names.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) path: PathBuf,
    pub(super) version: Version,
}

/// What was found, and whether that is everything.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) candidates: Vec<Candidate>,
    pub(super) is_complete: bool,
}

/// Everything that the patterns name. What lies inside a directory that is itself a checkpoint is a part of it.
pub(super) fn candidates(directory: &Path, patterns: &[String]) -> Found {
    let mut found: BTreeMap<PathBuf, Version> = BTreeMap::new();
    let mut is_complete = true;
    for pattern in patterns {
        is_complete &= look_for(directory, pattern, &mut found);
    }
    let directories: Vec<PathBuf> = found
        .keys()
        .filter(|path| directory::looks_like_one(path))
        .cloned()
        .collect();
    found.retain(|path, _| {
        !directories
            .iter()
            .any(|directory| path != directory && path.starts_with(directory))
    });
    Found {
        candidates: found
            .into_iter()
            .map(|(path, version)| Candidate { path, version })
            .collect(),
        is_complete,
    }
}

/// What was written last of all that the patterns name, and when. Whether it is whole is not asked.
pub(crate) fn newest_written(
    directory: &Path,
    patterns: &[String],
) -> Option<(PathBuf, SystemTime)> {
    candidates(directory, patterns)
        .candidates
        .into_iter()
        .map(|candidate| (candidate.path, candidate.version.modified))
        .max_by_key(|(_, modified)| *modified)
}

/// Whether everything was looked at.
fn look_for(directory: &Path, pattern: &str, found: &mut BTreeMap<PathBuf, Version>) -> bool {
    let pattern = pattern.trim_end_matches('/');
    if pattern.is_empty() || pattern.len() > MAX_PATTERN {
        return true;
    }
    // What stands before the first wildcard is a plain path; the search begins there.
    let parts: Vec<Component<'_>> = Path::new(pattern).components().collect();
    let text = |part: &Component<'_>| part.as_os_str().to_string_lossy().into_owned();
    let n_plain = parts
        .iter()
        .position(|part| text(part).contains(['*', '?', '[']))
        .unwrap_or(parts.len());
    let root = parts[..n_plain]
        .iter()
        .fold(directory.to_owned(), |path, part| {
            path.join(part.as_os_str())
        });
    let rest: Vec<String> = parts[n_plain..].iter().map(text).collect();
    if rest.is_empty() {
        add(root, found);
        return true;
    }
    let Ok(pattern) = Pattern::new(&rest.join("/")) else {
        return true;
    };
    let any_depth = rest.iter().any(|part| part == "**");
    let mut search = PatternSearch {
        pattern,
        deepest: if any_depth { MAX_DEPTH } else { rest.len() },
        // A link may lead back up. Where the depth is told by the pattern, that comes to an end.
        follows_links: !any_depth,
        n_left: MAX_ENTRIES,
        is_complete: true,
        found,
    };
    search.below(&root, Path::new(""), 1);
    search.is_complete
}

struct PatternSearch<'a> {
    pattern: Pattern,
    deepest: usize,
    follows_links: bool,
    n_left: usize,
    is_complete: bool,
    found: &'a mut BTreeMap<PathBuf, Version>,
}

impl PatternSearch<'_> {
    fn below(&mut self, directory: &Path, relative: &Path, depth: usize) {
        let Ok(entries) = std::fs::read_dir(directory) else {
            return;
        };
        let mut directories = Vec::new();
        for entry in entries.flatten() {
            if self.n_left == 0 || self.found.len() >= MAX_FOUND {
                self.is_complete = false;
                return;
            }
            self.n_left -= 1;
            let name = entry.file_name();
            if name == SHARED_STATE {
                continue;
            }
            let below = relative.join(&name);
            if self.pattern.matches_path_with(&below, OPTIONS) {
                add(entry.path(), self.found);
            }
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            let is_directory =
                kind.is_dir() || kind.is_symlink() && self.follows_links && entry.path().is_dir();
            let is_hidden = name.to_string_lossy().starts_with('.');
            // `**` does not mean `.git`.
            let is_meant = !is_hidden || self.follows_links;
            if is_directory && is_meant && depth < self.deepest {
                directories.push((entry.path(), below));
            }
        }
        for (path, below) in directories {
            self.below(&path, &below, depth + 1);
        }
    }
}

fn add(path: PathBuf, found: &mut BTreeMap<PathBuf, Version>) {
    if let Some(version) = version_of(&path) {
        found.insert(path, version);
    }
}
