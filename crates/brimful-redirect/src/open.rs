//! Opening files: a file that is opened for writing is copied up first.

use std::ffi::{c_char, c_int};

use libc::{
    AT_FDCWD, O_ACCMODE, O_CREAT, O_EXCL, O_NOFOLLOW, O_PATH, O_RDONLY, O_TMPFILE, O_TRUNC,
    O_WRONLY, mode_t,
};

use crate::abi::{exports, text};
use crate::config::{self, Config, REAL, Realm, config};
use crate::layer::{self, Lock, check_writable, copy_up, ensure_directory, physical};
use crate::markers::is_reserved;
use crate::names::may_list;
use crate::path::is_kernel_path;
use crate::path::{self, PathBuf};
use crate::processes::may_write;
use crate::resolve::is_whiteout;
use crate::resolve::{Found, Last, Target, resolve};
use crate::sys::{self, Fd, Outcome};

/// How often to look again if a name vanishes between looking and opening.
const MAX_TRIES: usize = 4;

/// What has to be done after [`prepare`].
#[derive(Debug)]
pub(crate) enum Prepared {
    /// Open `Target::physical` with these flags.
    Path(c_int),
    /// It is open already.
    Open(Fd),
}

pub(crate) fn is_writing(flags: c_int) -> bool {
    flags & O_PATH == 0
        && (flags & O_ACCMODE != O_RDONLY
            || flags & (O_TRUNC | O_CREAT | O_TMPFILE) & !libc::O_DIRECTORY != 0)
}

