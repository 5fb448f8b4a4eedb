//! From the values of a pickle to a snapshot.

use std::ops::Range;

use super::entries::TraceEntries;
use super::error::{WrongField, beyond_addresses, wrong};
use super::fields::{SIZE, STATE, first_of, segment_of, size_of, state_of, word};
use super::settings::settings_of;
use super::{Block, Segment, Snapshot, SnapshotError, TraceEntry};
use crate::pickle::{Dict, Document, Sequence, Value};

/// A dict of four fields with every key and value one memo reference of two bytes takes 19.
/// A file with more records than this allows repeats one list by reference, to grow without bound.
const LEAST_BYTES_PER_RECORD: usize = 16;
/// Devices without events take two bytes each.
const RECORDS_OF_ANY_FILE: usize = 1024;

/// The most records that a file of this size has.
pub(super) fn max_records(n_bytes: usize) -> usize {
    RECORDS_OF_ANY_FILE + n_bytes / LEAST_BYTES_PER_RECORD
}

/// The snapshot that a pickle of `n_bytes` holds; `taken` are the events that were taken from it on the way.
pub(super) fn snapshot_of(
    document: &Document<'_>,
    n_bytes: usize,
    taken: TraceEntries,
) -> Result<Snapshot, SnapshotError> {
    let mut reader = Reader {
        snapshot: Snapshot::default(),
        limit: max_records(n_bytes),
        n_records: 0,
        entries: taken,
    };
    reader.root(document.root())?;
    let mut snapshot = reader.snapshot;
    reader.entries.give_tables(&mut snapshot);
    Ok(snapshot)
}

struct Reader {
    snapshot: Snapshot,
    limit: usize,
    n_records: usize,
    entries: TraceEntries,
}

impl Reader {
    fn root(&mut self, root: Value<'_>) -> Result<(), SnapshotError> {
        let dict = match root {
            Value::List(segments) => return self.segments("", segments),
            Value::Dict(dict) => dict,
            other => {
                return Err(SnapshotError::NotASnapshot {
                    found: other.kind().to_owned(),
                });
            }
        };
        match dict.get("segments") {
            Some(Value::List(segments)) => self.segments("segments", segments)?,
            Some(other) => return Err(wrong("", "a list", other).below("segments")),
            None => {
                return Err(SnapshotError::NotASnapshot {
                    found: shown_keys(dict),
                });
            }
        }
        match dict.get("device_traces") {
            Some(Value::List(traces)) => self.traces(traces)?,
            None | Some(Value::None) => {}
            Some(other) => return Err(wrong("", "a list", other).below("device_traces")),
        }
        match dict.get("allocator_settings") {
            Some(Value::Dict(settings)) => {
                // torch 2.13 has it and 2.9 has not.
                if settings.get("max_round_threshold").is_some() {
                    self.snapshot.torch_hint = Some("newer than 2.9");
                }
                self.snapshot.settings = Some(settings_of(settings));
            }
            None | Some(Value::None) => {}
            Some(other) => return Err(wrong("", "a dict", other).below("allocator_settings")),
        }
        // torch 2.15 has it and 2.13 has not.
        if dict.get("host_segments").is_some() {
            self.snapshot.torch_hint = Some("newer than 2.13");
        }
        Ok(())
    }

    fn count_one(&mut self, path: impl Fn() -> String) -> Result<(), SnapshotError> {
        self.n_records += 1;
        if self.n_records > self.limit {
            return Err(SnapshotError::TooMany {
                path: path(),
                limit: self.limit,
            });
        }
        Ok(())
    }

    fn segments(&mut self, path: &str, segments: Sequence<'_>) -> Result<(), SnapshotError> {
        for (idx, segment) in segments.iter().enumerate() {
            let path = || format!("{path}[{idx}]");
            self.count_one(path)?;
            let Value::Dict(dict) = segment else {
                return Err(wrong("", "a dict", segment).below(&path()));
            };
            let (mut segment, blocks) = segment_of(dict).map_err(|wrong| wrong.below(&path()))?;
            segment.blocks = self.blocks(&segment, blocks, path)?;
            self.snapshot.segments.push(segment);
        }
        Ok(())
    }

    fn blocks(
        &mut self,
        segment: &Segment,
        blocks: Sequence<'_>,
        path: impl Fn() -> String,
    ) -> Result<Vec<Block>, SnapshotError> {
        let mut read = Vec::new();
        let mut address = segment.address;
        for (idx, block) in blocks.iter().enumerate() {
            let path = || format!("{}.blocks[{idx}]", path());
            self.count_one(path)?;
            let Value::Dict(dict) = block else {
                return Err(wrong("", "a dict", block).below(&path()));
            };
            let block = self
                .block(dict, address)
                .map_err(|wrong| wrong.below(&path()))?;
            // Checked to fit by `block`.
            address = block.address + block.size;
            read.push(block);
        }
        Ok(read)
    }

