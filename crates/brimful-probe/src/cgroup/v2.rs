//! Memory files of cgroup v2.

use brimful::fact::Fact;
use brimful::machine::{CgroupLevel, CgroupVersion, Cgroups, HiddenAncestors, Usage};
use brimful::units::Bytes;

use crate::cgroup::chain::{CgroupDirectory, Chain};
use crate::cgroup::parse::v2_limit;
use crate::cgroup::usage::{Counters, usage};
use crate::files::Files;

pub(super) fn read(files: &Files, chain: &Chain) -> Cgroups {
    Cgroups {
        levels: chain
            .groups
            .iter()
            .filter(|group| counts_memory(files, group))
            .map(|group| level(files, group))
            .collect(),
        hidden: hidden(files, chain),
    }
}

/// Where the controller is not enabled for a group, its memory is charged to the next one above.
/// The root of the hierarchy has no such files either.
fn counts_memory(files: &Files, group: &CgroupDirectory) -> bool {
    let directory = &group.directory;
    files.exists(&format!("{directory}/memory.max"))
        || files.exists(&format!("{directory}/memory.current"))
}

/// Only a group that is not the root of the hierarchy has `cgroup.events`, so a topmost directory that has it stands
/// inside a cgroup namespace or a bind mount.
fn hidden(files: &Files, chain: &Chain) -> HiddenAncestors {
    let below_root = chain.groups.last().is_some_and(|top| {
        files.exists(&format!("{}/cgroup.events", top.directory))
            || files.exists(&format!("{}/memory.max", top.directory))
    });
    if chain.mounted_below_root || below_root {
        HiddenAncestors::Unknown
    } else {
        HiddenAncestors::None
    }
}

fn level(files: &Files, group: &CgroupDirectory) -> CgroupLevel {
    let path = |name: &str| format!("{}/{name}", group.directory);
    CgroupLevel {
        version: CgroupVersion::V2,
        path: group.path.clone(),
        max: files.parsed(&path("memory.max"), v2_limit),
        high: files.parsed(&path("memory.high"), v2_limit),
        usage: usage_of(files, &group.directory),
        swap_left: swap_left(
            files,
            &path("memory.swap.max"),
            &path("memory.swap.current"),
        ),
        oom_group: files.parsed(&path("memory.oom.group"), |text| match text.trim() {
            "0" => Some(false),
            "1" => Some(true),
            _ => None,
        }),
        oom_kill_disabled: Fact::Known(false),
    }
}

/// What the memory of the group at `directory` is made of, groups below included.
pub(super) fn usage_of(files: &Files, directory: &str) -> Fact<Usage> {
    usage(
        files,
        &format!("{directory}/memory.current"),
        &format!("{directory}/memory.stat"),
        &Counters {
            active_file: "active_file",
            inactive_file: "inactive_file",
            // Absent before Linux 4.15 or without kernel memory accounting: then nothing of it counts as free.
            slab_reclaimable: Some("slab_reclaimable"),
            shmem: "shmem",
            anon: "anon",
        },
    )
}

fn swap_left(files: &Files, max: &str, current: &str) -> Fact<Option<Bytes>> {
    files.parsed(max, v2_limit).and_then(|max| match max {
        None => Fact::Known(None),
        Some(max) => files
            .number(current)
            .map(|used| Some(max.saturating_sub(Bytes(used)))),
    })
}
