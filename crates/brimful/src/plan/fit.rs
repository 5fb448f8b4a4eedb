//! Whether settings stay below every limit.

use crate::plan::{PlanBrim, Room};
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
pub(crate) struct Taken {
    pub(crate) host: HostSum,
    /// Nothing for a job on processors.
    pub(crate) gpu: Option<GpuSum>,
}

/// One of the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Brim {
    Host,
    Shm,
    /// By its place in the room.
    Gpu(usize),
}

/// A limit that settings do not stay below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Miss {
    pub(crate) brim: Brim,
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

impl Brim {
    /// As in `PlanBrim`: `gpu` where there is one card, else with its number.
    pub(crate) fn name(self, room: &Room) -> String {
        match self {
            Brim::Host => "host".to_owned(),
            Brim::Shm => "shm".to_owned(),
            Brim::Gpu(_) if room.gpus.len() == 1 => "gpu".to_owned(),
            Brim::Gpu(index) => format!("gpu{index}"),
        }
    }

    /// In a sentence.
    pub(crate) fn words(self, room: &Room) -> String {
        match self {
            Brim::Host => "host memory".to_owned(),
            Brim::Shm => "/dev/shm".to_owned(),
            Brim::Gpu(index) => match room.gpus.get(index) {
                Some((name, _)) if !name.is_empty() && room.gpus.len() == 1 => name.clone(),
                Some((name, _)) if !name.is_empty() => format!("card {index} ({name})"),
                _ => "the card".to_owned(),
            },
        }
    }
}

/// The limits that are missed; none where a limit is not known.
pub(crate) fn misses(room: &Room, taken: &Taken) -> impl Iterator<Item = Miss> {
    let host = room.host.map(|limit| (Brim::Host, limit, taken.host.safe));
    let shm = room
        .shm
        .map(|limit| (Brim::Shm, limit, taken.host.shm_safe));
    let gpu = taken.gpu.filter(|gpu| !gpu.fits);
    let cards = room
        .gpus
        .iter()
        .enumerate()
        .filter_map(move |(index, (_, limit))| Some((Brim::Gpu(index), *limit, gpu?.safe)));
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

pub(crate) fn fits(room: &Room, taken: &Taken) -> bool {
    misses(room, taken).next().is_none()
}

/// The limit that is missed most, by its share.
pub(crate) fn worst_miss(room: &Room, taken: &Taken) -> Option<Miss> {
    misses(room, taken).max_by(|a, b| a.share().total_cmp(&b.share()))
}

/// The smallest card.
pub(crate) fn card_limit(room: &Room) -> Option<u64> {
    room.gpus.iter().map(|(_, limit)| limit.get()).min()
}

/// Every known limit and what is taken of it. Where a card holds the run by giving cached memory back, it is full.
pub(crate) fn brims(room: &Room, taken: &Taken) -> Vec<PlanBrim> {
    let brim = |brim: Brim, limit: Bytes, likely: u64, safe: u64| PlanBrim {
        name: brim.name(room),
        limit,
        likely: Bytes(likely),
        safe: Bytes(safe),
    };
    let mut brims = Vec::new();
    if let Some(limit) = room.host {
        brims.push(brim(Brim::Host, limit, taken.host.likely, taken.host.safe));
    }
    if let Some(limit) = room.shm {
        let host = taken.host;
        brims.push(brim(Brim::Shm, limit, host.shm_likely, host.shm_safe));
    }
    if let Some(gpu) = taken.gpu {
        for (index, (_, limit)) in room.gpus.iter().enumerate() {
            let most = if gpu.fits { limit.get() } else { u64::MAX };
            let (likely, safe) = (gpu.likely.min(most), gpu.safe.min(most));
            brims.push(brim(Brim::Gpu(index), *limit, likely, safe));
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
