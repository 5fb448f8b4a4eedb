//! The rest of libc's functions that take a path: file systems, libraries, watches, patterns.

use std::ffi::{CString, c_char, c_int, c_long, c_void};

use libc::AT_FDCWD;

use crate::abi::{checked, exports, next, text};
use crate::config::{self, config};
use crate::layer;
use crate::read::{find, written_config};
use crate::resolve::{Last, Target, resolve};
use crate::sys::{self, Outcome, int, pointer};

/// The path where a file lies, or the caller's own.
fn locate(path: *const c_char, target: &mut Target) -> Outcome<*const c_char> {
    Ok(match find(AT_FDCWD, path, Last::Follow, target)? {
        Some(_) => target.physical.as_ptr(),
        None => path,
    })
}

exports! {
    /// From now on this process and its children write into a new layer on top of the others.
    fn brimful_redirect_branch(directory: *const c_char) -> c_int, -1; {
        let config = config().ok_or(libc::ENOTSUP)?;
        let branched = config.branched(text(directory)?).ok_or(libc::EINVAL)?;
        layer::make_layer(&branched, 0)?;
        let list = CString::new(branched.layer_list()).map_err(|_| libc::EINVAL)?;
        let name = CString::new(crate::environment::LAYERS).map_err(|_| libc::EINVAL)?;
        config::install(branched);
        // SAFETY: two C strings; the caller runs alone in a process that was just forked.
        checked(unsafe { libc::setenv(name.as_ptr(), list.as_ptr(), 1) })?;
        if config::generation() != 0 {
            config::changed();
        }
        Ok(0)
    }
    fn statfs(path: *const c_char, out: *mut libc::statfs) -> c_int, -1; {
        let mut target = Target::new();
        let path = locate(path, &mut target)?;
        sys::call(libc::SYS_statfs, [pointer(path), pointer(out), 0, 0, 0, 0]).map(sys::to_int)
    }
    fn statfs64(path: *const c_char, out: *mut libc::statfs) -> c_int, -1; {
        let mut target = Target::new();
        let path = locate(path, &mut target)?;
        sys::call(libc::SYS_statfs, [pointer(path), pointer(out), 0, 0, 0, 0]).map(sys::to_int)
    }
    fn statvfs(path: *const c_char, out: *mut c_void) -> c_int, -1; {
        let mut target = Target::new();
        let path = locate(path, &mut target)?;
        checked(next!(c"statvfs", fn(*const c_char, *mut c_void) -> c_int)(path, out))
    }
    fn statvfs64(path: *const c_char, out: *mut c_void) -> c_int, -1; {
        let mut target = Target::new();
        let path = locate(path, &mut target)?;
        checked(next!(c"statvfs64", fn(*const c_char, *mut c_void) -> c_int)(path, out))
    }
    fn pathconf(path: *const c_char, name: c_int) -> c_long, -1; {
        let mut target = Target::new();
        let path = locate(path, &mut target)?;
        let before = sys::errno();
        sys::set_errno(0);
        let answer = next!(c"pathconf", fn(*const c_char, c_int) -> c_long)(path, name);
        let error = sys::errno();
        sys::set_errno(before);
        if answer == -1 && error != 0 { Err(error) } else { Ok(answer) }
    }
    fn inotify_add_watch(fd: c_int, path: *const c_char, mask: u32) -> c_int, -1; {
        let mut target = Target::new();
        let last = if mask & libc::IN_DONT_FOLLOW == 0 { Last::Follow } else { Last::Keep };
        let path = match find(AT_FDCWD, path, last, &mut target)? {
            Some(_) => target.physical.as_ptr(),
            None => path,
        };
        sys::call(libc::SYS_inotify_add_watch, [int(fd), pointer(path), mask as usize, 0, 0, 0]).map(sys::to_int)
    }
    fn ftok(path: *const c_char, project: c_int) -> libc::key_t, -1; {
        let mut target = Target::new();
        let path = locate(path, &mut target)?;
        Ok(next!(c"ftok", fn(*const c_char, c_int) -> libc::key_t)(path, project))
    }
    fn glob(pattern: *const c_char, flags: c_int, on_error: *const c_void, out: *mut Glob) -> c_int, GLOB_ABORTED; {
        let run = next!(c"glob", fn(*const c_char, c_int, *const c_void, *mut Glob) -> c_int);
        Ok(run(pattern, glob_flags(flags, out), on_error, out))
    }
    fn glob64(pattern: *const c_char, flags: c_int, on_error: *const c_void, out: *mut Glob) -> c_int, GLOB_ABORTED; {
        let run = next!(c"glob64", fn(*const c_char, c_int, *const c_void, *mut Glob) -> c_int);
        Ok(run(pattern, glob_flags(flags, out), on_error, out))
    }
}

