//! Shared memory by name. libc opens it past this library.

use std::ffi::{c_char, c_int};

use libc::{AT_FDCWD, O_CLOEXEC, O_NOFOLLOW, O_NONBLOCK, mode_t};

use crate::abi::{checked, exports, next, text};
use crate::config::config;
use crate::names::remove_at;
use crate::open::open_at;
use crate::path::PathBuf;
use crate::sys::Outcome;

/// Where libc keeps shared memory and semaphores.
const DIRECTORY: &[u8] = b"/dev/shm/";
const MAX_NAME: usize = 255;

/// The path of a name, as libc forms it.
pub(crate) fn path_of(prefix: &[u8], name: *const c_char) -> Outcome<PathBuf> {
    let name = text(name)?;
    let start = name.iter().take_while(|byte| **byte == b'/').count();
    let name = name.get(start..).unwrap_or_default();
    if name.is_empty() || name.contains(&b'/') {
        return Err(libc::EINVAL);
    }
    if prefix.len() + name.len() > MAX_NAME {
        return Err(libc::ENAMETOOLONG);
    }
    let mut path = PathBuf::new();
    path.set(&[DIRECTORY, prefix, name])?;
    Ok(path)
}

exports! {
    fn shm_open(name: *const c_char, flags: c_int, mode: mode_t) -> c_int, -1; {
        if config().is_none() {
            return checked(next!(c"shm_open", fn(*const c_char, c_int, mode_t) -> c_int)(name, flags, mode));
        }
        let mut path = path_of(b"", name)?;
        open_at(AT_FDCWD, path.as_ptr(), flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, mode)
    }
    fn shm_unlink(name: *const c_char) -> c_int, -1; {
        if config().is_none() {
            return checked(next!(c"shm_unlink", fn(*const c_char) -> c_int)(name));
        }
        remove_at(AT_FDCWD, path_of(b"", name)?.as_ptr(), 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_becomes_the_path_that_libc_would_use() {
        let path = |name: &std::ffi::CStr| {
            path_of(b"sem.", name.as_ptr()).map(|path| path.as_bytes().to_vec())
        };
        assert_eq!(path(c"/cache"), Ok(b"/dev/shm/sem.cache".to_vec()));
        assert_eq!(path(c"//cache"), Ok(b"/dev/shm/sem.cache".to_vec()));
        assert_eq!(path(c"cache"), Ok(b"/dev/shm/sem.cache".to_vec()));
        assert_eq!(path(c"/"), Err(libc::EINVAL));
        assert_eq!(path(c"/a/b"), Err(libc::EINVAL));
        let long = std::ffi::CString::new(vec![b'x'; 252]).unwrap();
        assert_eq!(path(&long), Err(libc::ENAMETOOLONG));
    }
}
