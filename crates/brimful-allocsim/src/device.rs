//! Where segments come from: what `cudaMalloc` and the virtual memory calls do, as far as bytes and addresses go.

use std::collections::{BTreeMap, VecDeque};

/// The driver's granule: every `cudaMalloc` takes a multiple of it.
pub const GRANULE: u64 = 2 << 20;

/// The memory of one GPU, as the allocator sees it.
pub trait Device {
    /// Bytes of the card that the driver shows (`cudaMemGetInfo`'s total).
    fn total(&self) -> u64;
    /// `cudaMalloc`: the address, or none when out of memory.
    fn malloc(&mut self, size: u64) -> Option<u64>;
    /// Takes over a segment that exists already. False when out of memory.
    fn adopt(&mut self, address: u64, size: u64) -> bool;
    /// `cudaFree`.
    fn free(&mut self, address: u64, size: u64);
    /// `cuMemAddressReserve`: addresses without memory behind them, or none when there are no more.
    fn reserve(&mut self, size: u64) -> Option<u64>;
    /// `cuMemAddressFree`.
    fn unreserve(&mut self, address: u64, size: u64);
    /// `cuMemCreate` for all pages of `size` bytes: memory without an address. False when out of memory.
    fn create(&mut self, size: u64) -> bool;
    /// `cuMemRelease`.
    fn destroy(&mut self, size: u64);
    /// Bytes that `cudaMemGetInfo` would call free.
    fn unused(&self) -> u64;
}

/// A card with so many bytes: segments at the lowest address that fits, in granules of 2 MiB.
#[derive(Debug, Clone)]
pub struct ModelledGpu {
    total: u64,
    used: u64,
    memory: Addresses,
    /// Of ranges without memory behind them.
    ranges: Addresses,
}

/// A range of addresses, of which the lowest that fits is taken.
#[derive(Debug, Clone)]
struct Addresses {
    /// Given back, below `top`: address to length.
    holes: BTreeMap<u64, u64>,
    top: u64,
}

impl Addresses {
    fn from(base: u64) -> Self {
        Addresses {
            holes: BTreeMap::new(),
            top: base,
        }
    }

    fn take(&mut self, size: u64) -> Option<u64> {
        let hole = self
            .holes
            .iter()
            .find(|(_, length)| **length >= size)
            .map(|(address, length)| (*address, *length));
        if let Some((address, length)) = hole {
            self.holes.remove(&address);
            if length > size {
                self.holes.insert(address + size, length - size);
            }
            return Some(address);
        }
        let top = self.top.checked_add(size)?;
        Some(std::mem::replace(&mut self.top, top))
    }

    fn give_back(&mut self, address: u64, size: u64) {
        let mut start = address;
        let mut end = address.saturating_add(size);
        if let Some((before, length)) = self
            .holes
            .range(..address)
            .next_back()
            .map(|(address, length)| (*address, *length))
            && before + length == start
        {
            self.holes.remove(&before);
            start = before;
        }
        if let Some(length) = self.holes.remove(&end) {
            end += length;
        }
        if end == self.top {
            self.top = start;
        } else {
            self.holes.insert(start, end - start);
        }
    }
}

/// Where segments begin; only ties by address depend on it.
const BASE: u64 = 0x3000_0000_0000;
const RESERVED_BASE: u64 = 0x4000_0000_0000;

impl ModelledGpu {
    /// A card of `total` bytes of which `held` are taken already (context, other processes).
    pub fn new(total: u64, held: u64) -> Self {
        ModelledGpu {
            total,
            used: held,
            memory: Addresses::from(BASE),
            ranges: Addresses::from(RESERVED_BASE),
        }
    }

    fn take(&mut self, size: u64) -> bool {
        match self.used.checked_add(size) {
            Some(used) if used <= self.total => {
                self.used = used;
                true
            }
            _ => false,
        }
    }
}

fn granules(size: u64) -> u64 {
    size.div_ceil(GRANULE).saturating_mul(GRANULE)
}

impl Device for ModelledGpu {
    fn total(&self) -> u64 {
        self.total
    }

    fn malloc(&mut self, size: u64) -> Option<u64> {
        let size = granules(size);
        if !self.take(size) {
            return None;
        }
        self.memory.take(size)
    }

    fn adopt(&mut self, address: u64, size: u64) -> bool {
        let size = granules(size);
        // New segments come after the found ones: where the driver would put them is not known.
        let end = address.saturating_add(size);
        if end >= RESERVED_BASE << 4 || !self.take(size) {
            return false;
        }
        if end > self.memory.top {
            self.memory.top = granules(end);
        }
        true
    }

