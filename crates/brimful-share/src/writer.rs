//! Writes values in one go, children first. What is kept meanwhile is a few bytes per item, never the items.

use std::collections::HashMap;
use std::io::{self, Write};

use crate::dict::{Dict, NODE_DICT, NODE_KEYS, SMALL, seed, table};
use crate::key::{Key, hash};
use crate::layout::{HEADER_BYTES, Header, Id, Slot};
use crate::list::{ArrayNode, ItemEncoding, List, NODE_ARRAY};

/// Where arrays begin: what vector units and DLPack want.
const ARRAY_ALIGNMENT: usize = 64;

/// Different sets of keys that are remembered, so that a million records name their fields once.
const MAX_KEY_SETS: usize = 4096;
/// Larger sets of keys are written where they stand.
const MAX_KEY_SET_BYTES: usize = 4096;

/// Writes to what was opened for one shared copy.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: W,
    at: u64,
    id: Id,
    key_sets: HashMap<Vec<u8>, u64>,
}

/// Which library's array it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrayKind {
    NumPy,
    Torch,
}

impl<W: Write> Writer<W> {
    /// Begins with room for the header.
    pub fn new(mut out: W, id: Id) -> io::Result<Writer<W>> {
        out.write_all(&[0; HEADER_BYTES])?;
        Ok(Writer {
            out,
            at: HEADER_BYTES as u64,
            id,
            key_sets: HashMap::new(),
        })
    }

    /// Ends; the header is still to be written at the beginning.
    pub fn finish(mut self, root: Slot) -> io::Result<(W, Header)> {
        self.out.flush()?;
        let header = Header {
            id: self.id,
            len: self.at,
            root,
        };
        Ok((self.out, header))
    }

    /// Where it is written to.
    pub fn out(&self) -> &W {
        &self.out
    }

    /// Begins an array and returns where its bytes go: through [`Writer::array_bytes`], or past this writer to the same
    /// file ([`Writer::skip`]).
    pub fn begin_array(&mut self) -> io::Result<u64> {
        self.align(ARRAY_ALIGNMENT as u64)?;
        Ok(self.at)
    }

    pub fn array_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.put(bytes)
    }

    /// Hands everything on, so that others may write behind it.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// So many bytes were written by others.
    pub fn skip(&mut self, n_bytes: u64) {
        self.at = self.at.saturating_add(n_bytes);
    }

    /// Ends the array that began at `data`.
    pub fn end_array(
        &mut self,
        kind: ArrayKind,
        data: u64,
        dtype: &str,
        shape: &[u64],
    ) -> io::Result<Slot> {
        let n_bytes = self.at - data;
        let n_axes = shape.len() as u64;
        let head: [u64; ArrayNode::WORDS] = [NODE_ARRAY, n_axes, data, n_bytes, dtype.len() as u64];
        let at = self.put_words(&head)?;
        for axis in shape {
            self.put(&axis.to_le_bytes())?;
        }
        self.put(dtype.as_bytes())?;
        Ok(match kind {
            ArrayKind::NumPy => Slot::array(at),
            ArrayKind::Torch => Slot::tensor(at),
        })
    }

    /// A dict of these keys ([`Writer::keys`]) and these values (a list).
    pub fn dict(&mut self, keys: u64, values: u64) -> io::Result<Slot> {
        let head: [u64; Dict::WORDS] = [NODE_DICT, keys, values];
        self.put_words(&head).map(Slot::dict)
    }

    pub fn hash(&self, key: &Key) -> u64 {
        hash(seed(&self.id), key.as_bytes())
    }

    /// Keys that were written before, byte for byte.
    pub fn known_keys(&self, key_set: &[u8]) -> Option<u64> {
        self.key_sets.get(key_set).copied()
    }

    /// The keys in `list` (a node), with their hashes; `key_set` is what to know them by, if they may come again.
    pub fn keys(&mut self, list: u64, hashes: &[u64], key_set: Option<&[u8]>) -> io::Result<u64> {
        if u32::try_from(hashes.len()).is_err() {
            return Err(io::Error::other("a dict has more than 4 billion keys"));
        }
        let (mut table_at, mut capacity) = (self.at, 0);
        if hashes.len() > SMALL {
            self.align(8)?;
            let entries = table(hashes);
            (table_at, capacity) = (self.at, entries.len() as u64);
            for entry in entries {
                self.put(&entry.to_le_bytes())?;
            }
        }
        let head: [u64; Dict::KEYS_WORDS] = [NODE_KEYS, list, table_at, capacity];
        let at = self.put_words(&head)?;
        if let Some(key_set) = key_set
            && key_set.len() <= MAX_KEY_SET_BYTES
            && self.key_sets.len() < MAX_KEY_SETS
        {
            self.key_sets.insert(key_set.to_vec(), at);
        }
        Ok(at)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn align(&mut self, to: u64) -> io::Result<()> {
        const ZEROS: [u8; ARRAY_ALIGNMENT] = [0; ARRAY_ALIGNMENT];
        let missing = self.at.next_multiple_of(to) - self.at;
        self.put(&ZEROS[..usize::try_from(missing).expect("less than the alignment")])
    }

    /// Words at a multiple of 8; returns where.
    fn put_words(&mut self, words: &[u64]) -> io::Result<u64> {
        self.align(8)?;
        let at = self.at;
        for word in words {
            self.put(&word.to_le_bytes())?;
        }
        Ok(at)
    }
}

