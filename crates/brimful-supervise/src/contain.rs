//! Holding a job together: its own cgroup where the system allows it, else the tree of its processes.
//!
//! A group of its own makes the kernel count for the job alone (use, kills), and lets nothing escape.
//! No limit is set on it: those of the groups above hold as before.

#![expect(clippy::disallowed_methods, reason = "cgroups are files of the kernel")]

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use brimful::fact::Fact;
use brimful::machine::CgroupVersion;
use brimful_probe::{Cgroup, Meter, ProcessFacts, Processes, descendants};
use rustix::process::{Pid, Signal};

use crate::send::send_to;

/// How the job is held together.
#[derive(Debug)]
pub(crate) struct Containment {
    group: Option<OwnCgroup>,
    /// The process that was there before brimful, if it is watched from outside.
    attached_to: Option<u32>,
    /// Processes of ours that are not of the job: brimful itself, and who keeps the streams open.
    not_the_job: Vec<u32>,
}

#[derive(Debug)]
struct OwnCgroup {
    group: Cgroup,
    /// The memory controller counts in it.
    counts_memory: bool,
    /// Where brimful itself was moved to, out of the way of the controller.
    aside: Option<PathBuf>,
    /// Made by systemd, which also removes it.
    is_scope: bool,
}

/// Why the job has no group of its own.
#[derive(Debug)]
pub(crate) struct NoCgroup(pub(crate) String);

const PREFIX: &str = "brimful-";

/// How a record calls a process that was there before brimful.
pub(crate) const ATTACHED: &str = "attached";

impl Containment {
    /// The tree of processes only.
    pub(crate) fn tree() -> Containment {
        Containment {
            group: None,
            attached_to: None,
            not_the_job: vec![std::process::id()],
        }
    }

    /// A process that brimful did not start, and its descendants.
    pub(crate) fn of_process(pid: u32) -> Containment {
        Containment {
            attached_to: Some(pid),
            ..Containment::tree()
        }
    }

    /// Whether the job was there before brimful.
    pub(crate) fn is_attached(&self) -> bool {
        self.attached_to.is_some()
    }

    /// A group below the one that this process is in, or why there is none.
    pub(crate) fn group(meter: &Meter, id: &str) -> Result<Containment, NoCgroup> {
        let own = match meter.own_group() {
            Fact::Known(own) => own,
            Fact::Missing(gap) => return Err(NoCgroup(gap.to_string())),
        };
        sweep(&own.directory);
        let made = match own.version {
            CgroupVersion::V1 => make_v1(&own, id),
            CgroupVersion::V2 => make_v2(&own, id),
        };
        Ok(Containment {
            group: Some(made.map_err(|error| {
                NoCgroup(format!(
                    "{} takes no new group: {error}",
                    own.directory.display()
                ))
            })?),
            attached_to: None,
            not_the_job: vec![std::process::id()],
        })
    }

    /// Takes over a group that systemd made for the job, in place of what there was.
    pub(crate) fn move_to_scope(&mut self, group: Cgroup) {
        let counts_memory = group.directory.join("memory.current").exists();
        let not_the_job = self.not_the_job.clone();
        let before = std::mem::replace(
            self,
            Containment {
                group: Some(OwnCgroup {
                    group,
                    counts_memory,
                    aside: None,
                    is_scope: true,
                }),
                attached_to: None,
                not_the_job,
            },
        );
        before.remove();
    }

