//! Windows: the parts of objects that small reads go through.
//!
//! A header is read in a dozen reads of a few bytes, an index in thousands. A request takes some 20 ms, in which a line
//! brings hundreds of KiB; so a small read asks for 16 KiB, and where reads go on in turn for twice as much each time.
//! A read somewhere else begins anew with 16 KiB: samples in a random order do not bring half of the object along.
//! Where several objects are read in turn, each has so much less at a time that two windows of each are kept.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::buffer::PAGE;

/// Bytes that all windows of a process have together.
pub(super) const KEPT: u64 = 8 << 20;

/// The first window of a place, and the largest that it grows to.
const SMALLEST: u64 = 16 << 10;
const MAX_WINDOW_BYTES: u64 = 2 << 20;

/// A read this far behind a window still goes on from it: to pass over so much costs less than a request.
const GAP: u64 = 256 << 10;

/// Those of this process.
pub(super) static WINDOWS: Windows = Windows::new();

/// The windows of any number of objects, the least used first.
#[derive(Debug)]
pub(super) struct Windows {
    kept: Mutex<Vec<Arc<Window>>>,
}

#[derive(Debug)]
struct Window {
    object: u64,
    start: u64,
    len: u64,
    /// Filled by the first thread that needs it, while others that need it wait.
    bytes: OnceLock<Result<Box<[u8]>, Lost>>,
}

/// Why a window could not be filled. All who waited are told, and none of them tries again on its own.
#[derive(Debug)]
struct Lost {
    kind: io::ErrorKind,
    text: String,
}

impl Windows {
    const fn new() -> Windows {
        Windows {
            kept: Mutex::new(Vec::new()),
        }
    }

    /// Reads from a window, which `fetch` fills where it is new. Not so where all windows are being filled.
    pub(super) fn read(
        &self,
        object: u64,
        object_len: u64,
        offset: u64,
        out: &mut [u8],
        fetch: impl Fn(u64, &mut [u8]) -> io::Result<()>,
    ) -> io::Result<bool> {
        let Some(window) = self.window(object, object_len, offset, out.len() as u64) else {
            return Ok(false);
        };
        let filled = window.bytes.get_or_init(|| {
            let mut bytes = vec![0; usize::try_from(window.len).unwrap_or_default()];
            match fetch(window.start, &mut bytes) {
                Ok(()) => Ok(bytes.into()),
                Err(error) => Err(Lost {
                    kind: error.kind(),
                    text: error.to_string(),
                }),
            }
        });
        match filled {
            Ok(bytes) => {
                let at = usize::try_from(offset - window.start).map_err(io::Error::other)?;
                out.copy_from_slice(&bytes[at..at + out.len()]);
                Ok(true)
            }
            Err(lost) => {
                self.lock().retain(|kept| !Arc::ptr_eq(kept, &window));
                Err(io::Error::new(lost.kind, lost.text.clone()))
            }
        }
    }

    /// Keeps bytes that are already there.
    pub(super) fn put(&self, object: u64, start: u64, bytes: Box<[u8]>) {
        let len = bytes.len() as u64;
        let mut kept = self.lock();
        if make_room(&mut kept, len) {
            kept.push(Arc::new(Window {
                object,
                start,
                len,
                bytes: OnceLock::from(Ok(bytes)),
            }));
        }
    }

    pub(super) fn forget(&self, object: u64) {
        self.lock().retain(|window| window.object != object);
    }

