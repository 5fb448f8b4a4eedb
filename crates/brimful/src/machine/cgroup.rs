//! Control groups: who is inside which limit.

use crate::fact::Fact;
use crate::units::Bytes;

/// The memory control groups of this process, its own first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroups {
    pub levels: Vec<CgroupLevel>,
    pub hidden: HiddenAncestors,
}

/// What stands above the topmost group that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HiddenAncestors {
    /// The topmost group read is the root of the hierarchy.
    None,
    /// This process's own group lies outside of what is mounted here, so nothing of it can be read.
    OwnGroup,
    /// There are groups above, and nothing tells their limits (cgroup v2 in a container).
    Unknown,
    /// There are groups above, and the lowest limit among them is this (cgroup v1 tells it).
    Limit(Bytes),
    /// There are groups above, and none of them sets a limit below the topmost visible one (cgroup v1 tells it).
    NoneLower,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupVersion {
    V1,
    V2,
}

/// One group on the way from this process to the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupLevel {
    pub version: CgroupVersion,
    /// The group's path as the kernel names it.
    pub path: String,
    /// The limit that kills; `Known(None)` is "readable, and unlimited".
    pub max: Fact<Option<Bytes>>,
    /// The limit that slows down (v2 only).
    pub high: Fact<Option<Bytes>>,
    pub usage: Fact<Usage>,
    /// Swap this group may still use; `Known(None)` is "as much as there is".
    pub swap_left: Fact<Option<Bytes>>,
    /// A kill takes every process of the group at once (v2).
    pub oom_group: Fact<bool>,
    /// The kernel freezes instead of killing (v1).
    pub oom_kill_disabled: Fact<bool>,
}

/// What a group's memory is made of, descendants included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    pub current: Bytes,
    /// Page cache of files on disk, which the kernel drops before it kills.
    pub file_cache: Bytes,
    pub slab_reclaimable: Bytes,
    /// Pages of tmpfs and shared memory: cache by name, but with nowhere to go.
    pub shmem: Fact<Bytes>,
    pub anon: Fact<Bytes>,
}

impl Usage {
    /// What the kernel takes back before it kills.
    pub fn reclaimable(&self) -> Bytes {
        self.file_cache
            .saturating_add(self.slab_reclaimable)
            .min(self.current)
    }

    /// What is spent for good while its owners live.
    pub fn unreclaimable(&self) -> Bytes {
        self.current.saturating_sub(self.reclaimable())
    }
}

/// How a group is called in text: its path, and whose it is where the path tells.
pub fn group_name(version: CgroupVersion, path: &str) -> String {
    let label = match version {
        CgroupVersion::V1 => "cgroup v1",
        CgroupVersion::V2 => "cgroup",
    };
    match owner_of(path) {
        Some(owner) => format!("{label} {path} ({owner})"),
        None => format!("{label} {path}"),
    }
}

/// Who made a group, told from its path.
///
/// The last part that tells wins: a container inside a Slurm step is the container's.
pub fn owner_of(path: &str) -> Option<String> {
    // The root of the hierarchy has no limit, so a limit on `/` is one of a namespace's own root.
    if path == "/" {
        return Some("this container".into());
    }
    path.split('/').rev().find_map(owner_of_component)
}

fn owner_of_component(part: &str) -> Option<String> {
    let is_id = |text: &str| text.len() >= 12 && text.bytes().all(|b| b.is_ascii_hexdigit());
    let numbered = |prefix: &str| {
        part.strip_prefix(prefix)
            .filter(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
    };
    if let Some(id) = numbered("job_") {
        return Some(format!("Slurm job {id}"));
    }
    if part.starts_with("libpod-") {
        return Some("Podman container".into());
    }
    if part.starts_with("docker-") || part == "docker" {
        return Some("Docker container".into());
    }
    if part.starts_with("cri-containerd-") || part.starts_with("crio-") {
        return Some("Kubernetes container".into());
    }
    if part.starts_with("pod") || part.starts_with("kubepods") {
        let is_pod = part.starts_with("kubepods") || part.trim_start_matches("pod").len() >= 32;
        return is_pod.then(|| "Kubernetes".into());
    }
    if part.starts_with("lxc.payload") || part == "lxc" {
        return Some("LXC container".into());
    }
    for suffix in [".service", ".scope", ".slice"] {
        if part.ends_with(suffix) && !part.starts_with('-') && !is_id(part) {
            return Some(format!("systemd {part}"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, owner: Option<&str>) {
        assert_eq!(owner_of(path).as_deref(), owner, "{path}");
    }

    #[test]
    fn owners_are_told_from_paths() {
        check("/", Some("this container"));
        check("/a/b", None);
        check("/docker/0123456789abcdef", Some("Docker container"));
        check(
            "/system.slice/docker-0123456789abcdef.scope",
            Some("Docker container"),
        );
        check(
            "/kubepods/burstable/pod6be1f1ac-96a9-4f0b-9a3a-3f1b0a3e1c11/0123456789abcdef",
            Some("Kubernetes"),
        );
        check(
            "/kubepods.slice/kubepods-burstable.slice",
            Some("Kubernetes"),
        );
        check(
            "/slurm/uid_1000/job_123/step_0/task_0",
            Some("Slurm job 123"),
        );
        check(
            "/system.slice/slurmstepd.scope/job_7/step_0/user/task_0",
            Some("Slurm job 7"),
        );
        check(
            "/user.slice/user-1000.slice/user@1000.service",
            Some("systemd user@1000.service"),
        );
        check(
            "/user.slice/libpod-0123456789ab.scope",
            Some("Podman container"),
        );
        check("/podium", None);
        check("/lxc.payload.box", Some("LXC container"));
    }

    #[test]
    fn more_cache_than_use_is_not_a_negative_use() {
        // The two counters are read at different moments and may cross.
        let usage = Usage {
            current: Bytes(10),
            file_cache: Bytes(12),
            slab_reclaimable: Bytes(1),
            shmem: Fact::Known(Bytes::ZERO),
            anon: Fact::Known(Bytes::ZERO),
        };
        assert_eq!(usage.reclaimable(), Bytes(10));
        assert_eq!(usage.unreclaimable(), Bytes::ZERO);
    }
}
