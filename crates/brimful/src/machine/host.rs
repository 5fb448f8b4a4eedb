//! Host memory: limits, the brim, and who may kill.

use std::fmt;

use crate::fact::{Fact, Gap};
use crate::machine::cgroup::{CgroupLevel, CgroupVersion, Cgroups, HiddenAncestors, group_name};
use crate::units::Bytes;

/// The memory of the host as this process may use it.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    pub physical: Fact<Bytes>,
    /// What the kernel thinks can be handed out without swapping (`MemAvailable`).
    pub available: Fact<Bytes>,
    pub swap: Fact<Swap>,
    /// A limit that somebody means to set, in place of those of the groups, with nothing running in it yet.
    pub given_limit: Option<Bytes>,
    pub cgroups: Fact<Cgroups>,
    pub overcommit: Fact<Overcommit>,
    pub pressure: Fact<Pressure>,
    /// How early the kernel picks this process when memory runs out: -1000 never, 1000 first.
    pub oom_score_adj: Fact<i32>,
    /// Programs that kill before the kernel does.
    pub killers: Fact<Vec<Killer>>,
}

/// A number of bytes, and who sets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    pub bytes: Bytes,
    pub set_by: LimitSetter,
    pub effect: LimitEffect,
    /// Bytes that can still be touched before this limit acts: what is in use but cannot be reclaimed is spent,
    /// page cache is not.
    pub headroom: Fact<Bytes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitEffect {
    /// The kernel kills a process.
    Kills,
    /// The kernel slows every allocation down and reclaims hard.
    Throttles,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitSetter {
    PhysicalMemory,
    Cgroup {
        version: CgroupVersion,
        path: String,
    },
    /// A control group above the ones that can be seen from here.
    HiddenCgroup,
    /// A figure that the user gave.
    Given,
}

/// The nearest limit that kills.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Brim {
    pub limit: Bytes,
    pub set_by: LimitSetter,
    pub headroom: Fact<Bytes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swap {
    pub total: Bytes,
    pub free: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overcommit {
    pub mode: OvercommitMode,
    /// The most that may be promised in all, where the kernel keeps count (mode `Never`).
    pub commit_limit: Option<Bytes>,
    pub committed: Option<Bytes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OvercommitMode {
    /// Obvious excess is refused (the kernel's default, mode 0).
    Heuristic,
    /// Everything is promised (mode 1).
    Always,
    /// No more is promised than there is (mode 2).
    Never,
}

/// Share of time, in percent, in which tasks waited for memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pressure {
    /// At least one task waited, over the last 10 and 60 seconds.
    pub some_avg10: f64,
    pub some_avg60: f64,
    /// All tasks waited.
    pub full_avg10: f64,
    pub full_avg60: f64,
}

/// A program in user space that kills when memory is short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Killer {
    pub kind: KillerKind,
    pub pid: u32,
    /// Its own arguments, as far as they could be read.
    pub arguments: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KillerKind {
    SystemdOomd,
    Earlyoom,
    Nohang,
    Oomd,
    Bustd,
}

impl Host {
    /// Every limit on this process's host memory, nearest control group first, physical memory last.
    pub fn limits(&self) -> Vec<Limit> {
        let mut limits = Vec::new();
        if let Some(bytes) = self.given_limit {
            limits.push(Limit {
                bytes,
                set_by: LimitSetter::Given,
                effect: LimitEffect::Kills,
                headroom: Fact::Known(bytes),
            });
        } else if let Fact::Known(cgroups) = &self.cgroups {
            for level in &cgroups.levels {
                limits.extend(level_limits(level));
            }
            limits.extend(hidden_limit(cgroups));
        }
        if let Fact::Known(physical) = &self.physical {
            // Where lxcfs stands in for /proc/meminfo, the "machine" is the group once more: name the group.
            let is_a_group = limits
                .iter()
                .any(|limit| limit.effect == LimitEffect::Kills && limit.bytes == *physical);
            if !is_a_group {
                limits.push(Limit {
                    bytes: *physical,
                    set_by: LimitSetter::PhysicalMemory,
                    effect: LimitEffect::Kills,
                    headroom: self.available.clone(),
                });
            }
        }
        limits
    }

    /// The nearest limit that kills: the one with the fewest bytes left to it.
    ///
    /// A small limit is not always the nearest. A container of 8 GiB on a machine whose other tenants leave 2 GiB
    /// dies by the machine, not by its own limit:
    ///
    /// ```text
    ///   container  ▕███░░░░░░░░░░░░░░░░░▏ 8 GiB, 7 left
    ///   machine    ▕██████████████████░░▏ 64 GiB, 2 left   ◀ the brim
    /// ```
    pub fn brim(&self) -> Fact<Brim> {
        let nearest = self
            .limits()
            .into_iter()
            .filter(|limit| limit.effect == LimitEffect::Kills)
            // Where the use of a group cannot be read, its limit stands in for what is left.
            .min_by_key(|limit| *limit.headroom.known().unwrap_or(&limit.bytes));
        match nearest {
            Some(limit) => Fact::Known(Brim {
                limit: limit.bytes,
                set_by: limit.set_by,
                headroom: limit.headroom,
            }),
            None => Fact::Missing(self.physical.gap().cloned().unwrap_or(Gap::Unavailable {
                reason: "no limit could be read".into(),
            })),
        }
    }

    /// The smallest limit that kills, whether or not it is the nearest: what a full machine cannot exceed.
    pub fn lowest_limit(&self) -> Option<Limit> {
        self.limits()
            .into_iter()
            .filter(|limit| limit.effect == LimitEffect::Kills)
            .min_by_key(|limit| limit.bytes)
    }

    /// The control group that sets the brim, if a visible one does.
    pub fn brim_group(&self) -> Option<&CgroupLevel> {
        let brim = self.brim();
        let LimitSetter::Cgroup { path, .. } = &brim.known()?.set_by else {
            return None;
        };
        self.cgroups
            .known()?
            .levels
            .iter()
            .find(|level| level.path == *path)
    }

    /// The group whose every process the kernel kills when the brim is reached, if there is one.
    ///
    /// It looks from the victim up to the group that ran out, and takes the highest one with `memory.oom.group`
    /// (`mem_cgroup_get_oom_group` in mm/memcontrol.c); groups above the one that ran out do not count.
    pub fn killed_together(&self) -> Option<&CgroupLevel> {
        let cgroups = self.cgroups.known()?;
        let ran_out = self.brim_group().map(|level| level.path.as_str());
        let within = match cgroups
            .levels
            .iter()
            .position(|level| Some(level.path.as_str()) == ran_out)
        {
            Some(last) => &cgroups.levels[..=last],
            None => &cgroups.levels[..],
        };
        within
            .iter()
            .rev()
            .find(|level| level.oom_group.known() == Some(&true))
    }

    /// Bytes that can still be touched before the kernel kills, not counting swap.
    pub fn headroom(&self) -> Fact<Bytes> {
        self.brim().and_then(|brim| brim.headroom)
    }

    /// What could be pushed out to swap on top of the headroom, by this process's groups.
    ///
    /// A training run that swaps has in practice stopped, so this is never part of the headroom.
    pub fn swap_headroom(&self) -> Fact<Bytes> {
        let free = match &self.swap {
            Fact::Known(swap) => swap.free,
            Fact::Missing(gap) => return Fact::Missing(gap.clone()),
        };
        let levels = self
            .cgroups
            .known()
            .map_or(&[][..], |cgroups| &cgroups.levels);
        Fact::Known(
            levels
                .iter()
                .filter_map(|level| level.swap_left.known().copied().flatten())
                .fold(free, Bytes::min),
        )
    }
}

fn level_limits(level: &CgroupLevel) -> Vec<Limit> {
    let set_by = LimitSetter::Cgroup {
        version: level.version,
        path: level.path.clone(),
    };
    let limit = |bytes: Bytes, effect| Limit {
        bytes,
        set_by: set_by.clone(),
        effect,
        headroom: level
            .usage
            .as_ref()
            .map(|usage| bytes.saturating_sub(usage.unreclaimable())),
    };
    let throttling = level.high.known().copied().flatten();
    let killing = level.max.known().copied().flatten();
    let mut limits = Vec::new();
    limits.extend(throttling.map(|bytes| limit(bytes, LimitEffect::Throttles)));
    limits.extend(killing.map(|bytes| limit(bytes, LimitEffect::Kills)));
    limits
}

/// Cgroup v1 tells the lowest limit of all ancestors even where the ancestors cannot be seen.
fn hidden_limit(cgroups: &Cgroups) -> Option<Limit> {
    let HiddenAncestors::Limit(bytes) = cgroups.hidden else {
        return None;
    };
    let topmost = cgroups.levels.last()?;
    Some(Limit {
        bytes,
        set_by: LimitSetter::HiddenCgroup,
        effect: LimitEffect::Kills,
        // At most this: neighbors in the hidden group may use some of it.
        headroom: topmost
            .usage
            .as_ref()
            .map(|usage| bytes.saturating_sub(usage.unreclaimable())),
    })
}

impl fmt::Display for LimitSetter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LimitSetter::PhysicalMemory => f.write_str("physical memory"),
            LimitSetter::Cgroup { version, path } => f.write_str(&group_name(*version, path)),
            LimitSetter::HiddenCgroup => f.write_str("a parent cgroup that is not visible"),
            LimitSetter::Given => f.write_str("the given limit, with no usage assumed"),
        }
    }
}

