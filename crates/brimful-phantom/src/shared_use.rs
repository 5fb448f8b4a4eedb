//! Device memory that other processes of the same rehearsal use.
//!
//! Each process has a phantom of its own. On a machine with a GPU, `nvidia-smi` and monitors in other processes see what
//! the training holds, so each process notes what it uses in a file beside the rehearsal's results.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::env_vars;

/// More than any rehearsal has files.
const MAX_FILES: usize = 10_000;

/// This process's file; a forked process gets one of its own.
#[derive(Debug)]
struct OwnFile {
    pid: u32,
    file: Option<File>,
}

static OWN: Mutex<Option<OwnFile>> = Mutex::new(None);

/// Notes how many bytes this process uses on a device.
pub(crate) fn note(device: usize, bytes: u64) {
    // A process may be forked while another thread of its parent holds the lock; then nobody ever gives it back.
    let Ok(mut own) = OWN.try_lock() else { return };
    let pid = std::process::id();
    if own.as_ref().is_none_or(|own| own.pid != pid) {
        let file = directory().and_then(|directory| create(&directory, &own_name(pid)));
        *own = Some(OwnFile { pid, file });
    }
    if let Some(OwnFile {
        file: Some(file), ..
    }) = own.as_ref()
    {
        let _ = file.write_all_at(&bytes.to_ne_bytes(), place(device));
    }
}

/// How many bytes the other living processes use on a device, which train for the same GPU model.
pub(crate) fn by_others(device: usize) -> u64 {
    directory().map_or(0, |directory| {
        sum(&directory, &prefix(), std::process::id(), device)
    })
}

fn sum(directory: &Path, prefix: &str, own: u32, device: usize) -> u64 {
    let files = directory.read_dir().into_iter().flatten().flatten();
    let used = files.take(MAX_FILES).filter_map(|file| {
        let name = file.file_name();
        let pid: u32 = name.to_str()?.strip_prefix(prefix)?.parse().ok()?;
        if pid == own || !Path::new("/proc").join(pid.to_string()).exists() {
            return None;
        }
        let mut bytes = [0; 8];
        let file = File::open(file.path()).ok()?;
        file.read_exact_at(&mut bytes, place(device)).ok()?;
        Some(u64::from_ne_bytes(bytes))
    });
    used.fold(0, u64::saturating_add)
}

fn place(device: usize) -> u64 {
    device as u64 * 8
}

/// Where the rehearsal's results go; nothing outside a rehearsal.
fn directory() -> Option<PathBuf> {
    std::env::var_os(env_vars::BRIMFUL_REHEARSAL)
        .filter(|directory| !directory.is_empty())
        .map(PathBuf::from)
}

/// Processes for other GPU models and of earlier attempts have other memory.
fn prefix() -> String {
    let variable = |name| std::env::var(name).unwrap_or_default();
    format!(
        "used-{}-{}-",
        variable(env_vars::BRIMFUL_REHEARSAL_VARIANT),
        variable(env_vars::BRIMFUL_REHEARSAL_ATTEMPT)
    )
}

fn own_name(pid: u32) -> String {
    format!("{}{pid}", prefix())
}

fn create(directory: &Path, name: &str) -> Option<File> {
    #[expect(
        clippy::disallowed_methods,
        reason = "this library has no dependencies, and the directory is private"
    )]
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(directory.join(name));
    file.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_other_living_processes_of_the_same_kind_count() {
        let directory = std::env::temp_dir().join(format!("brimful-used-{}", std::process::id()));
        #[expect(clippy::disallowed_methods, reason = "a test makes files of all kinds")]
        std::fs::create_dir(&directory).unwrap();
        // Process 1 lives everywhere, and no process has the highest number.
        for (name, bytes) in [
            ("used-0-1-1", 5_u64),
            ("used-0-1-4294967295", 7),
            ("used-1-1-1", 11),
            ("used-0-1-x", 13),
        ] {
            let file = create(&directory, name).unwrap();
            file.write_all_at(&bytes.to_ne_bytes(), place(1)).unwrap();
        }
        assert_eq!(sum(&directory, "used-0-1-", 2, 1), 5);
        assert_eq!(sum(&directory, "used-0-1-", 2, 0), 0);
        assert_eq!(sum(&directory, "used-0-1-", 1, 1), 0);
        // A file that is too short.
        assert_eq!(sum(&directory, "used-0-1-", 2, 9), 0);
        std::fs::remove_dir_all(&directory).unwrap();
        assert_eq!(sum(&directory, "used-0-1-", 2, 1), 0);
    }
}
