//! The outward form of a machine: what `brimful probe --json` prints and `brimful.probe()` returns.
//!
//! A missing fact is `null`, and `gaps` says why. "No limit" is the word `unlimited`, never `null` and never a number.
//! The JSON Schema and the Python classes are made from these types by `cargo xtask generate`.

use schemars::JsonSchema;
use serde::Serialize;

use crate::json::gaps::Gap;

/// Raised when a field changes its meaning or goes away; new fields do not raise it.
pub const SCHEMA_VERSION: u32 = 1;

/// What a machine really allows, and what will bite there.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(title = "brimful probe")]
pub struct ProbeDocument {
    /// The version of this document's form.
    pub schema_version: u32,
    /// The version of brimful that wrote it.
    pub brimful_version: String,
    /// Which machine is described.
    pub subject: Subject,
    /// Host memory.
    pub host: Host,
    /// Shared memory, through which DataLoader workers hand over batches.
    pub shm: SharedMemory,
    /// Limits that the kernel keeps for each process.
    pub process_limits: ProcessLimits,
    /// Processors that can really be used.
    pub cpus: Cpus,
    /// GPUs, visible to torch or not.
    pub gpus: Vec<Gpu>,
    /// The version of the NVIDIA driver.
    pub gpu_driver_version: Option<String>,
    /// The newest CUDA the driver can serve, such as `12.4`.
    pub gpu_driver_cuda: Option<String>,
    /// The variable that hides GPUs from torch, as `NAME=VALUE`; `null` where none is set.
    pub gpu_visible_devices: Option<String>,
    /// Where the process runs.
    pub platform: Platform,
    /// How rehearsals can be isolated from the user's files.
    pub isolation: Option<Isolation>,
    /// The Python that would run the job.
    pub python: Option<Python>,
    /// Variables that configure torch's allocator, as far as they are set.
    pub allocator_variables: Vec<AllocatorVariable>,
    /// What will bite, worst first.
    pub findings: Vec<Finding>,
    /// Why facts are missing.
    pub gaps: Vec<Gap>,
}

/// Which machine is described.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Subject {
    /// `this_machine`, or `profile` for a recorded one.
    pub kind: String,
    /// The profile's name.
    pub profile: Option<String>,
    /// Where recorded figures come from.
    pub sources: Vec<String>,
    /// What was put in place of a fact, such as another card.
    pub replaced: Vec<String>,
}

/// Host memory.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Host {
    /// Physical memory, as psutil shows it.
    pub physical_bytes: Option<u64>,
    /// What the kernel thinks can be handed out without swapping.
    pub available_bytes: Option<u64>,
    /// Swap of the machine.
    pub swap_total_bytes: Option<u64>,
    /// Swap that is not in use.
    pub swap_free_bytes: Option<u64>,
    /// The nearest limit that kills.
    pub brim: Brim,
    /// Bytes that can still be touched before the kernel kills, without swap.
    pub headroom_bytes: Option<u64>,
    /// What could go to swap on top of the headroom.
    pub swap_headroom_bytes: Option<u64>,
    /// Every limit, the process's own group first, physical memory last.
    pub limits: Vec<Limit>,
    /// The memory control groups, the process's own first.
    pub cgroups: Option<Vec<Cgroup>>,
    /// What stands above the visible groups: `none`, `own_group` (not even the process's own group can be seen),
    /// `unknown`, `none_lower` (there are some, without a lower limit) or `limit` (one with a lower limit). With
    /// `own_group`, `unknown` and `limit` the headroom is an upper bound.
    pub hidden_groups: Option<String>,
    /// How the kernel promises memory.
    pub overcommit: Option<Overcommit>,
    /// How long tasks waited for memory.
    pub pressure: Option<Pressure>,
    /// How early the kernel picks this process: -1000 never, 1000 first.
    pub oom_score_adj: Option<i32>,
    /// Programs that kill before the kernel does.
    pub killers: Option<Vec<Killer>>,
}

/// The nearest limit that kills.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Brim {
    /// The limit.
    pub limit_bytes: Option<u64>,
    /// Who sets it, in words.
    pub set_by: Option<String>,
    /// Who sets it: `physical_memory`, `cgroup_v1`, `cgroup_v2`, `hidden_cgroup` or `given`.
    pub kind: Option<String>,
    /// The control group that sets it, as the kernel names it; `null` where none does.
    pub cgroup_path: Option<String>,
}

/// One limit on host memory.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Limit {
    /// The limit.
    pub limit_bytes: u64,
    /// Who sets it, in words.
    pub set_by: String,
    /// Who sets it, as in `brim.kind`.
    pub kind: String,
    /// The control group that sets it; `null` where none does.
    pub cgroup_path: Option<String>,
    /// `kills` or `throttles`.
    pub effect: String,
    /// Bytes left before it acts.
    pub headroom_bytes: Option<u64>,
}

