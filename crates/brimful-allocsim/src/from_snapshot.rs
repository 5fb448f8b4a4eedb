//! From a PyTorch memory snapshot to a trace.
//!
//! A snapshot's history rarely starts with an empty allocator. What was there before is found by going back from the
//! end: a block that is in use at the end and was never allocated in the history was there at its start, and so was
//! one that is freed without having been allocated.

use std::collections::{BTreeMap, HashMap};

use crate::allocator::{FoundSegment, MAX_SMALL_SIZE, PoolId, SMALL_SEGMENT, SMALLEST_BLOCK};
use crate::snapshot::{BlockState, PoolKind, Snapshot, TraceAction, TraceEntry};
use crate::trace::{Allocation, Event, InitialSegment, RecordedSegment, Trace};

/// Bursts of segments given back are taken for `empty_cache`, or left to the marks of somebody who knows better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmptyCacheCalls {
    /// A burst that is not followed by a new segment was the user's call; the others were the allocator's own.
    Infer,
    /// None: the caller inserts [`Event::EmptyCache`] itself.
    LeaveOut,
}

impl Trace {
    /// The history of one device.
    pub fn from_snapshot(snapshot: &Snapshot, device: u32, calls: EmptyCacheCalls) -> Trace {
        let entries = snapshot
            .traces
            .get(device as usize)
            .map_or(&[][..], Vec::as_slice);
        let private = snapshot
            .segments
            .iter()
            .filter(|segment| segment.device == device && segment.private_pool != (0, 0))
            .map(|segment| (segment.address, (segment.total_size, segment.private_pool)))
            .collect();
        let mut builder = Builder::new(snapshot, calls, private);
        for (at, entry) in entries.iter().enumerate() {
            builder.entry(entry, &entries[at + 1..]);
        }
        builder.find_initial_state(device, entries);
        builder.trace
    }
}

struct Builder<'s> {
    snapshot: &'s Snapshot,
    trace: Trace,
    calls: EmptyCacheCalls,
    /// Address to number, of what is in use now.
    live: HashMap<u64, u32>,
    /// Given back and waiting for another stream.
    waiting: HashMap<u64, u32>,
    /// Allocations that were there at the start.
    earlier: Vec<u32>,
    pools: HashMap<(u64, u64), PoolId>,
    /// Segments of private pools at the end: address to size and pool. Most releases do not tell the pool of an
    /// allocation, and the pools of graphs stay to the end.
    private: BTreeMap<u64, (u64, (u64, u64))>,
    in_burst: bool,
}