    /// The window that a read lies in, or a new one for it.
    fn window(&self, object: u64, object_len: u64, offset: u64, len: u64) -> Option<Arc<Window>> {
        let end = offset + len;
        let mut kept = self.lock();
        let ours = |window: &Arc<Window>| window.object == object && window.start <= offset;
        let holds = |window: &Arc<Window>| ours(window) && end <= window.end();
        if let Some(at) = kept.iter().rposition(holds) {
            let window = kept.remove(at);
            kept.push(Arc::clone(&window));
            return Some(window);
        }
        let goes_on =
            |window: &&Arc<Window>| ours(window) && offset <= window.end() + window.len.max(GAP);
        let before = kept.iter().filter(goes_on).map(|window| window.len).max();
        let largest = (KEPT / 2 / objects_with(&kept, object)).clamp(SMALLEST, MAX_WINDOW_BYTES);
        let wanted = before.map_or(SMALLEST, |before| (2 * before).min(largest));
        // At the end of the object, where a footer is, it reaches further back.
        let start = (offset - offset % PAGE as u64).min(object_len.saturating_sub(wanted));
        let len = wanted.max(end - start).min(object_len - start);
        if !make_room(&mut kept, len) {
            return None;
        }
        let window = Arc::new(Window {
            object,
            start,
            len,
            bytes: OnceLock::new(),
        });
        kept.push(Arc::clone(&window));
        Some(window)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Window>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Window {
    fn end(&self) -> u64 {
        self.start + self.len
    }
}

/// How many objects have windows, with this one.
fn objects_with(kept: &[Arc<Window>], object: u64) -> u64 {
    let mut objects: Vec<u64> = kept.iter().map(|window| window.object).collect();
    objects.push(object);
    objects.sort_unstable();
    objects.dedup();
    objects.len() as u64
}

/// Gives up the least used windows until `len` bytes fit; not those that somebody is filling.
fn make_room(kept: &mut Vec<Arc<Window>>, len: u64) -> bool {
    let mut held: u64 = kept.iter().map(|window| window.len).sum();
    while held.saturating_add(len) > KEPT {
        let Some(at) = kept.iter().position(|window| window.bytes.get().is_some()) else {
            return false;
        };
        held -= kept.remove(at).len;
    }
    true
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// What reads of `len` bytes at these offsets ask for, of an object of 64 MiB.
    fn check(reads: &[(u64, usize)], expected: &[(u64, u64)]) {
        let windows = Windows::new();
        let asked = RefCell::new(Vec::new());
        for &(offset, len) in reads {
            let mut out = vec![0; len];
            let fetch = |start: u64, bytes: &mut [u8]| {
                asked.borrow_mut().push((start, bytes.len() as u64));
                for (at, byte) in bytes.iter_mut().enumerate() {
                    *byte = byte_at(start + at as u64);
                }
                Ok(())
            };
            assert!(windows.read(0, 64 * MIB, offset, &mut out, fetch).unwrap());
            for (at, &byte) in out.iter().enumerate() {
                assert_eq!(byte, byte_at(offset + at as u64));
            }
        }
        assert_eq!(asked.into_inner(), expected);
    }

    #[expect(clippy::cast_possible_truncation, reason = "any byte will do")]
    fn byte_at(offset: u64) -> u8 {
        (offset ^ offset >> 8 ^ offset >> 16) as u8
    }

    #[test]
    fn reads_in_one_place_ask_once() {
        check(
            &[(5, 4), (9, 100), (16_000, 384), (5000, 1)],
            &[(0, 16_384)],
        );
    }

    #[test]
    fn reads_in_turn_ask_for_more_each_time() {
        let reads: Vec<(u64, usize)> = (0..10_000).map(|at| (at * 512, 512)).collect();
        let mut expected = Vec::new();
        let (mut start, mut len) = (0, SMALLEST);
        while start < 10_000 * 512 {
            expected.push((start, len));
            start += len;
            len = (2 * len).min(MAX_WINDOW_BYTES);
        }
        assert_eq!(expected.len(), 9);
        check(&reads, &expected);
    }

    #[test]
    fn reads_anywhere_ask_for_little() {
        let far = [40 * MIB, 3 * MIB, 50 * MIB, 20 * MIB];
        check(&far.map(|at| (at + 100, 2000)), &far.map(|at| (at, 16_384)));
    }

    #[test]
    fn a_footer_comes_with_what_is_before_it() {
        let end = 64 * MIB;
        check(
            &[(end - 10, 10), (end - 2000, 1990)],
            &[(end - SMALLEST, SMALLEST)],
        );
    }

    #[test]
    fn no_more_is_kept_than_was_said() {
        let windows = Windows::new();
        for object in 0..2000 {
            let read = windows.read(object, MIB, 0, &mut [0; 10], |_, _| Ok(()));
            assert!(read.unwrap());
            windows.put(object, 500_000, vec![0; 40_000].into());
        }
        let held: u64 = windows.lock().iter().map(|window| window.len).sum();
        assert!(held <= KEPT && held > KEPT - 100_000, "{held}");
        for object in 0..2000 {
            windows.forget(object);
        }
        assert!(windows.lock().is_empty());
    }

    #[test]
    fn objects_that_are_read_in_turn_share_the_room() {
        let windows = Windows::new();
        let asked = RefCell::new(Vec::new());
        // Eight archives with a header every 100 KiB.
        for header in 0..100 {
            for object in 0..8 {
                let fetch = |start: u64, bytes: &mut [u8]| {
                    asked.borrow_mut().push((object, start, bytes.len() as u64));
                    Ok(())
                };
                let read = windows.read(object, 10 * MIB, header * 102_400, &mut [0; 512], fetch);
                assert!(read.unwrap());
            }
        }
        let asked = asked.into_inner();
        // 10 MiB in pieces of 512 KiB, after a few smaller ones.
        assert!(asked.len() <= 8 * 26, "{}", asked.len());
        assert!(asked.iter().all(|&(_, _, len)| len <= KEPT / 16));
    }

    #[test]
    fn what_is_being_filled_is_not_given_up() {
        // Each read waits for those within it.
        fn fill(windows: &Windows, object: u64) -> bool {
            let fetch = |_, _: &mut [u8]| {
                fill(windows, object + 1);
                Ok(())
            };
            windows.read(object, MIB, 0, &mut [0; 10], fetch).unwrap()
        }
        let windows = Windows::new();
        assert!(fill(&windows, 0));
        let most = usize::try_from(KEPT / SMALLEST).unwrap();
        assert_eq!(windows.lock().len(), most);
    }

    #[test]
    fn a_window_that_failed_is_asked_for_again() {
        let windows = Windows::new();
        let refuse = |_, _: &mut [u8]| Err(io::Error::other("no"));
        let error = windows.read(0, MIB, 0, &mut [0; 10], refuse).unwrap_err();
        assert_eq!(error.to_string(), "no");
        assert!(
            windows
                .read(0, MIB, 0, &mut [0; 10], |_, _| Ok(()))
                .unwrap()
        );
    }

    #[test]
    fn threads_that_need_the_same_ask_once() {
        let windows = Windows::new();
        let asked = Mutex::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let fetch = |_, _: &mut [u8]| {
                        *asked.lock().unwrap() += 1;
                        std::thread::sleep(std::time::Duration::from_millis(20));
                        Ok(())
                    };
                    assert!(windows.read(0, MIB, 100, &mut [0; 10], fetch).unwrap());
                });
            }
        });
        assert_eq!(*asked.lock().unwrap(), 1);
    }
}