impl LimitSetter {
    /// The control group that sets the limit, if a visible one does.
    pub fn cgroup_path(&self) -> Option<&str> {
        match self {
            LimitSetter::Cgroup { path, .. } => Some(path),
            _ => None,
        }
    }

    /// The kind of setter as one word for programs.
    pub fn kind(&self) -> &'static str {
        match self {
            LimitSetter::PhysicalMemory => "physical_memory",
            LimitSetter::Cgroup {
                version: CgroupVersion::V1,
                ..
            } => "cgroup_v1",
            LimitSetter::Cgroup {
                version: CgroupVersion::V2,
                ..
            } => "cgroup_v2",
            LimitSetter::HiddenCgroup => "hidden_cgroup",
            LimitSetter::Given => "given",
        }
    }
}

impl KillerKind {
    /// Every killer that is looked for, by the name of its process.
    ///
    /// The kernel keeps 15 bytes of a process's name.
    pub const ALL: [(&'static str, KillerKind); 5] = [
        ("systemd-oomd", KillerKind::SystemdOomd),
        ("earlyoom", KillerKind::Earlyoom),
        ("nohang", KillerKind::Nohang),
        ("oomd", KillerKind::Oomd),
        ("bustd", KillerKind::Bustd),
    ];

    pub fn name(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(_, kind)| *kind == self)
            .map_or("unknown", |(name, _)| name)
    }

