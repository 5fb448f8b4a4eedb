//! An allocator that counts what is held, for tests of how much memory something takes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) static HELD: AtomicUsize = AtomicUsize::new(0);
pub(crate) static PEAK: AtomicUsize = AtomicUsize::new(0);

/// Counts the bytes that were asked for, or what a function says that they take.
pub(crate) struct Counting {
    pub(crate) taken: fn(Layout) -> usize,
}

#[expect(unsafe_code, reason = "an allocator that counts")]
// SAFETY: all is handed on to the system's allocator; counting changes nothing of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let taken = (self.taken)(layout);
        let held = HELD.fetch_add(taken, Ordering::Relaxed) + taken;
        PEAK.fetch_max(held, Ordering::Relaxed);
        // SAFETY: as promised to us.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub((self.taken)(layout), Ordering::Relaxed);
        // SAFETY: as promised to us.
        unsafe { System.dealloc(pointer, layout) }
    }
}
