//! Addresses with a capacity. Pure: nothing here is ever dereferenced.

use std::collections::{BTreeMap, BTreeSet};

/// The driver hands out device memory in pages of this size.
pub(crate) const PAGE: u64 = 2 << 20;
/// The stream-ordered pools hand out smaller pieces.
pub(crate) const POOL_PIECE: u64 = 512;

// All fake addresses lie in [0x0800…, 0x5000…): above what a program without PIE uses, below 0x5500_0000_0000
// where the heaps of PIE programs begin, far below the 0x7f… of mappings. So no real object has such an
// address.
/// One window of half a TiB per device for `cudaMallocAsync`.
const POOL_BASE: u64 = 0x0800_0000_0000;
const POOL_WINDOW: u64 = 1 << 39;
/// One window of 2 TiB per device for `cudaMalloc`.
const MALLOC_BASE: u64 = 0x1000_0000_0000;
const MALLOC_WINDOW: u64 = 1 << 41;
/// Virtual reservations of every device.
pub(crate) const VIRTUAL_BASE: u64 = 0x3000_0000_0000;
pub(crate) const VIRTUAL_END: u64 = 0x5000_0000_0000;

/// Whether an address is one of ours.
pub(crate) fn is_device(address: u64) -> bool {
    (POOL_BASE..VIRTUAL_END).contains(&address)
}

/// Which physical device an address of `cudaMalloc` or of a pool belongs to.
pub(crate) fn device_of(address: u64) -> Option<usize> {
    let index = match address {
        POOL_BASE..MALLOC_BASE => (address - POOL_BASE) / POOL_WINDOW,
        MALLOC_BASE..VIRTUAL_BASE => (address - MALLOC_BASE) / MALLOC_WINDOW,
        _ => return None,
    };
    usize::try_from(index).ok()
}

/// `bytes` rounded up; `None` where that overflows.
pub(crate) fn round_up(bytes: u64, granule: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(granule)
}

/// First fit in a range of addresses.
///
/// Free holes are kept by address (to merge neighbours) and by size (to find the lowest hole that is large
/// enough by looking once at each size in use, instead of at each hole).
#[derive(Debug)]
pub(crate) struct AddressSpace {
    granule: u64,
    holes: BTreeMap<u64, u64>,
    by_size: BTreeMap<u64, BTreeSet<u64>>,
    taken: BTreeMap<u64, u64>,
}

impl AddressSpace {
    pub(crate) fn new(start: u64, end: u64, granule: u64) -> Self {
        let mut space = Self {
            granule,
            holes: BTreeMap::new(),
            by_size: BTreeMap::new(),
            taken: BTreeMap::new(),
        };
        space.add_hole(start, end - start);
        space
    }

    /// Takes the lowest free range that holds `bytes` rounded up to granules.
    pub(crate) fn take(&mut self, bytes: u64) -> Option<u64> {
        let length = round_up(bytes.max(1), self.granule)?;
        let start = self
            .by_size
            .range(length..)
            .filter_map(|(_, starts)| starts.first().copied())
            .min()?;
        let hole = self.remove_hole(start)?;
        if hole > length {
            self.add_hole(start + length, hole - length);
        }
        self.taken.insert(start, length);
        Some(start)
    }

    /// Gives a range back; its length, or `None` if nothing begins there.
    pub(crate) fn give_back(&mut self, start: u64) -> Option<u64> {
        let length = self.taken.remove(&start)?;
        let (mut from, mut total) = (start, length);
        if let Some((&before, &size)) = self.holes.range(..start).next_back()
            && before + size == start
        {
            self.remove_hole(before);
            from = before;
            total += size;
        }
        if let Some(after) = self.remove_hole(start + length) {
            total += after;
        }
        self.add_hole(from, total);
        Some(length)
    }

    /// The range an address lies in, as start and length.
    pub(crate) fn range_of(&self, address: u64) -> Option<(u64, u64)> {
        let (&start, &length) = self.taken.range(..=address).next_back()?;
        (address - start < length).then_some((start, length))
    }

    fn add_hole(&mut self, start: u64, length: u64) {
        self.holes.insert(start, length);
        self.by_size.entry(length).or_default().insert(start);
    }

