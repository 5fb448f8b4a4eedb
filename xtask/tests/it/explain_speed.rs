//! No text keeps the explainer busy. Here, because the pure crate may not name a clock.

use std::time::Duration;

use brimful::explain::{Evidence, explain};
use rustix::time::{ClockId, clock_gettime};

const MAX_TIME: Duration = Duration::from_secs(1);

/// The time that the processor worked for this thread: others may be busy on the same machine.
fn worked() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap()
}

fn check(unit: &str) {
    let evidence = Evidence {
        text: unit.repeat((1 << 20) / unit.len()),
        ..Evidence::default()
    };
    let best = (0..3)
        .map(|_| {
            let begin = worked();
            let _ = explain(&evidence);
            worked().saturating_sub(begin)
        })
        .min()
        .unwrap();
    assert!(best < MAX_TIME, "{best:?} for a megabyte of {unit:?}");
}

#[test]
fn a_megabyte_of_anything_is_read_in_a_second() {
    for unit in [
        "out of memory tried to allocate signal exit code ",
        "CUDA error: out of memory\n",
        "CUDA error: invalid argument pin ",
        "No space left on device ",
        "DataLoader worker (pid 1) is killed by signal: ",
        "process7has1gib CUDA out of memory. Tried to allocate 1 gib ",
        "Bus error ",
        "[[[[((((||||>>>>",
        "\u{1b}[\u{1b}]",
        "Error: Error: Error: ",
        "Killed",
        "1,1,1,1,1.1.1.1",
        "é",
    ] {
        check(unit);
    }
}