/// A list in the making: packed as long as its items are of one kind.
#[derive(Debug, Default)]
pub struct ListBuilder {
    items: Items,
}

#[derive(Debug, Default)]
enum Items {
    #[default]
    Empty,
    Bools(Vec<u8>),
    Ints(Vec<i64>),
    Floats(Vec<f64>),
    /// Texts or bytes from `base` on; where each of them ends, counted from there.
    Spans {
        text: bool,
        base: u64,
        ends: Vec<u64>,
    },
    Slots(Vec<Slot>),
}

impl ListBuilder {
    pub fn push_bool(&mut self, value: bool) {
        match &mut self.items {
            Items::Bools(bools) => bools.push(u8::from(value)),
            items @ Items::Empty => *items = Items::Bools(vec![u8::from(value)]),
            _ => self.slots().push(Slot::bool(value)),
        }
    }

    pub fn push_int(&mut self, value: i64) {
        match &mut self.items {
            Items::Ints(ints) => ints.push(value),
            items @ Items::Empty => *items = Items::Ints(vec![value]),
            _ => self.slots().push(Slot::int(value)),
        }
    }

    pub fn push_float(&mut self, value: f64) {
        match &mut self.items {
            Items::Floats(floats) => floats.push(value),
            items @ Items::Empty => *items = Items::Floats(vec![value]),
            _ => self.slots().push(Slot::float(value)),
        }
    }

    /// UTF-8.
    pub fn push_str<W: Write>(&mut self, writer: &mut Writer<W>, text: &[u8]) -> io::Result<()> {
        self.push_span(writer, text, true)
    }

    pub fn push_bytes<W: Write>(&mut self, writer: &mut Writer<W>, bytes: &[u8]) -> io::Result<()> {
        self.push_span(writer, bytes, false)
    }

    /// Text with halves of surrogate pairs, which are rare.
    pub fn push_loose_str<W: Write>(
        &mut self,
        writer: &mut Writer<W>,
        text: &[u8],
    ) -> io::Result<()> {
        let at = writer.at;
        writer.put(text)?;
        self.push_slot(Slot::loose_str(at, text.len() as u64));
        Ok(())
    }

    /// What does not fit into 64 bits: two's complement, little endian.
    pub fn push_big_int<W: Write>(
        &mut self,
        writer: &mut Writer<W>,
        bytes: &[u8],
    ) -> io::Result<()> {
        let at = writer.at;
        writer.put(bytes)?;
        self.push_slot(Slot::big_int(at, bytes.len() as u64));
        Ok(())
    }

    /// Anything else, already written.
    pub fn push_slot(&mut self, slot: Slot) {
        self.slots().push(slot);
    }

