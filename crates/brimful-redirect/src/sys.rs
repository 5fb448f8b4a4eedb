//! System calls without libc's functions, which are the ones that this library replaces.
//!
//! Every function gives `Err(errno)` and leaves `errno` itself to the border (`abi`).

use std::ffi::{c_char, c_int, c_long};

use libc::{AT_FDCWD, AT_SYMLINK_NOFOLLOW, mode_t, stat, timespec};

use crate::environment;
pub(crate) use crate::errno::{Outcome, errno, set_errno};
use crate::path::PathBuf;

pub(crate) type Stat = stat;
pub(crate) const RENAME_NOREPLACE: u32 = 1;
pub(crate) const RENAME_EXCHANGE: u32 = 2;
const FICLONE: usize = 0x4004_9409;
const SYS_FACCESSAT2: c_long = 439;

/// One system call. Its pointers belong to live buffers of this library, or come from the C caller, who vouches for
/// them; the kernel checks those it can.
pub(crate) fn call(number: c_long, arguments: [usize; 6]) -> Outcome<usize> {
    let [first, second, third, fourth, fifth, sixth] = arguments;
    // SAFETY: see above.
    let result = unsafe { libc::syscall(number, first, second, third, fourth, fifth, sixth) };
    if result == -1 {
        Err(errno())
    } else {
        Ok(result.cast_unsigned() as usize)
    }
}

/// A C int as a register.
pub(crate) fn int(value: c_int) -> usize {
    value as isize as usize
}

/// A register as a C int.
pub(crate) fn to_int(value: usize) -> c_int {
    value as c_int
}

pub(crate) fn pointer<T>(value: *const T) -> usize {
    value.expose_provenance()
}

fn done(result: Outcome<usize>) -> Outcome<()> {
    result.map(|_| ())
}

/// A call that the seccomp filter lets pass only with the token in its sixth argument.
pub(crate) fn call_with_token(number: c_long, arguments: [usize; 5]) -> Outcome<usize> {
    let [first, second, third, fourth, fifth] = arguments;
    let token = environment::token();
    call(number, [first, second, third, fourth, fifth, token])
}

pub(crate) fn open(path: &mut PathBuf, flags: c_int, mode: mode_t) -> Outcome<Fd> {
    open_at(AT_FDCWD, path.as_ptr(), flags | libc::O_CLOEXEC, mode).map(Fd)
}

