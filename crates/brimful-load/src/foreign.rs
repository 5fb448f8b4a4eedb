//! Code that is not ours, at work on bytes that are not ours.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::Once;

thread_local! {
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Runs code that may panic where it should give an error; nothing where it did, and nothing is printed: a folder of
/// broken images would bury a training's own output. What it was making must be thrown away.
pub(crate) fn foreign<T>(work: impl FnOnce() -> T) -> Option<T> {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| panic::set_hook(quiet(panic::take_hook())));
    let before = IS_INSIDE.replace(true);
    let made = catch_unwind(AssertUnwindSafe(work));
    IS_INSIDE.set(before);
    made.ok()
}

type Hook = Box<dyn Fn(&PanicHookInfo<'_>) + Send + Sync>;

/// Tells of the panics of everybody else.
fn quiet(others: Hook) -> Hook {
    Box::new(move |panic| {
        if !IS_INSIDE.get() {
            others(panic);
        }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn a_panic_inside_is_not_told_and_one_outside_is() {
        static TOLD: AtomicU32 = AtomicU32::new(0);
        panic::set_hook(quiet(Box::new(|panic| {
            if panic.payload_as_str() == Some("given up") {
                TOLD.fetch_add(1, Ordering::Relaxed);
            }
        })));
        let give_up = || -> u8 { panic!("given up") };
        assert_eq!(foreign(|| 3), Some(3));
        assert_eq!(foreign(give_up), None);
        assert_eq!(foreign(|| foreign(give_up)), Some(None));
        assert_eq!(TOLD.load(Ordering::Relaxed), 0);
        assert!(catch_unwind(give_up).is_err());
        assert_eq!(TOLD.load(Ordering::Relaxed), 1);
    }
}