    /// Writes the list; returns its node.
    pub fn finish<W: Write>(self, writer: &mut Writer<W>) -> io::Result<u64> {
        writer.align(8)?;
        let table = writer.at;
        let mut base = 0;
        let (encoding, len) = match self.items {
            Items::Empty => (ItemEncoding::Slots, 0),
            Items::Bools(bools) => {
                writer.put(&bools)?;
                (ItemEncoding::Bools, bools.len())
            }
            Items::Ints(ints) => (put_ints(writer, &ints)?, ints.len()),
            Items::Floats(floats) => {
                for value in &floats {
                    writer.put(&value.to_le_bytes())?;
                }
                (ItemEncoding::F64, floats.len())
            }
            Items::Spans {
                text,
                base: first,
                ends,
            } => {
                base = first;
                (put_ends(writer, text, &ends)?, ends.len())
            }
            Items::Slots(slots) => {
                for slot in &slots {
                    writer.put(&slot.to_bytes())?;
                }
                (ItemEncoding::Slots, slots.len())
            }
        };
        let head: [u64; List::WORDS] = [encoding.code(), len as u64, table, base];
        writer.put_words(&head)
    }

    fn push_span<W: Write>(
        &mut self,
        writer: &mut Writer<W>,
        bytes: &[u8],
        is_text: bool,
    ) -> io::Result<()> {
        let at = writer.at;
        writer.put(bytes)?;
        let len = bytes.len() as u64;
        match &mut self.items {
            // Packed only while they stand one behind the other.
            Items::Spans { text, base, ends }
                if *text == is_text && ends.last().is_some_and(|end| *base + end == at) =>
            {
                ends.push(at - *base + len);
            }
            items @ Items::Empty => {
                *items = Items::Spans {
                    text: is_text,
                    base: at,
                    ends: vec![len],
                };
            }
            _ if is_text => self.slots().push(Slot::str(at, len)),
            _ => self.slots().push(Slot::bytes(at, len)),
        }
        Ok(())
    }

    /// Gives up packing.
    fn slots(&mut self) -> &mut Vec<Slot> {
        if !matches!(self.items, Items::Slots(_)) {
            self.items = Items::Slots(match std::mem::take(&mut self.items) {
                Items::Empty => Vec::new(),
                Items::Bools(bools) => bools.iter().map(|value| Slot::bool(*value != 0)).collect(),
                Items::Ints(ints) => ints.into_iter().map(Slot::int).collect(),
                Items::Floats(floats) => floats.into_iter().map(Slot::float).collect(),
                Items::Spans { text, base, ends } => {
                    let slot = if text { Slot::str } else { Slot::bytes };
                    let starts = std::iter::once(0).chain(ends.iter().copied());
                    let spans = starts.zip(&ends);
                    spans
                        .map(|(start, end)| slot(base + start, end - start))
                        .collect()
                }
                Items::Slots(slots) => slots,
            });
        }
        match &mut self.items {
            Items::Slots(slots) => slots,
            _ => unreachable!("made so above"),
        }
    }
}

fn put_ints<W: Write>(writer: &mut Writer<W>, ints: &[i64]) -> io::Result<ItemEncoding> {
    let lowest = ints.iter().copied().min().unwrap_or_default();
    let highest = ints.iter().copied().max().unwrap_or_default();
    let holds = |low: i64, high: i64| low <= lowest && highest <= high;
    let encoding = if holds(0, u8::MAX.into()) {
        ItemEncoding::U8
    } else if holds(i8::MIN.into(), i8::MAX.into()) {
        ItemEncoding::I8
    } else if holds(0, u16::MAX.into()) {
        ItemEncoding::U16
    } else if holds(i16::MIN.into(), i16::MAX.into()) {
        ItemEncoding::I16
    } else if holds(0, u32::MAX.into()) {
        ItemEncoding::U32
    } else if holds(i32::MIN.into(), i32::MAX.into()) {
        ItemEncoding::I32
    } else {
        ItemEncoding::I64
    };
    for value in ints {
        // Two's complement: the lowest bytes are the number in fewer bytes.
        writer.put(&value.to_le_bytes()[..encoding.width()])?;
    }
    Ok(encoding)
}

fn put_ends<W: Write>(
    writer: &mut Writer<W>,
    text: bool,
    ends: &[u64],
) -> io::Result<ItemEncoding> {
    let narrow = ends.last().is_none_or(|end| u32::try_from(*end).is_ok());
    let encoding = match (text, narrow) {
        (true, true) => ItemEncoding::Strs32,
        (true, false) => ItemEncoding::Strs64,
        (false, true) => ItemEncoding::Blobs32,
        (false, false) => ItemEncoding::Blobs64,
    };
    for end in std::iter::once(&0).chain(ends) {
        writer.put(&end.to_le_bytes()[..encoding.width()])?;
    }
    Ok(encoding)
}