const GLOB_ABORTED: c_int = 2;
const GLOB_ALTDIRFUNC: c_int = 1 << 9;

/// `glob_t` with the functions that the C header hides.
#[repr(C)]
pub(crate) struct Glob {
    count: usize,
    paths: *mut *mut c_char,
    offset: usize,
    flags: c_int,
    close: *const c_void,
    read: *const c_void,
    open: *const c_void,
    lstat: *const c_void,
    stat: *const c_void,
}

/// libc's `glob` reads directories past this library, unless it is given functions.
fn glob_flags(flags: c_int, out: *mut Glob) -> c_int {
    if flags & GLOB_ALTDIRFUNC != 0 || out.is_null() || written_config().is_none() {
        return flags;
    }
    // SAFETY: not null, and a `glob_t` by the contract of the function.
    let out = unsafe { &mut *out };
    out.close = crate::dir::closedir as *const c_void;
    out.read = crate::dir::readdir as *const c_void;
    out.open = crate::dir::opendir as *const c_void;
    out.lstat = crate::read::lstat as *const c_void;
    out.stat = crate::read::stat as *const c_void;
    flags | GLOB_ALTDIRFUNC
}

/// Loading a library that lies in a layer, or one of NVIDIA's. libc looks at who calls to know where to search (the run
/// paths of that library, `$ORIGIN`) and what comes next (`RTLD_NEXT`), so the call is handed on with the caller's own
/// return address.
#[cfg(target_arch = "x86_64")]
mod libraries {
    use std::arch::naked_asm;

    use super::{Last, Target, c_char, c_int, c_void, resolve, text, written_config};
    use crate::abi::Next;
    use crate::inherited::gpu_library;

    #[repr(C)]
    struct Handed {
        path: *const c_char,
        function: *const c_void,
    }

    #[unsafe(naked)]
    #[unsafe(no_mangle)]
    pub(crate) extern "C" fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void {
        naked_asm!(
            "push rsi",
            "call {hand_on}",
            "pop rsi",
            "mov rdi, rax",
            "jmp rdx",
            hand_on = sym hand_on,
        )
    }

    extern "C" fn hand_on(path: *const c_char) -> Handed {
        static NEXT: Next = Next::new(c"dlopen");
        let function = NEXT
            .address()
            .map_or(nothing as *const c_void, <*mut c_void>::cast_const);
        let path = std::panic::catch_unwind(|| gpu_library(path).or_else(|| layer_path(path)))
            .ok()
            .flatten()
            .unwrap_or(path);
        Handed { path, function }
    }

    /// The physical path of a library in a layer. It stays allocated: libc may keep it.
    fn layer_path(path: *const c_char) -> Option<*const c_char> {
        let config = written_config()?;
        let name = text(path).ok()?;
        if !name.contains(&b'/') {
            return None;
        }
        let mut target = Target::new();
        resolve(config, libc::AT_FDCWD, name, Last::Follow, &mut target).ok()?;
        if target.found?.place == crate::config::REAL {
            return None;
        }
        let path = std::ffi::CString::new(target.physical.as_bytes()).ok()?;
        Some(path.into_raw())
    }

    extern "C" fn nothing(_path: *const c_char, _flags: c_int) -> *mut c_void {
        std::ptr::null_mut()
    }
}
