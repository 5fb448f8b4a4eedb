//! Which lines of code hold the memory when most of it is in use.

use std::collections::HashMap;

use crate::snapshot::{BlockState, Snapshot, TableIndex, TraceAction, TraceEntry};

/// Memory in use at one moment, by the line of code that allocated it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryByLine {
    /// The last allocation that failed; else the moment when most memory was in use.
    pub is_failure: bool,
    /// Largest first.
    pub lines: Vec<LineMemory>,
}

/// What one line of code holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineMemory {
    /// In [`Snapshot::frames`]; `None` for what was allocated before the history began or without Python code.
    pub frame: Option<TableIndex>,
    pub bytes: u64,
    pub allocations: u64,
}

/// `None` if the file names no line of code, or has neither history nor blocks in use.
pub fn memory_by_line(snapshot: &Snapshot, device: u32) -> Option<MemoryByLine> {
    if snapshot.frames.is_empty() {
        return None;
    }
    let entries = snapshot
        .traces
        .get(device as usize)
        .map_or(&[][..], Vec::as_slice);
    let failure = entries
        .iter()
        .rposition(|entry| entry.action == TraceAction::OutOfMemory);
    let moment = failure.unwrap_or_else(|| fullest(entries));

    let mut live: HashMap<u64, Held> = found_at_start(snapshot, device, entries);
    for entry in &entries[..moment] {
        match entry.action {
            TraceAction::Alloc => {
                live.insert(entry.address, Held::by(entry));
            }
            TraceAction::FreeRequested => {
                live.remove(&entry.address);
            }
            _ => {}
        }
    }
    let mut by_frame: HashMap<Option<TableIndex>, (u64, u64)> = HashMap::new();
    for held in live.values() {
        let (bytes, allocations) = by_frame.entry(held.frame).or_default();
        *bytes = bytes.saturating_add(held.bytes);
        *allocations += 1;
    }
    let mut lines: Vec<LineMemory> = by_frame
        .into_iter()
        .map(|(frame, (bytes, allocations))| LineMemory {
            frame,
            bytes,
            allocations,
        })
        .collect();
    lines.sort_by_key(|line| (std::cmp::Reverse(line.bytes), line.frame));
    (!lines.is_empty()).then_some(MemoryByLine {
        is_failure: failure.is_some(),
        lines,
    })
}

#[derive(Clone, Copy)]
struct Held {
    bytes: u64,
    frame: Option<TableIndex>,
}

impl Held {
    fn by(entry: &TraceEntry) -> Held {
        Held {
            bytes: entry.size,
            frame: entry.frame,
        }
    }
}

/// The number of events after which most memory is in use.
fn fullest(entries: &[TraceEntry]) -> usize {
    // What was there at the start is the same for all moments; without it the sum may be negative.
    let mut in_use: i128 = 0;
    let mut most = 0;
    let mut moment = 0;
    for (idx, entry) in entries.iter().enumerate() {
        match entry.action {
            TraceAction::Alloc => in_use += i128::from(entry.size),
            TraceAction::FreeRequested => in_use -= i128::from(entry.size),
            _ => {}
        }
        if in_use > most {
            most = in_use;
            moment = idx + 1;
        }
    }
    moment
}

/// What was in use before the first event: freed without having been allocated, or in use at the end and never
/// allocated.
fn found_at_start(snapshot: &Snapshot, device: u32, entries: &[TraceEntry]) -> HashMap<u64, Held> {
    let mut first_seen: HashMap<u64, bool> = HashMap::new();
    let mut found = HashMap::new();
    for entry in entries {
        match entry.action {
            TraceAction::Alloc => {
                first_seen.entry(entry.address).or_insert(true);
            }
            TraceAction::FreeRequested => {
                first_seen.entry(entry.address).or_insert_with(|| {
                    // The line of its end is not the line that made it.
                    let held = Held {
                        bytes: entry.size,
                        frame: None,
                    };
                    found.insert(entry.address, held);
                    false
                });
            }
            _ => {}
        }
    }
    let segments = snapshot.segments.iter();
    for block in segments
        .filter(|segment| segment.device == device)
        .flat_map(|segment| &segment.blocks)
        .filter(|block| block.state == BlockState::ActiveAllocated)
    {
        if !first_seen.contains_key(&block.address) {
            let held = Held {
                bytes: block.size,
                frame: block.frame,
            };
            found.insert(block.address, held);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{Block, Frame, PoolKind, Segment};

    fn entry(action: TraceAction, address: u64, size: u64, frame: usize) -> TraceEntry {
        TraceEntry {
            action,
            address,
            size,
            stream: 0,
            device_free: None,
            private_pool: None,
            frame: TableIndex::new(frame),
        }
    }

    fn snapshot(entries: Vec<TraceEntry>) -> Snapshot {
        let frame = |line| Frame {
            file: "train.py".into(),
            line,
            name: "step".into(),
        };
        let block = Block {
            address: 9000,
            size: 70,
            requested_size: 64,
            state: BlockState::ActiveAllocated,
            frame: TableIndex::new(2),
        };
        Snapshot {
            traces: vec![entries],
            frames: vec![frame(1), frame(2), frame(3)],
            segments: vec![Segment {
                device: 0,
                address: 9000,
                total_size: 70,
                stream: 0,
                pool: PoolKind::Small,
                private_pool: (0, 0),
                expandable: false,
                blocks: vec![block],
            }],
            ..Snapshot::default()
        }
    }

    fn lines(found: &MemoryByLine) -> Vec<(Option<usize>, u64, u64)> {
        found
            .lines
            .iter()
            .map(|line| {
                (
                    line.frame.map(TableIndex::get),
                    line.bytes,
                    line.allocations,
                )
            })
            .collect()
    }

    #[test]
    fn the_fullest_moment_counts() {
        use TraceAction::{Alloc, FreeRequested};
        let found = memory_by_line(
            &snapshot(vec![
                entry(Alloc, 100, 10, 0),
                entry(Alloc, 200, 30, 1),
                entry(Alloc, 300, 5, 0),
                // Freed without having been allocated: it was there, and nobody knows by which line.
                entry(FreeRequested, 400, 50, 1),
                entry(FreeRequested, 200, 30, 1),
                entry(Alloc, 200, 20, 2),
            ]),
            0,
        )
        .expect("lines");
        assert!(!found.is_failure);
        assert_eq!(
            lines(&found),
            [
                (Some(2), 70, 1),
                (None, 50, 1),
                (Some(1), 30, 1),
                (Some(0), 15, 2)
            ]
        );
    }

    #[test]
    fn a_failure_counts_before_the_fullest_moment() {
        use TraceAction::{Alloc, FreeRequested, OutOfMemory};
        let found = memory_by_line(
            &snapshot(vec![
                entry(Alloc, 100, 10, 0),
                entry(FreeRequested, 100, 10, 0),
                entry(Alloc, 200, 5, 1),
                entry(OutOfMemory, 0, 1000, 1),
                entry(Alloc, 300, 90, 0),
            ]),
            0,
        )
        .expect("lines");
        assert!(found.is_failure);
        assert_eq!(lines(&found), [(Some(2), 70, 1), (Some(1), 5, 1)]);
    }

    #[test]
    fn without_frames_or_memory_there_is_nothing_to_tell() {
        let mut without_frames = snapshot(vec![entry(TraceAction::Alloc, 1, 1, 0)]);
        without_frames.frames.clear();
        assert_eq!(memory_by_line(&without_frames, 0), None);
        assert_eq!(memory_by_line(&snapshot(vec![]), 1), None);
    }
}
