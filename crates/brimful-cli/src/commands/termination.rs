//! The termination message: on Kubernetes the verdict is where `kubectl describe pod` shows it.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use brimful::explain::Verdict;
use brimful_report::text;

/// Names the file where a pod's `terminationMessagePath` is another than the usual one.
const PATH: &str = brimful::env_vars::BRIMFUL_TERMINATION_MESSAGE_PATH;
/// Set in every container of a pod.
const KUBERNETES: &str = brimful::env_vars::KUBERNETES_SERVICE_HOST;
const USUAL_PATH: &str = "/dev/termination-log";
/// The kubelet reads no more.
const MAX_BYTES: usize = 4096;

/// Adds the verdict to the termination message, if this container has one and it can be written. What the training
/// itself has written there stays before it.
pub(crate) fn write(verdict: &Verdict, run: Option<&str>) {
    if let Some(path) = path(|name| std::env::var_os(name).filter(|value| !value.is_empty())) {
        // Nobody waits for it: a file that is missing or cannot be written is left alone.
        let _ = append(&path, &text::termination_message(verdict, run));
    }
}

fn path(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let named = variable(PATH).map(PathBuf::from);
    named.or_else(|| variable(KUBERNETES).map(|_| USUAL_PATH.into()))
}

/// The file is made by the kubelet: another one is not created.
fn append(path: &Path, message: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().append(true).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Ok(());
    }
    let message = if metadata.len() > 0 {
        format!("\n{message}")
    } else {
        message.to_owned()
    };
    let room = MAX_BYTES.saturating_sub(usize::try_from(metadata.len()).unwrap_or(MAX_BYTES));
    let mut end = message.len().min(room);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    file.write_all(&message.as_bytes()[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict() -> Verdict {
        Verdict {
            summary: "it was killed by the kernel because host memory ran out".into(),
            ..Verdict::cannot_tell()
        }
    }

    #[test]
    fn only_in_a_pod_or_where_it_is_named() {
        assert_eq!(path(|_| None), None);
        let in_pod = |name: &str| (name == KUBERNETES).then(|| "10.0.0.1".into());
        assert_eq!(path(in_pod), Some(USUAL_PATH.into()));
        let named = |name: &str| Some(if name == PATH { "/x" } else { "10.0.0.1" }.into());
        assert_eq!(path(named), Some("/x".into()));
    }

    #[test]
    fn the_trainings_own_message_stays_and_the_whole_is_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        assert!(append(&path, "x").is_err());
        std::fs::write(&path, "its own").unwrap();
        append(&path, &text::termination_message(&verdict(), Some("run-7"))).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(
            text.starts_with("its own\nbrimful: it was killed by the kernel"),
            "{text}"
        );
        assert!(text.contains("brimful explain run-7"));
        append(&path, &"é".repeat(9000)).unwrap();
        assert!(std::fs::metadata(&path).unwrap().len() <= 4096);
    }
}
