//! What tells one version of a file or directory from the next, without reading it.

use std::ffi::OsString;
use std::fs::Metadata;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

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
    pub(super) changed: SystemTime,
    /// Users that the path itself and what it leads to belong to.
    pub(super) owners: [u32; 2],
    /// Sizes and times of it and of what is in it. The same after it was renamed, or copied with its times.
    pub(super) contents: u64,
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
    pub(super) changed: SystemTime,
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
