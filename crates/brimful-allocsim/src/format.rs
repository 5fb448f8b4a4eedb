//! The trace file: `.brimtrace`.
//!
//! A magic text with the format's number, then only unsigned LEB128 numbers and texts (length, UTF-8 bytes):
//!
//! ```text
//! "BRIMTRACE1"
//! torch  settings  capacity
//! labels       count, each: text
//! segments     count, each: address (difference to the one before, zigzag)  size
//! allocations  count, each: address (difference, zigzag)  requested  block  stream  pool
//! initial      count, each: address  size  stream  small  pool  count of live, each: allocation
//! events       count, each: kind  number (none for EmptyCache)
//! ```
//!
//! A count is never believed before the bytes are there, so a file of n bytes costs at most some 40 n bytes of memory.

use crate::allocator::{FoundSegment, PoolId};
use crate::trace::{Allocation, Event, InitialSegment, RecordedSegment, Trace, TraceError};

/// How every trace file begins.
pub const MAGIC: &[u8] = b"BRIMTRACE1";

/// A file that is not a trace, or a damaged one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    #[error("not a brimful trace: expected it to begin with BRIMTRACE1")]
    Magic,
    #[error(
        "the trace ends at byte {0}, in the middle of {1}; it was cut off while it was written or copied"
    )]
    Truncated(usize, &'static str),
    #[error("byte {at}: expected {expected}")]
    Value { at: usize, expected: &'static str },
    #[error(transparent)]
    Trace(#[from] TraceError),
}

impl Trace {
    /// The bytes of the trace file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(32 + self.events.len() * 4 + self.allocations.len() * 12);
        out.extend_from_slice(MAGIC);
        text(&mut out, &self.torch);
        text(&mut out, &self.settings);
        number(&mut out, self.capacity);
        count(&mut out, self.labels.len());
        for label in &self.labels {
            text(&mut out, label);
        }
        let mut address = 0;
        count(&mut out, self.segments.len());
        for segment in &self.segments {
            difference(&mut out, &mut address, segment.address);
            number(&mut out, segment.size);
        }
        address = 0;
        count(&mut out, self.allocations.len());
        for allocation in &self.allocations {
            difference(&mut out, &mut address, allocation.address);
            for value in [
                allocation.requested,
                allocation.block,
                allocation.stream,
                allocation.pool.0.into(),
            ] {
                number(&mut out, value);
            }
        }
        count(&mut out, self.initial.len());
        for InitialSegment { segment, live } in &self.initial {
            for value in [
                segment.address,
                segment.size,
                segment.stream,
                u64::from(segment.small),
                segment.pool.0.into(),
                live.len() as u64,
            ] {
                number(&mut out, value);
            }
            for allocation in live {
                number(&mut out, u64::from(*allocation));
            }
        }
        count(&mut out, self.events.len());
        for event in &self.events {
            let (kind, value) = code(*event);
            out.push(kind);
            if kind != EMPTY_CACHE {
                number(&mut out, u64::from(value));
            }
        }
        out
    }

    /// Reads and checks a trace file.
    pub fn from_bytes(bytes: &[u8]) -> Result<Trace, FormatError> {
        let mut reader = Reader { bytes, at: 0 };
        if !bytes.starts_with(MAGIC) {
            return Err(FormatError::Magic);
        }
        reader.at = MAGIC.len();
        let mut trace = Trace {
            torch: reader.text("the version of PyTorch")?,
            settings: reader.text("the settings")?,
            capacity: reader.number("the capacity")?,
            ..Trace::default()
        };
        for _ in 0..reader.number("the labels")? {
            trace.labels.push(reader.text("the labels")?);
        }
        let mut address = 0;
        for _ in 0..reader.number("the segments")? {
            let address = reader.difference(&mut address, "the segments")?;
            trace.segments.push(RecordedSegment {
                address,
                size: reader.number("the segments")?,
            });
        }
        address = 0;
        for _ in 0..reader.number("the allocations")? {
            trace.allocations.push(Allocation {
                address: reader.difference(&mut address, "the allocations")?,
                requested: reader.number("the allocations")?,
                block: reader.number("the allocations")?,
                stream: reader.number("the allocations")?,
                pool: PoolId(reader.small("the allocations")?),
            });
        }
        for _ in 0..reader.number("the initial state")? {
            let segment = FoundSegment {
                address: reader.number("the initial state")?,
                size: reader.number("the initial state")?,
                stream: reader.number("the initial state")?,
                small: reader.number("the initial state")? != 0,
                pool: PoolId(reader.small("the initial state")?),
            };
            let mut live = Vec::new();
            for _ in 0..reader.number("the initial state")? {
                live.push(reader.small("the initial state")?);
            }
            trace.initial.push(InitialSegment { segment, live });
        }
        for _ in 0..reader.number("the events")? {
            trace.events.push(reader.event()?);
        }
        if reader.at != bytes.len() {
            return Err(FormatError::Value {
                at: reader.at,
                expected: "the end of the file after the last event",
            });
        }
        trace.check()?;
        Ok(trace)
    }
}

const EMPTY_CACHE: u8 = 5;

fn code(event: Event) -> (u8, u32) {
    match event {
        Event::Alloc(number) => (0, number),
        Event::AllocFailed(number) => (1, number),
        Event::Free(number) => (2, number),
        Event::FreeRequested(number) => (3, number),
        Event::FreeCompleted(number) => (4, number),
        Event::EmptyCache => (EMPTY_CACHE, 0),
        Event::BeginCapture(pool) => (6, pool.0),
        Event::EndCapture(pool) => (7, pool.0),
        Event::ReleasePool(pool) => (8, pool.0),
        Event::Mark(label) => (9, label),
        Event::SegmentAlloc(segment) => (10, segment),
        Event::SegmentFree(segment) => (11, segment),
    }
}

fn number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push((value & 0x7f) as u8);
}

