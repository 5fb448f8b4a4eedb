//! Lists and arrays as they stand in the bytes.

use crate::error::Damaged;
use crate::layout::{Item, MAX_DEPTH, Slot, chunk, part, word, words};

/// How the items of a list are laid out. Lists of one kind are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemEncoding {
    Bools,
    U8,
    U16,
    U32,
    I8,
    I16,
    I32,
    I64,
    F64,
    /// Offsets of 4 bytes from a base, one more than there are texts; the texts stand one behind the other.
    Strs32,
    Strs64,
    Blobs32,
    Blobs64,
    /// Anything else: a [`Slot`] for each.
    Slots,
}

const ENCODINGS: [ItemEncoding; 14] = [
    ItemEncoding::Bools,
    ItemEncoding::U8,
    ItemEncoding::U16,
    ItemEncoding::U32,
    ItemEncoding::I8,
    ItemEncoding::I16,
    ItemEncoding::I32,
    ItemEncoding::I64,
    ItemEncoding::F64,
    ItemEncoding::Strs32,
    ItemEncoding::Strs64,
    ItemEncoding::Blobs32,
    ItemEncoding::Blobs64,
    ItemEncoding::Slots,
];

impl ItemEncoding {
    /// Bytes per entry of its table.
    pub fn width(self) -> usize {
        match self {
            ItemEncoding::Bools | ItemEncoding::U8 | ItemEncoding::I8 => 1,
            ItemEncoding::U16 | ItemEncoding::I16 => 2,
            ItemEncoding::U32
            | ItemEncoding::I32
            | ItemEncoding::Strs32
            | ItemEncoding::Blobs32 => 4,
            ItemEncoding::I64
            | ItemEncoding::F64
            | ItemEncoding::Strs64
            | ItemEncoding::Blobs64 => 8,
            ItemEncoding::Slots => Slot::SIZE,
        }
    }

    /// As NumPy spells it, where the table is one of plain numbers.
    pub fn number_type(self) -> Option<&'static str> {
        Some(match self {
            ItemEncoding::Bools => "|b1",
            ItemEncoding::U8 => "|u1",
            ItemEncoding::U16 => "<u2",
            ItemEncoding::U32 => "<u4",
            ItemEncoding::I8 => "|i1",
            ItemEncoding::I16 => "<i2",
            ItemEncoding::I32 => "<i4",
            ItemEncoding::I64 => "<i8",
            ItemEncoding::F64 => "<f8",
            ItemEncoding::Strs32
            | ItemEncoding::Strs64
            | ItemEncoding::Blobs32
            | ItemEncoding::Blobs64
            | ItemEncoding::Slots => {
                return None;
            }
        })
    }

    pub(crate) fn code(self) -> u64 {
        NODE_LIST
            + ENCODINGS
                .iter()
                .position(|encoding| *encoding == self)
                .expect("every encoding is in the table") as u64
    }
}

/// First words of nodes, so that no node is taken for one of another kind.
const NODE_LIST: u64 = 0x6c69_7374_0000;
pub(crate) const NODE_ARRAY: u64 = 0x6172_7261_7900;

/// A list (or what a tuple holds), of which the table was checked to lie inside of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct List {
    encoding: ItemEncoding,
    len: usize,
    table: usize,
    base: u64,
}

impl List {
    pub(crate) const WORDS: usize = 4;

