//! Parquet files. A row group is decoded as a whole and kept, inside of a bound, for the samples that follow.
//!
//! Parquet has no way to one row: it lies in pages that are compressed together. In order, each row group is decoded
//! once. In a random order nearly every sample needs another row group than the one before, unless all of them fit into
//! the cache: then every sample costs the decoding of a row group, and the data should be converted to Arrow once.
//!
//! | What | Bound |
//! |---|---|
//! | decoded row groups, and what decoding them takes | the cache |
//! | what a file promises of its parts, pages and values | checked before anything is reserved for it |
//!
//! A page that was written with a checksum is compared with it each time that it is decoded, by the crate `parquet`.
//!
//! The fields are those of the Arrow source.

mod cache;
mod decode;
mod footer;
mod in_memory;
mod pages;
#[cfg(test)]
mod tests;
mod thrift;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use brimful::units::Bytes;

use crate::array::{Field, FieldSpec};
use crate::buffer::PAGE;
use crate::error::{ReadError, SourceError};
use crate::problem::Problem;
use crate::reading::{Access, Choice, Reader};
use crate::remote;
use crate::source::{Source, check_index, check_slots};
use crate::sources::arrow::{Part, check_same};
use crate::sources::files::{choice_of, file_name};
use crate::sources::parquet::cache::{Cache, Group, Made};
use crate::sources::parquet::decode::{Failure, MAX_LEN, Root};
use crate::sources::parquet::footer::{Footer, RowGroup};
use crate::value::Value;

pub use in_memory::check_parquet;

/// What is kept of decoded row groups unless somebody says otherwise.
pub const CACHE: Bytes = Bytes(256 << 20);

/// The rows of one or several Parquet files, one after another.
#[derive(Debug)]
pub struct Parquet {
    files: Vec<File>,
    /// In the order of their rows.
    groups: Vec<RowGroupOffset>,
    fields: Vec<Field>,
    len: u64,
    largest: u64,
    cache: Cache,
    choice: Choice,
}

#[derive(Debug)]
struct File {
    reader: Arc<Reader>,
    footer: Footer,
    roots: Vec<Root>,
}

/// One row group of all files.
#[derive(Debug)]
struct RowGroupOffset {
    file: usize,
    /// Its place among the row groups of the file that have rows.
    group: usize,
    /// Number of its first row.
    first: u64,
    /// Bytes of decoded columns that memory is set aside for. It grows where values that repeat take more than the file
    /// says.
    decoded: AtomicU64,
    /// Bytes that decoding takes besides.
    working: u64,
}

impl Parquet {
    /// Opens files with the same columns. `columns` chooses some of them and their order; without it all are read.
    /// `cache` are the bytes for decoded row groups.
    pub fn open(
        paths: &[PathBuf],
        columns: Option<&[String]>,
        cache: Bytes,
        headroom: Option<Bytes>,
    ) -> Result<Parquet, SourceError> {
        let mut source = Parquet {
            files: Vec::new(),
            groups: Vec::new(),
            fields: Vec::new(),
            len: 0,
            largest: 0,
            cache: Cache::new(cache.get()),
            choice: choice_of(paths.iter().map(PathBuf::as_path), headroom)?,
        };
        for path in paths {
            let reader = Reader::open(path, source.choice.access)
                .map_err(|cause| Problem::from(cause).of(path))?;
            let footer = Footer::read(&reader).map_err(|problem| problem.of(path))?;
            let roots = roots(&footer, columns, path)?;
            source
                .add(path, reader, footer, roots)
                .map_err(|problem| problem.of(path))?;
        }
        if source.files.is_empty() {
            return Err(Problem::malformed("at least one file", "none").of(Path::new("")));
        }
        source.choice.reason += &source.in_row_groups();
        Ok(source)
    }

    fn add(
        &mut self,
        path: &Path,
        reader: Reader,
        footer: Footer,
        roots: Vec<Root>,
    ) -> Result<(), Problem> {
        let mut fields = Vec::new();
        for root in &roots {
            fields.extend(root.described(path)?.fields().cloned());
        }
        if self.files.is_empty() {
            self.fields = fields;
        } else {
            check_same(&self.fields, fields.iter())?;
        }
        for (number, group) in footer.groups.iter().enumerate() {
            let place = RowGroupOffset {
                file: self.files.len(),
                group: number,
                first: self.len,
                decoded: AtomicU64::new(decoded(group, &roots)),
                working: working(group, &roots),
            };
            if place.needed() > self.cache.most() {
                return Err(too_large(group, place.needed(), self.cache.most()));
            }
            self.largest = self.largest.max(self.longest_sample(group, &roots));
            self.len = self
                .len
                .checked_add(group.rows)
                .ok_or_else(|| Problem::malformed("rows that can be counted", "more"))?;
            self.groups.push(place);
        }
        self.files.push(File {
            reader: Arc::new(reader),
            footer,
            roots,
        });
        Ok(())
    }

