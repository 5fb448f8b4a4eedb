//! One sample of one column: from a row to the bytes that it is.

use std::ops::Range;

use crate::array::{DType, Encoding};
use crate::error::ReadError;
use crate::reading::Reader;
use crate::source::check_slot;
use crate::sources::arrow::batch::ArrayOffsets;
use crate::sources::arrow::layout::Column;
use crate::sources::arrow::nodes::{Layer, Leaf, Offsets};
use crate::value::{Piece, Value};

/// Bytes of offsets, validity or bits that are looked at in one go, on the stack.
const CHUNK: usize = 1024;

/// The two ways into one file.
#[derive(Debug)]
pub(super) struct Readers {
    /// For the bytes of samples.
    pub(super) data: Reader,
    /// For the few bytes that say where these are; nothing where they are read the same way. Never past the page cache:
    /// the offsets of a thousand neighbors share a page.
    pub(super) places: Option<Reader>,
}

impl Readers {
    pub(super) fn places(&self) -> &Reader {
        self.places.as_ref().unwrap_or(&self.data)
    }
}

impl Column {
    /// Reads row number `row` of a record batch, whose spots for this column are given.
    pub(super) fn read(
        &self,
        readers: &Readers,
        spots: &[ArrayOffsets],
        row: u64,
        value: &mut Value,
    ) -> Result<(), ReadError> {
        let cell = self.resolve(readers.places(), spots, row, &mut value.shape)?;
        match self.leaf.form {
            Leaf::Number(dtype) => {
                if let Some(sides) = self.shape.tensor() {
                    value.shape.clear();
                    value.shape.extend_from_slice(sides);
                }
                value.dtype = dtype;
                let (offset, len) = cell.bytes(dtype.size())?;
                readers.data.read(offset, len, &mut value.piece)?;
            }
            Leaf::Binary(width) => {
                value.shape.push(width);
                value.dtype = DType::U8;
                let (offset, len) = cell.bytes(width)?;
                readers.data.read(offset, len, &mut value.piece)?;
            }
            Leaf::Bits => {
                value.dtype = DType::Bool;
                let len = cell.len()?;
                unpack(readers.places(), &cell, value.piece.own(len))?;
            }
            Leaf::Varying { offsets, encoding } => {
                let (offset, len) = self.varying(readers.places(), &cell, offsets)?;
                readers.data.read(offset, len, value.set_encoded(len))?;
                if encoding == Encoding::Text {
                    std::str::from_utf8(value.bytes()).map_err(|error| {
                        self.malformed(
                            "UTF-8",
                            format!("something else at {}", error.valid_up_to()),
                        )
                    })?;
                }
            }
        }
        Ok(())
    }

    /// The same into a slot, for arrays of a fixed form.
    pub(super) fn read_into(
        &self,
        readers: &Readers,
        spots: &[ArrayOffsets],
        row: u64,
        slot: &mut [u8],
        value: &mut Value,
    ) -> Result<(), ReadError> {
        let cell = self.resolve(readers.places(), spots, row, &mut value.shape)?;
        let size = match self.leaf.form {
            Leaf::Number(dtype) => dtype.size(),
            Leaf::Binary(width) => width,
            Leaf::Bits => {
                check_slot(slot, cell.len()?)?;
                return unpack(readers.places(), &cell, slot);
            }
            Leaf::Varying { .. } => {
                self.read(readers, spots, row, value)?;
                let bytes = value.bytes();
                check_slot(slot, bytes.len())?;
                slot.copy_from_slice(bytes);
                return Ok(());
            }
        };
        let (offset, len) = cell.bytes(size)?;
        check_slot(slot, len)?;
        readers.data.read_to(offset, slot, &mut value.piece)?;
        Ok(())
    }

    /// Bytes of the offsets that [`Column::largest`] looks at.
    pub(super) fn offsets_bytes(&self, spots: &[ArrayOffsets]) -> u64 {
        let bytes = |spot: &ArrayOffsets, offsets: Offsets| spot.len.saturating_mul(offsets.size());
        match (self.layers.as_slice(), spots) {
            (_, [.., leaf]) if let Leaf::Varying { offsets, .. } = self.leaf.form => {
                bytes(leaf, offsets)
            }
            ([only], [spot, _]) if let Layer::Varying(offsets) = only.form => bytes(spot, offsets),
            _ => 0,
        }
    }

