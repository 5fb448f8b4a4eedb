//! Dicts as they stand in the bytes: keys in the order in which they came, values beside them, a table to find them by.

use crate::error::Damaged;
use crate::key::{Key, hash};
use crate::layout::{Id, chunk, part, words};
use crate::list::List;

/// First words of nodes.
pub(crate) const NODE_DICT: u64 = 0x6469_6374_0000;
pub(crate) const NODE_KEYS: u64 = 0x6b65_7973_0000;

/// Dicts of up to so many keys have no table: reading all of their keys is as fast.
pub(crate) const SMALL: usize = 8;

/// A dict, of which the parts were checked to lie inside of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dict {
    keys: List,
    values: List,
    /// Entries of 4 bytes: the index of a key plus one, or zero.
    table: usize,
    /// A power of two, or zero where there is no table.
    capacity: usize,
}

impl Dict {
    pub(crate) const WORDS: usize = 3;
    pub(crate) const KEYS_WORDS: usize = 4;

    pub fn read(bytes: &[u8], at: u64) -> Result<Dict, Damaged> {
        let damaged = Damaged {
            expected: "a dict",
            at,
        };
        let [kind, keys_at, values_at]: [u64; Dict::WORDS] = words(bytes, at)?;
        if kind != NODE_DICT {
            return Err(damaged);
        }
        let [kind, list_at, table, capacity]: [u64; Dict::KEYS_WORDS] = words(bytes, keys_at)?;
        let n_bytes = capacity.checked_mul(4).ok_or(damaged)?;
        if kind != NODE_KEYS || (capacity != 0 && !capacity.is_power_of_two()) {
            return Err(damaged);
        }
        part(bytes, table, n_bytes)?;
        let (keys, values) = (List::read(bytes, list_at)?, List::read(bytes, values_at)?);
        if keys.len() != values.len() {
            return Err(damaged);
        }
        Ok(Dict {
            keys,
            values,
            table: usize::try_from(table).map_err(|_| damaged)?,
            capacity: usize::try_from(capacity).map_err(|_| damaged)?,
        })
    }

    pub fn keys(&self) -> List {
        self.keys
    }

    pub fn values(&self) -> List {
        self.values
    }

    /// Where `key` stands among the keys.
    pub fn find(&self, bytes: &[u8], id: &Id, key: &Key) -> Result<Option<usize>, Damaged> {
        if self.capacity == 0 {
            for idx in 0..self.keys.len() {
                if key.is(bytes, self.keys.get(bytes, idx)?)? {
                    return Ok(Some(idx));
                }
            }
            return Ok(None);
        }
        let mask = self.capacity - 1;
        let mut place = low_bits(hash(seed(id), key.as_bytes()), mask);
        for _ in 0..self.capacity {
            let entry = u32::from_le_bytes(*chunk(bytes, self.table + 4 * place)?);
            let Some(idx) = entry.checked_sub(1) else {
                return Ok(None);
            };
            if key.is(bytes, self.keys.get(bytes, idx as usize)?)? {
                return Ok(Some(idx as usize));
            }
            place = (place + 1) & mask;
        }
        Ok(None)
    }
}

/// The table of keys with these hashes: at most two thirds full.
pub(crate) fn table(hashes: &[u64]) -> Vec<u32> {
    let capacity = (hashes.len() + hashes.len() / 2 + 1).next_power_of_two();
    let mut entries = vec![0_u32; capacity];
    for (number, hash) in (1..).zip(hashes) {
        let mut place = low_bits(*hash, capacity - 1);
        while entries[place] != 0 {
            place = (place + 1) & (capacity - 1);
        }
        entries[place] = number;
    }
    entries
}

pub(crate) fn seed(id: &Id) -> u64 {
    let (first, _) = id.split_at(8);
    first
        .iter()
        .fold(0, |seed, byte| (seed << 8) | u64::from(*byte))
}

fn low_bits(hash: u64, mask: usize) -> usize {
    usize::try_from(hash & mask as u64).expect("no larger than the mask")
}
