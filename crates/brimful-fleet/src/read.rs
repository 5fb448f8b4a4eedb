//! Reading the rows of a file, whoever has written it.

use std::path::Path;
use std::sync::Arc;

use brimful::fleet::AttemptRow;
use brimful_load::sources::check_parquet;
use brimful_load::{SourceError, catch_panics};
use bytes::Bytes;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::DataType;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use parquet::file::serialized_reader::SerializedPageReader;

use crate::columns::{Cell, Column, columns};

/// Bytes of a file. One of a run has some kilobytes; somebody may have put many of them into one.
pub(crate) const MAX_FILE: u64 = 64 << 20;
/// Bytes of the pages of one column.
const MAX_COLUMN: u64 = 16 << 20;
/// Rows that are held at once.
const BATCH: usize = 1024;

/// Columns that nothing is counted by.
const NOT_COUNTED: &[&str] = &[
    "run",
    "host_name",
    "brimful_version",
    "slurm_job",
    "attempt",
    "is_resumed",
    "settings",
    "exit_code",
    "signal",
    "confidence",
    "n_false_alarms",
    "shm_peak_bytes",
    "gpu",
];

/// Which columns are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Columns {
    All,
    /// What a tally needs.
    Counted,
}

/// Why a file is not one of records.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreadable {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Parquet(#[from] ParquetError),
    #[error("bytes that no Parquet file has")]
    Panic,
    #[error("no column `schema_version` of integers")]
    NotRecords,
}

/// Reads every row of a file. If it fails in the middle, rows before that were read.
pub(crate) fn read_rows(
    path: &Path,
    bytes: Vec<u8>,
    which: Columns,
    take: &mut dyn FnMut(AttemptRow),
) -> Result<(), Unreadable> {
    let bytes = Bytes::from(bytes);
    let metadata = check_parquet(path, bytes.clone(), MAX_COLUMN)?;
    catch_panics(|| read_checked(&bytes, &metadata, which, take)).ok_or(Unreadable::Panic)?
}

fn read_checked(
    bytes: &Bytes,
    metadata: &ParquetMetaData,
    which: Columns,
    take: &mut dyn FnMut(AttemptRow),
) -> Result<(), Unreadable> {
    let wanted: Vec<Column> = columns()
        .into_iter()
        .filter(|column| which == Columns::All || !NOT_COUNTED.contains(&column.name))
        .collect();
    let source = Arc::new(bytes.clone());
    for group in metadata.row_groups() {
        let mut readers = Vec::new();
        for column in &wanted {
            if let Some(chunk) = chunk_of(group, column) {
                readers.push((column, reader_of(&source, chunk, group)?));
            }
        }
        let has_version = readers.iter().any(|(column, reader)| {
            column.name == "schema_version" && matches!(reader, ColumnReader::Int32ColumnReader(_))
        });
        if !has_version {
            return Err(Unreadable::NotRecords);
        }
        let mut left = usize::try_from(group.num_rows()).unwrap_or(0);
        while left > 0 {
            let n_rows = left.min(BATCH);
            let mut rows = vec![AttemptRow::default(); n_rows];
            for (column, reader) in &mut readers {
                read_column(reader, column, &mut rows)?;
            }
            rows.into_iter().for_each(&mut *take);
            left -= n_rows;
        }
    }
    Ok(())
}

/// The values of a column, unless they are lists.
fn chunk_of<'a>(group: &'a RowGroupMetaData, column: &Column) -> Option<&'a ColumnChunkMetaData> {
    group.columns().iter().find(|chunk| {
        let leaf = chunk.column_descr();
        let parts = leaf.path().parts();
        parts.len() == 1
            && parts[0] == column.name
            && leaf.max_rep_level() == 0
            && leaf.max_def_level() <= 1
            && chunk.num_values() == group.num_rows()
    })
}

fn reader_of(
    source: &Arc<Bytes>,
    chunk: &ColumnChunkMetaData,
    group: &RowGroupMetaData,
) -> Result<ColumnReader, ParquetError> {
    let n_rows = usize::try_from(group.num_rows()).unwrap_or(0);
    let pages = SerializedPageReader::new(Arc::clone(source), chunk, n_rows, None)?;
    Ok(get_column_reader(chunk.column_descr_ptr(), Box::new(pages)))
}

fn read_column(
    reader: &mut ColumnReader,
    column: &Column,
    rows: &mut [AttemptRow],
) -> Result<(), ParquetError> {
    match reader {
        ColumnReader::BoolColumnReader(reader) => fill(reader, column, rows, Cell::Flag),
        ColumnReader::Int32ColumnReader(reader) => fill(reader, column, rows, Cell::Int),
        ColumnReader::Int64ColumnReader(reader) => fill(reader, column, rows, Cell::Long),
        ColumnReader::DoubleColumnReader(reader) => fill(reader, column, rows, Cell::Real),
        ColumnReader::ByteArrayColumnReader(reader) => fill(reader, column, rows, |value| {
            Cell::Text(String::from_utf8_lossy(value.data()).into_owned())
        }),
        // Of another engine's making: as if it were missing.
        _ => Ok(()),
    }
}

fn fill<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    column: &Column,
    rows: &mut [AttemptRow],
    cell: impl Fn(T::T) -> Cell,
) -> Result<(), ParquetError> {
    let mut levels = Vec::new();
    let mut values = Vec::new();
    let (n_records, _, _) =
        reader.read_records(rows.len(), Some(&mut levels), None, &mut values)?;
    if n_records != rows.len() {
        return Err(ParquetError::EOF("a column has fewer rows".into()));
    }
    let is_complete = levels.is_empty();
    let mut values = values.into_iter();
    for (idx, row) in rows.iter_mut().enumerate() {
        let is_there = is_complete || levels.get(idx).is_some_and(|level| *level > 0);
        if let Some(value) = is_there.then(|| values.next()).flatten() {
            (column.set)(row, cell(value));
        }
    }
    Ok(())
}