    /// Bytes of the largest sample of a batch, as its offsets say. Reads all of them, a chunk at a time.
    pub(super) fn largest(
        &self,
        places: &Reader,
        spots: &[ArrayOffsets],
    ) -> Result<u64, ReadError> {
        let widest = |spot: &ArrayOffsets, offsets: Offsets| -> Result<u64, ReadError> {
            let mut widest = 0;
            each_offset(places, spot, offsets, 0..spot.len, |before, after| {
                widest = widest.max(after.saturating_sub(before));
                Ok(())
            })?;
            Ok(widest)
        };
        let Some(leaf) = spots.last() else {
            return Ok(0);
        };
        let element = match self.leaf.form {
            Leaf::Varying { offsets, .. } => return widest(leaf, offsets),
            Leaf::Number(dtype) => dtype.size() as u64,
            // The width is among the sides.
            Leaf::Binary(_) | Leaf::Bits => 1,
        };
        if let Some(sides) = self.shape.known() {
            let elements = sides.iter().fold(1_u64, |elements, &side| {
                elements.saturating_mul(side as u64)
            });
            return Ok(elements.saturating_mul(element));
        }
        let elements = match (self.layers.as_slice(), spots) {
            ([only], [spot, _]) if let Layer::Varying(offsets) = only.form => {
                widest(spot, offsets)?
            }
            // Lists in lists: not more than the batch has.
            _ => leaf.len,
        };
        Ok(elements.saturating_mul(element))
    }

    /// The elements of the innermost array that are the sample, and its shape.
    fn resolve<'s>(
        &self,
        places: &Reader,
        spots: &'s [ArrayOffsets],
        row: u64,
        shape: &mut Vec<usize>,
    ) -> Result<Cell<'s>, ReadError> {
        shape.clear();
        let Some((leaf, layers)) = spots.split_last() else {
            return Err(self.malformed("a record batch", "none".to_owned()));
        };
        let mut range = row..row.saturating_add(1);
        for (layer, spot) in self.layers.iter().zip(layers) {
            self.check_valid(places, spot, &range)?;
            match layer.form {
                Layer::Struct => {}
                Layer::Fixed(side) => {
                    shape.push(side);
                    // The child has that many elements, as checked when the batch was located.
                    range = range.start * side as u64..range.end * side as u64;
                }
                Layer::Varying(offsets) => {
                    let known = self.shape.side(shape.len());
                    let (inner, side) = self.list(places, spot, offsets, range, known)?;
                    shape.push(side);
                    range = inner;
                }
            }
        }
        self.check_valid(places, leaf, &range)?;
        Ok(Cell { spot: leaf, range })
    }

    /// From lists to their elements; lists of one sample are of the same length.
    fn list(
        &self,
        places: &Reader,
        spot: &ArrayOffsets,
        offsets: Offsets,
        lists: Range<u64>,
        known: Option<usize>,
    ) -> Result<(Range<u64>, usize), ReadError> {
        let mut side = known.map(|side| side as u64);
        let mut inner: Option<Range<u64>> = None;
        each_offset(places, spot, offsets, lists, |before, after| {
            let own = after
                .checked_sub(before)
                .ok_or_else(|| self.malformed("offsets that rise", format!("{before}, {after}")))?;
            let expected = *side.get_or_insert(own);
            if own != expected {
                return Err(
                    self.malformed(&format!("lists of {expected}"), format!("one of {own}"))
                );
            }
            inner.get_or_insert(before..after).end = after;
            Ok(())
        })?;
        let side = usize::try_from(side.unwrap_or_default()).map_err(std::io::Error::other)?;
        Ok((inner.unwrap_or(0..0), side))
    }

    /// Where bytes of varying length lie in the file.
    fn varying(
        &self,
        places: &Reader,
        cell: &Cell<'_>,
        offsets: Offsets,
    ) -> Result<(u64, usize), ReadError> {
        let mut found = 0..0;
        each_offset(
            places,
            cell.spot,
            offsets,
            cell.range.clone(),
            |before, after| {
                found = before..after;
                Ok(())
            },
        )?;
        let most = cell.spot.data_len;
        if found.start > found.end || found.end > most {
            return Err(self.malformed(
                &format!("offsets that rise up to {most}"),
                format!("{}, {}", found.start, found.end),
            ));
        }
        let len = usize::try_from(found.end - found.start).map_err(std::io::Error::other)?;
        Ok((cell.spot.data + found.start, len))
    }

    /// An error where an element is beyond the array or null.
    fn check_valid(
        &self,
        places: &Reader,
        spot: &ArrayOffsets,
        range: &Range<u64>,
    ) -> Result<(), ReadError> {
        if range.end > spot.len {
            return Err(self.malformed(
                &format!("at most {} elements", spot.len),
                format!("elements up to {}", range.end),
            ));
        }
        let Some(validity) = spot.validity else {
            return Ok(());
        };
        each_bit(places, validity, range.clone(), |is_valid| {
            if is_valid {
                return Ok(());
            }
            let has_path = self.layers.iter().any(|layer| layer.form == Layer::Struct);
            let hint = if has_path {
                ", perhaps only a path"
            } else {
                ""
            };
            Err(self.malformed("a value", format!("null{hint}")))
        })
    }

    fn malformed(&self, expected: &str, found: String) -> ReadError {
        ReadError::Malformed {
            expected: format!("{expected} in the column {:?}", self.field.name),
            found,
        }
    }
}

