//! What a pickled checkpoint says in plain values: its step, its epoch, and which storages it has.
//!
//! Read by an unpickler that builds nothing of a class ([`brimful_allocsim::pickle`]).

use std::collections::BTreeSet;

use brimful_allocsim::pickle::{self, Dict, Document, Limits, Value};

/// Longer pickles are not read: that of a model of 100,000 tensors has 20 MB.
pub(super) const MAX_PICKLE: u64 = 64 << 20;

/// Under which names trainings keep their step, the most telling first. `global_steps` is DeepSpeed's, `iter_num`
/// nanoGPT's.
const STEP_KEYS: [&str; 6] = [
    "global_step",
    "global_steps",
    "step",
    "iteration",
    "iter",
    "iter_num",
];
const EPOCH_KEY: &str = "epoch";
/// Storages of whole numbers: counters, indexes, and the states of random number generators.
const INTEGER_STORAGES: [&str; 6] = [
    "LongStorage",
    "IntStorage",
    "ShortStorage",
    "CharStorage",
    "ByteStorage",
    "BoolStorage",
];

/// How far a training was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    pub(super) step: Option<u64>,
    /// Says little: epochs differ in length, and several checkpoints have the same.
    pub(super) epoch: Option<u64>,
}

/// A part of a file that a distributed checkpoint names in its `.metadata`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) file: String,
    pub(super) offset: u64,
    pub(super) length: u64,
}

/// The step and epoch at the top of a pickle. Nothing where it cannot be read.
pub(super) fn progress(bytes: &[u8]) -> Progress {
    let Some(document) = read(bytes) else {
        return Progress::default();
    };
    let Value::Dict(root) = document.root() else {
        return Progress::default();
    };
    Progress {
        step: STEP_KEYS.iter().find_map(|key| count(root, key)),
        epoch: count(root, EPOCH_KEY),
    }
}

/// The keys of the storages that hold whole numbers. Nothing where the pickle cannot be read.
pub(super) fn integer_storages(bytes: &[u8]) -> Option<BTreeSet<Vec<u8>>> {
    let document = read(bytes)?;
    let keys = document.persistent_ids().filter_map(|id| {
        let Value::Tuple(items) = id else { return None };
        let mut items = items.iter();
        match (items.next(), items.next(), items.next()) {
            (Some(Value::Str("storage")), Some(Value::Class(class)), Some(Value::Str(key)))
                if INTEGER_STORAGES.contains(&class.rsplit('.').next().unwrap_or_default()) =>
            {
                Some(key.as_bytes().to_vec())
            }
            _ => None,
        }
    });
    Some(keys.collect())
}

/// The parts that the `.metadata` of a distributed checkpoint names, at most `max`, spread over all of them.
pub(super) fn distributed_parts(bytes: &[u8], max: usize) -> Option<Vec<Part>> {
    let document = read(bytes)?;
    let parts: Vec<Part> = document
        .states()
        .filter_map(|state| {
            let Value::Dict(state) = state else {
                return None;
            };
            let Some(Value::Str(file)) = state.get("relative_path") else {
                return None;
            };
            Some(Part {
                file: file.to_owned(),
                offset: count(state, "offset")?,
                length: count(state, "length")?,
            })
        })
        .collect();
    let every = parts.len().div_ceil(max.max(1)).max(1);
    Some(parts.into_iter().step_by(every).collect())
}

fn read(bytes: &[u8]) -> Option<Document<'_>> {
    const MIB: u64 = 1 << 20;
    let limits = Limits {
        max_built_bytes: 256 * MIB,
        max_depth: 64,
        max_memo_entries: bytes.len().min(4 << 20),
    };
    pickle::read_around_objects(bytes, &limits).ok()
}

