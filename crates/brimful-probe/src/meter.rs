//! What changes while a job runs, read again and again at little cost.
//!
//! [`Meter`] remembers where things are (mounts, memberships) and reads only the files whose figures move.

use std::path::{Path, PathBuf};

use brimful::fact::{Fact, Gap};
use brimful::machine::{Brim, CgroupVersion, Host, Usage};
use brimful::units::Bytes;

use crate::cgroup::{self, Mounts};
use crate::files::Files;
use crate::files::parse::{counter, field, meminfo_bytes};
#[cfg(target_os = "linux")]
use crate::linux::filesystem_space;
use crate::shm::FilesystemSpace;

/// Reads what changes while a job runs.
#[derive(Debug)]
pub struct Meter {
    files: Files,
    mounts: Mounts,
}

/// A memory cgroup, by its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup {
    pub version: CgroupVersion,
    /// Its path as the kernel names it.
    pub path: String,
    /// Where its files lie.
    pub directory: PathBuf,
}

/// What the kernel has counted in one group, since the group was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CgroupCounts {
    /// Processes killed for want of memory.
    pub oom_kills: Option<u64>,
    /// Whole groups killed.
    pub oom_group_kills: Option<u64>,
    /// Times the limit was hit.
    pub limit_hits: Option<u64>,
}

/// Microseconds that tasks have waited for memory so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StallTotals {
    /// At least one task waited.
    pub some_us: u64,
    /// All tasks waited.
    pub full_us: u64,
}

impl Meter {
    /// Of the machine this process runs on.
    pub fn live() -> Meter {
        Meter::below(Path::new("/"))
    }

    /// Of a recorded tree.
    pub fn below(root: &Path) -> Meter {
        let files = Files::new(root);
        let mounts = Mounts::read(&files);
        Meter { files, mounts }
    }

    /// The nearest limit that kills, and what is left to it now.
    pub fn brim(&self) -> Fact<Brim> {
        let meminfo = self.files.text("/proc/meminfo");
        let line = |name: &str| {
            meminfo
                .as_ref()
                .and_then(|text| match meminfo_bytes(text, name) {
                    Some(bytes) => Fact::Known(Bytes(bytes)),
                    None => Fact::Missing(Gap::FieldMissing {
                        path: "/proc/meminfo".into(),
                        field: name.into(),
                    }),
                })
        };
        let unread = || Gap::Unavailable {
            reason: "not read while a job runs".into(),
        };
        let host = Host {
            physical: line("MemTotal"),
            available: line("MemAvailable"),
            swap: Fact::Missing(unread()),
            given_limit: None,
            cgroups: cgroup::memory_groups(&self.files, &self.mounts),
            overcommit: Fact::Missing(unread()),
            pressure: Fact::Missing(unread()),
            oom_score_adj: Fact::Missing(unread()),
            killers: Fact::Missing(unread()),
        };
        host.brim()
    }

    /// The memory group that this process is in.
    pub fn own_group(&self) -> Fact<Cgroup> {
        self.mounts
            .chain("memory")
            .and_then(|chain| match chain.groups.first() {
                Some(group) => Fact::Known(Cgroup {
                    version: chain.version,
                    path: group.path.clone(),
                    directory: self.files.locate(&group.directory),
                }),
                None => Fact::unavailable(
                    "the cgroup of this process is outside the cgroup hierarchy mounted here",
                ),
            })
    }

    /// A memory group by its path, in the hierarchy that this process is in.
    pub fn group_at(&self, path: &str) -> Option<Cgroup> {
        let is_plain = path.starts_with('/')
            && path
                .split('/')
                .skip(1)
                .all(|part| !part.is_empty() && part != "." && part != "..");
        let own = self.own_group();
        let own = own.known().filter(|_| is_plain)?;
        let mut root = own.directory.clone();
        for _ in own.path.split('/').filter(|part| !part.is_empty()) {
            root.pop();
        }
        Some(Cgroup {
            version: own.version,
            path: path.to_owned(),
            directory: root.join(path.trim_start_matches('/')),
        })
    }

    /// Whether a cgroup that this process is in, or one above, sets a limit.
    pub fn is_limited_by_group(&self) -> bool {
        let groups = cgroup::memory_groups(&self.files, &self.mounts);
        groups.known().is_some_and(|groups| {
            groups
                .levels
                .iter()
                .any(|level| !matches!(level.max, Fact::Known(None)))
        })
    }

    /// What a group's memory is made of.
    pub fn usage(&self, group: &Cgroup) -> Fact<Usage> {
        let Some(directory) = self.name_of(group) else {
            return Fact::unavailable("the group has no name that can be read");
        };
        cgroup::usage_of_group(&self.files, group.version, &directory)
    }

