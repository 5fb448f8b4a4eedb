//! Where the lines of a file begin: about four bytes of memory per line, found by one scan.

use std::io;
use std::ops::Range;

use crate::indexes::{IndexReader, IndexWriter, torn};
use crate::opening::{FileProgress, Opening};
use crate::problem::Problem;
use crate::reading::{Access, Reader};
use crate::value::Piece;

/// Longest line that is read, its end included.
pub(super) const MAX_LEN: u64 = 16 << 20;

/// Lines of which only the first has a start of 64 bits. So many of the longest stay below the 32 bits of the others.
const GROUP: usize = 255;
const _: () = assert!(GROUP as u64 * MAX_LEN <= u32::MAX as u64);

/// Bytes that are scanned at a time, and where each time is a request.
const CHUNK: u64 = 1 << 20;
const REMOTE_CHUNK: u64 = 8 << 20;

/// The starts of the lines of one file.
#[derive(Debug, Default)]
pub(super) struct LineStarts {
    groups: Vec<u64>,
    /// From the start of the group.
    within: Vec<u32>,
    last_start: u64,
    end: u64,
    longest: u64,
}

/// What becomes of a line of no characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Empty {
    /// It is an empty text.
    IndexReader,
    /// It says nothing in JSON Lines, where it counts to the line before it.
    Skipped,
}

impl Empty {
    pub(super) fn of(json_field: Option<&str>) -> Empty {
        match json_field {
            Some(_) => Empty::Skipped,
            None => Empty::IndexReader,
        }
    }

    /// What an index is called that was made so.
    fn kind(self) -> &'static str {
        match self {
            Empty::IndexReader => "lines",
            Empty::Skipped => "lines that are not empty",
        }
    }
}

impl LineStarts {
    /// What was found the last time, or what is found by reading the file once. `room` are the bytes that it may take.
    pub(super) fn find(
        reader: &Reader,
        empty: Empty,
        room: u64,
        opening: &Opening,
    ) -> Result<LineStarts, Problem> {
        let mut progress = opening.progress.file(reader.len());
        let indexes = opening.indexes.as_ref();
        if let Some(kept) = indexes.and_then(|indexes| indexes.find(empty.kind(), reader))
            && let Ok(starts) = LineStarts::kept(kept, reader.len(), room)
        {
            return Ok(starts);
        }
        let mut keeping = indexes.and_then(|indexes| indexes.begin(empty.kind(), reader));
        let all = 0..reader.len();
        let starts = LineStarts::scan(reader, all, empty, room, &mut progress, keeping.as_mut())?;
        if let Some(keeping) = keeping {
            keeping.finish();
        }
        Ok(starts)
    }

    /// The lines that begin in a range of the file.
    pub(super) fn find_in(
        reader: &Reader,
        range: Range<u64>,
        empty: Empty,
        room: u64,
        opening: &Opening,
    ) -> Result<LineStarts, Problem> {
        let mut progress = opening.progress.file(reader.len());
        LineStarts::scan(reader, range, empty, room, &mut progress, None)
    }

    fn scan(
        reader: &Reader,
        range: Range<u64>,
        empty: Empty,
        room: u64,
        progress: &mut FileProgress<'_>,
        mut keeping: Option<&mut IndexWriter>,
    ) -> Result<LineStarts, Problem> {
        let mut starts = LineStarts::default();
        let mut piece = Piece::default();
        let chunk = match reader.access() {
            Access::Remote => REMOTE_CHUNK,
            Access::Mapped | Access::Read | Access::Direct => CHUNK,
        };
        let mut take = |starts: &mut LineStarts, start: u64| {
            if let Some(keeping) = &mut keeping {
                keeping.entry(&(start - starts.last_start));
            }
            starts.push(start)
        };
        // A line begins behind the end of another one, which may be the last byte before the range.
        let mut at = range.start.saturating_sub(1);
        let mut line_start = (range.start == 0).then_some(0_u64);
        let mut before = 0_u8;
        let is_within = |start: Option<u64>| start.is_none_or(|start| start < range.end);
        while at < reader.len() && is_within(line_start) {
            let len = (reader.len() - at).min(chunk);
            let bytes = usize::try_from(len).map_err(io::Error::other)?;
            before = reader.view_piece(at, bytes, &mut piece, |bytes| {
                for newline in memchr::memchr_iter(b'\n', bytes) {
                    let line_end = at + newline as u64 + 1;
                    if let Some(start) = line_start {
                        let is_empty = match line_end - start {
                            1 => true,
                            2 => newline.checked_sub(1).map_or(before, |at| bytes[at]) == b'\r',
                            _ => false,
                        };
                        if !is_empty || empty == Empty::IndexReader {
                            take(&mut starts, start)?;
                        }
                    }
                    line_start = Some(line_end);
                    if !is_within(line_start) {
                        break;
                    }
                }
                Ok::<_, Problem>(bytes.last().copied().unwrap_or_default())
            })??;
            at += len;
            if is_within(line_start) {
                // A file without line ends is not scanned to its end.
                check_length(at - line_start.unwrap_or(range.start), starts.len() + 1)?;
            }
            progress.is_at(at);
            if starts.held_bytes() > room {
                return Err(Problem::unsupported(
                    format!("a text of more than {} lines in {room} bytes", starts.len()),
                    "each line takes 4 bytes of memory; give it more memory (or headroom), or put more into a line",
                ));
            }
        }
        let end = match line_start {
            Some(start) if start >= range.end => start,
            Some(start) if start < reader.len() => {
                take(&mut starts, start)?;
                reader.len()
            }
            _ => reader.len(),
        };
        starts.finish(end)?;
        Ok(starts)
    }

