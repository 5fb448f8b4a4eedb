//! Looking at files: `stat` and its relatives, `access`, `readlink`, `getcwd`, `realpath`.

use std::ffi::{c_char, c_int, c_uint, c_void};

use libc::{AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, size_t, ssize_t};

use crate::abi::{checked_pointer, exports, next, put, text};
use crate::config::{self, Config, REAL, Realm, config};
use crate::directory_mode::directory_mode;
use crate::open::lowest;
use crate::path::PathBuf;
use crate::path::is_kernel_path;
use crate::resolve::{Found, Last, Target, current_directory, resolve};
use crate::sys::{self, Outcome, Stat, int, pointer};

/// The configuration, if something was written; otherwise the real files are all there is.
pub(crate) fn written_config() -> Option<&'static Config> {
    config().filter(|_| config::generation() != 0)
}

pub(crate) fn following(flags: c_int) -> Last {
    if flags & AT_SYMLINK_NOFOLLOW == 0 {
        Last::Follow
    } else {
        Last::Keep
    }
}

/// Resolves a path that is only looked at. `None`: the kernel is to be asked with the same arguments.
pub(crate) fn find(
    at: c_int,
    path: *const c_char,
    last: Last,
    target: &mut Target,
) -> Outcome<Option<(&'static Config, Found)>> {
    let Some(config) = written_config() else {
        return Ok(None);
    };
    let text = text(path)?;
    if is_kernel_path(text) {
        return Ok(None);
    }
    resolve(config, at, text, last, target)?;
    Ok(Some((config, target.existing()?)))
}

fn stat_path(at: c_int, path: *const c_char, flags: c_int) -> Outcome<Stat> {
    if flags & AT_EMPTY_PATH != 0 && (path.is_null() || text(path)?.is_empty()) {
        if at == AT_FDCWD {
            return stat_path(at, c".".as_ptr(), 0);
        }
        return stat_open(at);
    }
    let mut target = Target::new();
    let Some((config, found)) = find(at, path, following(flags), &mut target)? else {
        return sys::stat_at(at, path, flags);
    };
    if target.is_magic {
        return sys::stat_at(AT_FDCWD, target.physical.as_ptr(), flags);
    }
    shown(config, &target, found)
}

fn stat_open(fd: c_int) -> Outcome<Stat> {
    let stat = sys::stat_fd(fd)?;
    let mut target = Target::new();
    match layered_directory(fd, &stat, &mut target) {
        Some((config, found)) => shown(config, &target, found),
        None => Ok(stat),
    }
}

/// The merged directory behind a descriptor, if a layer has a part in it.
fn layered_directory(
    fd: c_int,
    stat: &Stat,
    target: &mut Target,
) -> Option<(&'static Config, Found)> {
    if !sys::is_directory(stat) || stat.st_nlink == 0 {
        return None;
    }
    let config = written_config()?;
    let mut path = PathBuf::new();
    config::fd_path(fd, &mut path).ok()?;
    config.strip_root(&mut path);
    if path.as_bytes().first() != Some(&b'/') || config.realm_of(path.as_bytes()) == Realm::Pass {
        return None;
    }
    resolve(config, AT_FDCWD, path.as_bytes(), Last::Keep, target).ok()?;
    let found = target.found?;
    (found.is_directory() && found.state.is_layered()).then_some((config, found))
}

/// What the script sees of a file. The number of a merged directory stays the one of its lowest part, whatever layers
/// come to lie above it.
pub(crate) fn shown(config: &Config, target: &Target, found: Found) -> Outcome<Stat> {
    let mut stat = found.stat;
    if !found.is_directory() || found.place == REAL {
        return Ok(stat);
    }
    stat.st_mode = stat.st_mode & libc::S_IFMT | directory_mode(&target.physical, &stat).0;
    if found.state.opened().mask.count_ones() > 1 {
        let below = sys::lstat(&mut lowest(config, target.logical.as_bytes(), found)?)?;
        stat.st_dev = below.st_dev;
        stat.st_ino = below.st_ino;
        // Unknown, as on btrfs: nobody may conclude from it that there are no subdirectories.
        stat.st_nlink = 1;
        if sys::effective_user() != 0 && found.state.has(REAL) {
            stat.st_uid = below.st_uid;
            stat.st_gid = below.st_gid;
        }
    }
    Ok(stat)
}

