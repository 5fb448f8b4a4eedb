//! Files with one flipped bit. Where the format has a checksum, it is an error, or it is nothing that matters.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::{TIGHT, expected, fixture, numbers, opened, read};
use crate::error::ReadError;
use crate::source::Source;
use crate::sources::hdf5::{DatasetRequest, Hdf5};
use crate::value::Value;

/// Bytes of some samples of datasets of one length, or nothing where one of them is an error.
fn bytes(path: &Path, datasets: &[&str], rows: &[u64]) -> Option<Vec<u8>> {
    let wanted: Vec<_> = datasets.iter().copied().map(DatasetRequest::new).collect();
    let source = Hdf5::open(path, &wanted, None).ok()?;
    let mut values = vec![Value::default(); datasets.len()];
    let mut bytes = Vec::new();
    for &row in rows {
        source.read(row, &mut values).ok()?;
        bytes.extend(values.iter().flat_map(Value::bytes));
    }
    Some(bytes)
}

/// In memory where there is such a place.
fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

/// Flips one bit of every byte of a file. Each is an error, or changes at most `max_changed` bytes of the samples.
fn check(name: &str, datasets: &[&str], rows: &[u64], max_changed: usize) {
    let folder = folder();
    let path = folder.path().join("flipped.h5");
    let whole = fs::read(fixture(name)).unwrap();
    let sound = bytes(&fixture(name), datasets, rows).unwrap();
    for at in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[at] ^= 1 << (at % 8);
        fs::write(&path, &flipped).unwrap();
        if let Some(found) = bytes(&path, datasets, rows) {
            let pairs = sound.iter().zip(&found);
            let n_changed = pairs.filter(|(sound, found)| sound != found).count();
            assert_eq!(found.len(), sound.len(), "byte {at}");
            assert!(n_changed <= max_changed, "byte {at}: {n_changed} changed");
        }
    }
}

const ROWS: [u64; 9] = [0, 1, 2, 3, 4, 5, 6, 7, 8];

#[test]
fn flipped_bits_of_compressed_chunks_and_of_what_leads_to_them_are_errors() {
    check(
        "indexes-gzip.h5",
        &["fixed", "extensible", "tree"],
        &ROWS,
        0,
    );
    check("indexes-gzip.h5", &["single"], &ROWS[..2], 0);
}

#[test]
fn a_flipped_bit_changes_at_most_the_element_that_it_is_in() {
    let datasets = [
        "implicit",
        "implicit_wide",
        "fixed",
        "fixed_wide",
        "extensible",
        "tree",
    ];
    check("indexes.h5", &datasets, &ROWS, 1);
    check("indexes.h5", &["single"], &ROWS[..2], 1);
}

#[test]
fn flipped_bits_of_chunks_with_a_checksum_are_errors() {
    let datasets = ["fletcher_one", "shuffle_lzf_fletcher_one", "gzip_one"];
    check("chunked-latest.h5", &datasets, &ROWS[..5], 0);
}

#[test]
fn a_wrong_checksum_is_told() {
    let folder = folder();
    let path = folder.path().join("flipped.h5");
    let mut bytes = fs::read(fixture("chunked-latest.h5")).unwrap();
    // 3, 10, 17 and 24 as integers of four bytes: how each of these datasets begins.
    let start: Vec<u8> = [3_i32, 10, 17, 24]
        .iter()
        .flat_map(|n| n.to_le_bytes())
        .collect();
    for at in 0..bytes.len() - start.len() {
        if bytes[at..].starts_with(&start) {
            bytes[at] ^= 4;
        }
    }
    fs::write(&path, &bytes).unwrap();
    let source = Hdf5::open(&path, &[DatasetRequest::new("fletcher_one")], None).unwrap();
    let error = source.read(0, &mut [Value::default()]).unwrap_err();
    let ReadError::Malformed { expected, .. } = error else {
        panic!("{error}");
    };
    assert!(expected.contains("data of checksum"), "{expected}");
    assert!(source.read(1, &mut [Value::default()]).is_ok());
}

#[test]
fn indexes_in_pages_are_read_and_their_checksums_verified() {
    for (dataset, rows) in [("fixed", 1030), ("extensible", 140_000)] {
        for headroom in [None, TIGHT] {
            let source = opened("paged.h5", dataset, 0, headroom);
            for index in [0, 2, rows - 3, rows - 1] {
                assert_eq!(
                    numbers(&read(&source, index as u64)),
                    expected(&[rows], 0, index)
                );
            }
            assert_eq!(numbers(&read(&source, 500)), [200.0]);
        }
    }
    // The last block with entries of `fixed`, and of the other one its secondary block.
    for (dataset, signature, last) in [("fixed", b"FADB", 1029), ("extensible", b"EASB", 139_999)] {
        let whole = fs::read(fixture("paged.h5")).unwrap();
        let at = whole
            .windows(4)
            .position(|window| window == signature)
            .unwrap();
        let folder = folder();
        let path = folder.path().join("flipped.h5");
        let ends = |path: &Path| bytes(path, &[dataset], &[0, last]);
        let sound = ends(&fixture("paged.h5")).unwrap();
        for at in at..at + 600 {
            let mut flipped = whole.clone();
            flipped[at] ^= 1 << (at % 8);
            fs::write(&path, &flipped).unwrap();
            if let Some(found) = ends(&path) {
                assert_eq!(found, sound, "{dataset}, byte {at}");
            }
        }
    }
}
