//! What is in a directory.

use std::fs;
use std::path::{Path, PathBuf};

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Directory(PathBuf),
    Link(PathBuf),
    /// Files, sockets, devices.
    Other(PathBuf),
}

impl Entry {
    pub(crate) fn path(&self) -> &Path {
        match self {
            Entry::Directory(path) | Entry::Link(path) | Entry::Other(path) => path,
        }
    }
}

/// The entries of a directory in the order of their names; none where it cannot be read.
pub(crate) fn list(directory: &Path) -> Vec<Entry> {
    let mut entries: Vec<Entry> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let path = entry.path();
            let kind = entry.file_type().ok()?;
            Some(if kind.is_dir() {
                Entry::Directory(path)
            } else if kind.is_symlink() {
                Entry::Link(path)
            } else {
                Entry::Other(path)
            })
        })
        .collect();
    entries.sort_by(|a, b| a.path().cmp(b.path()));
    entries
}
