//! Kubernetes, Docker, clouds and notebooks: a container or a session was ended.

use crate::explain::Cause;
use crate::explain::text::clean::Reading;
use crate::explain::text::phrases::{Hit, Phrase, ask, means};
use crate::explain::text::sign::{Rank, Sign};

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
        "machine_full",
    ),
    means("low on resource: memory", Killer, HostOomKill, "evicted"),
    means(
        "node had condition: [MemoryPressure]",
        Killer,
        HostOomKill,
        "evicted",
    ),
    means(
        "container killed due to memory usage",
        Killer,
        HostOomKill,
        "container_limit",
    ),
    means(
        "ran out-of-memory and exited",
        Killer,
        HostOomKill,
        "container_limit",
    ),
    means(
        "container ran out of memory",
        Killer,
        HostOomKill,
        "container_limit",
    ),
    means(
        "exceeding memory limits",
        Killer,
        HostOomKill,
        "container_limit",
    ),
    means(
        "beyond physical memory limits",
        Killer,
        HostOomKill,
        "container_limit",
    ),
    means(
        "beyond the 'PHYSICAL' memory limit",
        Killer,
        HostOomKill,
        "container_limit",
    ),
    means(
        "Memory limit exceeded (",
        Killer,
        HostOomKill,
        "container_limit",
    ),
    ask("Memory limit of", limit_of),
    means(
        "Memory quota vastly exceeded",
        Killer,
        HostOomKill,
        "container_limit",
    ),
    // Notebooks.
    means(
        "crashed after using all available RAM",
        Killer,
        HostOomKill,
        "notebook",
    ),
    means(
        "tried to allocate more memory than is available",
        Killer,
        HostOomKill,
        "notebook",
    ),
    means(
        "crashed for an unknown reason",
        Raised,
        Ambiguous,
        "notebook",
    ),
    means("kernel appears to have died", Raised, Ambiguous, "notebook"),
    means("kernel died unexpectedly", Raised, Ambiguous, "notebook"),
    means("kernel has died", Raised, Ambiguous, "notebook"),
    means("DeadKernelError", Raised, Ambiguous, "notebook"),
    means("Kernel died", Raised, Ambiguous, "notebook"),
    means(
        "Kernel crashed while executing code",
        Raised,
        Ambiguous,
        "notebook",
    ),
    means(
        "Canceled future for execute_request message",
        Raised,
        Ambiguous,
        "notebook",
    ),
    means(
        "The Python kernel is unresponsive",
        Raised,
        Ambiguous,
        "notebook",
    ),
    means(
        "AsyncIOLoopKernelRestarter: restarting kernel",
        Raised,
        Ambiguous,
        "notebook",
    ),
    means(
        "KernelRestarter: restarting kernel",
        Raised,
        Ambiguous,
        "notebook",
    ),
    ask("restarted", kernel_restarted),
    means(
        "tcmalloc: large alloc",
        Rank::Aftermath,
        Ambiguous,
        "notebook",
    ),
    // Ended from outside.
    means(
        "The runner has received a shutdown signal",
        Named,
        NotMemory,
        "terminated",
    ),
    means(
        "lost communication with the server",
        Raised,
        Ambiguous,
        "machine_lost",
    ),
    means("spot instance interruption", Named, NotMemory, "preempted"),
    means("The operation was canceled", Raised, NotMemory, "cancelled"),
];

/// `Reason: OOMKilled`; Docker also says `"OOMKilled": false`.
fn oom_killed(reading: &Reading, hit: Hit) -> Option<Sign> {
    let after = reading.after(hit.end, 12);
    let after = after.trim_start_matches(['"', '\'', ':', '=', '`']);
    Some(if after.starts_with("false") {
        hit.sign(Raised, Ambiguous, "sigkill")
    } else {
        hit.sign(Killer, HostOomKill, "container_limit")
    })
}

/// `Memory limit of 512 MiB exceeded with 530 MiB used`.
fn limit_of(reading: &Reading, hit: Hit) -> Option<Sign> {
    reading
        .after(hit.end, 40)
        .contains("exceeded")
        .then(|| hit.sign(Killer, HostOomKill, "container_limit"))
}

/// `kernel 4222… restarted`, in a notebook's log.
fn kernel_restarted(reading: &Reading, hit: Hit) -> Option<Sign> {
    let before = reading.before(hit.at, 60);
    before
        .contains("kernel")
        .then(|| hit.sign(Raised, Ambiguous, "notebook"))
}