fn count(out: &mut Vec<u8>, value: usize) {
    number(out, value as u64);
}

fn text(out: &mut Vec<u8>, value: &str) {
    count(out, value.len());
    out.extend_from_slice(value.as_bytes());
}

fn difference(out: &mut Vec<u8>, last: &mut u64, value: u64) {
    let step = value.wrapping_sub(*last).cast_signed();
    number(out, ((step << 1) ^ (step >> 63)).cast_unsigned());
    *last = value;
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn number(&mut self, of: &'static str) -> Result<u64, FormatError> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = *self
                .bytes
                .get(self.at)
                .ok_or(FormatError::Truncated(self.at, of))?;
            self.at += 1;
            if shift == 63 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(FormatError::Value {
            at: self.at,
            expected: "a number of at most 64 bits",
        })
    }

    fn small(&mut self, of: &'static str) -> Result<u32, FormatError> {
        let at = self.at;
        let value = self.number(of)?;
        u32::try_from(value).map_err(|_| FormatError::Value {
            at,
            expected: "a number below 4,294,967,296",
        })
    }

    fn text(&mut self, of: &'static str) -> Result<String, FormatError> {
        let length = self.number(of)?;
        let start = self.at;
        let end = usize::try_from(length)
            .ok()
            .and_then(|length| start.checked_add(length));
        let bytes = end
            .and_then(|end| self.bytes.get(start..end))
            .ok_or(FormatError::Truncated(start, of))?;
        self.at += bytes.len();
        String::from_utf8(bytes.to_vec()).map_err(|_| FormatError::Value {
            at: start,
            expected: "UTF-8 text",
        })
    }

    fn difference(&mut self, last: &mut u64, of: &'static str) -> Result<u64, FormatError> {
        let coded = self.number(of)?;
        let step = (coded >> 1) ^ (coded & 1).wrapping_neg();
        *last = last.wrapping_add(step);
        Ok(*last)
    }

    fn event(&mut self) -> Result<Event, FormatError> {
        let at = self.at;
        let kind = *self
            .bytes
            .get(at)
            .ok_or(FormatError::Truncated(at, "the events"))?;
        self.at += 1;
        if kind == EMPTY_CACHE {
            return Ok(Event::EmptyCache);
        }
        let value = self.small("the events")?;
        Ok(match kind {
            0 => Event::Alloc(value),
            1 => Event::AllocFailed(value),
            2 => Event::Free(value),
            3 => Event::FreeRequested(value),
            4 => Event::FreeCompleted(value),
            6 => Event::BeginCapture(PoolId(value)),
            7 => Event::EndCapture(PoolId(value)),
            8 => Event::ReleasePool(PoolId(value)),
            9 => Event::Mark(value),
            10 => Event::SegmentAlloc(value),
            11 => Event::SegmentFree(value),
            _ => {
                return Err(FormatError::Value {
                    at,
                    expected: "the kind of an event, 0 to 11",
                });
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Trace {
        let mut trace = Trace {
            torch: "2.13.0+cu130".into(),
            capacity: 15 << 30,
            ..Trace::default()
        };
        trace.mark("step 1");
        let a = trace.alloc(1000, 0);
        let b = trace.alloc(3 << 20, 7);
        trace.free(a);
        trace.events.push(Event::EmptyCache);
        trace.events.push(Event::FreeRequested(b));
        trace.events.push(Event::FreeCompleted(b));
        trace.segments.push(RecordedSegment {
            address: 0x7f00_0000_0000,
            size: 2 << 20,
        });
        trace.events.push(Event::SegmentAlloc(0));
        let live = trace.add(Allocation {
            address: 0x7f12_0000_0000,
            requested: 5,
            block: 512,
            ..Allocation::default()
        });
        let segment = FoundSegment {
            address: 0x7f12_0000_0000,
            size: 2 << 20,
            stream: 0,
            small: true,
            pool: PoolId(0),
        };
        trace.initial.push(InitialSegment {
            segment,
            live: vec![live],
        });
        trace
    }

    #[test]
    fn a_trace_survives_its_file() {
        assert_eq!(Trace::from_bytes(&sample().to_bytes()), Ok(sample()));
    }

    #[test]
    fn every_truncation_is_an_error() {
        let bytes = sample().to_bytes();
        for length in 0..bytes.len() {
            assert!(
                Trace::from_bytes(&bytes[..length]).is_err(),
                "{length} bytes of {}",
                bytes.len()
            );
        }
    }

    #[test]
    fn a_trace_that_frees_twice_is_refused() {
        let mut trace = sample();
        trace.free(0);
        let error = Trace::from_bytes(&trace.to_bytes()).expect_err("freed twice");
        assert!(error.to_string().contains("allocation 0"), "{error}");
    }

    #[test]
    fn a_huge_count_costs_nothing() {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([0, 0, 0]);
        bytes.extend([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]);
        assert!(matches!(
            Trace::from_bytes(&bytes),
            Err(FormatError::Truncated(..))
        ));
    }
}
