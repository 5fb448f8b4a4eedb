//! Taking the steps of a start.
//!
//! A step that fails costs what it would have given, never the training: [`step`] turns an error or a panic into a value,
//! and the caller continues without the record, the cgroup, the terminal or the hook. Where no supervision is left, the
//! command replaces brimful (`last_resort.rs`).

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::fault;
use crate::start_step::StartStep;

/// Takes one step. A panic in it is an error like any other.
pub fn step<T>(step: StartStep, take: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let taken = catch_unwind(AssertUnwindSafe(|| {
        fault::inject(step)?;
        take()
    }));
    taken.unwrap_or_else(|payload| {
        let message = panic_message(payload.as_ref());
        Err(io::Error::other(format!("a bug in brimful: {message}")))
    })
}

/// What a panic says.
pub(crate) fn panic_message(payload: &(dyn std::any::Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_of_its_step() {
        let taken: io::Result<()> = step(StartStep::Hook, || panic!("too short"));
        assert!(taken.unwrap_err().to_string().contains("too short"));
    }
}
