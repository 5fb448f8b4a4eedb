//! What all nodes of a run know, in a directory that they share: the one of the checkpoints.
//!
//! What decides is agreed on through torchrun's store. These files tell a node that was restarted which run it belongs
//! to, and all nodes how an attempt ended on the others.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Component, Path, PathBuf};

use brimful::nodes::{AgreedRun, NodeReport};
use brimful::user_error::{ErrorKind, Hint, UserError};
use brimful_supervise::checkpoints::{Excluded, SHARED_STATE};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// The directory in that of the checkpoints.
const NAME: &str = SHARED_STATE;
/// Bytes of the state at most: 10,000 checkpoints that were there before.
const MAX_STATE: u64 = 16 << 20;
const MAX_REPORT: u64 = 64 << 10;
/// Raised when a file cannot be read as before.
const SCHEMA_VERSION: u32 = 1;

/// The directory of the checkpoints cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("failed to create `{}`, in which the nodes of a job share their state", path.display())]
pub struct NoSharedDirectory {
    pub(crate) path: PathBuf,
    #[source]
    pub(crate) source: io::Error,
}

impl UserError for NoSharedDirectory {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Environment
    }

    fn hints(&self) -> Vec<Hint> {
        vec![Hint::text(
            "write the checkpoints to a directory that all nodes share and you can write to (`checkpoints` of the job file)",
        )]
    }
}

/// The state of a job's newest run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct SharedState {
    schema_version: u32,
    pub(crate) agreed: AgreedRun,
    /// What this run does not resume from.
    pub(crate) excluded: Excluded,
}

impl SharedState {
    pub(crate) fn new(agreed: AgreedRun, excluded: Excluded) -> SharedState {
        SharedState {
            schema_version: SCHEMA_VERSION,
            agreed,
            excluded,
        }
    }
}

/// The files of one job in the shared directory.
#[derive(Clone, Debug)]
pub(crate) struct SharedDirectory {
    directory: PathBuf,
    key: String,
}

impl SharedDirectory {
    /// The directory of the first pattern of checkpoints; the job's own where it has none.
    pub(crate) fn place(working_directory: &Path, patterns: &[String]) -> PathBuf {
        let Some(pattern) = patterns.first() else {
            return working_directory.join(NAME);
        };
        let parts: Vec<Component<'_>> = Path::new(pattern.trim_end_matches('/'))
            .components()
            .collect();
        let is_wild = |part: &Component<'_>| {
            let text = part.as_os_str().to_string_lossy();
            text.contains(['*', '?', '['])
        };
        let n_plain = parts
            .iter()
            .position(is_wild)
            .unwrap_or(parts.len())
            // The last part is the checkpoint itself.
            .min(parts.len().saturating_sub(1));
        parts[..n_plain]
            .iter()
            .fold(working_directory.to_owned(), |path, part| {
                path.join(part.as_os_str())
            })
            .join(NAME)
    }

    pub(crate) fn create(path: &Path, key: &str) -> Result<SharedDirectory, NoSharedDirectory> {
        let failed = |source| NoSharedDirectory {
            path: path.to_owned(),
            source,
        };
        let parent = path.parent().unwrap_or(path);
        brimful_private::create_missing_directories(parent).map_err(failed)?;
        match brimful_private::new_directory(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
            made => made.map_err(failed)?,
        }
        Ok(SharedDirectory::existing(path, key))
    }

    pub(crate) fn existing(path: &Path, key: &str) -> SharedDirectory {
        SharedDirectory {
            directory: path.to_owned(),
            key: key.to_owned(),
        }
    }

    /// The state of the newest run; nothing if there is none, or if it is of another version of brimful.
    pub(crate) fn state(&self) -> Option<SharedState> {
        let state: SharedState = read(&self.state_path(), MAX_STATE)?;
        (state.schema_version == SCHEMA_VERSION).then_some(state)
    }

    pub(crate) fn store(&self, state: &SharedState) -> io::Result<()> {
        brimful_private::replace(&self.state_path(), &serde_json::to_vec(state)?)
    }

    /// Records that a run has ended, and returns the reason that was recorded first.
    pub(crate) fn end(&self, run: &str, why: &str) -> String {
        let path = self.path(run, "end");
        let text = serde_json::to_vec(why).unwrap_or_default();
        // Whole or not at all: others read it at any time.
        let number = RandomState::new().hash_one(std::process::id());
        let part = self.path(run, &format!("end.{number:016x}.part"));
        let linked = brimful_private::write_new(&part, &text)
            .and_then(|()| std::fs::hard_link(&part, &path));
        let _ = std::fs::remove_file(&part);
        if linked.is_err() && !path.exists() {
            // A file system without links.
            let _ = brimful_private::write_new(&path, &text);
        }
        self.ended(run).unwrap_or_else(|| why.to_owned())
    }

    /// Why a run has ended.
    pub(crate) fn ended(&self, run: &str) -> Option<String> {
        read(&self.path(run, "end"), MAX_REPORT)
    }

    /// Tells the other nodes how an attempt ended on this one.
    pub(crate) fn report(&self, run: &AgreedRun, report: &NodeReport) -> io::Result<()> {
        let path = self.path(&run.run, &format!("{}-{}", run.attempt, report.node));
        brimful_private::replace(&path, &serde_json::to_vec(report)?)
    }

    /// How an attempt ended on each of these nodes, as far as they have told.
    pub(crate) fn reports(&self, run: &AgreedRun, nodes: &[String]) -> Vec<NodeReport> {
        nodes
            .iter()
            .filter_map(|node| {
                let path = self.path(&run.run, &format!("{}-{node}", run.attempt));
                read(&path, MAX_REPORT)
            })
            .collect()
    }

    /// Removes what older runs of this job have left.
    pub(crate) fn clean(&self, run: &str) {
        let own = format!("{}-{run}-", self.key);
        let old = format!("{}-", self.key);
        let entries = std::fs::read_dir(&self.directory).into_iter().flatten();
        for entry in entries.flatten().take(10_000) {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(&old) && !name.starts_with(&own) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }

    fn state_path(&self) -> PathBuf {
        self.directory.join(format!("{}.json", self.key))
    }

    fn path(&self, run: &str, rest: &str) -> PathBuf {
        self.directory
            .join(format!("{}-{}-{rest}.json", self.key, plain(run)))
    }
}

