//! Why an attempt ended, with proof.

use serde::{Deserialize, Serialize};

use crate::explain::Detail;
use crate::units::Bytes;

/// Why an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    pub cause: Cause,
    pub confidence: Confidence,
    pub detail: Detail,
    /// One sentence: the cause and the most important value.
    pub summary: String,
    /// Evidence, strongest first.
    pub evidence: Vec<Proof>,
    /// What to do, cheapest first.
    pub remedies: Vec<Remedy>,
    /// What would confirm the cause, if the verdict is not proved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub would_settle: Vec<String>,
}

/// The closed list of causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The kernel or another OOM killer killed a process because host memory ran out.
    HostOomKill,
    /// The same, and the victim was a DataLoader worker.
    DataloaderWorkerKilledOom,
    /// `/dev/shm` was full.
    ShmExhausted,
    /// The GPU did not have enough free memory for the request.
    CudaOomExhausted,
    /// The GPU had enough free memory, but it was fragmented.
    CudaOomFragmented,
    /// Other processes hold most of the GPU.
    CudaOomOtherProcess,
    /// A host memory allocation failed.
    HostAllocFailed,
    /// A limit on open files, mappings or shared-memory objects.
    FdOrShmLimit,
    /// A cause other than memory.
    NotMemory,
    /// The evidence is not conclusive.
    Ambiguous,
}

/// How certain a verdict is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// A counter, a wait status or the values of the allocator prove it.
    Proved,
    /// The evidence agrees, and nothing contradicts it.
    Likely,
    CannotTell,
}

/// One line of evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    pub source: EvidenceSource,
    /// What it shows, with the measured values.
    pub text: String,
}

/// Where a line of evidence comes from, strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EvidenceSource {
    /// Counters of cgroups.
    Kernel,
    KernelLog,
    /// How the process ended.
    WaitStatus,
    /// What brimful sampled while it ran.
    Samples,
    /// Recorded by the hook in the process.
    Hook,
    /// PyTorch's allocator: its snapshot, replayed.
    Snapshot,
    /// The output of the job.
    Output,
}

/// A way to avoid the failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remedy {
    /// What to do, as a sentence in the imperative.
    pub text: String,
    /// The effect it would have had on this run, if that can be computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
    /// The memory that would then be in use, if that can be computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<RemedyMemory>,
}

/// Memory in use with a remedy, against the same limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemedyMemory {
    #[serde(rename = "used_bytes")]
    pub used: Bytes,
    #[serde(rename = "limit_bytes")]
    pub limit: Bytes,
}

impl Confidence {
    /// As in JSON.
    pub fn id(self) -> &'static str {
        match self {
            Confidence::Proved => "proved",
            Confidence::Likely => "likely",
            Confidence::CannotTell => "cannot_tell",
        }
    }
}

impl Verdict {
    /// Whether later runs may learn from it: the cause is memory, and not only the output shows it.
    pub fn is_learned_from(&self) -> bool {
        let is_weak = self.confidence == Confidence::CannotTell
            || (self.confidence == Confidence::Likely
                && self
                    .evidence
                    .iter()
                    .all(|proof| proof.source == EvidenceSource::Output));
        self.cause.is_memory() && !is_weak
    }

    /// Nothing is known.
    pub fn cannot_tell() -> Verdict {
        Verdict {
            cause: Cause::Ambiguous,
            confidence: Confidence::CannotTell,
            detail: Detail::NoEvidence,
            summary: "no evidence of a cause was found".into(),
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

    /// Whether the cause is memory.
    pub fn is_memory(self) -> bool {
        !matches!(self, Cause::NotMemory | Cause::Ambiguous)
    }
}
