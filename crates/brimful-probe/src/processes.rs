//! The processes of a machine: who started whom, and what each holds.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use brimful::units::Bytes;

use crate::files::Files;
use crate::files::parse::{field, meminfo_bytes};

/// No machine that trains runs more; a hostile tree must not keep us busy.
const MAX_PROCESSES: usize = 65_536;
/// Enough for the arguments that tell what a process is for.
const MAX_ARGUMENT_BYTES: u64 = 64 << 10;
/// Slurm and Kubernetes hand down large environments.
const MAX_ENVIRONMENT_BYTES: u64 = 512 << 10;
/// Open files of one process that are looked at.
const MAX_OPEN_FILES: usize = 4096;
/// The namespace in which the machine itself numbers its processes (`PROC_PID_INIT_INO` in `include/linux/proc_ns.h`).
const PID_NAMESPACE_OF_MACHINE: &str = "pid:[4026531836]";

/// Reads processes below one root.
#[derive(Debug)]
pub struct Processes {
    files: Files,
}

/// One process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessFacts {
    pub pid: u32,
    pub parent: u32,
    /// Its process group; 0 for the kernel's own.
    pub group: u32,
    /// The program's name, at most 15 bytes as the kernel keeps it.
    pub name: String,
    /// Ended, but not yet reaped.
    pub is_zombie: bool,
    /// Clock ticks from boot to its start: with the pid, the one process and no later one of that number.
    pub started_ticks: u64,
}

/// What one process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessMemory {
    /// Nobody else maps these pages.
    pub private: Bytes,
    pub shared: Bytes,
    pub swapped: Bytes,
    /// Its fair share: private pages, and shared ones divided by those who map them.
    pub proportional: Bytes,
}

impl Processes {
    /// Of the machine this process runs on.
    pub fn live() -> Processes {
        Processes::below(Path::new("/"))
    }

    /// Of a recorded tree.
    pub fn below(root: &Path) -> Processes {
        Processes::of(&Files::new(root))
    }

    pub(crate) fn of(files: &Files) -> Processes {
        Processes {
            files: files.clone(),
        }
    }

    /// Every process that can be seen.
    pub fn all(&self) -> Vec<ProcessFacts> {
        let names = self.files.names("/proc", MAX_PROCESSES);
        names
            .known()
            .into_iter()
            .flatten()
            .filter_map(|name| name.parse().ok())
            .filter_map(|pid| self.one(pid))
            .collect()
    }

    /// One process; `None` where it has gone.
    pub fn one(&self, pid: u32) -> Option<ProcessFacts> {
        let text = self.files.text_up_to(&format!("/proc/{pid}/stat"), 4096);
        parse_stat(text.known()?)
    }

    /// What one process holds. The kernel walks over all of its pages for this: seldom, please.
    pub fn memory(&self, pid: u32) -> Option<ProcessMemory> {
        let text = self.files.text(&format!("/proc/{pid}/smaps_rollup"));
        parse_rollup(text.known()?)
    }

    /// Anonymous memory of one process, shared with its parent or not: cheap.
    pub fn anonymous(&self, pid: u32) -> Option<Bytes> {
        let text = self
            .files
            .text_up_to(&format!("/proc/{pid}/status"), 64 << 10);
        meminfo_bytes(text.known()?, "RssAnon").map(Bytes)
    }

    /// Time that a process and its threads have had on a processor, and its resident memory at most.
    pub fn cost(&self, pid: u32) -> Option<(Duration, Bytes)> {
        let stat = self.files.text_up_to(&format!("/proc/{pid}/stat"), 4096);
        let after_name = stat.known()?.rsplit_once(')')?.1;
        let mut fields = after_name.split_ascii_whitespace().skip(11);
        let user: u64 = fields.next()?.parse().ok()?;
        let system: u64 = fields.next()?.parse().ok()?;
        let status = self
            .files
            .text_up_to(&format!("/proc/{pid}/status"), 64 << 10);
        let resident = meminfo_bytes(status.known()?, "VmHWM").map(Bytes)?;
        // The kernel shows these in hundredths of a second on every Linux of today.
        let cpu = Duration::from_millis(user.saturating_add(system).saturating_mul(10));
        Some((cpu, resident))
    }

