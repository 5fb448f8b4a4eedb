//! Recorded profiles of well-known machines, so that one can plan for a machine before having it.
//!
//! A profile holds what was published about a kind of machine and no more: what nobody reported is missing, not
//! guessed. Each names its sources.

mod profile;
mod table;

pub use profile::{GroupFact, Profile};

use crate::cards::Card;
use crate::fact::Fact;
use crate::machine::{DeviceIdentity, DeviceOrder, Machine, torch_devices};
use crate::suggest::{closest, did_you_mean};
use crate::units::Bytes;
use profile::card_source;

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
            .push(format!("{} instead of its own GPUs", names.join(", ")));
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
            .push(format!("a memory limit of {limit}"));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cards;

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
        let cards = cards::find_all("t4 + rtx 4090").unwrap();
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
