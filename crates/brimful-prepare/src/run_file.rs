//! Runs: what a map task has made, ordered by key.
//!
//! ```text
//!  segment: records in the order of their keys, then the keys (u64, little-endian)
//!  …        a task whose records do not fit into its memory writes several
//!  tail     tokens that fill no block
//!  footer   JSON
//!  u64      bytes of the footer
//!  "brimrun1"
//! ```

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use brimful_load::{Piece, Reader, remote};
use serde::{Deserialize, Serialize};

use crate::error::PrepareError;
use crate::skipped::SkippedSamples;
use crate::work::AttemptFile;

const MAGIC: [u8; 8] = *b"brimrun1";
const TRAILER: u64 = 16;
/// Longest footer that is read.
const MAX_FOOTER: u64 = 64 << 20;
/// Keys from one that the footer has to the next.
const FENCE: u64 = 512;
pub(crate) const WRITE_BUFFER: usize = 1 << 20;
const KEY: u64 = size_of::<u64>() as u64;

/// The footer of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunFooter {
    /// The recipe, the inputs and the task that it was made for.
    made_for: String,
    pub(crate) record_bytes: u64,
    pub(crate) segments: Vec<Segment>,
    pub(crate) tail: Tail,
    pub(crate) documents: u64,
    pub(crate) tokens: u64,
    /// Samples that are not among those to be kept.
    #[serde(default)]
    pub(crate) left_out: u64,
    pub(crate) skipped: SkippedSamples,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Segment {
    pub(crate) offset: u64,
    pub(crate) count: u64,
    /// Every so-manieth key, from the first one on.
    fences: Vec<u64>,
}

/// Tokens that fill no block.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tail {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// Where documents begin, in tokens.
    pub(crate) starts: Vec<u32>,
}

impl RunFooter {
    pub(crate) fn records(&self) -> u64 {
        self.segments.iter().map(|segment| segment.count).sum()
    }
}

/// Collects records and writes them in the order of their keys, as many at a time as fit.
#[derive(Debug)]
pub(crate) struct RunWriter {
    file: BufWriter<File>,
    attempt: AttemptFile,
    offset: u64,
    record_bytes: usize,
    records: Vec<u8>,
    keys: Vec<u64>,
    /// Maximum number of records that wait.
    max_waiting: usize,
    footer: RunFooter,
}

impl RunWriter {
    /// Bytes that each record takes while it waits: its own, its key and its place.
    pub(crate) fn bytes_per_record(record_bytes: usize) -> u64 {
        record_bytes as u64 + KEY + size_of::<u32>() as u64
    }

    /// For records that may take `memory` bytes while they wait.
    pub(crate) fn new(
        (attempt, file): (AttemptFile, File),
        made_for: String,
        record_bytes: usize,
        memory: u64,
    ) -> RunWriter {
        let max_waiting = memory / RunWriter::bytes_per_record(record_bytes);
        let max_waiting =
            usize::try_from(max_waiting.clamp(1, u64::from(u32::MAX))).unwrap_or(usize::MAX);
        RunWriter {
            file: BufWriter::with_capacity(WRITE_BUFFER, file),
            attempt,
            offset: 0,
            record_bytes,
            records: Vec::new(),
            keys: Vec::new(),
            max_waiting,
            footer: RunFooter {
                made_for,
                record_bytes: record_bytes as u64,
                ..RunFooter::default()
            },
        }
    }

    pub(crate) fn footer(&mut self) -> &mut RunFooter {
        &mut self.footer
    }