/// Elements of an innermost array, which lie within it.
#[derive(Debug)]
struct Cell<'s> {
    spot: &'s ArrayOffsets,
    range: Range<u64>,
}

impl Cell<'_> {
    fn len(&self) -> Result<usize, ReadError> {
        let len = self.range.end - self.range.start;
        Ok(usize::try_from(len).map_err(std::io::Error::other)?)
    }

    /// Where elements of `size` bytes lie in the file. As many as the array has fit into its buffer.
    fn bytes(&self, size: usize) -> Result<(u64, usize), ReadError> {
        let start = self.spot.data + self.range.start * size as u64;
        Ok((start, self.len()? * size))
    }
}

/// Calls `visit` with the two offsets of each element of `range`.
fn each_offset(
    places: &Reader,
    spot: &ArrayOffsets,
    offsets: Offsets,
    range: Range<u64>,
    mut visit: impl FnMut(u64, u64) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    if range.start >= range.end {
        return Ok(());
    }
    let size = offsets.size();
    let mut before = None;
    let (mut at, end) = (range.start, range.end + 1);
    let mut chunk = [0; CHUNK];
    while at < end {
        let n = (end - at).min(CHUNK as u64 / size);
        // At most the chunk.
        let chunk = &mut chunk[..usize::try_from(n * size).map_err(std::io::Error::other)?];
        places.read_to(spot.offsets + at * size, chunk, &mut Piece::default())?;
        let mut next = |offset: u64| match before.replace(offset) {
            Some(before) => visit(before, offset),
            None => Ok(()),
        };
        // A negative offset becomes one that no file reaches.
        match offsets {
            Offsets::Narrow => {
                for offset in chunk.as_chunks().0 {
                    next(i64::from(i32::from_le_bytes(*offset)).cast_unsigned())?;
                }
            }
            Offsets::Wide => {
                for offset in chunk.as_chunks().0 {
                    next(u64::from_le_bytes(*offset))?;
                }
            }
        }
        at += n;
    }
    Ok(())
}

/// Calls `visit` with each bit of `range`.
fn each_bit(
    places: &Reader,
    start: u64,
    range: Range<u64>,
    mut visit: impl FnMut(bool) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    let mut at = range.start;
    let mut chunk = [0_u8; CHUNK];
    while at < range.end {
        let first = at / 8;
        let n = (range.end.div_ceil(8) - first).min(CHUNK as u64);
        let chunk = &mut chunk[..usize::try_from(n).map_err(std::io::Error::other)?];
        places.read_to(start + first, chunk, &mut Piece::default())?;
        let end = range.end.min((first + n) * 8);
        for bit in at..end {
            let byte = usize::try_from(bit / 8 - first).map_err(std::io::Error::other)?;
            visit(chunk[byte] >> (bit % 8) & 1 == 1)?;
        }
        at = end;
    }
    Ok(())
}

/// One byte for each bit.
fn unpack(places: &Reader, cell: &Cell<'_>, out: &mut [u8]) -> Result<(), ReadError> {
    let mut out = out.iter_mut();
    each_bit(places, cell.spot.data, cell.range.clone(), |bit| {
        if let Some(out) = out.next() {
            *out = u8::from(bit);
        }
        Ok(())
    })
}
