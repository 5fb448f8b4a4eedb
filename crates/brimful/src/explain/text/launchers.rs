//! Launchers and pools: torchrun, DeepSpeed, Lightning, joblib, dask, Ray, and others that wait for processes.
//!
//! What they say is a consequence; it names how a process ended, seldom why.

use crate::explain::Cause;
use crate::explain::text::clean::Reading;
use crate::explain::text::phrases::{Hit, Phrase, ask, means};
use crate::explain::text::sign::{Rank, Sign};
use crate::explain::text::size::integer_at_start;

use Cause::{Ambiguous, HostOomKill, NotMemory};
use Rank::{Aftermath, Killer, Named, Raised, Signaled};

pub(super) const PHRASES: &[Phrase] = &[
    // Asked to end from outside.
    ask("death signal", death_signal),
    means("Received SIGTERM", Named, NotMemory, "terminated"),
    means("SIGTERMException", Named, NotMemory, "terminated"),
    means("got signal: 15", Named, NotMemory, "terminated"),
    means("got signal: 1", Named, NotMemory, "terminated"),
    means("Caught signal 15", Named, NotMemory, "terminated"),
    // Torchrun, DeepSpeed, spawn: how the others were ended is no cause.
    means(
        "closing signal SIGTERM",
        Aftermath,
        Ambiguous,
        "failed_elsewhere",
    ),
    means(
        "Killing subprocess",
        Aftermath,
        Ambiguous,
        "failed_elsewhere",
    ),
    means("ChildFailedError", Aftermath, Ambiguous, "failed_elsewhere"),
    means(
        "CalledProcessError",
        Aftermath,
        Ambiguous,
        "failed_elsewhere",
    ),
    means(
        "ProcessRaisedException",
        Aftermath,
        Ambiguous,
        "failed_elsewhere",
    ),
    means("leaked semaphore", Aftermath, Ambiguous, "failed_elsewhere"),
    means(
        "leaked shared_memory",
        Aftermath,
        Ambiguous,
        "failed_elsewhere",
    ),
    means(
        "Engine core initialization failed",
        Aftermath,
        Ambiguous,
        "failed_elsewhere",
    ),
    means(
        "EngineCore encountered an issue",
        Aftermath,
        Ambiguous,
        "failed_elsewhere",
    ),
    means(
        "Background loop has errored already",
        Aftermath,
        Ambiguous,
        "failed_elsewhere",
    ),
    means(
        "Engine process failed to start",
        Aftermath,
        Ambiguous,
        "failed_elsewhere",
    ),
    means(
        "See stack trace (above) for the root cause",
        Aftermath,
        Ambiguous,
        "failed_elsewhere",
    ),
    means(
        "Engine loop is not running",
        Aftermath,
        Ambiguous,
        "failed_elsewhere",
    ),
    means("died with <Signals.SIGKILL", Signaled, Ambiguous, "sigkill"),
    // Pools: a worker is gone, and the pool does not know why.
    means(
        "terminated abruptly while the future was running",
        Raised,
        Ambiguous,
        "worker_vanished",
    ),
    means("BrokenProcessPool", Raised, Ambiguous, "worker_vanished"),
    means(
        "managed by the executor was unexpectedly terminated",
        Raised,
        Ambiguous,
        "worker_vanished",
    ),
    means(
        "abruptly died during map operation",
        Raised,
        Ambiguous,
        "worker_vanished",
    ),
    means(
        "background workers are no longer alive",
        Raised,
        Ambiguous,
        "worker_vanished",
    ),
    means(
        "background worker is 6 feet under",
        Raised,
        Ambiguous,
        "worker_vanished",
    ),
    means("abort_event was set", Raised, Ambiguous, "worker_vanished"),
    means(
        "Abnormal exit of MultiThreadedAugmenter",
        Raised,
        Ambiguous,
        "worker_vanished",
    ),
    means(
        "Worker exited prematurely",
        Aftermath,
        Ambiguous,
        "worker_vanished",
    ),
    means(
        "worker process died unexpectedly",
        Raised,
        Ambiguous,
        "worker_vanished",
    ),
    means(
        "was killed by unknown signal",
        Signaled,
        Ambiguous,
        "sigkill",
    ),
    means("workers died", Raised, Ambiguous, "worker_vanished"),
    means("KilledWorker", Raised, Ambiguous, "worker_vanished"),
    means(
        "workers died while running it",
        Raised,
        Ambiguous,
        "worker_vanished",
    ),
    means(
        "worker died unexpectedly",
        Raised,
        Ambiguous,
        "worker_vanished",
    ),
    means("Worker died", Raised, Ambiguous, "worker_vanished"),
    means("died unexpectedly", Raised, Ambiguous, "worker_vanished"),
    means(
        "worker died or was killed",
        Raised,
        Ambiguous,
        "worker_vanished",
    ),
    means(
        "actor died unexpectedly",
        Raised,
        Ambiguous,
        "worker_vanished",
    ),
    means(
        "some potential root causes",
        Aftermath,
        Ambiguous,
        "worker_vanished",
    ),
    means("Perhaps out of memory?", Signaled, Ambiguous, "sigkill"),
    means(
        "terminated unexpectedly",
        Aftermath,
        Ambiguous,
        "worker_vanished",
    ),
    means(
        "exited unexpectedly",
        Aftermath,
        Ambiguous,
        "worker_vanished",
    ),
    // Memory monitors of dask and Ray, which kill before the kernel.
    ask("memory budget", dask_budget),
    means(
        "killed due to the node running low on memory",
        Killer,
        HostOomKill,
        "ray_memory_monitor",
    ),
    means(
        "due to the node running low on memory",
        Killer,
        HostOomKill,
        "ray_memory_monitor",
    ),
    ask("killed due to memory pressure (OOM)", ray_count),
    means(
        "of the memory on node",
        Killer,
        HostOomKill,
        "ray_memory_monitor",
    ),
    // A manager that says that it kills.
    means("Hard time limit (", Named, NotMemory, "time_limit"),
    means("signal_sent=SIGKILL", Named, NotMemory, "terminated"),
    // Compilers that were killed while they built an extension.
    means(
        "Killed signal terminated program",
        Signaled,
        Ambiguous,
        "sigkill",
    ),
];

/// torchrun: `Received 15 death signal, shutting down workers`.
fn death_signal(reading: &Reading, hit: Hit) -> Option<Sign> {
    let before = reading.before(hit.at, 24);
    (before.contains("received") || before.contains("signals.sig"))
        .then(|| hit.sign(Named, NotMemory, "terminated"))
}

/// dask: `Worker exceeded 95% memory budget. Restarting`.
fn dask_budget(reading: &Reading, hit: Hit) -> Option<Sign> {
    let near = reading.around(hit.at, 40, 40);
    (near.contains("exceed") && near.contains("restart"))
        .then(|| hit.sign(Killer, HostOomKill, "dask_memory_limit"))
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
        hit.sign(Raised, Ambiguous, "worker_vanished")
    } else {
        hit.sign(Killer, HostOomKill, "ray_memory_monitor")
    })
}
