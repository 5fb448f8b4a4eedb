//! The outward form of a machine: what `brimful probe --json` prints and `brimful.probe()` returns.
//!
//! A missing fact is `null`, and `gaps` gives the reason. "No limit" is the string `unlimited`, never `null` and never a number.
//! The JSON Schema and the Python classes are made from these types by `cargo xtask generate`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::json::gaps::Gap;

/// Raised when a field changes its meaning or goes away; new fields do not raise it.
pub const SCHEMA_VERSION: u32 = 1;

/// The effective memory limits of a machine, and its problems.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(title = "brimful probe")]
pub struct ProbeDocument {
    /// The schema version of this document.
    pub schema_version: u32,
    /// The version of brimful that wrote it.
    pub brimful_version: String,
    /// Which machine is described.
    pub subject: Subject,
    /// Host memory.
    pub host: Host,
    /// Shared memory, which DataLoader workers use to pass batches.
    pub shm: SharedMemory,
    /// Limits of each process, set by the kernel.
    pub process_limits: ProcessLimits,
    /// Usable CPUs.
    pub cpus: Cpus,
    /// GPUs, visible to torch or not.
    pub gpus: Vec<Gpu>,
    /// The version of the NVIDIA driver.
    pub gpu_driver_version: Option<String>,
    /// The newest CUDA version that the driver supports, such as `12.4`.
    pub gpu_driver_cuda: Option<String>,
    /// The variable that hides GPUs from torch, as `NAME=VALUE`; `null` if none is set.
    pub gpu_visible_devices: Option<String>,
    /// Where the process runs.
    pub platform: Platform,
    /// How rehearsals can be isolated from the user's files.
    pub isolation: Option<Isolation>,
    /// The Python that would run the job.
    pub python: Option<Python>,
    /// Variables that configure torch's allocator, if they are set.
    pub allocator_variables: Vec<AllocatorVariable>,
    /// Problems, most severe first.
    pub findings: Vec<FindingDocument>,
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
    /// Sources of the recorded values.
    pub sources: Vec<String>,
    /// Values that the user replaced, such as another GPU.
    pub replaced: Vec<String>,
}

/// Host memory.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Host {
    /// Physical memory, as reported by psutil.
    pub physical_bytes: Option<u64>,
    /// The kernel's estimate of the memory available without swapping.
    pub available_bytes: Option<u64>,
    /// Swap of the machine.
    pub swap_total_bytes: Option<u64>,
    /// Unused swap.
    pub swap_free_bytes: Option<u64>,
    /// The nearest limit that kills.
    pub brim: BrimDocument,
    /// Bytes left before the kernel kills, without swap.
    pub headroom_bytes: Option<u64>,
    /// Swap available in addition to the headroom.
    pub swap_headroom_bytes: Option<u64>,
    /// Every limit, from the cgroup of the process to physical memory.
    pub limits: Vec<LimitDocument>,
    /// The memory cgroups, that of the process first.
    pub cgroups: Option<Vec<Cgroup>>,
    /// Parents of the visible cgroups: `none`, `own_group` (not even the cgroup of the process is visible),
    /// `unknown`, `none_lower` (parents without a lower limit) or `limit` (a parent with a lower limit). With
    /// `own_group`, `unknown` and `limit` the headroom is an upper bound.
    pub hidden_groups: Option<String>,
    /// Memory overcommit.
    pub overcommit: Option<Overcommit>,
    /// How long tasks were stalled on memory.
    pub pressure: Option<PressureDocument>,
    /// The priority of this process for the kernel OOM killer: -1000 never, 1000 first.
    pub oom_score_adj: Option<i32>,
    /// User-space OOM killers.
    pub killers: Option<Vec<Killer>>,
}

/// The nearest limit that kills.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Brim")]
pub struct BrimDocument {
    /// The limit.
    pub limit_bytes: Option<u64>,
    /// What sets it, in words.
    pub set_by: Option<String>,
    /// What sets it: `physical_memory`, `cgroup_v1`, `cgroup_v2`, `hidden_cgroup` or `given`.
    pub kind: Option<String>,
    /// The path of the cgroup that sets it; `null` if none does.
    pub cgroup_path: Option<String>,
}

/// One limit on host memory.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Limit")]
pub struct LimitDocument {
    /// The limit.
    pub limit_bytes: u64,
    /// What sets it, in words.
    pub set_by: String,
    /// What sets it, as in `brim.kind`.
    pub kind: String,
    /// The path of the cgroup that sets it; `null` if none does.
    pub cgroup_path: Option<String>,
    /// `kills` or `throttles`.
    pub effect: String,
    /// Bytes left before it acts.
    pub headroom_bytes: Option<u64>,
}

