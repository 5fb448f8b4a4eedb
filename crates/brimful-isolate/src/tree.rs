//! All descendants of this process, ended together, where there is no PID namespace to do it.

use std::collections::HashMap;
use std::fs;

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, wait};

/// Rounds of looking for processes that were started in the meantime.
const MAX_ROUNDS: usize = 100;

/// Kills every descendant and waits for it. This process must be their subreaper.
pub(crate) fn end_descendants() {
    for _ in 0..MAX_ROUNDS {
        let found = descendants_of(getpid().as_raw_nonzero().get());
        if found.is_empty() {
            return;
        }
        for pid in found.into_iter().filter_map(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
        // Orphans become our children: each is waited for, so none is seen twice.
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

/// The processes below one, as far as they can be seen.
pub(crate) fn descendants_of(ancestor: i32) -> Vec<i32> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for (pid, stat) in stats() {
        if let Some(parent) = field_after_name(&stat, PARENT) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut next = vec![ancestor];
    while let Some(pid) = next.pop() {
        let below = children.remove(&pid).unwrap_or_default();
        next.extend(&below);
        found.extend(below);
    }
    found
}

/// A process and its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
}

/// The process with this number, or with a thread of this number.
pub(crate) fn process(id: i32) -> Option<Process> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    process_in(&status)
}

/// What `/proc/PID/status` says. A name in it cannot end a line.
fn process_in(status: &str) -> Option<Process> {
    let field = |name: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name))?;
        value.trim().parse().ok()
    };
    Some(Process {
        pid: field("Tgid:")?,
        parent: field("PPid:")?,
    })
}

/// The processes of a process group, as far as they can be seen.
pub(crate) fn members_of(group: i32) -> Vec<i32> {
    let is_member = |stat: &str| field_after_name(stat, GROUP) == Some(group);
    stats()
        .into_iter()
        .filter(|(_, stat)| is_member(stat))
        .map(|(pid, _)| pid)
        .collect()
}

/// Every process with its line of `/proc/PID/stat`.
fn stats() -> Vec<(i32, String)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            Some((pid, stat))
        })
        .collect()
}

/// Fields of `/proc/PID/stat`, counted from behind the name, which may hold anything.
const PARENT: usize = 1;
const GROUP: usize = 2;

fn field_after_name(stat: &str, index: usize) -> Option<i32> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(index)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_leads_to_its_process() {
        let status = "Name:\ta\\nPPid: 1\nTgid:\t12\nNgid:\t0\nPid:\t13\nPPid:\t11\n";
        let expected = Process {
            pid: 12,
            parent: 11,
        };
        assert_eq!(process_in(status), Some(expected));
        assert_eq!(process_in("Name:\tx\n"), None);
    }

    #[test]
    fn fields_are_found_behind_any_name() {
        let stat = "12 (a) b) S 34 56 12 0";
        assert_eq!(field_after_name(stat, PARENT), Some(34));
        assert_eq!(field_after_name(stat, GROUP), Some(56));
        assert_eq!(field_after_name("12 (x", PARENT), None);
        assert_eq!(field_after_name("", PARENT), None);
    }
}
