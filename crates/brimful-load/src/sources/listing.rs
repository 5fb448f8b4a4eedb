//! The files below a folder, in order.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::SourceError;
use crate::sources::folder_options::{FolderOptions, Labels};
use crate::sources::names::Names;

/// More files, or folders within folders, are taken for a mistake.
const MAX_ENTRIES: u64 = 50_000_000;
const MAX_DEPTH: usize = 64;

/// How often one folder is listed, by links to it. Without a bound, two links a level would be 2^64 files after 64 levels.
const MAX_VISITS: u32 = 64;

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// Relative to the root.
    pub(crate) names: Names,
    pub(crate) classes: Vec<String>,
    pub(crate) class_starts: Vec<u64>,
    /// Bytes of the largest file, and of all together.
    pub(crate) largest: u64,
    pub(crate) total: u64,
}

/// Lists files folder by folder, each in the order of its names. An error where there is none.
pub(crate) fn list(root: &Path, options: &FolderOptions) -> Result<Listing, SourceError> {
    let endings = options
        .extensions
        .iter()
        .map(|extension| format!(".{}", extension.trim_start_matches('.')).into_bytes())
        .collect();
    let mut lister = DirectoryLister {
        options,
        endings,
        listing: Listing::default(),
        above: Vec::new(),
        visits: HashMap::new(),
        n_entries: 0,
        n_folders: 0,
        n_others: 0,
    };
    let split = match &options.labels {
        Labels::None => {
            lister.enter(root, &[], &metadata(root)?)?;
            None
        }
        Labels::Classes => Some(""),
        Labels::ClassesWithSplit(split) => Some(split.as_str()),
    };
    if let Some(split) = split {
        lister.classes(root, split)?;
    }
    lister.finish(root)
}

struct DirectoryLister<'a> {
    options: &'a FolderOptions,
    /// `.jpg`.
    endings: Vec<Vec<u8>>,
    listing: Listing,
    /// Device and number of the folders that we are in: a link back to one of them is a circle.
    above: Vec<(u64, u64)>,
    /// How often each folder was listed.
    visits: HashMap<(u64, u64), u32>,
    n_entries: u64,
    n_folders: u64,
    n_others: u64,
}

enum Entry {
    Folder(Metadata),
    File(Metadata),
}

impl DirectoryLister<'_> {
    fn classes(&mut self, root: &Path, split: &str) -> Result<(), SourceError> {
        self.above.push(number(&metadata(root)?));
        for name in self.sorted(root)? {
            let mut path = root.join(&name);
            let Some(Entry::Folder(folder)) = entry(&path, true)? else {
                continue;
            };
            self.n_folders += 1;
            self.listing
                .classes
                .push(name.to_string_lossy().into_owned());
            self.listing.class_starts.push(self.listing.names.len());
            let mut relative = name.into_vec();
            relative.push(b'/');
            if split.is_empty() {
                self.enter(&path, &relative, &folder)?;
                continue;
            }
            path.push(split);
            relative.extend_from_slice(split.as_bytes());
            relative.push(b'/');
            match fs::metadata(&path) {
                Ok(folder) if folder.is_dir() => self.enter(&path, &relative, &folder)?,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(cause) => return Err(SourceError::Unreadable { path, cause }),
            }
        }
        Ok(())
    }

    fn enter(
        &mut self,
        path: &Path,
        relative: &[u8],
        folder: &Metadata,
    ) -> Result<(), SourceError> {
        let number = number(folder);
        if self.above.contains(&number) {
            return Ok(());
        }
        if self.above.len() == MAX_DEPTH {
            return Err(malformed(
                path,
                format!("at most {MAX_DEPTH} nested directories"),
                "more",
            ));
        }
        let visits = self.visits.entry(number).or_default();
        *visits += 1;
        if *visits > MAX_VISITS {
            return Err(malformed(
                path,
                format!("at most {MAX_VISITS} paths to a directory"),
                "more, by links",
            ));
        }
        self.above.push(number);
        self.folder(path, relative)?;
        self.above.pop();
        Ok(())
    }

    fn folder(&mut self, path: &Path, relative: &[u8]) -> Result<(), SourceError> {
        for name in self.sorted(path)? {
            let path = path.join(&name);
            let name = name.as_bytes();
            let is_wanted = self.is_wanted(name);
            match entry(&path, is_wanted)? {
                Some(Entry::Folder(folder)) => {
                    self.n_folders += 1;
                    self.enter(&path, &[relative, name, b"/"].concat(), &folder)?;
                }
                Some(Entry::File(file)) if is_wanted => {
                    let limit = self.options.max_file_bytes.get();
                    if file.len() > limit {
                        let expected = format!("a file of at most {limit} bytes");
                        return Err(malformed(&path, expected, &format!("{} bytes", file.len())));
                    }
                    let listing = &mut self.listing;
                    listing.names.push(&[relative, name]);
                    listing.largest = listing.largest.max(file.len());
                    listing.total = listing.total.saturating_add(file.len());
                }
                _ => self.n_others += 1,
            }
        }
        Ok(())
    }

    fn is_wanted(&self, name: &[u8]) -> bool {
        self.endings.is_empty()
            || self.endings.iter().any(|ending| {
                name.len()
                    .checked_sub(ending.len())
                    .is_some_and(|start| name[start..].eq_ignore_ascii_case(ending))
            })
    }

    fn sorted(&mut self, path: &Path) -> Result<Vec<OsString>, SourceError> {
        let unreadable = |cause| SourceError::Unreadable {
            path: path.to_owned(),
            cause,
        };
        let mut names = Vec::new();
        for entry in fs::read_dir(path).map_err(unreadable)? {
            let name = entry.map_err(unreadable)?.file_name();
            if name.as_bytes().starts_with(b".") {
                continue;
            }
            self.n_entries += 1;
            if self.n_entries > MAX_ENTRIES {
                return Err(malformed(
                    path,
                    format!("at most {MAX_ENTRIES} files"),
                    "more",
                ));
            }
            names.push(name);
        }
        names.sort_unstable();
        Ok(names)
    }

    fn finish(self, root: &Path) -> Result<Listing, SourceError> {
        let DirectoryLister {
            options,
            mut listing,
            n_folders,
            n_others,
            ..
        } = self;
        listing.names.shrink();
        if listing.names.len() > 0 {
            return Ok(listing);
        }
        let named = if options.extensions.is_empty() {
            "files".to_owned()
        } else {
            format!("files named *.{}", options.extensions.join(", *."))
        };
        let expected = match &options.labels {
            Labels::None => named,
            Labels::Classes => format!("{named} in one directory per class"),
            Labels::ClassesWithSplit(split) => format!("{named} in */{split}"),
        };
        let others = match n_others {
            0 => "no file".to_owned(),
            n => format!("{n} other files"),
        };
        let found = format!("{n_folders} directories and {others}");
        Err(malformed(root, expected, &found))
    }
}