    pub(crate) fn kind(&self) -> &'static str {
        if self.group.as_ref().is_some_and(|own| own.is_scope) {
            return "systemd_scope";
        }
        if self.is_attached() {
            return ATTACHED;
        }
        match self.group.as_ref().map(|own| own.group.version) {
            Some(CgroupVersion::V1) => "cgroup_v1",
            Some(CgroupVersion::V2) => "cgroup_v2",
            None => "process_tree",
        }
    }

    pub(crate) fn path(&self) -> Option<&str> {
        self.group.as_ref().map(|own| own.group.path.as_str())
    }

    /// The job's own group, if the kernel counts memory in it.
    pub(crate) fn counting_group(&self) -> Option<&Cgroup> {
        self.group
            .as_ref()
            .filter(|own| own.counts_memory)
            .map(|own| &own.group)
    }

    /// A handle through which a new process joins the group by writing `0`.
    pub(crate) fn door(&self) -> io::Result<Option<File>> {
        match &self.group {
            Some(own) => OpenOptions::new()
                .write(true)
                .open(own.group.directory.join("cgroup.procs"))
                .map(Some),
            None => Ok(None),
        }
    }

    /// Moves a process that has not begun into the group.
    pub(crate) fn take_in(&self, pid: Pid) -> io::Result<()> {
        match self.door()? {
            Some(mut door) => door.write_all(pid.as_raw_nonzero().to_string().as_bytes()),
            None => Ok(()),
        }
    }

    /// Gives the group up, which the job is not in: the tree of its processes remains.
    pub(crate) fn give_up_group(&mut self) {
        let not_the_job = self.not_the_job.clone();
        let tree = Containment {
            group: None,
            attached_to: None,
            not_the_job,
        };
        std::mem::replace(self, tree).remove();
    }

    pub(crate) fn leave_out(&mut self, pid: u32) {
        self.not_the_job.push(pid);
    }

    /// The processes of the job, in the order of their ids.
    pub(crate) fn processes(&self, processes: &Processes) -> Vec<ProcessFacts> {
        let mut found: Vec<ProcessFacts> = if let Some(own) = &self.group {
            members(&own.group.directory)
                .into_iter()
                .filter_map(|pid| processes.one(pid))
                .collect()
        } else {
            let root = self.attached_to.unwrap_or_else(std::process::id);
            descendants(&processes.all(), root)
        };
        found.extend(self.attached_to.and_then(|pid| processes.one(pid)));
        found.retain(|process| !process.is_zombie && !self.not_the_job.contains(&process.pid));
        found.sort_by_key(|process| process.pid);
        found
    }

    /// Sends a signal to every process of the job; says how many there were.
    pub(crate) fn signal(&self, processes: &Processes, signal: Signal) -> usize {
        let found = self.processes(processes);
        send_to(processes, &found, signal);
        found.len()
    }

    /// Ends what is left of the job: asks, waits a little, then kills until nothing is left.
    /// Says how many processes there were.
    pub(crate) fn end(
        &self,
        processes: &Processes,
        grace: Duration,
        mut reap: impl FnMut(),
    ) -> u32 {
        let n_left = self.signal(processes, Signal::TERM);
        if n_left == 0 {
            return 0;
        }
        let gone = |until: Instant, kill: bool, reap: &mut dyn FnMut()| {
            loop {
                reap();
                if self.processes(processes).is_empty() {
                    return true;
                }
                if Instant::now() >= until {
                    return false;
                }
                if kill {
                    self.kill_all(processes);
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        if !gone(Instant::now() + grace, false, &mut reap) {
            gone(Instant::now() + Duration::from_secs(5), true, &mut reap);
        }
        u32::try_from(n_left).unwrap_or(u32::MAX)
    }

    /// Ends every process of the job at once.
    pub(crate) fn kill_all(&self, processes: &Processes) {
        // Since Linux 5.14 the kernel does it in one go, new children included.
        let at_once = self
            .group
            .as_ref()
            .is_some_and(|own| fs::write(own.group.directory.join("cgroup.kill"), "1").is_ok());
        if !at_once {
            self.signal(processes, Signal::KILL);
        }
    }

    /// Removes the group. The kernel refuses for a moment after its last process has ended.
    pub(crate) fn remove(self) {
        let Some(own) = self.group.filter(|own| !own.is_scope) else {
            return;
        };
        let give_up = Instant::now() + Duration::from_secs(2);
        while fs::remove_dir(&own.group.directory).is_err() && Instant::now() < give_up {
            std::thread::sleep(Duration::from_millis(5));
        }
        if let (Some(aside), Some(parent)) = (own.aside, own.group.directory.parent()) {
            let _ = fs::write(parent.join("cgroup.subtree_control"), "-memory");
            let _ = fs::write(parent.join("cgroup.procs"), std::process::id().to_string());
            let _ = fs::remove_dir(aside);
        }
    }
}

fn members(directory: &Path) -> Vec<u32> {
    fs::read_to_string(directory.join("cgroup.procs"))
        .unwrap_or_default()
        .lines()
        .filter_map(|line| line.parse().ok())
        .collect()
}

fn make_v1(own: &Cgroup, id: &str) -> io::Result<OwnCgroup> {
    let group = child_of(own, id);
    fs::create_dir(&group.directory)?;
    Ok(OwnCgroup {
        group,
        counts_memory: true,
        aside: None,
        is_scope: false,
    })
}

/// In v2 a group either holds processes or hands controllers on, so memory is counted below only if brimful can step
/// aside first. Otherwise the group still holds the job together, and memory is counted one level above.
fn make_v2(own: &Cgroup, id: &str) -> io::Result<OwnCgroup> {
    let control = own.directory.join("cgroup.subtree_control");
    let hands_on = |text: &str| text.split_whitespace().any(|name| name == "memory");
    let mut aside = None;
    let mut counts = fs::read_to_string(&control).is_ok_and(|text| hands_on(&text))
        || fs::write(&control, "+memory").is_ok();
    if !counts && members(&own.directory) == [std::process::id()] {
        let directory = own
            .directory
            .join(format!("{PREFIX}{}-{id}-supervisor", std::process::id()));
        if fs::create_dir(&directory).is_ok() {
            let moved = fs::write(directory.join("cgroup.procs"), "0").is_ok();
            counts = moved && fs::write(&control, "+memory").is_ok();
            if counts {
                aside = Some(directory);
            } else {
                let _ = fs::write(own.directory.join("cgroup.procs"), "0");
                let _ = fs::remove_dir(&directory);
            }
        }
    }
    let group = child_of(own, id);
    fs::create_dir(&group.directory)?;
    let counts_memory = counts && group.directory.join("memory.current").exists();
    // A group into which nobody can be put is worse than none.
    let mut door = OpenOptions::new()
        .write(true)
        .open(group.directory.join("cgroup.procs"))
        .inspect_err(|_| {
            let _ = fs::remove_dir(&group.directory);
        })?;
    door.flush()?;
    Ok(OwnCgroup {
        group,
        counts_memory,
        aside,
        is_scope: false,
    })
}

fn child_of(own: &Cgroup, id: &str) -> Cgroup {
    let name = format!("{PREFIX}{}-{id}", std::process::id());
    Cgroup {
        version: own.version,
        path: format!("{}/{name}", own.path.trim_end_matches('/')),
        directory: own.directory.join(name),
    }
}

/// Removes the groups that a killed brimful left here, once the training that went on in them has ended. Those in use
/// refuse; those of a living brimful may still be empty, and are let be.
fn sweep(directory: &Path) {
    // Without /proc nobody could be told to live.
    if !Path::new("/proc/self").exists() {
        return;
    }
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        let owner_is_gone = entry.file_name().to_str().is_some_and(|name| {
            let owner = name
                .strip_prefix(PREFIX)
                .and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
            owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
        });
        if owner_is_gone {
            let _ = fs::remove_dir(entry.path());
        }
    }
}
