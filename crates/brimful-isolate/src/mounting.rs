//! Mounts of this process's namespace, with errors that name what was to be mounted.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};
use rustix::mount::{MountAttrFlags, MoveMountFlags, OpenTreeFlags};

use crate::mounts::{self, Mount};

/// A table of mounts that is longer than this is nobody's.
const MAX_MOUNTINFO: u64 = 16 << 20;

/// Something cannot be mounted.
#[derive(Debug, thiserror::Error)]
#[error("{what} `{}`: {source}", path.display())]
pub(crate) struct MountError {
    what: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

impl MountError {
    /// Whether it looks as it does when a directory or a mount has just been removed.
    fn may_be_gone(&self) -> bool {
        matches!(
            self.source.raw_os_error(),
            Some(libc::ENOENT | libc::ENOTDIR | libc::EINVAL)
        )
    }
}

/// Makes an error of the system one that names what was tried.
pub(crate) fn at<E: Into<io::Error>>(
    what: &'static str,
    path: impl AsRef<Path>,
) -> impl FnOnce(E) -> MountError {
    let path = path.as_ref().to_owned();
    move |source| MountError {
        what,
        path,
        source: source.into(),
    }
}

/// The mounts that can be seen by their path: another one may lie on top, or on a directory above.
pub(crate) fn visible_mounts() -> Result<Vec<Mount>, MountError> {
    let path = Path::new("/proc/self/mountinfo");
    let mut table = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_MOUNTINFO).read_to_end(&mut table))
        .map_err(at("cannot read", path))?;
    let mut mounts = mounts::parse(&table);
    mounts.retain(|mount| {
        rustix::fs::statx(
            CWD,
            &mount.path,
            AtFlags::NO_AUTOMOUNT | AtFlags::SYMLINK_NOFOLLOW,
            StatxFlags::MNT_ID,
        )
        .is_ok_and(|facts| facts.stx_mnt_id == mount.id)
    });
    Ok(mounts)
}

/// How much of a tree of mounts is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// One mount.
    One,
    /// It and the mounts below it.
    All,
}

/// Shows `source` at `target` too. What is mounted on demand stays unmounted.
pub(crate) fn bind(
    source: &Path,
    target: &Path,
    depth: Depth,
    attributes: MountAttrFlags,
) -> Result<(), MountError> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_NO_AUTOMOUNT;
    if depth == Depth::All {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    let tree = rustix::mount::open_tree(CWD, source, flags).map_err(at("cannot bind", source))?;
    // Before anybody can see it.
    set_attributes(&tree, depth, attributes).map_err(at("cannot restrict", source))?;
    rustix::mount::move_mount(
        tree.as_fd(),
        "",
        CWD,
        target,
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_SYMLINKS,
    )
    .map_err(at("cannot bind", source))
}

/// Makes a mount read-only, without those below it.
pub(crate) fn make_read_only(path: &Path) -> Result<(), MountError> {
    let mount = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .map_err(at("cannot open", path))?;
    set_attributes(&mount, Depth::One, MountAttrFlags::MOUNT_ATTR_RDONLY)
        .map_err(at("cannot make read-only:", path))
}

/// `struct mount_attr` of the kernel.
#[repr(C)]
struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

const AT_RECURSIVE: libc::c_uint = 0x8000;

/// Adds attributes to a mount. Needs Linux 5.12.
fn set_attributes(mount: &OwnedFd, depth: Depth, attributes: MountAttrFlags) -> io::Result<()> {
    if attributes.is_empty() {
        return Ok(());
    }
    let attributes = MountAttr {
        attr_set: u64::from(attributes.bits()),
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    let empty_path = libc::AT_EMPTY_PATH.cast_unsigned();
    let flags = match depth {
        Depth::One => empty_path,
        Depth::All => empty_path | AT_RECURSIVE,
    };
    #[expect(unsafe_code, reason = "no crate of ours wraps mount_setattr")]
    // SAFETY: the file descriptor is open, the path is a C string, and the kernel reads `size_of::<MountAttr>()` bytes.
    let outcome = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            std::ptr::from_ref(&attributes),
            size_of::<MountAttr>(),
        )
    };
    if outcome == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Does something with a path of the machine that another process may remove or unmount at any time.
///
/// What is gone needs no protection: nothing comes of it then. What has only changed is tried once more.
pub(crate) fn unless_vanished(
    path: &Path,
    mut attempt: impl FnMut() -> Result<(), MountError>,
) -> Result<(), MountError> {
    match attempt() {
        Err(error) if error.may_be_gone() => match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            _ => attempt(),
        },
        outcome => outcome,
    }
}

/// Creates a directory of brimful's own, unless it is there.
pub(crate) fn make_directory(path: &Path) -> Result<(), MountError> {
    match brimful_private::new_directory(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        outcome => outcome.map_err(at("cannot create", path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of attempts, and whether the outcome is a success, where each attempt fails with `errno`.
    fn attempts(path: &Path, errno: i32) -> (usize, bool) {
        let mut n_attempts = 0;
        let outcome = unless_vanished(path, || {
            n_attempts += 1;
            Err(at("cannot bind", path)(io::Error::from_raw_os_error(errno)))
        });
        (n_attempts, outcome.is_ok())
    }

    #[test]
    fn what_is_gone_needs_no_mount_and_what_is_there_is_tried_again() {
        let directory = tempfile::tempdir().unwrap();
        let gone = directory.path().join("gone");
        for errno in [libc::ENOENT, libc::EINVAL, libc::ENOTDIR] {
            assert_eq!(attempts(&gone, errno), (1, true));
            assert_eq!(attempts(directory.path(), errno), (2, false));
        }
        assert_eq!(attempts(&gone, libc::EPERM), (1, false));
    }

    #[test]
    fn a_directory_that_came_back_is_mounted_after_all() {
        let directory = tempfile::tempdir().unwrap();
        let mut outcomes = vec![Ok(()), Err(libc::EINVAL)];
        let outcome = unless_vanished(directory.path(), || {
            let next = outcomes.pop().expect("two attempts are enough");
            next.map_err(|errno| {
                at("cannot bind", directory.path())(io::Error::from_raw_os_error(errno))
            })
        });
        assert!(outcome.is_ok() && outcomes.is_empty());
    }
}
