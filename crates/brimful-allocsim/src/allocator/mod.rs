//! The caching allocator itself.
//!
//! A request is rounded, looked up among the free blocks of its stream (best fit), cut off a larger one, or gets a
//! new segment from the device. When the device has none left, cached segments go back to it and the request is
//! tried once more. The names of the steps follow what they do; the order and every comparison follow PyTorch.

mod expandable;
mod restore;
mod values;

pub use values::{FoundSegment, OutOfMemory, PoolId, RestoreError, SegmentView, Stat, Statistics};

use std::collections::{BTreeMap, HashMap};

use crate::blocks::{Arena, Block, Index, NONE, Pool};
use crate::device::Device;
use crate::settings::AllocatorSettings;
use crate::version::{Tie, TorchVersion};

const MIB: u64 = 1 << 20;
/// Every block is a multiple of this.
pub const SMALLEST_BLOCK: u64 = 512;
/// Requests up to this go to the small pool.
pub const MAX_SMALL_SIZE: u64 = MIB;
/// Segments of the small pool.
pub const SMALL_SEGMENT: u64 = 2 * MIB;
/// Requests below this share large segments; from here on a request gets its own.
pub const OWN_SEGMENT: u64 = 10 * MIB;
const SEGMENT_STEP: u64 = 2 * MIB;
/// More than any card will have: sizes beyond it are refused before arithmetic could overflow.
const MAX_REQUEST_BYTES: u64 = 1 << 50;

/// A live allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle(Index);

/// A range of addresses that grows page by page.
#[derive(Debug, Clone)]
struct Expandable {
    address: u64,
    page: u64,
    size: u64,
}

#[derive(Debug, Clone, Copy)]
struct Underway {
    pool: PoolId,
    /// A graph is being captured: nothing may be given back to the device.
    capture: bool,
}

#[derive(Debug, Clone)]
struct PrivatePool {
    users: u32,
    small: u32,
    large: u32,
}

/// PyTorch's caching allocator for one device.
#[derive(Debug, Clone)]
pub struct Allocator<D> {
    device: D,
    settings: AllocatorSettings,
    tie: Tie,
    allowed: Option<u64>,
    arena: Arena,
    /// 0: small, 1: large; then two for each private pool.
    pools: Vec<Pool>,
    private: BTreeMap<PoolId, PrivatePool>,
    /// Private pools that serve requests now.
    underway: Vec<Underway>,
    retries_in_pools: bool,
    expandable: Vec<Expandable>,
    /// Streams noted on live blocks by `record_stream`.
    uses: HashMap<Index, Vec<u64>>,
    /// Blocks given back that wait for another stream, in the order of their return.
    waiting: Vec<Index>,
    /// Segments (or blocks, where the release counts those) made so far.
    numbers_given: u64,
    statistics: Statistics,
}

const SMALL: u32 = 0;
const LARGE: u32 = 1;

impl<D: Device> Allocator<D> {
    pub fn new(device: D, settings: AllocatorSettings, version: TorchVersion) -> Self {
        let mut allocator = Allocator {
            device,
            settings,
            tie: version.tie(),
            allowed: None,
            arena: Arena::default(),
            pools: vec![Pool::new(true), Pool::new(false)],
            private: BTreeMap::new(),
            underway: Vec::new(),
            retries_in_pools: version.retries_in_pools(),
            expandable: Vec::new(),
            uses: HashMap::new(),
            waiting: Vec::new(),
            numbers_given: 0,
            statistics: Statistics::default(),
        };
        // A fraction of 1 is PyTorch's default and sets no limit.
        if let Some(part) = allocator.settings.per_process_memory_fraction
            && part < 1.0
        {
            allocator.set_memory_fraction(part);
        }
        allocator
    }

