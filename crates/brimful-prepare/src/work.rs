//! Where the files of a preparation are, and how they get their names.
//!
//! ```text
//! OUT/manifest.json            written last: without it there is no dataset
//! OUT/shard-00000.tokens       (or .arrow)
//! OUT/.brimful-prepare/
//!     preparation.json         the recipe and the inputs as they were
//!     lock
//!     runs/0000012.run
//!     shards/00003.json        what the manifest says of the shard
//! ```
//!
//! A file is written under a name of its own attempt and renamed when it is whole and durable. Two attempts of one task
//! are harmless: what they write is the same.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::error::PrepareError;

const MANIFEST: &str = "manifest.json";
const WORK: &str = ".brimful-prepare";
/// What attempts are called until they are whole.
const ATTEMPT: &str = ".attempt-";

/// The directory that a dataset is prepared in.
#[derive(Clone, Debug)]
pub(crate) struct WorkDir {
    out: PathBuf,
}

impl WorkDir {
    pub(crate) fn of(out: &Path) -> WorkDir {
        WorkDir {
            out: out.to_owned(),
        }
    }

    pub(crate) fn out(&self) -> &Path {
        &self.out
    }

    pub(crate) fn manifest(&self) -> PathBuf {
        self.out.join(MANIFEST)
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.out.join(WORK)
    }

    pub(crate) fn preparation(&self) -> PathBuf {
        self.work().join("preparation.json")
    }

    pub(crate) fn run(&self, task: u64) -> PathBuf {
        self.work().join("runs").join(format!("{task:07}.run"))
    }

    /// What the manifest will say of a shard.
    pub(crate) fn shard_entry(&self, shard: u64) -> PathBuf {
        self.work().join("shards").join(format!("{shard:05}.json"))
    }

    /// Makes its directories. One that has files of somebody else is refused.
    pub(crate) fn create(&self) -> Result<(), PrepareError> {
        let unwritable = |path: &Path| {
            let path = path.to_owned();
            move |cause| PrepareError::Unwritable { path, cause }
        };
        let work = self.work();
        if !work.is_dir() && !self.manifest().is_file() {
            let entries = fs::read_dir(&self.out).into_iter().flatten();
            if entries.count() > 0 {
                return Err(PrepareError::NotEmpty {
                    path: self.out.clone(),
                });
            }
        }
        for folder in [work.join("runs"), work.join("shards")] {
            brimful_private::create_missing_directories(&folder).map_err(unwritable(&folder))?;
        }
        Ok(())
    }

    /// Keeps other processes out until it is dropped.
    pub(crate) fn lock(&self) -> Result<File, PrepareError> {
        let path = self.work().join("lock");
        let file =
            brimful_private::take_over_named(&path).map_err(|cause| PrepareError::Unwritable {
                path: path.clone(),
                cause,
            })?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            // The second are file systems without locks.
            Ok(()) | Err(Errno::NOSYS | Errno::OPNOTSUPP) => Ok(file),
            Err(Errno::WOULDBLOCK) => Err(PrepareError::Busy {
                path: self.out.clone(),
            }),
            Err(error) => Err(PrepareError::Unwritable {
                path,
                cause: error.into(),
            }),
        }
    }

    /// Removes attempts that were never finished. Only for who holds the lock.
    pub(crate) fn remove_attempts(&self) {
        let folders = [
            self.out.clone(),
            self.work(),
            self.work().join("runs"),
            self.work().join("shards"),
        ];
        for folder in folders {
            let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
            for entry in entries {
                let name = entry.file_name();
                let name = name.to_string_lossy();
                let is_of_ours = folder != self.out || name.starts_with("shard-");
                if is_of_ours && name.contains(ATTEMPT) {
                    // What stays takes space and nothing else.
                    let _ = fs::remove_file(entry.path());
                }
            }
        }
    }

    /// Removes what a process that was killed after the manifest has left.
    pub(crate) fn remove_leftovers(&self) {
        if self.work().is_dir()
            && let Ok(lock) = self.lock()
        {
            self.remove_attempts();
            self.remove_work();
            drop(lock);
        }
    }

    /// Removes what is not needed once there is a manifest.
    pub(crate) fn remove_work(&self) {
        let _ = fs::remove_dir_all(self.work());
    }
}

/// A file that has another name until it is whole, and is removed if it never is.
#[derive(Debug)]
pub(crate) struct AttemptFile {
    path: PathBuf,
    attempt: PathBuf,
    is_committed: bool,
}

impl AttemptFile {
    pub(crate) fn create(path: &Path) -> Result<(AttemptFile, File), PrepareError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let host = rustix::system::uname();
        let host = host.nodename().to_string_lossy().replace('/', "");
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // Containers may share a host's name and have equal process ids.
        let time = SystemTime::now().duration_since(UNIX_EPOCH);
        let time = time.map_or(0, |time| time.as_nanos());
        let mut name = OsString::from(path.as_os_str());
        name.push(format!(
            "{ATTEMPT}{host}-{}-{number}-{time:x}",
            std::process::id()
        ));
        let attempt = AttemptFile {
            path: path.to_owned(),
            attempt: PathBuf::from(name),
            is_committed: false,
        };
        let file = brimful_private::take_over_named(&attempt.attempt);
        let file = file.map_err(|cause| attempt.unwritable(cause))?;
        file.set_len(0).map_err(|cause| attempt.unwritable(cause))?;
        Ok((attempt, file))
    }

    pub(crate) fn unwritable(&self, cause: io::Error) -> PrepareError {
        PrepareError::Unwritable {
            path: self.path.clone(),
            cause,
        }
    }

    /// Makes it durable and gives it its name.
    pub(crate) fn commit(&mut self, file: &File) -> Result<(), PrepareError> {
        let named = file
            .sync_all()
            .and_then(|()| fs::rename(&self.attempt, &self.path));
        named.map_err(|cause| self.unwritable(cause))?;
        self.is_committed = true;
        // The name is durable when its folder is; not every file system has that, and the file is there in any case.
        if let Some(folder) = self.path.parent()
            && let Ok(folder) = File::open(folder)
        {
            let _ = folder.sync_all();
        }
        Ok(())
    }
}

impl Drop for AttemptFile {
    fn drop(&mut self) {
        if !self.is_committed {
            // Nothing more can be done about a file that does not go.
            let _ = fs::remove_file(&self.attempt);
        }
    }
}

/// Writes a small file as a whole.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), PrepareError> {
    let (mut attempt, mut file) = AttemptFile::create(path)?;
    io::Write::write_all(&mut file, bytes).map_err(|cause| attempt.unwritable(cause))?;
    attempt.commit(&file)
}

/// Reads a small file; nothing where there is none.
pub(crate) fn read_whole(path: &Path, max_bytes: u64) -> Result<Option<Vec<u8>>, PrepareError> {
    let unreadable = |cause| PrepareError::Unreadable {
        path: path.to_owned(),
        cause,
    };
    let file = match brimful_private::open_named(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    };
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(file, max_bytes), &mut bytes).map_err(unreadable)?;
    Ok(Some(bytes))
}
