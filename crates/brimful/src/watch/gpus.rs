//! Who else was on the cards when the job came, and who came since.

use std::collections::{BTreeMap, VecDeque};

use crate::units::Bytes;
use crate::watch::sample::{GpuSample, Sample};

const MAX_CARDS: usize = 64;
const MAX_OTHERS: usize = 64;
const N_LOOKS: usize = 3;

/// The cards by index.
#[derive(Clone, Debug, Default)]
pub(crate) struct GpuHistory {
    cards: BTreeMap<u32, CardHistory>,
}

/// Other processes of one card, by process: what each held when it was first seen.
#[derive(Clone, Debug, Default)]
struct CardHistory {
    others: BTreeMap<u32, Other>,
    /// Held by nobody that the driver names, when that was first known.
    first_unnamed: Option<u64>,
    /// The same in the last looks: the driver is asked for the card and for its processes one after the other, and the
    /// job may allocate in between.
    last_unnamed: VecDeque<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Other {
    /// It was there before the job.
    was_there: bool,
    first: Option<u64>,
}

/// What others took of a card since the job came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intrusion {
    Entered { pid: u32, holds: Option<u64> },
    Grew { pid: u32, by: u64, holds: u64 },
    Unnamed { by: u64 },
}

impl GpuHistory {
    pub(crate) fn take(&mut self, sample: &Sample) {
        for gpu in &sample.gpus {
            let is_new = !self.cards.contains_key(&gpu.index);
            if is_new && self.cards.len() >= MAX_CARDS {
                continue;
            }
            let card = self.cards.entry(gpu.index).or_default();
            // Who is unknown may be known at the next look, and was there before.
            let listed = || gpu.others.iter().chain(&gpu.unknown);
            // Who left and comes back has come again.
            card.others
                .retain(|pid, _| listed().any(|(other, _)| other == pid));
            for (pid, held) in listed() {
                if card.others.len() < MAX_OTHERS || card.others.contains_key(pid) {
                    let other = card.others.entry(*pid).or_insert(Other {
                        was_there: is_new,
                        first: None,
                    });
                    other.first = other.first.or(held.map(Bytes::get));
                }
            }
            if let Some(unnamed) = unnamed(gpu) {
                card.first_unnamed.get_or_insert(unnamed);
                card.last_unnamed.push_back(unnamed);
                if card.last_unnamed.len() > N_LOOKS {
                    card.last_unnamed.pop_front();
                }
            }
        }
    }

    /// The largest thing that others did on this card since the job came.
    pub(crate) fn intrusion(&self, gpu: &GpuSample, least: u64) -> Option<Intrusion> {
        let card = self.cards.get(&gpu.index)?;
        let by_others = gpu
            .others
            .iter()
            .filter_map(|(pid, held)| {
                let other = card.others.get(pid)?;
                let holds = held.map(Bytes::get);
                if !other.was_there {
                    let size = holds.unwrap_or(least);
                    return (size >= least)
                        .then_some((size, Intrusion::Entered { pid: *pid, holds }));
                }
                let by = holds?.saturating_sub(other.first?);
                (by >= least).then_some((
                    by,
                    Intrusion::Grew {
                        pid: *pid,
                        by,
                        holds: holds?,
                    },
                ))
            })
            .max_by_key(|(size, _)| *size)
            .map(|(_, intrusion)| intrusion);
        by_others.or_else(|| {
            let lasting = *card.last_unnamed.iter().min()?;
            let by = lasting.saturating_sub(card.first_unnamed?);
            (by >= least).then_some(Intrusion::Unnamed { by })
        })
    }

    #[cfg(test)]
    pub(crate) fn n_held(&self) -> usize {
        self.cards.values().map(|card| 1 + card.others.len()).sum()
    }
}

/// What the card holds beside the job and the processes that the driver names: inside a container it names none.
fn unnamed(gpu: &GpuSample) -> Option<u64> {
    let named = gpu.others.iter().try_fold(0_u64, |sum, (_, held)| {
        Some(sum.saturating_add(held.as_ref()?.get()))
    })?;
    let beside = gpu.used.get().saturating_sub(gpu.ours?.get());
    Some(beside.saturating_sub(named))
}
