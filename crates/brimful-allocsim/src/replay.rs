//! Replay: what would have happened on that card, with those settings, in that release.

use std::collections::HashMap;

use crate::allocator::{Allocator, Handle, OutOfMemory, SegmentView, Statistics};
use crate::device::{Device, ModelledGpu};
use crate::settings::AllocatorSettings;
use crate::trace::{Event, Trace};
use crate::version::TorchVersion;

/// The world that a trace is replayed in.
#[derive(Debug, Clone, PartialEq)]
pub struct Setup {
    /// Bytes of the card.
    pub capacity: u64,
    /// Bytes of the card that are taken before the allocator gets any: context, other processes.
    pub held: u64,
    pub settings: AllocatorSettings,
    pub version: TorchVersion,
}

/// How a replay ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub statistics: Statistics,
    /// The event after which allocated bytes were highest.
    pub peak_allocated_at: usize,
    /// The event after which reserved bytes were highest.
    pub peak_reserved_at: usize,
    /// The request that could not be served; the replay ends there.
    pub oom: Option<Oom>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Oom {
    /// Position in the trace's events; nothing for a state that does not fit to begin with.
    pub event: Option<usize>,
    pub error: OutOfMemory,
}

/// The state after one event.
#[derive(Debug, Clone, Copy)]
pub struct Moment<'a> {
    pub event: usize,
    pub statistics: &'a Statistics,
}

/// Replays a checked trace. The first request that fails ends it, as it ends most runs.
pub fn replay(trace: &Trace, setup: &Setup) -> Outcome {
    replay_observed(trace, setup, |_| {})
}

/// As [`replay`], showing the state after each event.
pub fn replay_observed(trace: &Trace, setup: &Setup, observe: impl FnMut(Moment<'_>)) -> Outcome {
    let card = ModelledGpu::new(setup.capacity, setup.held);
    let mut player = Player::new(
        trace,
        Allocator::new(card, setup.settings.clone(), setup.version),
    );
    player.run(observe)
}

/// The segments and their blocks after an event, or where a request failed before it.
pub fn segments_at(trace: &Trace, setup: &Setup, event: usize) -> Vec<SegmentView> {
    let card = ModelledGpu::new(setup.capacity, setup.held);
    let mut player = Player::new(
        trace,
        Allocator::new(card, setup.settings.clone(), setup.version),
    );
    if player.restore().is_ok() {
        let fatal = trace.fatal_failures();
        for (at, step) in trace.events.iter().enumerate().take(event + 1) {
            let is_left_out =
                matches!(step, Event::AllocFailed(_)) && fatal.binary_search(&at).is_err();
            if !is_left_out && player.step(*step).is_err() {
                break;
            }
        }
    }
    player.allocator.segments()
}

/// Plays a trace on an allocator.
#[derive(Debug)]
pub struct Player<'a, D> {
    trace: &'a Trace,
    pub allocator: Allocator<D>,
    handles: Vec<Option<Handle>>,
    /// Whose return each handle waits for. The allocator may have waited for it by itself, to make room, and may have
    /// used the handle again: then a later return stands here.
    waiting: HashMap<Handle, u32>,
    peak_allocated_at: usize,
    peak_reserved_at: usize,
}

impl<'a, D: Device> Player<'a, D> {
    pub fn new(trace: &'a Trace, allocator: Allocator<D>) -> Self {
        let handles = vec![None; trace.allocations.len()];
        Player {
            trace,
            allocator,
            handles,
            waiting: HashMap::new(),
            peak_allocated_at: 0,
            peak_reserved_at: 0,
        }
    }

    /// The handle of a live allocation.
    pub fn handle(&self, number: u32) -> Option<Handle> {
        self.handles.get(number as usize).copied().flatten()
    }

