//! Where a script is that makes no step, by the stacks that Python's faulthandler writes from time to time.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

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

/// The line that was at work last, of the process whose stack is the newest.
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
    let (_, path) = stacks.max()?;
    place(&tail(&path)?)
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
fn place(stacks: &str) -> Option<String> {
    let last = stacks.rfind("(most recent call first):")?;
    let lines = || stacks[last..].lines().skip(1).map_while(line_of);
    let own = lines().find(|(path, ..)| !LIBRARIES.iter().any(|part| path.contains(part)));
    let (path, line, function) = own.or_else(|| lines().next())?;
    let name = path.rsplit('/').next().unwrap_or(path);
    let place: String = format!("{name}:{line} in {function}")
        .chars()
        .filter(|c| brimful::printable::is_printable(*c))
        .take(MAX_PLACE_CHARS)
        .collect();
    Some(place)
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
        assert_eq!(place(STACKS).unwrap(), "train.py:41 in load");
    }

    #[test]
    fn without_a_line_of_the_script_the_innermost_one_is_shown() {
        let stack = "Thread 0x1 (most recent call first):\n  File \"/v/site-packages/x.py\", line 7 in map\n";
        assert_eq!(place(stack).unwrap(), "x.py:7 in map");
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
