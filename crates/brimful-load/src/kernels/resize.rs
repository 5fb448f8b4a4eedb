//! Antialiased resize of images: planes one after the other, or with channels side by side.
//!
//! Both passes are weighted sums of rows, which vectors do best: between them a block of rows is turned on its side,
//! and the result back again. A block stays in the first two caches.
//!
//! ```text
//!   input rows ─sum─▶ block of rows ─turn─▶ block of columns ─sum─▶ output columns ─turn─▶ output rows
//! ```
//!
//! Bytes with the bicubic filter go the other way around, columns first, since PIL and torch cut off overshoots between
//! the passes, in that order; the bilinear filter has none.

use bytemuck::Zeroable;
use multiversion::multiversion;

use super::arithmetic::{Arithmetic, FixedPoint, Floats};
use super::filter::{Axis, Filter};
use super::transpose::{Transposable, transpose};

/// Columns whose sums stay in registers while rows are summed.
const CHUNK: usize = 64;

/// Rows of a block. Of 16 and 32 rows, the faster ones for bytes and for floats (Sapphire Rapids, AVX2, November 2026).
const BYTE_ROWS: usize = 32;
const FLOAT_ROWS: usize = 16;

/// A resize of images of `rows.from()` x `columns.from()` pixels with so many channels side by side.
#[derive(Clone, Copy, Debug)]
pub struct Resize<'a> {
    pub rows: &'a Axis,
    pub columns: &'a Axis,
    pub channels: usize,
}

impl Resize<'_> {
    /// Resizes as many images of bytes as both slices hold, with room that it makes large enough.
    pub fn bytes(self, from: &[u8], to: &mut [u8], [first, second]: [&mut Vec<i16>; 2]) {
        let [first_len, second_len] = self.byte_room();
        let first = at_least(first, first_len);
        let second = at_least(second, second_len);
        let way = if self.is_columns_first() {
            bytes_columns_first
        } else {
            bytes_rows_first
        };
        for (from, to) in self.images(from, to) {
            way(self, from, to, first, second);
        }
    }

    /// The same of floats, which may lie anywhere.
    pub fn floats(self, from: &[u8], to: &mut [u8], [first, second]: [&mut Vec<f32>; 2]) {
        let [first_len, second_len] = self.float_room();
        let first = at_least(first, first_len);
        let second = at_least(second, second_len);
        let (from, _) = from.as_chunks::<4>();
        let (to, _) = to.as_chunks_mut::<4>();
        for (from, to) in self.images(from, to) {
            floats_rows_first(self, from, to, first, second);
        }
    }

    /// Elements of the room that [`Resize::bytes`] takes.
    fn byte_room(self) -> [usize; 2] {
        let block = BYTE_ROWS * self.width_from();
        if self.is_columns_first() {
            [block.div_ceil(2), self.ring_rows() * self.width_to()]
        } else {
            [block; 2]
        }
    }

    /// Elements of the room that [`Resize::floats`] takes.
    fn float_room(self) -> [usize; 2] {
        [FLOAT_ROWS * self.width_from(); 2]
    }

    fn is_columns_first(self) -> bool {
        self.rows.filter() == Filter::Bicubic || self.columns.filter() == Filter::Bicubic
    }

    /// Rows that are kept when columns come first: what one output row needs, and whole blocks.
    fn ring_rows(self) -> usize {
        (self.rows.max_taps() + BYTE_ROWS).next_multiple_of(BYTE_ROWS)
    }

    fn width_from(self) -> usize {
        self.columns.from() * self.channels
    }

    fn width_to(self) -> usize {
        self.columns.to() * self.channels
    }

    fn images<'a, T>(
        self,
        from: &'a [T],
        to: &'a mut [T],
    ) -> impl Iterator<Item = (&'a [T], &'a mut [T])> {
        from.chunks_exact((self.rows.from() * self.width_from()).max(1))
            .zip(to.chunks_exact_mut((self.rows.to() * self.width_to()).max(1)))
    }
}

