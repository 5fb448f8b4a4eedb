//! Looks for the newest checkpoint while the training runs, in a thread of its own: a directory on a network may be slow.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::checkpoints;

/// Often enough for somebody who watches, and seldom enough for a file server.
const INTERVAL: Duration = Duration::from_secs(30);

/// A search that takes a second is repeated after this many: a large directory is not read all the time.
const SEARCH_SHARE: u32 = 50;

/// Ends with this value; a search that is under way ends by itself.
pub(crate) struct CheckpointWatch {
    found: Receiver<NewestCheckpoint>,
    /// Dropped to end the thread.
    _stop: Sender<()>,
}

/// The newest file or directory that the patterns name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewestCheckpoint {
    pub(crate) path: PathBuf,
    pub(crate) written_at_unix_ms: u64,
}

impl CheckpointWatch {
    /// `None` without patterns, or if no thread can be started: then no checkpoint is recorded.
    pub(crate) fn begin(directory: PathBuf, patterns: Vec<String>) -> Option<CheckpointWatch> {
        CheckpointWatch::every(INTERVAL, directory, patterns)
    }

    fn every(
        interval: Duration,
        directory: PathBuf,
        patterns: Vec<String>,
    ) -> Option<CheckpointWatch> {
        if patterns.is_empty() {
            return None;
        }
        let (send_found, found) = channel();
        let (stop, stopped) = channel::<()>();
        let look = move || {
            let mut last = None;
            let mut wait = interval;
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(wait) {
                let began = Instant::now();
                let newest = newest(&directory, &patterns);
                wait = interval.max(began.elapsed() * SEARCH_SHARE);
                if newest != last
                    && let Some(newest) = &newest
                    && send_found.send(newest.clone()).is_err()
                {
                    return;
                }
                last = newest;
            }
        };
        thread::Builder::new()
            .name("checkpoints".to_owned())
            .spawn(look)
            .ok()?;
        Some(CheckpointWatch { found, _stop: stop })
    }

    /// What was found since the last time.
    pub(crate) fn take(&self) -> Option<NewestCheckpoint> {
        self.found.try_iter().last()
    }
}

fn newest(directory: &Path, patterns: &[String]) -> Option<NewestCheckpoint> {
    let (path, modified) = checkpoints::newest_written(directory, patterns)?;
    let path = path
        .strip_prefix(directory)
        .map_or_else(|_| path.clone(), Path::to_owned);
    Some(NewestCheckpoint {
        path,
        written_at_unix_ms: unix_ms(modified),
    })
}

fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn next(watch: &CheckpointWatch) -> NewestCheckpoint {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(found) = watch.take() {
                return found;
            }
            assert!(Instant::now() < deadline, "nothing was found");
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn each_newer_checkpoint_is_found_once() {
        let directory = tempfile::tempdir().unwrap();
        let patterns = vec!["out/*.pt".to_owned()];
        let watch = CheckpointWatch::every(
            Duration::from_millis(10),
            directory.path().to_owned(),
            patterns,
        )
        .unwrap();
        fs::create_dir(directory.path().join("out")).unwrap();
        let write = |name: &str, seconds: u64| {
            let path = directory.path().join("out").join(name);
            let file = fs::File::create(path).unwrap();
            file.set_modified(UNIX_EPOCH + Duration::from_secs(seconds))
                .unwrap();
        };
        write("2.pt", 2000);
        let found = next(&watch);
        // The file may be seen before its time is set.
        let found = if found.written_at_unix_ms == 2_000_000 {
            found
        } else {
            next(&watch)
        };
        assert_eq!(found.path, Path::new("out/2.pt"));
        write("1.pt", 1000);
        write("3.pt", 3000);
        let deadline = Instant::now() + Duration::from_secs(20);
        while next(&watch).path != Path::new("out/3.pt") {
            assert!(Instant::now() < deadline);
        }
    }

    #[test]
    fn without_patterns_nothing_is_looked_for() {
        assert!(CheckpointWatch::begin(PathBuf::from("/"), Vec::new()).is_none());
    }
}
