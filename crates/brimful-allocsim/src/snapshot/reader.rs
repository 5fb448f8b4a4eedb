//! From the values of a pickle to a snapshot.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use super::error::{WrongField, beyond_addresses, wrong};
use super::fields::{
    ACTION, ADDRESS, SIZE, STATE, first_of, pool_id, segment_of, size_of, state_of, word,
};
use super::settings::settings_of;
use super::{Block, Frame, Segment, Snapshot, SnapshotError, TraceAction, TraceEntry};
use crate::pickle::{Dict, Document, Sequence, Value};

/// A dict of four fields with every key and value one memo reference of two bytes takes 19.
/// A file with more records than this allows repeats one list by reference, to grow without bound.
const LEAST_BYTES_PER_RECORD: usize = 16;
/// Devices without events take two bytes each.
const RECORDS_OF_ANY_FILE: usize = 1024;

/// The snapshot that a pickle of `n_bytes` holds.
pub(super) fn snapshot_of(
    document: &Document<'_>,
    n_bytes: usize,
) -> Result<Snapshot, SnapshotError> {
    let mut reader = Reader {
        snapshot: Snapshot::default(),
        limit: RECORDS_OF_ANY_FILE + n_bytes / LEAST_BYTES_PER_RECORD,
        n_records: 0,
        known: vec![UNKNOWN; document.n_values()],
        texts: HashMap::new(),
        frames: HashMap::new(),
        other_actions: HashMap::new(),
    };
    reader.root(document.root())?;
    Ok(reader.snapshot)
}

struct Reader<'d> {
    snapshot: Snapshot,
    limit: usize,
    n_records: usize,
    /// By [`Dict::id`] and [`Sequence::id`]: what is known of a frame, and which frame of a list was
    /// chosen. Both are shared by many events, and looking once keeps the work within the file's size.
    known: Vec<u32>,
    texts: HashMap<&'d str, Arc<str>>,
    frames: HashMap<(&'d str, u32, &'d str), u32>,
    other_actions: HashMap<&'d str, u32>,
}

/// What [`Reader::known`] holds of a list: nothing yet, no frame to show, or a frame's index above both.
const UNKNOWN: u32 = 0;
const NO_FRAME: u32 = 1;
const FIRST_FRAME: u32 = 2;

/// What it holds of a frame.
const OWN_PYTHON: u32 = 1;
const LIBRARY_PYTHON: u32 = 2;
const NOT_PYTHON: u32 = 3;

impl<'d> Reader<'d> {
    fn root(&mut self, root: Value<'d>) -> Result<(), SnapshotError> {
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

    fn segments(&mut self, path: &str, segments: Sequence<'d>) -> Result<(), SnapshotError> {
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
        blocks: Sequence<'d>,
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

    fn block(&mut self, dict: Dict<'d>, next_address: u64) -> Result<Block, WrongField> {
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
            frames: frames.and_then(|frames| self.frame_to_show(frames)),
        })
    }

    fn traces(&mut self, traces: Sequence<'d>) -> Result<(), SnapshotError> {
        for (device, trace) in traces.iter().enumerate() {
            self.count_one(|| format!("device_traces[{device}]"))?;
            let Value::List(events) = trace else {
                let path = format!("device_traces[{device}]");
                return Err(wrong("", "a list", trace).below(&path));
            };
            let mut entries = Vec::new();
            for (idx, entry) in events.iter().enumerate() {
                let path = || format!("device_traces[{device}][{idx}]");
                self.count_one(path)?;
                let Value::Dict(dict) = entry else {
                    return Err(wrong("", "a dict", entry).below(&path()));
                };
                entries.push(
                    self.trace_entry(dict)
                        .map_err(|wrong| wrong.below(&path()))?,
                );
            }
            self.snapshot.traces.push(entries);
        }
        Ok(())
    }