/// A whole number (of bytes where the name says so), or `unlimited`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum WholeLimit {
    /// A finite limit.
    Finite(u64),
    /// Readable, and without a limit.
    Unlimited(Unlimited),
}

/// A number of processors, or `unlimited`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum ProcessorLimit {
    /// A finite limit.
    Finite(f64),
    /// Readable, and without a limit.
    Unlimited(Unlimited),
}

/// The word for "no limit".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unlimited {
    /// No limit.
    Unlimited,
}

/// One memory control group.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Cgroup {
    /// 1 or 2.
    pub version: u32,
    /// The group's path as the kernel names it.
    pub path: String,
    /// The limit that kills (`memory.max`, `memory.limit_in_bytes`).
    pub max_bytes: Option<WholeLimit>,
    /// The limit that slows down (`memory.high`).
    pub high_bytes: Option<WholeLimit>,
    /// Everything charged to the group.
    pub used_bytes: Option<u64>,
    /// The part that the kernel takes back before it kills.
    pub reclaimable_bytes: Option<u64>,
    /// The part that stays while its owners live.
    pub unreclaimable_bytes: Option<u64>,
    /// Private memory of processes.
    pub anon_bytes: Option<u64>,
    /// Shared memory and tmpfs.
    pub shmem_bytes: Option<u64>,
    /// Swap the group may still use.
    pub swap_left_bytes: Option<WholeLimit>,
    /// A kill takes every process of the group.
    pub oom_group: Option<bool>,
    /// The kernel freezes instead of killing (v1).
    pub oom_kill_disabled: Option<bool>,
}

/// How the kernel promises memory.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Overcommit {
    /// `heuristic`, `always` or `never`.
    pub mode: String,
    /// The most that may be promised in mode `never`.
    pub commit_limit_bytes: Option<u64>,
    /// What is promised now.
    pub committed_bytes: Option<u64>,
}

/// Share of time, in percent, in which tasks waited for memory.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Pressure {
    /// Some task waited, last 10 seconds.
    pub some_avg10_percent: f64,
    /// Some task waited, last minute.
    pub some_avg60_percent: f64,
    /// All tasks waited, last 10 seconds.
    pub full_avg10_percent: f64,
    /// All tasks waited, last minute.
    pub full_avg60_percent: f64,
}

/// A program that kills when memory is short.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Killer {
    /// Its name.
    pub name: String,
    /// Its process.
    pub pid: u32,
    /// When it acts unless told otherwise.
    pub acts_when: String,
    /// How it was started.
    pub arguments: Vec<String>,
}

/// Shared memory.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SharedMemory {
    /// Where it is mounted.
    pub path: String,
    /// Its size.
    pub total_bytes: Option<u64>,
    /// What is free of it.
    pub free_bytes: Option<u64>,
    /// Whether what is stored there fills the memory limit.
    pub counts_against_brim: Option<bool>,
}

/// Limits that the kernel keeps for each process.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ProcessLimits {
    /// RLIMIT_AS.
    pub address_space_bytes: Option<WholeLimit>,
    /// RLIMIT_DATA.
    pub data_bytes: Option<WholeLimit>,
    /// RLIMIT_MEMLOCK.
    pub locked_memory_bytes: Option<WholeLimit>,
    /// RLIMIT_NOFILE.
    pub open_files: Option<WholeLimit>,
    /// `vm.max_map_count`.
    pub max_map_count: Option<u64>,
}

/// Processors.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Cpus {
    /// How many can run at the same time; a quota may leave a fraction.
    pub usable: Option<f64>,
    /// What holds the number down: `machine`, `affinity`, `cpuset` or `quota`.
    pub limited_by: Option<String>,
    /// What `os.cpu_count()` shows.
    pub online: Option<u32>,
    /// Allowed by the affinity mask.
    pub affinity: Option<u32>,
    /// Allowed by the cpuset of the control group.
    pub cpuset: Option<WholeLimit>,
    /// Allowed by the quota of the control group.
    pub quota: Option<ProcessorLimit>,
}

/// One GPU.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Gpu {
    /// `nvidia` or `amd`.
    pub vendor: String,
    /// The product name.
    pub name: Option<String>,
    /// The driver's unique name for it.
    pub uuid: Option<String>,
    /// NVIDIA's generation number, such as `7.5`.
    pub compute_capability: Option<String>,
    /// Streaming multiprocessors or compute units.
    pub multiprocessors: Option<u32>,
    /// What the driver's management library says it has.
    pub total_bytes: Option<u64>,
    /// In use by processes.
    pub used_bytes: Option<u64>,
    /// Kept by the driver for itself.
    pub reserved_bytes: Option<u64>,
    /// What torch reports as the card's total.
    pub torch_visible_bytes: Option<u64>,
    /// How that is known: `driver`, `measured`, `data sheet` or `estimated`.
    pub torch_visible_by: Option<String>,
    /// Whether torch will see it.
    pub torch_sees_it: Option<bool>,
    /// The `n` of `cuda:n`, where torch will see it.
    pub torch_index: Option<u32>,
    /// Processes that hold its memory.
    pub processes: Option<Vec<GpuProcess>>,
    /// Error correction is on.
    pub ecc: Option<bool>,
    /// Multi-instance (MIG) mode is on.
    pub mig_enabled: Option<bool>,
    /// The instances in that mode.
    pub mig_instances: Vec<MigInstance>,
}

