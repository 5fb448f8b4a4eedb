//! Where the chunks of a dataset are.

use hdf5_reader::chunk_index::ChunkEntry;
use hdf5_reader::messages::layout::{ChunkIndexing, DataLayout};

use super::chunk_index::entries;
use super::filters::Pipeline;
use super::metadata::{Described, Metadata};
use crate::error::SourceError;

/// The chunks of one dataset: how large they are, where they are, and what was done to them.
#[derive(Debug)]
pub(super) struct Chunks {
    /// Elements along each side of a chunk.
    sides: Vec<u64>,
    /// Chunks along each side of the dataset.
    grid: Vec<u64>,
    bytes: usize,
    pipeline: Pipeline,
    index: Index,
    largest_stored: usize,
    stored_bytes: u64,
}

/// One chunk in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    pub(super) offset: u64,
    /// Which chunk of the grid it is, in C order.
    number: u32,
    pub(super) stored: u32,
    /// The filters that were skipped, one bit each.
    pub(super) mask: u32,
}

#[derive(Debug)]
enum Index {
    /// By number. Those that are not there were never written.
    Table(Vec<Chunk>),
    /// All of them in a row, those of sides that the dataset may grow to included.
    InARow { first: u64, grid: Vec<u64> },
}

impl Chunks {
    /// Nothing where none was ever written.
    pub(super) fn of(
        metadata: &Metadata,
        described: &Described,
        element: usize,
    ) -> Result<Option<Chunks>, SourceError> {
        let DataLayout::Chunked {
            address,
            dims: sides,
            element_size,
            chunk_indexing,
        } = &described.layout
        else {
            return Ok(None);
        };
        let name = &described.name;
        let dims = &described.dims;
        let pipeline = Pipeline::of(&described.filters, element).map_err(|what| {
            metadata.unsupported(
                format_args!("{name}, with the filter {what},"),
                "write it with gzip, LZF or no compression, for example with h5repack",
            )
        })?;

        // Some versions of the format count the bytes of an element as one more side.
        let mut sides = sides.clone();
        let mut stored_element = *element_size;
        if sides.len() == dims.len() + 1 {
            stored_element = sides.pop().unwrap_or_default();
        }
        let sound = sides.len() == dims.len()
            && !sides.is_empty()
            && !sides.contains(&0)
            && (stored_element == 0 || stored_element as usize == element);
        let bytes = sides
            .iter()
            .try_fold(element, |bytes, &side| bytes.checked_mul(side as usize))
            .filter(|&bytes| sound && within_reach(metadata, &pipeline, bytes));
        let Some(bytes) = bytes else {
            return Err(metadata.malformed(
                format_args!("chunks for {dims:?} elements of {element} bytes in {name}"),
                format_args!("{sides:?} elements of {stored_element} bytes"),
            ));
        };

        let Some(first) = metadata.place(*address)? else {
            return Ok(None);
        };
        let grid_of = |dims: &[u64]| -> Vec<u64> {
            let sides = sides.iter().map(|&side| u64::from(side));
            dims.iter()
                .zip(sides)
                .map(|(&dim, side)| dim.div_ceil(side))
                .collect()
        };
        let grid = grid_of(dims);
        // What is numbered by its place in the grid is numbered over all that the dataset may grow to.
        let widest = described
            .max_dims
            .as_deref()
            .filter(|max| {
                max.iter()
                    .zip(dims)
                    .all(|(max, dim)| *max != u64::MAX && max >= dim)
            })
            .unwrap_or(dims);

        let mut chunks = Chunks {
            sides: sides.iter().map(|&side| u64::from(side)).collect(),
            grid,
            bytes,
            pipeline,
            index: Index::Table(Vec::new()),
            largest_stored: 0,
            stored_bytes: 0,
        };
        if dims.contains(&0) {
            return Ok(Some(chunks));
        }
        if let Some(ChunkIndexing::Implicit) = chunk_indexing {
            chunks.set_in_a_row(metadata, name, first, grid_of(widest))?;
            return Ok(Some(chunks));
        }
        metadata.count_chunks(name, product(&grid_of(widest)))?;
        let entries = entries(metadata, described, *address, &sides, widest)
            .map_err(|error| metadata.error(error))?;
        chunks.set_table(metadata, described, entries)?;
        Ok(Some(chunks))
    }