/// What a path leads to. Nothing where it is neither folder nor file, or a link to nowhere that nobody wants.
fn entry(path: &Path, is_wanted: bool) -> Result<Option<Entry>, SourceError> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Ok(Some(Entry::Folder(metadata))),
        Ok(metadata) if metadata.is_file() => Ok(Some(Entry::File(metadata))),
        Ok(_) => Ok(None),
        Err(_) if !is_wanted => Ok(None),
        Err(cause) => Err(SourceError::Unreadable {
            path: path.to_owned(),
            cause,
        }),
    }
}

fn metadata(path: &Path) -> Result<Metadata, SourceError> {
    fs::metadata(path).map_err(|cause| SourceError::Unreadable {
        path: path.to_owned(),
        cause,
    })
}

fn number(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

fn malformed(path: &Path, expected: String, found: &str) -> SourceError {
    SourceError::Malformed {
        path: PathBuf::from(path),
        expected,
        found: found.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(root: &Path, extension: &str) -> Result<Vec<String>, String> {
        let options = FolderOptions {
            extensions: vec![extension.to_owned()],
            ..FolderOptions::default()
        };
        let listing = list(root, &options).map_err(|error| error.to_string())?;
        Ok((0..listing.names.len())
            .map(|index| String::from_utf8_lossy(listing.names.get(index).unwrap()).into_owned())
            .collect())
    }

    #[test]
    fn links_are_followed_but_not_in_circles() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/b/x.txt"), "x").unwrap();
        symlink(root, root.join("a/b/up")).unwrap();
        symlink("..", root.join("a/up")).unwrap();
        symlink(root.join("a/b"), root.join("c")).unwrap();
        symlink("b/x.txt", root.join("a/y.txt")).unwrap();
        assert_eq!(
            names(root, "txt").unwrap(),
            ["a/b/x.txt", "a/y.txt", "c/x.txt"]
        );
    }

    #[test]
    fn links_that_multiply_are_an_error() {
        // Level upon level with two links each to the next: 2^20 ways to one file.
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for level in 0..20 {
            let here = root.join(format!(".{level}"));
            fs::create_dir(&here).unwrap();
            for link in ["a", "b"] {
                symlink(root.join(format!(".{}", level + 1)), here.join(link)).unwrap();
            }
        }
        fs::create_dir(root.join(".20")).unwrap();
        fs::write(root.join(".20/x.txt"), "").unwrap();
        symlink(root.join(".0"), root.join("begin")).unwrap();
        let error = names(root, "txt").unwrap_err();
        assert!(
            error.contains("expected at most 64 paths to a directory, found more, by links"),
            "{error}"
        );
        fs::remove_file(root.join("begin")).unwrap();
        symlink(root.join(".14"), root.join("begin")).unwrap();
        assert_eq!(names(root, "txt").unwrap().len(), 64);
    }

    #[test]
    fn a_link_to_nowhere_is_an_error_if_it_is_wanted() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.txt"), "").unwrap();
        symlink("nowhere", folder.path().join("b.off")).unwrap();
        assert_eq!(names(folder.path(), ".txt").unwrap(), ["a.txt"]);
        assert!(names(folder.path(), "off").unwrap_err().ends_with("b.off"));
    }

    #[test]
    fn an_empty_folder_tells_what_was_looked_for() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("sub")).unwrap();
        fs::write(folder.path().join("sub/a.txt"), "").unwrap();
        assert_eq!(
            names(folder.path(), "off").unwrap_err(),
            format!(
                "{}: expected files named *.off, found 1 directories and 1 other files",
                folder.path().display()
            )
        );
        assert!(names(&folder.path().join("nowhere"), "off").is_err());
    }

    #[test]
    fn a_pipe_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.txt"), "").unwrap();
        let pipe = folder.path().join("b.txt");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert_eq!(names(folder.path(), "txt").unwrap(), ["a.txt"]);
    }

    #[test]
    fn folders_too_deep_are_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("d/".repeat(MAX_DEPTH + 2));
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("a.txt"), "").unwrap();
        assert!(
            names(folder.path(), "txt")
                .unwrap_err()
                .contains("at most 64 nested directories")
        );
    }
}