    /// From the initial state through all events.
    pub fn run(&mut self, mut observe: impl FnMut(Moment<'_>)) -> Outcome {
        if let Err(error) = self.restore() {
            return self.outcome(Some(Oom { event: None, error }));
        }
        let (mut allocated, mut reserved) = (0, 0);
        let fatal = self.trace.fatal_failures();
        for (at, event) in self.trace.events.iter().enumerate() {
            if matches!(event, Event::AllocFailed(_)) && fatal.binary_search(&at).is_err() {
                continue;
            }
            if let Err(error) = self.step(*event) {
                return self.outcome(Some(Oom {
                    event: Some(at),
                    error,
                }));
            }
            let statistics = self.allocator.statistics();
            if statistics.allocated.peak > allocated {
                allocated = statistics.allocated.peak;
                self.peak_allocated_at = at;
            }
            if statistics.reserved.peak > reserved {
                reserved = statistics.reserved.peak;
                self.peak_reserved_at = at;
            }
            observe(Moment {
                event: at,
                statistics,
            });
        }
        self.outcome(None)
    }

    fn outcome(&self, oom: Option<Oom>) -> Outcome {
        Outcome {
            statistics: *self.allocator.statistics(),
            peak_allocated_at: self.peak_allocated_at,
            peak_reserved_at: self.peak_reserved_at,
            oom,
        }
    }

    /// The state before the first event: as it was found where the settings allow the same layout, and by asking for
    /// the same allocations in the order of their addresses where they do not.
    pub fn restore(&mut self) -> Result<(), OutOfMemory> {
        for found in &self.trace.initial {
            let blocks: Vec<(u64, u64, u64)> = found
                .live
                .iter()
                .filter_map(|number| self.trace.allocations.get(*number as usize))
                .map(|a| {
                    (
                        a.address,
                        if a.block > 0 {
                            a.block
                        } else {
                            self.allocator.round(a.requested)
                        },
                        a.requested,
                    )
                })
                .collect();
            match self.allocator.restore_if_plain(&found.segment, &blocks) {
                Some(handles) => {
                    for (number, handle) in found.live.iter().zip(handles) {
                        self.handles[*number as usize] = Some(handle);
                    }
                }
                None => {
                    for number in &found.live {
                        self.step(Event::Alloc(*number))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Plays one event.
    pub fn step(&mut self, event: Event) -> Result<(), OutOfMemory> {
        match event {
            Event::Alloc(number) => {
                let wanted = &self.trace.allocations[number as usize];
                let handle = self
                    .allocator
                    .malloc(wanted.requested, wanted.stream, wanted.pool)?;
                self.handles[number as usize] = Some(handle);
            }
            Event::AllocFailed(number) => {
                let wanted = &self.trace.allocations[number as usize];
                self.allocator
                    .malloc(wanted.requested, wanted.stream, wanted.pool)?;
            }
            Event::Free(number) => {
                if let Some(handle) = self.handles[number as usize].take() {
                    self.allocator.free(handle);
                }
            }
            Event::FreeRequested(number) => {
                if let Some(handle) = self.handles[number as usize] {
                    self.waiting.insert(handle, number);
                    self.allocator.free_later(handle);
                }
            }
            Event::FreeCompleted(number) => {
                if let Some(handle) = self.handles[number as usize].take()
                    && self.waiting.get(&handle) == Some(&number)
                {
                    self.waiting.remove(&handle);
                    self.allocator.complete(handle);
                }
            }
            Event::EmptyCache => self.allocator.empty_cache(),
            Event::BeginCapture(pool) => self.allocator.begin_capture(pool),
            Event::EndCapture(pool) => self.allocator.end_pool(pool),
            Event::ReleasePool(pool) => self.allocator.release_pool(pool),
            Event::Mark(_) | Event::SegmentAlloc(_) | Event::SegmentFree(_) => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_return_completed_early_does_not_complete_another_one() {
        const SIZE: u64 = 20 << 20;
        let mut trace = Trace::default();
        let first = trace.alloc(SIZE, 0);
        trace
            .events
            .extend([Event::FreeRequested(first), Event::EmptyCache]);
        // Gets the handle that the first one had.
        let second = trace.alloc(SIZE, 0);
        trace
            .events
            .extend([Event::FreeRequested(second), Event::FreeCompleted(first)]);
        let mut setup = Setup {
            capacity: 1 << 40,
            held: 0,
            settings: AllocatorSettings::default(),
            version: TorchVersion::NEWEST_CHECKED,
        };
        assert_eq!(replay(&trace, &setup).statistics.active.current, SIZE);
        // The same where the allocator waits to make room.
        trace.events.remove(2);
        setup.capacity = SIZE;
        assert_eq!(replay(&trace, &setup).statistics.active.current, SIZE);
        trace.events.push(Event::FreeCompleted(second));
        assert_eq!(replay(&trace, &setup).statistics.active.current, 0);
    }
}
