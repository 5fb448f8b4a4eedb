//! Semaphores by name: a small file that everybody maps. libc makes and opens it past this library.

use std::ffi::{c_char, c_int, c_uint, c_void};

use libc::{AT_FDCWD, O_CLOEXEC, O_CREAT, O_EXCL, O_NOFOLLOW, O_RDWR, mode_t, sem_t};

use crate::abi::{checked, checked_pointer, exports, next};
use crate::config::config;
use crate::names::remove_at;
use crate::open::open_at;
use crate::path::PathBuf;
use crate::rename::rename_at;
use crate::shared_memory::path_of;
use crate::stdio::random;
use crate::sys::{self, Fd, Outcome, RENAME_NOREPLACE, int};

/// In front of the names of libc's own.
const PREFIX: &[u8] = b"sem.";
/// Of a file that is not finished.
const UNFINISHED: &[u8] = b".brimful-sem.";
const SIZE: usize = size_of::<sem_t>();
const OPENING: c_int = O_RDWR | O_NOFOLLOW | O_CLOEXEC;

fn open(name: *const c_char, flags: c_int, mode: mode_t, value: c_uint) -> Outcome<*mut sem_t> {
    let mut path = path_of(PREFIX, name)?;
    loop {
        if flags & (O_CREAT | O_EXCL) != O_CREAT | O_EXCL {
            match open_at(AT_FDCWD, path.as_ptr(), OPENING, 0).map(Fd) {
                Ok(file) => return map(&file),
                Err(libc::ENOENT) if flags & O_CREAT != 0 => {}
                Err(error) => return Err(error),
            }
        }
        match create(&mut path, mode, value) {
            // Another process was faster.
            Err(libc::EEXIST) if flags & O_EXCL == 0 => {}
            outcome => return outcome,
        }
    }
}

/// Makes a semaphore that nobody sees before it has its value.
fn create(path: &mut PathBuf, mode: mode_t, value: c_uint) -> Outcome<*mut sem_t> {
    let suffix = format!("{:016x}", random());
    let directory = crate::path::parent(path.as_bytes());
    let mut unfinished = PathBuf::new();
    unfinished.set(&[directory, b"/", UNFINISHED, suffix.as_bytes()])?;
    let flags = OPENING | O_CREAT | O_EXCL;
    let file = open_at(AT_FDCWD, unfinished.as_ptr(), flags, mode).map(Fd)?;
    let outcome = (|| {
        sys::call(libc::SYS_ftruncate, [int(file.0), SIZE, 0, 0, 0, 0])?;
        let semaphore = map(&file)?;
        // SAFETY: mapped just now, of the right size, and seen by nobody else.
        let outcome = checked(unsafe { libc::sem_init(semaphore, 1, value) });
        let outcome = outcome.and_then(|_| {
            rename_at(
                AT_FDCWD,
                unfinished.as_ptr(),
                AT_FDCWD,
                path.as_ptr(),
                RENAME_NOREPLACE,
            )
        });
        match outcome {
            Ok(_) => Ok(semaphore),
            Err(error) => {
                let _ = unmap(semaphore);
                Err(error)
            }
        }
    })();
    if outcome.is_err() {
        let _ = remove_at(AT_FDCWD, unfinished.as_ptr(), 0);
    }
    outcome
}

fn map(file: &Fd) -> Outcome<*mut sem_t> {
    if sys::stat_fd(file.0)?.st_size < SIZE as i64 {
        return Err(libc::EINVAL);
    }
    let protection = int(libc::PROT_READ | libc::PROT_WRITE);
    let arguments = [0, SIZE, protection, int(libc::MAP_SHARED), int(file.0), 0];
    sys::call(libc::SYS_mmap, arguments).map(std::ptr::with_exposed_provenance_mut)
}

fn unmap(semaphore: *mut sem_t) -> Outcome<c_int> {
    let address = sys::pointer(semaphore.cast_const());
    sys::call(libc::SYS_munmap, [address, SIZE, 0, 0, 0, 0]).map(sys::to_int)
}

exports! {
    fn sem_open(name: *const c_char, flags: c_int, mode: mode_t, value: c_uint) -> *mut c_void, std::ptr::null_mut(); {
        if config().is_none() {
            let open = next!(c"sem_open", fn(*const c_char, c_int, mode_t, c_uint) -> *mut c_void);
            return checked_pointer(open(name, flags, mode, value));
        }
        open(name, flags, mode, value).map(<*mut sem_t>::cast)
    }
    fn sem_close(semaphore: *mut c_void) -> c_int, -1; {
        if config().is_none() {
            return checked(next!(c"sem_close", fn(*mut c_void) -> c_int)(semaphore));
        }
        unmap(semaphore.cast())
    }
    fn sem_unlink(name: *const c_char) -> c_int, -1; {
        if config().is_none() {
            return checked(next!(c"sem_unlink", fn(*const c_char) -> c_int)(name));
        }
        remove_at(AT_FDCWD, path_of(PREFIX, name)?.as_ptr(), 0)
    }
}
