//! Ends a rehearsal whose torch nobody watches.
//!
//! Without brimful's Python hook a script would train to its end on this GPU, which computes nothing, and might save
//! what came of it. The hook reports itself here when it has been installed. A process of a rehearsal
//! (`BRIMFUL_REHEARSAL` is set) that has loaded torch and takes device memory without it, such as `python -I`, is ended.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::abi::{self, RTLD_LAZY, RTLD_NOLOAD, SUCCESS, exports};
use crate::machine;

/// The exit code of an unusable environment, as brimful itself has it.
const ENVIRONMENT_ERROR: i32 = 97;

const REASON: &str = "this Python does not read PYTHONPATH, or the script is not Python";

static WATCHED: AtomicBool = AtomicBool::new(false);

exports! {
    /// Says that the hook watches torch in this process and in those it forks.
    fn brimful_phantom_watched() {
        WATCHED.store(true, Ordering::Relaxed);
        SUCCESS
    }
}

/// Called when a process takes device memory.
pub(crate) fn check() {
    static DIRECTORY: OnceLock<Option<PathBuf>> = OnceLock::new();
    if WATCHED.load(Ordering::Relaxed) {
        return;
    }
    let directory = DIRECTORY.get_or_init(|| {
        machine::environment(crate::env_vars::BRIMFUL_REHEARSAL)
            .filter(|directory| !directory.is_empty())
            .map(PathBuf::from)
    });
    if let Some(directory) = directory
        && torch_is_loaded()
    {
        end(directory);
    }
}

/// Other users of CUDA, such as CuPy before torch is imported, are none of the hook's.
fn torch_is_loaded() -> bool {
    // SAFETY: with RTLD_NOLOAD this only asks whether a library of that name is loaded.
    let library = unsafe { abi::dlopen(c"libtorch_cuda.so".as_ptr(), RTLD_LAZY | RTLD_NOLOAD) };
    !library.is_null()
}

fn end(directory: &Path) -> ! {
    abi::say(&format!(
        "torch was loaded without brimful's hook: {REASON}"
    ));
    let line = line(std::process::id());
    #[expect(
        clippy::disallowed_methods,
        reason = "this library has no dependencies, and the directory is private"
    )]
    let progress = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(directory.join("progress"));
    if let Ok(mut file) = progress {
        let _ = file.write_all(line.as_bytes());
    }
    // SAFETY: ends the process at once; nothing of it runs after this, also no exit handler of a library.
    unsafe { abi::_exit(ENVIRONMENT_ERROR) }
}

/// One event of the rehearsal's progress file.
fn line(pid: u32) -> String {
    format!("{{\"event\":\"unhooked\",\"torch\":null,\"why\":\"{REASON}\",\"pid\":{pid}}}\n")
}

#[cfg(test)]
mod tests {
    use super::{REASON, check, line};

    #[test]
    fn a_process_without_torch_goes_on() {
        check();
    }

    #[test]
    fn the_event_is_one_line_without_anything_to_escape() {
        assert!(!REASON.contains(['"', '\\', '\n']));
        assert_eq!(
            line(7),
            format!("{{\"event\":\"unhooked\",\"torch\":null,\"why\":\"{REASON}\",\"pid\":7}}\n")
        );
    }
}
