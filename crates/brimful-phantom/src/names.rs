//! Taking NVIDIA's names at load.
//!
//! The loader satisfies a `DT_NEEDED` entry such as `libcublas.so.13` with an object it already has under
//! that name. A second name for the same file (same device and inode) is added to the object instead of
//! loading it again. So this library, when loaded from a directory where the names of `sonames.txt` are links
//! to it, opens each of them by its bare name: its own `DT_RPATH` of `$ORIGIN` finds the link first (see
//! `build.rs`), and from then on one object answers for all. Nothing else needs to be in a search path, and
//! NVIDIA's own files are not even opened.

use std::ffi::{CStr, CString, OsStr, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::abi::{self, DlInfo, RTLD_DEEPBIND, RTLD_GLOBAL, RTLD_LAZY};
use crate::machine;

/// One name per line; another crate makes the links from the same file.
const NAMES: &str = include_str!("../sonames.txt");

/// Runs when the library is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

extern "C" fn at_load() {
    abi::guard(|| {
        keep_hook();
        if let Some(file) = own_file() {
            take_names(&file);
        }
        abi::SUCCESS
    });
}

/// Puts brimful's hook back where a script has set PYTHONPATH for what it starts, as `PYTHONPATH=. python train.py` does.
fn keep_hook() {
    let Some(hook) = machine::environment(crate::env_vars::BRIMFUL_HOOK) else {
        return;
    };
    let path = machine::environment(crate::env_vars::PYTHONPATH).unwrap_or_default();
    if path.split(':').all(|part| part != hook) {
        let with_hook = format!("{hook}:{path}");
        // SAFETY: this runs before `main`, so that no other thread reads the environment.
        unsafe { std::env::set_var(crate::env_vars::PYTHONPATH, with_hook.trim_end_matches(':')) };
    }
}

/// The path under which this library was loaded.
pub(crate) fn own_file() -> Option<PathBuf> {
    file_of(at_load as *const c_void)
}

/// The loaded library or program that an address lies in.
pub(crate) fn file_of(address: *const c_void) -> Option<PathBuf> {
    let mut found = DlInfo {
        file: std::ptr::null(),
        base: std::ptr::null_mut(),
        symbol: std::ptr::null(),
        address: std::ptr::null_mut(),
    };
    // SAFETY: `dladdr` takes any address and writes only into `found`; the name lives as long as the library.
    unsafe {
        if abi::dladdr(address, &raw mut found) == 0 || found.file.is_null() {
            return None;
        }
        Some(PathBuf::from(OsStr::from_bytes(
            CStr::from_ptr(found.file).to_bytes(),
        )))
    }
}

fn take_names(file: &Path) {
    let (Some(directory), Ok(own)) = (file.parent(), file.metadata()) else {
        return;
    };
    let cudnn = machine::environment(crate::env_vars::BRIMFUL_PHANTOM_CUDNN).map(PathBuf::from);
    for name in NAMES.lines() {
        if let Some(real) = cudnn.as_deref().and_then(|cudnn| companion(cudnn, name)) {
            open_companion(&real);
            continue;
        }
        // Only a link to this very file: else the search would go on and load NVIDIA's.
        let ours = directory
            .join(name)
            .metadata()
            .is_ok_and(|link| (link.dev(), link.ino()) == (own.dev(), own.ino()));
        if ours && let Ok(name) = CString::new(name) {
            // SAFETY: opens a file that is already loaded, which only adds a name to it.
            unsafe { abi::dlopen(name.as_ptr(), RTLD_LAZY | RTLD_GLOBAL) };
        }
    }
}

/// The real library of this name which a real cuDNN asks when it judges its engines.
///
/// It opens cuBLASLt and NVRTC by name and looks for entry points we do not have. With ours under those names
/// its heuristics choose other engines: 116 MB of workspace on a T4 where 0.4 MB is right. So where the real
/// ones lie in the directories of cuDNN's own search path, they keep their names. PyTorch's calls still come
/// here, since this library is the first that the loader asks for a symbol.
fn companion(cudnn: &Path, name: &str) -> Option<PathBuf> {
    if !name.starts_with("libcublasLt.so.") && !name.starts_with("libnvrtc.so.") {
        return None;
    }
    let directory = cudnn.parent()?;
    [
        "",
        "../../cu13/lib",
        "../../cublas/lib",
        "../../cuda_nvrtc/lib",
    ]
    .into_iter()
    .map(|place| directory.join(place).join(name))
    .find(|path| path.is_file())
}

/// Loads a companion, so that it is found by name also when PyTorch is installed elsewhere; only in a Python
/// program, because every other process that inherits `LD_PRELOAD` would load half a gigabyte for nothing.
fn open_companion(path: &Path) {
    // SAFETY: asks whether any loaded object has this symbol.
    let python =
        unsafe { !abi::dlsym(std::ptr::null_mut(), c"Py_IsInitialized".as_ptr()).is_null() };
    if !python {
        return;
    }
    // NVRTC opens its built-in functions by bare name and does not find the file beside it by itself.
    let beside = path
        .parent()
        .and_then(|directory| directory.read_dir().ok())
        .into_iter()
        .flatten()
        .flatten();
    let builtins = beside
        .filter(|file| {
            file.file_name()
                .as_bytes()
                .starts_with(b"libnvrtc-builtins.so.")
        })
        .map(|file| file.path());
    for file in builtins.chain([path.to_owned()]) {
        if let Ok(file) = CString::new(file.as_os_str().as_bytes()) {
            // Deep binding: calls of these libraries to themselves must not come here.
            // SAFETY: loads a library beside the one the person named.
            unsafe { abi::dlopen(file.as_ptr(), RTLD_LAZY | RTLD_DEEPBIND) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::NAMES;

    #[test]
    fn names_are_bare_and_unique() {
        let mut names: Vec<_> = NAMES.lines().collect();
        assert!(
            names
                .iter()
                .all(|name| name.starts_with("lib") && name.contains(".so") && !name.contains('/'))
        );
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
