//! One shard task: the records of a range of keys, of all runs, in the order of their keys.

use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};

use crate::error::PrepareError;
use crate::manifest::ShardEntry;
use crate::map::TaskLimits;
use crate::preparation::Preparation;
use crate::records::first_key;
use crate::run_file::{RunFile, WRITE_BUFFER};
use crate::shard_arrow::ArrowShard;
use crate::shard_tokens::TokenShard;
use crate::shard_writer::ShardWriter;

/// Longest entry of a manifest that is read.
const MAX_ENTRY: u64 = 1 << 16;
/// Bytes of a record besides its own: its key and its place among the others, in vectors that may have grown.
const PER_RECORD: u64 = 2 * (8 + 4);
/// Fewest bytes that are gathered at a time.
const FEWEST_GATHERED: u64 = 1 << 20;

/// Runs a shard task, unless its shard is there.
pub(crate) fn shard_task(
    preparation: &Preparation,
    runs: &[RunFile],
    shard: u64,
    of: u64,
    limits: TaskLimits<'_>,
) -> Result<ShardEntry, PrepareError> {
    if let Some(entry) = finished(preparation, shard, of)? {
        return Ok(entry);
    }
    let record = preparation.record_bytes() as u64;
    // Files, and a batch of records that is copied by fields.
    let fixed = (4 * WRITE_BUFFER as u64).max(WRITE_BUFFER as u64 + 3 * record)
        + preparation.work().upload_bytes();
    let fair = limits.budget.all().get() / limits.threads.max(1);
    let each = record.saturating_add(PER_RECORD);
    let most = preparation.recipe().shard.get().saturating_mul(2);
    let gathered = fair
        .saturating_sub(fixed)
        .min(most)
        .max(FEWEST_GATHERED.max(2 * each));
    let granted = limits
        .budget
        .take(fixed.saturating_add(gathered), "one shard")?;
    let mut writer: Box<dyn ShardWriter> = match preparation.packer() {
        Some(packer) => Box::new(TokenShard::create(
            preparation.work(),
            shard,
            packer.form(),
        )?),
        None => Box::new(ArrowShard::create(
            preparation.work(),
            shard,
            preparation.fields(),
        )?),
    };
    let range = KeyRange {
        low: first_key(shard, of).unwrap_or(u64::MAX),
        high: first_key(shard + 1, of),
    };
    let max_records = ((granted.bytes() - fixed) / each).max(2);
    gather(
        preparation,
        runs,
        range,
        max_records,
        writer.as_mut(),
        limits,
    )?;
    let finished = FinishedShard {
        made_for: preparation.made_for(shard),
        of,
        entry: writer.finish()?,
    };
    drop(granted);
    let text = serde_json::to_vec(&finished).unwrap_or_default();
    let work = preparation.work();
    work.write_whole(&work.shard_entry(shard), &text)?;
    Ok(finished.entry)
}

/// A shard that must be finished.
pub(crate) fn finished_shard(
    preparation: &Preparation,
    shard: u64,
    of: u64,
) -> Result<ShardEntry, PrepareError> {
    let entry = finished(preparation, shard, of)?;
    entry.ok_or_else(|| PrepareError::Damaged {
        path: preparation.work().shard_entry(shard),
        expected: "a finished shard".to_owned(),
        found: "none".to_owned(),
    })
}

/// A shard, and what it was made for.
#[derive(Debug, Serialize, Deserialize)]
struct FinishedShard {
    made_for: String,
    of: u64,
    entry: ShardEntry,
}

/// What is known of a shard that was finished before.
fn finished(
    preparation: &Preparation,
    shard: u64,
    of: u64,
) -> Result<Option<ShardEntry>, PrepareError> {
    let path = preparation.work().shard_entry(shard);
    let Some(text) = preparation.work().read_whole(&path, MAX_ENTRY)? else {
        return Ok(None);
    };
    let Ok(finished) = serde_json::from_slice::<FinishedShard>(&text) else {
        return Ok(None);
    };
    if finished.made_for != preparation.made_for(shard) || finished.of != of {
        return Ok(None);
    }
    let entry = finished.entry;
    let file = preparation.work().out().join(&entry.file);
    let is_whole = preparation.work().len_of(&file)? == Some(entry.bytes);
    Ok(is_whole.then_some(entry))
}

/// Keys from `low` on, and below `high` if there is one.
#[derive(Clone, Copy, Debug)]
struct KeyRange {
    low: u64,
    high: Option<u64>,
}

impl KeyRange {
    /// Both halves, or nothing where it has one key only.
    fn halves(self) -> Option<[KeyRange; 2]> {
        let last = self.high.map_or(u64::MAX, |high| high - 1);
        let middle = self.low + (last.checked_sub(self.low)?).div_ceil(2);
        (middle > self.low).then_some([
            KeyRange {
                high: Some(middle),
                ..self
            },
            KeyRange {
                low: middle,
                ..self
            },
        ])
    }
}

/// Writes the records of a range, in halves if they are too many at once.
fn gather(
    preparation: &Preparation,
    runs: &[RunFile],
    range: KeyRange,
    most: u64,
    writer: &mut dyn ShardWriter,
    limits: TaskLimits<'_>,
) -> Result<(), PrepareError> {
    if limits.is_stopped.load(Ordering::Relaxed) {
        return Err(PrepareError::Stopped);
    }
    let mut found = Vec::new();
    let mut count = 0;
    for run in runs {
        let file = run.file()?;
        for segment in &run.footer.segments {
            let places = file.range(segment, range.low, range.high)?;
            count += places.end - places.start;
            found.push(places);
        }
    }
    if count > most {
        let Some(halves) = range.halves() else {
            return Err(PrepareError::TooLittleMemory {
                what: format!("{count} samples of one key"),
                needed: brimful::units::Bytes(count * preparation.record_bytes() as u64),
                memory: limits.budget.all(),
            });
        };
        drop(found);
        for half in halves {
            gather(preparation, runs, half, most, writer, limits)?;
        }
        return Ok(());
    }
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let bytes = preparation.record_bytes();
    let mut keys = Vec::with_capacity(count);
    let mut records = Vec::with_capacity(count * bytes);
    let mut found = found.into_iter();
    for run in runs {
        let file = run.file()?;
        for segment in &run.footer.segments {
            let places = found.next().unwrap_or_default();
            if places.is_empty() {
                continue;
            }
            file.keys(segment, places.clone(), &mut keys)?;
            file.records(segment, places, &mut records)?;
        }
    }
    let mut order: Vec<u32> = (0..u32::try_from(count).unwrap_or(u32::MAX)).collect();
    // Runs are in the order of their splits, and segments in that of their samples: of equal keys, the first comes first.
    order.sort_unstable_by_key(|&at| (keys[at as usize], at));
    for at in order {
        let start = at as usize * bytes;
        writer.write(&records[start..start + bytes])?;
    }
    Ok(())
}
