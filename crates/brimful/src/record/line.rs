//! The lines of a record.

use serde::{Deserialize, Serialize};

use crate::explain::Verdict;
use crate::job::Settings;
use crate::plan::{Change, PlanBrim};
use crate::units::Bytes;
use crate::watch::{Action, Alarm, Sample};

/// One line of a run record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case")]
pub enum Line {
    /// The first line of every record.
    Run(RunLine),
    Attempt(AttemptLine),
    /// Something brimful could not do. The training goes on.
    Gap(GapLine),
    Sample(Sample),
    Alarm(Alarm),
    Action(ActionLine),
    /// A checkpoint of the job is newer than the ones before.
    Checkpoint(CheckpointLine),
    /// What the hook inside a process noticed.
    Hook(HookLine),
    /// The end of what the training printed, as far as it is kept.
    Output(OutputLine),
    /// The attempt is over.
    End(Box<EndLine>),
    Verdict(VerdictLine),
    /// A line of a newer brimful.
    #[serde(other)]
    Unknown,
}

/// What was started, where and when.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunLine {
    pub schema_version: u32,
    pub id: String,
    pub brimful_version: String,
    /// Milliseconds since 1970.
    pub started_at_unix_ms: u64,
    pub command: Vec<String>,
    /// The folder it was started in.
    pub folder: String,
    pub host_name: String,
    /// brimful's own process.
    pub supervisor_pid: u32,
    /// A digest of the directory and the command: runs of one job have the same.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub job: String,
    /// The directory or URL that its rows are to be written to when it has ended, for many runs to be counted together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub records: Option<String>,
}

/// One launch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AttemptLine {
    /// From 1.
    pub number: u32,
    pub started_at_unix_ms: u64,
    pub pid: u32,
    /// How the job is held together: `cgroup_v2`, `cgroup_v1`, `systemd_scope` or `process_tree`; `attached` for a
    /// process that was there before brimful.
    pub containment: String,
    /// The job's own control group, where it has one.
    pub cgroup: Option<String>,
    /// Bytes of the nearest limit that kills, and who sets it.
    #[serde(rename = "limit_bytes")]
    pub limit: Option<Bytes>,
    pub limit_set_by: Option<String>,
    /// The most open files a process of the job may have.
    pub open_files_limit: Option<u64>,
    /// The most address space a process of the job may have.
    #[serde(rename = "address_space_limit_bytes")]
    pub address_space_limit: Option<Bytes>,
    pub hook: bool,
    /// The GPUs of the machine.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuModel>,
    /// The version of their driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// What was started in this attempt.
    pub command: Vec<String>,
    /// One value per knob, where the job has knobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings: Option<Settings>,
    /// What the plan predicts for these settings, of each limit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub predicted: Vec<PlanBrim>,
    /// The checkpoint it goes on from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resumed_from: Option<String>,
    /// What differs from the attempt before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<Change>,
    /// What the next rung of the plan would change, where there is one. After a failure the verdict may choose another.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub next_rung: Vec<Change>,
    /// Why it was made, in one sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl AttemptLine {
    /// Whether it is of a process that was there before brimful.
    pub fn is_attached(&self) -> bool {
        self.containment == "attached"
    }
}

/// A GPU of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuModel {
    /// As the driver counts.
    pub index: u32,
    pub name: String,
    /// What the driver says it has, and what was in use before the start.
    #[serde(rename = "total_bytes", skip_serializing_if = "Option::is_none")]
    pub total: Option<Bytes>,
    #[serde(rename = "used_bytes", skip_serializing_if = "Option::is_none")]
    pub used: Option<Bytes>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GapLine {
    pub at_ms: u64,
    /// What could not be done, and why.
    pub message: String,
}

/// The newest file or directory that the job's patterns name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CheckpointLine {
    pub at_ms: u64,
    /// Relative to the job's directory where it lies below.
    pub path: String,
    pub written_at_unix_ms: u64,
}

/// An action of the supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionLine {
    pub at_ms: u64,
    pub action: Action,
    pub dry_run: bool,
    /// What was done in the end, such as "SIGUSR1 to process 4711".
    pub done: String,
}

/// What the hook inside a process noticed, as it wrote it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum HookLine {
    /// torch was imported.
    Torch {
        at_ms: u64,
        pid: u32,
        version: String,
        #[serde(default)]
        cuda: Option<String>,
    },
    /// A DataLoader was made into an iterator.
    Loader(LoaderLine),
    /// PyTorch raised an out-of-memory error.
    CudaOom(GpuProof),
    /// An exception ended the process.
    Exception {
        at_ms: u64,
        pid: u32,
        type_name: String,
        message: String,
    },
}

/// A DataLoader as its user made it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoaderLine {
    pub at_ms: u64,
    pub pid: u32,
    /// Which loader of its process, in the order of their making, from 0.
    pub loader: u32,
    pub n_workers: u32,
    pub batch_size: Option<u32>,
    pub prefetch_factor: Option<u32>,
    pub pin_memory: bool,
    pub persistent_workers: bool,
    /// `fork`, `spawn` or `forkserver`.
    pub start_method: Option<String>,
    /// The class of the dataset, such as `my.data.Pairs`.
    pub dataset: String,
    pub n_samples: Option<u64>,
    /// Processes of the workers, by number.
    pub worker_pids: Vec<u32>,
}

