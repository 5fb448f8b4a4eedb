//! The parts of the one buffer that a value has, while a sample is put together in it.
//!
//! A value holds its sample and whatever was needed to get it, in memory that is used again for the next one: so what a
//! thread holds is what its values hold, and no more.

use crate::buffer::PAGE;
use crate::reading::{Access, Reader};
use crate::value::Piece;

/// Bytes of each part, whole pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ChunkScratch {
    sample: usize,
    chunk: usize,
    between: usize,
    stored: usize,
}

/// The parts themselves.
#[derive(Debug)]
pub(super) struct Opened<'a> {
    /// At least as large as the sample.
    pub(super) sample: &'a mut [u8],
    /// A whole chunk, where it is not the sample itself.
    pub(super) chunk: &'a mut [u8],
    /// A chunk between two filters.
    pub(super) between: &'a mut [u8],
    /// A chunk as it is in the file, where that is not mapped.
    pub(super) stored: &'a mut [u8],
}

impl ChunkScratch {
    pub(super) fn of_sample(bytes: usize) -> ChunkScratch {
        ChunkScratch {
            sample: pages(bytes),
            ..ChunkScratch::default()
        }
    }

    pub(super) fn widen_sample(&mut self, bytes: usize) {
        self.sample = self.sample.max(pages(bytes));
    }

    pub(super) fn set_chunk(&mut self, bytes: usize) {
        self.chunk = pages(bytes);
    }

    pub(super) fn set_between(&mut self, bytes: usize) {
        self.between = pages(bytes);
    }

    /// For so many bytes of the file.
    pub(super) fn set_stored(&mut self, reader: &Reader, bytes: usize) {
        self.stored = match reader.access() {
            Access::Mapped => 0,
            Access::Read | Access::Direct | Access::Remote => pages(bytes) + 2 * PAGE,
        };
    }

    /// Bytes of all parts together.
    pub(super) fn bytes(self) -> usize {
        self.sample + self.chunk + self.between + self.stored
    }

    /// Makes the piece a sample of so many bytes, with these parts.
    pub(super) fn open(self, piece: &mut Piece, sample: usize) -> Opened<'_> {
        let bytes = piece.own_buffer(0, sample, self.bytes()).bytes_mut();
        let (sample, rest) = bytes.split_at_mut(self.sample);
        let (chunk, rest) = rest.split_at_mut(self.chunk);
        let (between, stored) = rest.split_at_mut(self.between);
        Opened {
            sample,
            chunk,
            between,
            stored,
        }
    }
}

fn pages(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE)
}
