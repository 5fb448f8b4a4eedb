//! Whether settings stay below every limit.

use crate::cards;
use crate::plan::{PlanBrim, PlanLimits};
use crate::units::Bytes;

/// Bytes of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostSum {
    pub(crate) likely: u64,
    pub(crate) safe: u64,
    pub(crate) shm_likely: u64,
    pub(crate) shm_safe: u64,
}

/// Bytes of each card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GpuSum {
    pub(crate) likely: u64,
    pub(crate) safe: u64,
    /// A replay on the card went through with the safe value: it may give cached memory back.
    pub(crate) fits: bool,
}

/// What settings take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Demand {
    pub(crate) host: HostSum,
    /// Nothing for a job on processors.
    pub(crate) gpu: Option<GpuSum>,
}

/// One of the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LimitedMemory {
    Host,
    Shm,
    /// By its place in the room.
    Gpu(usize),
}

/// A limit that settings do not stay below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Miss {
    pub(crate) brim: LimitedMemory,
    pub(crate) limit: u64,
    pub(crate) safe: u64,
}

impl Miss {
    pub(crate) fn missing(&self) -> u64 {
        self.safe.saturating_sub(self.limit)
    }

    /// As a share of the limit.
    pub(crate) fn share(&self) -> f64 {
        self.missing() as f64 / self.limit.max(1) as f64
    }
}

impl LimitedMemory {
    /// As in `PlanBrim`: `gpu` where there is one card, else with its number.
    pub(crate) fn name(self, room: &PlanLimits) -> String {
        match self {
            LimitedMemory::Host => "host".to_owned(),
            LimitedMemory::Shm => "shm".to_owned(),
            LimitedMemory::Gpu(_) if room.gpus.len() == 1 => "gpu".to_owned(),
            LimitedMemory::Gpu(index) => format!("gpu{index}"),
        }
    }

    /// In a sentence.
    pub(crate) fn words(self, room: &PlanLimits) -> String {
        match self {
            LimitedMemory::Host => "host memory".to_owned(),
            LimitedMemory::Shm => "/dev/shm".to_owned(),
            LimitedMemory::Gpu(index) => match room.gpus.get(index) {
                Some((name, _)) if !name.is_empty() && room.gpus.len() == 1 => name.clone(),
                Some((name, _)) if !name.is_empty() => format!("GPU {index} ({name})"),
                _ => "GPU memory".to_owned(),
            },
        }
    }
}

/// Bytes of a card, likely and safe. One that holds the run by giving cached memory back is full.
fn on_card(gpu: GpuSum, limit: Bytes) -> (u64, u64) {
    let most = if gpu.fits { limit.get() } else { u64::MAX };
    (gpu.likely.min(most), gpu.safe.min(most))
}

/// Bytes of the host, likely and safe, with those of cards that have no memory of their own.
fn on_host(room: &PlanLimits, taken: &Demand) -> (u64, u64) {
    let shared = room
        .gpus
        .iter()
        .filter(|(name, _)| cards::shares_host_memory(name))
        .filter_map(|(_, limit)| Some(on_card(taken.gpu?, *limit)));
    let own = (taken.host.likely, taken.host.safe);
    shared.fold(own, |(likely, safe), card| {
        (likely.saturating_add(card.0), safe.saturating_add(card.1))
    })
}

/// The limits that are missed; none where a limit is not known.
pub(crate) fn misses(room: &PlanLimits, taken: &Demand) -> impl Iterator<Item = Miss> {
    let (_, host) = on_host(room, taken);
    let host = room.host.map(|limit| (LimitedMemory::Host, limit, host));
    let shm = room
        .shm
        .map(|limit| (LimitedMemory::Shm, limit, taken.host.shm_safe));
    let gpu = taken.gpu.filter(|gpu| !gpu.fits);
    let cards = room
        .gpus
        .iter()
        .enumerate()
        .filter_map(move |(index, (_, limit))| {
            Some((LimitedMemory::Gpu(index), *limit, gpu?.safe))
        });
    host.into_iter()
        .chain(shm)
        .chain(cards)
        .map(|(brim, limit, safe)| Miss {
            brim,
            limit: limit.get(),
            safe,
        })
        .filter(|miss| miss.safe > miss.limit)
}

pub(crate) fn fits(room: &PlanLimits, taken: &Demand) -> bool {
    misses(room, taken).next().is_none()
}

/// The limit that is missed most, by its share.
pub(crate) fn worst_miss(room: &PlanLimits, taken: &Demand) -> Option<Miss> {
    misses(room, taken).max_by(|a, b| a.share().total_cmp(&b.share()))
}

/// The smallest card.
pub(crate) fn card_limit(room: &PlanLimits) -> Option<u64> {
    room.gpus.iter().map(|(_, limit)| limit.get()).min()
}

/// Every known limit and what is taken of it.
pub(crate) fn brims(room: &PlanLimits, taken: &Demand) -> Vec<PlanBrim> {
    let brim = |brim: LimitedMemory, limit: Bytes, likely: u64, safe: u64| PlanBrim {
        name: brim.name(room),
        limit,
        likely: Bytes(likely),
        safe: Bytes(safe),
    };
    let mut brims = Vec::new();
    if let Some(limit) = room.host {
        let (likely, safe) = on_host(room, taken);
        brims.push(brim(LimitedMemory::Host, limit, likely, safe));
    }
    if let Some(limit) = room.shm {
        let host = taken.host;
        brims.push(brim(
            LimitedMemory::Shm,
            limit,
            host.shm_likely,
            host.shm_safe,
        ));
    }
    if let Some(gpu) = taken.gpu {
        for (index, (_, limit)) in room.gpus.iter().enumerate() {
            let (likely, safe) = on_card(gpu, *limit);
            brims.push(brim(LimitedMemory::Gpu(index), *limit, likely, safe));
        }
    }
    brims
}

/// A byte count times a factor.
pub(crate) fn times(bytes: u64, factor: f64) -> u64 {
    if (factor - 1.0).abs() < f64::EPSILON {
        bytes
    } else {
        whole(bytes as f64 * factor)
    }
}

/// The whole part of a figure that is not negative.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "saturates, and what is below zero becomes zero"
)]
pub(crate) fn whole(figure: f64) -> u64 {
    figure as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::testing::{MB, room};

    fn taken() -> Demand {
        Demand {
            host: HostSum {
                likely: 3_000 * MB,
                safe: 4_000 * MB,
                ..HostSum::default()
            },
            gpu: Some(GpuSum {
                likely: 5_000 * MB,
                safe: 6_000 * MB,
                fits: true,
            }),
        }
    }

    #[test]
    fn a_card_with_memory_of_its_own_takes_none_of_the_host() {
        assert!(fits(&room(8_000, 8_000), &taken()));
    }

    #[test]
    fn a_card_that_shares_the_hosts_memory_counts_there_too() {
        let mut room = room(8_000, 8_000);
        room.gpus[0].0 = "NVIDIA GB10".to_owned();
        let missed: Vec<Miss> = misses(&room, &taken()).collect();
        let host = Miss {
            brim: LimitedMemory::Host,
            limit: 8_000 * MB,
            safe: 10_000 * MB,
        };
        assert_eq!(missed, [host]);
        let shown = brims(&room, &taken());
        assert_eq!(
            (shown[0].likely, shown[0].safe),
            (Bytes(8_000 * MB), Bytes(10_000 * MB))
        );
        room.host = Some(Bytes(10_000 * MB));
        assert!(fits(&room, &taken()));
    }
}
