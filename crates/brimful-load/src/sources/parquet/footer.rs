//! What a file says of its row groups and columns, checked before it is believed.

use std::io;
use std::sync::Arc;

use arrow_schema::Schema;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::basic::{Compression, Type as Physical};
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    ColumnChunkMetaData, LevelHistogram, ParquetMetaData, ParquetMetaDataReader,
};

use crate::catch_panics::catch_panics;
use crate::problem::Problem;
use crate::reading::Reader;
use crate::sources::files::footer_start;
use crate::sources::parquet::thrift::{Met, walk};
use crate::value::Piece;

/// Ends a file, after the length of the footer.
const MAGIC: &[u8; 4] = b"PAR1";
const ENCRYPTED: &[u8; 4] = b"PARE";

/// Longest footer: that of 100,000 column chunks.
const MAX_LEN: u64 = 64 << 20;

/// Columns in columns, which are followed by recursion.
const MAX_DEPTH: usize = 32;

/// One file as it describes itself.
#[derive(Debug)]
pub(super) struct Footer {
    pub(super) metadata: ArrowReaderMetadata,
    pub(super) groups: Vec<RowGroup>,
}

/// Rows that are decoded together.
#[derive(Debug)]
pub(super) struct RowGroup {
    /// Its place in the file.
    pub(super) number: usize,
    pub(super) rows: u64,
    /// Where the columns lie, one for each leaf of the schema.
    pub(super) chunks: Vec<Chunk>,
}

/// The bytes of one leaf column in one row group. All of it is within the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    /// Number of the column of the table that it belongs to.
    pub(super) root: usize,
    pub(super) start: u64,
    pub(super) compressed: u64,
    /// As the file says; its pages are held to it.
    pub(super) uncompressed: u64,
    pub(super) values: u64,
    /// Bytes of one value; of a varying one, those of its offset.
    pub(super) width: u64,
    pub(super) is_varying: bool,
    /// The encodings of its pages, a bit for each.
    pub(super) encodings: i32,
    /// Bytes of all varying values together, where the file says so.
    pub(super) varying: u64,
}

impl Chunk {
    /// Bytes that its values take when they are decoded, as far as the file says: values that repeat may take more.
    pub(super) fn decoded(&self) -> u64 {
        let fixed = self.values.saturating_mul(self.width);
        self.uncompressed.max(fixed.saturating_add(self.varying))
    }
}

impl Footer {
    pub(super) fn read(reader: &Reader) -> Result<Footer, Problem> {
        let described = Arc::new(described(reader)?);
        let groups = checked_groups(&described, reader.len())?;
        let metadata =
            guarded(|| ArrowReaderMetadata::try_new(described, ArrowReaderOptions::new()))?;
        Ok(Footer { metadata, groups })
    }

    pub(super) fn schema(&self) -> &Schema {
        self.metadata.schema()
    }
}

/// What a file says of itself, none of it believed yet but that the parts which it promises are there.
pub(super) fn described(reader: &Reader) -> Result<ParquetMetaData, Problem> {
    let bytes = footer_bytes(reader)?;
    check(&bytes)?;
    guarded(|| ParquetMetaDataReader::decode_metadata(&bytes))
}

/// The row groups of a file of this length that have rows.
pub(super) fn checked_groups(
    described: &ParquetMetaData,
    file_len: u64,
) -> Result<Vec<RowGroup>, Problem> {
    let schema = described.file_metadata().schema_descr();
    if described.file_metadata().num_rows() < 0 {
        return Err(Problem::malformed("a number of rows", "one below zero"));
    }
    let mut groups = Vec::new();
    for (number, group) in described.row_groups().iter().enumerate() {
        if group.columns().len() != schema.num_columns() {
            return Err(Problem::malformed(
                format!("{} columns in row group {number}", schema.num_columns()),
                format!("{}", group.columns().len()),
            ));
        }
        let mut chunks = Vec::new();
        for (leaf, column) in group.columns().iter().enumerate() {
            if let codec @ (Compression::BROTLI(_) | Compression::LZO) = column.compression() {
                return Err(Problem::unsupported(
                    format!("a column compressed by {codec}"),
                    "write it with zstd, snappy, lz4 or gzip",
                ));
            }
            let root = schema.get_column_root_idx(leaf);
            let chunk = chunk(column, root, file_len).ok_or_else(|| {
                Problem::malformed(
                    format!("column {leaf} of row group {number} within the file"),
                    "one outside",
                )
            })?;
            if !has_levels_of_schema(column) {
                return Err(Problem::malformed(
                    format!("column {leaf} of row group {number} with the levels of its schema"),
                    "counts of others",
                ));
            }
            chunks.push(chunk);
        }
        let rows = count(group.num_rows())
            .ok_or_else(|| Problem::malformed("a number of rows", "one below zero"))?;
        if rows > 0 {
            groups.push(RowGroup {
                number,
                rows,
                chunks,
            });
        }
    }
    Ok(groups)
}

