//! Rehearsals that were made before, so that a plan answers at once.
//!
//! An entry is a folder: `entry.json` says what was rehearsed and from which files, `PROCESS.json`, `PROCESS.trace`
//! and `PROCESS.ops` hold what came of it. An entry whose files have changed is not used.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use brimful::plan::Pace;
use brimful::predict::host::HostFacts;
use brimful::secrets::{mask_command, mask_variable};
use brimful_allocsim::trace::Trace;
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use crate::Rehearsed;
use crate::facts::Facts;
use crate::side_effects::SideEffects;

/// The form of an entry; another one is not read.
const FORM: u32 = 4;
/// Entries that are kept.
const MAX_ENTRIES: usize = 200;
/// More than any entry, and than any Python file.
const MAX_FILE_BYTES: u64 = 1 << 30;
const MAX_SOURCE_BYTES: u64 = 16 << 20;

/// Where rehearsals are kept.
#[derive(Clone, Debug)]
pub struct Cache {
    pub folder: PathBuf,
}

/// What a rehearsal is known by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Key {
    pub command: Vec<String>,
    pub variables: Vec<(String, String)>,
    /// Keys and values that are written into copies of config files.
    #[serde(default)]
    pub config: Vec<(String, String)>,
    pub folder: String,
    /// The card's id and how many; empty for a job on processors.
    pub cards: String,
    pub steps: u32,
    pub brimful_version: String,
}

/// What came of a rehearsal.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    pub processes: Vec<Rehearsed>,
    pub host: HostFacts,
    pub pace: Pace,
    pub world_size: u32,
    /// It died before its first steps: its last words.
    pub failed: Option<String>,
    pub at_unix_ms: u64,
    pub seconds: f64,
    /// Nothing for one that was made before.
    pub side_effects: Option<SideEffects>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    form: u32,
    /// For people: without secrets.
    key: Key,
    key_hash: u64,
    sources: Vec<CachedFile>,
    host: HostFacts,
    pace: Pace,
    world_size: u32,
    failed: Option<String>,
    at_unix_ms: u64,
    seconds: f64,
    n_processes: usize,
}

/// A file that was part of it.
#[derive(Serialize, Deserialize, PartialEq)]
struct CachedFile {
    path: PathBuf,
    bytes: u64,
    hash: u64,
}

impl Cache {
    pub(crate) fn folder_of(&self, key: &Key) -> PathBuf {
        self.folder.join(format!("{:016x}", key.hashed(0)))
    }

    /// What was rehearsed before under this key, if its files are as they were.
    pub(crate) fn get(&self, key: &Key) -> Option<Kept> {
        let folder = self.folder_of(key);
        let entry: Entry = serde_json::from_slice(&bounded(&folder.join("entry.json"))?).ok()?;
        if entry.form != FORM
            || entry.key_hash != key.hashed(1)
            || entry.key != key.masked()
            || !entry.sources.iter().all(CachedFile::is_current)
        {
            return None;
        }
        let processes = (0..entry.n_processes.min(64))
            .map(|number| {
                let facts = bounded(&folder.join(format!("{number}.json")))?;
                let trace = bounded(&folder.join(format!("{number}.trace")))?;
                let step = bounded(&folder.join(format!("{number}.ops")));
                let died = folder.join(format!("{number}.died")).exists();
                Some(Rehearsed {
                    facts: serde_json::from_slice::<Facts>(&facts).ok()?,
                    trace: Trace::from_bytes(&trace).ok()?,
                    step: step.and_then(|step| serde_json::from_slice(&step).ok()),
                    died,
                    // Such rehearsals are not kept.
                    ran_out: false,
                })
            })
            .collect::<Option<Vec<Rehearsed>>>()?;
        Some(Kept {
            processes,
            host: entry.host,
            pace: entry.pace,
            world_size: entry.world_size,
            failed: entry.failed,
            at_unix_ms: entry.at_unix_ms,
            seconds: entry.seconds,
            side_effects: None,
        })
    }

    /// Keeps a rehearsal; where that fails the next plan rehearses again.
    pub(crate) fn put(&self, key: &Key, kept: &Kept, sources: &[PathBuf]) -> io::Result<()> {
        let folder = self.folder_of(key);
        brimful_private::create_directory(&self.folder)?;
        self.make_room();
        // Written aside and moved into place, so that nobody reads half of one.
        let aside = brimful_private::temporary_directory(&[&self.folder], ".new-")?;
        for (number, process) in kept.processes.iter().enumerate() {
            let put = |kind: &str, bytes: &[u8]| {
                let path = aside.path().join(format!("{number}.{kind}"));
                brimful_private::write_new(&path, bytes)
            };
            put("json", &serde_json::to_vec(&process.facts)?)?;
            put("trace", &process.trace.to_bytes())?;
            if let Some(step) = &process.step {
                put("ops", &serde_json::to_vec(step)?)?;
            }
            if process.died {
                put("died", b"")?;
            }
        }
        let entry = Entry {
            form: FORM,
            key: key.masked(),
            key_hash: key.hashed(1),
            sources: sources
                .iter()
                .filter_map(|path| CachedFile::of(path))
                .collect(),
            host: kept.host.clone(),
            pace: kept.pace,
            world_size: kept.world_size,
            failed: kept.failed.clone(),
            at_unix_ms: kept.at_unix_ms,
            seconds: kept.seconds,
            n_processes: kept.processes.len(),
        };
        let entry = serde_json::to_vec(&entry)?;
        brimful_private::write_new(&aside.path().join("entry.json"), &entry)?;
        let _ = fs::remove_dir_all(&folder);
        fs::rename(aside.path(), &folder)
    }

