//! C streams and temporary files: libc opens them past this library.

use std::ffi::{CStr, c_char, c_int};

use libc::{
    AT_FDCWD, FILE, O_APPEND, O_CLOEXEC, O_CREAT, O_EXCL, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY,
};

use crate::abi::{checked_pointer, exports, next, text};
use crate::config::{self, config};
use crate::names;
use crate::open::{Prepared, is_writing, open_at, prepare};
use crate::path::is_kernel_path;
use crate::processes::may_write;
use crate::resolve::Target;
use crate::sys::{self, Fd, Outcome};

const MAX_TRIES: usize = 256;

/// What `open` is to be asked for a mode such as `w+x`.
fn flags_of(mode: &[u8]) -> Outcome<c_int> {
    let plus = mode
        .iter()
        .skip(1)
        .take_while(|byte| **byte != b',')
        .any(|byte| *byte == b'+');
    let mut flags = match mode.first() {
        Some(b'r') if plus => O_RDWR,
        Some(b'r') => O_RDONLY,
        Some(b'w') => O_CREAT | O_TRUNC | if plus { O_RDWR } else { O_WRONLY },
        Some(b'a') => O_CREAT | O_APPEND | if plus { O_RDWR } else { O_WRONLY },
        _ => return Err(libc::EINVAL),
    };
    for byte in mode.iter().skip(1).take_while(|byte| **byte != b',') {
        match byte {
            b'x' => flags |= O_EXCL,
            b'e' => flags |= O_CLOEXEC,
            _ => {}
        }
    }
    Ok(flags)
}

fn open_stream(path: *const c_char, mode: *const c_char) -> Outcome<*mut FILE> {
    let same = |path: *const c_char| {
        checked_pointer(next!(
            c"fopen64",
            fn(*const c_char, *const c_char) -> *mut FILE
        )(path, mode))
    };
    let mode_text = text(mode)?;
    let flags = flags_of(mode_text)?;
    let path_text = text(path)?;
    if is_writing(flags) && !may_write(path_text) {
        return Err(libc::EACCES);
    }
    let Some(config) = config() else {
        return same(path);
    };
    if !is_writing(flags) && config::generation() == 0 || is_kernel_path(path_text) {
        return same(path);
    }
    if mode_text.windows(4).any(|window| window == b"ccs=") {
        // Only libc can set up the conversion, and only from a path.
        let mut target = Target::new();
        drop(prepare(
            config,
            AT_FDCWD,
            path_text,
            flags & !O_EXCL,
            0o666,
            &mut target,
        )?);
        return same(target.physical.as_ptr());
    }
    let fd = Fd(open_at(AT_FDCWD, path, flags, 0o666)?);
    let stream = checked_pointer(next!(c"fdopen", fn(c_int, *const c_char) -> *mut FILE)(
        fd.0, mode,
    ))?;
    fd.release();
    Ok(stream)
}