    /// Bytes of a sample at the most: of fixed fields their own, of others the longest that is read.
    fn longest_sample(&self, group: &RowGroup, roots: &[Root]) -> u64 {
        let mut sum = 0_u64;
        for (field, root) in self.fields.iter().zip(roots) {
            let bytes = match &field.spec {
                FieldSpec::Array(form) => form.bytes() as u64,
                FieldSpec::Ragged { .. } | FieldSpec::Encoded(_) => {
                    root_decoded(group, root).min(MAX_LEN)
                }
            };
            let pages = bytes.checked_next_multiple_of(PAGE as u64);
            sum = sum.saturating_add(pages.unwrap_or(u64::MAX));
        }
        sum
    }

    fn in_row_groups(&self) -> String {
        let needed = self.groups.iter().map(RowGroupOffset::needed);
        let all = needed.fold(0, u64::saturating_add);
        let cache = Bytes(self.cache.most());
        let n = self.groups.len();
        if all <= cache.get() {
            return format!("; in {n} row groups, which all fit into the cache of {cache}");
        }
        format!(
            "; in {n} row groups, of which the cache of {cache} holds some: in order each is decoded once, but shuffled \
             reading decodes a row group for nearly every sample: convert to Arrow for that"
        )
    }

    /// The row group of a sample, and its row there.
    fn find(&self, index: u64) -> Result<(&RowGroupOffset, u64), ReadError> {
        check_index(index, self.len)?;
        let after = self.groups.partition_point(|place| place.first <= index);
        let place = after.checked_sub(1).and_then(|at| self.groups.get(at));
        place
            .map(|place| (place, index - place.first))
            .ok_or_else(|| ReadError::Malformed {
                expected: format!("the row group of row {index}"),
                found: "none".to_owned(),
            })
    }

    /// Calls `read` with the decoded row group of a place.
    fn with_group(
        &self,
        place: &RowGroupOffset,
        read: impl FnOnce(&Group) -> Result<(), ReadError>,
    ) -> Result<(), ReadError> {
        let mut read = Some(read);
        loop {
            let decoded = place.decoded.load(Ordering::Relaxed);
            let made: Arc<Made> = self
                .cache
                .get((place.file, place.group), place.needed(), || {
                    self.decode(place, decoded)
                });
            if let Some(group) = made.group()? {
                return read.take().map_or(Ok(()), |read| read(group));
            }
            // Values repeat: what the file says of them is too little.
            let more = decoded.saturating_mul(2);
            if more.saturating_add(place.working) > self.cache.most() {
                return Err(ReadError::Malformed {
                    expected: format!(
                        "a row group that takes at most the {} of the cache when it is decoded",
                        Bytes(self.cache.most())
                    ),
                    found: "a larger one; give `cache` more, write smaller row groups, or convert to Arrow".to_owned(),
                });
            }
            place.decoded.fetch_max(more, Ordering::Relaxed);
        }
    }

    fn decode(&self, place: &RowGroupOffset, most: u64) -> Result<Group, Failure> {
        let file = &self.files[place.file];
        let group = &file.footer.groups[place.group];
        let mut bytes = 0;
        let mut columns: Vec<Part> = Vec::new();
        for root in &file.roots {
            let left = most.saturating_sub(bytes);
            let part = root.decode(&file.reader, &file.footer, group, left);
            let part = part.map_err(|failure| match file.reader.check_whole() {
                Ok(()) => failure,
                // The decoder says something else of a file that has lost its end.
                Err(truncated) => Failure::Problem(truncated.into()),
            })?;
            bytes += part.held_bytes();
            columns.push(part);
        }
        Ok(Group { columns, bytes })
    }
}

impl RowGroupOffset {
    fn needed(&self) -> u64 {
        let decoded = self.decoded.load(Ordering::Relaxed);
        decoded.saturating_add(self.working)
    }
}