    pub fn settings(&self) -> &AllocatorSettings {
        &self.settings
    }

    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Resets peaks to what is used now, and counters to zero (`torch.cuda.reset_peak_memory_stats` and
    /// `reset_accumulated_memory_stats`).
    pub fn reset_statistics(&mut self) {
        let now = self.statistics;
        let reset = |stat: Stat| Stat {
            current: stat.current,
            peak: stat.current,
        };
        self.statistics = Statistics {
            allocated: reset(now.allocated),
            active: reset(now.active),
            requested: reset(now.requested),
            reserved: reset(now.reserved),
            ..Statistics::default()
        };
    }

    pub fn device(&self) -> &D {
        &self.device
    }

    /// `torch.cuda.set_per_process_memory_fraction`.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "PyTorch cuts the product off in the same way"
    )]
    pub fn set_memory_fraction(&mut self, part: f64) {
        self.allowed = Some((part * self.device.total() as f64) as u64);
    }

    pub fn address(&self, handle: Handle) -> u64 {
        self.arena.get(handle.0).address
    }

    pub fn size(&self, handle: Handle) -> u64 {
        self.arena.get(handle.0).size
    }

    /// Bytes of the block that a request gets at least. One that no card could serve stays as it is.
    pub fn round(&self, request: u64) -> u64 {
        if request < SMALLEST_BLOCK {
            return SMALLEST_BLOCK;
        }
        if request > MAX_REQUEST_BYTES {
            return request;
        }
        let divisions = self.settings.divisions(request);
        if divisions > 1 && request > SMALLEST_BLOCK * divisions {
            return round_to_division(request, divisions);
        }
        request.div_ceil(SMALLEST_BLOCK) * SMALLEST_BLOCK
    }

    /// Serves a request of `request` bytes on `stream`.
    pub fn malloc(
        &mut self,
        request: u64,
        stream: u64,
        pool: PoolId,
    ) -> Result<Handle, OutOfMemory> {
        if request > MAX_REQUEST_BYTES {
            return Err(self.out_of_memory(request));
        }
        let size = self.round(request);
        let pool = self.pool_for(pool, size);
        let found = match self.take_free(pool, stream, size) {
            Some(index) => index,
            None => self.obtain(pool, stream, size)?,
        };
        let index = if self.should_split(found, size) {
            self.split(found, size)
        } else {
            found
        };
        let block = self.arena.get_mut(index);
        block.allocated = true;
        block.requested = request;
        let size = block.size;
        self.statistics.allocated.add(size);
        self.statistics.active.add(size);
        self.statistics.requested.add(request);
        Ok(Handle(index))
    }

    /// Notes that `stream` uses the block (`Tensor.record_stream`).
    pub fn record_stream(&mut self, handle: Handle, stream: u64) {
        if self.arena.get(handle.0).stream == stream {
            return;
        }
        let streams = self.uses.entry(handle.0).or_default();
        if !streams.contains(&stream) {
            streams.push(stream);
        }
    }

    /// Gives the block back. One that another stream was noted on becomes free with [`Self::complete_waiting`].
    pub fn free(&mut self, handle: Handle) {
        if self.uses.contains_key(&handle.0) {
            self.free_later(handle);
        } else {
            self.give_back(handle.0);
            self.make_free(handle.0);
        }
    }

    /// Gives the block back, to become free only with [`Self::complete`] or when the allocator waits for the device.
    pub fn free_later(&mut self, handle: Handle) {
        self.uses.remove(&handle.0);
        self.give_back(handle.0);
        self.arena.get_mut(handle.0).awaiting = true;
        self.waiting.push(handle.0);
    }

    /// The other streams are done with a block that was given back by [`Self::free_later`].
    pub fn complete(&mut self, handle: Handle) {
        if let Some(position) = self.waiting.iter().position(|index| *index == handle.0) {
            self.waiting.remove(position);
            self.make_free(handle.0);
        }
    }

    /// The other streams are done with everything that was given back.
    pub fn complete_waiting(&mut self) {
        for index in std::mem::take(&mut self.waiting) {
            self.make_free(index);
        }
    }

    /// `torch.cuda.empty_cache`.
    pub fn empty_cache(&mut self) {
        self.release_cached();
    }

    /// The capture of a graph into the private pool `pool` begins.
    pub fn begin_capture(&mut self, pool: PoolId) {
        self.begin(pool, true);
    }

    /// Requests are served from the private pool `pool` from now on (`torch.cuda.use_mem_pool`).
    pub fn begin_pool(&mut self, pool: PoolId) {
        self.begin(pool, false);
    }

    fn begin(&mut self, pool: PoolId, capture: bool) {
        if let Some(private) = self.private.get_mut(&pool) {
            private.users += 1;
        } else {
            self.add_private(pool);
        }
        self.underway.push(Underway { pool, capture });
    }

    fn add_private(&mut self, pool: PoolId) -> &PrivatePool {
        let small = u32::try_from(self.pools.len()).unwrap_or(NONE);
        self.pools.extend([Pool::new(true), Pool::new(false)]);
        self.private.entry(pool).or_insert(PrivatePool {
            users: 1,
            small,
            large: small + 1,
        })
    }

    /// The use of `pool` has ended; its memory stays.
    pub fn end_pool(&mut self, pool: PoolId) {
        self.underway.retain(|underway| underway.pool != pool);
    }

    /// A graph that uses `pool` is gone; with the last one its memory may go back to the device.
    pub fn release_pool(&mut self, pool: PoolId) {
        if let Some(private) = self.private.get_mut(&pool) {
            private.users = private.users.saturating_sub(1);
        }
    }

    /// All ranges with memory, by address.
    pub fn segments(&self) -> Vec<SegmentView> {
        let mut views = Vec::new();
        for start in self.heads() {
            let head = self.arena.get(start);
            let mut view = SegmentView {
                address: head.address,
                size: 0,
                stream: head.stream,
                small: self.pools[head.pool as usize].small,
                blocks: Vec::new(),
            };
            let mut index = start;
            while index != NONE && self.arena.get(index).mapped {
                let block = self.arena.get(index);
                view.size += block.size;
                view.blocks.push((block.size, !block.is_free()));
                index = block.next;
            }
            views.push(view);
        }
        views.sort_by_key(|view| view.address);
        views
    }

    // --- finding a block ---

    fn pool_for(&mut self, pool: PoolId, size: u64) -> u32 {
        let small = size <= MAX_SMALL_SIZE;
        if pool == PoolId::DEFAULT {
            return if small { SMALL } else { LARGE };
        }
        let private = match self.private.get(&pool) {
            Some(private) => private,
            None => self.add_private(pool),
        };
        if small { private.small } else { private.large }
    }

    /// Bytes that a block could grow to: a free block before unmapped addresses counts with them.
    fn potential(&self, index: Index) -> u64 {
        let block = self.arena.get(index);
        if block.next == NONE {
            return block.size;
        }
        let next = self.arena.get(block.next);
        if next.mapped {
            block.size
        } else {
            block.size + next.size
        }
    }

    fn collects_garbage(&self) -> bool {
        self.allowed.is_some() && self.settings.garbage_collection_threshold > 0.0
    }

    /// The best free block of that stream, taken out of the pool.
    fn take_free(&mut self, pool: u32, stream: u64, size: u64) -> Option<Index> {
        if self.collects_garbage() {
            self.pools[pool as usize].searches += 1;
        }
        let free = &self.pools[pool as usize].free;
        let mut candidates = free
            .range((stream, size, 0, 0, 0)..)
            .take_while(|key| key.0 == stream);
        let mut best = *candidates.next()?;
        if self.arena.get(best.4).expandable != NONE {
            if self.settings.expandable_segments {
                for next in candidates {
                    if self.potential(next.4) >= self.potential(best.4) {
                        break;
                    }
                    best = *next;
                    if self.arena.get(best.4).expandable == NONE {
                        break;
                    }
                }
            } else {
                best = *candidates.find(|key| self.arena.get(key.4).expandable == NONE)?;
            }
        }
        if let Some(most) = self.settings.max_split_size {
            let oversize = best.1 >= most;
            if size < most && oversize {
                return None;
            }
            if size >= most && best.1 >= size + self.settings.max_non_split_rounding {
                return None;
            }
        }
        self.pools[pool as usize].free.remove(&best);
        Some(best.4)
    }

    /// No cached block fits: a new segment, if need be after giving cached ones back.
    fn obtain(&mut self, pool: u32, stream: u64, size: u64) -> Result<Index, OutOfMemory> {
        if self.collects_garbage() {
            self.collect_garbage();
        }
        if let Some(index) = self.new_segment(pool, stream, size) {
            return Ok(index);
        }
        if self.release_oversize(pool, stream, size)
            && let Some(index) = self.new_segment(pool, stream, size)
        {
            return Ok(index);
        }
        if self
            .underway
            .iter()
            .all(|underway| self.retries_in_pools && !underway.capture)
        {
            self.release_cached();
            self.statistics.retries += 1;
            if let Some(index) = self.new_segment(pool, stream, size) {
                return Ok(index);
            }
        }
        Err(self.out_of_memory(self.segment_size(size)))
    }

    fn out_of_memory(&mut self, requested: u64) -> OutOfMemory {
        self.statistics.ooms += 1;
        OutOfMemory {
            requested,
            allocated: self.statistics.allocated.current,
            reserved: self.statistics.reserved.current,
            device_unused: self.device.unused(),
        }
    }

    /// Bytes of the segment that a block of `size` needs.
    fn segment_size(&self, size: u64) -> u64 {
        if size <= MAX_SMALL_SIZE {
            SMALL_SEGMENT
        } else if size < OWN_SEGMENT {
            self.settings.large_segment_size
        } else {
            size.div_ceil(SEGMENT_STEP) * SEGMENT_STEP
        }
    }

    fn new_segment(&mut self, pool: u32, stream: u64, size: u64) -> Option<Index> {
        let bytes = self.segment_size(size);
        if let Some(allowed) = self.allowed
            && self.statistics.reserved.current + bytes > allowed
        {
            return None;
        }
        if self.settings.expandable_segments {
            return self.expand(pool, stream, size);
        }
        let address = self.device.malloc(bytes)?;
        self.statistics.device_allocs += 1;
        self.statistics.reserved.add(bytes);
        Some(self.add_segment(pool, stream, address, bytes))
    }

    fn add_segment(&mut self, pool: u32, stream: u64, address: u64, size: u64) -> Index {
        let age = self.age_of_segment();
        self.arena.add(Block {
            age,
            ..unused_block(pool, stream, address, size)
        })
    }

    fn next_number(&mut self) -> u64 {
        self.numbers_given += 1;
        self.numbers_given
    }

    /// The age of a new segment or range of addresses.
    fn age_of_segment(&mut self) -> u64 {
        if self.tie == Tie::LowestAddress {
            0
        } else {
            self.next_number()
        }
    }

    /// The age of a block that is split off from one of `age`.
    fn age_of_part(&mut self, age: u64) -> u64 {
        if self.tie == Tie::OldestBlock {
            self.next_number()
        } else {
            age
        }
    }

    fn should_split(&self, index: Index, size: u64) -> bool {
        let block = self.arena.get(index);
        let rest = block.size - size;
        if self.pools[block.pool as usize].small || self.settings.expandable_segments {
            rest >= SMALLEST_BLOCK
        } else {
            self.settings.max_split_size.is_none_or(|most| size < most) && rest > MAX_SMALL_SIZE
        }
    }

    /// Cuts `size` bytes off the front; the rest goes back to the pool.
    fn split(&mut self, index: Index, size: u64) -> Index {
        let front = self.cut(index, size);
        self.insert_free(index);
        front
    }

    fn cut(&mut self, index: Index, size: u64) -> Index {
        let rest = self.arena.get(index).clone();
        let previous = rest.previous;
        let age = self.age_of_part(rest.age);
        let front = self.arena.add(Block { size, age, ..rest });
        self.arena.link(front, previous, index);
        let block = self.arena.get_mut(index);
        block.address += size;
        block.size -= size;
        front
    }

    // --- giving back ---

    fn give_back(&mut self, index: Index) {
        let block = self.arena.get_mut(index);
        debug_assert!(block.allocated, "a handle is given back once");
        block.allocated = false;
        self.statistics.allocated.subtract(block.size);
    }

    fn make_free(&mut self, index: Index) {
        let block = self.arena.get_mut(index);
        block.awaiting = false;
        let (size, requested) = (block.size, block.requested);
        block.requested = 0;
        self.statistics.active.subtract(size);
        self.statistics.requested.subtract(requested);
        self.merge_neighbours(index);
        self.insert_free(index);
    }

    fn insert_free(&mut self, index: Index) {
        let key = self.arena.key(index);
        let block = self.arena.get_mut(index);
        let pool = &mut self.pools[block.pool as usize];
        block.free_since = pool.searches;
        pool.free.insert(key);
    }

    fn remove_free(&mut self, index: Index) {
        let key = self.arena.key(index);
        let pool = self.arena.get(index).pool;
        let removed = self.pools[pool as usize].free.remove(&key);
        debug_assert!(removed, "a free block is in its pool");
    }

    fn remove_unmapped(&mut self, index: Index) {
        let block = self.arena.get(index);
        self.pools[block.pool as usize]
            .unmapped
            .remove(&(block.stream, block.address, index));
    }

    fn insert_unmapped(&mut self, index: Index) {
        let block = self.arena.get(index);
        self.pools[block.pool as usize]
            .unmapped
            .insert((block.stream, block.address, index));
    }

    fn merge_neighbours(&mut self, index: Index) {
        self.merge(index, self.arena.get(index).previous);
        self.merge(index, self.arena.get(index).next);
    }

    fn merge(&mut self, into: Index, other: Index) {
        if other == NONE {
            return;
        }
        let neighbour = self.arena.get(other);
        if !neighbour.is_free() || neighbour.mapped != self.arena.get(into).mapped {
            return;
        }
        let (address, size) = (neighbour.address, neighbour.size);
        let (previous, next) = (neighbour.previous, neighbour.next);
        if neighbour.mapped {
            self.remove_free(other);
        } else {
            self.remove_unmapped(other);
        }
        if previous == into {
            let before = self.arena.get(into).previous;
            self.arena.link(into, before, next);
        } else {
            let after = self.arena.get(into).next;
            self.arena.link(into, previous, after);
            self.arena.get_mut(into).address = address;
        }
        self.arena.get_mut(into).size += size;
        self.arena.remove(other);
    }

    /// A whole free segment goes back to the device.
    fn release(&mut self, index: Index) {
        self.remove_free(index);
        let block = self.arena.get(index);
        let (address, size) = (block.address, block.size);
        self.device.free(address, size);
        self.statistics.device_frees += 1;
        self.statistics.reserved.subtract(size);
        self.arena.remove(index);
    }

    /// With `max_split_size`: one cached block that is large enough, or several, from the largest down.
    fn release_oversize(&mut self, pool: u32, stream: u64, size: u64) -> bool {
        let Some(most) = self.settings.max_split_size else {
            return false;
        };
        if self.settings.expandable_segments {
            // Parts of expandable segments are unmapped, never released.
            return false;
        }
        let wanted = size.max(most);
        let free = &self.pools[pool as usize].free;
        if let Some(key) = free
            .range((stream, wanted, 0, 0, 0)..)
            .next()
            .filter(|key| key.0 == stream)
        {
            let index = key.4;
            self.release(index);
            return true;
        }
        let mut released = 0;
        while released < wanted {
            let free = &self.pools[pool as usize].free;
            let largest = free.range(..(stream, u64::MAX, 0, 0, 0)).next_back();
            let Some(&(_, size, _, _, index)) =
                largest.filter(|key| key.0 == stream && key.1 >= most)
            else {
                break;
            };
            released += size;
            self.release(index);
        }
        released >= wanted
    }

    /// Everything cached goes back to the device.
    fn release_cached(&mut self) {
        self.complete_waiting();
        self.release_pool_blocks(LARGE);
        self.release_pool_blocks(SMALL);
        let freeable: Vec<PrivatePool> = self
            .private
            .values()
            .filter(|p| p.users == 0)
            .cloned()
            .collect();
        for private in freeable {
            self.release_pool_blocks(private.small);
            self.release_pool_blocks(private.large);
        }
    }

    fn release_pool_blocks(&mut self, pool: u32) {
        let free: Vec<Index> = self.pools[pool as usize]
            .free
            .iter()
            .map(|key| key.4)
            .collect();
        let mut expandable = Vec::new();
        for index in free {
            let block = self.arena.get(index);
            if block.expandable != NONE {
                expandable.push(index);
            } else if !block.is_split() {
                self.release(index);
            }
        }
        for index in expandable {
            self.unmap(index);
            let block = self.arena.get(index);
            if !block.is_split() && !block.mapped {
                let (address, size) = (block.address, block.size);
                self.remove_unmapped(index);
                self.arena.remove(index);
                self.device.unreserve(address, size);
            }
        }
    }

    /// Frees the segments that were not used for the longest time, until the process is below its threshold.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "PyTorch cuts the product off in the same way"
    )]
    fn collect_garbage(&mut self) {
        let Some(allowed) = self.allowed else { return };
        let threshold = (self.settings.garbage_collection_threshold * allowed as f64) as u64;
        let reserved = self.statistics.reserved.current;
        if reserved <= threshold {
            return;
        }
        let target = reserved - threshold;
        let mut freed = 0;
        let mut candidates: Vec<Index> = self.pools[LARGE as usize]
            .free
            .iter()
            .map(|key| key.4)
            .filter(|index| !self.arena.get(*index).is_split())
            .collect();
        let searches = self.pools[LARGE as usize].searches;
        let age = |allocator: &Self, index: Index| searches - allocator.arena.get(index).free_since;
        let mut total_age: u64 = candidates.iter().map(|index| age(self, *index)).sum();
        while freed < target && !candidates.is_empty() {
            let limit = total_age as f64 / candidates.len() as f64;
            let (old, young): (Vec<Index>, Vec<Index>) = candidates
                .iter()
                .partition(|index| age(self, **index) as f64 >= limit);
            if old.is_empty() {
                return;
            }
            for index in old {
                freed += self.arena.get(index).size;
                total_age -= age(self, index);
                self.release(index);
            }
            candidates = young;
        }
    }

    /// The first mapped block of every contiguous range.
    fn heads(&self) -> Vec<Index> {
        self.arena
            .live()
            .filter(|index| {
                let block = self.arena.get(*index);
                block.mapped && (block.previous == NONE || !self.arena.get(block.previous).mapped)
            })
            .collect()
    }
}

fn unused_block(pool: u32, stream: u64, address: u64, size: u64) -> Block {
    Block {
        address,
        size,
        requested: 0,
        stream,
        pool,
        previous: NONE,
        next: NONE,
        age: 0,
        free_since: 0,
        expandable: NONE,
        allocated: false,
        mapped: true,
        awaiting: false,
    }
}

/// The next of `divisions` equal steps between two powers of two.
fn round_to_division(size: u64, divisions: u64) -> u64 {
    if size.is_power_of_two() {
        return size;
    }
    let floor = 1_u64 << size.ilog2();
    let step = floor >> divisions.ilog2();
    if step == 0 {
        return floor << 1;
    }
    size.div_ceil(step) * step
}