/// Bytes of the room that a resize takes at the most, of images of so many rows and elements in a row.
pub fn room_bytes(
    filter: Filter,
    is_float: bool,
    (rows_from, width_from): (usize, usize),
    (rows_to, width_to): (usize, usize),
) -> u64 {
    let width_from = width_from as u64;
    if is_float {
        return 2 * 4 * FLOAT_ROWS as u64 * width_from;
    }
    match filter {
        Filter::Bilinear => 2 * 2 * BYTE_ROWS as u64 * width_from,
        Filter::Bicubic => {
            let taps = 4 * rows_from.div_ceil(rows_to.max(1)) + 2;
            let ring = taps.min(rows_from) + 2 * BYTE_ROWS;
            (BYTE_ROWS as u64 + 1) * width_from + 2 * ring as u64 * width_to as u64
        }
    }
}

fn at_least<T: Zeroable + Clone>(room: &mut Vec<T>, len: usize) -> &mut [T] {
    if room.len() < len {
        room.reserve_exact(len - room.len());
        room.resize(len, T::zeroed());
    }
    &mut room[..len]
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn bytes_rows_first(
    resize: Resize<'_>,
    from: &[u8],
    to: &mut [u8],
    first: &mut [i16],
    second: &mut [i16],
) {
    rows_first::<FixedPoint, BYTE_ROWS, 8, 16>(resize, from, to, first, second);
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn bytes_columns_first(
    resize: Resize<'_>,
    from: &[u8],
    to: &mut [u8],
    first: &mut [i16],
    second: &mut [i16],
) {
    let turned = bytemuck::cast_slice_mut(first);
    columns_first::<FixedPoint, BYTE_ROWS, 8, 16>(resize, from, to, turned, second);
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn floats_rows_first(
    resize: Resize<'_>,
    from: &[[u8; 4]],
    to: &mut [[u8; 4]],
    first: &mut [f32],
    second: &mut [f32],
) {
    rows_first::<Floats, FLOAT_ROWS, 4, 4>(resize, from, to, first, second);
}

/// `MID` and `STORED` elements are 16 bytes.
#[inline(always)]
fn rows_first<A: Arithmetic, const ROWS: usize, const MID: usize, const STORED: usize>(
    resize: Resize<'_>,
    from: &[A::Stored],
    to: &mut [A::Stored],
    upright: &mut [A::Mid],
    turned: &mut [A::Mid],
) {
    let (width_from, width_to) = (resize.width_from(), resize.width_to());
    let weights = A::weights(resize.rows);
    for (block, to) in to.chunks_mut(ROWS * width_to).enumerate() {
        let high = to.len() / width_to;
        for (y, row) in upright.chunks_exact_mut(width_from).take(high).enumerate() {
            let (first, at) = resize.rows.span(block * ROWS + y);
            sum_of_rows::<A, _, _>(from, first, &weights[at], row, A::widen, A::settle);
        }
        // Of a last block that is lower, the rest is left from the one before, and is not stored.
        transpose::<A::Mid, MID>(upright, width_from, (ROWS, width_from), turned, ROWS);
        sums_of_columns::<A, _, _, ROWS, STORED>(resize, turned, high, to, |mid| mid, A::finish);
    }
}

/// The rows that were made of columns lie in a ring, of which each block overwrites the oldest.
#[inline(always)]
fn columns_first<A: Arithmetic, const ROWS: usize, const MID: usize, const STORED: usize>(
    resize: Resize<'_>,
    from: &[A::Stored],
    to: &mut [A::Stored],
    turned: &mut [A::Stored],
    ring: &mut [A::Mid],
) {
    let (width_from, width_to) = (resize.width_from(), resize.width_to());
    let weights = A::weights(resize.rows);
    let ring_rows = resize.ring_rows();
    let mut blocks = from.chunks(ROWS * width_from);
    let mut rows_done = 0;
    for (y, row) in to.chunks_exact_mut(width_to).enumerate() {
        let (first, at) = resize.rows.span(y);
        while rows_done < first + at.len() {
            let Some(block) = blocks.next() else { break };
            let high = block.len() / width_from;
            transpose::<A::Stored, STORED>(block, width_from, (high, width_from), turned, ROWS);
            sums_of_columns::<A, _, _, ROWS, MID>(
                resize,
                turned,
                high,
                &mut ring[rows_done % ring_rows * width_to..],
                A::widen,
                A::settle,
            );
            rows_done += high;
        }
        let first = first % ring_rows;
        sum_of_rows::<A, _, _>(ring, first, &weights[at], row, |mid| mid, A::finish);
    }
}

/// One row: as many rows of `from` as there are weights, beginning with the row number `first`, and going on at the
/// beginning where `from` ends.
#[inline(always)]
fn sum_of_rows<A: Arithmetic, T: Copy, U>(
    from: &[T],
    first: usize,
    weights: &[A::Weight],
    to: &mut [U],
    widen: impl Fn(T) -> A::Mid,
    done: impl Fn(A::Sum) -> U,
) {
    let width = to.len();
    let (chunks, rest) = to.as_chunks_mut::<CHUNK>();
    let mut column = 0;
    for to in chunks {
        let mut sums = [A::ZERO; CHUNK];
        let mut start = first * width + column;
        for &weight in weights {
            let values = from[start..]
                .first_chunk::<CHUNK>()
                .expect("a row is as wide as the chunks of it");
            for (sum, &value) in sums.iter_mut().zip(values) {
                *sum = A::add(*sum, widen(value), weight);
            }
            start += width;
            if start >= from.len() {
                start = column;
            }
        }
        for (to, sum) in to.iter_mut().zip(sums) {
            *to = done(sum);
        }
        column += CHUNK;
    }
    let mut sums = [A::ZERO; CHUNK];
    let mut start = first * width + column;
    for &weight in weights {
        for (sum, &value) in sums.iter_mut().zip(&from[start..start + rest.len()]) {
            *sum = A::add(*sum, widen(value), weight);
        }
        start += width;
        if start >= from.len() {
            start = column;
        }
    }
    for (to, sum) in rest.iter_mut().zip(sums) {
        *to = done(sum);
    }
}

/// The rows of a block, from its columns of `ROWS` elements each; the first `high` of them are stored.
#[inline(always)]
fn sums_of_columns<A: Arithmetic, T: Copy, U: Transposable, const ROWS: usize, const N: usize>(
    resize: Resize<'_>,
    columns: &[T],
    high: usize,
    to: &mut [U],
    widen: impl Fn(T) -> A::Mid,
    done: impl Fn(A::Sum) -> U,
) {
    let channels = resize.channels;
    let width_to = resize.width_to();
    let (columns, _) = columns.as_chunks::<ROWS>();
    let weights = A::weights(resize.columns);
    // So many output columns are turned back at once.
    let mut group = [[U::zeroed(); ROWS]; N];
    let mut in_group = 0;
    let mut stored = 0;
    for x in 0..resize.columns.to() {
        let (first, at) = resize.columns.span(x);
        let weights = &weights[at];
        for channel in 0..channels {
            let mut sums = [A::ZERO; ROWS];
            let mut column = first * channels + channel;
            for &weight in weights {
                for (sum, &value) in sums.iter_mut().zip(&columns[column]) {
                    *sum = A::add(*sum, widen(value), weight);
                }
                column += channels;
            }
            for (to, sum) in group[in_group].iter_mut().zip(sums) {
                *to = done(sum);
            }
            in_group += 1;
            if in_group == N {
                transpose::<U, N>(
                    group.as_flattened(),
                    ROWS,
                    (N, high),
                    &mut to[stored..],
                    width_to,
                );
                stored += N;
                in_group = 0;
            }
        }
    }
    if in_group > 0 {
        transpose::<U, N>(
            group.as_flattened(),
            ROWS,
            (in_group, high),
            &mut to[stored..],
            width_to,
        );
    }
}
