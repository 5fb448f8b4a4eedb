//! Puts a sample together from the chunks that it touches.

use super::array::Array;
use super::blocks::{self, Dimension};
use super::chunks::{Chunk, Chunks};
use super::scratch::{ChunkScratch, Opened};
use crate::error::ReadError;
use crate::reading::Reader;

impl Array {
    /// Where in the file a sample is that is next to each other in one chunk without filters.
    pub(super) fn run_in_chunk(&self, chunks: &Chunks, index: u64) -> Option<u64> {
        if !self.samples_are_runs_of_chunks(chunks) {
            return None;
        }
        let mut place = vec![0; self.dims().len()];
        place[0] = index / chunks.sides()[0];
        let chunk = chunks.at(&place)?;
        if !chunks.pipeline().skipped_by(chunk.mask) || chunk.stored as usize != chunks.bytes() {
            return None;
        }
        Some(chunk.offset + index % chunks.sides()[0] * self.form().bytes() as u64)
    }

    /// The parts of memory that [`Array::gather_chunks`] needs.
    pub(super) fn add_rooms_of_chunks(
        &self,
        chunks: &Chunks,
        reader: &Reader,
        rooms: &mut ChunkScratch,
    ) {
        let pipeline = chunks.pipeline();
        if !pipeline.is_empty() {
            let room = pipeline.reservation(chunks.bytes());
            if self.chunks_are_samples(chunks) {
                rooms.widen_sample(room);
            } else {
                rooms.set_chunk(room);
            }
            rooms.set_between(pipeline.between(chunks.bytes()));
        }
        rooms.set_stored(reader, chunks.largest_stored());
    }

    /// Fills the sample; what was never written with the fill value.
    pub(super) fn gather_chunks(
        &self,
        chunks: &Chunks,
        reader: &Reader,
        index: u64,
        rooms: &mut Opened<'_>,
    ) -> Result<(), ReadError> {
        if !chunks.all_there() {
            self.fill(&mut rooms.sample[..self.form().bytes()]);
        }
        if self.form().bytes() == 0 {
            return Ok(());
        }
        let axis = self.axis();
        let mut place = vec![0; self.dims().len()];
        place[axis] = index / chunks.sides()[axis];
        let mut sides = Vec::with_capacity(place.len());
        loop {
            if let Some(chunk) = chunks.at(&place) {
                self.take_chunk(chunks, chunk, reader, index, &place, &mut sides, rooms)?;
            }
            if !step(&mut place, chunks.grid(), axis) {
                return Ok(());
            }
        }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "what one turn of the loop above needs"
    )]
    fn take_chunk(
        &self,
        chunks: &Chunks,
        chunk: Chunk,
        reader: &Reader,
        index: u64,
        place: &[u64],
        sides: &mut Vec<Dimension>,
        rooms: &mut Opened<'_>,
    ) -> Result<(), ReadError> {
        let (pipeline, bytes) = (chunks.pipeline(), chunks.bytes());
        let within = fits(index % chunks.sides()[self.axis()]);
        let (to, stride) = self.block(chunks, place, sides);
        let plain = pipeline.skipped_by(chunk.mask) && chunk.stored as usize == bytes;
        if plain && self.axis() == 0 {
            // Of several samples only the one that is wanted.
            let offset = chunk.offset + within as u64 * stride as u64;
            let Opened { sample, stored, .. } = rooms;
            reader.view(offset, stride, stored, |run| {
                blocks::copy(run, &mut sample[to..], self.element_bytes(), sides);
            })?;
            return Ok(());
        }
        let Opened {
            sample,
            chunk: unpacked,
            between,
            stored,
        } = rooms;
        reader.view(chunk.offset, chunk.stored as usize, stored, |stored| {
            if plain {
                let from = &stored[within * stride..];
                blocks::copy(from, &mut sample[to..], self.element_bytes(), sides);
            } else if self.chunks_are_samples(chunks) {
                pipeline.undo(chunk.mask, bytes, stored, between, sample)?;
            } else {
                pipeline.undo(chunk.mask, bytes, stored, between, unpacked)?;
                let from = &unpacked[within * stride..];
                blocks::copy(from, &mut sample[to..], self.element_bytes(), sides);
            }
            Ok(())
        })?
    }

    /// The sides of the block that chunk and sample share; where in the sample it begins, and how far apart in the
    /// chunk two samples are.
    fn block(&self, chunks: &Chunks, place: &[u64], sides: &mut Vec<Dimension>) -> (usize, usize) {
        sides.clear();
        let (mut from, mut to) = (self.element_bytes(), self.element_bytes());
        let (mut begin, mut between_samples) = (0, from);
        for side in (0..place.len()).rev() {
            let (dim, chunk) = (self.dims()[side], chunks.sides()[side]);
            if side == self.axis() {
                between_samples = from;
            } else {
                let first = place[side] * chunk;
                sides.push(Dimension {
                    count: fits(chunk.min(dim - first)),
                    from,
                    to,
                });
                begin += fits(first) * to;
                to *= fits(dim);
            }
            from *= fits(chunk);
        }
        sides.reverse();
        (begin, between_samples)
    }

    /// Whether a sample is a part of one chunk, without gaps.
    fn samples_are_runs_of_chunks(&self, chunks: &Chunks) -> bool {
        self.axis() == 0 && self.dims()[1..] == chunks.sides()[1..]
    }

    /// Whether a sample is a whole chunk.
    fn chunks_are_samples(&self, chunks: &Chunks) -> bool {
        self.samples_are_runs_of_chunks(chunks) && chunks.sides()[0] == 1
    }
}

/// The next place of the grid, with the same place along the axis of samples.
fn step(place: &mut [u64], grid: &[u64], axis: usize) -> bool {
    for side in (0..place.len()).rev() {
        if side == axis {
            continue;
        }
        place[side] += 1;
        if place[side] < grid[side] {
            return true;
        }
        place[side] = 0;
    }
    false
}

/// A number of elements that is known to fit, since the bytes of sample and chunk do.
fn fits(count: u64) -> usize {
    usize::try_from(count).expect("sides of samples and chunks whose bytes are addresses of memory")
}