/// What a process knew of its card when PyTorch ran out of its memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuProof {
    pub at_ms: u64,
    pub pid: u32,
    pub device: u32,
    /// What the exception said, where it is known: it is made after this is written.
    pub message: String,
    /// What the allocator wanted of the card when there was no more.
    #[serde(rename = "asked_bytes", skip_serializing_if = "Option::is_none")]
    pub asked: Option<Bytes>,
    #[serde(rename = "allocated_bytes")]
    pub allocated: Bytes,
    #[serde(rename = "reserved_bytes")]
    pub reserved: Bytes,
    #[serde(rename = "free_bytes")]
    pub free: Option<Bytes>,
    #[serde(rename = "total_bytes")]
    pub total: Option<Bytes>,
    pub retries: u64,
    /// The allocator's snapshot, a file beside the record.
    pub snapshot: Option<String>,
    /// Whether it came in an evaluation and not in a training step, where the hook could tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evaluating: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputLine {
    pub at_ms: u64,
    pub stream: Stream,
    /// The last of it, control characters and all.
    pub tail: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    Stdout,
    Stderr,
    /// Both in one, as on a terminal.
    Both,
}

/// How an attempt ended. A value, never an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Outcome {
    /// With exit code 0.
    Finished,
    /// With another exit code.
    Failed { code: i32 },
    /// By a signal that brimful did not send.
    Killed { signal: i32 },
    /// Because brimful asked for it.
    StoppedByUs {
        detector: String,
        message: String,
        signal: Option<i32>,
    },
    /// Because the user asked for it: Ctrl-C, or a signal to brimful that was passed on.
    StoppedByUser { signal: i32 },
    /// Nobody saw how: brimful was not its parent.
    Unseen,
    /// It could not be started.
    NotStarted { error: String },
}

impl Outcome {
    /// As in JSON.
    pub fn id(&self) -> &'static str {
        match self {
            Outcome::Finished => "finished",
            Outcome::Failed { .. } => "failed",
            Outcome::Killed { .. } => "killed",
            Outcome::StoppedByUs { .. } => "stopped_by_us",
            Outcome::StoppedByUser { .. } => "stopped_by_user",
            Outcome::Unseen => "unseen",
            Outcome::NotStarted { .. } => "not_started",
        }
    }
}

/// What the kernel counted from the start of an attempt to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KernelCounts {
    /// Processes of the job's own group that the kernel killed for want of memory; `None` where it has no own group.
    pub oom_kills: Option<u64>,
    /// Kills of whole groups.
    pub oom_group_kills: Option<u64>,
    /// The same in the group that brimful itself is in, or the machine: others may be among them.
    pub oom_kills_around: Option<u64>,
    /// Times the limit was hit and memory had to be reclaimed.
    pub limit_hits: Option<u64>,
    /// Lines of the kernel's log about it, where they may be read.
    pub log: Vec<String>,
}

/// The highest figures of an attempt, exactly.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Peaks {
    #[serde(rename = "host_used_bytes")]
    pub host_used: Option<Bytes>,
    pub host_used_at_ms: Option<u64>,
    #[serde(rename = "host_headroom_bytes")]
    pub least_headroom: Option<Bytes>,
    #[serde(rename = "shm_used_bytes")]
    pub shm_used: Option<Bytes>,
    /// By card, as the driver counts.
    #[serde(rename = "gpu_used_bytes")]
    pub gpu_used: Vec<(u32, Bytes)>,
}

impl Peaks {
    /// Raises what this sample exceeds.
    pub fn include(&mut self, sample: &Sample) {
        if let Some(host) = &sample.host {
            if self.host_used.is_none_or(|peak| host.used > peak) {
                self.host_used = Some(host.used);
                self.host_used_at_ms = Some(sample.at_ms);
            }
            let least = self
                .least_headroom
                .map_or(host.headroom, |least| least.min(host.headroom));
            self.least_headroom = Some(least);
        }
        if let Some(shm) = &sample.shm {
            self.shm_used = self.shm_used.max(Some(shm.used));
        }
        for gpu in &sample.gpus {
            let known = self
                .gpu_used
                .iter_mut()
                .find(|(index, _)| *index == gpu.index);
            match known {
                Some((_, peak)) => *peak = (*peak).max(gpu.used),
                None => self.gpu_used.push((gpu.index, gpu.used)),
            }
        }
    }
}

/// What brimful itself took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OwnCost {
    /// Time on a processor, its threads together.
    pub cpu_ms: u64,
    /// Resident memory at the most.
    #[serde(rename = "resident_bytes")]
    pub resident: Bytes,
    /// Looks at the job.
    pub n_samples: u64,
}

/// The attempt is over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndLine {
    pub at_ms: u64,
    pub outcome: Outcome,
    pub kernel: KernelCounts,
    pub peaks: Peaks,
    /// The last sample before the end, in full.
    pub last: Option<Sample>,
    /// Processes that the training left behind and brimful ended.
    #[serde(default)]
    pub n_left_behind: u32,
    /// Other signals that ended processes of the job whose parent brimful had become: pid and signal.
    #[serde(default)]
    pub orphans: Vec<(u32, i32)>,
    #[serde(default)]
    pub own_cost: OwnCost,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VerdictLine {
    pub at_ms: u64,
    pub verdict: Verdict,
    /// Alarms that memory runs out, of an attempt that did not end of it.
    #[serde(default)]
    pub n_false_alarms: u32,
}

impl Line {
    /// The line as it stands in the file, with its end.
    pub fn to_json(&self) -> String {
        let mut text =
            serde_json::to_string(self).expect("maps have text keys and numbers are finite");
        text.push('\n');
        text
    }
}
