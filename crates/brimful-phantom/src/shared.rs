//! What other processes hold of the devices.
//!
//! Each process has a phantom of its own. On a machine with a GPU, `nvidia-smi` and monitors in other processes see what
//! the training holds, so each process writes what it holds to a file of its own, and the driver's and NVML's answers add
//! those of all processes that live. A file belongs to a living process if it is locked, which holds across PID
//! namespaces.
//!
//! The files of a rehearsal lie beside its results. Where a phantom stands for a real GPU in a test,
//! `BRIMFUL_PHANTOM_SHARED` names their directory.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::env_vars;

/// Bytes of one number.
const WORD: usize = 8;
/// More than any rehearsal has files.
const MAX_FILES: usize = 10_000;

/// The file of this process: a forked child has its own.
static OWN: Mutex<Option<(u32, Option<File>)>> = Mutex::new(None);

/// Where files lie, and how the names of those begin that count.
#[derive(Debug)]
struct UseFiles {
    directory: PathBuf,
    prefix: String,
}

impl UseFiles {
    /// Processes for other GPU models and of earlier attempts have other memory. Such a process is forked, so this is
    /// read when it is needed.
    fn of_environment() -> Option<UseFiles> {
        let directory = |name| std::env::var_os(name).filter(|directory| !directory.is_empty());
        if let Some(named) = directory(env_vars::BRIMFUL_PHANTOM_SHARED) {
            return Some(UseFiles {
                directory: named.into(),
                prefix: String::new(),
            });
        }
        let text = |name| std::env::var(name).unwrap_or_default();
        Some(UseFiles {
            directory: directory(env_vars::BRIMFUL_REHEARSAL)?.into(),
            prefix: format!(
                "used-{}-{}-",
                text(env_vars::BRIMFUL_REHEARSAL_VARIANT),
                text(env_vars::BRIMFUL_REHEARSAL_ATTEMPT)
            ),
        })
    }

    fn create(&self, pid: u32) -> Option<File> {
        #[expect(
            clippy::disallowed_methods,
            reason = "this library has no dependencies, and the directory is private"
        )]
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(self.directory.join(format!("{}{pid}", self.prefix)))
            .ok()?;
        file.try_lock().ok()?;
        Some(file)
    }

    fn others(&self, device: usize) -> Vec<(u32, u64)> {
        let own = std::process::id();
        let entries = fs::read_dir(&self.directory)
            .into_iter()
            .flatten()
            .flatten();
        let held = entries.take(MAX_FILES).filter_map(|entry| {
            let pid = entry
                .file_name()
                .to_str()?
                .strip_prefix(&self.prefix)?
                .parse()
                .ok()?;
            (pid != own).then(|| Some((pid, held_by_living(&entry.path(), device)?)))?
        });
        held.collect()
    }
}

/// What the process of a file holds of a device, if it lives and holds any.
fn held_by_living(path: &Path, device: usize) -> Option<u64> {
    let file = File::open(path).ok()?;
    // Nobody holds the lock of a process that has ended.
    if file.try_lock_shared().is_ok() {
        return None;
    }
    let mut bytes = [0; WORD];
    file.read_exact_at(&mut bytes, offset(device)).ok()?;
    Some(u64::from_le_bytes(bytes)).filter(|held| *held > 0)
}

fn offset(device: usize) -> u64 {
    (device * WORD) as u64
}

/// Says what this process holds of a device now.
pub(crate) fn note(device: usize, held: u64) {
    // A process may be forked while another thread of its parent holds the lock; then nobody ever gives it back.
    let Ok(mut own) = OWN.try_lock() else { return };
    let pid = std::process::id();
    if own.as_ref().is_none_or(|(of, _)| *of != pid) {
        let file = UseFiles::of_environment().and_then(|files| files.create(pid));
        *own = Some((pid, file));
    }
    if let Some((_, Some(file))) = own.as_ref() {
        let _ = file.write_all_at(&held.to_le_bytes(), offset(device));
    }
}

/// What each other living process holds of a device.
pub(crate) fn others(device: usize) -> Vec<(u32, u64)> {
    UseFiles::of_environment().map_or_else(Vec::new, |files| files.others(device))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a directory of a test")]
    fn only_other_living_processes_of_the_same_kind_count() {
        let directory = std::env::temp_dir().join(format!("brimful-used-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let files = |prefix: &str| UseFiles {
            directory: directory.clone(),
            prefix: prefix.to_owned(),
        };
        let ours = files("used-0-1-");
        let file_of = |files: &UseFiles, pid: u32, held: u64| {
            let file = files.create(pid).unwrap();
            file.write_all_at(&held.to_le_bytes(), offset(1)).unwrap();
            file
        };
        let _own = file_of(&ours, std::process::id(), 5);
        assert_eq!(ours.others(1), [], "it is this process");
        let other = file_of(&ours, 4711, 7);
        let _of_another_model = file_of(&files("used-1-1-"), 4712, 11);
        fs::write(directory.join("used-0-1-x"), "13").unwrap();
        assert_eq!(ours.others(1), [(4711, 7)]);
        assert_eq!(ours.others(0), []);
        assert_eq!(ours.others(9), [], "the file is too short");
        drop(other);
        assert_eq!(ours.others(1), [], "it has ended");
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(ours.others(1), []);
    }
}
