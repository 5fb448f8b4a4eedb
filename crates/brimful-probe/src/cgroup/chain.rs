//! The cgroups of this process, from its own up to the topmost one that can be seen.

use brimful::fact::{Fact, Gap};
use brimful::machine::CgroupVersion;

use crate::cgroup::parse::{self, Membership, Mount};
use crate::files::Files;

/// No kernel nests deeper in practice; a hostile path must not keep us busy.
const MAX_DEPTH: usize = 64;

/// The mount table and the group memberships of this process, read once.
#[derive(Debug)]
pub(crate) struct Mounts {
    pub(crate) mounts: Fact<Vec<Mount>>,
    memberships: Fact<Vec<Membership>>,
}

/// One group on the way up: its path as the kernel names it, and where its files lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CgroupDirectory {
    pub(crate) path: String,
    pub(crate) directory: String,
}

/// All groups of this process in one hierarchy, its own first, up to the topmost one that can be seen.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    pub(crate) version: CgroupVersion,
    pub(crate) groups: Vec<CgroupDirectory>,
    /// The mount shows only a part of the hierarchy, so there are groups above.
    pub(crate) mounted_below_root: bool,
    /// The kernel names a group that lies outside what is mounted here; `groups` is empty then.
    pub(crate) out_of_sight: bool,
}

impl Mounts {
    pub(crate) fn read(files: &Files) -> Mounts {
        Mounts {
            mounts: files
                .text("/proc/self/mountinfo")
                .map(|text| parse::mounts(&text)),
            memberships: files
                .text("/proc/self/cgroup")
                .map(|text| parse::memberships(&text)),
        }
    }

    /// The groups that `controller` sees this process in: v1 where the controller has a hierarchy of its own, else v2.
    pub(crate) fn chain(&self, controller: &str) -> Fact<Chain> {
        let mounts = match &self.mounts {
            Fact::Known(mounts) => mounts,
            Fact::Missing(gap) => return Fact::Missing(gap.clone()),
        };
        let memberships = match &self.memberships {
            Fact::Known(memberships) => memberships,
            Fact::Missing(gap) => return Fact::Missing(gap.clone()),
        };
        let v1 = memberships
            .iter()
            .find(|membership| membership.controllers.iter().any(|name| name == controller));
        let (membership, version) = match v1 {
            Some(membership) => (Some(membership), CgroupVersion::V1),
            None => (memberships.iter().find(|m| m.is_v2), CgroupVersion::V2),
        };
        let Some(membership) = membership else {
            return Fact::Missing(Gap::Unavailable {
                reason: format!("this process is in no cgroup with the {controller} controller"),
            });
        };
        let holds = |mount: &&Mount| match version {
            CgroupVersion::V1 => {
                mount.kind == "cgroup"
                    && mount.options.split(',').any(|option| option == controller)
            }
            CgroupVersion::V2 => mount.kind == "cgroup2",
        };
        // A later mount covers an earlier one; one that shows this process's group goes before one that does not.
        let shows_us =
            |mount: &&Mount| parse::strip_path_prefix(&membership.path, &mount.root).is_some();
        let mount = mounts
            .iter()
            .rev()
            .filter(holds)
            .find(shows_us)
            .or_else(|| mounts.iter().rev().find(holds));
        match (mount, version) {
            (Some(mount), _) => Fact::Known(chain(&membership.path, mount, version)),
            // The kernel counts this process in a hierarchy that is not mounted here: its limits are there, unseen.
            (None, CgroupVersion::V1) => Fact::Known(Chain::out_of_sight(version)),
            (None, CgroupVersion::V2) => Fact::Missing(Gap::Unavailable {
                reason: format!("no cgroup hierarchy with the {controller} controller is mounted"),
            }),
        }
    }
}

impl Chain {
    fn out_of_sight(version: CgroupVersion) -> Chain {
        Chain {
            version,
            groups: Vec::new(),
            mounted_below_root: true,
            out_of_sight: true,
        }
    }
}