fn reopen(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> Outcome<*mut FILE> {
    let same = |path: *const c_char, mode: *const c_char| {
        let reopen = next!(
            c"freopen64",
            fn(*const c_char, *const c_char, *mut FILE) -> *mut FILE
        );
        checked_pointer(reopen(path, mode, stream))
    };
    let Some(config) = config() else {
        return same(path, mode);
    };
    if path.is_null() || is_kernel_path(text(path)?) {
        return same(path, mode);
    }
    let flags = flags_of(text(mode)?)?;
    let mut target = Target::new();
    let prepared = prepare(config, AT_FDCWD, text(path)?, flags, 0o666, &mut target);
    match prepared {
        Ok(Prepared::Path(_)) => same(target.physical.as_ptr(), mode),
        // Made in place of a whiteout: it is there now, so the mode must not ask for a new file.
        Ok(Prepared::Open(_)) => {
            let mut plain = [0_u8; 16];
            let kept = text(mode)?.iter().filter(|byte| **byte != b'x');
            plain
                .iter_mut()
                .take(15)
                .zip(kept)
                .for_each(|(to, from)| *to = *from);
            same(target.physical.as_ptr(), plain.as_ptr().cast())
        }
        Err(error) => {
            // libc closes the stream even if the file cannot be opened.
            next!(c"fclose", fn(*mut FILE) -> c_int)(stream);
            Err(error)
        }
    }
}

/// Fills in the six letters before the suffix until `make` succeeds.
fn with_random_name<T>(
    template: *mut c_char,
    suffix: c_int,
    mut make: impl FnMut(*const c_char) -> Outcome<T>,
) -> Outcome<T> {
    const LETTERS: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    if template.is_null() {
        return Err(libc::EFAULT);
    }
    // SAFETY: a C string of the caller, who lets it be changed.
    let len = unsafe { CStr::from_ptr(template) }.to_bytes().len();
    let suffix = usize::try_from(suffix).map_err(|_| libc::EINVAL)?;
    let Some(start) = len.checked_sub(suffix).and_then(|end| end.checked_sub(6)) else {
        return Err(libc::EINVAL);
    };
    // SAFETY: within the string.
    let letters = unsafe { std::slice::from_raw_parts_mut(template.cast::<u8>().add(start), 6) };
    if letters != b"XXXXXX" {
        return Err(libc::EINVAL);
    }
    for _ in 0..MAX_TRIES {
        let mut value = random();
        for letter in &mut *letters {
            *letter = LETTERS.get((value % 62) as usize).copied().unwrap_or(b'a');
            value /= 62;
        }
        match make(template) {
            Err(libc::EEXIST) => {}
            other => return other,
        }
    }
    letters.copy_from_slice(b"XXXXXX");
    Err(libc::EEXIST)
}

pub(crate) fn random() -> u64 {
    let mut value = 0_u64;
    let filled = sys::call(
        libc::SYS_getrandom,
        [sys::pointer(&raw mut value), 8, 1, 0, 0, 0],
    );
    if filled != Ok(8) {
        let mut now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let clock = sys::int(libc::CLOCK_MONOTONIC);
        let _ = sys::call(
            libc::SYS_clock_gettime,
            [clock, sys::pointer(&raw mut now), 0, 0, 0, 0],
        );
        // SAFETY: cannot fail and touches nothing.
        let process = unsafe { libc::getpid() };
        value = (now.tv_nsec ^ now.tv_sec << 20).cast_unsigned()
            ^ u64::from(process.cast_unsigned()) << 40;
        value = value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    value
}

fn temporary_file(template: *mut c_char, suffix: c_int, flags: c_int) -> Outcome<c_int> {
    let flags = flags & !libc::O_ACCMODE | O_RDWR | O_CREAT | O_EXCL;
    with_random_name(template, suffix, |path| {
        open_at(AT_FDCWD, path, flags, 0o600)
    })
}

fn unnamed_file() -> Outcome<*mut FILE> {
    let fd = open_at(
        AT_FDCWD,
        c"/tmp".as_ptr(),
        libc::O_TMPFILE | O_RDWR | O_EXCL,
        0o600,
    );
    let fd = if let Ok(fd) = fd {
        Fd(fd)
    } else {
        let mut template = *b"/tmp/tmpfXXXXXX\0";
        let fd = Fd(temporary_file(template.as_mut_ptr().cast(), 0, 0)?);
        names::unlink(template.as_ptr().cast());
        fd
    };
    let stream = checked_pointer(next!(c"fdopen", fn(c_int, *const c_char) -> *mut FILE)(
        fd.0,
        c"w+".as_ptr(),
    ))?;
    fd.release();
    Ok(stream)
}

exports! {
    fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE, std::ptr::null_mut(); { open_stream(path, mode) }
    fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE, std::ptr::null_mut(); { open_stream(path, mode) }
    fn freopen(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE, std::ptr::null_mut(); {
        reopen(path, mode, stream)
    }
    fn freopen64(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE, std::ptr::null_mut(); {
        reopen(path, mode, stream)
    }
    fn tmpfile() -> *mut FILE, std::ptr::null_mut(); { unnamed_file() }
    fn tmpfile64() -> *mut FILE, std::ptr::null_mut(); { unnamed_file() }
    fn mkstemp(template: *mut c_char) -> c_int, -1; { temporary_file(template, 0, 0) }
    fn mkstemp64(template: *mut c_char) -> c_int, -1; { temporary_file(template, 0, 0) }
    fn mkostemp(template: *mut c_char, flags: c_int) -> c_int, -1; { temporary_file(template, 0, flags) }
    fn mkostemp64(template: *mut c_char, flags: c_int) -> c_int, -1; { temporary_file(template, 0, flags) }
    fn mkstemps(template: *mut c_char, suffix: c_int) -> c_int, -1; { temporary_file(template, suffix, 0) }
    fn mkstemps64(template: *mut c_char, suffix: c_int) -> c_int, -1; { temporary_file(template, suffix, 0) }
    fn mkostemps(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int, -1; {
        temporary_file(template, suffix, flags)
    }
    fn mkostemps64(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int, -1; {
        temporary_file(template, suffix, flags)
    }
    fn mkdtemp(template: *mut c_char) -> *mut c_char, std::ptr::null_mut(); {
        with_random_name(template, 0, |path| {
            if names::mkdir(path, 0o700) == 0 { Ok(template) } else { Err(sys::errno()) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_of_streams_become_flags() {
        assert_eq!(flags_of(b"rb"), Ok(O_RDONLY));
        assert_eq!(flags_of(b"r+b"), Ok(O_RDWR));
        assert_eq!(flags_of(b"wbx"), Ok(O_WRONLY | O_CREAT | O_TRUNC | O_EXCL));
        assert_eq!(
            flags_of(b"a+e"),
            Ok(O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC)
        );
        assert_eq!(flags_of(b"r,ccs=x+"), Ok(O_RDONLY));
        assert_eq!(flags_of(b""), Err(libc::EINVAL));
    }
}