    /// What was swapped out of a group, where it is counted.
    pub fn swapped(&self, group: &Cgroup) -> Option<Bytes> {
        let directory = self.name_of(group)?;
        let number = |name: &str| self.files.number::<u64>(&format!("{directory}/{name}"));
        match group.version {
            CgroupVersion::V2 => number("memory.swap.current").known().copied().map(Bytes),
            CgroupVersion::V1 => {
                let text = self.files.text(&format!("{directory}/memory.stat"));
                counter(text.known()?, "total_swap").map(Bytes)
            }
        }
    }

    /// What the kernel has counted in a group.
    pub fn counts(&self, group: &Cgroup) -> CgroupCounts {
        let Some(directory) = self.name_of(group) else {
            return CgroupCounts::default();
        };
        let count = |name: &str, line: &str| {
            let text = self.files.text(&format!("{directory}/{name}"));
            counter(text.known()?, line)
        };
        match group.version {
            CgroupVersion::V2 => CgroupCounts {
                oom_kills: count("memory.events", "oom_kill"),
                oom_group_kills: count("memory.events", "oom_group_kill"),
                limit_hits: count("memory.events", "max"),
            },
            // Kills have been counted here since Linux 4.13.
            CgroupVersion::V1 => CgroupCounts {
                oom_kills: count("memory.oom_control", "oom_kill"),
                oom_group_kills: None,
                limit_hits: self
                    .files
                    .number(&format!("{directory}/memory.failcnt"))
                    .known()
                    .copied(),
            },
        }
    }

    /// Processes that the kernel has killed for want of memory on the whole machine.
    pub fn machine_oom_kills(&self) -> Option<u64> {
        counter(self.files.text("/proc/vmstat").known()?, "oom_kill")
    }

    /// How long tasks have waited for memory: those of the group where the kernel keeps that apart, else all.
    pub fn stall(&self, group: Option<&Cgroup>) -> Option<StallTotals> {
        let of_group = group
            .filter(|group| group.version == CgroupVersion::V2)
            .and_then(|group| self.name_of(group))
            .map(|directory| format!("{directory}/memory.pressure"));
        let text = of_group
            .and_then(|path| self.files.text(&path).known().cloned())
            .or_else(|| self.files.text("/proc/pressure/memory").known().cloned())?;
        stall_totals(&text)
    }

    /// The room in `/dev/shm`.
    #[cfg(target_os = "linux")]
    pub fn shm(&self) -> Fact<FilesystemSpace> {
        filesystem_space(Path::new("/dev/shm"))
    }

    /// The room in `/dev/shm`: not readable on this platform yet.
    #[cfg(not(target_os = "linux"))]
    pub fn shm(&self) -> Fact<FilesystemSpace> {
        Fact::unavailable("not readable on this platform yet")
    }

    /// A group's directory as a name below this meter's root.
    fn name_of(&self, group: &Cgroup) -> Option<String> {
        let root = self.files.locate("/");
        let below = group.directory.strip_prefix(&root).ok()?;
        Some(format!("/{}", below.to_str()?))
    }
}

fn stall_totals(text: &str) -> Option<StallTotals> {
    let total = |line: &str| -> Option<u64> {
        field(text, line)?
            .split_ascii_whitespace()
            .find_map(|part| part.strip_prefix("total="))?
            .parse()
            .ok()
    };
    Some(StallTotals {
        some_us: total("some")?,
        full_us: total("full")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_are_read_or_refused_whole() {
        let text = "some avg10=1.50 avg60=0.25 avg300=0.00 total=9\nfull avg10=0.50 avg60=0.10 avg300=0.00 total=3\n";
        assert_eq!(
            stall_totals(text),
            Some(StallTotals {
                some_us: 9,
                full_us: 3
            })
        );
        for text in ["", "some avg10=1 total=x\nfull total=1", "some total=1"] {
            assert_eq!(stall_totals(text), None, "{text:?}");
        }
    }

    #[test]
    fn counts_of_both_hierarchies() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(
            "cg/v2/memory.events",
            "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 1\n",
        );
        write(
            "cg/v1/memory.oom_control",
            "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n",
        );
        write("cg/v1/memory.failcnt", "7\n");
        let meter = Meter::below(root.path());
        let group = |version, name: &str| Cgroup {
            version,
            path: format!("/{name}"),
            directory: root.path().join("cg").join(name),
        };
        let counts = |oom_kills, oom_group_kills, limit_hits| CgroupCounts {
            oom_kills,
            oom_group_kills,
            limit_hits,
        };
        assert_eq!(
            meter.counts(&group(CgroupVersion::V2, "v2")),
            counts(Some(2), Some(1), Some(12))
        );
        assert_eq!(
            meter.counts(&group(CgroupVersion::V1, "v1")),
            counts(Some(5), None, Some(7))
        );
        assert_eq!(
            meter.counts(&group(CgroupVersion::V2, "gone")),
            CgroupCounts::default()
        );
    }
}
