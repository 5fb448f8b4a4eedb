//! NumPy arrays: `.npy` files, and raw memory maps without a header.
//!
//! One file is one field, its first side numbers the samples. A sample lies in one piece, so a mapped file is read
//! without a copy; a big-endian one is turned while it is copied.

mod header;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use brimful::units::Bytes;

pub(crate) use crate::sources::npy::header::{Header, MAGIC};

use crate::array::{DType, Field, FieldSpec, TensorSpec};
use crate::buffer::PAGE;
use crate::error::{ReadError, SourceError};
use crate::problem::Problem;
use crate::reading::{Choice, Reader};
use crate::source::{Source, check_index, check_slot, check_slots};
use crate::sources::files::{choice_of, file_name};
use crate::value::{Piece, Value};

/// One or several arrays of the same length, one field each.
#[derive(Debug)]
pub struct Npy {
    columns: Vec<Column>,
    fields: Vec<Field>,
    len: u64,
    choice: Choice,
}

/// The array of one field.
#[derive(Debug)]
struct Column {
    reader: Reader,
    start: u64,
    form: TensorSpec,
    big_endian: bool,
}

impl Npy {
    /// Opens `.npy` files, each with the name of the field that it becomes.
    pub fn open(fields: &[(String, PathBuf)], headroom: Option<Bytes>) -> Result<Npy, SourceError> {
        let mut choice = choice_of(fields.iter().map(|(_, path)| path.as_path()), headroom)?;
        let mut opened = Vec::new();
        for (name, path) in fields {
            let (column, len) =
                Column::open(path, &mut choice).map_err(|problem| problem.of(path))?;
            opened.push((name, path, column, len));
        }
        let Some(&(_, first, _, len)) = opened.first() else {
            return Err(Problem::malformed("at least one file", "none").of(Path::new("")));
        };
        let mut source = Npy {
            columns: Vec::new(),
            fields: Vec::new(),
            len,
            choice,
        };
        for (name, path, column, own_len) in opened {
            if own_len != len {
                return Err(Problem::malformed(
                    format!("{len} samples, as in {}", file_name(first)),
                    format!("{own_len}"),
                )
                .of(path));
            }
            source.add(name, path, column)?;
        }
        Ok(source)
    }

    /// Opens a file that holds nothing but elements, as `numpy.memmap` writes it.
    pub fn raw(
        name: &str,
        path: &Path,
        dtype: DType,
        sample_shape: &[usize],
        headroom: Option<Bytes>,
    ) -> Result<Npy, SourceError> {
        let mut choice = choice_of([path], headroom)?;
        let form = TensorSpec::new(dtype, sample_shape)
            .filter(|form| form.bytes() > 0)
            .ok_or_else(|| {
                let expected = "a sample of some bytes that fits into memory";
                Problem::malformed(expected, format!("{dtype} {sample_shape:?}")).of(path)
            })?;
        let reader = choice
            .open(path)
            .map_err(|cause| Problem::from(cause).of(path))?;
        let bytes = reader.len();
        if !bytes.is_multiple_of(form.bytes() as u64) {
            return Err(Problem::malformed(
                format!("a multiple of the {} bytes of {form}", form.bytes()),
                format!("{bytes} bytes"),
            )
            .of(path));
        }
        let len = bytes / form.bytes() as u64;
        let mut source = Npy {
            columns: Vec::new(),
            fields: Vec::new(),
            len,
            choice,
        };
        let column = Column {
            reader,
            start: 0,
            form,
            big_endian: false,
        };
        source.add(name, path, column)?;
        Ok(source)
    }

    fn add(&mut self, name: &str, path: &Path, column: Column) -> Result<(), SourceError> {
        if self.fields.iter().any(|field| field.name == name) {
            let found = format!("{name:?} a second time");
            return Err(Problem::malformed("a name of its own", found).of(path));
        }
        self.fields.push(Field {
            name: name.to_owned(),
            spec: FieldSpec::Array(column.form.clone()),
        });
        self.columns.push(column);
        Ok(())
    }
}