fn statx_path(
    at: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    out: *mut libc::statx,
) -> Outcome<c_int> {
    let ask = |at: c_int, path: *const c_char, flags: c_int| {
        sys::call(
            libc::SYS_statx,
            [
                int(at),
                pointer(path),
                int(flags),
                mask as usize,
                pointer(out),
                0,
            ],
        )
        .map(sys::to_int)
    };
    let mut target = Target::new();
    let is_open = flags & AT_EMPTY_PATH != 0 && (path.is_null() || text(path)?.is_empty());
    let directory = if is_open {
        let answer = ask(at, path, flags)?;
        let directory = if at == AT_FDCWD {
            find(at, c".".as_ptr(), Last::Follow, &mut target)?
        } else if written_config().is_some() {
            layered_directory(at, &sys::stat_fd(at)?, &mut target)
        } else {
            None
        };
        let Some(directory) = directory else {
            return Ok(answer);
        };
        directory
    } else {
        let Some(found) = find(at, path, following(flags), &mut target)? else {
            return ask(at, path, flags);
        };
        found
    };
    let (config, found) = directory;
    let answer = ask(AT_FDCWD, target.physical.as_ptr(), flags & !AT_EMPTY_PATH)?;
    if found.is_directory() && found.state.is_layered() && !target.is_magic {
        let stat = shown(config, &target, found)?;
        // SAFETY: the kernel has just written there.
        let out = unsafe { &mut *out };
        out.stx_mode = stat.st_mode as u16;
        out.stx_ino = stat.st_ino;
        out.stx_nlink = u32::try_from(stat.st_nlink).unwrap_or(1);
        out.stx_uid = stat.st_uid;
        out.stx_gid = stat.st_gid;
        out.stx_dev_major = libc::major(stat.st_dev);
        out.stx_dev_minor = libc::minor(stat.st_dev);
    }
    Ok(answer)
}

fn access_path(at: c_int, path: *const c_char, mode: c_int, flags: c_int) -> Outcome<c_int> {
    let mut target = Target::new();
    let Some((_, found)) = find(at, path, following(flags), &mut target)? else {
        let number = if flags == 0 { libc::SYS_faccessat } else { 439 };
        let answer = sys::call(
            number,
            [int(at), pointer(path), int(mode), int(flags), 0, 0],
        );
        if flags != 0 && matches!(answer, Err(libc::ENOSYS)) {
            return sys::call(
                libc::SYS_faccessat,
                [int(at), pointer(path), int(mode), 0, 0, 0],
            )
            .map(sys::to_int);
        }
        return answer.map(sys::to_int);
    };
    if found.is_directory() && found.place != REAL && sys::effective_user() != 0 {
        let (bits, is_closed) = directory_mode(&target.physical, &found.stat);
        let allowed = (bits >> 6 & 7).cast_signed();
        if mode & !allowed & 7 != 0 || is_closed && mode & libc::W_OK != 0 {
            return Err(libc::EACCES);
        }
        return Ok(0);
    }
    sys::access(target.physical.as_ptr(), mode, flags).map(|()| 0)
}

fn read_link(at: c_int, path: *const c_char, out: *mut c_char, size: size_t) -> Outcome<ssize_t> {
    let raw = || {
        sys::call(
            libc::SYS_readlinkat,
            [int(at), pointer(path), pointer(out), size, 0, 0],
        )
        .map(|len| len as ssize_t)
    };
    let Some(config) = written_config() else {
        return raw();
    };
    let text = text(path)?;
    if text.is_empty() || size == 0 {
        return raw();
    }
    let mut link = PathBuf::new();
    if is_kernel_path(text) {
        link.fill(|buffer, size| {
            sys::call(
                libc::SYS_readlinkat,
                [int(at), pointer(path), pointer(buffer), size, 0, 0],
            )
        })?;
    } else {
        let mut target = Target::new();
        resolve(config, at, text, Last::Keep, &mut target)?;
        target.existing()?;
        sys::read_link(&mut target.physical, &mut link)?;
    }
    config.strip_root(&mut link);
    let len = link.len().min(size);
    // SAFETY: the caller's buffer holds `size` bytes.
    unsafe { std::ptr::copy_nonoverlapping(link.as_bytes().as_ptr(), out.cast::<u8>(), len) };
    Ok(len as ssize_t)
}

fn working_directory(out: *mut c_char, size: size_t) -> Outcome<*mut c_char> {
    let mut path = PathBuf::new();
    match config() {
        Some(config) => current_directory(config, &mut path)?,
        None => path.fill(|buffer, size| {
            sys::call(libc::SYS_getcwd, [pointer(buffer), size, 0, 0, 0, 0])
                .map(|len| len.saturating_sub(1))
        })?,
    }
    if path.is_empty() {
        path.push(b"/")?;
    }
    hand_out(&path, out, size)
}