    fn trace_entry(&mut self, dict: Dict<'d>) -> Result<TraceEntry, WrongField> {
        let mut action = None;
        let mut address = None;
        let mut size = None;
        let mut stream = 0;
        let mut time_us = 0;
        let mut device_free = None;
        let mut private_pool = None;
        let mut frames = None;
        for (key, value) in dict.iter() {
            match key {
                Value::Str("action") => action = Some(self.action(value)?),
                Value::Str("addr") => address = Some(word("addr", value)?),
                Value::Str("size") => size = Some(size_of("size", value)?),
                Value::Str("stream") => stream = word("stream", value)?,
                Value::Str("time_us") => {
                    time_us = match value {
                        Value::Int(time_us) => time_us,
                        other => return Err(wrong("time_us", "an integer", other)),
                    };
                }
                Value::Str("device_free") => device_free = Some(size_of("device_free", value)?),
                Value::Str("pool_id") => private_pool = Some(pool_id("pool_id", value)?),
                Value::Str("frames") => frames = self.frame_to_show(value),
                _ => {}
            }
        }
        let action = action.ok_or_else(|| WrongField::missing("action", ACTION))?;
        let address = match (address, action) {
            (Some(address), _) => address,
            (None, TraceAction::OutOfMemory) => 0,
            (None, _) => return Err(WrongField::missing("addr", ADDRESS)),
        };
        Ok(TraceEntry {
            action,
            address,
            size: size.ok_or_else(|| WrongField::missing("size", SIZE))?,
            stream,
            time_us,
            device_free,
            private_pool,
            frames,
        })
    }

    fn action(&mut self, value: Value<'d>) -> Result<TraceAction, WrongField> {
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
            other => {
                let names = &mut self.snapshot.other_actions;
                let idx = *self.other_actions.entry(other).or_insert_with(|| {
                    names.push(other.to_owned());
                    index(names.len() - 1)
                });
                TraceAction::Other(idx)
            }
        })
    }

    /// The innermost frame of the user's own Python code, else the innermost of any Python code.
    ///
    /// Frames only illustrate: one of an unexpected form is passed over, not refused.
    fn frame_to_show(&mut self, frames: Value<'d>) -> Option<u32> {
        let (Value::List(list) | Value::Tuple(list)) = frames else {
            return None;
        };
        match self.known[list.id()] {
            UNKNOWN => {}
            NO_FRAME => return None,
            known => return Some(known - FIRST_FRAME),
        }
        let mut library = None;
        let mut own = None;
        for frame in list.iter() {
            let Value::Dict(frame) = frame else { continue };
            match self.origin(frame) {
                OWN_PYTHON => {
                    own = Some(frame);
                    break;
                }
                LIBRARY_PYTHON if library.is_none() => library = Some(frame),
                _ => {}
            }
        }
        let shown = own.or(library).map(|frame| self.intern(frame));
        self.known[list.id()] = shown.map_or(NO_FRAME, |idx| idx + FIRST_FRAME);
        shown
    }

    fn origin(&mut self, frame: Dict<'d>) -> u32 {
        let known = &mut self.known[frame.id()];
        if *known == UNKNOWN {
            *known = match frame.get("filename") {
                Some(Value::Str(file)) => origin_of(file),
                _ => NOT_PYTHON,
            };
        }
        *known
    }

    fn intern(&mut self, frame: Dict<'d>) -> u32 {
        let text = |key| match frame.get(key) {
            Some(Value::Str(text)) => text,
            _ => "",
        };
        let line = match frame.get("line") {
            Some(Value::Int(line)) => u32::try_from(line).unwrap_or(0),
            _ => 0,
        };
        let (file, name) = (text("filename"), text("name"));
        if let Some(idx) = self.frames.get(&(file, line, name)) {
            return *idx;
        }
        let mut shared =
            |text: &'d str| Arc::clone(self.texts.entry(text).or_insert_with(|| text.into()));
        let kept = Frame {
            file: shared(file),
            line,
            name: shared(name),
        };
        let idx = index(self.snapshot.frames.len());
        self.snapshot.frames.push(kept);
        self.frames.insert((file, line, name), idx);
        idx
    }
}

fn index(len: usize) -> u32 {
    // A file that could hold this many different texts is refused by the size of its values.
    u32::try_from(len).unwrap_or(u32::MAX - FIRST_FRAME)
}

/// Whose code a file is, by its path.
fn origin_of(file: &str) -> u32 {
    if Path::new(file).extension() != Some(OsStr::new("py")) {
        return NOT_PYTHON;
    }
    let file = file.replace('\\', "/");
    let in_package = |folder: &str| {
        file.split_once(folder)
            .map(|(_, below)| below.starts_with("torch/"))
    };
    let of_torch = in_package("/site-packages/").or_else(|| in_package("/dist-packages/"));
    let of_library = match of_torch {
        Some(of_torch) => of_torch,
        // The standard library, and what the compiler of torch generates.
        None => file.contains("/lib/python3.") || file.contains("/torchinductor_"),
    };
    if of_library {
        LIBRARY_PYTHON
    } else {
        OWN_PYTHON
    }
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
