//! One field of one sample, on its way from the file to the batch.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;

use bytemuck::AnyBitPattern;

use crate::array::DType;
use crate::buffer::Buffer;
use brimful_mapping::Mapping;

/// Bytes of a file: read into memory of ours, or mapped.
#[derive(Clone, Debug)]
pub enum Piece {
    /// `buffer[start..start + len]`; a direct read begins before what was asked for.
    Owned {
        buffer: Buffer,
        start: usize,
        len: usize,
    },
    /// To be read inside a guard only, and to be believed after `Piece::check`: see [`brimful_mapping`].
    Mapped {
        map: Arc<Mapping>,
        start: usize,
        len: usize,
    },
}

impl Default for Piece {
    fn default() -> Piece {
        Piece::Owned {
            buffer: Buffer::default(),
            start: 0,
            len: 0,
        }
    }
}

impl Piece {
    pub fn bytes(&self) -> &[u8] {
        match self {
            Piece::Owned { buffer, start, len } => &buffer.bytes()[*start..*start + *len],
            Piece::Mapped { map, start, len } => &map.bytes()[*start..*start + *len],
        }
    }

    /// Makes it memory of its own of that length, with the buffer it has where that is large
    /// enough, and gives it to be written. It holds anything.
    pub fn own(&mut self, len: usize) -> &mut [u8] {
        self.own_buffer(0, len, len).bytes_mut()
    }

    /// The same where the wanted bytes lie inside of a larger read.
    pub fn own_buffer(&mut self, start: usize, len: usize, whole: usize) -> &mut Buffer {
        if matches!(self, Piece::Mapped { .. }) {
            *self = Piece::default();
        }
        let Piece::Owned {
            buffer,
            start: own_start,
            len: own_len,
        } = self
        else {
            unreachable!("made so above");
        };
        buffer.set_len(whole);
        (*own_start, *own_len) = (start, len);
        buffer
    }

    /// Keeps `len` bytes from `start` on.
    pub fn narrow(&mut self, start: usize, len: usize) {
        let (Piece::Owned {
            start: own_start,
            len: own_len,
            ..
        }
        | Piece::Mapped {
            start: own_start,
            len: own_len,
            ..
        }) = self;
        let start = start.min(*own_len);
        *own_len = len.min(*own_len - start);
        *own_start += start;
    }

    /// An error if what was read of it until now may not have been what the file holds.
    pub(crate) fn check(&self) -> io::Result<()> {
        match self {
            Piece::Owned { .. } => Ok(()),
            Piece::Mapped { map, start, len } => map.check(start + len),
        }
    }

    /// The same, whichever part of the file was read before it became this piece.
    pub(crate) fn check_all(&self) -> io::Result<()> {
        match self {
            Piece::Owned { .. } => Ok(()),
            Piece::Mapped { map, .. } => map.check_all(),
        }
    }

    /// Bytes of memory that it takes, besides mapped ones.
    pub fn held_bytes(&self) -> usize {
        match self {
            Piece::Owned { buffer, .. } => buffer.capacity(),
            Piece::Mapped { .. } => 0,
        }
    }
}

/// One field of one sample.
///
/// For encoded fields the type is [`DType::U8`] and the shape is the number of bytes.
#[derive(Clone, Debug)]
pub struct Value {
    pub dtype: DType,
    pub shape: Vec<usize>,
    pub piece: Piece,
}

impl Default for Value {
    fn default() -> Value {
        Value {
            dtype: DType::U8,
            shape: vec![0],
            piece: Piece::default(),
        }
    }
}

impl Value {
    pub fn bytes(&self) -> &[u8] {
        self.piece.bytes()
    }

    /// Its elements; copied only where the file did not align them.
    pub fn elements<T: AnyBitPattern>(&self) -> Cow<'_, [T]> {
        let bytes = self.piece.bytes();
        match bytemuck::try_cast_slice(bytes) {
            Ok(elements) => Cow::Borrowed(elements),
            Err(_) => Cow::Owned(
                bytes
                    .chunks_exact(size_of::<T>().max(1))
                    .map(bytemuck::pod_read_unaligned)
                    .collect(),
            ),
        }
    }

    /// Makes it an array of that form with memory of its own, and gives its bytes to be written.
    pub fn set_array(&mut self, dtype: DType, shape: &[usize], bytes: usize) -> &mut [u8] {
        self.dtype = dtype;
        self.shape.clear();
        self.shape.extend_from_slice(shape);
        self.piece.own(bytes)
    }

    /// Makes it an array of that form; its bytes are to be filled through the piece.
    pub fn set_form(&mut self, dtype: DType, shape: &[usize]) -> &mut Piece {
        self.dtype = dtype;
        self.shape.clear();
        self.shape.extend_from_slice(shape);
        &mut self.piece
    }

    /// Makes it encoded bytes; `fill` them through the piece.
    pub fn set_encoded(&mut self, len: usize) -> &mut Piece {
        self.dtype = DType::U8;
        self.shape.clear();
        self.shape.push(len);
        &mut self.piece
    }
}