pub(crate) fn open_at(
    at: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> Outcome<c_int> {
    call(
        libc::SYS_openat,
        [int(at), pointer(path), int(flags), mode as usize, 0, 0],
    )
    .map(to_int)
}

pub(crate) fn lstat(path: &mut PathBuf) -> Outcome<stat> {
    stat_at(AT_FDCWD, path.as_ptr(), AT_SYMLINK_NOFOLLOW)
}

pub(crate) fn stat_at(at: c_int, path: *const c_char, flags: c_int) -> Outcome<stat> {
    let mut out = empty_stat();
    call(
        libc::SYS_newfstatat,
        [
            int(at),
            pointer(path),
            pointer(&raw mut out),
            int(flags),
            0,
            0,
        ],
    )?;
    Ok(out)
}

pub(crate) fn stat_fd(fd: c_int) -> Outcome<stat> {
    let mut out = empty_stat();
    call(
        libc::SYS_fstat,
        [int(fd), pointer(&raw mut out), 0, 0, 0, 0],
    )?;
    Ok(out)
}

pub(crate) const fn empty_stat() -> stat {
    // SAFETY: a plain structure of integers.
    unsafe { std::mem::zeroed() }
}

pub(crate) fn file_type(stat: &stat) -> mode_t {
    stat.st_mode & libc::S_IFMT
}

pub(crate) fn is_directory(stat: &stat) -> bool {
    file_type(stat) == libc::S_IFDIR
}

/// `faccessat` with the effective user, where the kernel can.
pub(crate) fn access(path: *const c_char, mode: c_int, flags: c_int) -> Outcome<()> {
    let at = int(AT_FDCWD);
    if flags != 0 {
        let answer = call(
            SYS_FACCESSAT2,
            [at, pointer(path), int(mode), int(flags), 0, 0],
        );
        // Before Linux 5.8, and in containers whose filter does not know the call.
        if !matches!(answer, Err(libc::ENOSYS | libc::EPERM)) {
            return done(answer);
        }
    }
    done(call(
        libc::SYS_faccessat,
        [at, pointer(path), int(mode), 0, 0, 0],
    ))
}

pub(crate) fn read_link(path: &mut PathBuf, target: &mut PathBuf) -> Outcome<()> {
    let path = pointer(path.as_ptr());
    target.fill(|buffer, size| {
        call(
            libc::SYS_readlinkat,
            [int(AT_FDCWD), path, pointer(buffer), size, 0, 0],
        )
    })
}

pub(crate) fn symlink(target: *const c_char, path: &mut PathBuf) -> Outcome<()> {
    done(call(
        libc::SYS_symlinkat,
        [
            pointer(target),
            int(AT_FDCWD),
            pointer(path.as_ptr()),
            0,
            0,
            0,
        ],
    ))
}

pub(crate) fn make_directory(path: &mut PathBuf, mode: mode_t) -> Outcome<()> {
    done(call(
        libc::SYS_mkdirat,
        [
            int(AT_FDCWD),
            pointer(path.as_ptr()),
            mode as usize,
            0,
            0,
            0,
        ],
    ))
}

pub(crate) fn make_node(path: &mut PathBuf, mode: mode_t, device: libc::dev_t) -> Outcome<()> {
    done(call(
        libc::SYS_mknodat,
        [
            int(AT_FDCWD),
            pointer(path.as_ptr()),
            mode as usize,
            device as usize,
            0,
            0,
        ],
    ))
}

pub(crate) fn unlink(path: &mut PathBuf, flags: c_int) -> Outcome<()> {
    done(call(
        libc::SYS_unlinkat,
        [int(AT_FDCWD), pointer(path.as_ptr()), int(flags), 0, 0, 0],
    ))
}

pub(crate) fn link(from: *const c_char, to: &mut PathBuf, flags: c_int) -> Outcome<()> {
    link_at([AT_FDCWD, AT_FDCWD], from, to.as_ptr(), flags)
}

pub(crate) fn link_at(
    [from_at, to_at]: [c_int; 2],
    from: *const c_char,
    to: *const c_char,
    flags: c_int,
) -> Outcome<()> {
    done(call_with_token(
        libc::SYS_linkat,
        [
            int(from_at),
            pointer(from),
            int(to_at),
            pointer(to),
            int(flags),
        ],
    ))
}

pub(crate) fn rename(from: &mut PathBuf, to: &mut PathBuf, flags: u32) -> Outcome<()> {
    rename_at([AT_FDCWD, AT_FDCWD], from.as_ptr(), to.as_ptr(), flags)
}

pub(crate) fn rename_at(
    [from_at, to_at]: [c_int; 2],
    from: *const c_char,
    to: *const c_char,
    flags: u32,
) -> Outcome<()> {
    // Every kernel and file system knows the old one.
    let number = if flags == 0 {
        libc::SYS_renameat
    } else {
        libc::SYS_renameat2
    };
    done(call_with_token(
        number,
        [
            int(from_at),
            pointer(from),
            int(to_at),
            pointer(to),
            flags as usize,
        ],
    ))
}

/// Sets the times of what lies at the path itself, not of what a link leads to.
pub(crate) fn set_times(path: &mut PathBuf, times: &[timespec; 2]) -> Outcome<()> {
    done(call_with_token(
        libc::SYS_utimensat,
        [
            int(AT_FDCWD),
            pointer(path.as_ptr()),
            pointer(times.as_ptr()),
            int(AT_SYMLINK_NOFOLLOW),
            0,
        ],
    ))
}

pub(crate) fn set_mode(path: &mut PathBuf, mode: mode_t) -> Outcome<()> {
    done(call_with_token(
        libc::SYS_fchmodat,
        [int(AT_FDCWD), pointer(path.as_ptr()), mode as usize, 0, 0],
    ))
}

pub(crate) fn set_owner(path: &mut PathBuf, user: libc::uid_t, group: libc::gid_t) -> Outcome<()> {
    done(call_with_token(
        libc::SYS_fchownat,
        [
            int(AT_FDCWD),
            pointer(path.as_ptr()),
            user as usize,
            group as usize,
            int(AT_SYMLINK_NOFOLLOW),
        ],
    ))
}

pub(crate) fn times_of(stat: &stat) -> [timespec; 2] {
    [
        timespec {
            tv_sec: stat.st_atime,
            tv_nsec: stat.st_atime_nsec,
        },
        timespec {
            tv_sec: stat.st_mtime,
            tv_nsec: stat.st_mtime_nsec,
        },
    ]
}

pub(crate) fn clone_file(from: c_int, to: c_int) -> Outcome<()> {
    done(call(
        libc::SYS_ioctl,
        [int(to), FICLONE, int(from), 0, 0, 0],
    ))
}

pub(crate) fn effective_user() -> libc::uid_t {
    // SAFETY: cannot fail and touches nothing.
    unsafe { libc::geteuid() }
}

/// A file descriptor that is closed at the end.
#[derive(Debug)]
pub(crate) struct Fd(pub c_int);

impl Drop for Fd {
    fn drop(&mut self) {
        let _ = call(libc::SYS_close, [int(self.0), 0, 0, 0, 0, 0]);
    }
}

impl Fd {
    pub(crate) fn release(self) -> c_int {
        let fd = self.0;
        std::mem::forget(self);
        fd
    }
}
