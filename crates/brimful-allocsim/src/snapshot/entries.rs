//! The events of a snapshot, in the small form in which they are kept.

use std::collections::HashMap;
use std::ops::Range;

use super::error::{WrongField, wrong};
use super::fields::{ACTION, ADDRESS, SIZE, pool_id, size_of, word};
use super::frames::FrameTable;
use super::{Snapshot, TableIndex, TraceAction, TraceEntry};
use crate::pickle::{Dict, TakeDicts, Value};

/// Events and the tables that they point into.
pub(super) struct TraceEntries {
    /// No file whose events are each a dict of its own has more.
    max_taken: usize,
    /// Those that were taken while the file was read, in the order of the file.
    taken: Vec<TraceEntry>,
    pub(super) frames: FrameTable,
    private_pools: Vec<(u64, u64)>,
    indexes_of_pools: HashMap<(u64, u64), Option<TableIndex>>,
    device_free: Vec<u64>,
    other_actions: Vec<String>,
    indexes_of_actions: HashMap<String, u16>,
}

impl TakeDicts for TraceEntries {
    fn take(&mut self, dict: Dict<'_>) -> Option<u32> {
        dict.get("action")?;
        let number = u32::try_from(self.taken.len()).ok()?;
        // The rest stays in the document, which has a limit of its own, and is counted there.
        if self.taken.len() >= self.max_taken {
            return None;
        }
        // One that is wrong stays a dict, and is refused with its path.
        let entry = self.read(dict).ok()?;
        self.taken.push(entry);
        Some(number)
    }

    fn removed_above(&mut self, id: usize) {
        self.frames.forget_above(id);
    }
}

impl TraceEntries {
    pub(super) fn new(max_taken: usize) -> TraceEntries {
        TraceEntries {
            max_taken,
            taken: Vec::new(),
            frames: FrameTable::default(),
            private_pools: Vec::new(),
            indexes_of_pools: HashMap::new(),
            device_free: Vec::new(),
            other_actions: Vec::new(),
            indexes_of_actions: HashMap::new(),
        }
    }

    pub(super) fn read(&mut self, dict: Dict<'_>) -> Result<TraceEntry, WrongField> {
        let mut action = None;
        let mut address = None;
        let mut size = None;
        let mut stream = 0;
        let mut device_free = None;
        let mut private_pool = None;
        let mut frame = None;
        for (key, value) in dict.iter() {
            match key {
                Value::Str("action") => action = Some(self.action(value)?),
                Value::Str("addr") => address = Some(word("addr", value)?),
                Value::Str("size") => size = Some(size_of("size", value)?),
                Value::Str("stream") => stream = word("stream", value)?,
                Value::Str("device_free") => device_free = Some(size_of("device_free", value)?),
                Value::Str("pool_id") => private_pool = self.pool(pool_id("pool_id", value)?),
                Value::Str("frames") => frame = self.frames.shown_of(value),
                _ => {}
            }
        }
        let action = action.ok_or_else(|| WrongField::missing("action", ACTION))?;
        let address = match (address, action) {
            (Some(address), _) => address,
            (None, TraceAction::OutOfMemory) => 0,
            (None, _) => return Err(WrongField::missing("addr", ADDRESS)),
        };
        let size = size.ok_or_else(|| WrongField::missing("size", SIZE))?;
        Ok(TraceEntry {
            action,
            address,
            size,
            stream,
            device_free: device_free.and_then(|bytes| {
                self.device_free.push(bytes);
                TableIndex::new(self.device_free.len() - 1)
            }),
            private_pool,
            frame,
        })
    }

    /// One that was taken.
    pub(super) fn get(&self, number: u32) -> Option<TraceEntry> {
        self.taken.get(number as usize).copied()
    }

    pub(super) fn copies(&self, range: Range<usize>) -> Vec<TraceEntry> {
        self.taken
            .get(range)
            .map_or_else(Vec::new, <[TraceEntry]>::to_vec)
    }

    /// Those from the start of `range` on leave the table; what is after its end belongs to no device.
    pub(super) fn cut_out(&mut self, range: Range<usize>) -> Vec<TraceEntry> {
        self.taken.truncate(range.end);
        if range.start == 0 {
            return std::mem::take(&mut self.taken);
        }
        let cut = self.taken.split_off(range.start.min(self.taken.len()));
        self.taken.shrink_to_fit();
        cut
    }

    pub(super) fn give_tables(self, snapshot: &mut Snapshot) {
        snapshot.frames = self.frames.frames;
        snapshot.private_pools = self.private_pools;
        snapshot.device_free = self.device_free;
        snapshot.other_actions = self.other_actions;
    }

    fn pool(&mut self, pool: (u64, u64)) -> Option<TableIndex> {
        let pools = &mut self.private_pools;
        *self.indexes_of_pools.entry(pool).or_insert_with(|| {
            pools.push(pool);
            TableIndex::new(pools.len() - 1)
        })
    }

    fn action(&mut self, value: Value<'_>) -> Result<TraceAction, WrongField> {
        let Value::Str(name) = value else {
            return Err(wrong("action", ACTION, value));
        };
        Ok(match name {
            "alloc" => TraceAction::Alloc,
            "free_requested" => TraceAction::FreeRequested,
            "free_completed" => TraceAction::FreeCompleted,
            "segment_alloc" => TraceAction::SegmentAlloc,
            "segment_free" => TraceAction::SegmentFree,
            "segment_map" => TraceAction::SegmentMap,
            "segment_unmap" => TraceAction::SegmentUnmap,
            "snapshot" => TraceAction::Snapshot,
            "oom" => TraceAction::OutOfMemory,
            other => TraceAction::Other(self.other_action(other)),
        })
    }

    fn other_action(&mut self, name: &str) -> u16 {
        if let Some(idx) = self.indexes_of_actions.get(name) {
            return *idx;
        }
        let Ok(idx) = u16::try_from(self.other_actions.len()) else {
            // torch has one such name; a file with this many is shown the last of them.
            return u16::MAX;
        };
        self.other_actions.push(name.to_owned());
        self.indexes_of_actions.insert(name.to_owned(), idx);
        idx
    }
}
