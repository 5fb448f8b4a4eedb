//! The order of an epoch, and who gets what of it.
//!
//! No list of indexes: the order is a keyed permutation, computed position by position, so that shuffling 10^12 samples
//! takes as much memory as shuffling ten. It depends on the seed and the epoch, not on threads, ranks or batches.

use std::ops::Range;

use crate::random::mixed;

/// A shuffled `0..len`, each position computed on its own.
///
/// A Feistel network on a rectangle: an index is a row and a column of the smallest near-square that holds all of them,
/// and each round turns the rows by an amount that depends on the column, then the columns by one that depends on the
/// row. Both steps can be undone, so the whole is a permutation of the rectangle. Positions that fall outside of
/// `0..len` are sent through again, which keeps it a permutation; fewer than one in the square root of `len` do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permutation {
    len: u64,
    rows: u64,
    columns: u64,
    keys: [u64; MAX_ROUNDS],
    rounds: usize,
}

/// Turns of rows and columns together. Fewer show in the serial correlation of neighbors; see `tests`.
const ROUNDS: usize = 8;

/// The same for few samples, where each turn mixes less.
const MAX_ROUNDS: usize = 32;
const FEW: u64 = 1 << 16;

impl Permutation {
    pub fn new(len: u64, seed: u64, epoch: u64) -> Permutation {
        let rows = len.isqrt().max(1);
        let columns = len.div_ceil(rows).max(1);
        let start = mixed(mixed(seed) ^ epoch.wrapping_mul(0xd6e8_feb8_6659_fd93));
        let keys = std::array::from_fn(|round| mixed(start.wrapping_add(round as u64)));
        Permutation {
            len,
            rows,
            columns,
            keys,
            rounds: if len < FEW { MAX_ROUNDS } else { ROUNDS },
        }
    }

    /// The index at a position, which must be below the length.
    #[inline]
    pub fn at(&self, position: u64) -> u64 {
        debug_assert!(position < self.len, "a position of this permutation");
        let mut index = position;
        loop {
            let (mut row, mut column) = (index / self.columns, index % self.columns);
            for pair in self.keys[..self.rounds].chunks_exact(2) {
                row = turned(row, amount(column, pair[0], self.rows), self.rows);
                column = turned(column, amount(row, pair[1], self.columns), self.columns);
            }
            index = row * self.columns + column;
            if index < self.len {
                return index;
            }
        }
    }
}

/// A number below `bound` that depends on all of `of` and `key`.
#[inline]
fn amount(of: u64, key: u64, bound: u64) -> u64 {
    let mut bits = (of ^ key).wrapping_mul(0x9fb2_1c65_1e98_df25);
    bits ^= bits >> 32;
    bits = bits.wrapping_mul(key | 1);
    let wide = u128::from(bits) * u128::from(bound);
    u64::try_from(wide >> 64).expect("the upper half")
}

/// `(value + by) % bound`, where both are below `bound`.
#[inline]
fn turned(value: u64, by: u64, bound: u64) -> u64 {
    let left = bound - by;
    if value >= left {
        value - left
    } else {
        value + by
    }
}

/// The samples of an epoch in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    len: u64,
    shuffled: Option<Permutation>,
}

impl Order {
    pub fn in_turn(len: u64) -> Order {
        Order {
            len,
            shuffled: None,
        }
    }

    pub fn shuffled(len: u64, seed: u64, epoch: u64) -> Order {
        Order {
            len,
            shuffled: Some(Permutation::new(len, seed, epoch)),
        }
    }

    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The sample at a position.
    #[inline]
    pub fn at(&self, position: u64) -> u64 {
        match &self.shuffled {
            Some(permutation) => permutation.at(position),
            None => position,
        }
    }
}

/// Which part of every step is ours, where several processes train together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    pub rank: u64,
    pub world_size: u64,
    pub batch_size: u64,
    /// Leave out the samples at the end that do not fill a batch for everybody.
    pub drop_last: bool,
}

/// What all ranks together take of an epoch in one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The positions that are ours; empty where too few are left for every rank: at a resume, or with batches of one.
    pub ours: Range<u64>,
    /// Where the next step begins.
    pub next: u64,
}

impl Split {
    /// The step that begins at `position`; nothing where the epoch is over.
    ///
    /// Everybody takes a batch, rank after rank. At the end, what is left is split as evenly as it goes; where that would
    /// leave a rank without a sample while the others wait for it, the step before leaves it one.
    pub fn step(&self, position: u64, len: u64) -> Option<Step> {
        let left = len.checked_sub(position).filter(|&left| left > 0)?;
        let whole = self.whole();
        let taken = if left < whole {
            if self.drop_last {
                return None;
            }
            left
        } else if self.leaves_some(left - whole) {
            left - self.world_size
        } else {
            whole
        };
        let (each, over) = (taken / self.world_size, taken % self.world_size);
        let start = position + self.rank * each + self.rank.min(over);
        Some(Step {
            ours: start..start + each + u64::from(self.rank < over),
            next: position + taken,
        })
    }

    /// Batches of this rank from `position` to the end of an epoch of `len` samples.
    pub fn batches(&self, position: u64, len: u64) -> u64 {
        let left = len.saturating_sub(position);
        let (steps, rest) = (left / self.whole(), left % self.whole());
        let is_shared_out = steps > 0 && self.leaves_some(rest);
        let has_rest = !self.drop_last && (rest > self.rank || is_shared_out);
        steps + u64::from(has_rest)
    }

    /// Samples of a step of all ranks.
    fn whole(&self) -> u64 {
        self.batch_size.saturating_mul(self.world_size).max(1)
    }

    /// Whether the step before must leave some of its samples, where so many are left for the last one.
    fn leaves_some(&self, rest: u64) -> bool {
        !self.drop_last && self.batch_size > 1 && (1..self.world_size).contains(&rest)
    }
}

#[cfg(test)]
mod tests;
