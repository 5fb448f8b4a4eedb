//! What the opening of a dataset may use, and how far it is.

use std::sync::atomic::{AtomicU64, Ordering};

use brimful::units::Bytes;

use crate::indexes::Indexes;

/// For formats that are looked through from end to end before the first sample.
#[derive(Debug, Default)]
pub struct Opening {
    /// Bytes that are free for the data; nothing where that is not known.
    pub headroom: Option<Bytes>,
    /// Where what was found is kept for the next time.
    pub indexes: Option<Indexes>,
    pub progress: Progress,
}

impl From<Option<Bytes>> for Opening {
    fn from(headroom: Option<Bytes>) -> Opening {
        Opening {
            headroom,
            ..Opening::default()
        }
    }
}

/// How much of the files has been looked through, for another thread to show.
#[derive(Debug, Default)]
pub struct Progress {
    n_files: AtomicU64,
    n_files_done: AtomicU64,
    bytes: AtomicU64,
    bytes_done: AtomicU64,
}

/// [`Progress`] at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgressSnapshot {
    pub n_files: u64,
    pub n_files_done: u64,
    /// Of the files that have been opened so far.
    pub bytes: Bytes,
    pub bytes_done: Bytes,
}

impl Progress {
    pub fn snapshot(&self) -> ProgressSnapshot {
        let read = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        ProgressSnapshot {
            n_files: read(&self.n_files),
            n_files_done: read(&self.n_files_done),
            bytes: Bytes(read(&self.bytes)),
            bytes_done: Bytes(read(&self.bytes_done)),
        }
    }

    pub(crate) fn expect_files(&self, n_files: usize) {
        self.n_files.store(n_files as u64, Ordering::Relaxed);
    }

    /// Begins with a file of so many bytes.
    pub(crate) fn file(&self, bytes: u64) -> FileProgress<'_> {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        FileProgress {
            all: self,
            bytes,
            at: 0,
        }
    }
}

/// The part of one file, which counts as done when it is dropped.
#[derive(Debug)]
pub(crate) struct FileProgress<'a> {
    all: &'a Progress,
    bytes: u64,
    at: u64,
}

impl FileProgress<'_> {
    pub(crate) fn is_at(&mut self, offset: u64) {
        let at = offset.clamp(self.at, self.bytes);
        self.all
            .bytes_done
            .fetch_add(at - self.at, Ordering::Relaxed);
        self.at = at;
    }
}

impl Drop for FileProgress<'_> {
    fn drop(&mut self) {
        self.is_at(self.bytes);
        self.all.n_files_done.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_add_up() {
        let progress = Progress::default();
        progress.expect_files(3);
        let mut first = progress.file(100);
        first.is_at(40);
        first.is_at(30);
        let second = progress.file(10);
        let passed = |n_files_done, bytes, bytes_done| ProgressSnapshot {
            n_files: 3,
            n_files_done,
            bytes: Bytes(bytes),
            bytes_done: Bytes(bytes_done),
        };
        assert_eq!(progress.snapshot(), passed(0, 110, 40));
        drop(second);
        first.is_at(1000);
        assert_eq!(progress.snapshot(), passed(1, 110, 110));
        drop(first);
        assert_eq!(progress.snapshot(), passed(2, 110, 110));
    }
}
