//! What the targets of data files have in common: the input as a file, a count of memory, and reads of a few samples.
use std::alloc::{GlobalAlloc, Layout, System};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use brimful::units::Bytes;
use brimful_load::{Source, SourceError, Value};

/// Headrooms that lead to a map and to reads.
pub const HEADROOMS: [Option<Bytes>; 2] = [None, Some(Bytes(0))];

/// Bytes that a run may hold beyond what it counts itself: a scan of lines takes a megabyte at a time, metadata of HDF5
/// some more.
pub const SLACK: usize = 32 << 20;

#[global_allocator]
static COUNTING: Counting = Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: all is handed on to the system's allocator; counting changes nothing of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as promised to us.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as promised to us.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as promised to us.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as promised to us.
        unsafe { System.dealloc(pointer, layout) }
    }
}

fn count(size: usize) {
    let held = HELD.fetch_add(size, Ordering::Relaxed) + size;
    PEAK.fetch_max(held, Ordering::Relaxed);
}

/// Runs something, and gives the bytes that it held at once at the most.
pub fn peak_of(run: impl FnOnce()) -> usize {
    let before = HELD.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    run();
    PEAK.load(Ordering::Relaxed).saturating_sub(before)
}

static MEMORY: LazyLock<File> = LazyLock::new(|| {
    let folder = if std::path::Path::new("/dev/shm").is_dir() {
        "/dev/shm".into()
    } else {
        std::env::temp_dir()
    };
    tempfile::tempfile_in(folder).expect("a file without a name")
});

/// The bytes as a file, until it is called again.
pub fn file_of(data: &[u8]) -> PathBuf {
    MEMORY.set_len(0).expect("a file of ours");
    MEMORY.write_all_at(data, 0).expect("room in memory");
    format!("/proc/self/fd/{}", MEMORY.as_raw_fd()).into()
}

/// Opens a source and reads a few of its samples; it holds no more than it says.
pub fn read(open: impl FnOnce() -> Result<Box<dyn Source>, SourceError>) {
    let mut promised = 0;
    let peak = peak_of(|| match open() {
        Ok(source) => {
            let both = source
                .max_sample_bytes()
                .saturating_add(source.kept_bytes());
            promised = usize::try_from(both).expect("64 bits");
            read_some(source.as_ref());
        }
        Err(error) => assert!(error.to_string().len() < 20_000, "a message, not a page"),
    });
    // A sample, and the slots into which it is read again.
    assert!(
        peak <= promised.saturating_mul(2) + SLACK,
        "{peak} bytes were held, {promised} promised for a sample"
    );
}

fn read_some(source: &dyn Source) {
    let len = source.len();
    let last = len.saturating_sub(1);
    let mut values = vec![Value::default(); source.fields().len()];
    for index in [0, 1, len / 2, last, len, u64::MAX] {
        let result = source.read(index, &mut values);
        assert!(index < len || result.is_err(), "no sample behind the last");
        assert!(!source.place(index).is_empty());
        if result.is_err() {
            continue;
        }
        let held: usize = values.iter().map(|value| value.piece.held_bytes()).sum();
        assert!(
            held as u64 <= source.max_sample_bytes(),
            "a sample holds no more than was said"
        );
        for value in &values {
            let bytes = value.shape.iter().product::<usize>() * value.dtype.size();
            assert_eq!(bytes, value.bytes().len(), "the bytes of its shape");
        }
        let expected: Vec<Vec<u8>> = values.iter().map(|value| value.bytes().to_vec()).collect();
        let mut slots: Vec<Vec<u8>> = expected.iter().map(|bytes| vec![0; bytes.len()]).collect();
        let mut lent: Vec<&mut [u8]> = slots.iter_mut().map(Vec::as_mut_slice).collect();
        if source.read_into(index, &mut lent, &mut values).is_ok() {
            assert_eq!(slots, expected, "the same in a batch");
        }
    }
}

/// Panics of other libraries are errors of the file, as in the Python package, which installs the same hook; only those
/// that nobody catches end the fuzzer.
pub fn quiet_panics() {
    std::panic::set_hook(brimful_load::quiet_hook(std::panic::take_hook()));
}
