//! The addresses of all mapped files, in a form that a signal handler may read.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, fence};

/// The addresses of one mapped file. Entries are never freed, only used again, so that a handler can read all of them
/// at any moment: there are as many as files were mapped at the same time.
#[derive(Debug)]
pub(super) struct Range {
    start: AtomicUsize,
    /// 0 while nothing is mapped here.
    len: AtomicUsize,
    /// Some of the addresses hold zeros instead of the file.
    has_zeros: AtomicBool,
    is_taken: AtomicBool,
    next: AtomicPtr<Range>,
}

static FIRST: AtomicPtr<Range> = AtomicPtr::new(null_mut());

impl Range {
    /// Registers the addresses of a file, which stay registered until [`Range::release`].
    pub(super) fn register(start: usize, len: usize) -> &'static Range {
        let range = all().find(|range| range.take()).unwrap_or_else(Range::add);
        range.has_zeros.store(false, Ordering::Relaxed);
        range.start.store(start, Ordering::Relaxed);
        // The length makes the entry valid, so it comes last.
        range.len.store(len, Ordering::Release);
        range
    }

    /// To be called before the addresses are unmapped.
    pub(super) fn release(&self) {
        self.len.store(0, Ordering::Release);
        self.is_taken.store(false, Ordering::Release);
    }

    fn take(&self) -> bool {
        !self.is_taken.load(Ordering::Relaxed) && !self.is_taken.swap(true, Ordering::Acquire)
    }

    fn add() -> &'static Range {
        let range: &'static Range = Box::leak(Box::new(Range {
            start: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            has_zeros: AtomicBool::new(false),
            is_taken: AtomicBool::new(true),
            next: AtomicPtr::new(null_mut()),
        }));
        let mut first = FIRST.load(Ordering::Relaxed);
        loop {
            range.next.store(first, Ordering::Relaxed);
            let pointer = std::ptr::from_ref(range).cast_mut();
            match FIRST.compare_exchange_weak(first, pointer, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return range,
                Err(now) => first = now,
            }
        }
    }

    /// Where an address is mapped. Called by the signal handler.
    pub(super) fn of(address: usize) -> Option<&'static Range> {
        all().find(|range| {
            let len = range.len.load(Ordering::Acquire);
            let start = range.start.load(Ordering::Relaxed);
            address.checked_sub(start).is_some_and(|at| at < len)
        })
    }

    /// Where the addresses end. Called by the signal handler.
    pub(super) fn end(&self) -> usize {
        self.start.load(Ordering::Relaxed) + self.len.load(Ordering::Relaxed)
    }

    /// To be called before zeros are mapped, so that whoever reads them sees the mark afterwards.
    pub(super) fn mark_zeros(&self) {
        self.has_zeros.store(true, Ordering::SeqCst);
    }

    /// Whether what was read before this call may have been zeros that are not in the file.
    #[inline]
    pub(super) fn has_zeros(&self) -> bool {
        fence(Ordering::Acquire);
        self.has_zeros.load(Ordering::Relaxed)
    }
}

/// Calls no function that a signal handler may not call.
fn all() -> impl Iterator<Item = &'static Range> {
    std::iter::successors(entry(&FIRST), |range| entry(&range.next))
}

#[expect(unsafe_code, reason = "a list that is read without a lock")]
fn entry(pointer: &AtomicPtr<Range>) -> Option<&'static Range> {
    // SAFETY: it is null, or points to an entry that was leaked, and was written completely before it was published.
    unsafe { pointer.load(Ordering::Acquire).as_ref() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_found_until_its_range_is_released() {
        // Addresses that the kernel never gives to a program.
        let base = 1 << 62;
        let (one, other) = (
            Range::register(base, 100),
            Range::register(base + 5000, 100),
        );
        assert!(std::ptr::eq(Range::of(base + 99).unwrap(), one));
        assert!(std::ptr::eq(Range::of(base + 5000).unwrap(), other));
        assert!(Range::of(base + 100).is_none());
        assert_eq!(one.end(), base + 100);
        one.mark_zeros();
        assert!(one.has_zeros() && !other.has_zeros());
        one.release();
        assert!(Range::of(base + 99).is_none());
        let again = Range::register(base + 200, 1);
        assert!(!again.has_zeros(), "a new file in an old entry is whole");
        again.release();
        other.release();
    }
}
