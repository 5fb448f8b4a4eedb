//! What earlier runs taught, kept beside their records: of each job, and of the GPUs.
//!
//! One file of JSON lines per job, and one for all GPUs. A file is only ever added to, but for the moment at which it
//! has become too long; then a shorter one takes its place in one step. Nothing is sent anywhere.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

use brimful::plan::{GpuMeasurement, LearntRun};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::state::{HISTORY, StateDir};

/// What was measured on GPUs. The files of jobs have names of 16 hexadecimal digits.
const GPUS: &str = "gpus.jsonl";
/// Entries that are kept in one file.
const MAX_ENTRIES: usize = 200;
/// Shortened when it has a quarter more, so that it is not rewritten each time.
const SHORTEN_AT: usize = MAX_ENTRIES + MAX_ENTRIES / 4;
/// An entry has some 2 kB.
const MAX_BYTES: u64 = 16 << 20;

impl StateDir {
    /// What was learnt of a job, oldest first. Lines that cannot be read are skipped.
    pub fn history(&self, job_key: &str) -> Vec<LearntRun> {
        self.newest(&file_name(job_key))
    }

    /// Adds what an attempt taught.
    pub fn remember(&self, job_key: &str, learnt: &LearntRun) -> io::Result<()> {
        self.add(&file_name(job_key), learnt)
    }

    /// What runs measured on GPUs, oldest first. Lines that cannot be read are skipped.
    pub fn gpu_measurements(&self) -> Vec<GpuMeasurement> {
        self.newest(GPUS)
    }

    /// Adds what a run measured on its GPU.
    pub fn remember_gpu(&self, measured: &GpuMeasurement) -> io::Result<()> {
        self.add(GPUS, measured)
    }

    fn newest<T: DeserializeOwned>(&self, file_name: &str) -> Vec<T> {
        let Ok(directory) = self.existing_directory() else {
            return Vec::new();
        };
        let mut entries = read(&directory.join(HISTORY).join(file_name));
        let extra = entries.len().saturating_sub(MAX_ENTRIES);
        entries.drain(..extra);
        entries
    }

    fn add<T: Serialize + DeserializeOwned>(&self, file_name: &str, entry: &T) -> io::Result<()> {
        let directory = self.own_directory()?;
        let history = brimful_private::create_directory(&directory.join(HISTORY))?;
        let path = history.join(file_name);
        let mut line = serde_json::to_string(entry)?;
        line.push('\n');
        let mut file = brimful_private::append(&path, true)?;
        if !ends_with_a_line(&file)? {
            // Whoever wrote the last one was killed in the middle of it.
            line.insert(0, '\n');
        }
        file.write_all(line.as_bytes())?;
        let entries: Vec<T> = read(&path);
        if entries.len() > SHORTEN_AT || file.metadata()?.len() > MAX_BYTES / 2 {
            shorten(&path, &entries)?;
        }
        Ok(())
    }

    /// Forgets a job; says how many entries there were.
    pub fn forget(&self, job_key: &str) -> usize {
        let Ok(directory) = self.existing_directory() else {
            return 0;
        };
        let path = directory.join(HISTORY).join(file_name(job_key));
        let n_entries = read::<LearntRun>(&path).len();
        match fs::remove_file(path) {
            Ok(()) => n_entries,
            Err(_) => 0,
        }
    }
}

fn file_name(job_key: &str) -> String {
    format!("{}.jsonl", job_file_stem(job_key))
}

/// The name of a job's files, the same on every machine.
pub fn job_file_stem(job_key: &str) -> String {
    format!("{:016x}", hash(job_key.as_bytes()))
}

/// What identifies a job: the directory it is started in and its command with places for knobs.
pub fn job_key(directory: &Path, command: &[String]) -> String {
    let directory = directory
        .canonicalize()
        .unwrap_or_else(|_| directory.to_owned());
    let mut key = directory.to_string_lossy().into_owned();
    for word in command {
        key.push('\0');
        key.push_str(word);
    }
    key
}

/// FNV-1a: the same in every version, which the standard library's does not promise.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn read<T: DeserializeOwned>(path: &Path) -> Vec<T> {
    let mut bytes = Vec::new();
    let Ok(file) = brimful_private::open(path) else {
        return Vec::new();
    };
    if file.take(MAX_BYTES).read_to_end(&mut bytes).is_err() {
        return Vec::new();
    }
    bytes
        .split(|byte| *byte == b'\n')
        // A list would be taken for an entry, by the order of its fields.
        .filter(|line| line.first() == Some(&b'{'))
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect()
}

fn ends_with_a_line(file: &File) -> io::Result<bool> {
    use std::os::unix::fs::FileExt;
    let Some(last) = file.metadata()?.len().checked_sub(1) else {
        return Ok(true);
    };
    let mut byte = [0];
    file.read_exact_at(&mut byte, last)?;
    Ok(byte[0] == b'\n')
}

