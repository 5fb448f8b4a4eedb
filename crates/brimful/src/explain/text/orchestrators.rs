//! Kubernetes, Docker, clouds and notebooks: a container or a session was ended.

use crate::explain::text::clean::Reading;
use crate::explain::text::phrases::{Hit, Phrase, ask, means};
use crate::explain::text::sign::{Rank, Sign};
use crate::explain::{Cause, Detail};

use Cause::{Ambiguous, HostOomKill, NotMemory};
use Rank::{Killer, Named, Raised};

pub(super) const PHRASES: &[Phrase] = &[
    ask("OOMKilled", oom_killed),
    ask("OOM-killed", oom_killed),
    ask("oom_killed", oom_killed),
    means(
        "System OOM encountered",
        Killer,
        HostOomKill,
        Detail::MachineFull,
    ),
    means(
        "low on resource: memory",
        Killer,
        HostOomKill,
        Detail::Evicted,
    ),
    means(
        "node had condition: [MemoryPressure]",
        Killer,
        HostOomKill,
        Detail::Evicted,
    ),
    means(
        "container killed due to memory usage",
        Killer,
        HostOomKill,
        Detail::ContainerLimit,
    ),
    means(
        "ran out-of-memory and exited",
        Killer,
        HostOomKill,
        Detail::ContainerLimit,
    ),
    means(
        "container ran out of memory",
        Killer,
        HostOomKill,
        Detail::ContainerLimit,
    ),
    means(
        "exceeding memory limits",
        Killer,
        HostOomKill,
        Detail::ContainerLimit,
    ),
    means(
        "beyond physical memory limits",
        Killer,
        HostOomKill,
        Detail::ContainerLimit,
    ),
    means(
        "beyond the 'PHYSICAL' memory limit",
        Killer,
        HostOomKill,
        Detail::ContainerLimit,
    ),
    means(
        "Memory limit exceeded (",
        Killer,
        HostOomKill,
        Detail::ContainerLimit,
    ),
    ask("Memory limit of", limit_of),
    means(
        "Memory quota vastly exceeded",
        Killer,
        HostOomKill,
        Detail::ContainerLimit,
    ),
    // Notebooks.
    means(
        "crashed after using all available RAM",
        Killer,
        HostOomKill,
        Detail::Notebook,
    ),
    means(
        "tried to allocate more memory than is available",
        Killer,
        HostOomKill,
        Detail::Notebook,
    ),
    means(
        "crashed for an unknown reason",
        Raised,
        Ambiguous,
        Detail::Notebook,
    ),
    means(
        "kernel appears to have died",
        Raised,
        Ambiguous,
        Detail::Notebook,
    ),
    means(
        "kernel died unexpectedly",
        Raised,
        Ambiguous,
        Detail::Notebook,
    ),
    means("kernel has died", Raised, Ambiguous, Detail::Notebook),
    means("DeadKernelError", Raised, Ambiguous, Detail::Notebook),
    means("Kernel died", Raised, Ambiguous, Detail::Notebook),
    means(
        "Kernel crashed while executing code",
        Raised,
        Ambiguous,
        Detail::Notebook,
    ),
    means(
        "Canceled future for execute_request message",
        Raised,
        Ambiguous,
        Detail::Notebook,
    ),
    means(
        "The Python kernel is unresponsive",
        Raised,
        Ambiguous,
        Detail::Notebook,
    ),
    means(
        "AsyncIOLoopKernelRestarter: restarting kernel",
        Raised,
        Ambiguous,
        Detail::Notebook,
    ),
    means(
        "KernelRestarter: restarting kernel",
        Raised,
        Ambiguous,
        Detail::Notebook,
    ),
    ask("restarted", kernel_restarted),
    means(
        "tcmalloc: large alloc",
        Rank::Aftermath,
        Ambiguous,
        Detail::Notebook,
    ),
    // Ended from outside.
    means(
        "The runner has received a shutdown signal",
        Named,
        NotMemory,
        Detail::Terminated,
    ),
    means(
        "lost communication with the server",
        Raised,
        Ambiguous,
        Detail::MachineLost,
    ),
    means(
        "spot instance interruption",
        Named,
        NotMemory,
        Detail::Preempted,
    ),
    means(
        "The operation was canceled",
        Raised,
        NotMemory,
        Detail::Cancelled,
    ),
];

/// `Reason: OOMKilled`; Docker also says `"OOMKilled": false`.
fn oom_killed(reading: &Reading, hit: Hit) -> Option<Sign> {
    let after = reading.after(hit.end, 12);
    let after = after.trim_start_matches(['"', '\'', ':', '=', '`']);
    Some(if after.starts_with("false") {
        hit.sign(Raised, Ambiguous, Detail::Sigkill)
    } else {
        hit.sign(Killer, HostOomKill, Detail::ContainerLimit)
    })
}

/// `Memory limit of 512 MiB exceeded with 530 MiB used`.
fn limit_of(reading: &Reading, hit: Hit) -> Option<Sign> {
    reading
        .after(hit.end, 40)
        .contains("exceeded")
        .then(|| hit.sign(Killer, HostOomKill, Detail::ContainerLimit))
}

/// `kernel 4222… restarted`, in a notebook's log.
fn kernel_restarted(reading: &Reading, hit: Hit) -> Option<Sign> {
    let before = reading.before(hit.at, 60);
    before
        .contains("kernel")
        .then(|| hit.sign(Raised, Ambiguous, Detail::Notebook))
}
