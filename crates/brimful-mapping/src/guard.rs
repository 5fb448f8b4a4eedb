//! Which threads read a mapped file right now, and look afterwards whether it was all there.
//!
//! The signal handler answers a fault only in such a thread. In every other one a zero would be taken for data.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering, compiler_fence};

/// What the handler knows of one thread. Entries are never freed, only used again: there are as many as threads read at
/// the same time.
#[derive(Debug)]
struct Entry {
    /// `pthread_self`, which a thread keeps through a fork; 0 where the entry is free. After a fork entries of threads are
    /// left that this process does not have; a new thread with the same number takes such an entry over.
    thread: AtomicUsize,
    /// Guards that the thread is inside.
    depth: AtomicU32,
    /// The handler has mapped zeros for this thread, since it entered the outermost guard.
    has_faulted: AtomicBool,
    next: AtomicPtr<Entry>,
}

static FIRST: AtomicPtr<Entry> = AtomicPtr::new(null_mut());

/// While it lives, a fault of this thread in a mapped file is answered with zeros.
#[must_use]
#[derive(Debug)]
pub struct Guard {
    /// Nothing in a thread that is about to end: there a fault ends the process.
    entry: Option<&'static Entry>,
    /// It belongs to one thread.
    _of_thread: PhantomData<*const ()>,
}

impl Guard {
    #[inline]
    pub fn enter() -> Guard {
        let entry = OWN.try_with(Own::entry).ok();
        if let Some(entry) = entry {
            // Only this thread and its handler write to it, so that plain loads and stores are enough.
            let depth = entry.depth.load(Ordering::Relaxed);
            if depth == 0 {
                entry.has_faulted.store(false, Ordering::Relaxed);
            }
            entry.depth.store(depth + 1, Ordering::Relaxed);
        }
        compiler_fence(Ordering::SeqCst);
        Guard {
            entry,
            _of_thread: PhantomData,
        }
    }

    /// Whether this thread was given zeros since it entered its outermost guard.
    #[inline]
    pub fn has_faulted(&self) -> bool {
        compiler_fence(Ordering::SeqCst);
        self.entry
            .is_some_and(|entry| entry.has_faulted.load(Ordering::Relaxed))
    }
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        if let Some(entry) = self.entry {
            let depth = entry.depth.load(Ordering::Relaxed);
            entry.depth.store(depth - 1, Ordering::Relaxed);
        }
    }
}

/// A thread that is inside a guard, as the signal handler sees it.
pub(super) struct Guarded(&'static Entry);

impl Guarded {
    /// This thread, if it is inside a guard. Called by the signal handler.
    pub(super) fn current() -> Option<Guarded> {
        let thread = this_thread();
        all()
            .find(|entry| {
                entry.thread.load(Ordering::Relaxed) == thread
                    && entry.depth.load(Ordering::Relaxed) > 0
            })
            .map(Guarded)
    }

    pub(super) fn mark_fault(&self) {
        self.0.has_faulted.store(true, Ordering::Relaxed);
    }
}

/// The entry of a thread, which it gives back when it ends.
struct Own(Cell<Option<&'static Entry>>);

thread_local! {
    static OWN: Own = const { Own(Cell::new(None)) };
}

impl Own {
    #[inline]
    fn entry(&self) -> &'static Entry {
        if let Some(entry) = self.0.get() {
            return entry;
        }
        let entry = Entry::claim();
        self.0.set(Some(entry));
        entry
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(entry) = self.0.get() {
            entry.thread.store(0, Ordering::Release);
        }
    }
}

impl Entry {
    #[cold]
    fn claim() -> &'static Entry {
        let thread = this_thread();
        let entry = all()
            .find(|entry| entry.thread.load(Ordering::Acquire) == thread)
            .or_else(|| all().find(|entry| entry.take(thread)))
            .unwrap_or_else(|| Entry::add(thread));
        entry.depth.store(0, Ordering::Relaxed);
        entry
    }

    /// Whether it was free, and is this thread's from now on.
    fn take(&self, thread: usize) -> bool {
        self.thread
            .compare_exchange(0, thread, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    fn add(thread: usize) -> &'static Entry {
        let entry: &'static Entry = Box::leak(Box::new(Entry {
            thread: AtomicUsize::new(thread),
            depth: AtomicU32::new(0),
            has_faulted: AtomicBool::new(false),
            next: AtomicPtr::new(null_mut()),
        }));
        let mut first = FIRST.load(Ordering::Relaxed);
        loop {
            entry.next.store(first, Ordering::Relaxed);
            let pointer = std::ptr::from_ref(entry).cast_mut();
            match FIRST.compare_exchange_weak(first, pointer, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return entry,
                Err(now) => first = now,
            }
        }
    }
}

/// Calls no function that a signal handler may not call.
fn all() -> impl Iterator<Item = &'static Entry> {
    std::iter::successors(pointed_to(&FIRST), |entry| pointed_to(&entry.next))
}

#[expect(unsafe_code, reason = "a list that is read without a lock")]
fn pointed_to(pointer: &AtomicPtr<Entry>) -> Option<&'static Entry> {
    // SAFETY: it is null, or points to an entry that was leaked, and was written completely before it was published.
    unsafe { pointer.load(Ordering::Acquire).as_ref() }
}

#[expect(
    unsafe_code,
    reason = "std has no number of a thread that a signal handler may ask for"
)]
pub(super) fn this_thread() -> usize {
    // SAFETY: it has no conditions, and may be called by signal handlers.
    usize::try_from(unsafe { libc::pthread_self() }).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_guarded_while_it_is_inside_of_a_guard() {
        assert!(Guarded::current().is_none());
        let outer = Guard::enter();
        {
            let _inner = Guard::enter();
            Guarded::current().unwrap().mark_fault();
        }
        assert!(outer.has_faulted(), "what an inner guard met is seen");
        std::thread::spawn(|| assert!(Guarded::current().is_none()))
            .join()
            .unwrap();
        drop(outer);
        assert!(Guarded::current().is_none());
        assert!(!Guard::enter().has_faulted());
    }

    #[test]
    fn threads_that_have_ended_leave_their_entries_to_others() {
        let run = || drop(Guard::enter());
        std::thread::spawn(run).join().unwrap();
        let before = all().count();
        for _ in 0..100 {
            std::thread::spawn(run).join().unwrap();
        }
        // Other tests of the process have threads, too.
        assert!(all().count() < before + 50);
    }
}
