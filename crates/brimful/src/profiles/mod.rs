//! Recorded profiles of well-known machines, so that one can plan for a machine before having it.
//!
//! A profile holds what was published about a kind of machine and no more: what nobody reported is missing, not
//! guessed. Each names its sources.

mod table;

use crate::cards::{self, Card};
use crate::fact::{Fact, Gap};
use crate::machine::{
    CgroupLevel, CgroupVersion, Cgroups, Cpus, DeviceIdentity, DeviceOrder, Gpus, HiddenAncestors,
    Host, Layer, Machine, Platform, PlatformName, ProcessLimits, SharedMemory, Subject,
    SubjectKind, Swap, torch_devices,
};
use crate::suggest::{closest, did_you_mean};
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
    /// What is known of the control group the user's program runs in.
    pub group: Option<GroupFact>,
    pub sources: &'static [&'static str],
}

/// The one thing that is known of a control group whose limits are set for each container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupFact {
    /// A kill takes every process of the container.
    KilledTogether,
    /// The program runs in a group that cannot be seen from inside.
    OutOfSight,
}

/// No profile of that name is recorded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown machine `{found}`{}", did_you_mean(.close))]
pub struct UnknownProfile {
    pub found: String,
    pub close: Vec<&'static str>,
}

/// Every profile, most used first.
pub fn all() -> &'static [Profile] {
    table::PROFILES
}

/// Finds a profile by its id.
///
/// ```
/// let colab = brimful::profiles::find("colab-t4").unwrap();
/// assert_eq!(colab.machine().gpus.devices[0].label(), "Tesla T4");
/// assert_eq!(brimful::profiles::find("colab").unwrap_err().close[0], "colab-t4");
/// ```
pub fn find(id: &str) -> Result<&'static Profile, UnknownProfile> {
    let wanted = id.trim().to_lowercase().replace(['_', ' '], "-");
    all()
        .iter()
        .find(|profile| profile.id == wanted)
        .ok_or_else(|| UnknownProfile {
            found: id.chars().take(60).collect(),
            close: closest(id, all().iter().map(|profile| profile.id)),
        })
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

fn card_source(card: &Card) -> String {
    format!(
        "{}: driver's total {} ({}); what torch sees {} ({})",
        card.name,
        card.total.how.name(),
        card.total.source,
        card.torch_visible.how.name(),
        card.torch_visible.source,
    )
}

/// A container's own group, of which only this is known.
fn container_group(fact: GroupFact) -> Cgroups {
    let not_recorded = "set for each container";
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

impl Machine {
    /// The same machine with these cards in place of its GPUs.
    pub fn with_cards(mut self, cards: &[&Card]) -> Machine {
        let identities: Vec<DeviceIdentity> = cards.iter().map(|card| card.identity()).collect();
        let seen = torch_devices(&identities, None, DeviceOrder::FastestFirst);
        self.gpus.devices = cards
            .iter()
            .zip(seen.devices)
            .map(|(card, seen)| card.as_gpu(seen.torch_index))
            .collect();
        self.gpus.complete = Fact::Known(());
        self.gpus.visible_devices_variable = None;
        self.gpus.visible_devices_end_at = None;
        let names: Vec<&str> = cards.iter().map(|card| card.name).collect();
        self.subject
            .replaced
            .push(format!("{} in place of the GPUs", names.join(", ")));
        for card in cards {
            let source = card_source(card);
            if !self.subject.sources.contains(&source) {
                self.subject.sources.push(source);
            }
        }
        self
    }

    /// The same machine with this limit in place of those of its control groups, and nothing running in it yet.
    ///
    /// Physical memory stays what it is: a limit above it is not reached.
    pub fn with_memory(mut self, limit: Bytes) -> Machine {
        self.host.given_limit = Some(limit);
        self.subject
            .replaced
            .push(format!("{limit} in place of the memory limit"));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_names_known_cards_and_a_source() {
        for profile in all() {
            assert!(!profile.sources.is_empty(), "{} has no source", profile.id);
            for id in profile.gpus.unwrap_or_default() {
                assert!(cards::find(id).is_ok(), "{}: no card {id}", profile.id);
            }
            assert_eq!(find(profile.id).unwrap().id, profile.id);
            let machine = profile.machine();
            assert_eq!(
                machine.gpus.devices.len(),
                profile.gpus.unwrap_or_default().len()
            );
        }
    }

    #[test]
    fn different_cards_have_no_known_number() {
        let cards = cards::find_all("t4, rtx 4090").unwrap();
        let machine = find("k8s-default").unwrap().machine().with_cards(&cards);
        assert!(machine.gpus.devices[0].torch_index.gap().is_some());
        let cards = cards::find_all("2x t4").unwrap();
        let machine = find("k8s-default").unwrap().machine().with_cards(&cards);
        assert_eq!(machine.gpus.devices[1].torch_index, Fact::Known(Some(1)));
    }

    #[test]
    fn a_given_limit_above_the_machine_is_not_reached() {
        let machine = find("colab-t4")
            .unwrap()
            .machine()
            .with_memory(Bytes::from_gib(50));
        assert_eq!(
            machine.host.brim().known().unwrap().limit.to_string(),
            "12.67 GiB"
        );
    }

    #[test]
    fn a_given_limit_is_the_brim() {
        let machine = find("k8s-default").unwrap().machine();
        assert!(machine.host.brim().known().is_none());
        let machine = machine.with_memory(Bytes::from_gib(16));
        assert_eq!(machine.host.headroom(), Fact::Known(Bytes::from_gib(16)));
    }
}