/// An integer (in bytes if the name ends in `_bytes`), or `unlimited`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum WholeLimit {
    /// A finite limit.
    Finite(u64),
    /// No limit is set.
    Unlimited(Unlimited),
}

/// A number of CPUs, or `unlimited`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum ProcessorLimit {
    /// A finite limit.
    Finite(f64),
    /// No limit is set.
    Unlimited(Unlimited),
}

/// The word for "no limit".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unlimited {
    /// No limit.
    Unlimited,
}

/// One memory cgroup.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Cgroup {
    /// 1 or 2.
    pub version: u32,
    /// The path of the cgroup.
    pub path: String,
    /// The limit that kills (`memory.max`, `memory.limit_in_bytes`).
    pub max_bytes: Option<WholeLimit>,
    /// The limit that throttles (`memory.high`).
    pub high_bytes: Option<WholeLimit>,
    /// All memory charged to the cgroup.
    pub used_bytes: Option<u64>,
    /// The part that the kernel reclaims before it kills.
    pub reclaimable_bytes: Option<u64>,
    /// The part that cannot be reclaimed while its processes run.
    pub unreclaimable_bytes: Option<u64>,
    /// Private memory of processes.
    pub anon_bytes: Option<u64>,
    /// Shared memory and tmpfs.
    pub shmem_bytes: Option<u64>,
    /// Swap that the cgroup can still use.
    pub swap_left_bytes: Option<WholeLimit>,
    /// Whether an OOM kill ends every process in the cgroup.
    pub oom_group: Option<bool>,
    /// Whether the kernel suspends processes instead of killing one (cgroup v1).
    pub oom_kill_disabled: Option<bool>,
}

/// Memory overcommit.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Overcommit {
    /// `heuristic`, `always` or `never`.
    pub mode: String,
    /// The commit limit in mode `never`.
    pub commit_limit_bytes: Option<u64>,
    /// Committed memory.
    pub committed_bytes: Option<u64>,
}

/// Share of time, in percent, in which tasks were stalled on memory.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Pressure")]
pub struct PressureDocument {
    /// Some task was stalled, last 10 seconds.
    pub some_avg10_percent: f64,
    /// Some task was stalled, last minute.
    pub some_avg60_percent: f64,
    /// All tasks were stalled, last 10 seconds.
    pub full_avg10_percent: f64,
    /// All tasks were stalled, last minute.
    pub full_avg60_percent: f64,
}

/// A user-space OOM killer.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Killer {
    /// Its name.
    pub name: String,
    /// Its PID.
    pub pid: u32,
    /// When it acts by default.
    pub acts_when: String,
    /// Its command-line arguments.
    pub arguments: Vec<String>,
}

/// Shared memory.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SharedMemory {
    /// Where it is mounted.
    pub path: String,
    /// Its size.
    pub total_bytes: Option<u64>,
    /// Free space.
    pub free_bytes: Option<u64>,
    /// Whether its contents count against the memory limit.
    pub counts_against_brim: Option<bool>,
}

/// Limits of each process, set by the kernel.
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

/// CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Cpus {
    /// The number of usable CPUs; a quota may allow a fraction.
    pub usable: Option<f64>,
    /// What limits the number: `machine`, `affinity`, `cpuset` or `quota`.
    pub limited_by: Option<String>,
    /// The number that `os.cpu_count()` returns.
    pub online: Option<u32>,
    /// Allowed by the affinity mask.
    pub affinity: Option<u32>,
    /// Allowed by the cgroup cpuset.
    pub cpuset: Option<WholeLimit>,
    /// Allowed by the cgroup CPU quota.
    pub quota: Option<ProcessorLimit>,
}

