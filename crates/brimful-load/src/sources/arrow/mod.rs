//! Arrow IPC files, in the file format and in the stream format that Hugging Face's `datasets` writes.
//!
//! When a file is opened, only the descriptions of its record batches are read, and from these follows where every
//! buffer of every column lies. A sample is then read by itself: the bytes of a column of fixed size directly, others
//! after their two offsets. The same code serves a map, which costs no copy, and reads.
//!
//! | Column | Field |
//! |---|---|
//! | numbers, bool | an array without sides |
//! | fixed-size lists of them, fixed-size binary, tensors | an array |
//! | lists of them, also nested | an array of varying sides; of fixed ones where Hugging Face's `Array2D` says so |
//! | binary, text | bytes |
//! | a struct of `bytes` and `path` | bytes of an image |
//!
//! A null, and a nested list whose parts differ in length, is an error of that sample.

mod batch;
mod column;
mod extension;
mod layout;
mod message;
mod nodes;
mod scan;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use brimful::units::Bytes;

use crate::array::Field;
use crate::buffer::PAGE;
use crate::error::{ReadError, SourceError};
use crate::problem::Problem;
use crate::reading::{Access, Choice, Reader};
use crate::source::{Source, check_index, check_slots};
use crate::sources::arrow::batch::ArrayOffsets;
use crate::sources::arrow::column::Readers;
use crate::sources::arrow::layout::Column;
use crate::sources::arrow::nodes::Leaf;
use crate::sources::arrow::scan::{Refused, Scan};
use crate::sources::files::{choice_of, file_name};
use crate::value::Value;

/// The rows of one or several Arrow files, one after another.
#[derive(Debug)]
pub struct ArrowFile {
    files: Vec<Part>,
    fields: Vec<Field>,
    len: u64,
    largest: u64,
    choice: Choice,
}

/// One file, or a stream in memory.
#[derive(Debug)]
pub(crate) struct Part {
    readers: Readers,
    columns: Vec<Column>,
    /// Number of its first row among those of all files.
    first: u64,
    len: u64,
    /// The first row of each record batch, counted within the file.
    batches: Vec<u64>,
    /// Of each record batch `stride`, column after column.
    spots: Vec<ArrayOffsets>,
    stride: usize,
}

impl ArrowFile {
    /// Opens files with the same columns. `columns` chooses some of them and their order; without it all are read.
    pub fn open(
        paths: &[PathBuf],
        columns: Option<&[String]>,
        headroom: Option<Bytes>,
    ) -> Result<ArrowFile, SourceError> {
        let choice = choice_of(paths.iter().map(PathBuf::as_path), headroom)?;
        let mut source = ArrowFile {
            files: Vec::new(),
            fields: Vec::new(),
            len: 0,
            largest: 0,
            choice,
        };
        for path in paths {
            source.add(path, columns).map_err(|refused| match refused {
                Refused::Problem(problem) => problem.of(path),
                Refused::NoSuchColumn { wanted, known } => SourceError::NoSuchField {
                    path: path.clone(),
                    wanted,
                    known,
                },
            })?;
        }
        if source.files.is_empty() {
            return Err(Problem::malformed("at least one file", "none").of(Path::new("")));
        }
        Ok(source)
    }

    fn add(&mut self, path: &Path, columns: Option<&[String]>) -> Result<(), Refused> {
        let mut part = Part::open(path, columns, &mut self.choice)?;
        let fields = part.columns.iter().map(|column| &column.field);
        if self.files.is_empty() {
            self.fields = fields.cloned().collect();
        } else {
            check_same(&self.fields, fields)?;
        }
        part.first = self.len;
        self.len = self
            .len
            .checked_add(part.len)
            .ok_or_else(|| Problem::malformed("rows that can be counted", "more"))?;
        self.largest = self.largest.max(part.largest()?);
        self.files.push(part);
        Ok(())
    }

    fn find(&self, index: u64) -> Option<(&Part, u64)> {
        let after = self.files.partition_point(|file| file.first <= index);
        let file = self.files.get(after.checked_sub(1)?)?;
        Some((file, index - file.first))
    }
}

/// An error where a file has other fields than the first.
pub(crate) fn check_same<'a>(
    expected: &[Field],
    found: impl ExactSizeIterator<Item = &'a Field>,
) -> Result<(), Problem> {
    let shown = |field: &Field| format!("{:?} of {}", field.name, field.spec);
    if expected.len() != found.len() {
        return Err(Problem::malformed(
            format!("{} columns as in the first file", expected.len()),
            format!("{}", found.len()),
        ));
    }
    for (expected, found) in expected.iter().zip(found) {
        if expected != found {
            return Err(Problem::malformed(
                format!("the column {} as in the first file", shown(expected)),
                shown(found),
            ));
        }
    }
    Ok(())
}

impl Part {
    fn open(path: &Path, columns: Option<&[String]>, choice: &mut Choice) -> Result<Part, Refused> {
        let data = choice.open(path)?;
        let places = match data.access() {
            Access::Direct => Some(Reader::open(path, Access::Read)?),
            Access::Mapped | Access::Read | Access::Remote => None,
        };
        let mut part = Part {
            readers: Readers { data, places },
            columns: Vec::new(),
            first: 0,
            len: 0,
            batches: Vec::new(),
            spots: Vec::new(),
            stride: 0,
        };
        part.walk(columns)?;
        Ok(part)
    }

