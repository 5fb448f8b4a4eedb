//! Memory files of cgroup v1.

use brimful::fact::Fact;
use brimful::machine::{CgroupLevel, CgroupVersion, Cgroups, HiddenAncestors, Usage};
use brimful::units::Bytes;

use crate::cgroup::chain::{CgroupDirectory, Chain};
use crate::cgroup::parse::v1_limit;
use crate::cgroup::usage::{Counters, usage};
use crate::files::Files;
use crate::files::parse::field;

pub(super) fn read(files: &Files, chain: &Chain) -> Cgroups {
    let levels: Vec<CgroupLevel> = charged(files, chain)
        .map(|group| level(files, group))
        .collect();
    Cgroups {
        hidden: hidden(files, chain, &levels),
        levels,
    }
}

/// The own group and the ancestors that are charged for it.
///
/// Before Linux 5.11 a group with `memory.use_hierarchy` 0 did not count its children.
fn charged<'a>(files: &'a Files, chain: &'a Chain) -> impl Iterator<Item = &'a CgroupDirectory> {
    let mut counted = true;
    chain
        .groups
        .iter()
        .enumerate()
        .filter_map(move |(depth, group)| {
            if depth > 0 {
                let path = format!("{}/memory.use_hierarchy", group.directory);
                counted &= files.text(&path).known().map(|text| text.trim()) != Some("0");
            }
            counted.then_some(group)
        })
}

/// Only the root of the hierarchy has `cgroup.sane_behavior`. Where the topmost directory is not the root,
/// `hierarchical_memory_limit` still tells the lowest limit of everything above.
fn hidden(files: &Files, chain: &Chain, levels: &[CgroupLevel]) -> HiddenAncestors {
    let Some(top) = chain.groups.last() else {
        return HiddenAncestors::Unknown;
    };
    let is_root = files.exists(&format!("{}/cgroup.sane_behavior", top.directory));
    if is_root && !chain.mounted_below_root {
        return HiddenAncestors::None;
    }
    let stat = files.text(&format!("{}/memory.stat", top.directory));
    let lowest = stat
        .known()
        .and_then(|text| v1_limit(field(text, "hierarchical_memory_limit")?));
    let own = levels
        .last()
        .and_then(|level| level.max.known().copied().flatten());
    match (lowest, own) {
        (None, _) => HiddenAncestors::Unknown,
        (Some(None), _) => HiddenAncestors::NoneLower,
        (Some(Some(lowest)), Some(own)) if own <= lowest => HiddenAncestors::NoneLower,
        (Some(Some(lowest)), _) => HiddenAncestors::Limit(lowest),
    }
}

fn level(files: &Files, group: &CgroupDirectory) -> CgroupLevel {
    let path = |name: &str| format!("{}/{name}", group.directory);
    CgroupLevel {
        version: CgroupVersion::V1,
        path: group.path.clone(),
        max: files.parsed(&path("memory.limit_in_bytes"), v1_limit),
        high: Fact::Known(None),
        usage: usage_of(files, &group.directory),
        swap_left: swap_left(files, &group.directory),
        oom_group: Fact::Known(false),
        oom_kill_disabled: files.parsed(&path("memory.oom_control"), |text| {
            match field(text, "oom_kill_disable")? {
                "0" => Some(false),
                "1" => Some(true),
                _ => None,
            }
        }),
    }
}

/// What the memory of the group at `directory` is made of, groups below included.
pub(super) fn usage_of(files: &Files, directory: &str) -> Fact<Usage> {
    usage(
        files,
        &format!("{directory}/memory.usage_in_bytes"),
        &format!("{directory}/memory.stat"),
        &Counters {
            // The `total_` counters include the groups below, as the limit does.
            active_file: "total_active_file",
            inactive_file: "total_inactive_file",
            // v1 counts kernel memory without saying how much of it could be dropped.
            slab_reclaimable: None,
            shmem: "total_shmem",
            anon: "total_rss",
        },
    )
}

/// v1 limits memory and swap together; what that leaves beyond the memory limit is swap.
fn swap_left(files: &Files, directory: &str) -> Fact<Option<Bytes>> {
    let limit = |name: &str| files.parsed(&format!("{directory}/{name}"), v1_limit);
    let number = |name: &str| files.number(&format!("{directory}/{name}")).map(Bytes);
    limit("memory.memsw.limit_in_bytes").and_then(|both| {
        limit("memory.limit_in_bytes").and_then(|memory| match (both, memory) {
            (Some(both), Some(memory)) => {
                number("memory.memsw.usage_in_bytes").and_then(|used_both| {
                    number("memory.usage_in_bytes").map(|used| {
                        let swapped = used_both.saturating_sub(used);
                        Some(both.saturating_sub(memory).saturating_sub(swapped))
                    })
                })
            }
            _ => Fact::Known(None),
        })
    })
}