/// One GPU.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Gpu {
    /// `nvidia` or `amd`.
    pub vendor: String,
    /// The product name.
    pub name: Option<String>,
    /// Its UUID.
    pub uuid: Option<String>,
    /// The compute capability, such as `7.5`.
    pub compute_capability: Option<String>,
    /// Streaming multiprocessors or compute units.
    pub multiprocessors: Option<u32>,
    /// Total memory as reported by NVML.
    pub total_bytes: Option<u64>,
    /// Memory in use by processes.
    pub used_bytes: Option<u64>,
    /// Memory reserved by the driver.
    pub reserved_bytes: Option<u64>,
    /// Total memory as reported by torch.
    pub torch_visible_bytes: Option<u64>,
    /// The source of that value: `driver`, `measured`, `data sheet` or `estimated`.
    pub torch_visible_by: Option<String>,
    /// Whether torch will see it.
    pub torch_sees_it: Option<bool>,
    /// The `n` of `cuda:n`, if torch will see it.
    pub torch_index: Option<u32>,
    /// Processes that hold its memory.
    pub processes: Option<Vec<GpuProcess>>,
    /// Whether error correction (ECC) is enabled.
    pub ecc: Option<bool>,
    /// Whether multi-instance (MIG) mode is enabled.
    pub mig_enabled: Option<bool>,
    /// The MIG instances.
    pub mig_instances: Vec<MigInstance>,
}

/// A process that holds GPU memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GpuProcess {
    /// Its PID; in a container, the PID on the host.
    pub pid: u32,
    /// Its name, if it is visible.
    pub name: Option<String>,
    /// GPU memory that it holds.
    pub used_bytes: Option<u64>,
}

/// A part of a GPU in multi-instance mode.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct MigInstance {
    /// Its name.
    pub name: Option<String>,
    /// Its UUID, as `CUDA_VISIBLE_DEVICES` accepts it.
    pub uuid: Option<String>,
    /// Its memory.
    pub total_bytes: Option<u64>,
    /// Memory in use.
    pub used_bytes: Option<u64>,
    /// The `n` of `cuda:n`, if torch will see it.
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
    /// What the job requested from Slurm.
    pub slurm: Option<SlurmJob>,
}

/// One recognized layer.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PlatformLayer {
    /// Its name.
    pub name: String,
    /// How it was recognized.
    pub evidence: String,
}

/// What the job requested from Slurm.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SlurmJob {
    /// The job ID.
    pub job_id: String,
    /// Memory requested on this node; `null` if the whole node was requested.
    pub memory_request_bytes: Option<u64>,
    /// Whether all of the memory of the node was requested (`--mem=0`).
    pub whole_node: Option<bool>,
    /// CPUs allocated on this node.
    pub cpus_on_node: Option<u32>,
}

/// How rehearsals (`predict`, `plan`, `init`) can be isolated from the user's files.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Isolation {
    /// The isolation that a rehearsal is expected to use: `overlay`, `redirect`, or `none` if it is expected to refuse. A
    /// probe does not test it; the rehearsal itself verifies its isolation and reports which one it used.
    pub expected: Option<String>,
    /// Why, in words.
    pub reason: Option<String>,
    /// Whether this process can mount without a user namespace (`CAP_SYS_ADMIN`).
    pub cap_sys_admin: Option<bool>,
    /// Whether the kernel supports user namespaces.
    pub user_namespaces: Option<bool>,
    /// `user.max_user_namespaces`.
    pub max_user_namespaces: Option<u64>,
    /// `kernel.unprivileged_userns_clone`; true in kernels without this setting.
    pub unprivileged_userns_clone: Option<bool>,
    /// `kernel.apparmor_restrict_unprivileged_userns`; false in kernels without this setting.
    pub apparmor_restrict_unprivileged_userns: Option<bool>,
    /// The AppArmor profile of this process; `null` if AppArmor is not in use.
    pub apparmor_profile: Option<String>,
    /// Whether AppArmor enforces that profile.
    pub apparmor_enforced: Option<bool>,
    /// Whether a seccomp filter is in force.
    pub seccomp_filter: Option<bool>,
    /// Whether the kernel supports overlayfs, built in or as a module.
    pub overlay_filesystem: Option<bool>,
    /// The directory in which a rehearsal is expected to store what the script writes.
    pub scratch_directory: Option<String>,
    /// The file system of that directory.
    pub scratch_filesystem: Option<String>,
    /// The Landlock ABI version; 0 if it is not available.
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
    /// The platform it was built for, such as `CUDA 12.8` or `CPU only`.
    pub build: Option<String>,
    /// Compute capabilities that the official build has kernels for, if known.
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

/// A problem of this machine.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Finding")]
pub struct FindingDocument {
    /// Its ID in the catalogue of findings.
    pub id: String,
    /// `fatal`, `risk` or `note`.
    pub severity: String,
    /// What will happen.
    pub summary: String,
    /// The evidence.
    pub evidence: Vec<String>,
    /// What to do, cheapest first.
    pub remedies: Vec<String>,
}
