//! Launchers and pools: torchrun, DeepSpeed, Lightning, joblib, dask, Ray, and others that wait for processes.
//!
//! What they say is a consequence; it names how a process ended, seldom why.

use crate::explain::text::clean::Reading;
use crate::explain::text::phrases::{Hit, Phrase, ask, means};
use crate::explain::text::sign::{Rank, Sign};
use crate::explain::text::size::integer_at_start;
use crate::explain::{Cause, Detail};

use Cause::{Ambiguous, HostOomKill, NotMemory};
use Rank::{Aftermath, Killer, Named, Raised, Signaled};

pub(super) const PHRASES: &[Phrase] = &[
    // Asked to end from outside.
    ask("death signal", death_signal),
    means("Received SIGTERM", Named, NotMemory, Detail::Terminated),
    means("SIGTERMException", Named, NotMemory, Detail::Terminated),
    means("got signal: 15", Named, NotMemory, Detail::Terminated),
    means("got signal: 1", Named, NotMemory, Detail::Terminated),
    means("Caught signal 15", Named, NotMemory, Detail::Terminated),
    // Torchrun, DeepSpeed, spawn: how the others were ended is no cause.
    means(
        "closing signal SIGTERM",
        Aftermath,
        Ambiguous,
        Detail::FailedElsewhere,
    ),
    means(
        "Killing subprocess",
        Aftermath,
        Ambiguous,
        Detail::FailedElsewhere,
    ),
    means(
        "ChildFailedError",
        Aftermath,
        Ambiguous,
        Detail::FailedElsewhere,
    ),
    means(
        "CalledProcessError",
        Aftermath,
        Ambiguous,
        Detail::FailedElsewhere,
    ),
    means(
        "ProcessRaisedException",
        Aftermath,
        Ambiguous,
        Detail::FailedElsewhere,
    ),
    means(
        "leaked semaphore",
        Aftermath,
        Ambiguous,
        Detail::FailedElsewhere,
    ),
    means(
        "leaked shared_memory",
        Aftermath,
        Ambiguous,
        Detail::FailedElsewhere,
    ),
    means(
        "Engine core initialization failed",
        Aftermath,
        Ambiguous,
        Detail::FailedElsewhere,
    ),
    means(
        "EngineCore encountered an issue",
        Aftermath,
        Ambiguous,
        Detail::FailedElsewhere,
    ),
    means(
        "Background loop has errored already",
        Aftermath,
        Ambiguous,
        Detail::FailedElsewhere,
    ),
    means(
        "Engine process failed to start",
        Aftermath,
        Ambiguous,
        Detail::FailedElsewhere,
    ),
    means(
        "See stack trace (above) for the root cause",
        Aftermath,
        Ambiguous,
        Detail::FailedElsewhere,
    ),
    means(
        "Engine loop is not running",
        Aftermath,
        Ambiguous,
        Detail::FailedElsewhere,
    ),
    means(
        "died with <Signals.SIGKILL",
        Signaled,
        Ambiguous,
        Detail::Sigkill,
    ),
    // Pools: a worker is gone, and the pool does not know why.
    means(
        "terminated abruptly while the future was running",
        Raised,
        Ambiguous,
        Detail::WorkerVanished,
    ),
    means(
        "BrokenProcessPool",
        Raised,
        Ambiguous,
        Detail::WorkerVanished,
    ),
    means(
        "managed by the executor was unexpectedly terminated",
        Raised,
        Ambiguous,
        Detail::WorkerVanished,
    ),
    means(
        "abruptly died during map operation",
        Raised,
        Ambiguous,
        Detail::WorkerVanished,
    ),
    means(
        "background workers are no longer alive",
        Raised,
        Ambiguous,
        Detail::WorkerVanished,
    ),
    means(
        "background worker is 6 feet under",
        Raised,
        Ambiguous,
        Detail::WorkerVanished,
    ),
    means(
        "abort_event was set",
        Raised,
        Ambiguous,
        Detail::WorkerVanished,
    ),
    means(
        "Abnormal exit of MultiThreadedAugmenter",
        Raised,
        Ambiguous,
        Detail::WorkerVanished,
    ),
    means(
        "Worker exited prematurely",
        Aftermath,
        Ambiguous,
        Detail::WorkerVanished,
    ),
    means(
        "worker process died unexpectedly",
        Raised,
        Ambiguous,
        Detail::WorkerVanished,
    ),
    means(
        "was killed by unknown signal",
        Signaled,
        Ambiguous,
        Detail::Sigkill,
    ),
    means("workers died", Raised, Ambiguous, Detail::WorkerVanished),
    means("KilledWorker", Raised, Ambiguous, Detail::WorkerVanished),
    means(
        "workers died while running it",
        Raised,
        Ambiguous,
        Detail::WorkerVanished,
    ),
    means(
        "worker died unexpectedly",
        Raised,
        Ambiguous,
        Detail::WorkerVanished,
    ),
    means("Worker died", Raised, Ambiguous, Detail::WorkerVanished),
    means(
        "died unexpectedly",
        Raised,
        Ambiguous,
        Detail::WorkerVanished,
    ),
    means(
        "worker died or was killed",
        Raised,
        Ambiguous,
        Detail::WorkerVanished,
    ),
    means(
        "actor died unexpectedly",
        Raised,
        Ambiguous,
        Detail::WorkerVanished,
    ),
    means(
        "some potential root causes",
        Aftermath,
        Ambiguous,
        Detail::WorkerVanished,
    ),
    means(
        "Perhaps out of memory?",
        Signaled,
        Ambiguous,
        Detail::Sigkill,
    ),
    means(
        "terminated unexpectedly",
        Aftermath,
        Ambiguous,
        Detail::WorkerVanished,
    ),
    means(
        "exited unexpectedly",
        Aftermath,
        Ambiguous,
        Detail::WorkerVanished,
    ),
    // Memory monitors of dask and Ray, which kill before the kernel.
    ask("memory budget", dask_budget),
    means(
        "killed due to the node running low on memory",
        Killer,
        HostOomKill,
        Detail::RayMemoryMonitor,
    ),
    means(
        "due to the node running low on memory",
        Killer,
        HostOomKill,
        Detail::RayMemoryMonitor,
    ),
    ask("killed due to memory pressure (OOM)", ray_count),
    means(
        "of the memory on node",
        Killer,
        HostOomKill,
        Detail::RayMemoryMonitor,
    ),
    // A manager that says that it kills.
    means("Hard time limit (", Named, NotMemory, Detail::TimeLimit),
    means("signal_sent=SIGKILL", Named, NotMemory, Detail::Terminated),
    // Compilers that were killed while they built an extension.
    means(
        "Killed signal terminated program",
        Signaled,
        Ambiguous,
        Detail::Sigkill,
    ),
];

