//! From `/` to a directory, checking every step.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::trust;

/// As the kernel has it.
const MAX_LINKS: u32 = 40;
/// More than a path can have.
const MAX_STEPS: u32 = 10_000;

/// What to do about directories that are not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Make them, with mode 0700.
    Create,
    /// Fail with [`io::ErrorKind::NotFound`].
    Fail,
}

/// A directory whose parents have all been checked. Itself it has not been: the caller knows what it is for.
#[derive(Debug)]
pub(crate) struct Reached {
    /// The directory that holds it; `/` holds itself.
    pub(crate) parent: OwnedFd,
    pub(crate) name: OsString,
    /// Without links.
    pub(crate) path: PathBuf,
    pub(crate) stat: Stat,
    /// Made just now, by us.
    pub(crate) is_new: bool,
}

/// Walks to `path`, link by link. Every directory on the way must be one in which nobody else can rename or replace
/// entries, so that what was checked stays what it is.
pub(crate) fn walk(path: &Path, missing: Missing) -> io::Result<Reached> {
    let absolute = std::path::absolute(path)?;
    let mut pending: VecDeque<OsString> = steps(&absolute);
    let mut parent = open_root()?;
    let mut parent_stat = rustix::fs::fstat(&parent)?;
    let mut real = PathBuf::from("/");
    let mut reached = None;
    let mut n_links = 0;
    let mut n_steps = 0;
    while let Some(name) = pending.pop_front() {
        n_steps += 1;
        if n_steps > MAX_STEPS {
            return Err(Errno::NAMETOOLONG.into());
        }
        trust::check(&real, &parent_stat)?;
        if name == ".." {
            parent = open_directory(&parent, OsStr::new(".."))?;
            parent_stat = rustix::fs::fstat(&parent)?;
            real.pop();
            reached = None;
            continue;
        }
        let here = real.join(&name);
        let mut is_new = false;
        let stat = match rustix::fs::statat(&parent, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) if missing == Missing::Create => {
                is_new = make(&parent, &name)?;
                rustix::fs::statat(&parent, &name, AtFlags::SYMLINK_NOFOLLOW)?
            }
            Err(error) => return Err(error.into()),
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {}
            FileType::Symlink => {
                n_links += 1;
                if n_links > MAX_LINKS {
                    return Err(Errno::LOOP.into());
                }
                if trust::is_writable_by_others(&parent_stat) {
                    trust::check_link(&here, &stat)?;
                }
                let target = rustix::fs::readlinkat(&parent, &name, Vec::new())?;
                let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
                if target.is_absolute() {
                    parent = open_root()?;
                    parent_stat = rustix::fs::fstat(&parent)?;
                    real = PathBuf::from("/");
                }
                for step in steps(&target).into_iter().rev() {
                    pending.push_front(step);
                }
                reached = None;
                continue;
            }
            _ => return Err(Errno::NOTDIR.into()),
        }
        let next = open_directory(&parent, &name)?;
        // Not what was seen before: opening it may have mounted a file system there.
        parent_stat = rustix::fs::fstat(&next)?;
        let holder = std::mem::replace(&mut parent, next);
        real = here;
        reached = Some((holder, name, is_new));
    }
    let (parent, name, is_new) = match reached {
        Some(reached) => reached,
        // `/`, or a path that ends with `..`.
        None => (parent, OsString::from("."), false),
    };
    Ok(Reached {
        parent,
        name,
        path: real,
        stat: parent_stat,
        is_new,
    })
}

/// Makes a directory of mode 0700 whatever the umask is. Whether it is new.
pub(crate) fn make(parent: &OwnedFd, name: &OsStr) -> io::Result<bool> {
    match rustix::fs::mkdirat(parent, name, Mode::RWXU) {
        Ok(()) => {
            tighten(parent, name)?;
            Ok(true)
        }
        Err(Errno::EXIST) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Gives a directory of ours the mode 0700. The parent has been checked: nobody else can put anything in its place.
pub(crate) fn tighten(parent: &OwnedFd, name: &OsStr) -> io::Result<()> {
    let Err(error) = rustix::fs::chmodat(parent, name, Mode::RWXU, AtFlags::empty()) else {
        return Ok(());
    };
    // Some file systems have one mode for everything.
    match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if trust::is_private(&stat) => Ok(()),
        _ => Err(error.into()),
    }
}

fn steps(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some("..".into()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
        })
        .collect()
}

/// Only to go on from: search permission is enough.
fn open_directory(parent: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(parent, name, flags, Mode::empty())?)
}

fn open_root() -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open("/", flags, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn links_are_resolved_and_what_is_missing_is_made() {
        let root = tempfile::tempdir().unwrap();
        let real = root.path().canonicalize().unwrap();
        fs::create_dir(real.join("home")).unwrap();
        symlink("home", real.join("link")).unwrap();
        symlink(real.join("link/../link"), real.join("again")).unwrap();
        let reached = walk(&real.join("again/a/b"), Missing::Create).unwrap();
        assert_eq!(reached.path, real.join("home/a/b"));
        assert!(reached.is_new);
        let found = walk(&real.join("link/a/b"), Missing::Fail).unwrap();
        assert_eq!(found.stat.st_ino, reached.stat.st_ino);
        for made in ["home/a", "home/a/b"] {
            let mode = real.join(made).metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, 0o700);
        }
        let missing = walk(&real.join("link/c"), Missing::Fail).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_parent_that_others_can_change_is_refused_and_nothing_is_made_there() {
        let root = tempfile::tempdir().unwrap();
        let open = root.path().join("open");
        fs::create_dir(&open).unwrap();
        for open_mode in [0o777, 0o757] {
            mode(&open, open_mode);
            let error = walk(&open.join("a"), Missing::Create).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
            assert!(error.to_string().contains("open` can be changed"));
        }
        mode(&open, 0o1777);
        assert!(walk(&open.join("a"), Missing::Create).is_ok());
    }

    #[test]
    fn a_loop_of_links_and_a_file_end_the_walk() {
        let root = tempfile::tempdir().unwrap();
        symlink("loop", root.path().join("loop")).unwrap();
        fs::write(root.path().join("file"), "").unwrap();
        for name in ["loop", "loop/x", "file", "file/x"] {
            assert!(
                walk(&root.path().join(name), Missing::Create).is_err(),
                "{name}"
            );
        }
    }

    #[test]
    fn the_root_is_reached() {
        assert_eq!(
            walk(Path::new("/"), Missing::Fail).unwrap().path,
            Path::new("/")
        );
        assert_eq!(
            walk(Path::new("/usr/.."), Missing::Fail).unwrap().path,
            Path::new("/")
        );
    }
}
