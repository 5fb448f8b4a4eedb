//! The blocks of all segments, in one arena: neighbours know each other by index.

use std::collections::BTreeSet;

/// Index of a block in the arena.
pub(crate) type Index = u32;
pub(crate) const NONE: Index = Index::MAX;

/// A range of one segment: handed out, free, or (in expandable segments) without memory behind it.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    pub address: u64,
    pub size: u64,
    pub requested: u64,
    pub stream: u64,
    /// Index into the allocator's pools.
    pub pool: u32,
    pub previous: Index,
    pub next: Index,
    /// The order in which segments were made; 0 where ties go by address.
    pub age: u64,
    /// The pool's search count when the block became free (for garbage collection).
    pub free_since: u64,
    /// Index into the expandable segments, or [`NONE`].
    pub expandable: u32,
    pub allocated: bool,
    pub mapped: bool,
    /// Given back while another stream may still use it: not to be reused yet.
    pub awaiting: bool,
}

impl Block {
    pub(crate) fn is_free(&self) -> bool {
        !self.allocated && !self.awaiting
    }

    pub(crate) fn is_split(&self) -> bool {
        self.previous != NONE || self.next != NONE
    }
}

/// Free blocks in the order in which the allocator looks at them.
type Key = (u64, u64, u64, u64, Index);

/// The free blocks of one size kind (small or large) of the default memory or of one private pool.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    pub small: bool,
    /// `(stream, size, age, address)`.
    pub free: BTreeSet<Key>,
    /// `(stream, address)` of ranges without memory.
    pub unmapped: BTreeSet<(u64, u64, Index)>,
    pub searches: u64,
}

impl Pool {
    pub(crate) fn new(small: bool) -> Self {
        Pool {
            small,
            free: BTreeSet::new(),
            unmapped: BTreeSet::new(),
            searches: 0,
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Arena {
    blocks: Vec<Block>,
    vacant: Vec<Index>,
}

impl Arena {
    pub(crate) fn add(&mut self, block: Block) -> Index {
        if let Some(index) = self.vacant.pop() {
            self.blocks[index as usize] = block;
            return index;
        }
        let index = Index::try_from(self.blocks.len()).unwrap_or(NONE);
        assert!(index < NONE, "four thousand million blocks at once");
        self.blocks.push(block);
        index
    }

    pub(crate) fn remove(&mut self, index: Index) {
        self.blocks[index as usize].size = 0;
        self.vacant.push(index);
    }

    /// Every block that exists; a vacant place has no bytes.
    pub(crate) fn live(&self) -> impl Iterator<Item = Index> {
        (0..)
            .zip(&self.blocks)
            .filter(|(_, block)| block.size > 0)
            .map(|(index, _)| index)
    }

    pub(crate) fn get(&self, index: Index) -> &Block {
        &self.blocks[index as usize]
    }

    pub(crate) fn get_mut(&mut self, index: Index) -> &mut Block {
        &mut self.blocks[index as usize]
    }

    pub(crate) fn key(&self, index: Index) -> Key {
        let block = self.get(index);
        (block.stream, block.size, block.age, block.address, index)
    }

    /// Puts `index` between `previous` and `next`, either of which may be [`NONE`].
    pub(crate) fn link(&mut self, index: Index, previous: Index, next: Index) {
        if previous != NONE {
            self.get_mut(previous).next = index;
        }
        if next != NONE {
            self.get_mut(next).previous = index;
        }
        let block = self.get_mut(index);
        block.previous = previous;
        block.next = next;
    }
}
