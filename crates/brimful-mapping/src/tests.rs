use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use tempfile::TempDir;

use super::*;

const PAGE: usize = 4096;

/// A file without a zero.
fn file_of(directory: &TempDir, len: usize) -> PathBuf {
    let path = directory.path().join("data.bin");
    std::fs::write(&path, bytes_of(len)).unwrap();
    path
}

fn bytes_of(len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| u8::try_from(at % 251).unwrap() + 1)
        .collect()
}

fn mapped(path: &Path) -> Mapping {
    Mapping::of(&File::open(path).unwrap(), path).unwrap()
}

fn truncate(path: &Path, len: usize) {
    let file = File::options().write(true).open(path).unwrap();
    file.set_len(len as u64).unwrap();
}

fn truncated(error: io::Error) -> Truncated {
    error.downcast().unwrap()
}

#[test]
fn a_read_behind_the_end_is_an_error_and_no_signal() {
    for directory in ["/var/tmp", "/dev/shm"] {
        let directory = tempfile::tempdir_in(directory).unwrap();
        let len = 64 * PAGE + 100;
        let path = file_of(&directory, len);
        let mapping = mapped(&path);
        assert_eq!(mapping.look(0, len, <[u8]>::to_vec).unwrap(), bytes_of(len));
        truncate(&path, 10 * PAGE);
        let error = truncated(mapping.look(20 * PAGE, PAGE, <[u8]>::to_vec).unwrap_err());
        assert_eq!(
            error,
            Truncated {
                path: path.clone(),
                expected: len as u64,
                found: Some(10 * PAGE as u64),
            }
        );
        assert_eq!(
            error.to_string(),
            format!(
                "{} was truncated while it was in use: it had 262244 bytes and now has 40960",
                path.display()
            )
        );
        // What is left of it is no longer believed either.
        assert!(mapping.look(0, 10, <[u8]>::to_vec).is_err());
        // A new map has what is there now, and others do not care.
        let again = mapped(&path);
        assert_eq!(again.look(0, 10, <[u8]>::to_vec).unwrap(), bytes_of(10));
    }
}

#[test]
fn zeros_that_the_kernel_fills_a_page_with_are_not_taken_for_data() {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let len = 3 * PAGE + 100;
    // Within the first page, before and in the last one: none of these reads faults by itself.
    for (cut, read) in [(10, 0), (3 * PAGE - 10, 2 * PAGE), (len - 1, 3 * PAGE)] {
        let path = file_of(&directory, len);
        let mapping = mapped(&path);
        truncate(&path, cut);
        let error = mapping.look(read, 100, <[u8]>::to_vec).unwrap_err();
        assert_eq!(truncated(error).found, Some(cut as u64));
    }
    // What lies before the last page is still right there.
    let path = file_of(&directory, len);
    let mapping = mapped(&path);
    truncate(&path, len - 1);
    assert_eq!(mapping.look(0, 100, <[u8]>::to_vec).unwrap(), bytes_of(100));
}

#[test]
fn a_file_that_was_replaced_is_read_as_it_was() {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let len = 3 * PAGE;
    let path = file_of(&directory, len);
    let mapping = mapped(&path);
    let other = directory.path().join("other");
    std::fs::write(&other, b"short").unwrap();
    std::fs::rename(&other, &path).unwrap();
    assert_eq!(mapping.look(0, len, <[u8]>::to_vec).unwrap(), bytes_of(len));
}

#[test]
fn a_file_that_has_grown_again_is_told_apart() {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let len = 8 * PAGE;
    let path = file_of(&directory, len);
    let mapping = mapped(&path);
    truncate(&path, 0);
    assert!(mapping.look(0, 10, <[u8]>::to_vec).is_err());
    truncate(&path, len);
    let error = truncated(mapping.look(0, 10, <[u8]>::to_vec).unwrap_err());
    assert!(error.to_string().contains("has grown again"), "{error}");
}

#[test]
fn threads_that_read_while_a_file_is_truncated_never_see_its_zeros() {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let len = 512 * PAGE;
    let expected = bytes_of(len);
    for round in 0..20 {
        let path = file_of(&directory, len);
        let mapping = mapped(&path);
        let is_cut = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (mapping, expected, is_cut) = (&mapping, &expected, &is_cut);
                scope.spawn(move || {
                    for step in thread.. {
                        let start = step * 7919 % (len - 5000);
                        let was_cut = is_cut.load(Ordering::SeqCst);
                        match mapping.look(start, 5000, <[u8]>::to_vec) {
                            Ok(bytes) => {
                                assert!(!was_cut, "read after the end was known");
                                assert_eq!(bytes, &expected[start..start + 5000]);
                            }
                            Err(error) => {
                                truncated(error);
                                return;
                            }
                        }
                    }
                });
            }
            std::thread::sleep(std::time::Duration::from_micros(100 * round));
            truncate(&path, 100 * PAGE + 77);
            is_cut.store(true, Ordering::SeqCst);
        });
    }
}
