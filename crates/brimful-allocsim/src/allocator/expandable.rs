//! Expandable segments: ranges of addresses that grow and shrink page by page.

use super::{Allocator, Expandable, SMALL_SEGMENT, unused_block};
use crate::blocks::{Block, Index, NONE};
use crate::device::Device;

impl<D: Device> Allocator<D> {
    /// Grows a segment of that stream, or starts a new range of addresses.
    pub(super) fn expand(&mut self, pool: u32, stream: u64, size: u64) -> Option<Index> {
        let mut index = match self.find_room(pool, stream, size) {
            Some(index) => index,
            None => self.reserve_range(pool, stream, size)?,
        };
        let block = self.arena.get(index);
        if !block.mapped {
            let bytes = block.size.min(size);
            self.map(index, bytes)?;
        }
        while self.arena.get(index).size < size {
            let block = self.arena.get(index);
            let (next, missing) = (block.next, size - block.size);
            let bytes = missing.min(self.arena.get(next).size);
            self.map(next, bytes)?;
            index = next;
        }
        self.remove_free(index);
        Some(index)
    }

    /// The lowest free address of the stream's ranges with room for `size`, mapped or not.
    fn find_room(&self, pool: u32, stream: u64, size: u64) -> Option<Index> {
        let unmapped = &self.pools[pool as usize].unmapped;
        let ranges = unmapped
            .range((stream, 0, 0)..)
            .take_while(|key| key.0 == stream);
        for &(_, _, index) in ranges {
            let previous = self.arena.get(index).previous;
            let start = if previous != NONE && self.arena.get(previous).is_free() {
                previous
            } else {
                index
            };
            let (mut room, mut at) = (0, start);
            while room < size && at != NONE && self.arena.get(at).is_free() {
                room += self.arena.get(at).size;
                at = self.arena.get(at).next;
            }
            if room >= size {
                return Some(start);
            }
        }
        None
    }

    /// A new range of addresses for at least `wanted` bytes; none where the addresses end before.
    fn reserve_range(&mut self, pool: u32, stream: u64, wanted: u64) -> Option<Index> {
        let page = if self.pools[pool as usize].small {
            SMALL_SEGMENT
        } else {
            self.settings.large_segment_size
        };
        // One eighth more than the card, so that pages can move to the end.
        let total = self.device.total();
        let size = total
            .checked_add(total / 8)?
            .div_ceil(page)
            .checked_mul(page)?;
        if size < wanted {
            return None;
        }
        let address = self.device.reserve(size)?;
        let segment = u32::try_from(self.expandable.len()).unwrap_or(NONE);
        self.expandable.push(Expandable {
            address,
            page,
            size,
        });
        let age = self.age_of_segment();
        let block = Block {
            mapped: false,
            expandable: segment,
            age,
            ..unused_block(
                pool,
                stream,
                address,
                self.expandable[segment as usize].size,
            )
        };
        let index = self.arena.add(block);
        self.insert_unmapped(index);
        Some(index)
    }

    /// Puts memory behind the first `bytes` of an unmapped block.
    fn map(&mut self, index: Index, bytes: u64) -> Option<()> {
        let block = self.arena.get(index).clone();
        let segment = &self.expandable[block.expandable as usize];
        let offset = block.address - segment.address;
        let first = offset / segment.page;
        let last = (offset + bytes).div_ceil(segment.page);
        let mapped = (last - first) * segment.page;
        if !self.device.create(mapped) {
            return None;
        }
        self.remove_unmapped(index);
        self.arena.get_mut(index).mapped = true;
        if mapped < block.size {
            let age = self.age_of_part(block.age);
            let rest = self.arena.add(Block {
                address: block.address + mapped,
                size: block.size - mapped,
                age,
                ..block.clone()
            });
            self.arena.link(rest, index, block.next);
            self.arena.get_mut(index).size = mapped;
            self.insert_unmapped(rest);
        }
        self.merge_neighbours(index);
        self.insert_free(index);
        self.statistics.device_allocs += 1;
        self.statistics.reserved.add(mapped);
        Some(())
    }

    /// Takes the memory of the whole pages inside a free block away.
    pub(super) fn unmap(&mut self, index: Index) {
        let block = self.arena.get(index).clone();
        let segment = &self.expandable[block.expandable as usize];
        let (base, page) = (segment.address, segment.page);
        let first = (block.address - base).div_ceil(page);
        let last = (block.address + block.size - base) / page;
        if first >= last {
            return;
        }
        let (start, bytes) = (base + first * page, (last - first) * page);
        self.device.destroy(bytes);
        self.remove_free(index);
        let before = start - block.address;
        if before > 0 {
            let age = self.age_of_part(block.age);
            let front = self.arena.add(Block {
                size: before,
                age,
                ..block.clone()
            });
            self.arena.link(front, block.previous, index);
            self.insert_free(front);
        }
        let after = block.size - before - bytes;
        if after > 0 {
            let age = self.age_of_part(block.age);
            let back = self.arena.add(Block {
                address: start + bytes,
                size: after,
                age,
                ..block.clone()
            });
            self.arena.link(back, index, block.next);
            self.insert_free(back);
        }
        let block = self.arena.get_mut(index);
        block.address = start;
        block.size = bytes;
        block.mapped = false;
        self.merge_neighbours(index);
        self.insert_unmapped(index);
        self.statistics.reserved.subtract(bytes);
        self.statistics.device_frees += 1;
    }
}
