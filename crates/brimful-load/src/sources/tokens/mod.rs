//! Token ids: one long array, cut into blocks.

#[cfg(test)]
mod tests;

use std::path::Path;

use brimful::units::Bytes;

use crate::array::{DType, Field, Form, Kind};
use crate::buffer::PAGE;
use crate::error::{ReadError, SourceError};
use crate::reading::{Choice, Reader, choose};
use crate::source::{Source, check_index, check_slot};
use crate::sources::npy::{Header, MAGIC, swap_bytes};
use crate::sources::problem::{Problem, file_bytes, file_name};
use crate::value::{Piece, Value};

/// Token ids that are widened at a time, in bytes on the stack.
const CHUNK: usize = 4096;

/// How token ids lie in a file and how they are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenForm {
    /// The type of a file that holds nothing but ids; a `.npy` file says it itself.
    pub stored: Option<DType>,
    /// Tokens of a sample.
    pub block: usize,
    /// Widens them to int64, which torch takes as indexes.
    pub as_i64: bool,
}

/// Samples of one field, `tokens`: block after block of a file of token ids.
#[derive(Debug)]
pub struct Tokens {
    reader: Reader,
    start: u64,
    stored: DType,
    big_endian: bool,
    /// As they lie in the file.
    block_bytes: usize,
    form: Form,
    fields: Vec<Field>,
    len: u64,
    dropped: u64,
    choice: Choice,
}

impl Tokens {
    /// Opens a `.npy` file of one side, or a raw one of the type that is said.
    pub fn open(
        path: &Path,
        form: TokenForm,
        headroom: Option<Bytes>,
    ) -> Result<Tokens, SourceError> {
        let choice = choose(Bytes(file_bytes(path)?), headroom);
        Tokens::opened(path, form, choice).map_err(|problem| problem.of(path))
    }

    fn opened(path: &Path, wanted: TokenForm, mut choice: Choice) -> Result<Tokens, Problem> {
        let reader = choice.open(path)?;
        let ids = Ids::find(&reader, wanted.stored)?;
        let dtype = if wanted.as_i64 { DType::I64 } else { ids.dtype };
        let stored_form = Form::new(ids.dtype, [wanted.block]).filter(|form| form.bytes() > 0);
        let (Some(stored_form), Some(form)) = (stored_form, Form::new(dtype, [wanted.block]))
        else {
            return Err(Problem::malformed(
                "blocks of at least one token that fit into memory",
                format!("blocks of {}", wanted.block),
            ));
        };
        let block = wanted.block as u64;
        Ok(Tokens {
            reader,
            start: ids.start,
            stored: ids.dtype,
            big_endian: ids.big_endian,
            block_bytes: stored_form.bytes(),
            fields: vec![Field {
                name: "tokens".to_owned(),
                kind: Kind::Array(form.clone()),
            }],
            form,
            len: ids.count / block,
            dropped: ids.count % block,
            choice,
        })
    }

    /// Tokens at the end that fill no block.
    pub fn dropped_tokens(&self) -> u64 {
        self.dropped
    }

    fn offset(&self, index: u64) -> u64 {
        // Below the file's length: `len` is counted from it.
        self.start + index * self.block_bytes as u64
    }

    /// Whether the bytes of the file are those of the sample.
    fn is_plain(&self) -> bool {
        self.stored == self.form.dtype() && !self.big_endian
    }

    fn convert_to(&self, offset: u64, out: &mut [u8], spare: &mut Piece) -> Result<(), ReadError> {
        if self.stored == self.form.dtype() {
            self.reader.read_to(offset, out, spare)?;
            swap_bytes(out, self.stored);
            return Ok(());
        }
        if let (Some(map), false) = (self.reader.mapped(), self.big_endian) {
            // The block lies within the file, whose map has its length.
            let start = usize::try_from(offset).map_err(std::io::Error::other)?;
            widen(self.stored, &map[start..start + self.block_bytes], out);
            return Ok(());
        }
        let size = self.stored.size();
        let mut chunk = [0; CHUNK];
        let mut at = offset;
        for out in out.chunks_mut(CHUNK / size * DType::I64.size()) {
            let chunk = &mut chunk[..out.len() / DType::I64.size() * size];
            self.reader.read_to(at, chunk, spare)?;
            if self.big_endian {
                swap_bytes(chunk, self.stored);
            }
            widen(self.stored, chunk, out);
            at += chunk.len() as u64;
        }
        Ok(())
    }
}

/// Where the ids of a file are.
struct Ids {
    dtype: DType,
    big_endian: bool,
    start: u64,
    count: u64,
}

