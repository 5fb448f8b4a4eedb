//! Creating and removing names: directories, links, nodes.

use std::ffi::{c_char, c_int};

use libc::{AT_FDCWD, AT_REMOVEDIR, AT_SYMLINK_FOLLOW, dev_t, mode_t};

use crate::abi::{exports, text};
use crate::config::{self, Config, REAL, config};
use crate::directory_mode::directory_mode;
use crate::layer::{
    self, Lock, check_writable, copy_up, ensure_directory, physical, put_whiteout, remove_tree,
    shows_below,
};
use crate::list;
use crate::markers::is_reserved;
use crate::markers::{REFERENCE, WHITEOUT};
use crate::path::is_kernel_path;
use crate::path::{self, PathBuf};
use crate::resolve::is_whiteout;
use crate::resolve::{Found, Last, MAX_PATH, Target, resolve};
use crate::sys::{self, Outcome, int, pointer};

/// Makes a new name in the layer that takes writes, in place of a whiteout if there is one.
pub(crate) fn create_name(
    config: &Config,
    target: &mut Target,
    make: impl Fn(&mut PathBuf, bool) -> Outcome<()>,
) -> Outcome<()> {
    let place = target.top();
    if place == REAL {
        target.physical.set(&[target.logical.as_bytes()])?;
        return make(&mut target.physical, false);
    }
    if is_reserved(path::name(target.logical.as_bytes())) {
        return Err(libc::EPERM);
    }
    let parent = path::parent(target.logical.as_bytes());
    check_writable(config, parent, target.parent)?;
    ensure_directory(config, parent, target.parent)?;
    target.physical = physical(config, place, target.logical.as_bytes())?;
    config::written();
    if !is_whiteout(&mut target.physical) {
        return make(&mut target.physical, false);
    }
    let _lock = Lock::take(config, place);
    if !is_whiteout(&mut target.physical) {
        return Err(libc::EEXIST);
    }
    let mut unfinished = layer::temporary(config, place)?;
    make(&mut unfinished, true)?;
    let moved = match sys::rename(&mut unfinished, &mut target.physical, sys::RENAME_EXCHANGE) {
        Ok(()) => sys::unlink(&mut unfinished, 0),
        Err(_) => sys::unlink(&mut target.physical, 0)
            .and_then(|()| sys::rename(&mut unfinished, &mut target.physical, 0)),
    };
    if moved.is_err() && sys::unlink(&mut unfinished, 0).is_err() {
        remove_tree(&mut unfinished);
    }
    moved
}

fn make_directory_at(at: c_int, path: *const c_char, mode: mode_t) -> Outcome<c_int> {
    let same = || {
        sys::call(
            libc::SYS_mkdirat,
            [int(at), pointer(path), mode as usize, 0, 0, 0],
        )
        .map(sys::to_int)
    };
    let Some((config, mut target)) = resolve_name(at, path)? else {
        return same();
    };
    if target.found.is_some() {
        return Err(libc::EEXIST);
    }
    let is_layer = target.top() != REAL;
    create_name(config, &mut target, |path, hides| {
        sys::make_directory(path, mode)?;
        if is_layer {
            let stat = sys::lstat(path)?;
            if stat.st_mode & 0o700 != 0o700 {
                sys::set_mode(path, 0o700)?;
                crate::directory_mode::set_directory_mode(path, stat.st_mode & 0o7777, false)?;
            }
        }
        if hides {
            layer::make_opaque(path)
        } else {
            Ok(())
        }
    })?;
    config::changed();
    Ok(0)
}

/// Resolves a name that is to be created or removed. `None`: the kernel is to be asked with the same arguments.
pub(crate) fn resolve_name(
    at: c_int,
    path: *const c_char,
) -> Outcome<Option<(&'static Config, Target)>> {
    let Some(config) = config() else {
        return Ok(None);
    };
    let text = text(path)?;
    if is_kernel_path(text) {
        return Ok(None);
    }
    let mut target = Target::new();
    resolve(config, at, text, Last::Name, &mut target)?;
    Ok(Some((config, target)))
}

fn symlink_at(link: *const c_char, at: c_int, path: *const c_char) -> Outcome<c_int> {
    let same = || {
        let arguments = [pointer(link), int(at), pointer(path), 0, 0, 0];
        sys::call(libc::SYS_symlinkat, arguments).map(sys::to_int)
    };
    if config().is_none() {
        return same();
    }
    let link_text = text(link)?;
    if link_text.is_empty() {
        return Err(libc::ENOENT);
    }
    if link_text.len() > MAX_PATH {
        return Err(libc::ENAMETOOLONG);
    }
    let Some((config, mut target)) = resolve_name(at, path)? else {
        return same();
    };
    if link_text.starts_with(WHITEOUT) || link_text.starts_with(REFERENCE) {
        return Err(libc::EINVAL);
    }
    check_new(&target)?;
    create_name(config, &mut target, |path, _| sys::symlink(link, path))?;
    Ok(0)
}