    /// When it acts, unless told otherwise by its arguments or settings.
    pub fn acts_when(self) -> &'static str {
        match self {
            KillerKind::SystemdOomd => {
                "memory pressure stays above 60 % for 30 s in a monitored unit, or swap is 90 % full"
            }
            KillerKind::Earlyoom => {
                "less than 10 % of memory and less than 10 % of swap are available"
            }
            KillerKind::Nohang => {
                "available memory or memory pressure crosses its configured thresholds"
            }
            KillerKind::Oomd => "a rule of its configuration matches",
            KillerKind::Bustd => "memory pressure crosses its threshold",
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::machine::cgroup::Usage;

    fn missing<T>() -> Fact<T> {
        Fact::unavailable("not part of this test")
    }

    /// A group with `max` and `used` bytes in GiB, `cache` of them page cache.
    fn group(path: &str, max: Option<u64>, used: u64, cache: u64) -> CgroupLevel {
        CgroupLevel {
            version: CgroupVersion::V2,
            path: path.into(),
            max: Fact::Known(max.map(Bytes::from_gib)),
            high: Fact::Known(None),
            usage: Fact::Known(Usage {
                current: Bytes::from_gib(used),
                file_cache: Bytes::from_gib(cache),
                shmem: Fact::Known(Bytes::ZERO),
                anon: missing(),
                slab_reclaimable: Bytes::ZERO,
            }),
            swap_left: missing(),
            oom_group: missing(),
            oom_kill_disabled: missing(),
        }
    }

    fn host(physical: u64, available: u64, levels: Vec<CgroupLevel>) -> Host {
        Host {
            physical: Fact::Known(Bytes::from_gib(physical)),
            available: Fact::Known(Bytes::from_gib(available)),
            swap: missing(),
            given_limit: None,
            cgroups: Fact::Known(Cgroups {
                levels,
                hidden: HiddenAncestors::None,
            }),
            overcommit: missing(),
            pressure: missing(),
            oom_score_adj: missing(),
            killers: missing(),
        }
    }

    fn check(host: &Host, limit_gib: u64, headroom_gib: u64, set_by: &str) {
        let brim = host.brim();
        let brim = brim.known().unwrap();
        assert_eq!(brim.limit, Bytes::from_gib(limit_gib));
        assert_eq!(brim.headroom, Fact::Known(Bytes::from_gib(headroom_gib)));
        assert_eq!(brim.set_by.to_string(), set_by);
    }

    #[test]
    fn without_groups_the_machine_is_the_brim() {
        check(&host(64, 60, vec![]), 64, 60, "physical memory");
    }

    #[test]
    fn the_lowest_ancestor_wins_over_the_own_group() {
        let levels = vec![group("/a/b", Some(16), 2, 0), group("/a", Some(8), 3, 0)];
        check(&host(64, 60, levels), 8, 5, "cgroup /a");
    }

    #[test]
    fn a_full_machine_kills_before_a_roomy_container() {
        check(
            &host(64, 2, vec![group("/a", Some(8), 1, 0)]),
            64,
            2,
            "physical memory",
        );
    }

    #[test]
    fn page_cache_does_not_fill_the_brim() {
        check(
            &host(64, 60, vec![group("/a", Some(8), 8, 6)]),
            8,
            6,
            "cgroup /a",
        );
    }

    #[test]
    fn a_hidden_ancestor_of_v1_is_a_limit() {
        let mut host = host(64, 60, vec![group("/", None, 1, 0)]);
        host.cgroups = host.cgroups.map(|mut groups| {
            groups.hidden = HiddenAncestors::Limit(Bytes::from_gib(4));
            groups
        });
        check(&host, 4, 3, "a parent cgroup that is not visible");
    }

    #[test]
    fn unreadable_use_leaves_the_headroom_unknown_not_full() {
        let mut level = group("/a", Some(8), 0, 0);
        level.usage = missing();
        let brim = host(64, 60, vec![level]).brim();
        let brim = brim.known().unwrap();
        assert_eq!(brim.limit, Bytes::from_gib(8));
        assert!(brim.headroom.known().is_none());
    }

    #[test]
    fn nothing_readable_is_a_missing_brim() {
        let mut host = host(64, 60, vec![]);
        host.physical = missing();
        assert!(host.brim().known().is_none());
    }

    #[test]
    fn a_group_kill_above_the_group_that_runs_out_does_not_count() {
        let together = |limit_gib: u64| {
            let mut parent = group("/a", Some(32), 1, 0);
            parent.oom_group = Fact::Known(true);
            let host = host(64, 60, vec![group("/a/b", Some(limit_gib), 1, 0), parent]);
            host.killed_together().map(|level| level.path.clone())
        };
        assert_eq!(together(8), None);
        assert_eq!(together(48).as_deref(), Some("/a"));
    }

    #[test]
    fn throttling_limits_never_become_the_brim() {
        let mut level = group("/a", Some(8), 1, 0);
        level.high = Fact::Known(Some(Bytes::from_gib(2)));
        check(&host(64, 60, vec![level]), 8, 7, "cgroup /a");
    }
}