    /// The same with one more side in front, of one chunk with one element.
    pub(super) fn into_one_sample(mut self) -> Chunks {
        self.sides.insert(0, 1);
        self.grid.insert(0, 1);
        if let Index::InARow { grid, .. } = &mut self.index {
            grid.insert(0, 1);
        }
        self
    }

    pub(super) fn sides(&self) -> &[u64] {
        &self.sides
    }

    pub(super) fn grid(&self) -> &[u64] {
        &self.grid
    }

    /// Bytes of one chunk in memory.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// Bytes of the largest chunk in the file.
    pub(super) fn largest_stored(&self) -> usize {
        self.largest_stored
    }

    /// Bytes of all chunks in the file.
    pub(super) fn stored_bytes(&self) -> u64 {
        self.stored_bytes
    }

    /// Whether each was written.
    pub(super) fn all_there(&self) -> bool {
        match &self.index {
            Index::Table(table) => product(&self.grid) == Some(table.len() as u64),
            Index::InARow { .. } => true,
        }
    }

    /// The chunk at that place of the grid, where it was written.
    pub(super) fn at(&self, place: &[u64]) -> Option<Chunk> {
        match &self.index {
            Index::Table(table) => {
                let number = number(place, &self.grid)?;
                if let Some(chunk) = table.get(usize::try_from(number).ok()?)
                    && u64::from(chunk.number) == number
                {
                    return Some(*chunk);
                }
                let found = table.binary_search_by_key(&number, |chunk| u64::from(chunk.number));
                found.ok().map(|at| table[at])
            }
            Index::InARow { first, grid } => {
                let bytes = self.bytes as u64;
                Some(Chunk {
                    offset: number(place, grid)?
                        .checked_mul(bytes)?
                        .checked_add(*first)?,
                    number: 0,
                    stored: u32::try_from(bytes).ok()?,
                    mask: 0,
                })
            }
        }
    }

    fn set_in_a_row(
        &mut self,
        metadata: &Metadata,
        name: &str,
        first: u64,
        grid: Vec<u64>,
    ) -> Result<(), SourceError> {
        let last: Vec<u64> = self.grid.iter().map(|count| count - 1).collect();
        let end = number(&last, &grid)
            .and_then(|last| last.checked_add(1)?.checked_mul(self.bytes as u64))
            .and_then(|bytes| bytes.checked_add(first));
        if end.is_none_or(|end| end > metadata.len()) || !self.pipeline.is_empty() {
            return Err(metadata.malformed(
                format_args!("the chunks of {name} in a row from {first}"),
                format_args!("a file of {} bytes", metadata.len()),
            ));
        }
        self.largest_stored = self.bytes;
        self.stored_bytes = product(&self.grid).unwrap_or(0) * self.bytes as u64;
        self.index = Index::InARow { first, grid };
        Ok(())
    }