/// Copies a path into the caller's buffer, or into a new one if that is null.
fn hand_out(path: &PathBuf, out: *mut c_char, size: size_t) -> Outcome<*mut c_char> {
    let len = path.len();
    if !out.is_null() && size == 0 {
        return Err(libc::EINVAL);
    }
    if size != 0 && len >= size {
        return Err(libc::ERANGE);
    }
    let to = if out.is_null() {
        // SAFETY: a new buffer that the caller frees.
        unsafe { libc::malloc(size.max(len + 1)).cast::<c_char>() }
    } else {
        out
    };
    if to.is_null() {
        return Err(libc::ENOMEM);
    }
    // SAFETY: it holds at least `len + 1` bytes.
    unsafe {
        std::ptr::copy_nonoverlapping(path.as_bytes().as_ptr(), to.cast::<u8>(), len);
        to.add(len).write(0);
    }
    Ok(to)
}

fn real_path(path: *const c_char, out: *mut c_char) -> Outcome<*mut c_char> {
    if path.is_null() {
        return Err(libc::EINVAL);
    }
    let Some(config) = written_config() else {
        return checked_pointer(next!(
            c"realpath",
            fn(*const c_char, *mut c_char) -> *mut c_char
        )(path, out));
    };
    let mut target = Target::new();
    resolve(config, AT_FDCWD, text(path)?, Last::Follow, &mut target)?;
    target.existing()?;
    if target.logical.is_empty() {
        target.logical.push(b"/")?;
    }
    if target.logical.len() >= 4096 {
        return Err(libc::ENAMETOOLONG);
    }
    let size = if out.is_null() { 0 } else { 4096 };
    hand_out(&target.logical, out, size)
}

fn put_stat(result: Outcome<Stat>, out: *mut Stat) -> Outcome<c_int> {
    put(out, result?)?;
    Ok(0)
}