impl Ids {
    fn find(reader: &Reader, stored: Option<DType>) -> Result<Ids, Problem> {
        let mut first = [0; MAGIC.len()];
        let has_header = reader.len() >= MAGIC.len() as u64 && {
            reader.read_to(0, &mut first, &mut Piece::default())?;
            first == MAGIC
        };
        let ids = if has_header {
            Ids::of_header(reader, stored)?
        } else {
            let dtype = stored.ok_or_else(|| {
                Problem::malformed(
                    "a .npy file, or the type of the ids of a raw one",
                    "neither",
                )
            })?;
            let size = dtype.size() as u64;
            if !reader.len().is_multiple_of(size) {
                return Err(Problem::malformed(
                    format!("a multiple of the {size} bytes of {dtype}"),
                    format!("{} bytes", reader.len()),
                ));
            }
            Ids {
                dtype,
                big_endian: false,
                start: 0,
                count: reader.len() / size,
            }
        };
        match ids.dtype {
            DType::U16 | DType::U32 | DType::I32 | DType::I64 => Ok(ids),
            other => Err(Problem::unsupported(
                format!("an array of {other} as token ids"),
                "uint16, uint32, int32 and int64 are",
            )),
        }
    }

    fn of_header(reader: &Reader, stored: Option<DType>) -> Result<Ids, Problem> {
        let header = Header::read(reader)?;
        if stored.is_some_and(|stored| stored != header.dtype) {
            return Err(Problem::malformed(
                stored.map_or("ids", DType::name),
                format!("a .npy file of {}", header.dtype),
            ));
        }
        let &[count] = header.shape.as_slice() else {
            return Err(Problem::malformed(
                "an array of one side",
                format!("{:?}", header.shape),
            ));
        };
        let end = count
            .checked_mul(header.dtype.size())
            .and_then(|bytes| header.start.checked_add(bytes as u64));
        if end.is_none_or(|end| end > reader.len()) {
            return Err(Problem::malformed(
                format!("{count} elements of {}", header.dtype),
                format!("a file of {} bytes", reader.len()),
            ));
        }
        Ok(Ids {
            dtype: header.dtype,
            big_endian: header.big_endian,
            start: header.start,
            count: count as u64,
        })
    }
}

impl Source for Tokens {
    fn len(&self) -> u64 {
        self.len
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn largest_sample(&self) -> u64 {
        let read = self.reader.held_for(self.block_bytes as u64);
        if self.is_plain() {
            read
        } else {
            let converted = (self.form.bytes() as u64).next_multiple_of(PAGE as u64);
            read.saturating_add(converted)
        }
    }

    fn read(&self, index: u64, values: &mut [Value]) -> Result<(), ReadError> {
        check_index(index, self.len)?;
        let Some(value) = values.first_mut() else {
            return Ok(());
        };
        let offset = self.offset(index);
        if self.is_plain() {
            let piece = value.set_form(self.form.dtype(), self.form.shape());
            self.reader.read(offset, self.block_bytes, piece)?;
            return Ok(());
        }
        let out = value.set_array(self.form.dtype(), self.form.shape(), self.form.bytes());
        self.convert_to(offset, out, &mut Piece::default())
    }

    fn read_into(
        &self,
        index: u64,
        slots: &mut [&mut [u8]],
        values: &mut [Value],
    ) -> Result<(), ReadError> {
        check_index(index, self.len)?;
        let ([slot], Some(value)) = (slots, values.first_mut()) else {
            return Err(ReadError::Malformed {
                expected: "one slot and one value to work with".to_owned(),
                found: "another number".to_owned(),
            });
        };
        check_slot(slot, self.form.bytes())?;
        let offset = self.offset(index);
        if self.is_plain() {
            self.reader.read_to(offset, slot, &mut value.piece)?;
            return Ok(());
        }
        self.convert_to(offset, slot, &mut value.piece)
    }

    fn place(&self, index: u64) -> String {
        format!(
            "{}, tokens from {} on",
            file_name(self.reader.path()),
            index.saturating_mul(self.form.elements() as u64)
        )
    }

    fn choice(&self) -> &Choice {
        &self.choice
    }
}

/// Token ids as int64.
fn widen(stored: DType, ids: &[u8], out: &mut [u8]) {
    fn each<const SIZE: usize>(ids: &[u8], out: &mut [u8], widened: impl Fn([u8; SIZE]) -> i64) {
        let (ids, out) = (ids.as_chunks().0, out.as_chunks_mut().0);
        for (id, out) in ids.iter().zip(out) {
            *out = widened(*id).to_le_bytes();
        }
    }
    match stored {
        DType::U16 => each(ids, out, |id| i64::from(u16::from_le_bytes(id))),
        DType::U32 => each(ids, out, |id| i64::from(u32::from_le_bytes(id))),
        DType::I32 => each(ids, out, |id| i64::from(i32::from_le_bytes(id))),
        _ => out.copy_from_slice(ids),
    }
}