/// A name that was read from a file, as a part of a file name.
fn plain(name: &str) -> String {
    name.chars()
        .filter(|c| c.is_ascii_alphanumeric() || *c == '-')
        .take(64)
        .collect()
}

fn read<T: DeserializeOwned>(path: &Path, max_bytes: u64) -> Option<T> {
    serde_json::from_slice(&brimful_private::read(path, max_bytes).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use brimful::nodes::NodeEnd;

    use super::*;

    #[test]
    fn the_place_is_the_directory_of_the_checkpoints() {
        let place = |pattern: &str| {
            let path = SharedDirectory::place(Path::new("/job"), &[pattern.to_owned()]);
            path.display().to_string()
        };
        assert_eq!(place("out/checkpoint-*"), "/job/out/.brimful");
        assert_eq!(place("out/*/last.pt"), "/job/out/.brimful");
        assert_eq!(place("last.pt"), "/job/.brimful");
        assert_eq!(place("/data/run/last.pt"), "/data/run/.brimful");
        assert_eq!(place("*"), "/job/.brimful");
        let none = SharedDirectory::place(Path::new("/job"), &[]);
        assert_eq!(none, Path::new("/job/.brimful"));
    }

    #[test]
    fn the_first_end_counts_and_older_runs_are_removed() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("out").join(NAME);
        let shared = SharedDirectory::create(&path, "key").expect("created");
        SharedDirectory::create(&path, "key").expect("there already");
        assert_eq!(shared.ended("r"), None);
        assert_eq!(shared.end("r", "one"), "one");
        assert_eq!(shared.end("r", "two"), "one");
        let run = AgreedRun {
            run: "r".into(),
            attempt: 2,
            ..AgreedRun::default()
        };
        let report = NodeReport {
            node: "a-1".into(),
            host_name: "a".into(),
            end: NodeEnd::Memory,
            summary: "no memory".into(),
            at_unix_ms: 1,
        };
        shared.report(&run, &report).expect("written");
        let nodes = ["b-1".to_owned(), "a-1".to_owned()];
        assert_eq!(shared.reports(&run, &nodes), [report]);
        shared.clean("r");
        assert_eq!(shared.ended("r").as_deref(), Some("one"));
        shared.clean("s");
        assert_eq!(shared.ended("r"), None);
        assert!(shared.state().is_none());
        std::fs::write(path.join("key.json"), "{\"schema_version\": 9").expect("written");
        assert!(shared.state().is_none());
    }
}
