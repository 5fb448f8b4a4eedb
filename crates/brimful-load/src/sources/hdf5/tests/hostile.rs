//! Files that are cut off or that lie: an error, or other numbers, but never a panic and never much memory.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::{TIGHT, fixture};
use crate::random::mixed;
use crate::source::Source;
use crate::sources::hdf5::metadata::{MAX_CHUNKS, Metadata};
use crate::sources::hdf5::{DatasetRequest, Hdf5};
use crate::value::Value;

const FILES: [&str; 6] = [
    "contiguous.h5",
    "chunked-earliest.h5",
    "chunked-latest.h5",
    "indexes.h5",
    "indexes-gzip.h5",
    "matlab.h5",
];

/// Changed files that are made of each.
const TURNS: usize = 1500;

/// Reads what can be read of a dataset, and holds it to its word.
fn read_some(path: &Path, dataset: &str, turn: usize) {
    let file_bytes = fs::metadata(path).unwrap().len();
    let began = Instant::now();
    let (axis, headroom) = if turn.is_multiple_of(3) {
        (1, TIGHT)
    } else {
        (0, None)
    };
    let wanted = DatasetRequest {
        axis,
        ..DatasetRequest::new(dataset)
    };
    if let Ok(source) = Hdf5::open(path, &[wanted], headroom) {
        let most = source.max_sample_bytes();
        // Sample, chunk and what is between: each at most what zlib could have made of the file.
        assert!(
            most <= 4 * 1032 * file_bytes + (1 << 20),
            "{dataset}: {most} bytes"
        );
        let mut values = [Value::default()];
        for index in [0, 1, source.len().saturating_sub(1), source.len()] {
            let _ = source.read(index, &mut values);
            let held = values[0].piece.held_bytes() as u64;
            assert!(held <= most, "{dataset}: {held} of {most}");
        }
    }
    if turn.is_multiple_of(16) {
        let _ = Hdf5::open(path, &[], None);
    }
    assert!(began.elapsed() < Duration::from_secs(20), "{dataset}");
}

/// In memory where there is such a place: direct reads of a file that was just written would wait for the disk.
fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

fn datasets(path: &Path) -> Vec<String> {
    let listed = Hdf5::datasets(path).unwrap();
    listed.into_iter().map(|listed| listed.dataset).collect()
}

#[test]
fn chunks_of_all_fields_together_are_bounded() {
    let metadata = Metadata::open(&fixture("indexes.h5")).unwrap();
    metadata.count_chunks("a", Some(MAX_CHUNKS - 1)).unwrap();
    metadata.count_chunks("b", Some(1)).unwrap();
    assert!(metadata.count_chunks("c", None).is_err());
    let error = metadata.count_chunks("c", Some(1)).unwrap_err().to_string();
    assert!(error.contains("more than 4194304 chunks"), "{error}");
}

#[test]
fn files_that_are_cut_off_anywhere_are_no_panic() {
    let folder = folder();
    let path = folder.path().join("cut.h5");
    for name in FILES {
        let whole = fs::read(fixture(name)).unwrap();
        let datasets = datasets(&fixture(name));
        for len in 0..whole.len() {
            fs::write(&path, &whole[..len]).unwrap();
            // One dataset after the other: all of them for each of the lengths would take minutes.
            read_some(&path, &datasets[len % datasets.len()], len);
        }
    }
}

#[test]
fn files_with_other_bytes_anywhere_are_no_panic() {
    let folder = folder();
    let path = folder.path().join("changed.h5");
    let mut state = 7;
    let mut random = || {
        state = mixed(state);
        state
    };
    for name in FILES {
        let whole = fs::read(fixture(name)).unwrap();
        let datasets = datasets(&fixture(name));
        for turn in 0..TURNS {
            let mut changed = whole.clone();
            for _ in 0..=turn % 4 {
                let at = usize::try_from(random()).unwrap() % (changed.len() - 8);
                changed[at] = match random() % 4 {
                    0 => 0,
                    1 => 0xff,
                    2 => changed[at] ^ 1 << (random() % 8),
                    _ => random().to_le_bytes()[0],
                };
                // An address of the same file, or a number of any size.
                if random().is_multiple_of(4) {
                    let number = match random() % 2 {
                        0 => random() % whole.len() as u64,
                        _ => random() >> (random() % 64),
                    };
                    let at = at.next_multiple_of(8).min(changed.len() - 8);
                    changed[at..at + 8].copy_from_slice(&number.to_le_bytes());
                }
            }
            fs::write(&path, &changed).unwrap();
            read_some(&path, &datasets[turn % datasets.len()], turn);
        }
    }
}