    fn remove_hole(&mut self, start: u64) -> Option<u64> {
        let length = self.holes.remove(&start)?;
        if let Some(starts) = self.by_size.get_mut(&length) {
            starts.remove(&start);
            if starts.is_empty() {
                self.by_size.remove(&length);
            }
        }
        Some(length)
    }
}

/// The memory of one device.
#[derive(Debug)]
pub(crate) struct DeviceMemory {
    capacity: u64,
    used: u64,
    peak: u64,
    pub(crate) mallocs: u64,
    pub(crate) frees: u64,
    pub(crate) out_of_memory: u64,
    pages: AddressSpace,
    pool: AddressSpace,
    pool_used: u64,
    pool_peak: u64,
}

impl DeviceMemory {
    pub(crate) fn new(device: usize, capacity: u64, held: u64) -> Self {
        let index = device as u64;
        let pages = MALLOC_BASE + index * MALLOC_WINDOW;
        let pool = POOL_BASE + index * POOL_WINDOW;
        Self {
            capacity,
            used: held,
            peak: held,
            mallocs: 0,
            frees: 0,
            out_of_memory: 0,
            pages: AddressSpace::new(pages, pages + MALLOC_WINDOW, PAGE),
            pool: AddressSpace::new(pool, pool + POOL_WINDOW, POOL_PIECE),
            pool_used: 0,
            pool_peak: 0,
        }
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    pub(crate) fn peak(&self) -> u64 {
        self.peak
    }

    pub(crate) fn free(&self) -> u64 {
        self.capacity.saturating_sub(self.used)
    }

    /// Used and highest used bytes of the stream-ordered pool.
    pub(crate) fn pool(&self) -> (u64, u64) {
        (self.pool_used, self.pool_peak)
    }

    pub(crate) fn reset_peak(&mut self) {
        self.peak = self.used;
        self.pool_peak = self.pool_used;
    }

    /// Counts bytes as used; `None`, and one more out-of-memory, where they do not fit.
    pub(crate) fn charge(&mut self, bytes: u64) -> Option<()> {
        match self.used.checked_add(bytes) {
            Some(used) if used <= self.capacity => {
                self.used = used;
                self.peak = self.peak.max(used);
                self.mallocs += 1;
                Some(())
            }
            _ => {
                self.out_of_memory += 1;
                None
            }
        }
    }

    pub(crate) fn refund(&mut self, bytes: u64) {
        self.used = self.used.saturating_sub(bytes);
        self.frees += 1;
    }

    /// Takes bytes that are not the program's own: the context.
    pub(crate) fn hold(&mut self, bytes: u64) {
        self.used = self.used.saturating_add(bytes).min(self.capacity);
        self.peak = self.peak.max(self.used);
    }

    /// `cudaMalloc`.
    pub(crate) fn allocate(&mut self, bytes: u64) -> Option<u64> {
        let Some(length) = round_up(bytes.max(1), PAGE) else {
            self.out_of_memory += 1;
            return None;
        };
        self.charge(length)?;
        let address = self.pages.take(length);
        if address.is_none() {
            self.refund(length);
        }
        address
    }

    /// `cudaMallocAsync`.
    pub(crate) fn allocate_from_pool(&mut self, bytes: u64) -> Option<u64> {
        let Some(length) = round_up(bytes.max(1), POOL_PIECE) else {
            self.out_of_memory += 1;
            return None;
        };
        self.charge(length)?;
        let address = self.pool.take(length);
        if address.is_none() {
            self.refund(length);
        } else {
            self.pool_used += length;
            self.pool_peak = self.pool_peak.max(self.pool_used);
        }
        address
    }

    /// `cudaFree` and `cudaFreeAsync`; `None` for an address nobody was given.
    pub(crate) fn release(&mut self, address: u64) -> Option<()> {
        let length = if let Some(length) = self.pages.give_back(address) {
            length
        } else {
            let length = self.pool.give_back(address)?;
            self.pool_used = self.pool_used.saturating_sub(length);
            length
        };
        self.refund(length);
        Some(())
    }

    /// The allocation an address lies in, as start and length.
    pub(crate) fn range_of(&self, address: u64) -> Option<(u64, u64)> {
        self.pages
            .range_of(address)
            .or_else(|| self.pool.range_of(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(pages: u64) -> DeviceMemory {
        DeviceMemory::new(0, pages * PAGE, 0)
    }

    #[test]
    fn first_fit_takes_the_lowest_hole_that_is_large_enough() {
        let mut memory = memory(100);
        let blocks: Vec<u64> = (0..6).map(|_| memory.allocate(2 * PAGE).unwrap()).collect();
        assert_eq!(blocks[1] - blocks[0], 2 * PAGE);
        memory.release(blocks[1]).unwrap();
        memory.release(blocks[3]).unwrap();
        memory.release(blocks[4]).unwrap();
        assert_eq!(memory.allocate(3 * PAGE), Some(blocks[3]));
        assert_eq!(memory.allocate(1), Some(blocks[1]));
        assert_eq!(memory.allocate(1), Some(blocks[1] + PAGE));
    }

    #[test]
    fn neighbouring_holes_become_one() {
        let mut memory = memory(100);
        let blocks: Vec<u64> = (0..4).map(|_| memory.allocate(PAGE).unwrap()).collect();
        for index in [0, 2, 1] {
            memory.release(blocks[index]).unwrap();
        }
        assert_eq!(memory.allocate(3 * PAGE), Some(blocks[0]));
    }

    #[test]
    fn capacity_is_the_limit_and_held_counts() {
        let mut memory = DeviceMemory::new(0, 10 * PAGE, 4 * PAGE);
        assert_eq!(memory.free(), 6 * PAGE);
        let block = memory.allocate(6 * PAGE - 5).unwrap();
        assert_eq!(memory.allocate(1), None);
        assert_eq!(
            (memory.out_of_memory, memory.mallocs, memory.peak()),
            (1, 1, 10 * PAGE)
        );
        memory.release(block).unwrap();
        memory.reset_peak();
        assert_eq!((memory.used(), memory.peak()), (4 * PAGE, 4 * PAGE));
        assert_eq!(memory.release(block), None);
    }

    #[test]
    fn absurd_sizes_are_out_of_memory() {
        let mut memory = memory(10);
        assert_eq!(memory.allocate(u64::MAX), None);
        assert_eq!(memory.allocate_from_pool(u64::MAX - 3), None);
        assert_eq!((memory.out_of_memory, memory.used()), (2, 0));
    }

    #[test]
    fn addresses_tell_their_device() {
        let mut last = DeviceMemory::new(15, 10 * PAGE, 0);
        let block = last.allocate(1).unwrap();
        let piece = last.allocate_from_pool(1).unwrap();
        assert_eq!((device_of(block), device_of(piece)), (Some(15), Some(15)));
        assert!(is_device(block) && is_device(piece) && is_device(VIRTUAL_BASE));
        assert!(
            !is_device(0x5555_5555_0000) && !is_device(0x7fff_0000_0000) && !is_device(0x40_0000)
        );
        assert_eq!(last.range_of(block + 17), Some((block, PAGE)));
        assert_eq!(last.range_of(block + PAGE), None);
    }

    #[test]
    fn random_traffic_never_overlaps() {
        let mut memory = memory(1000);
        let mut live: Vec<(u64, u64)> = Vec::new();
        let mut seed = 7_u64;
        for _ in 0..5000 {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let dice = seed >> 33;
            if dice.is_multiple_of(2) || live.is_empty() {
                let bytes = (dice % 17 + 1) * PAGE;
                if let Some(at) = memory.allocate(bytes) {
                    assert!(
                        live.iter()
                            .all(|(start, size)| at + bytes <= *start || start + size <= at)
                    );
                    live.push((at, bytes));
                }
            } else {
                let index = usize::try_from(dice).unwrap() % live.len();
                let (at, _) = live.swap_remove(index);
                memory.release(at).unwrap();
            }
            assert_eq!(
                memory.used(),
                live.iter().map(|(_, size)| size).sum::<u64>()
            );
        }
    }
}