impl Column {
    /// With the number of samples.
    fn open(path: &Path, choice: &mut Choice) -> Result<(Column, u64), Problem> {
        let reader = choice.open(path)?;
        let header = Header::read(&reader)?;
        let Some((&len, sample_shape)) = header.shape.split_first() else {
            return Err(Problem::malformed(
                "an array whose first side numbers the samples",
                "a single number",
            ));
        };
        let len = len as u64;
        let shown = || format!("{} {:?}", header.dtype, header.shape);
        let form = TensorSpec::new(header.dtype, sample_shape)
            .ok_or_else(|| Problem::malformed("an array that fits into memory", shown()))?;
        let end = (form.bytes() as u64)
            .checked_mul(len)
            .and_then(|bytes| bytes.checked_add(header.start));
        if end.is_none_or(|end| end > reader.len()) {
            return Err(Problem::malformed(
                format!("all elements of {}", shown()),
                format!("a file of {} bytes", reader.len()),
            ));
        }
        let column = Column {
            reader,
            start: header.start,
            form,
            big_endian: header.big_endian,
        };
        Ok((column, len))
    }

    fn offset(&self, index: u64) -> u64 {
        // Below the file's length, as checked when it was opened.
        self.start + index * self.form.bytes() as u64
    }

    fn read(&self, index: u64, value: &mut Value) -> Result<(), ReadError> {
        let (offset, len) = (self.offset(index), self.form.bytes());
        if self.big_endian {
            let out = value.set_array(self.form.dtype(), self.form.shape(), len);
            self.reader.read_to(offset, out, &mut Piece::default())?;
            swap_bytes(out, self.form.dtype());
        } else {
            let piece = value.set_form(self.form.dtype(), self.form.shape());
            self.reader.read(offset, len, piece)?;
        }
        Ok(())
    }

    fn held(&self) -> u64 {
        let bytes = self.form.bytes() as u64;
        let turned = if self.big_endian {
            bytes.next_multiple_of(PAGE as u64)
        } else {
            0
        };
        self.reader.held_for(bytes).saturating_add(turned)
    }
}

impl Source for Npy {
    fn len(&self) -> u64 {
        self.len
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn max_sample_bytes(&self) -> u64 {
        self.columns
            .iter()
            .fold(0, |bytes, column| bytes.saturating_add(column.held()))
    }

    fn read(&self, index: u64, values: &mut [Value]) -> Result<(), ReadError> {
        check_index(index, self.len)?;
        for (column, value) in self.columns.iter().zip(values) {
            column.read(index, value)?;
        }
        Ok(())
    }

    fn read_into(
        &self,
        index: u64,
        slots: &mut [&mut [u8]],
        values: &mut [Value],
    ) -> Result<(), ReadError> {
        check_index(index, self.len)?;
        check_slots(slots, self.columns.len())?;
        for ((column, slot), value) in self.columns.iter().zip(slots).zip(values) {
            check_slot(slot, column.form.bytes())?;
            let offset = column.offset(index);
            column.reader.read_to(offset, slot, &mut value.piece)?;
            if column.big_endian {
                swap_bytes(slot, column.form.dtype());
            }
        }
        Ok(())
    }

    fn place(&self, index: u64) -> String {
        let path = self
            .columns
            .first()
            .map_or(Path::new(""), |column| column.reader.path());
        format!("{}, sample {index}", file_name(path))
    }

    fn choice(&self) -> &Choice {
        &self.choice
    }
}

/// Turns the bytes of every element around.
pub(crate) fn swap_bytes(bytes: &mut [u8], dtype: DType) {
    fn turn<const SIZE: usize>(bytes: &mut [u8]) {
        for element in bytes.as_chunks_mut::<SIZE>().0 {
            element.reverse();
        }
    }
    match dtype.size() {
        2 => turn::<2>(bytes),
        4 => turn::<4>(bytes),
        8 => turn::<8>(bytes),
        _ => {}
    }
}
