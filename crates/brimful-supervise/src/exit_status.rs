//! How the training ended where brimful did not live to see it: a file beside the record, written by the keeper.
//!
//! The file is created before the training begins, with its size, so that a full disk does not lose the status later. The
//! keeper holds a lock on it for as long as it lives: how others know that the training still runs.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use brimful::record::Outcome;
use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};

const FILE_NAME: &str = "exit-status.json";
/// More than any content of ours; the rest of the file is spaces.
const SIZE: usize = 256;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Exited(i32),
    Signaled(i32),
    /// Its parent was lost, and with it the status.
    Unknown,
}

impl Ended {
    /// The signal that ended it.
    pub(crate) fn signal(self) -> Option<i32> {
        match self {
            Ended::Signaled(signal) => Some(signal),
            Ended::Exited(_) | Ended::Unknown => None,
        }
    }

    /// As a shell has it: the process's own, or 128 and the signal.
    pub(crate) fn exit_code(self) -> u8 {
        let code = match self {
            Ended::Exited(code) => code,
            Ended::Signaled(signal) => 128 + signal,
            Ended::Unknown => 1,
        };
        u8::try_from(code & 0xff).unwrap_or(1)
    }
}

/// The file, as the keeper has it.
#[derive(Debug)]
pub(crate) struct ExitStatusFile {
    path: PathBuf,
    file: File,
    attempt: u32,
}

/// What a keeper has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeptStatus {
    pub(crate) attempt: u32,
    pub(crate) pid: u32,
    /// How and when (milliseconds since 1970) the training ended; `None` before, and where the keeper was killed.
    pub(crate) ended: Option<(Ended, u64)>,
}

impl ExitStatusFile {
    /// Creates the file in the run's directory. That of the attempt before is gone by now, or its keeper was killed.
    pub(crate) fn create(directory: &Path, attempt: u32) -> io::Result<ExitStatusFile> {
        let path = path_in(directory);
        let _ = std::fs::remove_file(&path);
        let file = brimful_private::create_new(&path)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        let created = ExitStatusFile {
            path,
            file,
            attempt,
        };
        created.write(&json!({ "attempt": attempt }))?;
        Ok(created)
    }

    /// The training runs as this process.
    pub(crate) fn started(&self, pid: u32) -> io::Result<()> {
        self.write(&json!({ "attempt": self.attempt, "pid": pid }))
    }

    pub(crate) fn ended(&self, pid: u32, ended: Ended, at_unix_ms: u64) -> io::Result<()> {
        let (code, signal) = match ended {
            Ended::Exited(code) => (Some(code), None),
            Ended::Signaled(signal) => (None, Some(signal)),
            Ended::Unknown => (None, None),
        };
        self.write(&json!({
            "attempt": self.attempt, "pid": pid, "code": code, "signal": signal, "ended_at_unix_ms": at_unix_ms,
        }))
    }

    pub(crate) fn remove(self) {
        let _ = std::fs::remove_file(&self.path);
    }

    /// In one write of always the same length: a reader sees one content or the other.
    fn write(&self, content: &Value) -> io::Result<()> {
        let mut bytes = content.to_string().into_bytes();
        bytes.resize(SIZE - 1, b' ');
        bytes.push(b'\n');
        self.file.write_all_at(&bytes, 0)
    }
}

/// Removes the file of a keeper that was killed.
pub(crate) fn remove(directory: &Path) {
    let _ = std::fs::remove_file(path_in(directory));
}

/// What the keeper of the last attempt wrote, if there is something.
pub(crate) fn read(directory: &Path) -> Option<KeptStatus> {
    let mut text = String::new();
    open(directory)?
        .take(SIZE as u64)
        .read_to_string(&mut text)
        .ok()?;
    let value: Value = serde_json::from_str(text.trim_end()).ok()?;
    let number = |name: &str| value.get(name)?.as_u64();
    let status = |name: &str| i32::try_from(value.get(name)?.as_i64()?).ok();
    let ended = match (status("code"), status("signal")) {
        (Some(code), _) => Some(Ended::Exited(code)),
        (None, Some(signal)) => Some(Ended::Signaled(signal)),
        (None, None) => None,
    };
    Some(KeptStatus {
        attempt: u32::try_from(number("attempt")?).ok()?,
        pid: number("pid").and_then(|pid| u32::try_from(pid).ok())?,
        ended: ended.zip(number("ended_at_unix_ms")),
    })
}

/// Whether there is a file, of whatever content.
pub(crate) fn exists(directory: &Path) -> bool {
    path_in(directory).symlink_metadata().is_ok()
}

/// Whether a keeper still waits for the end of this run's training.
pub(crate) fn is_held(directory: &Path) -> bool {
    open(directory).is_some_and(|file| flock(&file, FlockOperation::NonBlockingLockShared).is_err())
}

impl From<Ended> for Outcome {
    fn from(ended: Ended) -> Outcome {
        match ended {
            Ended::Exited(0) => Outcome::Finished,
            Ended::Exited(code) => Outcome::Failed { code },
            Ended::Signaled(signal) => Outcome::Killed { signal },
            Ended::Unknown => Outcome::Unseen,
        }
    }
}

fn path_in(directory: &Path) -> PathBuf {
    directory.join(FILE_NAME)
}

/// A regular file only, and no link: anything else is not ours.
fn open(directory: &Path) -> Option<File> {
    brimful_private::open(&path_in(directory)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_at_every_moment() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(read(directory.path()), None);
        let file = ExitStatusFile::create(directory.path(), 2).unwrap();
        // Not begun yet.
        assert_eq!(read(directory.path()), None);
        assert!(is_held(directory.path()));
        file.started(4711).unwrap();
        let begun = KeptStatus {
            attempt: 2,
            pid: 4711,
            ended: None,
        };
        assert_eq!(read(directory.path()), Some(begun));
        for ended in [Ended::Exited(0), Ended::Exited(3), Ended::Signaled(9)] {
            file.ended(4711, ended, u64::MAX / 2).unwrap();
            let ended = Some((ended, u64::MAX / 2));
            assert_eq!(read(directory.path()), Some(KeptStatus { ended, ..begun }));
        }
        drop(file);
        assert!(!is_held(directory.path()));
        remove(directory.path());
        assert!(!path_in(directory.path()).exists());
    }

    #[test]
    fn what_is_not_ours_is_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = path_in(directory.path());
        for text in [
            "",
            "{",
            "[]",
            "{\"attempt\":1,\"pid\":-1}",
            "{\"attempt\":\"x\"}",
        ] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(read(directory.path()), None, "{text}");
        }
        std::fs::write(&path, vec![b'{'; 1 << 20]).unwrap();
        assert_eq!(read(directory.path()), None);
        std::fs::remove_file(&path).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        if made.is_ok_and(|status| status.success()) {
            // Would hang if it were opened as a file is.
            assert_eq!(read(directory.path()), None);
            assert!(!is_held(directory.path()));
        }
    }
}
