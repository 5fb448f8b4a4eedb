//! What tells one version of a file or directory from the next, without reading it.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::Metadata;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::checkpoints::find;

/// Entries of a directory that are looked at.
const MAX_ENTRIES: usize = 1000;
/// Directories below directories: DeepSpeed and FSDP have their files in one below the checkpoint's own.
const MAX_DEPTH: usize = 2;

/// One state of a file or directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Version {
    /// When it was last written. A directory is as new as the newest entry in it.
    pub(super) modified: SystemTime,
    /// When anything about it last changed, its time of modification included. No program can set this.
    changed: SystemTime,
    /// Users that the path itself and what it leads to belong to.
    pub(super) owners: [u32; 2],
    /// Sizes and times of it and of what is in it. The same after it was renamed, or copied with its times.
    contents: u64,
}

/// The state that something is in now. Nothing where it is gone, or a link leads nowhere.
pub(super) fn version_of(path: &Path) -> Option<Version> {
    let own = std::fs::symlink_metadata(path).ok()?;
    let target = std::fs::metadata(path).ok()?;
    let mut seen = Seen {
        modified: target.modified().ok()?,
        changed: changed(&own).max(changed(&target)),
        contents: DefaultHasher::new(),
        n_left: MAX_ENTRIES,
    };
    if target.is_dir() {
        seen.entries_of(path, Path::new(""), 1);
    } else {
        identify(&target, &mut seen.contents);
    }
    Some(Version {
        modified: seen.modified,
        changed: seen.changed,
        owners: [own.uid(), target.uid()],
        contents: seen.contents.finish(),
    })
}

struct Seen {
    modified: SystemTime,
    changed: SystemTime,
    contents: DefaultHasher,
    n_left: usize,
}

impl Seen {
    fn entries_of(&mut self, directory: &Path, relative: &Path, depth: usize) {
        let Ok(entries) = std::fs::read_dir(directory) else {
            return;
        };
        let mut names: Vec<OsString> = entries
            .flatten()
            .take(self.n_left)
            .map(|entry| entry.file_name())
            .collect();
        self.n_left -= names.len();
        names.sort();
        for name in names {
            let path = directory.join(&name);
            let Ok(facts) = std::fs::metadata(&path) else {
                continue;
            };
            self.changed = self.changed.max(changed(&facts));
            if let Ok(modified) = facts.modified() {
                self.modified = self.modified.max(modified);
            }
            let relative = relative.join(&name);
            relative.hash(&mut self.contents);
            if !facts.is_dir() {
                identify(&facts, &mut self.contents);
            } else if depth < MAX_DEPTH {
                self.entries_of(&path, &relative, depth + 1);
            }
        }
    }
}

fn identify(facts: &Metadata, contents: &mut DefaultHasher) {
    (facts.len(), facts.mtime(), facts.mtime_nsec()).hash(contents);
}

fn changed(facts: &Metadata) -> SystemTime {
    let seconds = u64::try_from(facts.ctime()).unwrap_or(0);
    let nanoseconds = u32::try_from(facts.ctime_nsec()).unwrap_or(0);
    SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds.min(999_999_999))
}

/// What the patterns of a job named at a moment.
///
/// By size and time of modification, not by name: a training renames its last checkpoint before it writes the next
/// one, and a checkpoint that was copied aside is put back with its times.
#[derive(Clone, Debug)]
pub(super) struct Inventory {
    contents: BTreeSet<u64>,
    taken_at: SystemTime,
    /// Where a directory has too many entries, the time of the last change says what was there.
    is_complete: bool,
}

impl Inventory {
    pub(super) fn take(directory: &Path, patterns: &[String]) -> Inventory {
        let taken_at = SystemTime::now();
        let found = find::candidates(directory, patterns);
        Inventory {
            contents: found
                .candidates
                .into_iter()
                .map(|candidate| candidate.version.contents)
                .collect(),
            taken_at,
            is_complete: found.is_complete,
        }
    }

    /// Whether something was there already.
    pub(super) fn has(&self, version: &Version) -> bool {
        self.contents.contains(&version.contents)
            || !self.is_complete && version.changed <= self.taken_at
    }

    /// What is here and was not there before.
    pub(super) fn new_since(mut self, before: &Inventory) -> Inventory {
        if before.is_complete {
            self.contents = &self.contents - &before.contents;
        } else {
            // What was there before is not known by its contents: nothing is claimed.
            self.contents.clear();
        }
        self.is_complete = true;
        self
    }

    pub(super) fn add(&mut self, version: &Version) {
        self.contents.insert(version.contents);
    }

    pub(super) fn leave_out(&mut self, version: &Version) {
        self.contents.remove(&version.contents);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_version_is_known_by_its_contents_under_any_name() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let patterns = ["*".to_owned()];
        fs::write(at("last.pt"), "old").unwrap();
        let file = fs::File::options()
            .append(true)
            .open(at("last.pt"))
            .unwrap();
        let then = SystemTime::now() - Duration::from_mins(9);
        file.set_modified(then).unwrap();
        fs::create_dir(at("checkpoint-1")).unwrap();
        fs::write(at("checkpoint-1/model.pt"), "old").unwrap();
        let before = Inventory::take(directory.path(), &patterns);
        fs::rename(at("last.pt"), at("previous.pt")).unwrap();
        fs::rename(at("checkpoint-1"), at("checkpoint-0")).unwrap();
        assert!(before.has(&version_of(&at("previous.pt")).unwrap()));
        assert!(before.has(&version_of(&at("checkpoint-0")).unwrap()));
        fs::write(at("last.pt"), "new").unwrap();
        let new = version_of(&at("last.pt")).unwrap();
        assert!(!before.has(&new));
        let mut since = Inventory::take(directory.path(), &patterns).new_since(&before);
        assert!(since.has(&new));
        assert!(!since.has(&version_of(&at("previous.pt")).unwrap()));
        since.leave_out(&new);
        assert!(!since.has(&new));
        since.add(&new);
        assert!(since.has(&new));
        fs::write(at("checkpoint-0/model.pt"), "more").unwrap();
        assert!(!before.has(&version_of(&at("checkpoint-0")).unwrap()));
        assert_eq!(version_of(&at("nowhere")), None);
    }

    #[test]
    fn where_not_all_was_seen_the_time_of_the_last_change_decides() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("last.pt");
        fs::write(&path, "old").unwrap();
        let version = version_of(&path).unwrap();
        let inventory = |taken_at, is_complete| Inventory {
            contents: BTreeSet::new(),
            taken_at,
            is_complete,
        };
        let (earlier, later) = (
            version.changed - Duration::from_secs(1),
            version.changed + Duration::from_secs(1),
        );
        assert!(inventory(later, false).has(&version));
        assert!(!inventory(earlier, false).has(&version));
        assert!(!inventory(later, true).has(&version));
        let all = Inventory::take(directory.path(), &["*".into()]);
        assert!(!all.new_since(&inventory(earlier, false)).has(&version));
    }
}