/// torchrun: `Received 15 death signal, shutting down workers`.
fn death_signal(reading: &Reading, hit: Hit) -> Option<Sign> {
    let before = reading.before(hit.at, 24);
    (before.contains("received") || before.contains("signals.sig"))
        .then(|| hit.sign(Named, NotMemory, Detail::Terminated))
}

/// dask: `Worker exceeded 95% memory budget. Restarting`.
fn dask_budget(reading: &Reading, hit: Hit) -> Option<Sign> {
    let near = reading.around(hit.at, 40, 40);
    (near.contains("exceed") && near.contains("restart"))
        .then(|| hit.sign(Killer, HostOomKill, Detail::DaskMemoryLimit))
}

/// Ray: `2 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed due to other reasons`.
fn ray_count(reading: &Reading, hit: Hit) -> Option<Sign> {
    let before = reading.before(hit.at, 40);
    let count = before
        .rfind("workers(")
        .map(|at| &before[..at])
        .map(|rest| {
            let digits = rest.bytes().rev().take_while(u8::is_ascii_digit).count();
            integer_at_start(&rest[rest.len() - digits..])
        });
    Some(if count == Some(Some(0)) {
        hit.sign(Raised, Ambiguous, Detail::WorkerVanished)
    } else {
        hit.sign(Killer, HostOomKill, Detail::RayMemoryMonitor)
    })
}
