//! What is written into a layer: directories, copies, whiteouts, references.

use std::sync::atomic::{AtomicU32, Ordering};

use libc::stat;

use crate::config::{self, Config, REAL};
use crate::copy::copy_file;
use crate::dir_state::{DirState, bit};
use crate::directory_mode::{HAS_MODE, directory_mode, set_directory_mode};
use crate::markers::{OPAQUE, REFERENCE, WHITEOUT};
use crate::path::{self, PathBuf};
use crate::resolve::{Found, Target, lookup, state_of, top};
use crate::sys::{self, Fd, Outcome};

/// The path in a layer.
pub(crate) fn physical(config: &Config, place: u8, logical: &[u8]) -> Outcome<PathBuf> {
    let mut path = PathBuf::new();
    path.set(&[config.root(place), logical])?;
    Ok(path)
}

/// A new name for unfinished work in a layer.
pub(crate) fn temporary(config: &Config, place: u8) -> Outcome<PathBuf> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let layer = config.layers.get(usize::from(place)).ok_or(libc::EIO)?;
    let mut path = PathBuf::new();
    path.set(&[&layer.directory, b"/t"])?;
    // SAFETY: cannot fail and touches nothing.
    let process = unsafe { libc::getpid() }.cast_unsigned();
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut name = [0_u8; 16];
    let value = u64::from(process) << 32 | u64::from(number);
    for (i, byte) in name.iter_mut().enumerate() {
        let digit = (value >> (60 - 4 * i) & 15) as u8;
        *byte = if digit < 10 {
            b'0' + digit
        } else {
            b'a' + digit - 10
        };
    }
    path.push_component(&name)?;
    Ok(path)
}

/// Makes the directories of a layer that every other call relies on.
pub(crate) fn make_layer(config: &Config, place: u8) -> Outcome<()> {
    let layer = config.layers.get(usize::from(place)).ok_or(libc::EIO)?;
    for name in [b"".as_slice(), b"/t", b"/f"] {
        let mut path = PathBuf::new();
        path.set(&[&layer.directory, name])?;
        match sys::make_directory(&mut path, 0o700) {
            Ok(()) | Err(libc::EEXIST) => {}
            Err(error) => return Err(error),
        }
    }
    let mut root = PathBuf::from_bytes(&layer.root)?;
    let real = sys::lstat(&mut PathBuf::new())?;
    dress(&mut root, &real, real_is_closed(&PathBuf::new()))
}

/// Whether the user may not create names in a real directory.
fn real_is_closed(logical: &PathBuf) -> bool {
    let Ok(mut path) = PathBuf::from_bytes(logical.as_bytes()) else {
        return true;
    };
    sys::access(path.as_ptr(), libc::W_OK | libc::X_OK, libc::AT_EACCESS).is_err()
}

/// Gives a directory of a layer the mode and times of the one it stands for. The owner can always write into it, since
/// copies below it must be possible; what the script is to see stands in [`crate::markers::MODE`].
fn dress(path: &mut PathBuf, stat: &stat, is_closed: bool) -> Outcome<()> {
    let mode = stat.st_mode & 0o7777 & !HAS_MODE;
    set_directory_mode(path, mode, is_closed)?;
    if sys::effective_user() == 0 {
        let _ = sys::set_owner(path, stat.st_uid, stat.st_gid);
    }
    let _ = sys::set_times(path, &sys::times_of(stat));
    Ok(())
}

/// Whether the script may create and remove names in a directory.
pub(crate) fn check_writable(config: &Config, logical: &[u8], state: DirState) -> Outcome<()> {
    for place in config
        .layers_of(state.realm)
        .filter(|place| state.has(*place))
    {
        let mut path = physical(config, place, logical)?;
        let Ok(stat) = sys::lstat(&mut path) else {
            continue;
        };
        let (mode, is_closed) = directory_mode(&path, &stat);
        if sys::effective_user() != 0 && (is_closed || mode & 0o300 != 0o300) {
            return Err(libc::EACCES);
        }
        return Ok(());
    }
    let mut path = PathBuf::from_bytes(logical)?;
    sys::access(path.as_ptr(), libc::W_OK | libc::X_OK, libc::AT_EACCESS)
}

/// Makes sure that a visible directory lies in the layer that takes writes.
pub(crate) fn ensure_directory(config: &Config, logical: &[u8], state: DirState) -> Outcome<()> {
    let place = top(state.realm);
    if place == REAL {
        return Ok(());
    }
    let mut path = physical(config, place, logical)?;
    if state.has(place) && sys::lstat(&mut path).is_ok() {
        return Ok(());
    }
    // The deepest directory that is there.
    let root = config.root(place).len();
    while sys::lstat(&mut path).is_err() {
        if path.len() <= root {
            make_layer(config, place)?;
            break;
        }
        path.pop();
    }
    let mut depth = path.len().saturating_sub(root);
    while depth < logical.len() {
        let rest = logical.get(depth + 1..).unwrap_or_default();
        let name = rest.split(|byte| *byte == b'/').next().unwrap_or_default();
        depth += 1 + name.len();
        let directory = logical.get(..depth).unwrap_or_default();
        copy_directory(config, place, directory)?;
    }
    config::changed();
    Ok(())
}