    fn block(&mut self, dict: Dict<'_>, next_address: u64) -> Result<Block, WrongField> {
        let mut address = None;
        let mut size = None;
        let mut requested_size = None;
        let mut state = None;
        let mut frames = None;
        let mut history = None;
        for (key, value) in dict.iter() {
            match key {
                Value::Str("address") => address = Some(word("address", value)?),
                Value::Str("size") => size = Some(size_of("size", value)?),
                Value::Str("requested_size") => {
                    requested_size = Some(size_of("requested_size", value)?);
                }
                Value::Str("state") => state = Some(state_of(value)?),
                Value::Str("frames") => frames = Some(value),
                Value::Str("history") => history = Some(value),
                _ => {}
            }
        }
        // torch 2.0 kept both in the newest entry of the block's history.
        if let Some(history) = history {
            self.snapshot.torch_hint = Some("2.0 or older");
            if let Some(Value::Dict(newest)) = first_of(history) {
                if let Some(real_size) = newest.get("real_size") {
                    requested_size = Some(size_of("history[0].real_size", real_size)?);
                }
                frames = frames.or(newest.get("frames"));
            }
        }
        let size = size.ok_or_else(|| WrongField::missing("size", SIZE))?;
        let address = address.unwrap_or(next_address);
        if address.checked_add(size).is_none() {
            return Err(beyond_addresses("size"));
        }
        Ok(Block {
            address,
            size,
            requested_size: requested_size.unwrap_or(size),
            state: state.ok_or_else(|| WrongField::missing("state", STATE))?,
            frame: frames.and_then(|frames| self.entries.frames.shown_of(frames)),
        })
    }

    fn traces(&mut self, traces: Sequence<'_>) -> Result<(), SnapshotError> {
        let mut read = Vec::new();
        let mut end_of_taken = 0;
        for (device, trace) in traces.iter().enumerate() {
            self.count_one(|| format!("device_traces[{device}]"))?;
            let Value::List(events) = trace else {
                let path = format!("device_traces[{device}]");
                return Err(wrong("", "a list", trace).below(&path));
            };
            read.push(match self.trace(device, events)? {
                // A list that the file names again.
                DeviceTrace::Taken(range) if range.start < end_of_taken => {
                    DeviceTrace::Own(self.entries.copies(range))
                }
                DeviceTrace::Taken(range) => {
                    end_of_taken = range.end;
                    DeviceTrace::Taken(range)
                }
                own @ DeviceTrace::Own(_) => own,
            });
        }
        // From the end: taking the last of a table moves nothing else.
        for trace in read.into_iter().rev() {
            self.snapshot.traces.push(match trace {
                DeviceTrace::Taken(range) => self.entries.cut_out(range),
                DeviceTrace::Own(entries) => entries,
            });
        }
        self.snapshot.traces.reverse();
        Ok(())
    }

    fn trace(&mut self, device: usize, events: Sequence<'_>) -> Result<DeviceTrace, SnapshotError> {
        let n_events = events.len();
        self.n_records = self.n_records.saturating_add(n_events);
        if self.n_records > self.limit {
            return Err(SnapshotError::TooMany {
                path: format!("device_traces[{device}]"),
                limit: self.limit,
            });
        }
        if let Some(range) = consecutive(events, n_events) {
            return Ok(DeviceTrace::Taken(range));
        }
        let mut entries = Vec::with_capacity(n_events);
        for (idx, event) in events.iter().enumerate() {
            let path = || format!("device_traces[{device}][{idx}]");
            entries.push(match event {
                Value::Dict(dict) => self
                    .entries
                    .read(dict)
                    .map_err(|wrong| wrong.below(&path()))?,
                Value::Taken(number) => self
                    .entries
                    .get(number)
                    .ok_or_else(|| wrong("", "a dict", event).below(&path()))?,
                other => return Err(wrong("", "a dict", other).below(&path())),
            });
        }
        Ok(DeviceTrace::Own(entries))
    }
}

/// The events of one device.
enum DeviceTrace {
    /// They lie one after the other among those that were taken.
    Taken(Range<usize>),
    Own(Vec<TraceEntry>),
}

fn consecutive(events: Sequence<'_>, n_events: usize) -> Option<Range<usize>> {
    let Some(Value::Taken(first)) = events.iter().next() else {
        return None;
    };
    let in_order = events
        .iter()
        .zip(first..)
        .all(|(event, expected)| matches!(event, Value::Taken(number) if number == expected));
    let first = first as usize;
    in_order.then(|| first..first + n_events)
}

/// The first keys of a dict, for a message.
fn shown_keys(dict: Dict<'_>) -> String {
    const MAX_KEYS: usize = 5;
    const MAX_CHARS: usize = 30;
    let keys: Vec<String> = dict
        .iter()
        .filter_map(|(key, _)| match key {
            Value::Str(key) => {
                let start: String = key.chars().take(MAX_CHARS).collect();
                Some(format!("`{}`", start.escape_debug()))
            }
            _ => None,
        })
        .take(MAX_KEYS)
        .collect();
    if keys.is_empty() {
        "a dict without text keys".to_owned()
    } else {
        format!("a dict with {}", keys.join(", "))
    }
}