fn footer_bytes(reader: &Reader) -> Result<Vec<u8>, Problem> {
    let mut last = [0; 8];
    let Some(last_start) = reader.len().checked_sub(last.len() as u64 + 4) else {
        let found = format!("{} bytes", reader.len());
        return Err(Problem::malformed("a Parquet file", found));
    };
    let last_start = last_start + 4;
    reader.read_to(last_start, &mut last, &mut Piece::default())?;
    let [l0, l1, l2, l3, magic @ ..] = last;
    if &magic == ENCRYPTED {
        return Err(Problem::unsupported(
            "an encrypted Parquet file",
            "write it without encryption",
        ));
    }
    if &magic != MAGIC {
        return Err(Problem::malformed(
            "\"PAR1\" at the end of a Parquet file, written when it is closed",
            format!("\"{}\"", magic.escape_ascii()),
        ));
    }
    let len = u64::from(u32::from_le_bytes([l0, l1, l2, l3]));
    let start = footer_start(last_start, len, MAX_LEN)?;
    let mut bytes = vec![0; usize::try_from(len).map_err(io::Error::other)?];
    reader.read_to(start, &mut bytes, &mut Piece::default())?;
    Ok(bytes)
}

/// Whether the parts that a footer promises are there, how deep its schema is, and whether row groups have the types of
/// the schema, which the crate `parquet` takes from the schema alone.
fn check(bytes: &[u8]) -> Result<(), Problem> {
    // Of each element of the schema, how many of the following are within it.
    let mut children: Vec<i64> = Vec::new();
    // Of each column of the schema its type, and of each row group those of its columns.
    let mut types: Vec<i64> = Vec::new();
    let mut group_types: Vec<Vec<i64>> = Vec::new();
    let len = walk(bytes, &mut |way, met| match (way, met) {
        ([2], Met::Structure) => children.push(0),
        ([2, 1], Met::Number(n)) => types.push(n),
        ([2, 5], Met::Number(n)) => {
            if let Some(last) = children.last_mut() {
                *last = n;
            }
        }
        ([4], Met::Structure) => group_types.push(Vec::new()),
        ([4, 1, 3, 1], Met::Number(n)) => {
            if let Some(last) = group_types.last_mut() {
                last.push(n);
            }
        }
        _ => {}
    })?;
    if len.is_none() {
        return Err(Problem::malformed(
            "a whole footer",
            "the first part of one",
        ));
    }
    if let Some(number) = group_types.iter().position(|found| *found != types) {
        return Err(Problem::malformed(
            format!("row group {number} with columns of the types in the schema"),
            "columns of other types",
        ));
    }
    let n_elements = children.len() as u64;
    let mut open: Vec<i64> = Vec::new();
    for n in children {
        if u64::try_from(n).is_ok_and(|n| n >= n_elements) || n < 0 {
            return Err(Problem::malformed(
                format!("columns within a schema of {n_elements}"),
                format!("{n} in one of them"),
            ));
        }
        if let Some(left) = open.last_mut() {
            *left -= 1;
        }
        if n > 0 {
            open.push(n);
        }
        while open.last() == Some(&0) {
            open.pop();
        }
        if open.len() > MAX_DEPTH {
            return Err(Problem::malformed(
                format!("at most {MAX_DEPTH} columns in columns"),
                "more",
            ));
        }
    }
    Ok(())
}

/// Whether the counts of levels, where a writer notes them, are of as many levels as the schema gives the column. With a
/// flipped bit in the schema (optional, required, repeated), levels would be read as values.
fn has_levels_of_schema(column: &ColumnChunkMetaData) -> bool {
    let schema = column.column_descr();
    let is_same = |counts: Option<&LevelHistogram>, max_level: i16| {
        let n_levels = usize::try_from(max_level).unwrap_or(0) + 1;
        counts.is_none_or(|counts| counts.is_empty() || counts.len() == n_levels)
    };
    is_same(column.definition_level_histogram(), schema.max_def_level())
        && is_same(column.repetition_level_histogram(), schema.max_rep_level())
}

fn chunk(column: &ColumnChunkMetaData, root: usize, file_len: u64) -> Option<Chunk> {
    let start = column
        .dictionary_page_offset()
        .unwrap_or(column.data_page_offset());
    let (start, compressed) = (count(start)?, count(column.compressed_size())?);
    if start.checked_add(compressed)? > file_len {
        return None;
    }
    let width = match column.column_type() {
        Physical::BOOLEAN => 1,
        Physical::INT32 | Physical::FLOAT | Physical::BYTE_ARRAY => 4,
        Physical::INT64 | Physical::DOUBLE => 8,
        Physical::INT96 => 12,
        Physical::FIXED_LEN_BYTE_ARRAY => {
            u64::try_from(column.column_descr().type_length()).ok()?
        }
    };
    Some(Chunk {
        root,
        start,
        compressed,
        uncompressed: count(column.uncompressed_size())?,
        values: count(column.num_values())?,
        width,
        is_varying: column.column_type() == Physical::BYTE_ARRAY,
        encodings: column.encodings_mask().as_i32(),
        varying: column
            .unencoded_byte_array_data_bytes()
            .and_then(count)
            .unwrap_or(0),
    })
}

fn count(number: i64) -> Option<u64> {
    u64::try_from(number).ok()
}

/// Runs code of the crate `parquet`, which has assertions that bytes of a file can break (a negative offset of a column,
/// levels beyond those of the schema). What it was making is thrown away, so nothing half made is left.
pub(super) fn guarded<T>(work: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, Problem> {
    match catch_panics(work) {
        Some(Ok(made)) => Ok(made),
        Some(Err(ParquetError::NYI(what))) => Err(Problem::unsupported(
            what,
            "write the file with another encoding or compression",
        )),
        Some(Err(error)) => Err(Problem::malformed(
            "a sound Parquet file",
            error.to_string(),
        )),
        None => Err(Problem::malformed(
            "a sound Parquet file",
            "bytes that are none",
        )),
    }
}