    /// Its arguments, program first.
    pub fn arguments(&self, pid: u32) -> Vec<String> {
        let text = self
            .files
            .text_up_to(&format!("/proc/{pid}/cmdline"), MAX_ARGUMENT_BYTES);
        let text = text.known().map_or("", String::as_str);
        text.split('\0')
            .map(str::to_owned)
            .filter(|argument| !argument.is_empty())
            .collect()
    }

    /// Variables it was started with, of the names asked for.
    pub fn variables(&self, pid: u32, names: &[&str]) -> BTreeMap<String, String> {
        let text = self
            .files
            .text_up_to(&format!("/proc/{pid}/environ"), MAX_ENVIRONMENT_BYTES);
        let text = text.known().map_or("", String::as_str);
        text.split('\0')
            .filter_map(|entry| entry.split_once('='))
            .filter(|(name, _)| names.contains(name))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }

    /// Whether it has a handler of its own for a signal; `None` where that cannot be read.
    pub fn catches(&self, pid: u32, signal: i32) -> Option<bool> {
        let caught = self.signal_set(pid, "SigCgt")?;
        let bit = u32::try_from(signal).ok()?.checked_sub(1)?;
        Some(caught.checked_shr(bit).unwrap_or(0) & 1 == 1)
    }

    /// The signals it ignores, bit 0 for signal 1.
    pub fn ignored_signals(&self, pid: u32) -> Option<u64> {
        self.signal_set(pid, "SigIgn")
    }

    /// Whether the numbers that a driver gives processes mean the same processes here.
    ///
    /// In a container it may give the host's, which are other processes here or none. Proof is to be in the namespace of
    /// the machine itself, or that each of these processes uses CUDA here too.
    pub fn are_numbered_as_here(&self, pids: &[u32]) -> bool {
        let namespace = self.files.link("/proc/self/ns/pid");
        namespace.as_deref() == Some(PID_NAMESPACE_OF_MACHINE)
            || (!pids.is_empty() && pids.iter().all(|pid| self.uses_cuda(*pid)))
    }

    /// Whether it has the device of CUDA's unified memory open, as every process with a CUDA context. What only asks the
    /// driver, as `nvidia-smi` does, has not.
    fn uses_cuda(&self, pid: u32) -> bool {
        let directory = format!("/proc/{pid}/fd");
        let names = self.files.names(&directory, MAX_OPEN_FILES);
        names.known().into_iter().flatten().any(|name| {
            let target = self.files.link(&format!("{directory}/{name}"));
            target.is_some_and(|target| target == "/dev/nvidia-uvm")
        })
    }

    fn signal_set(&self, pid: u32, line: &str) -> Option<u64> {
        let text = self
            .files
            .text_up_to(&format!("/proc/{pid}/status"), 64 << 10);
        u64::from_str_radix(field(text.known()?, line)?, 16).ok()
    }
}

/// The processes that `root` started, and what those started, and so on; not `root` itself.
pub fn descendants(table: &[ProcessFacts], root: u32) -> Vec<ProcessFacts> {
    let mut children: BTreeMap<u32, Vec<&ProcessFacts>> = BTreeMap::new();
    for process in table {
        children.entry(process.parent).or_default().push(process);
    }
    let mut found = Vec::new();
    let mut waiting = vec![root];
    // Every process has one parent, so each is met once; a table that says otherwise is not followed in circles.
    while let Some(pid) = waiting.pop() {
        for child in children.remove(&pid).unwrap_or_default() {
            if child.pid != root {
                found.push(child.clone());
                waiting.push(child.pid);
            }
        }
    }
    found.sort_by_key(|process| process.pid);
    found
}

