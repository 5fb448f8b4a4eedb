//! Directories that only this user can enter.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Dir, Mode, OFlags};

use crate::accounts;
use crate::trust;
pub use crate::walk::Missing;
use crate::walk::{Reached, make, tighten, walk};

/// Entries that are looked at to tell whether a directory is brimful's alone.
const MAX_ENTRIES: usize = 100;

/// A directory that the user chose for brimful's files: the directory itself, or this user's part of a shared one.
/// Returns its path without links.
///
/// - One that is missing is made, with mode 0700.
/// - One of ours that holds nothing but `entries` gets mode 0700, whoever could read it before. One that holds other
///   files too keeps its mode, and is refused if others may write to it.
/// - In a directory of root, or one that is sticky and others may write to (`chmod 1777`), every user has the
///   subdirectory `uid-UID` of mode 0700. Nobody but root can rename or remove it.
/// - One of somebody else is refused.
pub fn own_directory(path: &Path, entries: &[&str], missing: Missing) -> io::Result<PathBuf> {
    let reached = walk(path, missing)?;
    if reached.is_new {
        return Ok(reached.path);
    }
    let is_shared = trust::is_sticky(&reached.stat) && trust::is_writable_by_others(&reached.stat);
    if is_shared || reached.stat.st_uid != accounts::user() {
        trust::check(&reached.path, &reached.stat)?;
        let part = reached.path.join(format!("uid-{}", accounts::user()));
        let part = walk(&part, missing)?;
        return owned(part).map(|part| part.path);
    }
    if holds_only(&reached, entries) {
        return owned(reached).map(|reached| reached.path);
    }
    trust::check(&reached.path, &reached.stat)?;
    Ok(reached.path)
}

/// A directory of brimful's own: made with mode 0700 with everything that is missing above it, or tightened to that.
/// Returns its path without links.
pub fn create_directory(path: &Path) -> io::Result<PathBuf> {
    owned(walk(path, Missing::Create)?).map(|reached| reached.path)
}

/// A new directory of mode 0700 in a directory that has been checked. Fails where there is anything of that name.
pub fn new_directory(path: &Path) -> io::Result<()> {
    let (parent, name) = parts(path)?;
    let parent = open_parent(parent)?;
    if make(&parent, name)? {
        return Ok(());
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Makes a directory that the user named, with everything that is missing above it, with mode 0700. One that is there
/// stays as it is.
pub fn create_missing_directories(path: &Path) -> io::Result<()> {
    if path.as_os_str().is_empty() || path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        create_missing_directories(parent)?;
    }
    match new_directory(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made,
    }
}

/// Makes sure that a directory is ours and that nobody else can enter it.
fn owned(reached: Reached) -> io::Result<Reached> {
    if reached.stat.st_uid != accounts::user() {
        let problem = "belongs to another user";
        return Err(trust::refused(&reached.path, &reached.stat, problem).into());
    }
    if reached.stat.st_mode & 0o7777 & !0o2000 != 0o700 {
        tighten(&reached.parent, &reached.name)?;
    }
    Ok(reached)
}

/// Whether nothing but brimful's own entries are in it, so that its mode is brimful's to change.
fn holds_only(reached: &Reached, entries: &[&str]) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(&reached.parent, &reached.name, flags, Mode::empty())
        .and_then(Dir::new)
        .is_ok_and(|listing| {
            listing.take(MAX_ENTRIES).all(|entry| {
                entry.is_ok_and(|entry| {
                    let name = entry.file_name().to_bytes();
                    matches!(name, b"." | b"..")
                        || entries.iter().any(|known| known.as_bytes() == name)
                })
            })
        })
}

pub(crate) fn parts(path: &Path) -> io::Result<(&Path, &std::ffi::OsStr)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    Ok((parent, name))
}

pub(crate) fn open_parent(parent: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(parent, flags, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    const ENTRIES: &[&str] = &["runs", "history"];

    fn setup(mode: u32) -> (tempfile::TempDir, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().canonicalize().unwrap().join("state");
        fs::create_dir(&path).unwrap();
        chmod(&path, mode);
        (root, path)
    }

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().mode() & 0o7777
    }

    fn own(path: &Path) -> io::Result<PathBuf> {
        own_directory(path, ENTRIES, Missing::Create)
    }

    #[test]
    fn a_missing_directory_is_made_only_where_asked() {
        let (_root, path) = setup(0o755);
        let below = path.join("a/b");
        let error = own_directory(&below, ENTRIES, Missing::Fail).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert_eq!(own(&below).unwrap(), below);
        assert_eq!(
            (mode(&below), mode(&path.join("a")), mode(&path)),
            (0o700, 0o700, 0o755)
        );
    }

    #[test]
    fn an_open_directory_of_ours_is_tightened() {
        for open in [0o777, 0o775, 0o755, 0o2775, 0o500] {
            let (_root, path) = setup(open);
            fs::create_dir(path.join("runs")).unwrap_or_default();
            assert_eq!(own(&path).unwrap(), path);
            assert_eq!(mode(&path) & 0o777, 0o700, "{open:o}");
        }
    }

    #[test]
    fn a_directory_that_holds_other_files_keeps_its_mode() {
        let (_root, path) = setup(0o755);
        fs::write(path.join("train.py"), "").unwrap();
        assert_eq!(own(&path).unwrap(), path);
        assert_eq!(mode(&path), 0o755);
        chmod(&path, 0o777);
        let error = own(&path).unwrap_err();
        assert!(error.to_string().contains("chmod go-w"), "{error}");
        assert_eq!(mode(&path), 0o777);
    }

    #[test]
    fn every_user_has_a_part_of_a_shared_directory() {
        let (_root, path) = setup(0o1777);
        let expected = path.join(format!("uid-{}", accounts::user()));
        let error = own_directory(&path, ENTRIES, Missing::Fail).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert_eq!(own(&path).unwrap(), expected);
        assert_eq!((mode(&expected), mode(&path)), (0o700, 0o1777));
        chmod(&expected, 0o777);
        assert_eq!(own(&path).unwrap(), expected);
        assert_eq!(mode(&expected), 0o700);
    }

    #[test]
    fn a_new_directory_is_never_one_that_is_there() {
        let (_root, path) = setup(0o700);
        new_directory(&path.join("a")).unwrap();
        assert_eq!(mode(&path.join("a")), 0o700);
        std::os::unix::fs::symlink("a", path.join("link")).unwrap();
        for name in ["a", "link"] {
            let error = new_directory(&path.join(name)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        }
        assert!(new_directory(&path.join("missing/a")).is_err());
    }

    #[test]
    fn a_link_in_place_of_our_directory_is_followed_only_to_what_is_ours() {
        let (_root, path) = setup(0o700);
        fs::create_dir(path.join("elsewhere")).unwrap();
        std::os::unix::fs::symlink("elsewhere", path.join("runs")).unwrap();
        assert_eq!(
            create_directory(&path.join("runs")).unwrap(),
            path.join("elsewhere")
        );
        std::os::unix::fs::symlink("/usr", path.join("history")).unwrap();
        if accounts::user() != 0 {
            assert!(create_directory(&path.join("history")).is_err());
        }
    }

    #[test]
    fn named_directories_are_made_and_left_alone() {
        let (_root, path) = setup(0o755);
        create_missing_directories(&path.join("a/b")).unwrap();
        create_missing_directories(&path).unwrap();
        assert_eq!((mode(&path.join("a/b")), mode(&path)), (0o700, 0o755));
    }
}
