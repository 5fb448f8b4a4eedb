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
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|it| it.parse().ok()) else {
            continue;
        };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        if let Some(parent) = parent_of(&stat) {
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

/// The fourth field of `/proc/PID/stat`; the second one is a name that may hold anything.
fn parent_of(stat: &str) -> Option<i32> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_is_found_behind_any_name() {
        assert_eq!(parent_of("12 (a) b) S 34 12 12 0"), Some(34));
        assert_eq!(parent_of("12 (x"), None);
        assert_eq!(parent_of(""), None);
    }
}