/// `openat`, redirected.
pub(crate) fn open_at(
    at: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> Outcome<c_int> {
    if is_writing(flags) && !may_write(text(path)?) {
        return Err(libc::EACCES);
    }
    let Some(config) = config() else {
        return sys::open_at(at, path, flags, mode);
    };
    if !is_writing(flags) && config::generation() == 0 {
        return sys::open_at(at, path, flags, mode);
    }
    let text = text(path)?;
    if is_kernel_path(text) {
        return sys::open_at(at, path, flags, mode);
    }
    let mut target = Target::new();
    let mut answer = Err(libc::ENOENT);
    for _ in 0..MAX_TRIES {
        answer = match prepare(config, at, text, flags, mode, &mut target)? {
            Prepared::Open(fd) => return Ok(fd.release()),
            Prepared::Path(flags) => sys::open_at(AT_FDCWD, target.physical.as_ptr(), flags, mode),
        };
        if answer != Err(libc::ENOENT) {
            break;
        }
    }
    answer
}

/// Does what has to be done before the kernel can open `target.physical`.
pub(crate) fn prepare(
    config: &Config,
    at: c_int,
    text: &[u8],
    flags: c_int,
    mode: mode_t,
    target: &mut Target,
) -> Outcome<Prepared> {
    let creates = flags & O_CREAT != 0 && flags & O_PATH == 0;
    let exclusive = creates && flags & O_EXCL != 0;
    let last = if creates && text.last() == Some(&b'/') {
        Last::Name
    } else if exclusive || flags & O_NOFOLLOW != 0 {
        Last::Keep
    } else {
        Last::Follow
    };
    resolve(config, at, text, last, target)?;
    if creates && target.has_trailing_slash {
        return Err(libc::EISDIR);
    }
    let Some(found) = target.found else {
        if !creates {
            return Err(libc::ENOENT);
        }
        return create(config, target, flags, mode);
    };
    if target.is_magic {
        return Ok(Prepared::Path(flags));
    }
    if exclusive {
        return Err(libc::EEXIST);
    }
    if found.is_directory() {
        return prepare_directory(config, target, found, flags);
    }
    if flags & libc::O_DIRECTORY != 0 && !found.is_link() {
        return Err(libc::ENOTDIR);
    }
    let flags = flags & !(O_CREAT | O_EXCL);
    let changes = is_writing(flags);
    if changes && target.realm == Realm::Pass && !may_write(target.logical.as_bytes()) {
        return Err(libc::EACCES);
    }
    if changes && target.realm != Realm::Pass && sys::file_type(&found.stat) == libc::S_IFREG {
        if !target.is_on_top() {
            check_access(target, flags)?;
        }
        copy_up(config, target, flags & O_TRUNC == 0)?;
    }
    Ok(Prepared::Path(flags))
}

/// Whether the user might open the file this way, before it is copied.
fn check_access(target: &mut Target, flags: c_int) -> Outcome<()> {
    let mode = match flags & O_ACCMODE {
        O_WRONLY => libc::W_OK,
        _ => libc::R_OK | libc::W_OK,
    };
    sys::access(target.physical.as_ptr(), mode, libc::AT_EACCESS)
}

fn prepare_directory(
    config: &Config,
    target: &mut Target,
    found: Found,
    flags: c_int,
) -> Outcome<Prepared> {
    if flags & O_TMPFILE == O_TMPFILE && flags & O_PATH == 0 {
        let logical = target.logical.as_bytes();
        check_writable(config, logical, found.state)?;
        ensure_directory(config, logical, found.state)?;
        target.physical = physical(config, target.top(), logical)?;
        return Ok(Prepared::Path(flags));
    }
    if is_writing(flags) {
        return Err(libc::EISDIR);
    }
    if flags & O_PATH == 0 && !may_list(&target.physical, found) {
        return Err(libc::EACCES);
    }
    target.physical = lowest(config, target.logical.as_bytes(), found)?;
    Ok(Prepared::Path(flags))
}

/// The directory that stands for a merged one wherever the kernel needs one: the real one if it is visible, since its
/// path is the one that the script knows.
pub(crate) fn lowest(config: &Config, logical: &[u8], found: Found) -> Outcome<PathBuf> {
    let place = config
        .layers_of(found.state.realm)
        .chain([REAL])
        .rfind(|place| found.state.has(*place))
        .unwrap_or(REAL);
    physical(config, place, logical)
}

fn create(config: &Config, target: &mut Target, flags: c_int, mode: mode_t) -> Outcome<Prepared> {
    let parent = path::parent(target.logical.as_bytes());
    let place = target.top();
    if place == REAL {
        target.physical.set(&[target.logical.as_bytes()])?;
        return Ok(Prepared::Path(flags));
    }
    if is_reserved(path::name(target.logical.as_bytes())) {
        return Err(libc::EPERM);
    }
    check_writable(config, parent, target.parent)?;
    ensure_directory(config, parent, target.parent)?;
    target.physical = physical(config, place, target.logical.as_bytes())?;
    config::written();
    if is_whiteout(&mut target.physical) {
        let _lock = Lock::take(config, place);
        if is_whiteout(&mut target.physical) {
            let mut unfinished = layer::temporary(config, place)?;
            let flags = flags | O_CREAT | O_EXCL;
            let fd = sys::open_at(AT_FDCWD, unfinished.as_ptr(), flags, mode).map(Fd)?;
            sys::rename(&mut unfinished, &mut target.physical, 0)?;
            return Ok(Prepared::Open(fd));
        }
    }
    Ok(Prepared::Path(flags))
}

exports! {
    fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int, -1; {
        open_at(AT_FDCWD, path, flags, mode)
    }
    fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int, -1; {
        open_at(AT_FDCWD, path, flags, mode)
    }
    fn __open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int, -1; {
        open_at(AT_FDCWD, path, flags, mode)
    }
    fn __open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int, -1; {
        open_at(AT_FDCWD, path, flags, mode)
    }
    fn __open_2(path: *const c_char, flags: c_int) -> c_int, -1; {
        open_at(AT_FDCWD, path, flags, 0)
    }
    fn __open64_2(path: *const c_char, flags: c_int) -> c_int, -1; {
        open_at(AT_FDCWD, path, flags, 0)
    }
    fn openat(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int, -1; {
        open_at(at, path, flags, mode)
    }
    fn openat64(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int, -1; {
        open_at(at, path, flags, mode)
    }
    fn __openat_2(at: c_int, path: *const c_char, flags: c_int) -> c_int, -1; {
        open_at(at, path, flags, 0)
    }
    fn __openat64_2(at: c_int, path: *const c_char, flags: c_int) -> c_int, -1; {
        open_at(at, path, flags, 0)
    }
    fn creat(path: *const c_char, mode: mode_t) -> c_int, -1; {
        open_at(AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, mode)
    }
    fn creat64(path: *const c_char, mode: mode_t) -> c_int, -1; {
        open_at(AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, mode)
    }
}
