//! Files and folders that a pattern names, with a bound on how far is looked.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

use glob::{MatchOptions, Pattern};

use crate::checkpoints::{Candidate, folder};

/// Entries that are looked at for one pattern: a folder of data may have millions.
const MOST_ENTRIES: usize = 200_000;
/// Folders below folders that `**` goes down to.
const DEEPEST: usize = 16;
const MOST_FOUND: usize = 10_000;
const LONGEST_PATTERN: usize = 1000;

const OPTIONS: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};

/// Everything that the patterns name. What lies inside of a folder that is itself a checkpoint is a part of it.
pub(super) fn candidates(folder: &Path, patterns: &[String]) -> Vec<Candidate> {
    let mut found: BTreeMap<PathBuf, SystemTime> = BTreeMap::new();
    for pattern in patterns {
        look_for(folder, pattern, &mut found);
    }
    let folders: Vec<PathBuf> = found
        .keys()
        .filter(|path| folder::looks_like_one(path))
        .cloned()
        .collect();
    found.retain(|path, _| {
        !folders
            .iter()
            .any(|folder| path != folder && path.starts_with(folder))
    });
    found
        .into_iter()
        .map(|(path, modified)| Candidate { path, modified })
        .collect()
}

fn look_for(folder: &Path, pattern: &str, found: &mut BTreeMap<PathBuf, SystemTime>) {
    let pattern = pattern.trim_end_matches('/');
    if pattern.is_empty() || pattern.len() > LONGEST_PATTERN {
        return;
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
        .fold(folder.to_owned(), |path, part| path.join(part.as_os_str()));
    let rest: Vec<String> = parts[n_plain..].iter().map(text).collect();
    if rest.is_empty() {
        add(root, found);
        return;
    }
    let Ok(pattern) = Pattern::new(&rest.join("/")) else {
        return;
    };
    let any_depth = rest.iter().any(|part| part == "**");
    let mut walk = Walk {
        pattern,
        deepest: if any_depth { DEEPEST } else { rest.len() },
        // A link may lead back up. Where the depth is told by the pattern, that comes to an end.
        follows_links: !any_depth,
        n_left: MOST_ENTRIES,
        found,
    };
    walk.below(&root, Path::new(""), 1);
}

struct Walk<'a> {
    pattern: Pattern,
    deepest: usize,
    follows_links: bool,
    n_left: usize,
    found: &'a mut BTreeMap<PathBuf, SystemTime>,
}

impl Walk<'_> {
    fn below(&mut self, folder: &Path, relative: &Path, depth: usize) {
        let Ok(entries) = std::fs::read_dir(folder) else {
            return;
        };
        let mut folders = Vec::new();
        for entry in entries.flatten() {
            if self.n_left == 0 || self.found.len() >= MOST_FOUND {
                return;
            }
            self.n_left -= 1;
            let name = entry.file_name();
            let below = relative.join(&name);
            if self.pattern.matches_path_with(&below, OPTIONS) {
                add(entry.path(), self.found);
            }
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            let is_folder =
                kind.is_dir() || kind.is_symlink() && self.follows_links && entry.path().is_dir();
            let is_hidden = name.to_string_lossy().starts_with('.');
            // `**` does not mean `.git`.
            let is_meant = !is_hidden || self.follows_links;
            if is_folder && is_meant && depth < self.deepest {
                folders.push((entry.path(), below));
            }
        }
        for (path, below) in folders {
            self.below(&path, &below, depth + 1);
        }
    }
}

fn add(path: PathBuf, found: &mut BTreeMap<PathBuf, SystemTime>) {
    if let Some(modified) = modified(&path) {
        found.insert(path, modified);
    }
}

/// When it was last written. A folder is as new as the newest file in it.
fn modified(path: &Path) -> Option<SystemTime> {
    let facts = std::fs::metadata(path).ok()?;
    let own = facts.modified().ok()?;
    if !facts.is_dir() {
        return Some(own);
    }
    std::fs::read_dir(path)
        .into_iter()
        .flatten()
        .flatten()
        .take(1000)
        .filter_map(|entry| entry.metadata().ok()?.modified().ok())
        .chain([own])
        .max()
}
