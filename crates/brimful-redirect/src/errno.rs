//! The result of a system call.

use std::ffi::c_int;

pub(crate) type Errno = c_int;

pub(crate) type Outcome<T> = Result<T, Errno>;

pub(crate) fn errno() -> c_int {
    // SAFETY: the thread's own errno.
    unsafe { *libc::__errno_location() }
}

pub(crate) fn set_errno(value: c_int) {
    // SAFETY: the thread's own errno.
    unsafe { *libc::__errno_location() = value }
}
