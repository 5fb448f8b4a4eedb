//! A trace: the allocations and frees of one device in order.

use std::collections::HashMap;

use crate::allocator::{FoundSegment, PoolId};

/// What a process did to one device's allocator.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    /// The version of PyTorch as it prints it; empty when not known.
    pub torch: String,
    /// The settings the process ran with, as in `PYTORCH_CUDA_ALLOC_CONF`.
    pub settings: String,
    /// Bytes of the card; 0 when not known.
    pub capacity: u64,
    /// What the allocator held before the first event.
    pub initial: Vec<InitialSegment>,
    pub allocations: Vec<Allocation>,
    pub events: Vec<Event>,
    /// Segments of the recorded run, as [`Event::SegmentAlloc`] points to them.
    pub segments: Vec<RecordedSegment>,
    /// Texts that [`Event::Mark`] points to.
    pub labels: Vec<String>,
}

/// One allocation. Events speak of it by its position in [`Trace::allocations`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Allocation {
    /// Where it was in the recorded run; 0 when not known.
    pub address: u64,
    /// Bytes asked for.
    pub requested: u64,
    /// Bytes of the block it had in the recorded run; 0 when not known.
    pub block: u64,
    pub stream: u64,
    pub pool: PoolId,
}

/// A segment that exists when the trace begins, with the allocations that live in it, by address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitialSegment {
    pub segment: FoundSegment,
    pub live: Vec<u32>,
}

/// A segment that the recorded run got from the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordedSegment {
    pub address: u64,
    pub size: u64,
}

/// One event; numbers are positions in [`Trace::allocations`], unless another meaning is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    Alloc(u32),
    /// The recorded run died of this request, or caught the error.
    AllocFailed(u32),
    Free(u32),
    /// Given back, but another stream may still use it.
    FreeRequested(u32),
    /// The other stream is done.
    FreeCompleted(u32),
    /// `torch.cuda.empty_cache`.
    EmptyCache,
    BeginCapture(PoolId),
    EndCapture(PoolId),
    ReleasePool(PoolId),
    /// Position in [`Trace::labels`].
    Mark(u32),
    /// The recorded run got a segment: position in [`Trace::segments`]. A replay makes its own.
    SegmentAlloc(u32),
    /// The recorded run gave the segment back.
    SegmentFree(u32),
}

impl Trace {
    /// Appends an allocation of `requested` bytes and its event.
    pub fn alloc(&mut self, requested: u64, stream: u64) -> u32 {
        let number = self.add(Allocation {
            requested,
            stream,
            ..Allocation::default()
        });
        self.events.push(Event::Alloc(number));
        number
    }

    /// Appends an allocation without an event.
    pub fn add(&mut self, allocation: Allocation) -> u32 {
        let number = u32::try_from(self.allocations.len()).unwrap_or(u32::MAX);
        self.allocations.push(allocation);
        number
    }

    pub fn free(&mut self, number: u32) {
        self.events.push(Event::Free(number));
    }

    pub fn mark(&mut self, label: &str) {
        let known = self.labels.iter().position(|known| known == label);
        let position = known.unwrap_or_else(|| {
            self.labels.push(label.to_owned());
            self.labels.len() - 1
        });
        self.events
            .push(Event::Mark(u32::try_from(position).unwrap_or(u32::MAX)));
    }

    /// The positions of requests that failed and that the run did not outlive, in order.
    ///
    /// A failure may be caught: cuDNN tries a plan with less scratch memory then, and some scripts a smaller batch.
    /// The few allocations of a dying script's clean-up are not going on.
    pub fn fatal_failures(&self) -> Vec<usize> {
        const CLEAN_UP: u32 = 50;
        let requested = |number: u32| {
            self.allocations
                .get(number as usize)
                .map_or(0, |allocation| allocation.requested)
        };
        let (mut bytes, mut count) = (0_u64, 0_u32);
        let mut fatal = Vec::new();
        for (at, event) in self.events.iter().enumerate().rev() {
            match *event {
                Event::Alloc(number) => {
                    bytes = bytes.saturating_add(requested(number));
                    count = count.saturating_add(1);
                }
                Event::AllocFailed(number) if bytes < requested(number) && count <= CLEAN_UP => {
                    fatal.push(at);
                }
                _ => {}
            }
        }
        fatal.reverse();
        fatal
    }

    /// Inserts marks by the number of allocations and frees before them. A mark with the text `empty_cache` becomes
    /// that event instead.
    pub fn insert_marks(&mut self, marks: &[(u64, String)], empty_cache: &str) {
        let mut events = Vec::with_capacity(self.events.len() + marks.len());
        let mut known: HashMap<&str, u32> = HashMap::new();
        let mut marks = marks.iter().peekable();
        let mut count = 0;
        for event in std::mem::take(&mut self.events)
            .into_iter()
            .map(Some)
            .chain([None])
        {
            while let Some((_, text)) = marks.next_if(|(at, _)| event.is_none() || *at <= count) {
                if text == empty_cache {
                    events.push(Event::EmptyCache);
                    continue;
                }
                let label = *known.entry(text).or_insert_with(|| {
                    self.labels.push(text.clone());
                    u32::try_from(self.labels.len() - 1).unwrap_or(u32::MAX)
                });
                events.push(Event::Mark(label));
            }
            let counted = matches!(
                event,
                Some(Event::Alloc(_) | Event::Free(_) | Event::FreeRequested(_))
            );
            count += u64::from(counted);
            events.extend(event);
        }
        self.events = events;
    }

    /// Whether every event speaks of an allocation that exists and is alive: what a replay relies on.
    pub fn check(&self) -> Result<(), TraceError> {
        #[derive(Clone, Copy, PartialEq)]
        enum State {
            Unborn,
            Live,
            Waiting,
            Gone,
        }
        let mut states = vec![State::Unborn; self.allocations.len()];
        let mut step = |at: usize, number: u32, from: &[State], to: State| match states
            .get_mut(number as usize)
        {
            Some(state) if from.contains(state) => {
                *state = to;
                Ok(())
            }
            _ => Err(TraceError::Order {
                event: at,
                allocation: number,
            }),
        };
        for segment in &self.initial {
            for &number in &segment.live {
                step(0, number, &[State::Unborn], State::Live)?;
            }
        }
        for (at, event) in self.events.iter().enumerate() {
            match *event {
                Event::Alloc(number) => step(at, number, &[State::Unborn], State::Live)?,
                Event::AllocFailed(number) => step(at, number, &[State::Unborn], State::Gone)?,
                Event::Free(number) => step(at, number, &[State::Live], State::Gone)?,
                Event::FreeRequested(number) => step(at, number, &[State::Live], State::Waiting)?,
                Event::FreeCompleted(number) => step(at, number, &[State::Waiting], State::Gone)?,
                Event::Mark(label) if label as usize >= self.labels.len() => {
                    return Err(TraceError::Label { event: at, label });
                }
                Event::SegmentAlloc(number) | Event::SegmentFree(number)
                    if number as usize >= self.segments.len() =>
                {
                    return Err(TraceError::Segment {
                        event: at,
                        segment: number,
                    });
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// A trace that contradicts itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    #[error(
        "event {event} speaks of allocation {allocation}, which does not exist then or is not in that state"
    )]
    Order { event: usize, allocation: u32 },
    #[error("event {event} points to label {label}, which does not exist")]
    Label { event: usize, label: u32 },
    #[error("event {event} points to segment {segment}, which does not exist")]
    Segment { event: usize, segment: u32 },
}
