//! Where a script is that makes no step, by the stacks that Python's faulthandler writes from time to time.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::time::Duration;

/// Of a file of stacks, the end that is read: the last stack lies in it.
const MAX_BYTES: u64 = 64 << 10;
const MAX_PLACE_CHARS: usize = 200;
/// Paths that are not the script: the interpreter's, those of packages, and brimful's hook.
const LIBRARIES: [&str; 4] = [
    "/site-packages/",
    "/dist-packages/",
    "/lib/python",
    "/hook/brimful_",
];

/// Stacks are written this often; one that is much older is of a process that has ended or makes steps.
const RECENT: Duration = Duration::from_secs(40);

/// The line that was at work last: of the newest stacks, one that shows a line of the script.
pub(crate) fn read(results: &Path) -> Option<String> {
    let entries = std::fs::read_dir(results).ok()?;
    let stacks = entries.filter_map(|entry| {
        let path = entry.ok()?.path();
        let is_stack = path
            .extension()
            .is_some_and(|extension| extension == "stack");
        let modified = path.metadata().ok()?.modified().ok()?;
        is_stack.then_some((modified, path))
    });
    let mut stacks: Vec<_> = stacks.collect();
    stacks.sort_by(|one, other| other.cmp(one));
    let (newest, _) = stacks.first()?.clone();
    let recent = stacks.into_iter().filter(|(modified, _)| {
        newest
            .duration_since(*modified)
            .is_ok_and(|older| older < RECENT)
    });
    // Launchers and loader workers wait in libraries, for the process that runs the script.
    let places: Vec<StackPosition> = recent
        .filter_map(|(_, path)| place(&tail(&path)?))
        .collect();
    let own = places.iter().find(|place| place.is_script);
    own.or(places.first()).map(|place| place.text.clone())
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct StackPosition {
    is_script: bool,
    text: String,
}

fn tail(path: &Path) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(MAX_BYTES)))
        .ok()?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Of the last stack, the innermost line of the script, or the innermost line at all.
///
/// The main thread is the last of a stack's threads, and the innermost line the first of its lines.
fn place(stacks: &str) -> Option<StackPosition> {
    let last = stacks.rfind("(most recent call first):")?;
    let lines = || stacks[last..].lines().skip(1).map_while(line_of);
    let own = lines().find(|(path, ..)| is_script(path));
    let (path, line, function) = own.or_else(|| lines().next())?;
    let name = path.rsplit('/').next().unwrap_or(path);
    let text = format!("{name}:{line} in {function}")
        .chars()
        .filter(|c| brimful::printable::is_printable(*c))
        .take(MAX_PLACE_CHARS)
        .collect();
    Some(StackPosition {
        is_script: own.is_some(),
        text,
    })
}

/// `<frozen …>` and `<string>` are how Python starts a module and a worker.
fn is_script(path: &str) -> bool {
    !path.starts_with('<') && !LIBRARIES.iter().any(|part| path.contains(part))
}

/// The path, the line and the function of `  File "train.py", line 41 in load`.
fn line_of(line: &str) -> Option<(&str, u32, &str)> {
    let rest = line.trim_start().strip_prefix("File \"")?;
    let (path, rest) = rest.rsplit_once("\", line ")?;
    let (line, function) = rest.split_once(" in ")?;
    Some((path, line.parse().ok()?, function))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STACKS: &str = "Timeout (0:00:15)!\nThread 0x1 (most recent call first):\n  File \"/home/u/train.py\", line 3 in early\n\n\
        Timeout (0:00:15)!\nThread 0x2 (most recent call first):\n  File \"/usr/lib/python3.11/threading.py\", line 9 in wait\n\n\
        Thread 0x1 (most recent call first):\n  File \"/v/lib/python3.11/site-packages/datasets/a.py\", line 7 in map\n  \
        File \"/home/u/train.py\", line 41 in load\n  File \"/home/u/train.py\", line 60 in <module>\n";

    #[test]
    fn the_script_is_where_its_main_thread_was_last() {
        assert_eq!(place(STACKS).unwrap().text, "train.py:41 in load");
    }

    #[test]
    fn without_a_line_of_the_script_the_innermost_one_is_shown() {
        let stack = "Thread 0x1 (most recent call first):\n  File \"/v/site-packages/x.py\", line 7 in map\n";
        let place = place(stack).unwrap();
        assert_eq!(
            (place.is_script, place.text.as_str()),
            (false, "x.py:7 in map")
        );
    }

    #[test]
    fn a_process_that_runs_the_script_is_shown_before_its_launcher_and_its_workers() {
        let directory = tempfile::tempdir().unwrap();
        let waits = "Thread 0x1 (most recent call first):\n  File \"/v/site-packages/api.py\", line 7 in poll\n  \
            File \"<string>\", line 1 in <module>\n";
        std::fs::write(directory.path().join("7.stack"), STACKS).unwrap();
        std::fs::write(directory.path().join("8.stack"), waits).unwrap();
        std::fs::write(directory.path().join("9.stack"), "").unwrap();
        assert_eq!(read(directory.path()).unwrap(), "train.py:41 in load");
        std::fs::remove_file(directory.path().join("7.stack")).unwrap();
        assert_eq!(read(directory.path()).unwrap(), "api.py:7 in poll");
    }

    #[test]
    fn what_is_no_stack_is_no_place() {
        for text in [
            "",
            "Thread 0x1 (most recent call first):\n",
            "(most recent call first):\n  File \"x\", line y in z",
        ] {
            assert_eq!(place(text), None);
        }
    }
}