impl<'s> Builder<'s> {
    fn new(
        snapshot: &'s Snapshot,
        calls: EmptyCacheCalls,
        private: BTreeMap<u64, (u64, (u64, u64))>,
    ) -> Builder<'s> {
        Builder {
            snapshot,
            trace: Trace::default(),
            calls,
            live: HashMap::new(),
            waiting: HashMap::new(),
            earlier: Vec::new(),
            pools: HashMap::new(),
            private,
            in_burst: false,
        }
    }

    fn pool(&mut self, id: Option<(u64, u64)>) -> PoolId {
        match id {
            None | Some((0, 0)) => PoolId::DEFAULT,
            Some(id) => {
                let next = u32::try_from(self.pools.len()).unwrap_or(u32::MAX - 1) + 1;
                *self.pools.entry(id).or_insert(PoolId(next))
            }
        }
    }

    fn entry(&mut self, entry: &TraceEntry, following: &[TraceEntry]) {
        let burst = self.in_burst;
        self.in_burst = match entry.action {
            TraceAction::SegmentFree => true,
            // Looked past below too, or each of a long burst would be looked at from each.
            TraceAction::SegmentUnmap => burst,
            _ => false,
        };
        match entry.action {
            TraceAction::Alloc => {
                let number = self.allocation(entry, 0);
                self.live.insert(entry.address, number);
                self.trace.events.push(Event::Alloc(number));
            }
            TraceAction::OutOfMemory => {
                let number = self.allocation(
                    &TraceEntry {
                        address: 0,
                        ..*entry
                    },
                    0,
                );
                self.trace.events.push(Event::AllocFailed(number));
            }
            TraceAction::FreeRequested => {
                let number = match self.live.remove(&entry.address) {
                    Some(number) => number,
                    None => self.found_earlier(entry),
                };
                let completed = following.first().is_some_and(|next| {
                    next.action == TraceAction::FreeCompleted && next.address == entry.address
                });
                if completed {
                    self.trace.events.push(Event::Free(number));
                } else {
                    self.waiting.insert(entry.address, number);
                    self.trace.events.push(Event::FreeRequested(number));
                }
            }
            TraceAction::FreeCompleted => {
                // Without an entry it was told together with the request.
                if let Some(number) = self.waiting.remove(&entry.address) {
                    self.trace.events.push(Event::FreeCompleted(number));
                }
            }
            TraceAction::SegmentAlloc => {
                let number = self.segment(entry);
                self.trace.events.push(Event::SegmentAlloc(number));
            }
            TraceAction::SegmentFree => {
                if !burst && self.calls == EmptyCacheCalls::Infer && !makes_room(following) {
                    self.trace.events.push(Event::EmptyCache);
                }
                let number = self.segment(entry);
                self.trace.events.push(Event::SegmentFree(number));
            }
            TraceAction::SegmentMap
            | TraceAction::SegmentUnmap
            | TraceAction::Snapshot
            | TraceAction::Other(_) => {}
        }
    }

    fn allocation(&mut self, entry: &TraceEntry, block: u64) -> u32 {
        let pool = self.pool(
            self.snapshot
                .private_pool(entry)
                .or_else(|| self.private_at(entry.address)),
        );
        self.trace.add(Allocation {
            address: entry.address,
            requested: entry.size,
            block,
            stream: entry.stream,
            pool,
        })
    }

    fn private_at(&self, address: u64) -> Option<(u64, u64)> {
        let (start, (size, pool)) = self.private.range(..=address).next_back()?;
        (address - start < *size).then_some(*pool)
    }

    fn found_earlier(&mut self, entry: &TraceEntry) -> u32 {
        let number = self.allocation(entry, 0);
        self.earlier.push(number);
        number
    }

    fn segment(&mut self, entry: &TraceEntry) -> u32 {
        let number = u32::try_from(self.trace.segments.len()).unwrap_or(u32::MAX);
        self.trace.segments.push(RecordedSegment {
            address: entry.address,
            size: entry.size,
        });
        number
    }

    fn find_initial_state(&mut self, device: u32, entries: &[TraceEntry]) {
        let mut segments: BTreeMap<u64, FoundSegment> = BTreeMap::new();
        let mut loose = Vec::new();
        for segment in self
            .snapshot
            .segments
            .iter()
            .filter(|segment| segment.device == device)
        {
            let pool = self.pool(Some(segment.private_pool));
            for block in &segment.blocks {
                let used = block.state != BlockState::Inactive;
                if used
                    && !self.live.contains_key(&block.address)
                    && !self.waiting.contains_key(&block.address)
                {
                    let number = self.trace.add(Allocation {
                        address: block.address,
                        requested: if block.requested_size > 0 {
                            block.requested_size
                        } else {
                            block.size
                        },
                        block: block.size,
                        stream: segment.stream,
                        pool,
                    });
                    self.earlier.push(number);
                }
            }
            if !segment.expandable {
                segments.insert(
                    segment.address,
                    FoundSegment {
                        address: segment.address,
                        size: segment.total_size,
                        stream: segment.stream,
                        small: segment.pool == PoolKind::Small,
                        pool,
                    },
                );
            }
        }
        for entry in entries.iter().rev() {
            match entry.action {
                TraceAction::SegmentAlloc => {
                    segments.remove(&entry.address);
                }
                TraceAction::SegmentFree => {
                    let found = FoundSegment {
                        address: entry.address,
                        size: entry.size,
                        stream: entry.stream,
                        small: entry.size == SMALL_SEGMENT,
                        pool: self.pool(self.snapshot.private_pool(entry)),
                    };
                    segments.insert(entry.address, found);
                }
                _ => {}
            }
        }
        let mut inside: BTreeMap<u64, Vec<u32>> = segments
            .keys()
            .map(|address| (*address, Vec::new()))
            .collect();
        self.earlier
            .sort_by_key(|number| self.trace.allocations[*number as usize].address);
        for &number in &self.earlier {
            let address = self.trace.allocations[number as usize].address;
            let home = segments
                .range(..=address)
                .next_back()
                .filter(|(_, s)| address - s.address < s.size);
            match home.and_then(|(start, _)| inside.get_mut(start)) {
                Some(list) => list.push(number),
                None => loose.push(number),
            }
        }
        for (address, live) in inside {
            let segment = segments[&address].clone();
            self.infer_sizes(&segment, &live);
            self.trace.initial.push(InitialSegment { segment, live });
        }
        if !loose.is_empty() {
            // Of expandable segments or from before the record: allocated anew, in the order of their addresses.
            let first = self.trace.allocations[loose[0] as usize];
            let segment = FoundSegment {
                address: 0,
                size: 0,
                stream: first.stream,
                small: false,
                pool: first.pool,
            };
            self.trace.initial.push(InitialSegment {
                segment,
                live: loose,
            });
        }
    }

    /// A block freed in the history shows only what was asked for. It had that, rounded, and in the large pool what
    /// follows up to the next block, which is never cut off below 1 MiB.
    fn infer_sizes(&mut self, segment: &FoundSegment, live: &[u32]) {
        let end = segment.address.saturating_add(segment.size);
        for (at, &number) in live.iter().enumerate() {
            let next = live
                .get(at + 1)
                .map_or(end, |next| self.trace.allocations[*next as usize].address);
            let allocation = &mut self.trace.allocations[number as usize];
            if allocation.block > 0 {
                continue;
            }
            let least = allocation
                .requested
                .max(1)
                .div_ceil(SMALLEST_BLOCK)
                .saturating_mul(SMALLEST_BLOCK);
            let room = next.saturating_sub(allocation.address);
            let rest = room.saturating_sub(least);
            allocation.block = if !segment.small && rest <= MAX_SMALL_SIZE {
                room.max(least)
            } else {
                least
            };
        }
    }
}

/// Whether a burst of segments given back ends with a new one or in vain: the allocator made room by itself.
fn makes_room(following: &[TraceEntry]) -> bool {
    let next = following.iter().find(|entry| {
        !matches!(
            entry.action,
            TraceAction::SegmentFree | TraceAction::SegmentUnmap
        )
    });
    next.is_some_and(|entry| {
        matches!(
            entry.action,
            TraceAction::SegmentAlloc | TraceAction::SegmentMap | TraceAction::OutOfMemory
        )
    })
}
