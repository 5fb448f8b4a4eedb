//! One column of one row group, from its pages to Arrow's layout in memory.
//!
//! The crate `parquet` decodes some rows at a time; these are written one behind the other as an Arrow stream, whose
//! samples the Arrow source knows how to read. So both formats give the same kinds of fields.

use std::io::{self, BufReader, Read, Write};
use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, Schema};
use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use crate::problem::Problem;
use crate::reading::Reader;
use crate::sources::arrow::Part;
use crate::sources::parquet::footer::{Footer, RowGroup, guarded};
use crate::sources::parquet::pages::Pages;
use crate::value::Piece;

/// Bytes and rows that are decoded at a time, about.
const BATCH: u64 = 4 << 20;
const MAX_ROWS: u64 = 8192;

/// What the crate `parquet` says of a page whose bytes do not match the checksum in its header.
const MISMATCH: &str = "CRC checksum mismatch";

/// Longest sample of a varying length.
pub(super) const MAX_LEN: u64 = 16 << 20;

/// Why a column is not there.
#[derive(Debug)]
pub(super) enum Failure {
    /// It takes more memory than was set aside.
    TooLarge,
    Problem(Problem),
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Failure {
        Failure::Problem(problem)
    }
}

/// One column of the table, with what it is as a field.
#[derive(Debug)]
pub(super) struct Root {
    /// Its number in the file.
    pub(super) number: usize,
    /// A schema of it alone, with what the file notes for the whole of it.
    pub(super) schema: Schema,
}

impl Root {
    /// A stream of no rows, which says what the column is.
    pub(super) fn described(&self, path: &Path) -> Result<Part, Problem> {
        let mut stream = Vec::new();
        StreamWriter::try_new(&mut stream, &self.schema)
            .and_then(|mut writer| writer.finish())
            .map_err(refused)?;
        Part::of_stream(path, stream)
    }

    /// Decodes it into at most `most` bytes.
    pub(super) fn decode(
        &self,
        reader: &Arc<Reader>,
        footer: &Footer,
        group: &RowGroup,
        most: u64,
    ) -> Result<Part, Failure> {
        let mut rows_bytes = 1;
        for chunk in group
            .chunks
            .iter()
            .filter(|chunk| chunk.root == self.number)
        {
            // What the file says is checked against the memory when it is opened.
            let pages = Pages::check(reader, chunk, chunk.decoded())?;
            let average = chunk.decoded().div_ceil(group.rows);
            rows_bytes = rows_bytes.max(average);
            if chunk.is_varying {
                rows_bytes = rows_bytes.max(pages.longest_repeated);
            }
        }
        let rows = (BATCH / rows_bytes).clamp(1, MAX_ROWS);
        let input = Input {
            reader: Arc::clone(reader),
            longest: group.chunks.iter().map(|chunk| chunk.compressed).max(),
        };
        let batches = guarded(|| {
            ParquetRecordBatchReaderBuilder::new_with_metadata(input, footer.metadata.clone())
                .with_projection(ProjectionMask::roots(
                    footer.metadata.parquet_schema(),
                    [self.number],
                ))
                .with_row_groups(vec![group.number])
                .with_batch_size(usize::try_from(rows).unwrap_or(1))
                .build()
        })?;
        let stream = self.written(batches, most)?;
        let part = Part::of_stream(reader.path(), stream)?;
        if part.len() != group.rows {
            return Err(Failure::Problem(Problem::malformed(
                format!("{} rows in row group {}", group.rows, group.number),
                format!("{}", part.len()),
            )));
        }
        let longest = part.largest()?;
        if part.fields().any(|field| !is_fixed(field)) && longest > MAX_LEN {
            return Err(Failure::Problem(Problem::malformed(
                format!("values of at most {MAX_LEN} bytes"),
                format!("one of {longest}"),
            )));
        }
        Ok(part)
    }

    fn written(
        &self,
        mut batches: impl Iterator<Item = Result<RecordBatch, ArrowError>>,
        most: u64,
    ) -> Result<Vec<u8>, Failure> {
        let room = BoundedBuffer {
            bytes: Vec::new(),
            most: usize::try_from(most).unwrap_or(usize::MAX),
            is_full: false,
        };
        let mut writer = StreamWriter::try_new(room, &self.schema).map_err(refused)?;
        while let Some(batch) = guarded(|| batches.next().transpose().map_err(ParquetError::from))
            .map_err(|problem| self.with_name(problem))?
        {
            if let Err(error) = writer.write(&batch) {
                if writer.get_ref().is_full {
                    return Err(Failure::TooLarge);
                }
                return Err(Failure::Problem(refused(error)));
            }
        }
        let mut stream = writer.into_inner().map_err(|_| Failure::TooLarge)?.bytes;
        stream.shrink_to_fit();
        Ok(stream)
    }

    /// Says of a wrong checksum which column it is in.
    fn with_name(&self, problem: Problem) -> Problem {
        match problem {
            Problem::Malformed { found, .. } if found.contains(MISMATCH) => Problem::malformed(
                format!(
                    "pages of column {:?} that match their checksums",
                    self.schema.field(0).name()
                ),
                "one that was damaged after it was written",
            ),
            problem => problem,
        }
    }
}

pub(super) fn is_fixed(field: &crate::array::Field) -> bool {
    matches!(field.spec, crate::array::FieldSpec::Array(_))
}

fn refused(error: ArrowError) -> Problem {
    match error {
        ArrowError::IoError(_, cause) => Problem::Unreadable(cause),
        error => Problem::malformed("a column that Arrow knows", error.to_string()),
    }
}

/// Memory that is written to up to a bound.
#[derive(Debug)]
struct BoundedBuffer {
    bytes: Vec<u8>,
    most: usize,
    is_full: bool,
}

impl Write for BoundedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = self.bytes.len() + bytes.len();
        if len > self.most {
            self.is_full = true;
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        if len > self.bytes.capacity() {
            // By an eighth each time: what it takes is counted.
            let wanted = (len + len / 8).min(self.most);
            self.bytes.reserve_exact(wanted - self.bytes.len());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The file as the crate `parquet` reads it: page by page.
#[derive(Debug)]
struct Input {
    reader: Arc<Reader>,
    /// No page is longer than its column.
    longest: Option<u64>,
}

impl Length for Input {
    fn len(&self) -> u64 {
        self.reader.len()
    }
}

impl ChunkReader for Input {
    type T = BufReader<Tail>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        let tail = Tail {
            reader: Arc::clone(&self.reader),
            at: start,
        };
        Ok(BufReader::with_capacity(1 << 10, tail))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        if self.longest.is_none_or(|longest| length as u64 > longest) {
            return Err(ParquetError::EOF(format!("a page of {length} bytes")));
        }
        let mut bytes = vec![0; length];
        self.reader
            .read_to(start, &mut bytes, &mut Piece::default())?;
        Ok(bytes.into())
    }
}

/// A file from a place on.
#[derive(Debug)]
struct Tail {
    reader: Arc<Reader>,
    at: u64,
}

impl Read for Tail {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let left = self.reader.len().saturating_sub(self.at);
        let len = out.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        self.reader
            .read_to(self.at, &mut out[..len], &mut Piece::default())?;
        self.at += len as u64;
        Ok(len)
    }
}