    /// A stream in memory. `path` is where it comes from, for messages.
    pub(crate) fn of_stream(path: &Path, stream: Vec<u8>) -> Result<Part, Problem> {
        let mut part = Part {
            readers: Readers {
                data: Reader::of_memory(path, stream),
                places: None,
            },
            columns: Vec::new(),
            first: 0,
            len: 0,
            batches: Vec::new(),
            spots: Vec::new(),
            stride: 0,
        };
        match part.walk(None) {
            Ok(()) => Ok(part),
            Err(Refused::Problem(problem)) => Err(problem),
            Err(Refused::NoSuchColumn { wanted, .. }) => {
                Err(Problem::malformed(format!("a column {wanted:?}"), "none"))
            }
        }
    }

    fn walk(&mut self, columns: Option<&[String]>) -> Result<(), Refused> {
        let mut walk = Scan::default();
        walk.through(self.readers.places(), columns)?;
        self.columns = walk.columns;
        self.len = walk.rows;
        self.batches = walk.batches;
        self.spots = walk.spots;
        self.stride = self.columns.iter().map(n_spots).sum();
        Ok(())
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn fields(&self) -> impl ExactSizeIterator<Item = &Field> {
        self.columns.iter().map(|column| &column.field)
    }

    /// Bytes of memory that it takes, of a stream with all that is in it.
    pub(crate) fn held_bytes(&self) -> u64 {
        let index = size_of_val(self.batches.as_slice()) + size_of_val(self.spots.as_slice());
        self.readers.data.len() + index as u64
    }

    /// Reads one row, counted within it.
    pub(crate) fn read(&self, row: u64, values: &mut [Value]) -> Result<(), ReadError> {
        let (mut rest, row) = self.spots(row)?;
        for (column, value) in self.columns.iter().zip(values) {
            let own;
            (own, rest) = rest.split_at(n_spots(column));
            column.read(&self.readers, own, row, value)?;
        }
        Ok(())
    }

    /// The same into slots.
    pub(crate) fn read_into(
        &self,
        row: u64,
        slots: &mut [&mut [u8]],
        values: &mut [Value],
    ) -> Result<(), ReadError> {
        let (mut rest, row) = self.spots(row)?;
        check_slots(slots, self.columns.len())?;
        for ((column, slot), value) in self.columns.iter().zip(slots).zip(values) {
            let own;
            (own, rest) = rest.split_at(n_spots(column));
            column.read_into(&self.readers, own, row, slot, value)?;
        }
        Ok(())
    }

    /// The spots of the record batch of a row, and the row within it.
    fn spots(&self, row: u64) -> Result<(&[ArrayOffsets], u64), ReadError> {
        self.batch(row).ok_or_else(|| ReadError::Malformed {
            expected: format!("the record batch of row {row}"),
            found: "none".to_owned(),
        })
    }

    fn batch(&self, row: u64) -> Option<(&[ArrayOffsets], u64)> {
        let after = self.batches.partition_point(|&first| first <= row);
        let batch = after.checked_sub(1)?;
        let spots = self.spots.get(batch * self.stride..after * self.stride)?;
        Some((spots, row - self.batches.get(batch)?))
    }

    /// Bytes of memory that a sample takes at the most. A map takes none but for bits, so its offsets are not looked at.
    pub(crate) fn largest(&self) -> Result<u64, Problem> {
        let is_mapped = self.readers.data.access() == Access::Mapped;
        let mut sum = 0_u64;
        let mut first = 0;
        let mut looked_at = 0_u64;
        for column in &self.columns {
            let spots = first..first + n_spots(column);
            first = spots.end;
            if is_mapped && column.leaf.form != Leaf::Bits {
                continue;
            }
            let mut largest = 0;
            for batch in self.spots.chunks_exact(self.stride.max(1)) {
                looked_at = looked_at.saturating_add(column.offsets_bytes(&batch[spots.clone()]));
                if looked_at > self.readers.data.len() {
                    return Err(Problem::malformed(
                        "offsets that lie side by side",
                        "more than the file has bytes",
                    ));
                }
                let own = column
                    .largest(self.readers.places(), &batch[spots.clone()])
                    .map_err(|error| {
                        Problem::malformed("offsets that can be read", error.to_string())
                    })?;
                // Not more than there is; offsets that say more are an error when the sample is read.
                largest = largest.max(own.min(self.readers.data.len().saturating_mul(8)));
            }
            let held = match column.leaf.form {
                Leaf::Bits => largest.next_multiple_of(PAGE as u64),
                _ => self.readers.data.held_for(largest),
            };
            sum = sum.saturating_add(held);
        }
        Ok(sum)
    }
}

fn n_spots(column: &Column) -> usize {
    column.layers.len() + 1
}

impl Source for ArrowFile {
    fn len(&self) -> u64 {
        self.len
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn max_sample_bytes(&self) -> u64 {
        self.largest
    }

    fn read(&self, index: u64, values: &mut [Value]) -> Result<(), ReadError> {
        let (file, row) = self.row(index)?;
        file.read(row, values)
    }

    fn read_into(
        &self,
        index: u64,
        slots: &mut [&mut [u8]],
        values: &mut [Value],
    ) -> Result<(), ReadError> {
        let (file, row) = self.row(index)?;
        file.read_into(row, slots, values)
    }

    fn place(&self, index: u64) -> String {
        match self.find(index) {
            Some((file, row)) => format!("{}, row {row}", file_name(file.readers.data.path())),
            None => format!("row {index}"),
        }
    }

    fn choice(&self) -> &Choice {
        &self.choice
    }
}

impl ArrowFile {
    /// The file of a sample, and its row there.
    fn row(&self, index: u64) -> Result<(&Part, u64), ReadError> {
        check_index(index, self.len)?;
        self.find(index).ok_or_else(|| ReadError::Malformed {
            expected: format!("the file of row {index}"),
            found: "none".to_owned(),
        })
    }
}