/// `/proc/PID/stat`: the name stands in parentheses and may hold anything, parentheses too.
fn parse_stat(text: &str) -> Option<ProcessFacts> {
    let open = text.find('(')?;
    let close = text.rfind(')')?;
    let pid = text[..open].trim().parse().ok()?;
    let name = text.get(open + 1..close)?.to_owned();
    let fields: Vec<&str> = text[close + 1..].split_ascii_whitespace().collect();
    Some(ProcessFacts {
        pid,
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        name,
        is_zombie: matches!(*fields.first()?, "Z" | "X"),
        started_ticks: fields.get(19)?.parse().ok()?,
    })
}

fn parse_rollup(text: &str) -> Option<ProcessMemory> {
    let line = |name: &str| meminfo_bytes(text, name).map(Bytes);
    Some(ProcessMemory {
        private: line("Private_Clean")?.saturating_add(line("Private_Dirty")?),
        shared: line("Shared_Clean")?.saturating_add(line("Shared_Dirty")?),
        swapped: line("Swap").unwrap_or_default(),
        proportional: line("Pss")?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let text = "42 (a) b (c) R 7 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 12345 0 0";
        assert_eq!(
            parse_stat(text),
            Some(ProcessFacts {
                pid: 42,
                parent: 7,
                group: 1,
                name: "a) b (c".into(),
                is_zombie: false,
                started_ticks: 12345,
            })
        );
    }

    #[test]
    fn this_process_is_found_with_its_memory() {
        let processes = Processes::live();
        let pid = std::process::id();
        let own = processes.one(pid).unwrap();
        assert!(processes.memory(pid).unwrap().private > Bytes::ZERO);
        assert!(processes.anonymous(pid).unwrap() > Bytes::ZERO);
        let all = processes.all();
        assert!(
            descendants(&all, own.parent)
                .iter()
                .any(|process| process.pid == pid)
        );
        assert!(!processes.arguments(pid).is_empty());
        assert!(processes.cost(pid).unwrap().1 > Bytes::ZERO);
    }

    #[test]
    fn numbers_of_a_driver_mean_processes_here_only_with_proof() {
        let root = tempfile::tempdir().unwrap();
        let link = |path: &str, target: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(target, path).unwrap();
        };
        let processes = Processes::below(root.path());
        assert!(!processes.are_numbered_as_here(&[]), "nothing is known");
        link("proc/self/ns/pid", "pid:[4026532281]");
        link("proc/40/fd/3", "/dev/null");
        link("proc/40/fd/9", "/dev/nvidia-uvm");
        link("proc/41/fd/9", "/dev/nvidiactl");
        assert!(processes.are_numbered_as_here(&[40]));
        assert!(!processes.are_numbered_as_here(&[]));
        assert!(
            !processes.are_numbered_as_here(&[40, 41]),
            "41 has no context"
        );
        assert!(
            !processes.are_numbered_as_here(&[40, 9000]),
            "9000 is not here"
        );
        std::fs::remove_file(root.path().join("proc/self/ns/pid")).unwrap();
        link("proc/self/ns/pid", PID_NAMESPACE_OF_MACHINE);
        assert!(processes.are_numbered_as_here(&[41, 9000]));
    }

    #[test]
    fn a_table_with_a_circle_ends() {
        let process = |pid, parent| ProcessFacts {
            pid,
            parent,
            group: 0,
            name: String::new(),
            is_zombie: false,
            started_ticks: 0,
        };
        let table = [process(1, 3), process(2, 1), process(3, 2)];
        let found: Vec<u32> = descendants(&table, 1).iter().map(|p| p.pid).collect();
        assert_eq!(found, [2, 3]);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".*") {
            let _ = parse_stat(&text);
            let _ = parse_rollup(&text);
        }
    }
}
