//! What a run leaves behind: processes, control groups, files, and whether its record can be read.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use brimful::record::Line;
use brimful_testkit::TestGroup;
use rustix::process::Signal;

use crate::faults::signals::send;
use crate::faults::surroundings::{MARKER, Surroundings};

/// Where shared memory is.
const SHM: &str = "/dev/shm";

/// The names in /dev/shm before a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Before {
    shm: BTreeSet<OsString>,
}

impl Before {
    pub(crate) fn now() -> Before {
        Before { shm: names(SHM) }
    }
}

/// Processes that are left. Looks at once: brimful has said that it is over.
pub(crate) fn processes_left(surroundings: &Surroundings) -> Vec<String> {
    let marked = processes(&surroundings.marker);
    let others = surroundings
        .group
        .iter()
        .flat_map(TestGroup::processes)
        .filter(|pid| !marked.contains(pid));
    marked
        .iter()
        .copied()
        .chain(others)
        .map(|pid| format!("process {pid} ({})", name_of(pid)))
        .collect()
}

/// What brimful made and should have removed, where `brimful` is its process. What a killed training leaves in the
/// folder for temporary files and in shared memory is its own.
pub(crate) fn things_left(
    surroundings: &Surroundings,
    before: &Before,
    brimful: u32,
) -> Vec<String> {
    let groups = surroundings.group.iter().flat_map(TestGroup::groups_below);
    let mut left: Vec<String> = groups
        .map(|group| format!("group {}", last(&group)))
        .collect();
    left.extend(
        names(surroundings.temporary())
            .into_iter()
            .filter(|name| name.to_string_lossy().contains("brimful"))
            .map(|name| format!("temporary {}", name.display())),
    );
    let mine = format!("-{brimful}-");
    left.extend(
        names(SHM)
            .difference(&before.shm)
            .filter(|name| {
                let name = name.to_string_lossy();
                name.contains("brimful") && name.contains(&mine)
            })
            .map(|name| format!("shared memory {}", name.display())),
    );
    left
}

/// What a run leaves behind on purpose: its record, and a report if it died.
const OF_A_RUN: [&str; 2] = ["record.jsonl", "report.html"];

/// Files in the folders of runs that are neither a record nor a snapshot of PyTorch's allocator.
pub(crate) fn files_left(state: &Path) -> Vec<String> {
    fn add(folder: &Path, shown: &str, found: &mut Vec<String>) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = format!("{shown}{}", entry.file_name().display());
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                add(&entry.path(), &format!("{name}/"), found);
            } else if !OF_A_RUN.contains(&name.as_str()) && !name.contains("snapshots/") {
                found.push(format!("file {name} beside the record"));
            }
        }
    }
    let mut found = Vec::new();
    for run in names(state.join("runs")) {
        add(&state.join("runs").join(run), "", &mut found);
    }
    found
}

/// Removes segments of shared memory that died with their makers, as `torch_PID_…` says.
pub(crate) fn sweep_shared_memory(before: &Before) -> usize {
    let mut removed = 0;
    for name in names(SHM).difference(&before.shm) {
        let maker: Option<u32> = name
            .to_str()
            .and_then(|name| name.strip_prefix("torch_")?.split('_').next()?.parse().ok());
        if maker.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
            && fs::remove_file(Path::new(SHM).join(name)).is_ok()
        {
            removed += 1;
        }
    }
    removed
}

/// Ends every process of the run.
pub(crate) fn end(surroundings: &Surroundings) {
    let give_up = Instant::now() + Duration::from_secs(5);
    loop {
        let mut left = processes(&surroundings.marker);
        left.extend(surroundings.group.iter().flat_map(TestGroup::processes));
        if left.is_empty() || Instant::now() > give_up {
            return;
        }
        for pid in left {
            send(pid, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Processes with the marker in their environment. One that is being taken apart has none any more.
fn processes(marker: &str) -> Vec<u32> {
    let wanted = format!("{MARKER}={marker}");
    names("/proc")
        .into_iter()
        .filter_map(|name| name.to_str()?.parse().ok())
        .filter(|pid| {
            fs::read(format!("/proc/{pid}/environ")).is_ok_and(|text| {
                text.split(|byte| *byte == 0)
                    .any(|entry| entry == wanted.as_bytes())
            })
        })
        .collect()
}

fn name_of(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim().to_owned()
}

/// The records below a state folder.
pub(crate) fn records(state: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = names(state.join("runs"))
        .into_iter()
        .map(|run| state.join("runs").join(run).join("record.jsonl"))
        .filter(|record| record.is_file())
        .collect();
    found.sort();
    found
}

/// What cannot be read of a record. The last line may be broken where its writer was killed.
pub(crate) fn unreadable(text: &str, writer_was_killed: bool) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    match lines.first().map(|line| serde_json::from_str(line)) {
        Some(Ok(Line::Run(_))) => {}
        Some(_) => found.push("line 1 names no run".to_owned()),
        None => found.push("the record is empty".to_owned()),
    }
    for (at, line) in lines.iter().enumerate().skip(1) {
        let may_be_broken = writer_was_killed && at + 1 == lines.len() && !text.ends_with('\n');
        match serde_json::from_str::<Line>(line) {
            Ok(Line::Unknown) => found.push(format!("line {} is of an unknown kind", at + 1)),
            Err(error) if !may_be_broken => found.push(format!("line {}: {error}", at + 1)),
            Ok(_) | Err(_) => {}
        }
    }
    found
}

fn names(folder: impl AsRef<Path>) -> BTreeSet<OsString> {
    fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name())
        .collect()
}

fn last(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use brimful::record::{GapLine, RunLine};

    use super::*;

    fn record(more: &str) -> String {
        Line::Run(RunLine::default()).to_json() + &Line::Gap(GapLine::default()).to_json() + more
    }

    #[test]
    fn a_whole_record_is_readable() {
        assert!(unreadable(&record(""), false).is_empty());
    }

    #[test]
    fn a_broken_last_line_is_forgiven_to_the_killed() {
        let text = record("{\"line\":\"sam");
        assert!(unreadable(&text, true).is_empty());
        assert_eq!(unreadable(&text, false).len(), 1);
    }

    #[test]
    fn a_broken_line_in_the_middle_is_never_forgiven() {
        let text = record("{\"line\":\"sam\n{\"line\":\"gap\"}\n");
        assert_eq!(unreadable(&text, true).len(), 1);
    }

    #[test]
    fn other_files_are_no_records() {
        assert_eq!(unreadable("", true), ["the record is empty"]);
        assert_eq!(unreadable("{}\n", true), ["line 1 names no run"]);
    }

    #[test]
    fn processes_are_found_by_their_marker() {
        let marker = format!("test-{}", std::process::id());
        let mut child = std::process::Command::new("sleep")
            .arg("30")
            .env(MARKER, &marker)
            .spawn()
            .unwrap();
        // A new program has its environment a moment after it was started.
        let give_up = Instant::now() + Duration::from_secs(5);
        let mut found = processes(&marker);
        while found.is_empty() && Instant::now() < give_up {
            std::thread::sleep(Duration::from_millis(1));
            found = processes(&marker);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found, [child.id()]);
        assert!(processes(&marker).is_empty());
    }
}