fn count(dict: Dict<'_>, key: &str) -> Option<u64> {
    match dict.get(key)? {
        Value::Int(count) => u64::try_from(count).ok(),
        Value::UInt(count) => Some(count),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(bytes: &[u8]) -> Option<u64> {
        progress(bytes).step
    }

    #[test]
    fn the_step_is_a_whole_number_at_the_top() {
        // {"step": 40, "epoch": 3}
        let both = b"\x80\x02}(X\x04\x00\x00\x00stepK(X\x05\x00\x00\x00epochK\x03u.";
        assert_eq!(
            progress(both),
            Progress {
                step: Some(40),
                epoch: Some(3)
            }
        );
        // global_step counts before step, whatever their order.
        let two = b"\x80\x02}(X\x04\x00\x00\x00stepK(X\x0b\x00\x00\x00global_stepK)u.";
        assert_eq!(step(two), Some(41));
        for (bytes, expected) in [
            (&b"}X\x09\x00\x00\x00iterationM\x00\x01s."[..], Some(256)),
            (b"}X\x04\x00\x00\x00iterK\x07s.", Some(7)),
            // A tensor, a float, a truth value, a negative number, text.
            (b"}X\x04\x00\x00\x00stepP0\ns.", None),
            (b"}X\x04\x00\x00\x00stepG@D\x00\x00\x00\x00\x00\x00s.", None),
            (b"}X\x04\x00\x00\x00step\x88s.", None),
            (b"}X\x04\x00\x00\x00stepJ\xff\xff\xff\xffs.", None),
            (b"}X\x04\x00\x00\x00stepX\x01\x00\x00\x007s.", None),
            // Not at the top, no dict, no pickle, cut short.
            (b"}X\x01\x00\x00\x00a}X\x04\x00\x00\x00stepK\x07ss.", None),
            (b"]X\x04\x00\x00\x00stepa.", None),
            (b"step 40", None),
            (b"", None),
            (b"}X\x04\x00\x00\x00stepK\x07s", None),
        ] {
            assert_eq!(step(bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn storages_of_whole_numbers_are_told_apart() {
        let id = |class: &str, key: &str| {
            let mut bytes = b"(X\x07\x00\x00\x00storagectorch\n".to_vec();
            bytes.extend(class.as_bytes());
            bytes.extend(b"\nX\x01\x00\x00\x00");
            bytes.extend(key.as_bytes());
            bytes.extend(b"X\x03\x00\x00\x00cpuK\x01tQ");
            bytes
        };
        let mut bytes = b"\x80\x02(".to_vec();
        bytes.extend(id("FloatStorage", "0"));
        bytes.extend(id("LongStorage", "1"));
        bytes.extend(id("UntypedStorage", "2"));
        bytes.extend(id("ByteStorage", "3"));
        bytes.extend(b"NQt.");
        let keys = integer_storages(&bytes).unwrap();
        assert_eq!(keys.into_iter().collect::<Vec<_>>(), [b"1", b"3"]);
        assert_eq!(integer_storages(b"\x80\x02("), None);
    }

    #[test]
    fn the_parts_of_a_distributed_checkpoint_are_spread() {
        let mut bytes = b"\x80\x02(".to_vec();
        for offset in 0..10 {
            bytes.extend(
                b"cm\nC\n)\x81}(X\x0d\x00\x00\x00relative_pathX\x0c\x00\x00\x00__0_0.distcp",
            );
            bytes.extend(b"X\x06\x00\x00\x00offsetK");
            bytes.push(offset);
            bytes.extend(b"X\x06\x00\x00\x00lengthK\x05ub");
        }
        bytes.extend(b"t.");
        let offsets = |max| {
            let parts = distributed_parts(&bytes, max).unwrap();
            assert!(
                parts
                    .iter()
                    .all(|part| part.file == "__0_0.distcp" && part.length == 5)
            );
            parts.iter().map(|part| part.offset).collect::<Vec<_>>()
        };
        assert_eq!(offsets(10).len(), 10);
        assert_eq!(offsets(4), [0, 3, 6, 9]);
        assert_eq!(offsets(1), [0]);
        assert_eq!(offsets(0), [0]);
    }
}
