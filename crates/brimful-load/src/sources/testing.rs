//! What the tests of all formats need.

use std::path::{Path, PathBuf};

use brimful::units::Bytes;

use crate::reading::Access;
use crate::source::Source;
use crate::value::Value;

/// A file of `fixtures/load/`.
pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/load")).join(name)
}

/// Headrooms that lead to a map and to direct reads.
pub(crate) const HEADROOMS: [Option<Bytes>; 2] = [None, Some(Bytes::ZERO)];

/// One sample.
pub(crate) fn sample(source: &dyn Source, index: u64) -> Vec<Value> {
    let mut values = vec![Value::default(); source.fields().len()];
    source.read(index, &mut values).unwrap();
    values
}

/// All samples of all fields as bytes, by `read` and where it is possible also by `read_into`.
pub(crate) fn all_bytes(source: &dyn Source) -> Vec<Vec<Vec<u8>>> {
    (0..source.len())
        .map(|index| {
            let mut values = sample(source, index);
            let bytes: Vec<Vec<u8>> = values.iter().map(|value| value.bytes().to_vec()).collect();
            let mut slots: Vec<Vec<u8>> = bytes.iter().map(|bytes| vec![0; bytes.len()]).collect();
            let mut slots: Vec<&mut [u8]> = slots.iter_mut().map(Vec::as_mut_slice).collect();
            source.read_into(index, &mut slots, &mut values).unwrap();
            assert_eq!(slots, bytes, "sample {index} into a batch");
            bytes
        })
        .collect()
}

/// Many threads read every sample at once, and all see what one thread sees.
pub(crate) fn check_threads(source: &dyn Source) {
    let expected = all_bytes(source);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..20 {
                    assert_eq!(all_bytes(source), expected);
                }
            });
        }
    });
}

/// That the headroom led to the access that it should.
pub(crate) fn check_access(source: &dyn Source, headroom: Option<Bytes>) {
    let expected = match headroom {
        None => Access::Mapped,
        Some(_) => Access::Direct,
    };
    assert_eq!(source.choice().access, expected);
}

/// Columns without nulls of the table that the fixtures of Arrow and Parquet hold.
pub(crate) const WHOLE: [&str; 15] = [
    "id",
    "half",
    "even",
    "box",
    "grid",
    "mask",
    "hash",
    "ids",
    "wide_ids",
    "raw",
    "wide_raw",
    "text",
    "wide_text",
    "tensor",
    "table",
];

pub(crate) fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}