    fn set_table(
        &mut self,
        metadata: &Metadata,
        described: &Described,
        entries: Vec<ChunkEntry>,
    ) -> Result<(), SourceError> {
        let name = &described.name;
        let mut table = Vec::with_capacity(entries.len());
        for entry in entries {
            let Some(number) = self.number_of(&entry, &described.dims) else {
                // Chunks stay in the index when a dataset gets smaller.
                let beyond = entry.offsets.iter().zip(&described.dims);
                if beyond.clone().count() == self.grid.len()
                    && beyond.into_iter().any(|(at, dim)| at >= dim)
                {
                    continue;
                }
                return Err(metadata.malformed(
                    format_args!("a chunk of {name} at a multiple of {:?}", self.sides),
                    format_args!("{:?}", entry.offsets),
                ));
            };
            let Some(offset) = metadata.place(entry.address)? else {
                continue;
            };
            let stored = if self.pipeline.is_empty() && entry.size == 0 {
                self.bytes as u64
            } else {
                entry.size
            };
            let sound = if self.pipeline.is_empty() {
                stored == self.bytes as u64
            } else {
                // What cannot be compressed becomes a little larger.
                stored > 0 && stored <= self.bytes as u64 + self.bytes as u64 / 8 + 4096
            };
            let ends = offset.checked_add(stored);
            let (true, true, Ok(stored)) = (
                sound,
                ends.is_some_and(|end| end <= metadata.len()),
                u32::try_from(stored),
            ) else {
                return Err(metadata.malformed(
                    format_args!(
                        "a chunk of {name} of {} bytes within a file of {} bytes",
                        self.bytes,
                        metadata.len()
                    ),
                    format_args!("{stored} bytes at {offset}"),
                ));
            };
            self.largest_stored = self.largest_stored.max(stored as usize);
            self.stored_bytes = self.stored_bytes.saturating_add(u64::from(stored));
            table.push(Chunk {
                offset,
                number,
                stored,
                mask: entry.filter_mask,
            });
        }
        table.sort_unstable_by_key(|chunk| chunk.number);
        if let Some(twice) = table
            .windows(2)
            .find(|pair| pair[0].number == pair[1].number)
        {
            return Err(metadata.malformed(
                format_args!("every chunk of {name} once"),
                format_args!(
                    "chunk {} at {} and at {}",
                    twice[0].number, twice[0].offset, twice[1].offset
                ),
            ));
        }
        self.index = Index::Table(table);
        Ok(())
    }

    fn number_of(&self, entry: &ChunkEntry, dims: &[u64]) -> Option<u32> {
        if entry.offsets.len() != dims.len() {
            return None;
        }
        let mut place = Vec::with_capacity(dims.len());
        for ((&offset, &side), &dim) in entry.offsets.iter().zip(&self.sides).zip(dims) {
            if offset >= dim || !offset.is_multiple_of(side) {
                return None;
            }
            place.push(offset / side);
        }
        number(&place, &self.grid).and_then(|number| u32::try_from(number).ok())
    }
}

/// Whether chunks of so many bytes could come out of this file at all.
fn within_reach(metadata: &Metadata, pipeline: &Pipeline, bytes: usize) -> bool {
    let most = metadata.len().saturating_mul(pipeline.largest_ratio());
    u32::try_from(bytes).is_ok() && bytes as u64 <= most
}

fn product(counts: &[u64]) -> Option<u64> {
    counts
        .iter()
        .try_fold(1_u64, |product, &count| product.checked_mul(count))
}

/// The number of a place of the grid, in C order; nothing outside of it.
fn number(place: &[u64], grid: &[u64]) -> Option<u64> {
    place
        .iter()
        .zip(grid)
        .try_fold(0_u64, |number, (&at, &count)| {
            if at < count {
                number.checked_mul(count)?.checked_add(at)
            } else {
                None
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_the_grid_are_numbered_in_c_order() {
        assert_eq!(number(&[1, 2, 3], &[4, 5, 6]), Some(45));
        assert_eq!(number(&[0, 5, 0], &[4, 5, 6]), None);
        assert_eq!(number(&[u64::MAX - 1, 2], &[u64::MAX, 3]), None);
    }

    #[test]
    fn chunks_that_were_not_written_are_not_found() {
        let chunk = |number| Chunk {
            offset: u64::from(number) * 100,
            number,
            stored: 8,
            mask: 0,
        };
        let chunks = Chunks {
            sides: vec![1, 8],
            grid: vec![4, 1],
            bytes: 8,
            pipeline: Pipeline::default(),
            index: Index::Table(vec![chunk(1), chunk(3)]),
            largest_stored: 8,
            stored_bytes: 16,
        };
        assert!(!chunks.all_there());
        let found: Vec<_> = (0..5).map(|at| chunks.at(&[at, 0])).collect();
        assert_eq!(found, [None, Some(chunk(1)), None, Some(chunk(3)), None]);
    }
}