/// A process that holds GPU memory.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct GpuProcess {
    /// Its number; in a container that of the host.
    pub pid: u32,
    /// Its name, where it can be seen from here.
    pub name: Option<String>,
    /// What it holds.
    pub used_bytes: Option<u64>,
}

/// A part of a GPU in multi-instance mode.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct MigInstance {
    /// Its name.
    pub name: Option<String>,
    /// Its unique name, as `CUDA_VISIBLE_DEVICES` takes it.
    pub uuid: Option<String>,
    /// Its memory.
    pub total_bytes: Option<u64>,
    /// In use.
    pub used_bytes: Option<u64>,
    /// The `n` of `cuda:n`, where torch will see it.
    pub torch_index: Option<u32>,
}

/// Where the process runs.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Platform {
    /// `colab`, `kaggle`, `sagemaker`, `slurm`, `kubernetes`, `podman`, `docker`, `apptainer`, `lxc`, `wsl` or `plain`.
    pub name: String,
    /// Every layer that was recognized, the most specific first.
    pub layers: Vec<PlatformLayer>,
    /// The kernel and the distribution.
    pub system: Option<String>,
    /// What Slurm was asked for.
    pub slurm: Option<SlurmJob>,
}

/// One recognized layer.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PlatformLayer {
    /// Its name.
    pub name: String,
    /// What gave it away.
    pub evidence: String,
}

/// What Slurm was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SlurmJob {
    /// The job.
    pub job_id: String,
    /// Memory requested on this node; `null` where the whole node was asked for.
    pub memory_request_bytes: Option<u64>,
    /// Whether all of the node's memory was asked for (`--mem=0`).
    pub whole_node: Option<bool>,
    /// Processors given on this node.
    pub cpus_on_node: Option<u32>,
}

/// How rehearsals (`predict`, `plan`, `init`) can be isolated from the user's files.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Isolation {
    /// What a rehearsal is expected to use: `overlay`, `redirect`, or `none` where it is expected to refuse. Nothing is
    /// tried by a probe; the rehearsal itself proves its isolation and reports the one it used.
    pub expected: Option<String>,
    /// Why, in words.
    pub reason: Option<String>,
    /// Whether this process may mount without a user namespace (`CAP_SYS_ADMIN`).
    pub cap_sys_admin: Option<bool>,
    /// Whether the kernel has user namespaces.
    pub user_namespaces: Option<bool>,
    /// `user.max_user_namespaces`.
    pub max_user_namespaces: Option<u64>,
    /// `kernel.unprivileged_userns_clone`; true in kernels without this setting.
    pub unprivileged_userns_clone: Option<bool>,
    /// `kernel.apparmor_restrict_unprivileged_userns`; false in kernels without this setting.
    pub apparmor_restrict_unprivileged_userns: Option<bool>,
    /// The AppArmor profile of this process; `null` where AppArmor is not in use.
    pub apparmor_profile: Option<String>,
    /// Whether AppArmor enforces that profile.
    pub apparmor_enforced: Option<bool>,
    /// Whether a seccomp filter is in force.
    pub seccomp_filter: Option<bool>,
    /// Whether the kernel has the overlay file system, or a module for it.
    pub overlay_filesystem: Option<bool>,
    /// The directory in which a rehearsal is expected to store what the script writes.
    pub scratch_directory: Option<String>,
    /// The file system of that directory.
    pub scratch_filesystem: Option<String>,
    /// The version of Landlock's interface; 0 where it is not available.
    pub landlock_abi: Option<u32>,
}

/// The Python that would run the job.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Python {
    /// Its executable.
    pub executable: String,
    /// Its version, such as `3.12`.
    pub version: Option<String>,
    /// How it was chosen.
    pub found_by: String,
    /// Its torch.
    pub torch: Option<Torch>,
}

/// An installed torch.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Torch {
    /// The version, such as `2.9.1+cu128`.
    pub version: String,
    /// What it can compute on, such as `CUDA 12.8` or `CPU only`.
    pub build: Option<String>,
    /// Compute capabilities the official build has kernels for, where known.
    pub kernels_for: Option<Vec<String>>,
}

/// A variable that configures torch's allocator.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct AllocatorVariable {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// Whether the installed torch reads it.
    pub read_by_torch: Option<bool>,
}

/// Something that will bite.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Finding {
    /// Its name in the catalogue.
    pub id: String,
    /// `fatal`, `risk` or `note`.
    pub severity: String,
    /// What will happen.
    pub summary: String,
    /// What that rests on.
    pub evidence: Vec<String>,
    /// What to do, cheapest first.
    pub remedies: Vec<String>,
}
