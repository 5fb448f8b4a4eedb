//! What other processes hold of the devices, for tests in which a phantom stands for a real GPU.
//!
//! With `BRIMFUL_PHANTOM_SHARED=DIRECTORY` each process writes what it holds to a file there, named by its process, and
//! NVML adds up those of all processes that live: a watching process then sees what the training one takes. A file
//! belongs to a living process if it is locked, which holds across PID namespaces.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use crate::abi::lock;
use crate::config::MAX_DEVICES;
use crate::env_vars::BRIMFUL_PHANTOM_SHARED;

/// Bytes of one number.
const WORD: usize = 8;

/// The file of this process: a forked child has its own.
static OWN: Mutex<Option<(u32, File)>> = Mutex::new(None);

fn directory() -> Option<&'static Path> {
    static DIRECTORY: OnceLock<Option<PathBuf>> = OnceLock::new();
    let directory = DIRECTORY.get_or_init(|| {
        std::env::var_os(BRIMFUL_PHANTOM_SHARED)
            .filter(|directory| !directory.is_empty())
            .map(PathBuf::from)
    });
    directory.as_deref()
}

/// Says what this process holds of a device now.
pub(crate) fn publish(device: usize, held: u64) {
    if let Some(directory) = directory() {
        publish_in(directory, device, held);
    }
}

/// What each other living process holds of a device.
pub(crate) fn others(device: usize) -> Vec<(u32, u64)> {
    directory().map_or_else(Vec::new, |directory| others_in(directory, device))
}

fn publish_in(directory: &Path, device: usize, held: u64) {
    let pid = std::process::id();
    let mut own = lock(&OWN);
    if own.as_ref().is_none_or(|(of, _)| *of != pid) {
        *own = create(directory, pid).map(|file| (pid, file));
    }
    if let Some((_, file)) = own.as_ref() {
        let _ = file.write_all_at(&held.to_le_bytes(), (device * WORD) as u64);
    }
}

fn create(directory: &Path, pid: u32) -> Option<File> {
    #[expect(
        clippy::disallowed_methods,
        reason = "this library has no dependencies, and the directory is a test's"
    )]
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(directory.join(pid.to_string()))
        .ok()?;
    file.try_lock().ok()?;
    Some(file)
}

fn others_in(directory: &Path, device: usize) -> Vec<(u32, u64)> {
    let own = std::process::id();
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let held = entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let file = File::open(entry.path()).ok()?;
        // Nobody holds the lock of a process that has ended.
        if pid == own || file.try_lock_shared().is_ok() {
            return None;
        }
        let mut bytes = [0; MAX_DEVICES * WORD];
        let read = file.read_at(&mut bytes, 0).ok()?;
        let word = bytes.get(..read)?.chunks_exact(WORD).nth(device)?;
        let held = u64::from_le_bytes(word.try_into().ok()?);
        (held > 0).then_some((pid, held))
    });
    held.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a directory of a test")]
    fn only_living_processes_hold_memory() {
        let directory = std::env::temp_dir().join(format!("brimful-shared-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        publish_in(&directory, 1, 7);
        assert_eq!(others_in(&directory, 1), [], "it is this process");
        let other = create(&directory, 4711).unwrap();
        other.write_all_at(&9_u64.to_le_bytes(), 8).unwrap();
        assert_eq!(others_in(&directory, 1), [(4711, 9)]);
        assert_eq!(others_in(&directory, 0), []);
        drop(other);
        assert_eq!(others_in(&directory, 1), []);
        fs::remove_dir_all(directory).unwrap();
    }
}
