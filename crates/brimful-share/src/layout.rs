//! The words of the format: the header, the slot that stands for one value, and what a slot says.

use crate::error::Damaged;

/// What a shared copy is known by: chance, so that a descriptor that is used anew is noticed.
pub type Id = [u8; 16];

/// Levels of lists in lists that are written, and followed when read.
pub const MAX_DEPTH: usize = 200;

pub const HEADER_BYTES: usize = 64;
const MAGIC: [u8; 8] = *b"brimful\x01";

/// The beginning of the file. It is written last, so that a copy that was cut short has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub id: Id,
    /// Bytes of the file.
    pub len: u64,
    pub root: Slot,
}

impl Header {
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..24].copy_from_slice(&self.id);
        bytes[24..32].copy_from_slice(&self.len.to_le_bytes());
        bytes[32..48].copy_from_slice(&self.root.to_bytes());
        bytes
    }

    /// Reads the header of a file of which these are all bytes, or at least the first.
    pub fn read(bytes: &[u8]) -> Result<Header, Damaged> {
        let damaged = Damaged {
            expected: "the header of a shared copy",
            at: 0,
        };
        let head: &[u8; HEADER_BYTES] = bytes.first_chunk().ok_or(damaged)?;
        if head[..8] != MAGIC {
            return Err(damaged);
        }
        let mut id = Id::default();
        id.copy_from_slice(&head[8..24]);
        Ok(Header {
            id,
            len: word(head, 24)?,
            root: Slot::read(head, 32)?,
        })
    }
}

/// One value in 16 bytes: what it is, and it itself or where it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// The tag in the lowest byte; above it a length.
    head: u64,
    payload: u64,
}

/// Lengths of texts have 56 bits.
const MAX_LEN: u64 = (1 << 56) - 1;

const NONE: u8 = 0;
const BOOL: u8 = 1;
const INT: u8 = 2;
const FLOAT: u8 = 3;
const STR: u8 = 4;
const LOOSE_STR: u8 = 5;
const BYTES: u8 = 6;
const BIG_INT: u8 = 7;
const SCALAR: u8 = 8;
const LIST: u8 = 9;
const TUPLE: u8 = 10;
const DICT: u8 = 11;
const ARRAY: u8 = 12;
const TENSOR: u8 = 13;

