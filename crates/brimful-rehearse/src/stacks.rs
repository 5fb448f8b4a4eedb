//! Where a script is that makes no step, or where native code crashed: from the stacks that Python's faulthandler
//! writes (`brimful_stack.py`).

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Of a file of stacks, the end that is read: the last stack lies in it.
const MAX_BYTES: u64 = 64 << 10;
const MAX_PLACE_CHARS: usize = 200;
/// Paths that are not the script: those of packages, the interpreter's, and brimful's hook.
const PACKAGES: [&str; 2] = ["/site-packages/", "/dist-packages/"];
const STANDARD_LIBRARY: &str = "/lib/python";
const HOOK: &str = "/hook/brimful_";

/// Stacks are written every 15 seconds; one that is much older is of a process that has ended, or in which native code
/// has held the interpreter's lock since then.
const RECENT: Duration = Duration::from_secs(40);
/// Before the frames of a stack.
const HEADER: &str = "(most recent call first):";
/// What faulthandler writes in place of further threads. The main thread would have been the last.
const MORE_THREADS: &str = "...";
/// How faulthandler begins when native code crashed.
const CRASH: &str = "Fatal Python error: ";

/// The line at which the script was when the rehearsal was ended: of the recent stacks, one that shows a line of the
/// script.
pub(crate) fn place_at_end(results: &Path) -> Option<String> {
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
    let now = SystemTime::now();
    let recent = stacks.into_iter().filter(|(modified, _)| {
        now.duration_since(*modified)
            .is_ok_and(|older| older < RECENT)
    });
    // Launchers and loader workers wait in libraries, for the process that runs the script.
    let places: Vec<StackPosition> = recent
        .filter_map(|(_, path)| place(&tail(&path)?))
        .collect();
    let own = places.iter().find(|place| place.is_script);
    own.or(places.first()).map(|place| place.text.clone())
}

/// Where native code crashed, by the end of the script's output: the line that called it, and the script's own line
/// if that is another.
pub(crate) fn crash_place(output: &str) -> Option<String> {
    let (_, stack) = output.rsplit_once(CRASH)?;
    let innermost = frames(stack)?.next()?;
    let called = shown(innermost, path_in_packages(innermost.0));
    match place(stack)? {
        own if own.is_script && !is_script(innermost.0) => {
            Some(format!("{called}, called at {}", own.text))
        }
        _ => Some(called),
    }
}

/// Output without the names of all extension modules, which faulthandler writes after a stack.
pub(crate) fn without_list_of_modules(output: &str) -> String {
    let lines = output.split_inclusive('\n');
    lines
        .filter(|line| !line.starts_with("Extension modules: "))
        .collect()
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct StackPosition {
    is_script: bool,
    text: String,
}

/// Path, line and function.
type Frame<'a> = (&'a str, u32, &'a str);

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
    if stacks.lines().next_back() == Some(MORE_THREADS) {
        return None;
    }
    let own = frames(stacks)?.find(|(path, ..)| is_script(path));
    let frame = own.or_else(|| frames(stacks)?.next())?;
    let name = frame.0.rsplit('/').next().unwrap_or(frame.0);
    Some(StackPosition {
        is_script: own.is_some(),
        text: shown(frame, name),
    })
}

/// The frames of the last stack, the innermost first.
fn frames(stacks: &str) -> Option<impl Iterator<Item = Frame<'_>>> {
    let last = stacks.rfind(HEADER)?;
    Some(stacks[last..].lines().skip(1).map_while(line_of))
}

fn shown((_, line, function): Frame<'_>, name: &str) -> String {
    format!("{name}:{line} in {function}")
        .chars()
        .filter(|c| brimful::printable::is_printable(*c))
        .take(MAX_PLACE_CHARS)
        .collect()
}

/// `torch/nn/functional.py` or `ctypes/__init__.py`: the package shows whose native code it was.
fn path_in_packages(path: &str) -> &str {
    let packages = PACKAGES.iter().find_map(|part| path.rsplit_once(part));
    let own = || path.rsplit_once(STANDARD_LIBRARY)?.1.split_once('/');
    match packages.or_else(own) {
        Some((_, inside)) => inside,
        None => path.rsplit('/').next().unwrap_or(path),
    }
}

/// `<frozen …>` and `<string>` are how Python starts a module and a worker.
fn is_script(path: &str) -> bool {
    let is_library = PACKAGES
        .iter()
        .chain([&STANDARD_LIBRARY, &HOOK])
        .any(|part| path.contains(part));
    !path.starts_with('<') && !is_library
}

/// The path, the line and the function of `  File "train.py", line 41 in load`.
fn line_of(line: &str) -> Option<Frame<'_>> {
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
        assert_eq!(
            place_at_end(directory.path()).unwrap(),
            "train.py:41 in load"
        );
        std::fs::remove_file(directory.path().join("7.stack")).unwrap();
        assert_eq!(place_at_end(directory.path()).unwrap(), "api.py:7 in poll");
    }

    #[test]
    fn an_old_stack_does_not_say_where_the_script_is_now() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("7.stack");
        std::fs::write(&path, STACKS).unwrap();
        let minute_ago = SystemTime::now() - Duration::from_mins(1);
        let file = File::options().write(true).open(&path).unwrap();
        file.set_modified(minute_ago).unwrap();
        assert_eq!(place_at_end(directory.path()), None);
    }

    #[test]
    fn of_more_threads_than_are_written_the_main_one_is_not_known() {
        assert_eq!(place(&format!("{STACKS}...\n")), None);
    }

    #[test]
    fn a_crash_is_placed_by_the_package_that_was_called_and_the_line_of_the_script() {
        let output = "epoch 1\nFatal Python error: Segmentation fault\n\nCurrent thread 0x1 (most recent call first):\n  \
            File \"/v/lib/python3.11/site-packages/torch/nn/functional.py\", line 2345 in embedding\n  \
            File \"/home/u/train.py\", line 41 in step\n\nExtension modules: numpy._core (total: 1)\n";
        assert_eq!(
            crash_place(output).unwrap(),
            "torch/nn/functional.py:2345 in embedding, called at train.py:41 in step"
        );
        assert!(without_list_of_modules(output).ends_with("line 41 in step\n\n"));
        let standard = output.replace("site-packages/torch/nn/functional", "ctypes/__init__");
        assert_eq!(
            crash_place(&standard).unwrap(),
            "ctypes/__init__.py:2345 in embedding, called at train.py:41 in step"
        );
        let own = output.replace("/v/lib/python3.11/site-packages", "/home/u");
        assert_eq!(
            crash_place(&own).unwrap(),
            "functional.py:2345 in embedding"
        );
        assert_eq!(crash_place("Fatal Python error: Aborted\n"), None);
        assert_eq!(crash_place(STACKS), None);
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
