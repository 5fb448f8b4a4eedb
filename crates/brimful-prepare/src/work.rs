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
//!
//! `OUT` can be a prefix in an object store. Files are then written to the directory for temporary files and put into the
//! store when they are whole. There is no lock: of two processes, one is finished first, and removes the runs.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use brimful_load::remote::{self, Bucket};
use brimful_private::TempDir;
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::error::PrepareError;

const MANIFEST: &str = "manifest.json";
const WORK: &str = ".brimful-prepare";
/// What attempts are called until they are whole.
const ATTEMPT: &str = ".attempt-";

/// The directory that a dataset is prepared in, or the prefix in an object store.
#[derive(Clone, Debug)]
pub(crate) struct WorkDir {
    out: PathBuf,
    /// Of an object store.
    bucket: Option<Arc<Bucket>>,
}

impl WorkDir {
    pub(crate) fn of(out: &Path) -> Result<WorkDir, PrepareError> {
        let text = out.to_string_lossy();
        if !remote::is_remote(out) && text.contains("://") {
            return Err(PrepareError::Setting {
                name: "out",
                expected: "a directory, or a prefix that begins with s3://, gs:// or az://"
                    .to_owned(),
                found: text.into_owned(),
            });
        }
        if !remote::is_remote(out) {
            return Ok(WorkDir {
                out: out.to_owned(),
                bucket: None,
            });
        }
        let out = PathBuf::from(text.trim_end_matches('/'));
        let bucket = Bucket::of(&out).map_err(|cause| PrepareError::Setting {
            name: "out",
            expected: "a directory, or a prefix such as s3://BUCKET/PREFIX".to_owned(),
            found: cause.to_string(),
        })?;
        Ok(WorkDir {
            out,
            bucket: Some(Arc::new(bucket)),
        })
    }

    pub(crate) fn is_remote(&self) -> bool {
        self.bucket.is_some()
    }

    /// Bytes of memory that writing a file takes, besides its buffer.
    pub(crate) fn upload_bytes(&self) -> u64 {
        if self.is_remote() {
            remote::UPLOAD_BYTES
        } else {
            0
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
        if let Some(bucket) = &self.bucket {
            return self.check_prefix(bucket);
        }
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

    /// A prefix that has objects of somebody else is refused.
    fn check_prefix(&self, bucket: &Bucket) -> Result<(), PrepareError> {
        let has_any = |folder: &Path| {
            let found = bucket.has_any(folder);
            found.map_err(|cause| unreadable(folder, cause))
        };
        // In this order: another command may begin in between, and writes its manifest before it removes its work.
        if !has_any(&self.out)?
            || has_any(&self.work())?
            || self.len_of(&self.manifest())?.is_some()
        {
            return Ok(());
        }
        Err(PrepareError::NotEmpty {
            path: self.out.clone(),
        })
    }

    fn list(bucket: &Bucket, folder: &Path) -> Result<Vec<(PathBuf, u64)>, PrepareError> {
        bucket
            .list(folder)
            .map_err(|cause| unreadable(folder, cause))
    }

    /// Bytes of a file in it; nothing where there is none.
    pub(crate) fn len_of(&self, path: &Path) -> Result<Option<u64>, PrepareError> {
        let found = match &self.bucket {
            Some(bucket) => bucket.len_of(path),
            None => match fs::metadata(path) {
                Ok(found) => Ok(Some(found.len())),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error),
            },
        };
        found.map_err(|cause| unreadable(path, cause))
    }

    /// Bytes of the named files; nothing for those that are missing.
    pub(crate) fn sizes(&self, names: &[&str]) -> Result<Vec<Option<u64>>, PrepareError> {
        let Some(bucket) = &self.bucket else {
            let paths = names.iter().map(|name| self.out.join(name));
            return paths.map(|path| self.len_of(&path)).collect();
        };
        // One request for a thousand objects.
        let found: BTreeMap<PathBuf, u64> = WorkDir::list(bucket, &self.out)?.into_iter().collect();
        let sizes = names.iter().map(|name| found.get(&self.out.join(name)));
        Ok(sizes.map(Option::<&u64>::copied).collect())
    }

    /// Writes a small file as a whole.
    pub(crate) fn write_whole(&self, path: &Path, bytes: &[u8]) -> Result<(), PrepareError> {
        if let Some(bucket) = &self.bucket {
            let written = bucket.write(path, bytes);
            return written.map_err(|cause| PrepareError::Unwritable {
                path: path.to_owned(),
                cause,
            });
        }
        let (mut attempt, mut file) = AttemptFile::create(self, path)?;
        io::Write::write_all(&mut file, bytes).map_err(|cause| attempt.unwritable(cause))?;
        attempt.commit(&file)
    }

    /// Reads a small file; nothing where there is none.
    pub(crate) fn read_whole(
        &self,
        path: &Path,
        max_bytes: u64,
    ) -> Result<Option<Vec<u8>>, PrepareError> {
        if let Some(bucket) = &self.bucket {
            let found = bucket.read(path, max_bytes);
            return found.map_err(|cause| unreadable(path, cause));
        }
        let file = match brimful_private::open_named(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unreadable(path, error)),
        };
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut io::Read::take(file, max_bytes), &mut bytes)
            .map_err(|cause| unreadable(path, cause))?;
        Ok(Some(bytes))
    }

    /// Keeps other processes out until it is dropped. An object store has no locks.
    pub(crate) fn lock(&self) -> Result<Option<File>, PrepareError> {
        if self.is_remote() {
            return Ok(None);
        }
        let path = self.work().join("lock");
        let file =
            brimful_private::take_over_named(&path).map_err(|cause| PrepareError::Unwritable {
                path: path.clone(),
                cause,
            })?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            // The second are file systems without locks.
            Ok(()) | Err(Errno::NOSYS | Errno::OPNOTSUPP) => Ok(Some(file)),
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
        if self.is_remote() {
            return;
        }
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
        if self.is_remote() {
            self.remove_work();
        } else if self.work().is_dir()
            && let Ok(lock) = self.lock()
        {
            self.remove_attempts();
            self.remove_work();
            drop(lock);
        }
    }

    /// Removes what is not needed once there is a manifest.
    pub(crate) fn remove_work(&self) {
        let Some(bucket) = &self.bucket else {
            let _ = fs::remove_dir_all(self.work());
            return;
        };
        for (path, _) in bucket.list(&self.work()).unwrap_or_default() {
            // What stays takes space and nothing else.
            let _ = bucket.remove(&path);
        }
    }
}