/// What a slot says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Item<'a> {
    None,
    Bool(bool),
    Int(i64),
    /// Two's complement, little endian: what does not fit into 64 bits.
    BigInt(&'a [u8]),
    Float(f64),
    /// UTF-8, if the bytes are sound; who makes text of it checks.
    Str(&'a [u8]),
    /// Text with halves of surrogate pairs, as file names that are not UTF-8 become in Python.
    LooseStr(&'a [u8]),
    Bytes(&'a [u8]),
    /// A NumPy scalar: the code of its type and its bytes.
    Scalar(u8, [u8; 8]),
    /// Containers and arrays, by the offset of their node.
    List(u64),
    Tuple(u64),
    Dict(u64),
    Array(u64),
    Tensor(u64),
}

impl Slot {
    pub const SIZE: usize = 16;

    pub fn none() -> Slot {
        Slot::new(NONE, 0, 0)
    }

    pub fn bool(value: bool) -> Slot {
        Slot::new(BOOL, 0, u64::from(value))
    }

    pub fn int(value: i64) -> Slot {
        Slot::new(INT, 0, value.cast_unsigned())
    }

    pub fn float(value: f64) -> Slot {
        Slot::new(FLOAT, 0, value.to_bits())
    }

    pub fn scalar(code: u8, bytes: [u8; 8]) -> Slot {
        Slot::new(SCALAR, u64::from(code), u64::from_le_bytes(bytes))
    }

    pub fn list(at: u64) -> Slot {
        Slot::new(LIST, 0, at)
    }

    pub fn tuple(at: u64) -> Slot {
        Slot::new(TUPLE, 0, at)
    }

    pub fn dict(at: u64) -> Slot {
        Slot::new(DICT, 0, at)
    }

    pub(crate) fn array(at: u64) -> Slot {
        Slot::new(ARRAY, 0, at)
    }

    pub(crate) fn tensor(at: u64) -> Slot {
        Slot::new(TENSOR, 0, at)
    }

    pub(crate) fn str(at: u64, len: u64) -> Slot {
        Slot::new(STR, len, at)
    }

    pub(crate) fn loose_str(at: u64, len: u64) -> Slot {
        Slot::new(LOOSE_STR, len, at)
    }

    pub(crate) fn bytes(at: u64, len: u64) -> Slot {
        Slot::new(BYTES, len, at)
    }

    pub(crate) fn big_int(at: u64, len: u64) -> Slot {
        Slot::new(BIG_INT, len, at)
    }

    fn new(tag: u8, len: u64, payload: u64) -> Slot {
        Slot {
            head: u64::from(tag) | (len.min(MAX_LEN) << 8),
            payload,
        }
    }

    pub(crate) fn to_bytes(self) -> [u8; Slot::SIZE] {
        let mut bytes = [0; Slot::SIZE];
        bytes[..8].copy_from_slice(&self.head.to_le_bytes());
        bytes[8..].copy_from_slice(&self.payload.to_le_bytes());
        bytes
    }

    pub(crate) fn read(bytes: &[u8], at: usize) -> Result<Slot, Damaged> {
        let pair: &[u8; Slot::SIZE] = chunk(bytes, at)?;
        let (head, payload) = pair.split_at(8);
        Ok(Slot {
            head: word(head, 0)?,
            payload: word(payload, 0)?,
        })
    }

    /// What it says, of these bytes.
    pub fn item(self, bytes: &[u8]) -> Result<Item<'_>, Damaged> {
        let at = self.payload;
        let span = || part(bytes, at, self.head >> 8);
        let tag = self.head.to_le_bytes()[0];
        Ok(match tag {
            NONE => Item::None,
            BOOL => Item::Bool(at != 0),
            INT => Item::Int(at.cast_signed()),
            FLOAT => Item::Float(f64::from_bits(at)),
            STR => Item::Str(span()?),
            LOOSE_STR => Item::LooseStr(span()?),
            BYTES => Item::Bytes(span()?),
            BIG_INT => Item::BigInt(span()?),
            SCALAR => Item::Scalar(self.head.to_le_bytes()[1], at.to_le_bytes()),
            LIST => Item::List(at),
            TUPLE => Item::Tuple(at),
            DICT => Item::Dict(at),
            ARRAY => Item::Array(at),
            TENSOR => Item::Tensor(at),
            _ => {
                return Err(Damaged {
                    expected: "a kind of value",
                    at,
                });
            }
        })
    }
}

/// `len` bytes at `at`.
pub(crate) fn part(bytes: &[u8], at: u64, len: u64) -> Result<&[u8], Damaged> {
    let start = usize::try_from(at).ok();
    let end = at
        .checked_add(len)
        .and_then(|end| usize::try_from(end).ok());
    start
        .zip(end)
        .and_then(|(start, end)| bytes.get(start..end))
        .ok_or(Damaged {
            expected: "bytes inside the copy",
            at,
        })
}

pub(crate) fn chunk<const N: usize>(bytes: &[u8], at: usize) -> Result<&[u8; N], Damaged> {
    bytes
        .get(at..)
        .and_then(<[u8]>::first_chunk)
        .ok_or(Damaged {
            expected: "bytes inside the copy",
            at: at as u64,
        })
}

pub(crate) fn word(bytes: &[u8], at: usize) -> Result<u64, Damaged> {
    chunk(bytes, at).map(|word| u64::from_le_bytes(*word))
}

/// So many words at an offset that a file names.
pub(crate) fn words<const N: usize>(bytes: &[u8], at: u64) -> Result<[u64; N], Damaged> {
    let all = part(bytes, at, 8 * N as u64)?;
    let mut found = [0; N];
    for (idx, value) in found.iter_mut().enumerate() {
        *value = word(all, 8 * idx)?;
    }
    Ok(found)
}