    /// Bytes of records that can wait.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        (self.max_waiting * self.record_bytes) as u64
    }

    /// Segments that are written.
    pub(crate) fn written_segments(&self) -> usize {
        self.footer.segments.len()
    }

    /// Records that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.keys.len()
    }

    /// Forgets all records that wait but the first ones.
    pub(crate) fn keep_first(&mut self, waiting: usize) {
        self.keys.truncate(waiting);
        self.records.truncate(waiting * self.record_bytes);
    }

    /// Takes a record that `fill` writes; nothing is taken if that fails.
    pub(crate) fn add<E: From<PrepareError>>(
        &mut self,
        key: u64,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.keys.len() >= self.max_waiting {
            self.flush()?;
        }
        if self.records.capacity() == 0 {
            // All at once: a vector that grows holds its bytes twice.
            self.records
                .reserve_exact(self.max_waiting * self.record_bytes);
            self.keys.reserve_exact(self.max_waiting);
        }
        let start = self.records.len();
        self.records.resize(start + self.record_bytes, 0);
        if let Err(error) = fill(&mut self.records[start..]) {
            self.records.truncate(start);
            return Err(error);
        }
        self.keys.push(key);
        Ok(())
    }

    /// Writes what waits if that is more than half of what can, so that more fits behind it.
    pub(crate) fn make_room(&mut self) -> Result<(), PrepareError> {
        if self.keys.len() > self.max_waiting / 2 {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), PrepareError> {
        if self.keys.is_empty() {
            return Ok(());
        }
        let count = u32::try_from(self.keys.len()).unwrap_or(u32::MAX);
        let mut order: Vec<u32> = (0..count).collect();
        order.sort_unstable_by_key(|&at| (self.keys[at as usize], at));
        let mut segment = Segment {
            offset: self.offset,
            count: u64::from(count),
            fences: Vec::new(),
        };
        for &at in &order {
            let start = at as usize * self.record_bytes;
            let record = &self.records[start..start + self.record_bytes];
            let written = self.file.write_all(record);
            written.map_err(|cause| self.attempt.unwritable(cause))?;
        }
        for (place, &at) in order.iter().enumerate() {
            let key = self.keys[at as usize];
            if (place as u64).is_multiple_of(FENCE) {
                segment.fences.push(key);
            }
            let written = self.file.write_all(&key.to_le_bytes());
            written.map_err(|cause| self.attempt.unwritable(cause))?;
        }
        self.offset += segment.count * (self.footer.record_bytes + KEY);
        self.footer.segments.push(segment);
        self.records.clear();
        self.keys.clear();
        Ok(())
    }

    /// Writes what is left and gives the run its name.
    pub(crate) fn finish(
        mut self,
        tail: &[u8],
        starts: Vec<u32>,
    ) -> Result<RunFooter, PrepareError> {
        self.flush()?;
        self.footer.tail = Tail {
            offset: self.offset,
            bytes: tail.len() as u64,
            starts,
        };
        let footer = serde_json::to_vec(&self.footer).unwrap_or_default();
        let mut write = || -> io::Result<()> {
            self.file.write_all(tail)?;
            self.file.write_all(&footer)?;
            self.file.write_all(&(footer.len() as u64).to_le_bytes())?;
            self.file.write_all(&MAGIC)?;
            self.file.flush()
        };
        write().map_err(|cause| self.attempt.unwritable(cause))?;
        self.attempt.commit(self.file.get_ref())?;
        Ok(self.footer)
    }
}

/// A run to be read.
#[derive(Debug)]
pub(crate) struct RunFile {
    path: PathBuf,
    pub(crate) footer: RunFooter,
    /// In an object store; files are opened when they are read, and are too many to be kept open.
    object: Option<Reader>,
}

/// The bytes of a run.
#[derive(Debug)]
enum RunBytes<'a> {
    File(File),
    Object(&'a Reader),
}

impl RunBytes<'_> {
    fn len(&self) -> io::Result<u64> {
        match self {
            RunBytes::File(file) => Ok(file.metadata()?.len()),
            RunBytes::Object(object) => Ok(object.len()),
        }
    }

    fn read(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        match self {
            RunBytes::File(file) => file.read_exact_at(bytes, offset),
            RunBytes::Object(object) => object.read_to(offset, bytes, &mut Piece::default()),
        }
    }
}

impl RunFile {
    pub(crate) fn open(
        path: &Path,
        made_for: &str,
        record_bytes: u64,
    ) -> Result<RunFile, PrepareError> {
        let damaged = |found: &str| PrepareError::Damaged {
            path: path.to_owned(),
            expected: "a whole run".to_owned(),
            found: found.to_owned(),
        };
        let unreadable = |cause| PrepareError::Unreadable {
            path: path.to_owned(),
            cause,
        };
        let object = if remote::is_remote(path) {
            Some(Reader::open_unread(path).map_err(unreadable)?)
        } else {
            None
        };
        let file = match &object {
            Some(object) => RunBytes::Object(object),
            None => RunBytes::File(brimful_private::open_named(path).map_err(unreadable)?),
        };
        let len = file.len().map_err(unreadable)?;
        let mut trailer = [0; 16];
        let end = len
            .checked_sub(TRAILER)
            .ok_or_else(|| damaged("too few bytes"))?;
        file.read(&mut trailer, end).map_err(unreadable)?;
        let (words, _) = trailer.as_chunks::<8>();
        if words[1] != MAGIC {
            return Err(damaged("another end"));
        }
        let bytes = u64::from_le_bytes(words[0]);
        let start = end
            .checked_sub(bytes)
            .filter(|_| bytes <= MAX_FOOTER)
            .ok_or_else(|| damaged("a footer of another length"))?;
        let mut text = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
        file.read(&mut text, start).map_err(unreadable)?;
        let footer: RunFooter =
            serde_json::from_slice(&text).map_err(|_| damaged("another footer"))?;
        if footer.made_for != made_for {
            return Err(damaged("a run of another recipe or of other inputs"));
        }
        // What was written in turn ends where the next thing begins.
        let mut at = 0_u64;
        for segment in &footer.segments {
            let bytes = segment
                .count
                .checked_mul(footer.record_bytes.saturating_add(KEY));
            let fences = segment.count.div_ceil(FENCE);
            if segment.offset != at || segment.fences.len() as u64 != fences {
                return Err(damaged("another segment"));
            }
            at = bytes
                .and_then(|bytes| at.checked_add(bytes))
                .ok_or_else(|| damaged("a segment without an end"))?;
        }
        let tail_end = footer.tail.offset.checked_add(footer.tail.bytes);
        if footer.tail.bytes >= record_bytes || footer.tail.starts.len() as u64 > record_bytes {
            return Err(damaged("a tail of more than a block"));
        }
        if footer.record_bytes != record_bytes
            || footer.tail.offset != at
            || tail_end != Some(start)
        {
            return Err(damaged("records of another size"));
        }
        Ok(RunFile {
            path: path.to_owned(),
            footer,
            object,
        })
    }