    fn free(&mut self, address: u64, size: u64) {
        let size = granules(size);
        self.used = self.used.saturating_sub(size);
        self.memory.give_back(address, size);
    }

    fn reserve(&mut self, size: u64) -> Option<u64> {
        self.ranges.take(granules(size))
    }

    fn unreserve(&mut self, address: u64, size: u64) {
        self.ranges.give_back(address, granules(size));
    }

    fn create(&mut self, size: u64) -> bool {
        self.take(size)
    }

    fn destroy(&mut self, size: u64) {
        self.used = self.used.saturating_sub(size);
    }

    fn unused(&self) -> u64 {
        self.total.saturating_sub(self.used)
    }
}

/// A device that hands out the segments of a recorded run, so that a replay can be compared block by block.
#[derive(Debug, Clone, Default)]
pub struct Recorded {
    upcoming: VecDeque<(u64, u64)>,
    /// Sizes that were asked for when the record has none or another size next.
    pub unexpected: Vec<u64>,
    used: u64,
    substitute: u64,
}

/// More than any card will have, and little enough to add up.
const ENDLESS: u64 = 1 << 52;

impl Recorded {
    /// The `(address, size)` of every segment in the order in which the run got them.
    pub fn new(segments: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let upcoming = segments.into_iter().collect();
        Recorded {
            upcoming,
            unexpected: Vec::new(),
            used: 0,
            substitute: RESERVED_BASE,
        }
    }

    /// Segments of the record that were not asked for.
    pub fn left(&self) -> usize {
        self.upcoming.len()
    }

    fn take(&mut self, size: u64) -> bool {
        match self.used.checked_add(size) {
            Some(used) if used <= ENDLESS => {
                self.used = used;
                true
            }
            _ => false,
        }
    }
}

impl Device for Recorded {
    fn total(&self) -> u64 {
        ENDLESS
    }

    fn malloc(&mut self, size: u64) -> Option<u64> {
        if !self.take(size) {
            return None;
        }
        // A segment that would end beyond all addresses is no segment of a real run.
        let fits = |&mut (address, recorded): &mut (u64, u64)| {
            recorded == size && address.checked_add(size).is_some()
        };
        if let Some((address, _)) = self.upcoming.pop_front_if(fits) {
            return Some(address);
        }
        self.unexpected.push(size);
        self.reserve(size)
    }

    fn adopt(&mut self, _address: u64, size: u64) -> bool {
        self.take(size)
    }

    fn free(&mut self, _address: u64, size: u64) {
        self.used = self.used.saturating_sub(size);
    }

    fn reserve(&mut self, size: u64) -> Option<u64> {
        let end = self.substitute.checked_add(granules(size))?;
        Some(std::mem::replace(&mut self.substitute, end))
    }

    fn unreserve(&mut self, _address: u64, _size: u64) {}

    fn create(&mut self, size: u64) -> bool {
        self.take(size)
    }

    fn destroy(&mut self, size: u64) {
        self.used = self.used.saturating_sub(size);
    }

    fn unused(&self) -> u64 {
        ENDLESS.saturating_sub(self.used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_card_gives_the_lowest_address_that_fits() {
        let mut card = ModelledGpu::new(64 * MIB, 0);
        let a = card.malloc(10 * MIB).expect("fits");
        let b = card.malloc(20 * MIB).expect("fits");
        card.free(a, 10 * MIB);
        assert_eq!(
            card.malloc(12 * MIB),
            Some(b + 20 * MIB),
            "the hole is too small"
        );
        assert_eq!(card.malloc(3 * MIB), Some(a), "4 MiB of the hole");
        assert_eq!(card.unused(), (64 - 20 - 12 - 4) * MIB);
    }

    #[test]
    fn neighbouring_holes_become_one() {
        let mut card = ModelledGpu::new(64 * MIB, 0);
        let parts: Vec<u64> = (0..4)
            .map(|_| card.malloc(2 * MIB).expect("fits"))
            .collect();
        card.free(parts[0], 2 * MIB);
        card.free(parts[2], 2 * MIB);
        card.free(parts[1], 2 * MIB);
        assert_eq!(card.malloc(6 * MIB), Some(parts[0]));
    }

    #[test]
    fn a_full_card_says_no_and_stays_as_it_was() {
        let mut card = ModelledGpu::new(8 * MIB, 2 * MIB);
        assert_eq!(card.malloc(8 * MIB), None);
        assert_eq!(card.unused(), 6 * MIB);
        assert_eq!(card.malloc(u64::MAX), None, "no overflow");
    }
}
