//! Changing what a file looks like: mode, owner, times, extended attributes, length. The file is copied up, and the
//! copy is changed with the token that the seccomp filter asks for.

use std::ffi::{c_char, c_int, c_long, c_void};

use libc::{AT_FDCWD, AT_SYMLINK_NOFOLLOW, gid_t, mode_t, off_t, size_t, timespec, timeval, uid_t};

use crate::abi::{exports, text};
use crate::config::{self, Config, REAL, Realm, config};
use crate::directory_mode::{directory_mode, set_directory_mode};
use crate::layer::copy_up;
use crate::path::PathBuf;
use crate::path::is_kernel_path;
use crate::read::following;
use crate::resolve::{Last, Target, resolve};
use crate::sys::{self, Outcome, call_with_token, int, pointer};

/// What a change applies to.
enum Subject<'a> {
    /// The kernel is to be asked with the caller's own arguments.
    Same,
    /// A path that does not end with a link, or whose link is meant itself.
    Path(&'a mut PathBuf, bool),
    /// The descriptor itself.
    Fd(c_int),
}

/// Copies a path up and hands it to `change`.
fn at_path(
    at: c_int,
    path: *const c_char,
    last: Last,
    must_own: bool,
    change: impl FnOnce(Subject<'_>) -> Outcome<usize>,
) -> Outcome<c_int> {
    let Some(config) = config() else {
        return change(Subject::Same).map(sys::to_int);
    };
    let text = text(path)?;
    if is_kernel_path(text) {
        return change(Subject::Same).map(sys::to_int);
    }
    let mut target = Target::new();
    resolve(config, at, text, last, &mut target)?;
    on_target(config, &mut target, must_own, change)
}

fn on_target(
    config: &Config,
    target: &mut Target,
    must_own: bool,
    change: impl FnOnce(Subject<'_>) -> Outcome<usize>,
) -> Outcome<c_int> {
    let found = target.existing()?;
    if target.is_magic {
        return change(Subject::Same).map(sys::to_int);
    }
    let user = sys::effective_user();
    if target.realm != Realm::Pass && found.place == REAL && user != 0 && found.stat.st_uid != user
    {
        if must_own {
            return Err(libc::EPERM);
        }
        sys::access(target.physical.as_ptr(), libc::W_OK, libc::AT_EACCESS)?;
    }
    let is_own_socket = found.place != REAL && sys::file_type(&found.stat) == libc::S_IFSOCK;
    // A socket lies in scratch from the start, and cannot be copied.
    if !is_own_socket {
        copy_up(config, target, true)?;
    }
    let is_layer_directory = found.is_directory() && target.realm != Realm::Pass;
    change(Subject::Path(&mut target.physical, is_layer_directory)).map(sys::to_int)
}

/// Applies a change to a descriptor: directly if it leads into a layer or past them, otherwise to the path behind it.
fn at_fd(
    fd: c_int,
    must_own: bool,
    change: impl FnOnce(Subject<'_>) -> Outcome<usize>,
) -> Outcome<c_int> {
    let Some(config) = config() else {
        return change(Subject::Fd(fd)).map(sys::to_int);
    };
    let stat = sys::stat_fd(fd)?;
    let mut path = PathBuf::new();
    if config::fd_path(fd, &mut path).is_err() {
        return Err(libc::EPERM);
    }
    let mut physical = PathBuf::from_bytes(path.as_bytes())?;
    let is_layer = config.strip_root(&mut path);
    let is_named =
        path.as_bytes().first() == Some(&b'/') && !path.as_bytes().starts_with(b"/memfd:");
    if is_layer && sys::is_directory(&stat) {
        return change(Subject::Path(&mut physical, true)).map(sys::to_int);
    }
    if is_layer || !is_named || config.realm_of(path.as_bytes()) == Realm::Pass {
        return change(Subject::Fd(fd)).map(sys::to_int);
    }
    let mut target = Target::new();
    let resolved = resolve(config, AT_FDCWD, path.as_bytes(), Last::Keep, &mut target);
    let same = target.found.is_some_and(|found| {
        found.is_directory() && sys::is_directory(&stat)
            || found.place != REAL
            || found.stat.st_ino == stat.st_ino && found.stat.st_dev == stat.st_dev
    });
    if resolved.is_err() || !same {
        return Err(libc::EPERM);
    }
    on_target(config, &mut target, must_own, change)
}

fn change_mode(
    subject: Subject<'_>,
    mode: mode_t,
    same: impl FnOnce() -> Outcome<usize>,
) -> Outcome<usize> {
    match subject {
        Subject::Same => same(),
        Subject::Path(path, true) => {
            set_directory_mode(path, mode & 0o7777, false)?;
            // Whether names can be looked up in it is remembered.
            config::changed();
            Ok(0)
        }
        Subject::Path(path, false) => sys::set_mode(path, mode).map(|()| 0),
        Subject::Fd(fd) => call_with_token(libc::SYS_fchmod, [int(fd), mode as usize, 0, 0, 0]),
    }
}

fn chmod_path(at: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> Outcome<c_int> {
    at_path(at, path, following(flags), true, |subject| {
        if let Subject::Path(path, is_layer_directory) = subject {
            if sys::file_type(&sys::lstat(path)?) == libc::S_IFLNK {
                return Err(libc::EOPNOTSUPP);
            }
            let subject = Subject::Path(path, is_layer_directory);
            return change_mode(subject, mode, || Err(libc::EPERM));
        }
        change_mode(subject, mode, || {
            // The old call follows links, and the new one is not everywhere.
            if flags & AT_SYMLINK_NOFOLLOW != 0
                && sys::file_type(&sys::stat_at(at, path, AT_SYMLINK_NOFOLLOW)?) == libc::S_IFLNK
            {
                return Err(libc::EOPNOTSUPP);
            }
            call_with_token(
                libc::SYS_fchmodat,
                [int(at), pointer(path), mode as usize, 0, 0],
            )
        })
    })
}

fn chown_path(
    at: c_int,
    path: *const c_char,
    user: uid_t,
    group: gid_t,
    flags: c_int,
) -> Outcome<c_int> {
    let same = || {
        call_with_token(
            libc::SYS_fchownat,
            [
                int(at),
                pointer(path),
                user as usize,
                group as usize,
                int(flags),
            ],
        )
        .map(sys::to_int)
    };
    let Some(config) = config() else {
        return same();
    };
    if flags & libc::AT_EMPTY_PATH != 0 && !path.is_null() && text(path)?.is_empty() {
        return chown_open(at, user, group);
    }
    let text = text(path)?;
    if is_kernel_path(text) {
        return same();
    }
    let mut target = Target::new();
    resolve(config, at, text, following(flags), &mut target)?;
    let found = target.existing()?;
    let caller = sys::effective_user();
    // What changes nothing is no reason for a copy, and may be refused for the copy.
    let is_same = (user == uid_t::MAX || user == found.stat.st_uid)
        && (group == gid_t::MAX || group == found.stat.st_gid);
    if is_same && target.realm != Realm::Pass {
        return if caller == 0
            || caller == found.stat.st_uid
            || user == uid_t::MAX && group == gid_t::MAX
        {
            Ok(0)
        } else {
            Err(libc::EPERM)
        };
    }
    on_target(config, &mut target, true, |subject| match subject {
        Subject::Path(path, _) => sys::set_owner(path, user, group).map(|()| 0),
        Subject::Same | Subject::Fd(_) => same().map(|_| 0),
    })
}

fn chown_open(fd: c_int, user: uid_t, group: gid_t) -> Outcome<c_int> {
    let stat = sys::stat_fd(fd)?;
    if config().is_some()
        && (user == uid_t::MAX || user == stat.st_uid)
        && (group == gid_t::MAX || group == stat.st_gid)
        && (sys::effective_user() == 0 || sys::effective_user() == stat.st_uid)
    {
        return Ok(0);
    }
    at_fd(fd, true, |subject| match subject {
        Subject::Path(path, _) => sys::set_owner(path, user, group).map(|()| 0),
        Subject::Same | Subject::Fd(_) => call_with_token(
            libc::SYS_fchown,
            [int(fd), user as usize, group as usize, 0, 0],
        ),
    })
}

fn set_times(
    at: c_int,
    path: *const c_char,
    times: *const timespec,
    flags: c_int,
) -> Outcome<c_int> {
    if path.is_null() {
        return set_times_open(at, times);
    }
    // Only the owner may set times other than now.
    let must_own = !times.is_null();
    at_path(at, path, following(flags), must_own, |subject| {
        let (at, path, flags) = match subject {
            Subject::Path(path, _) => (AT_FDCWD, path.as_ptr(), AT_SYMLINK_NOFOLLOW),
            Subject::Same | Subject::Fd(_) => (at, path, flags),
        };
        call_with_token(
            libc::SYS_utimensat,
            [int(at), pointer(path), pointer(times), int(flags), 0],
        )
    })
}

fn set_times_open(fd: c_int, times: *const timespec) -> Outcome<c_int> {
    at_fd(fd, !times.is_null(), |subject| {
        let (at, path, flags) = match subject {
            Subject::Path(path, _) => (AT_FDCWD, path.as_ptr(), AT_SYMLINK_NOFOLLOW),
            Subject::Same | Subject::Fd(_) => (fd, std::ptr::null(), 0),
        };
        call_with_token(
            libc::SYS_utimensat,
            [int(at), pointer(path), pointer(times), int(flags), 0],
        )
    })
}

/// Old functions count microseconds.
fn with_times(
    times: *const timeval,
    set: impl FnOnce(*const timespec) -> Outcome<c_int>,
) -> Outcome<c_int> {
    if times.is_null() {
        return set(std::ptr::null());
    }
    // SAFETY: two values by the contract of `utimes`.
    let [access, modification] = unsafe { *times.cast::<[timeval; 2]>() };
    let mut out = [timespec {
        tv_sec: 0,
        tv_nsec: 0,
    }; 2];
    for (to, from) in out.iter_mut().zip([access, modification]) {
        if !(0..1_000_000).contains(&from.tv_usec) {
            return Err(libc::EINVAL);
        }
        to.tv_sec = from.tv_sec;
        to.tv_nsec = from.tv_usec * 1000;
    }
    set(out.as_ptr())
}

/// `setxattr` and `removexattr` with the arguments behind the path.
fn change_attribute(
    path: *const c_char,
    last: Last,
    numbers: [c_long; 2],
    [name, value, size, flags]: [usize; 4],
) -> Outcome<c_int> {
    let [following, keeping] = numbers;
    at_path(AT_FDCWD, path, last, false, |subject| match subject {
        Subject::Path(path, is_layer_directory) => {
            check_attributes(path, is_layer_directory)?;
            call_with_token(keeping, [pointer(path.as_ptr()), name, value, size, flags])
        }
        Subject::Same | Subject::Fd(_) => {
            let number = if last == Last::Follow {
                following
            } else {
                keeping
            };
            call_with_token(number, [pointer(path), name, value, size, flags])
        }
    })
}

/// A directory of a layer is writable by its owner, whatever its mode looks like to the script.
fn check_attributes(path: &mut PathBuf, is_layer_directory: bool) -> Outcome<()> {
    if is_layer_directory && sys::effective_user() != 0 {
        let stat = sys::lstat(path)?;
        if directory_mode(path, &stat).0 & 0o200 == 0 {
            return Err(libc::EACCES);
        }
    }
    Ok(())
}

fn change_attribute_open(
    fd: c_int,
    numbers: [c_long; 2],
    [name, value, size, flags]: [usize; 4],
) -> Outcome<c_int> {
    let [by_path, by_fd] = numbers;
    at_fd(fd, false, |subject| match subject {
        Subject::Path(path, is_layer_directory) => {
            check_attributes(path, is_layer_directory)?;
            call_with_token(by_path, [pointer(path.as_ptr()), name, value, size, flags])
        }
        Subject::Same | Subject::Fd(_) => {
            call_with_token(by_fd, [int(fd), name, value, size, flags])
        }
    })
}

fn truncate_path(path: *const c_char, length: off_t) -> Outcome<c_int> {
    let same = |path: *const c_char| {
        sys::call(
            libc::SYS_truncate,
            [pointer(path), length as usize, 0, 0, 0, 0],
        )
        .map(sys::to_int)
    };
    let Some(config) = config() else {
        return same(path);
    };
    let text = text(path)?;
    if is_kernel_path(text) || length < 0 {
        return same(path);
    }
    let mut target = Target::new();
    resolve(config, AT_FDCWD, text, Last::Follow, &mut target)?;
    let found = target.existing()?;
    if found.is_directory() {
        return Err(libc::EISDIR);
    }
    if target.realm != Realm::Pass && sys::file_type(&found.stat) == libc::S_IFREG {
        sys::access(target.physical.as_ptr(), libc::W_OK, libc::AT_EACCESS)?;
        copy_up(config, &mut target, length != 0)?;
    }
    same(target.physical.as_ptr())
}

exports! {
    fn chmod(path: *const c_char, mode: mode_t) -> c_int, -1; { chmod_path(AT_FDCWD, path, mode, 0) }
    fn lchmod(path: *const c_char, mode: mode_t) -> c_int, -1; {
        chmod_path(AT_FDCWD, path, mode, AT_SYMLINK_NOFOLLOW)
    }
    fn fchmodat(at: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> c_int, -1; {
        if flags & !(AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH) != 0 {
            return Err(libc::EINVAL);
        }
        chmod_path(at, path, mode, flags)
    }
    fn fchmod(fd: c_int, mode: mode_t) -> c_int, -1; {
        at_fd(fd, true, |subject| {
            change_mode(subject, mode, || call_with_token(libc::SYS_fchmod, [int(fd), mode as usize, 0, 0, 0]))
        })
    }
    fn chown(path: *const c_char, user: uid_t, group: gid_t) -> c_int, -1; {
        chown_path(AT_FDCWD, path, user, group, 0)
    }
    fn lchown(path: *const c_char, user: uid_t, group: gid_t) -> c_int, -1; {
        chown_path(AT_FDCWD, path, user, group, AT_SYMLINK_NOFOLLOW)
    }
    fn fchownat(at: c_int, path: *const c_char, user: uid_t, group: gid_t, flags: c_int) -> c_int, -1; {
        chown_path(at, path, user, group, flags)
    }
    fn fchown(fd: c_int, user: uid_t, group: gid_t) -> c_int, -1; { chown_open(fd, user, group) }
    fn utimensat(at: c_int, path: *const c_char, times: *const timespec, flags: c_int) -> c_int, -1; {
        if path.is_null() {
            return Err(libc::EINVAL);
        }
        set_times(at, path, times, flags)
    }
    fn futimens(fd: c_int, times: *const timespec) -> c_int, -1; { set_times_open(fd, times) }
    fn utimes(path: *const c_char, times: *const timeval) -> c_int, -1; {
        with_times(times, |times| at_text(AT_FDCWD, path, times, 0))
    }
    fn lutimes(path: *const c_char, times: *const timeval) -> c_int, -1; {
        with_times(times, |times| at_text(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW))
    }
    fn futimesat(at: c_int, path: *const c_char, times: *const timeval) -> c_int, -1; {
        with_times(times, |times| set_times(at, path, times, 0))
    }
    fn futimes(fd: c_int, times: *const timeval) -> c_int, -1; {
        with_times(times, |times| set_times_open(fd, times))
    }
    fn utime(path: *const c_char, times: *const libc::utimbuf) -> c_int, -1; {
        if times.is_null() {
            return at_text(AT_FDCWD, path, std::ptr::null(), 0);
        }
        // SAFETY: not null, and a `utimbuf` by the contract of the function.
        let times = unsafe { *times };
        let spec = |tv_sec| timespec { tv_sec, tv_nsec: 0 };
        let times = [spec(times.actime), spec(times.modtime)];
        at_text(AT_FDCWD, path, times.as_ptr(), 0)
    }
    fn setxattr(path: *const c_char, name: *const c_char, value: *const c_void, size: size_t, flags: c_int) -> c_int, -1; {
        let rest = [pointer(name), pointer(value), size, int(flags)];
        change_attribute(path, Last::Follow, [libc::SYS_setxattr, libc::SYS_lsetxattr], rest)
    }
    fn lsetxattr(path: *const c_char, name: *const c_char, value: *const c_void, size: size_t, flags: c_int) -> c_int, -1; {
        let rest = [pointer(name), pointer(value), size, int(flags)];
        change_attribute(path, Last::Keep, [libc::SYS_setxattr, libc::SYS_lsetxattr], rest)
    }
    fn fsetxattr(fd: c_int, name: *const c_char, value: *const c_void, size: size_t, flags: c_int) -> c_int, -1; {
        let rest = [pointer(name), pointer(value), size, int(flags)];
        change_attribute_open(fd, [libc::SYS_lsetxattr, libc::SYS_fsetxattr], rest)
    }
    fn removexattr(path: *const c_char, name: *const c_char) -> c_int, -1; {
        let rest = [pointer(name), 0, 0, 0];
        change_attribute(path, Last::Follow, [libc::SYS_removexattr, libc::SYS_lremovexattr], rest)
    }
    fn lremovexattr(path: *const c_char, name: *const c_char) -> c_int, -1; {
        let rest = [pointer(name), 0, 0, 0];
        change_attribute(path, Last::Keep, [libc::SYS_removexattr, libc::SYS_lremovexattr], rest)
    }
    fn fremovexattr(fd: c_int, name: *const c_char) -> c_int, -1; {
        change_attribute_open(fd, [libc::SYS_lremovexattr, libc::SYS_fremovexattr], [pointer(name), 0, 0, 0])
    }
    fn truncate(path: *const c_char, length: off_t) -> c_int, -1; { truncate_path(path, length) }
    fn truncate64(path: *const c_char, length: off_t) -> c_int, -1; { truncate_path(path, length) }
}

/// For functions where a missing path is an error and not the descriptor.
fn at_text(at: c_int, path: *const c_char, times: *const timespec, flags: c_int) -> Outcome<c_int> {
    if path.is_null() {
        return Err(libc::EFAULT);
    }
    set_times(at, path, times, flags)
}