/// Every directory from the group at `path` up to the mount's own directory.
fn chain(path: &str, mount: &Mount, version: CgroupVersion) -> Chain {
    // A container often sees its own group bind-mounted: then the mount's root is a group's path, and the process's
    // own path starts with it. Both are relative to the same namespace.
    // Colab moves the notebook out of its container's group, to `/../../jupyter-children`. What is mounted there
    // belongs to somebody else, and its limits are not ours.
    let Some(below_mount) = parse::strip_path_prefix(path, &mount.root) else {
        return Chain::out_of_sight(version);
    };
    let shown_root = if mount.root == "/" { "" } else { &mount.root };
    let parts: Vec<&str> = below_mount
        .split('/')
        .filter(|part| !part.is_empty())
        .take(MAX_DEPTH)
        .collect();
    let groups = (0..=parts.len())
        .rev()
        .map(|depth| {
            let below = parts[..depth].join("/");
            let separator = if below.is_empty() { "" } else { "/" };
            let path = format!("{shown_root}{separator}{below}");
            CgroupDirectory {
                path: if path.is_empty() { "/".into() } else { path },
                directory: format!(
                    "{}{separator}{below}",
                    mount.mount_point.trim_end_matches('/')
                ),
            }
        })
        .collect();
    Chain {
        version,
        groups,
        mounted_below_root: mount.root != "/",
        out_of_sight: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, mount_root: &str, expected: &[(&str, &str)]) {
        let mount = Mount {
            root: mount_root.into(),
            mount_point: "/sys/fs/cgroup".into(),
            kind: "cgroup2".into(),
            options: String::new(),
        };
        let chain = chain(path, &mount, CgroupVersion::V2);
        let found: Vec<(&str, &str)> = chain
            .groups
            .iter()
            .map(|group| (group.path.as_str(), group.directory.as_str()))
            .collect();
        assert_eq!(found, expected, "{path} mounted from {mount_root}");
        assert_eq!(chain.out_of_sight, expected.is_empty());
    }

    #[test]
    fn every_ancestor_up_to_the_mount() {
        check(
            "/a/b",
            "/",
            &[
                ("/a/b", "/sys/fs/cgroup/a/b"),
                ("/a", "/sys/fs/cgroup/a"),
                ("/", "/sys/fs/cgroup"),
            ],
        );
    }

    #[test]
    fn a_bind_mounted_group_keeps_its_own_name() {
        check(
            "/docker/ab/x",
            "/docker/ab",
            &[
                ("/docker/ab/x", "/sys/fs/cgroup/x"),
                ("/docker/ab", "/sys/fs/cgroup"),
            ],
        );
    }

    #[test]
    fn a_group_outside_the_mount_is_not_read_as_ours() {
        check("/../../jupyter-children", "/", &[]);
        check("/system.slice/x", "/docker/ab", &[]);
        check("/", "/docker/ab", &[]);
        check("/", "/../..", &[]);
    }

    fn chain_of(cgroup: &str, mountinfo: &str) -> Fact<Chain> {
        let mounts = Mounts {
            mounts: Fact::Known(parse::mounts(mountinfo)),
            memberships: Fact::Known(parse::memberships(cgroup)),
        };
        mounts.chain("memory")
    }

    const UNIFIED: &str = "30 23 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    const MEMORY: &str = "31 23 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";

    #[test]
    fn a_hierarchy_that_is_not_mounted_here_is_not_replaced_by_another() {
        let chain = chain_of("4:memory:/job\n0::/\n", UNIFIED);
        assert!(chain.known().unwrap().out_of_sight);
        let chain = chain_of("4:memory:/job\n0::/\n", &format!("{UNIFIED}{MEMORY}"));
        assert_eq!(
            chain.known().unwrap().groups[0].directory,
            "/sys/fs/cgroup/memory/job"
        );
        assert!(chain_of("0::/\n", MEMORY).gap().is_some());
    }

    #[test]
    fn of_several_mounts_the_one_that_shows_us_wins() {
        let other = "32 23 0:28 /docker/ab /mnt/other rw - cgroup2 cgroup2 rw\n";
        let chain = chain_of("0::/job\n", &format!("{UNIFIED}{other}"));
        assert_eq!(
            chain.known().unwrap().groups[0].directory,
            "/sys/fs/cgroup/unified/job"
        );
    }

    #[test]
    fn a_hostile_path_is_cut_off() {
        let deep = "/x".repeat(10_000);
        let mount = Mount {
            root: "/".into(),
            mount_point: "/m".into(),
            kind: "cgroup2".into(),
            options: String::new(),
        };
        assert_eq!(
            chain(&deep, &mount, CgroupVersion::V2).groups.len(),
            MAX_DEPTH + 1
        );
    }
}