/// Makes one directory in a layer whose parent is there.
fn copy_directory(config: &Config, place: u8, logical: &[u8]) -> Outcome<()> {
    let mut target = physical(config, place, logical)?;
    let mut parent = PathBuf::from_bytes(path::parent(target.as_bytes()))?;
    let before = sys::lstat(&mut parent)?;
    let mut unfinished = temporary(config, place)?;
    sys::make_directory(&mut unfinished, 0o700)?;
    let dressed = source_of_directory(config, place, logical).and_then(|source| match source {
        Some((stat, is_closed)) => dress(&mut unfinished, &stat, is_closed),
        // A shared layer may lie below directories that only a branch has.
        None => sys::set_mode(&mut unfinished, 0o755),
    });
    let moved = dressed.and_then(|()| move_new(&mut unfinished, &mut target));
    if moved.is_err() {
        remove_tree(&mut unfinished);
    }
    match moved {
        Err(libc::EEXIST | libc::ENOTEMPTY) => return Ok(()),
        other => other?,
    }
    let _ = sys::set_times(&mut parent, &sys::times_of(&before));
    Ok(())
}

/// What a directory looks like below a layer, and whether it is closed.
fn source_of_directory(
    config: &Config,
    place: u8,
    logical: &[u8],
) -> Outcome<Option<(stat, bool)>> {
    let Ok(state) = state_of(config, logical) else {
        return Ok(None);
    };
    let source = config
        .layers_of(state.realm)
        .chain([REAL])
        .find(|source| *source != place && state.has(*source))
        .unwrap_or(REAL);
    let mut path = physical(config, source, logical)?;
    let Ok(mut stat) = sys::lstat(&mut path) else {
        return Ok(None);
    };
    if source == REAL {
        return Ok(Some((stat, real_is_closed(&path))));
    }
    let (mode, is_closed) = directory_mode(&path, &stat);
    stat.st_mode = stat.st_mode & libc::S_IFMT | mode;
    Ok(Some((stat, is_closed)))
}

/// Renames without replacing, where the file system can tell.
fn move_new(from: &mut PathBuf, to: &mut PathBuf) -> Outcome<()> {
    match sys::rename(from, to, sys::RENAME_NOREPLACE) {
        Err(libc::EINVAL | libc::ENOSYS | libc::EPERM) => {
            if sys::lstat(to).is_ok() {
                return Err(libc::EEXIST);
            }
            sys::rename(from, to, 0)
        }
        other => other,
    }
}

/// Copies what was found into the layer that takes writes, unless it is there.
pub(crate) fn copy_up(config: &Config, target: &mut Target, with_data: bool) -> Outcome<()> {
    let found = target.existing()?;
    let place = target.top();
    if place == REAL || target.is_on_top() {
        return Ok(());
    }
    if found.is_directory() {
        ensure_directory(config, target.logical.as_bytes(), found.state)?;
        target.physical = physical(config, place, target.logical.as_bytes())?;
        return Ok(());
    }
    ensure_directory(
        config,
        path::parent(target.logical.as_bytes()),
        target.parent,
    )?;
    let mut unfinished = temporary(config, place)?;
    let copied = copy_node(
        &mut target.physical,
        &mut unfinished,
        &found.stat,
        with_data,
    );
    let mut to = physical(config, place, target.logical.as_bytes())?;
    let installed = copied.and_then(|()| {
        let _lock = Lock::take(config, place);
        keeping_times_of_parent(&mut to, |to| {
            if !found.is_reference || found.place != place {
                return match move_new(&mut unfinished, to) {
                    // Another thread was faster.
                    Err(libc::EEXIST) => sys::unlink(&mut unfinished, 0),
                    other => other,
                };
            }
            if is_special(to) {
                sys::rename(&mut unfinished, to, 0)
            } else {
                sys::unlink(&mut unfinished, 0)
            }
        })
    });
    if installed.is_err() {
        let _ = sys::unlink(&mut unfinished, 0);
    }
    installed?;
    config::written();
    target.physical = to;
    if let Some(found) = &mut target.found {
        found.place = place;
        found.is_reference = false;
    }
    Ok(())
}

/// Whether a whiteout or a reference stands at a path of a layer.
fn is_special(path: &mut PathBuf) -> bool {
    let mut link = PathBuf::new();
    sys::read_link(path, &mut link).is_ok()
        && (link.as_bytes() == WHITEOUT || link.as_bytes().starts_with(REFERENCE))
}

fn keeping_times_of_parent(
    path: &mut PathBuf,
    change: impl FnOnce(&mut PathBuf) -> Outcome<()>,
) -> Outcome<()> {
    let mut parent = PathBuf::from_bytes(path::parent(path.as_bytes()))?;
    let before = sys::lstat(&mut parent);
    change(path)?;
    if let Ok(before) = before {
        let _ = sys::set_times(&mut parent, &sys::times_of(&before));
    }
    Ok(())
}

