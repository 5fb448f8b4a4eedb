//! The environment variables of this library, read from the list itself.

use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicUsize, Ordering};

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// The scratch directory. Absent or empty: files are left alone.
pub(crate) const REDIRECT: &str = "BRIMFUL_REDIRECT";

/// Prefixes whose writes go through, separated by `:`; `\` escapes `:`, `=` and itself.
pub(crate) const PASS: &str = "BRIMFUL_REDIRECT_PASS";

/// `prefix=layer` pairs, separated by `:`: layers that all branches share.
pub(crate) const SHARED: &str = "BRIMFUL_REDIRECT_SHARED";

/// What the seccomp filter wants in the sixth argument of `chmod` and its like, hexadecimal.
pub(crate) const TOKEN: &str = "BRIMFUL_REDIRECT_TOKEN";

/// The branch layers, top first, separated by `:`. Set by `brimful_redirect_branch`.
pub(crate) const LAYERS: &str = "BRIMFUL_REDIRECT_LAYERS";

/// The process whose descendants belong to the rehearsal.
pub(crate) const KEEPER: &str = "BRIMFUL_KEEPER";

/// The program that stands for every `nvidia-smi`. Absent or empty: each is started as it is.
pub(crate) const NVIDIA_SMI: &str = "BRIMFUL_NVIDIA_SMI";

/// The directory of the Python hook, which belongs into [`PYTHONPATH`].
pub(crate) const HOOK: &str = "BRIMFUL_HOOK";

pub(crate) const PRELOAD: &str = "LD_PRELOAD";
pub(crate) const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";
pub(crate) const PYTHONPATH: &str = "PYTHONPATH";
pub(crate) const PATH: &str = "PATH";

static TOKEN_VALUE: AtomicUsize = AtomicUsize::new(0);

pub(crate) fn token() -> usize {
    TOKEN_VALUE.load(Ordering::Relaxed)
}

pub(crate) fn set_token(token: usize) {
    TOKEN_VALUE.store(token, Ordering::Relaxed);
}

/// The program's own environment.
pub(crate) fn environment_list() -> *const *const c_char {
    // SAFETY: a pointer that libc keeps; only copied here.
    unsafe { environ }
}

/// An environment variable, read from the list itself: shells replace `getenv`.
pub(crate) fn variable(name: &str) -> Option<Vec<u8>> {
    // SAFETY: libc's list of strings, which ends with null; read at load and by `brimful_redirect_branch`, whose caller
    // changes no variable meanwhile.
    unsafe {
        let mut entry = environ;
        if entry.is_null() {
            return None;
        }
        while !(*entry).is_null() {
            let line = CStr::from_ptr(*entry).to_bytes();
            if let Some(value) = line
                .strip_prefix(name.as_bytes())
                .and_then(|rest| rest.strip_prefix(b"="))
            {
                return Some(value.to_vec()).filter(|value| !value.is_empty());
            }
            entry = entry.add(1);
        }
    }
    None
}

/// The file that gets the lines. Works without a scratch directory too.
pub(crate) const CONNECTIONS: &str = "BRIMFUL_CONNECTIONS";
