//! A well-known kind of machine, and the machine that it describes.

use crate::cards::{self, Card};
use crate::fact::{Fact, Gap};
use crate::machine::{
    CgroupLevel, CgroupVersion, Cgroups, Cpus, Gpus, HiddenAncestors, Host, Layer, Machine,
    Platform, PlatformName, ProcessLimits, SharedMemory, Subject, SubjectKind, Swap,
};
use crate::units::Bytes;

/// A well-known kind of machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profile {
    pub id: &'static str,
    pub title: &'static str,
    pub platform: PlatformName,
    pub memory: Option<Bytes>,
    /// In use before the user's own program starts.
    pub used_at_start: Option<Bytes>,
    pub swap: Option<Bytes>,
    pub shm: Option<Bytes>,
    pub cpus: Option<u32>,
    /// Ids of the catalogue of cards, one per GPU; `None` where the machine may have any.
    pub gpus: Option<&'static [&'static str]>,
    /// What is known of the cgroup of the user's program.
    pub group: Option<GroupFact>,
    pub sources: &'static [&'static str],
}

/// The one thing that is known of a cgroup whose limits are set per container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupFact {
    /// A kill takes every process of the container.
    KilledTogether,
    /// The program runs in a group that cannot be seen from inside.
    OutOfSight,
}

impl Profile {
    /// Where the figures come from, those of its cards included.
    fn all_sources(&self) -> Vec<String> {
        let mut ids = self.gpus.unwrap_or_default().to_vec();
        ids.dedup();
        let of_cards = ids
            .into_iter()
            .filter_map(|id| Some(card_source(cards::find(id).ok()?)));
        self.sources
            .iter()
            .map(|source| (*source).into())
            .chain(of_cards)
            .collect()
    }

    /// The machine as far as it was recorded.
    pub fn machine(&self) -> Machine {
        let gap = || Gap::NotRecorded {
            by: format!("the profile {}", self.id),
        };
        Machine {
            subject: Subject {
                kind: SubjectKind::Profile {
                    id: self.id.into(),
                    title: self.title.into(),
                },
                sources: self.all_sources(),
                replaced: Vec::new(),
            },
            host: Host {
                physical: known(self.memory, gap),
                available: known(
                    self.memory
                        .zip(self.used_at_start)
                        .map(|(memory, used)| memory.saturating_sub(used)),
                    gap,
                ),
                given_limit: None,
                swap: known(self.swap.map(|total| Swap { total, free: total }), gap),
                cgroups: known(self.group.map(container_group), gap),
                overcommit: Fact::Missing(gap()),
                pressure: Fact::Missing(gap()),
                oom_score_adj: Fact::Missing(gap()),
                killers: Fact::Missing(gap()),
            },
            shm: SharedMemory {
                path: "/dev/shm".into(),
                total: known(self.shm, gap),
                free: Fact::Missing(gap()),
                counts_against_brim: Fact::Known(true),
            },
            process_limits: ProcessLimits {
                address_space: Fact::Missing(gap()),
                data: Fact::Missing(gap()),
                locked_memory: Fact::Missing(gap()),
                open_files: Fact::Missing(gap()),
                max_map_count: Fact::Missing(gap()),
            },
            cpus: Cpus {
                online: known(self.cpus, gap),
                affinity: Fact::Missing(gap()),
                cpuset: Fact::Missing(gap()),
                quota: Fact::Missing(gap()),
            },
            gpus: Gpus {
                devices: self
                    .gpus
                    .unwrap_or_default()
                    .iter()
                    .filter_map(|id| cards::find(id).ok())
                    .zip(0..)
                    .map(|(card, index)| card.as_gpu(Fact::Known(Some(index))))
                    .collect(),
                complete: known(self.gpus.map(|_| ()), gap),
                driver_version: Fact::Missing(gap()),
                driver_cuda: Fact::Missing(gap()),
                visible_devices_variable: None,
                visible_devices_end_at: None,
            },
            platform: Platform {
                layers: match self.platform {
                    PlatformName::Plain => Vec::new(),
                    name => vec![Layer {
                        name,
                        evidence: format!("the profile {}", self.id),
                    }],
                },
                system: Fact::Missing(gap()),
                slurm: None,
            },
            isolation: Fact::Missing(gap()),
            python: Fact::Missing(gap()),
            allocator_variables: Vec::new(),
        }
    }
}

fn known<T>(value: Option<T>, gap: impl Fn() -> Gap) -> Fact<T> {
    value.map_or_else(|| Fact::Missing(gap()), Fact::Known)
}

pub(super) fn card_source(card: &Card) -> String {
    format!(
        "{}: memory reported by the driver: {} ({}); memory visible to torch: {} ({})",
        card.name,
        card.total.how.name(),
        card.total.source,
        card.torch_visible.how.name(),
        card.torch_visible.source,
    )
}

/// A container's own group, of which only this is known.
fn container_group(fact: GroupFact) -> Cgroups {
    let not_recorded = "set per container";
    if fact == GroupFact::OutOfSight {
        return Cgroups {
            levels: Vec::new(),
            hidden: HiddenAncestors::OwnGroup,
        };
    }
    Cgroups {
        levels: vec![CgroupLevel {
            version: CgroupVersion::V2,
            path: "/".into(),
            max: Fact::unavailable(not_recorded),
            high: Fact::unavailable(not_recorded),
            usage: Fact::unavailable(not_recorded),
            swap_left: Fact::unavailable(not_recorded),
            oom_group: Fact::Known(true),
            oom_kill_disabled: Fact::Known(false),
        }],
        hidden: HiddenAncestors::None,
    }
}
