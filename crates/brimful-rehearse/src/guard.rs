//! Checkpoints are copied aside before a script runs without isolation, and put back where it has changed them.

use std::fs::{self, File, FileTimes, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// More files than the checkpoints of any job.
const MAX_FILES: usize = 10_000;

/// Copies that are put back when the guard goes.
#[derive(Debug, Default)]
pub(crate) struct Guard {
    copies: Vec<Copied>,
    aside: Option<PathBuf>,
}

#[derive(Debug)]
struct Copied {
    original: PathBuf,
    copy: PathBuf,
    bytes: u64,
    modified: SystemTime,
}

impl Guard {
    /// Copies every file that the patterns name, below `current_dir`, into a new directory in `parent`.
    ///
    /// An error where they have more than `max_bytes` together, or cannot be copied: then the script must not run.
    pub(crate) fn copy(
        patterns: &[String],
        current_dir: &Path,
        parent: &Path,
        max_bytes: u64,
    ) -> io::Result<Guard> {
        let mut guard = Guard::default();
        let mut left = max_bytes;
        for original in files(patterns, current_dir) {
            let facts = fs::metadata(&original)?;
            left = left.checked_sub(facts.len()).ok_or_else(|| {
                io::Error::new(
                    io::ErrorKind::StorageFull,
                    format!(
                        "the checkpoints have more than the {max_bytes} bytes that may be copied aside; give --scratch SIZE"
                    ),
                )
            })?;
            if guard.aside.is_none() {
                let aside = brimful_private::temporary_directory(&[parent], "brimful-guarded-")?;
                guard.aside = Some(aside.keep());
            }
            let aside = guard.aside.as_deref().unwrap_or(parent);
            let copy = aside.join(guard.copies.len().to_string());
            brimful_private::copy_new(&original, &copy)?;
            guard.copies.push(Copied {
                bytes: facts.len(),
                modified: facts.modified()?,
                original,
                copy,
            });
        }
        Ok(guard)
    }
}

/// A checkpoint that was changed could not be put back. Its copy is kept.
#[derive(Debug, thiserror::Error)]
#[error("failed to restore the checkpoint `{}`, which the script changed; a copy is at `{}`", original.display(), copy.display())]
pub struct NotRestored {
    pub original: PathBuf,
    pub copy: PathBuf,
    #[source]
    source: io::Error,
}

impl Guard {
    /// Puts back what was changed.
    pub(crate) fn restore(mut self) -> Result<(), NotRestored> {
        self.restore_all()
    }

    fn restore_all(&mut self) -> Result<(), NotRestored> {
        let mut failed = None;
        for copied in self.copies.drain(..) {
            match copied.restore() {
                Ok(()) => {
                    let _ = fs::remove_file(&copied.copy);
                }
                Err(source) => {
                    failed.get_or_insert(NotRestored {
                        original: copied.original,
                        copy: copied.copy,
                        source,
                    });
                }
            }
        }
        if let Some(aside) = self.aside.take().filter(|_| failed.is_none()) {
            let _ = fs::remove_dir(aside);
        }
        failed.map_or(Ok(()), Err)
    }
}

/// Where a rehearsal is interrupted.
impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.restore_all();
    }
}

impl Copied {
    fn restore(&self) -> io::Result<()> {
        let same = |facts: Metadata| {
            facts.len() == self.bytes && facts.modified().is_ok_and(|it| it == self.modified)
        };
        if fs::metadata(&self.original).is_ok_and(same) {
            return Ok(());
        }
        let parent = self.original.parent().unwrap_or(Path::new("/"));
        brimful_private::create_missing_directories(parent)?;
        let mut name = self.original.file_name().unwrap_or_default().to_owned();
        name.push(format!(".brimful-{}", std::process::id()));
        let new = parent.join(name);
        brimful_private::copy_new(&self.copy, &new)?;
        if let Ok(facts) = fs::metadata(&self.original) {
            let _ = fs::set_permissions(&new, facts.permissions());
        }
        // A resume compares times.
        File::options()
            .write(true)
            .open(&new)?
            .set_times(FileTimes::new().set_modified(self.modified))?;
        fs::rename(&new, &self.original)
    }
}

/// Regular files that the patterns name, and those below directories that they name.
fn files(patterns: &[String], current_dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut next: Vec<PathBuf> = Vec::new();
    for pattern in patterns {
        let pattern = current_dir.join(pattern);
        let matches = pattern.to_str().and_then(|text| glob::glob(text).ok());
        next.extend(matches.into_iter().flatten().flatten().take(MAX_FILES));
    }
    while let Some(path) = next.pop() {
        if found.len() >= MAX_FILES {
            break;
        }
        if path.is_dir() {
            next.extend(
                fs::read_dir(&path)
                    .into_iter()
                    .flatten()
                    .flatten()
                    .map(|entry| entry.path())
                    .take(MAX_FILES),
            );
        } else if path.is_file() && !found.contains(&path) {
            found.push(path);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_and_a_deleted_checkpoint_are_put_back_with_their_times() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("work");
        fs::create_dir_all(root.join("out/step-1")).unwrap();
        for name in ["out/last.pt", "out/step-1/model.bin", "out/log.txt"] {
            fs::write(root.join(name), "before").unwrap();
        }
        let time = |name: &str| fs::metadata(root.join(name)).unwrap().modified().unwrap();
        let before = time("out/last.pt");
        let patterns = ["out/*.pt".to_owned(), "out/step-*".to_owned()];
        let aside = directory.path().join("aside");
        fs::create_dir(&aside).unwrap();
        let guard = Guard::copy(&patterns, &root, &aside, 1000).unwrap();
        fs::write(root.join("out/last.pt"), "zeros and more").unwrap();
        fs::remove_dir_all(root.join("out/step-1")).unwrap();
        fs::write(root.join("out/log.txt"), "more").unwrap();
        guard.restore().unwrap();
        let text = |name: &str| fs::read_to_string(root.join(name)).unwrap();
        assert_eq!(text("out/last.pt"), "before");
        assert_eq!(text("out/step-1/model.bin"), "before");
        assert_eq!(text("out/log.txt"), "more");
        assert_eq!(time("out/last.pt"), before);
        assert_eq!(fs::read_dir(&aside).unwrap().count(), 0);
    }

    #[test]
    fn checkpoints_that_are_too_large_to_copy_stop_the_rehearsal() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("last.pt"), "0123456789").unwrap();
        let root = directory.path();
        let error = Guard::copy(&["last.pt".into()], root, root, 9).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}