impl Source for Parquet {
    fn len(&self) -> u64 {
        self.len
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn max_sample_bytes(&self) -> u64 {
        self.largest
    }

    fn kept_bytes(&self) -> u64 {
        let windows = match self.choice.access {
            Access::Remote => remote::KEPT,
            Access::Mapped | Access::Read | Access::Direct => 0,
        };
        self.cache.most().saturating_add(windows)
    }

    fn read(&self, index: u64, values: &mut [Value]) -> Result<(), ReadError> {
        let (place, row) = self.find(index)?;
        self.with_group(place, |group| {
            for (column, value) in group.columns.iter().zip(values) {
                column.read(row, std::slice::from_mut(value))?;
            }
            Ok(())
        })
    }

    fn read_into(
        &self,
        index: u64,
        slots: &mut [&mut [u8]],
        values: &mut [Value],
    ) -> Result<(), ReadError> {
        let (place, row) = self.find(index)?;
        check_slots(slots, self.fields.len())?;
        self.with_group(place, |group| {
            for ((column, slot), value) in group.columns.iter().zip(slots).zip(values) {
                let slot = std::slice::from_mut(slot);
                column.read_into(row, slot, std::slice::from_mut(value))?;
            }
            Ok(())
        })
    }

    fn place(&self, index: u64) -> String {
        match self.find(index) {
            Ok((place, row)) => {
                let file = &self.files[place.file];
                let number = file.footer.groups[place.group].number;
                let name = file_name(file.reader.path());
                format!("{name}, row {row} of row group {number}")
            }
            Err(_) => format!("row {index}"),
        }
    }

    fn choice(&self) -> &Choice {
        &self.choice
    }
}

/// The columns that are wanted, in the order in which they are.
fn roots(
    footer: &Footer,
    wanted: Option<&[String]>,
    path: &Path,
) -> Result<Vec<Root>, SourceError> {
    let schema = footer.schema();
    let names = || schema.fields().iter().map(|field| field.name());
    let mut numbers = Vec::new();
    match wanted {
        None => numbers.extend(0..schema.fields().len()),
        Some(wanted) => {
            for wanted in wanted {
                let number = names().position(|name| name == wanted).ok_or_else(|| {
                    SourceError::NoSuchField {
                        path: path.to_owned(),
                        wanted: wanted.clone(),
                        known: names().take(100).cloned().collect(),
                    }
                })?;
                numbers.push(number);
            }
        }
    }
    let mut roots: Vec<Root> = Vec::new();
    for number in numbers {
        let field = Arc::clone(&schema.fields()[number]);
        let is_same = |root: &Root| root.schema.field(0).name() == field.name();
        if roots.iter().any(is_same) {
            let found = format!("{:?} twice", field.name());
            return Err(Problem::malformed("each column once", found).of(path));
        }
        let schema = arrow_schema::Schema::new_with_metadata([field], schema.metadata().clone());
        roots.push(Root { number, schema });
    }
    Ok(roots)
}

/// Bytes of a decoded column, with its offsets.
fn root_decoded(group: &RowGroup, root: &Root) -> u64 {
    let chunks = group
        .chunks
        .iter()
        .filter(|chunk| chunk.root == root.number);
    chunks.fold(0, |sum, chunk| {
        let offsets = chunk.values.saturating_mul(4);
        sum.saturating_add(chunk.decoded()).saturating_add(offsets)
    })
}

/// Bytes of a decoded row group: what the file says, and something for the frame of every batch.
fn decoded(group: &RowGroup, roots: &[Root]) -> u64 {
    let frames = roots.len() as u64 * (16 << 10);
    let sum = roots.iter().fold(frames, |sum, root| {
        sum.saturating_add(root_decoded(group, root))
    });
    sum.saturating_add(sum / 8)
}

/// Bytes that the column with the most of them takes while it is decoded: its pages as they are and decompressed, and the
/// rows on their way, at the worst all of them.
fn working(group: &RowGroup, roots: &[Root]) -> u64 {
    let of_root = |root: &Root| {
        let chunks = group
            .chunks
            .iter()
            .filter(|chunk| chunk.root == root.number);
        chunks.fold(0_u64, |sum, chunk| {
            sum.saturating_add(chunk.compressed)
                .saturating_add(chunk.uncompressed)
                .saturating_add(chunk.decoded())
        })
    };
    roots.iter().map(of_root).max().unwrap_or(0)
}

fn too_large(group: &RowGroup, needed: u64, cache: u64) -> Problem {
    Problem::unsupported(
        format!(
            "row group {} of {} rows, which takes {} while it is decoded where the cache has {},",
            group.number,
            group.rows,
            Bytes(needed),
            Bytes(cache)
        ),
        format!(
            "give `cache` at least {}, write the file with smaller row groups, or convert it to Arrow",
            Bytes(needed)
        ),
    )
}