    /// Reads an index that was kept. Any error means that it is not to be used.
    fn kept(mut kept: IndexReader, len: u64, room: u64) -> Result<LineStarts, Problem> {
        let mut starts = LineStarts::default();
        while let Some(further) = kept.entry::<u64>()? {
            let start = starts.last_start.checked_add(further);
            let start = start.filter(|&start| start < len).ok_or_else(torn)?;
            if further == 0 && !starts.within.is_empty() {
                return Err(torn().into());
            }
            starts.push(start)?;
            if starts.held_bytes() > room {
                return Err(torn().into());
            }
        }
        starts.finish(len)?;
        Ok(starts)
    }

    fn finish(&mut self, end: u64) -> Result<(), Problem> {
        self.end_line(end)?;
        self.end = end;
        self.groups.shrink_to_fit();
        self.within.shrink_to_fit();
        Ok(())
    }

    pub(super) fn push(&mut self, start: u64) -> Result<(), Problem> {
        self.end_line(start)?;
        if self.within.len().is_multiple_of(GROUP) {
            self.groups.push(start);
        }
        let group_start = self.groups.last().copied().unwrap_or_default();
        let within = u32::try_from(start - group_start)
            .map_err(|_| Problem::malformed("lines in groups of 4 GiB", "a longer group"))?;
        self.within.push(within);
        self.last_start = start;
        Ok(())
    }

    /// Where the last line ends, and what follows it of empty ones.
    fn end_line(&mut self, end: u64) -> Result<(), Problem> {
        if !self.within.is_empty() {
            let len = end - self.last_start;
            check_length(len, self.len())?;
            self.longest = self.longest.max(len);
        }
        Ok(())
    }

    pub(super) fn len(&self) -> u64 {
        self.within.len() as u64
    }

    /// From its first byte to behind its end of line.
    pub(super) fn extent(&self, line: u64) -> Option<(u64, u64)> {
        let start = self.start(line)?;
        Some((start, self.start(line + 1).unwrap_or(self.end)))
    }

    fn start(&self, line: u64) -> Option<u64> {
        let line = usize::try_from(line).ok()?;
        let within = self.within.get(line)?;
        Some(self.groups.get(line / GROUP)? + u64::from(*within))
    }

    /// Bytes of the longest line.
    pub(super) fn longest(&self) -> u64 {
        self.longest
    }

    /// Bytes of memory that the index takes.
    pub(super) fn held_bytes(&self) -> u64 {
        (8 * self.groups.capacity() + 4 * self.within.capacity()) as u64
    }
}

fn check_length(len: u64, line: u64) -> Result<(), Problem> {
    if len <= MAX_LEN {
        return Ok(());
    }
    Err(Problem::malformed(
        format!("lines of at most {MAX_LEN} bytes"),
        format!("line {line} of {len} or more"),
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::indexes::written;

    proptest! {
        #[test]
        fn an_index_that_lies_gives_lines_inside_of_the_file(
            steps in prop::collection::vec(prop_oneof![0_u64..100, any::<u64>(), Just(MAX_LEN + 1)], 0..20),
            len in 0_u64..5000,
        ) {
            let kept = written(|keeping| steps.iter().for_each(|step| keeping.entry(step)));
            if let Ok(starts) = LineStarts::kept(kept, len, u64::MAX) {
                prop_assert_eq!(starts.len(), steps.len() as u64);
                for line in 0..starts.len() {
                    let (start, end) = starts.extent(line).unwrap();
                    prop_assert!(start < end && end <= len && end - start <= starts.longest());
                }
            }
        }
    }

    #[test]
    fn an_index_beyond_the_room_is_not_taken() {
        let of_lines = |room| {
            let kept = written(|keeping| (0..1000).for_each(|_| keeping.entry(&10_u64)));
            LineStarts::kept(kept, 1 << 20, room)
        };
        assert_eq!(of_lines(1 << 20).unwrap().len(), 1000);
        assert!(of_lines(1000).is_err());
    }
}