/// Copies anything but a directory to a new path.
pub(crate) fn copy_node(
    from: &mut PathBuf,
    to: &mut PathBuf,
    stat: &stat,
    with_data: bool,
) -> Outcome<()> {
    match sys::file_type(stat) {
        libc::S_IFREG => copy_file(from, to, stat, with_data),
        libc::S_IFLNK => {
            let mut link = PathBuf::new();
            sys::read_link(from, &mut link)?;
            sys::symlink(link.as_ptr(), to)?;
            let _ = sys::set_times(to, &sys::times_of(stat));
            Ok(())
        }
        libc::S_IFIFO => {
            sys::make_node(to, libc::S_IFIFO | 0o600, 0)?;
            sys::set_mode(to, stat.st_mode & 0o7777)
        }
        // A socket or a device has no content of its own.
        _ => make_reference(from, to),
    }
}

/// Lets a new path of a layer stand for a file elsewhere.
pub(crate) fn make_reference(file: &PathBuf, to: &mut PathBuf) -> Outcome<()> {
    let mut link = PathBuf::new();
    link.set(&[REFERENCE, file.as_bytes()])?;
    sys::symlink(link.as_ptr(), to)
}

/// Whether something below the layer that takes writes would show at the target's path.
pub(crate) fn shows_below(config: &Config, target: &Target) -> Outcome<Option<Found>> {
    let state = DirState {
        realm: target.realm,
        mask: target.mask & !bit(target.top()),
    };
    lookup(config, state, &target.logical, &mut PathBuf::new())
}

/// Puts a whiteout at a path of a layer, in place of what is there unless that is a directory.
pub(crate) fn put_whiteout(config: &Config, place: u8, logical: &[u8]) -> Outcome<()> {
    let mut path = physical(config, place, logical)?;
    let whiteout = c"brimful-whiteout:";
    match sys::symlink(whiteout.as_ptr(), &mut path) {
        Err(libc::EEXIST) => {
            let mut unfinished = temporary(config, place)?;
            sys::symlink(whiteout.as_ptr(), &mut unfinished)?;
            let moved = sys::rename(&mut unfinished, &mut path, 0);
            if moved.is_err() {
                let _ = sys::unlink(&mut unfinished, 0);
            }
            moved
        }
        other => other,
    }
}

/// Lets a directory of a layer hide what lies below it.
pub(crate) fn make_opaque(directory: &mut PathBuf) -> Outcome<()> {
    let mut marker = PathBuf::new();
    marker.set(&[directory.as_bytes(), b"/", OPAQUE])?;
    match keeping_times_of_parent(&mut marker, |marker| {
        sys::symlink(c"brimful-opaque:".as_ptr(), marker)
    }) {
        Err(libc::EEXIST) => Ok(()),
        other => other,
    }
}

/// Removes a directory of a layer with all that is in it.
pub(crate) fn remove_tree(directory: &mut PathBuf) {
    remove_below(directory);
    let _ = sys::unlink(directory, libc::AT_REMOVEDIR);
}

fn remove_below(directory: &mut PathBuf) {
    let Ok(names) = crate::entries::names(directory) else {
        return;
    };
    let len = directory.len();
    for name in names {
        if directory.push_component(&name).is_ok()
            && matches!(sys::unlink(directory, 0), Err(libc::EISDIR | libc::EPERM))
        {
            remove_below(directory);
            let _ = sys::unlink(directory, libc::AT_REMOVEDIR);
        }
        directory.truncate(len);
    }
}

/// Serialises changes of one name in a layer between threads and processes. Waits at most two seconds: a holder that
/// was stopped, or interrupted by a signal whose handler came here, must not stop the program.
#[derive(Debug)]
pub(crate) struct Lock(Option<Fd>);

impl Lock {
    pub(crate) fn take(config: &Config, place: u8) -> Self {
        let take = || -> Outcome<Fd> {
            let layer = config.layers.get(usize::from(place)).ok_or(libc::EIO)?;
            let mut path = PathBuf::new();
            path.set(&[&layer.directory, b"/t/lock"])?;
            let fd = sys::open(&mut path, libc::O_RDWR | libc::O_CREAT, 0o600)?;
            let operation = sys::int(libc::LOCK_EX | libc::LOCK_NB);
            let pause = libc::timespec {
                tv_sec: 0,
                tv_nsec: 200_000,
            };
            for _ in 0..10_000 {
                match sys::call(libc::SYS_flock, [sys::int(fd.0), operation, 0, 0, 0, 0]) {
                    Err(libc::EWOULDBLOCK | libc::EINTR) => {
                        let _ = sys::call(
                            libc::SYS_nanosleep,
                            [sys::pointer(&raw const pause), 0, 0, 0, 0, 0],
                        );
                    }
                    Err(error) => return Err(error),
                    Ok(_) => break,
                }
            }
            Ok(fd)
        };
        Self(take().ok())
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if let Some(fd) = &self.0 {
            // A child that was forked meanwhile holds the descriptor too: closing it would not be enough.
            let _ = sys::call(
                libc::SYS_flock,
                [sys::int(fd.0), sys::int(libc::LOCK_UN), 0, 0, 0, 0],
            );
        }
    }
}