/// Writes the newest entries to a file of its own that takes the place of the old one.
fn shorten<T: Serialize>(path: &Path, entries: &[T]) -> io::Result<()> {
    let newest = &entries[entries.len().saturating_sub(MAX_ENTRIES)..];
    let mut text = String::new();
    for entry in newest {
        text.push_str(&serde_json::to_string(entry)?);
        text.push('\n');
    }
    brimful_private::replace(path, text.as_bytes())
}

#[cfg(test)]
mod tests {
    use brimful::explain::Cause;
    use brimful::job::Settings;
    use brimful::plan::Observed;
    use brimful::units::Bytes;

    use brimful::plan::MeasuredOn;

    use super::*;

    fn state() -> (tempfile::TempDir, StateDir) {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDir {
            directory: directory.path().join("state"),
        };
        (directory, state)
    }

    fn path_of(state: &StateDir, job_key: &str) -> std::path::PathBuf {
        state.directory.join(HISTORY).join(file_name(job_key))
    }

    fn learnt(at_unix_ms: u64) -> LearntRun {
        let mut settings = Settings::default();
        settings.set("workers", 4);
        settings.set("start_method", "fork");
        LearntRun {
            at_unix_ms,
            settings,
            cause: Some(Cause::DataloaderWorkerKilledOom),
            observed: Observed {
                host_used: Some(Bytes(7 << 30)),
                timed_seconds: 1.25,
                ..Observed::default()
            },
            measured_on: Some(MeasuredOn::default()),
        }
    }

    #[test]
    fn what_was_learnt_is_there_again_and_can_be_forgotten() {
        let (_directory, state) = state();
        assert_eq!(state.history("a"), []);
        state.remember("a", &learnt(1)).unwrap();
        state.remember("a", &learnt(2)).unwrap();
        state.remember("b", &learnt(3)).unwrap();
        assert_eq!(state.history("a"), [learnt(1), learnt(2)]);
        assert_eq!(state.forget("a"), 2);
        assert_eq!(state.forget("a"), 0);
        assert_eq!(state.history("a"), []);
        assert_eq!(state.history("b"), [learnt(3)]);
    }

    #[test]
    fn what_gpus_measured_is_kept_beside_the_jobs() {
        let (_directory, state) = state();
        assert_eq!(state.gpu_measurements(), []);
        let measured = GpuMeasurement {
            gpu: "Tesla T4".into(),
            context: Bytes::from_mib(310),
            ..GpuMeasurement::default()
        };
        state.remember_gpu(&measured).unwrap();
        state.remember("a", &learnt(1)).unwrap();
        assert_eq!(state.gpu_measurements(), [measured]);
        assert_eq!(state.history("a"), [learnt(1)]);
    }

    #[test]
    fn torn_lines_are_skipped_and_cost_nothing_else() {
        let (_directory, state) = state();
        state.remember("a", &learnt(1)).unwrap();
        let path = path_of(&state, "a");
        let whole = fs::read(&path).unwrap();
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            state.remember("a", &learnt(2)).unwrap();
            let found = state.history("a");
            assert_eq!(found.last(), Some(&learnt(2)), "{length}");
            assert!(found.len() <= 2);
        }
        fs::write(&path, b"\xff\xfe\n[]\n7\n{\"at_unix_ms\":9}\n").unwrap();
        assert_eq!(state.history("a").len(), 1);
    }

    #[test]
    fn the_history_of_a_job_stays_short() {
        let (_directory, state) = state();
        for at in 0..1000 {
            state.remember("a", &learnt(at)).unwrap();
        }
        let found = state.history("a");
        assert_eq!(found.len(), MAX_ENTRIES);
        assert_eq!(found.last(), Some(&learnt(999)));
        let bytes = fs::metadata(path_of(&state, "a")).unwrap().len();
        assert!(bytes < 500_000, "{bytes}");
        let files = fs::read_dir(state.directory.join(HISTORY)).unwrap().count();
        assert_eq!(files, 1);
    }

    #[test]
    fn jobs_are_told_apart_by_directory_and_command() {
        let command = |words: &[&str]| words.iter().map(|word| (*word).into()).collect::<Vec<_>>();
        let here = Path::new("/");
        let keys = [
            job_key(here, &command(&["python", "a.py"])),
            job_key(here, &command(&["python", "b.py"])),
            job_key(here, &command(&["pythona.py"])),
            job_key(Path::new("/tmp"), &command(&["python", "a.py"])),
        ];
        let different: std::collections::BTreeSet<u64> =
            keys.iter().map(|key| hash(key.as_bytes())).collect();
        assert_eq!(different.len(), keys.len());
        assert_eq!(hash(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash(b"a"), 0xaf63_dc4c_8601_ec8c);
    }
}
