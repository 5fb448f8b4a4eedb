//! Why an attempt ended, with proof.

use serde::{Deserialize, Serialize};

use crate::explain::Detail;

/// Why an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    pub cause: Cause,
    pub confidence: Confidence,
    pub detail: Detail,
    /// One sentence that a tired person understands, with the figure that matters.
    pub summary: String,
    /// What it rests on, heaviest first.
    pub evidence: Vec<Proof>,
    /// What to do, cheapest first.
    pub remedies: Vec<Remedy>,
    /// What would settle it, where the verdict is not proved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub would_settle: Vec<String>,
}

/// The closed list of causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The kernel, or a program that acts before it, killed for want of host memory.
    HostOomKill,
    /// The same, and the victim was a DataLoader worker.
    DataloaderWorkerKilledOom,
    /// `/dev/shm` was full.
    ShmExhausted,
    /// The card has no room for what was asked.
    CudaOomExhausted,
    /// The card has room, but not in one piece.
    CudaOomFragmented,
    /// Others hold most of the card.
    CudaOomOtherProcess,
    /// An allocation on the host was refused.
    HostAllocFailed,
    /// A limit on open files, mappings or shared-memory objects.
    FdOrShmLimit,
    /// Something else.
    NotMemory,
    /// What is known does not decide.
    Ambiguous,
}

/// How sure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// A counter, a wait status or the allocator's own figures say so.
    Proved,
    /// It fits, and nothing speaks against it.
    Likely,
    CannotTell,
}

/// One line of evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    pub source: Source,
    /// What it says, with its figures.
    pub text: String,
}

/// Where a line of evidence comes from, heaviest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Counters of control groups.
    Kernel,
    KernelLog,
    /// How the process ended.
    WaitStatus,
    /// What brimful sampled while it ran.
    Samples,
    /// What the hook inside the process noticed.
    Hook,
    /// PyTorch's allocator: its snapshot, replayed.
    Snapshot,
    /// What was printed.
    Output,
}

/// Something to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remedy {
    /// What to do, as a sentence in the imperative.
    pub text: String,
    /// What it would have done for this run, where that can be computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
}

impl Verdict {
    /// Whether it may decide what later runs do: memory is to blame, and not only by what was printed.
    pub fn is_learned_from(&self) -> bool {
        let is_weak = self.confidence == Confidence::CannotTell
            || (self.confidence == Confidence::Likely
                && self
                    .evidence
                    .iter()
                    .all(|proof| proof.source == Source::Output));
        self.cause.is_memory() && !is_weak
    }

    /// Nothing is known.
    pub fn cannot_tell() -> Verdict {
        Verdict {
            cause: Cause::Ambiguous,
            confidence: Confidence::CannotTell,
            detail: Detail::NoEvidence,
            summary: "nothing here says why it ended".into(),
            evidence: Vec::new(),
            remedies: Vec::new(),
            would_settle: Vec::new(),
        }
    }
}

impl Cause {
    /// Every cause, in the order of the reference.
    pub const ALL: [Cause; 10] = [
        Cause::HostOomKill,
        Cause::DataloaderWorkerKilledOom,
        Cause::ShmExhausted,
        Cause::CudaOomExhausted,
        Cause::CudaOomFragmented,
        Cause::CudaOomOtherProcess,
        Cause::HostAllocFailed,
        Cause::FdOrShmLimit,
        Cause::NotMemory,
        Cause::Ambiguous,
    ];

    /// As in JSON.
    pub fn id(self) -> &'static str {
        match self {
            Cause::HostOomKill => "host_oom_kill",
            Cause::DataloaderWorkerKilledOom => "dataloader_worker_killed_oom",
            Cause::ShmExhausted => "shm_exhausted",
            Cause::CudaOomExhausted => "cuda_oom_exhausted",
            Cause::CudaOomFragmented => "cuda_oom_fragmented",
            Cause::CudaOomOtherProcess => "cuda_oom_other_process",
            Cause::HostAllocFailed => "host_alloc_failed",
            Cause::FdOrShmLimit => "fd_or_shm_limit",
            Cause::NotMemory => "not_memory",
            Cause::Ambiguous => "ambiguous",
        }
    }

    /// Whether memory is to blame.
    pub fn is_memory(self) -> bool {
        !matches!(self, Cause::NotMemory | Cause::Ambiguous)
    }
}