exports! {
    fn stat(path: *const c_char, out: *mut Stat) -> c_int, -1; { put_stat(stat_path(AT_FDCWD, path, 0), out) }
    fn stat64(path: *const c_char, out: *mut Stat) -> c_int, -1; { put_stat(stat_path(AT_FDCWD, path, 0), out) }
    fn lstat(path: *const c_char, out: *mut Stat) -> c_int, -1; {
        put_stat(stat_path(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW), out)
    }
    fn lstat64(path: *const c_char, out: *mut Stat) -> c_int, -1; {
        put_stat(stat_path(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW), out)
    }
    fn fstat(fd: c_int, out: *mut Stat) -> c_int, -1; { put_stat(stat_open(fd), out) }
    fn fstat64(fd: c_int, out: *mut Stat) -> c_int, -1; { put_stat(stat_open(fd), out) }
    fn fstatat(at: c_int, path: *const c_char, out: *mut Stat, flags: c_int) -> c_int, -1; {
        put_stat(stat_path(at, path, flags), out)
    }
    fn fstatat64(at: c_int, path: *const c_char, out: *mut Stat, flags: c_int) -> c_int, -1; {
        put_stat(stat_path(at, path, flags), out)
    }
    fn __xstat(_version: c_int, path: *const c_char, out: *mut Stat) -> c_int, -1; {
        put_stat(stat_path(AT_FDCWD, path, 0), out)
    }
    fn __xstat64(_version: c_int, path: *const c_char, out: *mut Stat) -> c_int, -1; {
        put_stat(stat_path(AT_FDCWD, path, 0), out)
    }
    fn __lxstat(_version: c_int, path: *const c_char, out: *mut Stat) -> c_int, -1; {
        put_stat(stat_path(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW), out)
    }
    fn __lxstat64(_version: c_int, path: *const c_char, out: *mut Stat) -> c_int, -1; {
        put_stat(stat_path(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW), out)
    }
    fn __fxstat(_version: c_int, fd: c_int, out: *mut Stat) -> c_int, -1; { put_stat(stat_open(fd), out) }
    fn __fxstat64(_version: c_int, fd: c_int, out: *mut Stat) -> c_int, -1; { put_stat(stat_open(fd), out) }
    fn __fxstatat(_version: c_int, at: c_int, path: *const c_char, out: *mut Stat, flags: c_int) -> c_int, -1; {
        put_stat(stat_path(at, path, flags), out)
    }
    fn __fxstatat64(_version: c_int, at: c_int, path: *const c_char, out: *mut Stat, flags: c_int) -> c_int, -1; {
        put_stat(stat_path(at, path, flags), out)
    }
    fn statx(at: c_int, path: *const c_char, flags: c_int, mask: c_uint, out: *mut libc::statx) -> c_int, -1; {
        statx_path(at, path, flags, mask, out)
    }
    fn access(path: *const c_char, mode: c_int) -> c_int, -1; { access_path(AT_FDCWD, path, mode, 0) }
    fn faccessat(at: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int, -1; {
        access_path(at, path, mode, flags)
    }
    fn eaccess(path: *const c_char, mode: c_int) -> c_int, -1; {
        access_path(AT_FDCWD, path, mode, libc::AT_EACCESS)
    }
    fn euidaccess(path: *const c_char, mode: c_int) -> c_int, -1; {
        access_path(AT_FDCWD, path, mode, libc::AT_EACCESS)
    }
    fn readlink(path: *const c_char, out: *mut c_char, size: size_t) -> ssize_t, -1; {
        read_link(AT_FDCWD, path, out, size)
    }
    fn readlinkat(at: c_int, path: *const c_char, out: *mut c_char, size: size_t) -> ssize_t, -1; {
        read_link(at, path, out, size)
    }
    fn __readlink_chk(path: *const c_char, out: *mut c_char, size: size_t, _room: size_t) -> ssize_t, -1; {
        read_link(AT_FDCWD, path, out, size)
    }
    fn __readlinkat_chk(at: c_int, path: *const c_char, out: *mut c_char, size: size_t, _room: size_t) -> ssize_t, -1; {
        read_link(at, path, out, size)
    }
    fn getcwd(out: *mut c_char, size: size_t) -> *mut c_char, std::ptr::null_mut(); { working_directory(out, size) }
    fn __getcwd_chk(out: *mut c_char, size: size_t, _room: size_t) -> *mut c_char, std::ptr::null_mut(); {
        working_directory(out, size)
    }
    fn getwd(out: *mut c_char) -> *mut c_char, std::ptr::null_mut(); { working_directory(out, 4096) }
    fn get_current_dir_name() -> *mut c_char, std::ptr::null_mut(); {
        working_directory(std::ptr::null_mut(), 0)
    }
    fn realpath(path: *const c_char, out: *mut c_char) -> *mut c_char, std::ptr::null_mut(); { real_path(path, out) }
    fn __realpath_chk(path: *const c_char, out: *mut c_char, _room: size_t) -> *mut c_char, std::ptr::null_mut(); {
        real_path(path, out)
    }
    fn canonicalize_file_name(path: *const c_char) -> *mut c_char, std::ptr::null_mut(); {
        real_path(path, std::ptr::null_mut())
    }
    fn chdir(path: *const c_char) -> c_int, -1; {
        let mut target = Target::new();
        let Some((config, found)) = find(AT_FDCWD, path, Last::Follow, &mut target)? else {
            return sys::call(libc::SYS_chdir, [pointer(path), 0, 0, 0, 0, 0]).map(sys::to_int);
        };
        let mut to = if found.is_directory() && !target.is_magic {
            lowest(config, target.logical.as_bytes(), found)?
        } else {
            PathBuf::from_bytes(target.physical.as_bytes())?
        };
        sys::call(libc::SYS_chdir, [pointer(to.as_ptr()), 0, 0, 0, 0, 0]).map(sys::to_int)
    }
    fn getxattr(path: *const c_char, name: *const c_char, value: *mut c_void, size: size_t) -> ssize_t, -1; {
        attribute(path, Last::Follow, |path, follow| {
            let number = if follow { libc::SYS_getxattr } else { libc::SYS_lgetxattr };
            sys::call(number, [path, pointer(name), pointer(value), size, 0, 0])
        })
    }
    fn lgetxattr(path: *const c_char, name: *const c_char, value: *mut c_void, size: size_t) -> ssize_t, -1; {
        attribute(path, Last::Keep, |path, _| {
            sys::call(libc::SYS_lgetxattr, [path, pointer(name), pointer(value), size, 0, 0])
        })
    }
    fn listxattr(path: *const c_char, list: *mut c_char, size: size_t) -> ssize_t, -1; {
        attribute(path, Last::Follow, |path, follow| {
            let number = if follow { libc::SYS_listxattr } else { libc::SYS_llistxattr };
            sys::call(number, [path, pointer(list), size, 0, 0, 0])
        })
    }
    fn llistxattr(path: *const c_char, list: *mut c_char, size: size_t) -> ssize_t, -1; {
        attribute(path, Last::Keep, |path, _| {
            sys::call(libc::SYS_llistxattr, [path, pointer(list), size, 0, 0, 0])
        })
    }
}

/// Asks for extended attributes of where a path lies; the second argument tells whether links are still to be followed.
fn attribute(
    path: *const c_char,
    last: Last,
    ask: impl FnOnce(usize, bool) -> Outcome<usize>,
) -> Outcome<ssize_t> {
    let mut target = Target::new();
    let answer = match find(AT_FDCWD, path, last, &mut target)? {
        Some(_) => ask(pointer(target.physical.as_ptr()), target.is_magic),
        None => ask(pointer(path), true),
    };
    answer.map(|len| len as ssize_t)
}