fn unreadable(path: &Path, cause: io::Error) -> PrepareError {
    PrepareError::Unreadable {
        path: path.to_owned(),
        cause,
    }
}

/// A file that has another name until it is whole, and is removed if it never is.
#[derive(Debug)]
pub(crate) struct AttemptFile {
    path: PathBuf,
    attempt: PathBuf,
    is_committed: bool,
    /// Where it is put when it is whole. Until then it has no name, so that nothing is left of one that never is.
    bucket: Option<Arc<Bucket>>,
}

impl AttemptFile {
    pub(crate) fn create(work: &WorkDir, path: &Path) -> Result<(AttemptFile, File), PrepareError> {
        let mut attempt = AttemptFile {
            path: path.to_owned(),
            attempt: attempt_name(path),
            is_committed: false,
            bucket: work.bucket.clone(),
        };
        let scratch = match &attempt.bucket {
            Some(_) => Some(scratch()?),
            None => None,
        };
        if let Some(scratch) = &scratch {
            attempt.attempt = scratch.path().join("file");
        }
        let file = brimful_private::take_over_named(&attempt.attempt);
        let file = file.map_err(|cause| attempt.unwritable(cause))?;
        file.set_len(0).map_err(|cause| attempt.unwritable(cause))?;
        Ok((attempt, file))
    }

    pub(crate) fn unwritable(&self, cause: io::Error) -> PrepareError {
        let path = match &self.bucket {
            Some(_) => &self.attempt,
            None => &self.path,
        };
        PrepareError::Unwritable {
            path: path.clone(),
            cause,
        }
    }

    /// Makes it durable and gives it its name.
    pub(crate) fn commit(&mut self, file: &File) -> Result<(), PrepareError> {
        if let Some(bucket) = &self.bucket {
            let written = bucket.write_file(&self.path, file);
            return written.map_err(|cause| PrepareError::Unwritable {
                path: self.path.clone(),
                cause,
            });
        }
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
        if !self.is_committed && self.bucket.is_none() {
            // Nothing more can be done about a file that does not go.
            let _ = fs::remove_file(&self.attempt);
        }
    }
}

/// A directory for temporary files, removed when it is dropped.
pub(crate) fn scratch() -> Result<TempDir, PrepareError> {
    let folder = std::env::temp_dir();
    brimful_private::temporary_directory(&[&folder], "brimful-prepare-").map_err(|cause| {
        PrepareError::Unwritable {
            path: folder.clone(),
            cause,
        }
    })
}

/// A name beside the final one that no other attempt has.
fn attempt_name(path: &Path) -> PathBuf {
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
    PathBuf::from(name)
}