/// A new name that is no directory: it must not be there, and has no slash behind it.
fn check_new(target: &Target) -> Outcome<()> {
    if target.found.is_some() {
        return Err(libc::EEXIST);
    }
    if target.has_trailing_slash {
        return Err(libc::ENOENT);
    }
    Ok(())
}

fn make_node_at(at: c_int, path: *const c_char, mode: mode_t, device: dev_t) -> Outcome<c_int> {
    let Some((config, mut target)) = resolve_name(at, path)? else {
        return sys::call(
            libc::SYS_mknodat,
            [int(at), pointer(path), mode as usize, device as usize, 0, 0],
        )
        .map(sys::to_int);
    };
    check_new(&target)?;
    create_name(config, &mut target, |path, _| {
        sys::make_node(path, mode, device)
    })?;
    Ok(0)
}

pub(crate) fn link_at(
    from_at: c_int,
    from: *const c_char,
    to_at: c_int,
    to: *const c_char,
    flags: c_int,
) -> Outcome<c_int> {
    let same = || sys::link_at([from_at, to_at], from, to, flags).map(|()| 0);
    let Some(config) = config() else {
        return same();
    };
    let from_text = text(from)?;
    if is_kernel_path(from_text) || from_text.is_empty() && flags & libc::AT_EMPTY_PATH != 0 {
        // An unnamed file that gets its name.
        let Some((_, mut target)) = resolve_name(to_at, to)? else {
            return same();
        };
        check_new(&target)?;
        create_name(config, &mut target, |path, _| {
            sys::link_at([from_at, AT_FDCWD], from, path.as_ptr(), flags)
        })?;
        return Ok(0);
    }
    if text(to)?.is_empty() {
        return Err(libc::ENOENT);
    }
    let last = if flags & AT_SYMLINK_FOLLOW == 0 {
        Last::Keep
    } else {
        Last::Follow
    };
    let mut source = Target::new();
    resolve(config, from_at, from_text, last, &mut source)?;
    let found = source.existing()?;
    let Some((_, mut target)) = resolve_name(to_at, to)? else {
        return Err(libc::EXDEV);
    };
    check_new(&target)?;
    if found.is_directory() {
        return Err(libc::EPERM);
    }
    if source.top() != target.top() {
        return Err(libc::EXDEV);
    }
    if target.top() != REAL {
        check_writable(
            config,
            path::parent(target.logical.as_bytes()),
            target.parent,
        )?;
        copy_up(config, &mut source, true)?;
    }
    let mut from = PathBuf::from_bytes(source.physical.as_bytes())?;
    let from = from.as_ptr();
    create_name(config, &mut target, |path, _| sys::link(from, path, 0))?;
    Ok(0)
}

pub(crate) fn remove_at(at: c_int, path: *const c_char, flags: c_int) -> Outcome<c_int> {
    let Some((config, target)) = resolve_name(at, path)? else {
        return sys::call(
            libc::SYS_unlinkat,
            [int(at), pointer(path), int(flags), 0, 0, 0],
        )
        .map(sys::to_int);
    };
    let found = target.existing()?;
    if flags & AT_REMOVEDIR == 0 {
        if target.is_dot {
            return Err(libc::EISDIR);
        }
        if found.is_directory() {
            if target.top() != REAL {
                check_removable(config, &target, found)?;
            }
            return Err(libc::EISDIR);
        }
        if target.has_trailing_slash {
            return Err(libc::ENOTDIR);
        }
        remove_file(config, &target, found)?;
    } else {
        if target.is_dot {
            let dots = text(path)?;
            let name = path::name(dots.strip_suffix(b"/").unwrap_or(dots));
            return Err(match name {
                b"." => libc::EINVAL,
                b".." => libc::ENOTEMPTY,
                _ => libc::EBUSY,
            });
        }
        remove_directory(config, &target, found)?;
    }
    Ok(0)
}

/// Removes anything but a directory from the view.
pub(crate) fn remove_file(config: &Config, target: &Target, found: Found) -> Outcome<()> {
    let place = target.top();
    let logical = target.logical.as_bytes();
    if place == REAL {
        return sys::unlink(&mut PathBuf::from_bytes(logical)?, 0);
    }
    check_removable(config, target, found)?;
    if shows_below(config, target)?.is_some() {
        ensure_directory(config, path::parent(logical), target.parent)?;
        put_whiteout(config, place, logical)?;
        config::written();
        return Ok(());
    }
    sys::unlink(&mut physical(config, place, logical)?, 0)
}

/// Whether the user may remove a name: its directory is writable, and not sticky unless the file is the user's.
pub(crate) fn check_removable(config: &Config, target: &Target, found: Found) -> Outcome<()> {
    let parent = path::parent(target.logical.as_bytes());
    check_writable(config, parent, target.parent)?;
    let user = sys::effective_user();
    if user == 0 || found.stat.st_uid == user || !target.parent.has(REAL) {
        return Ok(());
    }
    let stat = sys::lstat(&mut PathBuf::from_bytes(parent)?)?;
    if stat.st_mode & libc::S_ISVTX != 0 && stat.st_uid != user {
        return Err(libc::EPERM);
    }
    Ok(())
}