    pub(crate) fn file(&self) -> Result<RunReader<'_>, PrepareError> {
        let file = if let Some(object) = &self.object {
            RunBytes::Object(object)
        } else {
            let file = brimful_private::open_named(&self.path);
            RunBytes::File(file.map_err(|cause| self.unreadable(cause))?)
        };
        Ok(RunReader { file, run: self })
    }

    fn unreadable(&self, cause: io::Error) -> PrepareError {
        PrepareError::Unreadable {
            path: self.path.clone(),
            cause,
        }
    }

    /// Whether a segment can have keys of a range, as far as its fences tell.
    fn places(segment: &Segment, key: u64) -> Range<u64> {
        let after = segment.fences.partition_point(|fence| *fence < key) as u64;
        let start = after.saturating_sub(1) * FENCE;
        start..(after * FENCE).min(segment.count)
    }
}

/// An open run.
#[derive(Debug)]
pub(crate) struct RunReader<'a> {
    file: RunBytes<'a>,
    run: &'a RunFile,
}

impl RunReader<'_> {
    /// The places of the records with keys from `low` on, and below `high` if there is one.
    pub(crate) fn range(
        &self,
        segment: &Segment,
        low: u64,
        high: Option<u64>,
    ) -> Result<Range<u64>, PrepareError> {
        let start = self.first_at_least(segment, low)?;
        let end = match high {
            Some(high) => self.first_at_least(segment, high)?,
            None => segment.count,
        };
        Ok(start..end.max(start))
    }

    fn first_at_least(&self, segment: &Segment, key: u64) -> Result<u64, PrepareError> {
        let places = RunFile::places(segment, key);
        let mut keys = Vec::new();
        self.keys(segment, places.clone(), &mut keys)?;
        Ok(places.start + keys.partition_point(|found| *found < key) as u64)
    }

    /// Appends the keys at these places.
    pub(crate) fn keys(
        &self,
        segment: &Segment,
        places: Range<u64>,
        keys: &mut Vec<u64>,
    ) -> Result<(), PrepareError> {
        let first = segment.offset + segment.count * self.run.footer.record_bytes;
        let mut bytes = vec![0; usize::try_from((places.end - places.start) * KEY).unwrap_or(0)];
        self.read(&mut bytes, first + places.start * KEY)?;
        let (words, _) = bytes.as_chunks::<8>();
        keys.extend(words.iter().map(|word| u64::from_le_bytes(*word)));
        Ok(())
    }

    /// Appends the records at these places.
    pub(crate) fn records(
        &self,
        segment: &Segment,
        places: Range<u64>,
        records: &mut Vec<u8>,
    ) -> Result<(), PrepareError> {
        let each = self.run.footer.record_bytes;
        let bytes = usize::try_from((places.end - places.start) * each).unwrap_or(0);
        let start = records.len();
        records.resize(start + bytes, 0);
        self.read(&mut records[start..], segment.offset + places.start * each)
    }

    pub(crate) fn tail(&self, bytes: &mut Vec<u8>) -> Result<(), PrepareError> {
        let tail = &self.run.footer.tail;
        bytes.resize(usize::try_from(tail.bytes).unwrap_or(0), 0);
        self.read(bytes, tail.offset)
    }

    fn read(&self, bytes: &mut [u8], offset: u64) -> Result<(), PrepareError> {
        let read = self.file.read(bytes, offset);
        read.map_err(|cause| self.run.unreadable(cause))
    }
}
