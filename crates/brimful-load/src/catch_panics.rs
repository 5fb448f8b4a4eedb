//! Panics of other libraries on malformed files, as errors.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};

thread_local! {
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Runs code that may panic where it should return an error. Returns `None` if it did; what it was making must be
/// discarded.
///
/// The panic hook still runs. A program that does not want thousands of broken images in its output installs
/// [`quiet_hook`].
pub fn catch_panics<T>(work: impl FnOnce() -> T) -> Option<T> {
    let before = IS_INSIDE.replace(true);
    let made = catch_unwind(AssertUnwindSafe(work));
    IS_INSIDE.set(before);
    made.ok()
}

/// A panic hook, as [`std::panic::take_hook`] returns it.
pub type PanicHook = Box<dyn Fn(&PanicHookInfo<'_>) + Send + Sync>;

/// A panic hook that ignores the panics that this crate turns into errors, and passes all others to `previous`.
///
/// The library never installs it: the hook belongs to the whole process, so that is up to the program.
pub fn quiet_hook(previous: PanicHook) -> PanicHook {
    Box::new(move |panic| {
        if !IS_INSIDE.get() {
            previous(panic);
        }
    })
}

#[cfg(test)]
mod tests {
    use std::panic;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn the_hook_ignores_caught_panics_and_reports_others() {
        static REPORTED: AtomicU32 = AtomicU32::new(0);
        panic::set_hook(quiet_hook(Box::new(|panic| {
            if panic.payload_as_str() == Some("given up") {
                REPORTED.fetch_add(1, Ordering::Relaxed);
            }
        })));
        let give_up = || -> u8 { panic!("given up") };
        assert_eq!(catch_panics(|| 3), Some(3));
        assert_eq!(catch_panics(give_up), None);
        assert_eq!(catch_panics(|| catch_panics(give_up)), Some(None));
        assert_eq!(REPORTED.load(Ordering::Relaxed), 0);
        assert!(catch_unwind(give_up).is_err());
        assert_eq!(REPORTED.load(Ordering::Relaxed), 1);
    }
}