    pub fn read(bytes: &[u8], at: u64) -> Result<List, Damaged> {
        let damaged = Damaged {
            expected: "a list",
            at,
        };
        let [code, len, table, base]: [u64; List::WORDS] = words(bytes, at)?;
        let encoding = code
            .checked_sub(NODE_LIST)
            .and_then(|idx| ENCODINGS.get(usize::try_from(idx).ok()?))
            .copied()
            .ok_or(damaged)?;
        // Offsets are one more than there are texts.
        let entries = match encoding {
            ItemEncoding::Strs32
            | ItemEncoding::Strs64
            | ItemEncoding::Blobs32
            | ItemEncoding::Blobs64 => len.checked_add(1),
            _ => Some(len),
        };
        let n_bytes = entries
            .and_then(|entries| entries.checked_mul(encoding.width() as u64))
            .ok_or(damaged)?;
        part(bytes, table, n_bytes)?;
        Ok(List {
            encoding,
            len: usize::try_from(len).map_err(|_| damaged)?,
            table: usize::try_from(table).map_err(|_| damaged)?,
            base,
        })
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn encoding(&self) -> ItemEncoding {
        self.encoding
    }

    /// Where its table begins: its numbers, if it is one of numbers.
    pub fn table(&self) -> usize {
        self.table
    }

    /// The item at `idx`; these must be the bytes that it was read from.
    #[inline]
    pub fn get<'a>(&self, bytes: &'a [u8], idx: usize) -> Result<Item<'a>, Damaged> {
        if idx >= self.len {
            return Err(Damaged {
                expected: "an item of the list",
                at: idx as u64,
            });
        }
        let at = self.table + idx * self.encoding.width();
        Ok(match self.encoding {
            ItemEncoding::Strs32 => Item::Str(self.span32(bytes, at)?),
            ItemEncoding::Strs64 => Item::Str(self.span64(bytes, at)?),
            ItemEncoding::Blobs32 => Item::Bytes(self.span32(bytes, at)?),
            ItemEncoding::Blobs64 => Item::Bytes(self.span64(bytes, at)?),
            ItemEncoding::Bools => Item::Bool(chunk::<1>(bytes, at)?[0] != 0),
            ItemEncoding::U8 => Item::Int(i64::from(chunk::<1>(bytes, at)?[0])),
            ItemEncoding::I8 => Item::Int(i64::from(i8::from_le_bytes(*chunk(bytes, at)?))),
            ItemEncoding::U16 => Item::Int(i64::from(u16::from_le_bytes(*chunk(bytes, at)?))),
            ItemEncoding::I16 => Item::Int(i64::from(i16::from_le_bytes(*chunk(bytes, at)?))),
            ItemEncoding::U32 => Item::Int(i64::from(u32::from_le_bytes(*chunk(bytes, at)?))),
            ItemEncoding::I32 => Item::Int(i64::from(i32::from_le_bytes(*chunk(bytes, at)?))),
            ItemEncoding::I64 => Item::Int(i64::from_le_bytes(*chunk(bytes, at)?)),
            ItemEncoding::F64 => Item::Float(f64::from_le_bytes(*chunk(bytes, at)?)),
            ItemEncoding::Slots => Slot::read(bytes, at)?.item(bytes)?,
        })
    }

    fn span32<'a>(&self, bytes: &'a [u8], at: usize) -> Result<&'a [u8], Damaged> {
        let pair = chunk::<8>(bytes, at)?;
        let both = u64::from_le_bytes(*pair);
        self.span(bytes, both & u64::from(u32::MAX), both >> 32)
    }

    fn span64<'a>(&self, bytes: &'a [u8], at: usize) -> Result<&'a [u8], Damaged> {
        self.span(bytes, word(bytes, at)?, word(bytes, at + 8)?)
    }

    fn span<'a>(&self, bytes: &'a [u8], start: u64, end: u64) -> Result<&'a [u8], Damaged> {
        let damaged = Damaged {
            expected: "texts one behind the other",
            at: self.table as u64,
        };
        let at = self.base.checked_add(start).ok_or(damaged)?;
        part(bytes, at, end.checked_sub(start).ok_or(damaged)?)
    }
}

/// An array or a tensor: its type by name, its shape, and where its bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayNode<'a> {
    pub dtype: &'a str,
    pub shape: Vec<u64>,
    pub data: u64,
    pub n_bytes: u64,
}

impl ArrayNode<'_> {
    pub(crate) const WORDS: usize = 5;

    pub fn read(bytes: &[u8], at: u64) -> Result<ArrayNode<'_>, Damaged> {
        let damaged = Damaged {
            expected: "an array",
            at,
        };
        let [kind, n_axes, data, n_bytes, n_name]: [u64; ArrayNode::WORDS] = words(bytes, at)?;
        if kind != NODE_ARRAY || n_axes > MAX_DEPTH as u64 {
            return Err(damaged);
        }
        part(bytes, data, n_bytes)?;
        let shape = part(bytes, at + 8 * ArrayNode::WORDS as u64, 8 * n_axes)?;
        let name = part(bytes, at + 8 * (ArrayNode::WORDS as u64 + n_axes), n_name)?;
        Ok(ArrayNode {
            dtype: str::from_utf8(name).map_err(|_| damaged)?,
            shape: shape
                .chunks_exact(8)
                .map(|axis| word(axis, 0))
                .collect::<Result<_, _>>()?,
            data,
            n_bytes,
        })
    }
}
