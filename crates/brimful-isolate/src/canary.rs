//! The proof that writes do not reach the user's files: a file that is created, changed in place, renamed and deleted.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use crate::overlay::Covered;

const FIRST: &[u8] = b"brimful checks that this file stays in scratch\n";
const SECOND: &[u8] = b"BRIMFUL";

/// A canary that is alive in one directory.
#[derive(Debug)]
pub(crate) struct Canary {
    directory: PathBuf,
    name: String,
}

impl Canary {
    /// Creates it, changes it in place and renames it.
    pub(crate) fn release(directory: &Path) -> io::Result<Canary> {
        let canary = Canary {
            directory: directory.to_owned(),
            name: random_name()?,
        };
        let (old, new) = canary.names();
        let old_path = directory.join(&old);
        #[expect(clippy::disallowed_methods, reason = "as a script would")]
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&old_path)?;
        file.write_all(FIRST)?;
        drop(file);
        let mut file = OpenOptions::new().write(true).open(&old_path)?;
        file.seek(SeekFrom::Start(0))?;
        file.write_all(SECOND)?;
        drop(file);
        fs::rename(&old_path, directory.join(&new))?;
        Ok(canary)
    }

    /// One that another process has released.
    pub(crate) fn named(directory: &Path, name: &str) -> Canary {
        Canary {
            directory: directory.to_owned(),
            name: name.to_owned(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Tries to create a file and to change the permissions of the directory by system calls of its own, which no
    /// library redirects; an error unless both are denied.
    pub(crate) fn must_not_pass_walls(&self) -> io::Result<()> {
        use rustix::fs::{AtFlags, CWD, Mode, OFlags};
        let path = self.directory.join(self.names().0);
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        if rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR).is_ok() {
            let _ = rustix::fs::unlinkat(CWD, &path, AtFlags::empty());
            return Err(io::Error::other("a file could be created past the library"));
        }
        let mode = Mode::from_raw_mode(rustix::fs::stat(&self.directory)?.st_mode);
        if rustix::fs::chmod(&self.directory, mode).is_ok() {
            return Err(io::Error::other(
                "permissions could be changed past the library",
            ));
        }
        Ok(())
    }

    /// Both of its names, the one it was created with and the one it has now.
    pub(crate) fn names(&self) -> (String, String) {
        (format!("{}-a", self.name), format!("{}-b", self.name))
    }

    /// Whether it can be seen in a directory under either name.
    pub(crate) fn is_seen_in(&self, directory: &Path) -> bool {
        let (old, new) = self.names();
        [old, new]
            .iter()
            .any(|name| fs::symlink_metadata(directory.join(name)).is_ok())
    }

    /// Reads it back and deletes it.
    pub(crate) fn catch(&self) -> io::Result<()> {
        let path = self.directory.join(self.names().1);
        let mut contents = Vec::new();
        File::open(&path)?.take(1024).read_to_end(&mut contents)?;
        let expected = [SECOND, &FIRST[SECOND.len()..]].concat();
        if contents != expected {
            return Err(io::Error::other("a changed file does not read back"));
        }
        fs::remove_file(&path)?;
        if self.is_seen_in(&self.directory) {
            return Err(io::Error::other("a deleted file is still there"));
        }
        Ok(())
    }
}

/// Whether a directory can hold a user's files. Arguments such as `/dev/null` and `/proc/self/fd/3` name others.
pub(crate) fn can_be_caught_in(directory: &Path) -> bool {
    let is_kernels = ["/dev", "/proc", "/sys"]
        .iter()
        .any(|kernels| directory.starts_with(kernels));
    !is_kernels || directory.starts_with("/dev/shm")
}

/// Sends a canary through every overlay that the user may write to and into every directory of `checked`.
pub(crate) fn prove_overlays(covered: &[Covered], checked: &[PathBuf]) -> Result<(), String> {
    let directories = covered
        .iter()
        .filter(|covered| covered.writable)
        .map(|covered| covered.path.clone())
        .chain(checked.iter().filter_map(|path| path.canonicalize().ok()));
    for directory in directories {
        let below = covered
            .iter()
            .filter(|covered| directory.starts_with(&covered.path))
            .max_by_key(|covered| covered.path.as_os_str().len());
        let Some(below) = below else {
            continue;
        };
        let inside = directory.strip_prefix(&below.path).unwrap_or(&directory);
        let original = below.lower.join(inside);
        let failed = |error: io::Error| {
            format!(
                "a file in {} cannot be changed: {error}",
                directory.display()
            )
        };
        let canary = Canary::release(&directory).map_err(failed)?;
        let escaped = canary.is_seen_in(&original);
        canary.catch().map_err(failed)?;
        if escaped || canary.is_seen_in(&original) {
            return Err(format!("a write reached {}", directory.display()));
        }
    }
    Ok(())
}

fn random_name() -> io::Result<String> {
    let mut bytes = [0_u8; 8];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(format!(
        ".brimful-canary-{:016x}",
        u64::from_ne_bytes(bytes)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_canary_is_sent_into_the_kernels_directories() {
        for path in ["/dev", "/dev/pts", "/proc/12/fd", "/sys/kernel"] {
            assert!(!can_be_caught_in(Path::new(path)), "{path}");
        }
        for path in ["/dev/shm/cache", "/devices", "/home/me"] {
            assert!(can_be_caught_in(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn a_canary_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let canary = Canary::release(directory.path()).unwrap();
        assert!(canary.is_seen_in(directory.path()));
        canary.catch().unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        assert!(canary.catch().is_err());
    }

    #[test]
    fn a_write_that_reaches_the_original_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap();
        let covered = [Covered {
            path: path.clone(),
            lower: path,
            writable: true,
        }];
        let problem = prove_overlays(&covered, &[]).unwrap_err();
        assert!(problem.starts_with("a write reached"), "{problem}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