    /// Removes the oldest entries above the number that is kept.
    fn make_room(&self) {
        let Ok(entries) = fs::read_dir(&self.folder) else {
            return;
        };
        let mut found: Vec<(SystemTime, PathBuf)> = entries
            .flatten()
            .filter(|entry| entry.path().join("entry.json").is_file())
            .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
            .collect();
        found.sort();
        let excess = found.len().saturating_sub(MAX_ENTRIES - 1);
        for (_, path) in found.into_iter().take(excess) {
            let _ = fs::remove_dir_all(path);
        }
    }
}

impl Key {
    /// The same in every build: what `derive(Hash)` feeds a hasher, and std's hasher itself, may change with the
    /// compiler.
    fn hashed(&self, seed: u64) -> u64 {
        let key = serde_json::to_vec(self).expect("texts and numbers are always JSON");
        XxHash3_64::oneshot_with_seed(seed, &key)
    }

    fn masked(&self) -> Key {
        let variables = self.variables.iter();
        Key {
            command: mask_command(&self.command),
            variables: variables
                .map(|(name, value)| (name.clone(), mask_variable(name, value)))
                .collect(),
            ..self.clone()
        }
    }
}

impl CachedFile {
    fn of(path: &Path) -> Option<CachedFile> {
        let mut content = Vec::new();
        let file = brimful_private::open_named(path).ok()?;
        file.take(MAX_SOURCE_BYTES).read_to_end(&mut content).ok()?;
        Some(CachedFile {
            path: path.to_owned(),
            bytes: content.len() as u64,
            hash: XxHash3_64::oneshot(&content),
        })
    }

    fn is_current(&self) -> bool {
        CachedFile::of(&self.path).is_some_and(|found| found == *self)
    }
}

fn bounded(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = brimful_private::open(path)
        .ok()?
        .take(MAX_FILE_BYTES)
        .read_to_end(&mut bytes)
        .ok()?;
    ((read as u64) < MAX_FILE_BYTES).then_some(bytes)
}

/// Milliseconds since 1970.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(word: &str) -> Key {
        Key {
            command: vec![word.into()],
            ..Key::default()
        }
    }

    #[test]
    fn a_rehearsal_is_found_again_until_its_files_change() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache {
            folder: folder.path().join("rehearsals"),
        };
        let script = folder.path().join("train.py");
        fs::write(&script, "one").unwrap();
        let kept = Kept {
            world_size: 2,
            failed: Some("no".into()),
            ..Kept::default()
        };
        assert!(cache.get(&key("a")).is_none());
        cache
            .put(&key("a"), &kept, std::slice::from_ref(&script))
            .unwrap();
        assert_eq!(cache.get(&key("a")).unwrap().world_size, 2);
        assert!(cache.get(&key("b")).is_none());
        fs::write(&script, "two").unwrap();
        assert!(cache.get(&key("a")).is_none());
    }

    /// A rehearsal that another build kept must be found.
    #[test]
    fn the_directory_of_a_key_is_fixed() {
        let cache = Cache {
            folder: PathBuf::from("/rehearsals"),
        };
        let key = Key {
            command: vec!["python".into(), "train.py".into()],
            variables: vec![("SEED".into(), "1".into())],
            steps: 3,
            ..Key::default()
        };
        assert_eq!(
            cache.folder_of(&key),
            Path::new("/rehearsals/18a23b5939e4c2f6")
        );
    }

    #[test]
    fn secrets_tell_rehearsals_apart_and_are_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache {
            folder: folder.path().to_owned(),
        };
        let with = |token: &str| Key {
            command: vec!["train".into(), "--hf-token".into(), token.into()],
            variables: vec![("API_KEY".into(), token.into())],
            ..Key::default()
        };
        cache.put(&with("first"), &Kept::default(), &[]).unwrap();
        assert!(cache.get(&with("first")).is_some());
        assert!(cache.get(&with("second")).is_none());
        let entry = fs::read_to_string(cache.folder_of(&with("first")).join("entry.json")).unwrap();
        assert!(!entry.contains("first"), "{entry}");
    }

    #[test]
    fn nobody_else_can_read_what_is_kept() {
        use std::os::unix::fs::MetadataExt;
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache {
            folder: folder.path().join("rehearsals"),
        };
        cache.put(&key("a"), &Kept::default(), &[]).unwrap();
        let entry = cache.folder_of(&key("a"));
        let mode = |path: &Path| path.metadata().unwrap().mode() & 0o777;
        assert_eq!((mode(&cache.folder), mode(&entry)), (0o700, 0o700));
        assert_eq!(mode(&entry.join("entry.json")), 0o600);
    }

    #[test]
    fn what_cannot_be_read_is_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache {
            folder: folder.path().to_owned(),
        };
        cache.put(&key("a"), &Kept::default(), &[]).unwrap();
        let entry = cache.folder_of(&key("a")).join("entry.json");
        fs::write(entry, "{").unwrap();
        assert!(cache.get(&key("a")).is_none());
    }
}
