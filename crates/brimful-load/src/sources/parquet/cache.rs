//! Decoded row groups, inside of a bound that counts those in the making too.
//!
//! The lock is held for a look only. Whoever needs a row group that another thread decodes waits for that thread;
//! whoever needs one that is there waits for nobody.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::error::ReadError;
use crate::problem::Problem;
use crate::sources::arrow::Part;
use crate::sources::parquet::decode::Failure;
use brimful_mapping::Truncated;

/// How often to look whether somebody has finished with a row group, which nobody tells.
const LOOK: Duration = Duration::from_millis(2);

/// A file and a row group in it.
pub(super) type Key = (usize, usize);

/// The columns of a row group, and the bytes that they take.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) columns: Vec<Part>,
    pub(super) bytes: u64,
}

#[derive(Debug)]
pub(super) struct Cache {
    most: u64,
    /// The least used first.
    entries: Mutex<Vec<Entry>>,
    changed: Condvar,
}

#[derive(Debug)]
struct Entry {
    key: Key,
    made: Arc<Made>,
    /// Set aside for it, and when it is there what it takes.
    bytes: u64,
}

/// A row group, once it is there, or why it is not.
#[derive(Debug, Default)]
pub(super) struct Made(OnceLock<Result<Group, CachedError>>);

/// Why a row group is not there; told to everybody who waited.
#[derive(Debug)]
enum CachedError {
    TooLarge,
    Io { kind: io::ErrorKind, text: String },
    Truncated(Truncated),
    Malformed { expected: String, found: String },
}

impl Made {
    /// The row group; nothing where more memory is needed than was set aside.
    pub(super) fn group(&self) -> Result<Option<&Group>, ReadError> {
        match self.0.get() {
            Some(Ok(group)) => Ok(Some(group)),
            None | Some(Err(CachedError::TooLarge)) => Ok(None),
            Some(Err(CachedError::Io { kind, text })) => {
                Err(io::Error::new(*kind, text.clone()).into())
            }
            Some(Err(CachedError::Truncated(truncated))) => {
                Err(ReadError::Truncated(truncated.clone()))
            }
            Some(Err(CachedError::Malformed { expected, found })) => Err(ReadError::Malformed {
                expected: expected.clone(),
                found: found.clone(),
            }),
        }
    }
}

impl Cache {
    pub(super) fn new(most: u64) -> Cache {
        Cache {
            most,
            entries: Mutex::new(Vec::new()),
            changed: Condvar::new(),
        }
    }

    pub(super) fn most(&self) -> u64 {
        self.most
    }

    /// A row group, which is decoded where it is not there. It may take `needed` bytes, which are not more than the
    /// cache has.
    pub(super) fn get(
        &self,
        key: Key,
        needed: u64,
        decode: impl FnOnce() -> Result<Group, Failure>,
    ) -> Arc<Made> {
        let made = self.entry(key, needed.min(self.most));
        made.0.get_or_init(|| {
            let group = decode().map_err(told);
            let mut entries = self.lock();
            if let Some(at) = entries.iter().position(|entry| entry.key == key) {
                match &group {
                    Ok(group) => entries[at].bytes = group.bytes,
                    Err(_) => drop(entries.remove(at)),
                }
            }
            self.changed.notify_all();
            group
        });
        made
    }

    /// The place of a row group, with memory set aside for it.
    fn entry(&self, key: Key, needed: u64) -> Arc<Made> {
        let mut entries = self.lock();
        loop {
            if let Some(at) = entries.iter().position(|entry| entry.key == key) {
                let entry = entries.remove(at);
                let made = Arc::clone(&entry.made);
                entries.push(entry);
                return made;
            }
            if make_room(&mut entries, self.most - needed) {
                let made = Arc::new(Made::default());
                entries.push(Entry {
                    key,
                    made: Arc::clone(&made),
                    bytes: needed,
                });
                return made;
            }
            let waited = self.changed.wait_timeout(entries, LOOK);
            entries = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn keys(&self) -> Vec<Key> {
        self.lock().iter().map(|entry| entry.key).collect()
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> u64 {
        self.lock().iter().map(|entry| entry.bytes).sum()
    }
}

/// Gives up what was not used for the longest time, until no more than `most` bytes are held; not what somebody makes or
/// reads.
fn make_room(entries: &mut Vec<Entry>, most: u64) -> bool {
    let mut held: u64 = entries.iter().map(|entry| entry.bytes).sum();
    while held > most {
        let is_idle =
            |entry: &Entry| Arc::strong_count(&entry.made) == 1 && entry.made.0.get().is_some();
        let Some(at) = entries.iter().position(is_idle) else {
            return false;
        };
        held -= entries.remove(at).bytes;
    }
    true
}

fn told(failure: Failure) -> CachedError {
    match failure {
        Failure::TooLarge => CachedError::TooLarge,
        Failure::Problem(Problem::Unreadable(cause)) => match cause.downcast() {
            Ok(truncated) => CachedError::Truncated(truncated),
            Err(cause) => CachedError::Io {
                kind: cause.kind(),
                text: cause.to_string(),
            },
        },
        Failure::Problem(Problem::Malformed { expected, found }) => {
            CachedError::Malformed { expected, found }
        }
        Failure::Problem(Problem::Unsupported { what, hint }) => CachedError::Malformed {
            expected: format!("what can be read ({hint})"),
            found: what,
        },
    }
}
