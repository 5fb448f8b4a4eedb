//! Token ids: one long array, cut into blocks.

mod documents;
#[cfg(test)]
mod tests;

use std::path::Path;

use brimful::units::Bytes;

use crate::array::{DType, Field, FieldSpec, TensorSpec};
use crate::buffer::PAGE;
use crate::error::{ReadError, SourceError};
use crate::problem::Problem;
use crate::reading::{Access, Choice, Reader};
use crate::source::{Source, check_index, check_slot, check_slots};
use crate::sources::files::{choice_of, file_name};
use crate::sources::npy::{Header, MAGIC, swap_bytes};
use crate::sources::tokens::documents::{Documents, stored_type};
use crate::value::{Piece, Value};

pub use documents::{HEADER_BYTES, Header as DocumentsHeader, documents_path};

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
///
/// Where the file has documents, two more fields of `int32` say of each token which document of the block it is in,
/// counted from 0 (`document`), and its place in it (`position`), which goes on from block to block.
#[derive(Debug)]
pub struct Tokens {
    reader: Reader,
    start: u64,
    stored: DType,
    big_endian: bool,
    /// As they lie in the file.
    block_bytes: usize,
    form: TensorSpec,
    documents: Option<Documents>,
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
        let choice = choice_of([path], headroom)?;
        Tokens::opened(path, form, choice).map_err(|problem| problem.of(path))
    }

    /// The same with the documents of the file `NAME.documents` beside it, as [`crate::pack`] writes both. Without a type
    /// of the ids, the one that they were written with.
    pub fn open_with_documents(
        path: &Path,
        mut form: TokenForm,
        headroom: Option<Bytes>,
    ) -> Result<Tokens, SourceError> {
        let beside = documents_path(path);
        let choice = choice_of([path, &beside], headroom)?;
        let of_documents = |problem: Problem| problem.of(&beside);
        if form.stored.is_none() && path.extension().is_none_or(|extension| extension != "npy") {
            form.stored = Some(stored_type(&beside).map_err(of_documents)?);
        }
        let access = choice.access;
        let mut tokens = Tokens::opened(path, form, choice).map_err(|problem| problem.of(path))?;
        let documents = Documents::open(&beside, access).map_err(of_documents)?;
        tokens.take(documents).map_err(of_documents)?;
        Ok(tokens)
    }

    fn take(&mut self, documents: Documents) -> Result<(), Problem> {
        let header = documents.header();
        let (size, count) = (self.stored.size(), self.count());
        if (header.token_bytes as usize, header.tokens) != (size, count) {
            return Err(Problem::malformed(
                format!("the documents of {count} tokens of {size} bytes"),
                format!("those of {} of {}", header.tokens, header.token_bytes),
            ));
        }
        let form = TensorSpec::new(DType::I32, self.form.shape()).ok_or_else(|| {
            Problem::malformed("blocks that fit into memory", format!("{}", self.form))
        })?;
        self.fields
            .extend(["document", "position"].map(|name| Field {
                name: name.to_owned(),
                spec: FieldSpec::Array(form.clone()),
            }));
        self.documents = Some(documents);
        Ok(())
    }

    fn count(&self) -> u64 {
        self.len * self.form.elements() as u64 + self.dropped
    }

    fn opened(path: &Path, wanted: TokenForm, mut choice: Choice) -> Result<Tokens, Problem> {
        let reader = choice.open(path)?;
        let ids = Ids::find(&reader, wanted.stored)?;
        let dtype = if wanted.as_i64 { DType::I64 } else { ids.dtype };
        let stored_form =
            TensorSpec::new(ids.dtype, [wanted.block]).filter(|form| form.bytes() > 0);
        let (Some(stored_form), Some(form)) = (stored_form, TensorSpec::new(dtype, [wanted.block]))
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
                spec: FieldSpec::Array(form.clone()),
            }],
            form,
            documents: None,
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
        if self.reader.access() == Access::Mapped && !self.big_endian {
            let widened = |ids: &[u8]| widen(self.stored, ids, out);
            self.reader
                .view(offset, self.block_bytes, &mut [], widened)?;
            return Ok(());
        }
        if self.reader.access() == Access::Remote {
            // One request for all of it.
            let ids = spare.own(self.block_bytes);
            self.reader.read_to(offset, ids, &mut Piece::default())?;
            if self.big_endian {
                swap_bytes(ids, self.stored);
            }
            widen(self.stored, ids, out);
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

    fn max_sample_bytes(&self) -> u64 {
        let page = PAGE as u64;
        let read = self.reader.held_for(self.block_bytes as u64);
        let converted = if self.is_plain() {
            0
        } else {
            (self.form.bytes() as u64).next_multiple_of(page)
        };
        let documents = self.documents.as_ref().map_or(0, |documents| {
            let field = (self.form.elements() as u64 * 4).next_multiple_of(page);
            documents.held_for_fill().saturating_add(2 * field)
        });
        read.saturating_add(converted).saturating_add(documents)
    }

    fn read(&self, index: u64, values: &mut [Value]) -> Result<(), ReadError> {
        check_index(index, self.len)?;
        let Some((value, values)) = values.split_first_mut() else {
            return Ok(());
        };
        let offset = self.offset(index);
        if self.is_plain() {
            let piece = value.set_form(self.form.dtype(), self.form.shape());
            self.reader.read(offset, self.block_bytes, piece)?;
        } else {
            let out = value.set_array(self.form.dtype(), self.form.shape(), self.form.bytes());
            self.convert_to(offset, out, &mut Piece::default())?;
        }
        if let (Some(documents), [document, position]) = (&self.documents, values) {
            let bytes = self.form.elements() * DType::I32.size();
            let shape = self.form.shape();
            documents.fill(
                index * self.form.elements() as u64,
                document.set_array(DType::I32, shape, bytes),
                position.set_array(DType::I32, shape, bytes),
                &mut Piece::default(),
            )?;
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
        check_slots(slots, self.fields.len())?;
        let ([slot, slots @ ..], Some(value)) = (slots, values.first_mut()) else {
            return Err(ReadError::Malformed {
                expected: "one slot and one value to work with".to_owned(),
                found: "another number".to_owned(),
            });
        };
        check_slot(slot, self.form.bytes())?;
        let offset = self.offset(index);
        if self.is_plain() {
            self.reader.read_to(offset, slot, &mut value.piece)?;
        } else {
            self.convert_to(offset, slot, &mut value.piece)?;
        }
        if let (Some(documents), [document, position]) = (&self.documents, slots) {
            let bytes = self.form.elements() * DType::I32.size();
            check_slot(document, bytes)?;
            check_slot(position, bytes)?;
            let first = index * self.form.elements() as u64;
            documents.fill(first, document, position, &mut value.piece)?;
        }
        Ok(())
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
