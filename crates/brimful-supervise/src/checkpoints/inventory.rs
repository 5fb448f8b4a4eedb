//! Which checkpoints were there at a moment.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::checkpoints::find;
use crate::checkpoints::version::Version;

/// What the patterns of a job named at a moment.
///
/// By size and time of modification, not by name: a training renames its last checkpoint before it writes the next
/// one, and a checkpoint that was copied aside is put back with its times.
#[derive(Clone, Debug, Serialize, Deserialize)]
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
    use std::time::Duration;

    use crate::checkpoints::version::version_of;

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