fn remove_directory(config: &Config, target: &Target, found: Found) -> Outcome<()> {
    if !found.is_directory() {
        return Err(libc::ENOTDIR);
    }
    let place = target.top();
    let logical = target.logical.as_bytes();
    if place == REAL {
        return sys::unlink(&mut PathBuf::from_bytes(logical)?, AT_REMOVEDIR);
    }
    check_removable(config, target, found)?;
    if !list::is_empty(config, logical, found.state)? {
        return Err(libc::ENOTEMPTY);
    }
    let hides = shows_below(config, target)?.is_some();
    ensure_directory(config, path::parent(logical), target.parent)?;
    let removed = if found.state.has(place) {
        take_away(config, place, logical, hides)
    } else {
        put_whiteout(config, place, logical)
    };
    config::changed();
    removed
}

/// Removes a directory of a layer, with the marks in it, and leaves a whiteout where something lies below.
pub(crate) fn take_away(config: &Config, place: u8, logical: &[u8], hides: bool) -> Outcome<()> {
    let _lock = Lock::take(config, place);
    let mut path = physical(config, place, logical)?;
    let mut away = layer::temporary(config, place)?;
    if hides {
        sys::symlink(c"brimful-whiteout:".as_ptr(), &mut away)?;
        if sys::rename(&mut away, &mut path, sys::RENAME_EXCHANGE).is_err() {
            sys::unlink(&mut away, 0)?;
            sys::rename(&mut path, &mut away, 0)?;
            put_whiteout(config, place, logical)?;
        }
    } else {
        sys::rename(&mut path, &mut away, 0)?;
    }
    remove_tree(&mut away);
    Ok(())
}

/// Whether the script may search a directory of a layer.
pub(crate) fn may_list(path: &PathBuf, found: Found) -> bool {
    sys::effective_user() == 0
        || found.place == REAL
        || directory_mode(path, &found.stat).0 & 0o400 != 0
}

exports! {
    fn mkdir(path: *const c_char, mode: mode_t) -> c_int, -1; { make_directory_at(AT_FDCWD, path, mode) }
    fn mkdirat(at: c_int, path: *const c_char, mode: mode_t) -> c_int, -1; { make_directory_at(at, path, mode) }
    fn symlink(link: *const c_char, path: *const c_char) -> c_int, -1; { symlink_at(link, AT_FDCWD, path) }
    fn symlinkat(link: *const c_char, at: c_int, path: *const c_char) -> c_int, -1; { symlink_at(link, at, path) }
    fn mknod(path: *const c_char, mode: mode_t, device: dev_t) -> c_int, -1; {
        make_node_at(AT_FDCWD, path, mode, device)
    }
    fn mknodat(at: c_int, path: *const c_char, mode: mode_t, device: dev_t) -> c_int, -1; {
        make_node_at(at, path, mode, device)
    }
    fn __xmknod(_version: c_int, path: *const c_char, mode: mode_t, device: *const dev_t) -> c_int, -1; {
        make_node_at(AT_FDCWD, path, mode, read_device(device))
    }
    fn __xmknodat(_version: c_int, at: c_int, path: *const c_char, mode: mode_t, device: *const dev_t) -> c_int, -1; {
        make_node_at(at, path, mode, read_device(device))
    }
    fn mkfifo(path: *const c_char, mode: mode_t) -> c_int, -1; {
        make_node_at(AT_FDCWD, path, mode | libc::S_IFIFO, 0)
    }
    fn mkfifoat(at: c_int, path: *const c_char, mode: mode_t) -> c_int, -1; {
        make_node_at(at, path, mode | libc::S_IFIFO, 0)
    }
    fn link(from: *const c_char, to: *const c_char) -> c_int, -1; { link_at(AT_FDCWD, from, AT_FDCWD, to, 0) }
    fn linkat(from_at: c_int, from: *const c_char, to_at: c_int, to: *const c_char, flags: c_int) -> c_int, -1; {
        link_at(from_at, from, to_at, to, flags)
    }
    fn unlink(path: *const c_char) -> c_int, -1; { remove_at(AT_FDCWD, path, 0) }
    fn unlinkat(at: c_int, path: *const c_char, flags: c_int) -> c_int, -1; { remove_at(at, path, flags) }
    fn rmdir(path: *const c_char) -> c_int, -1; { remove_at(AT_FDCWD, path, AT_REMOVEDIR) }
    fn remove(path: *const c_char) -> c_int, -1; {
        match remove_at(AT_FDCWD, path, 0) {
            Err(libc::EISDIR) => remove_at(AT_FDCWD, path, AT_REMOVEDIR),
            other => other,
        }
    }
}

fn read_device(device: *const dev_t) -> dev_t {
    if device.is_null() {
        return 0;
    }
    // SAFETY: not null, and a device number by the contract of the function.
    unsafe { *device }
}
