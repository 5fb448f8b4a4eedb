//! Samples as records of one size, and their keys.

use brimful_load::SampleKey;

/// Draws of ops have small numbers; this one is the key's own.
const KEY_OP: u64 = u64::MAX;

/// The key of a sample: of any two samples, each is as likely to come first.
pub(crate) fn key_of(seed: u64, split: u64, index: u64) -> u64 {
    sample_key(seed, split, index).draw(KEY_OP, 0)
}

/// What random ops draw from.
pub(crate) fn sample_key(seed: u64, split: u64, index: u64) -> SampleKey {
    SampleKey {
        seed,
        epoch: split,
        index,
    }
}

/// Where the keys of shard number `at` of `of` begin; nothing behind the last.
pub(crate) fn first_key(at: u64, of: u64) -> Option<u64> {
    let of = u128::from(of.max(1));
    let start = (u128::from(at) << 64).div_ceil(of);
    u64::try_from(start).ok()
}
