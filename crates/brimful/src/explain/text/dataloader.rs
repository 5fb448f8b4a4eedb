//! What PyTorch's DataLoader says about its workers.

use crate::explain::text::clean::Reading;
use crate::explain::text::phrases::{Hit, Phrase, ask, means};
use crate::explain::text::sign::{Rank, Sign};
use crate::explain::text::signal::signal_at_start;
use crate::explain::{Cause, Detail};

use Cause::{Ambiguous, DataloaderWorkerKilledOom, NotMemory, ShmExhausted};

pub(super) const PHRASES: &[Phrase] = &[
    ask("DataLoader worker (pid", worker),
    ask(
        "DataLoader worker (...) is killed by signal",
        worker_without_pid,
    ),
    ask("DataLoader worker is killed by signal", worker_without_pid),
    ask("DataLoader worker killed by signal", worker_without_pid),
    // Paddle.
    ask("DataLoader process (pid", worker),
    means(
        "insufficient shared storage space",
        Rank::Named,
        ShmExhausted,
        Detail::BusError,
    ),
    means(
        "Unexpected bus error encountered in worker",
        Rank::Named,
        ShmExhausted,
        Detail::BusError,
    ),
    means(
        "insufficient shared memory (shm)",
        Rank::Named,
        ShmExhausted,
        Detail::BusError,
    ),
    means(
        "workers are out of shared memory",
        Rank::Named,
        ShmExhausted,
        Detail::BusError,
    ),
    means(
        "Unexpected segmentation fault encountered in worker",
        Rank::Signaled,
        NotMemory,
        Detail::Segfault,
    ),
    means(
        "Unexpected floating-point exception encountered in worker",
        Rank::Signaled,
        NotMemory,
        Detail::Crash,
    ),
    means(
        "DataLoader timed out after",
        Rank::Named,
        NotMemory,
        Detail::Timeout,
    ),
    means(
        "Pin memory thread exited unexpectedly",
        Rank::Raised,
        Ambiguous,
        Detail::WorkerVanished,
    ),
];

/// `DataLoader worker (pid 71) is killed by signal: Killed.`, `… (pid(s) 71, 72) exited unexpectedly`.
fn worker(reading: &Reading, hit: Hit) -> Option<Sign> {
    let after = reading.after(hit.end, 600);
    let pids = pids(after);
    let verb = after.trim_start_matches(|c: char| !c.is_alphabetic());
    // The `(s)` of `pid(s)`.
    let verb = verb
        .strip_prefix("s)")
        .unwrap_or(verb)
        .trim_start_matches(|c: char| !c.is_alphabetic());
    let verb = match verb.strip_prefix("exited") {
        Some(rest) if rest.starts_with("iskilled") => rest,
        _ => verb,
    };
    let mut sign = if let Some(how) = verb.strip_prefix("iskilledbysignal") {
        let how = how.trim_start_matches([':', '.']);
        match signal_at_start(how) {
            Some(9) => hit.sign(
                Rank::Signaled,
                DataloaderWorkerKilledOom,
                Detail::WorkerKilled,
            ),
            Some(7) => hit.sign(Rank::Named, ShmExhausted, Detail::BusError),
            Some(11) => hit.sign(Rank::Signaled, NotMemory, Detail::Segfault),
            Some(6) => hit.sign(Rank::Signaled, Ambiguous, Detail::Aborted),
            Some(1 | 2 | 15) => hit.sign(Rank::Signaled, NotMemory, Detail::Terminated),
            Some(_) => hit.sign(Rank::Signaled, NotMemory, Detail::Crash),
            None => hit.sign(Rank::Signaled, Ambiguous, Detail::WorkerVanished),
        }
    } else if verb.starts_with("exitedunexpectedly") {
        hit.sign(Rank::Raised, Ambiguous, Detail::WorkerVanished)
    } else {
        return None;
    };
    sign.facts.pids = pids;
    Some(sign)
}

/// As people shorten it in a title.
fn worker_without_pid(reading: &Reading, hit: Hit) -> Option<Sign> {
    let how = reading.after(hit.end, 40).trim_start_matches([':', '.']);
    Some(match signal_at_start(how) {
        Some(9) => hit.sign(
            Rank::Signaled,
            DataloaderWorkerKilledOom,
            Detail::WorkerKilled,
        ),
        Some(7) => hit.sign(Rank::Named, ShmExhausted, Detail::BusError),
        _ => return None,
    })
}

fn pids(after: &str) -> Vec<u32> {
    let inside = after
        .strip_prefix("(s)")
        .unwrap_or(after)
        .split(')')
        .next()
        .unwrap_or_default();
    inside
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|pid| pid.parse().ok())
        .take(256)
        .collect()
}
