//! The outward form of a machine: what `brimful probe --json` prints and `brimful.probe()` returns.
//!
//! A missing fact is `null`, and `gaps` says why. "No limit" is the word `unlimited`, never `null` and never a number.
//! The JSON Schema and the Python classes are made from these types by `cargo xtask generate`.

use brimful::fact::Fact;
use brimful::findings;
use brimful::machine::{
    CgroupLevel, CgroupVersion, LimitEffect, Machine, OvercommitMode, Rlimit, SubjectKind,
    TorchMemoryOrigin,
};
use brimful::units::Bytes;
use schemars::JsonSchema;
use serde::Serialize;

use crate::json::gaps::{Gap, Gaps};

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
    /// Where the process runs.
    pub platform: Platform,
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
    /// Who sets it: `physical_memory`, `cgroup_v1`, `cgroup_v2` or `hidden_cgroup`.
    pub kind: Option<String>,
}

/// One limit on host memory.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Limit {
    /// The limit.
    pub limit_bytes: u64,
    /// Who sets it, in words.
    pub set_by: String,
    /// `kills` or `throttles`.
    pub effect: String,
    /// Bytes left before it acts.
    pub headroom_bytes: Option<u64>,
}

/// A number of bytes, or `unlimited`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum ByteLimit {
    /// A finite limit.
    Bytes(u64),
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
    pub max_bytes: Option<ByteLimit>,
    /// The limit that slows down (`memory.high`).
    pub high_bytes: Option<ByteLimit>,
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
    pub swap_left_bytes: Option<ByteLimit>,
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
    pub address_space_bytes: Option<ByteLimit>,
    /// RLIMIT_DATA.
    pub data_bytes: Option<ByteLimit>,
    /// RLIMIT_MEMLOCK.
    pub locked_memory_bytes: Option<ByteLimit>,
    /// RLIMIT_NOFILE.
    pub open_files: Option<ByteLimit>,
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
    /// Allowed by the cpuset; `null` without a reason in `gaps` means no cpuset is in force.
    pub cpuset: Option<u32>,
    /// Allowed by the quota; `null` without a reason in `gaps` means no quota is in force.
    pub quota: Option<f64>,
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
    /// Memory requested on this node; `unlimited` is the whole node.
    pub memory_request_bytes: Option<ByteLimit>,
    /// Processors given on this node.
    pub cpus_on_node: Option<u32>,
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

impl ProbeDocument {
    /// The document of a machine, with its findings.
    pub fn of(machine: &Machine) -> ProbeDocument {
        let mut gaps = Gaps::default();
        let (kind, profile) = match &machine.subject.kind {
            SubjectKind::ThisMachine => ("this_machine", None),
            SubjectKind::Profile { id, .. } => ("profile", Some(id.clone())),
        };
        ProbeDocument {
            schema_version: SCHEMA_VERSION,
            brimful_version: env!("CARGO_PKG_VERSION").into(),
            subject: Subject {
                kind: kind.into(),
                profile,
                sources: machine.subject.sources.clone(),
                replaced: machine.subject.replaced.clone(),
            },
            host: host(machine, &mut gaps),
            shm: SharedMemory {
                path: machine.shm.path.clone(),
                total_bytes: gaps.take("shm.total_bytes", &machine.shm.total, bytes),
                free_bytes: gaps.take("shm.free_bytes", &machine.shm.free, bytes),
                counts_against_brim: gaps.take(
                    "shm.counts_against_brim",
                    &machine.shm.counts_against_brim,
                    |counts| *counts,
                ),
            },
            process_limits: process_limits(machine, &mut gaps),
            cpus: cpus(machine, &mut gaps),
            gpus: gpus(machine, &mut gaps),
            gpu_driver_version: gaps.take(
                "gpu_driver_version",
                &machine.gpus.driver_version,
                Clone::clone,
            ),
            gpu_driver_cuda: gaps.take(
                "gpu_driver_cuda",
                &machine.gpus.driver_cuda,
                |(major, minor)| format!("{major}.{minor}"),
            ),
            platform: platform(machine, &mut gaps),
            python: python(machine, &mut gaps),
            allocator_variables: machine
                .allocator_variables
                .iter()
                .enumerate()
                .map(|(idx, variable)| AllocatorVariable {
                    name: variable.name.into(),
                    value: variable.value.clone(),
                    read_by_torch: gaps.take(
                        &format!("allocator_variables[{idx}].read_by_torch"),
                        &variable.read_by_torch,
                        |read| *read,
                    ),
                })
                .collect(),
            findings: findings::of(machine)
                .into_iter()
                .map(|finding| Finding {
                    id: finding.id.into(),
                    severity: finding.severity.name().into(),
                    summary: finding.summary,
                    evidence: finding.evidence,
                    remedies: finding.remedies,
                })
                .collect(),
            gaps: gaps.into_found(),
        }
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the shape `Gaps::take` asks for"
)]
fn bytes(bytes: &Bytes) -> u64 {
    bytes.get()
}

#[expect(clippy::ref_option, reason = "the shape `Gaps::take` asks for")]
fn byte_limit(limit: &Option<Bytes>) -> ByteLimit {
    limit.map_or(ByteLimit::Unlimited(Unlimited::Unlimited), |limit| {
        ByteLimit::Bytes(limit.get())
    })
}

fn rlimit(limit: &Rlimit) -> ByteLimit {
    byte_limit(&limit.finite().map(Bytes))
}

fn host(machine: &Machine, gaps: &mut Gaps) -> Host {
    let host = &machine.host;
    let brim = host.brim();
    Host {
        physical_bytes: gaps.take("host.physical_bytes", &host.physical, bytes),
        available_bytes: gaps.take("host.available_bytes", &host.available, bytes),
        swap_total_bytes: gaps.take("host.swap_total_bytes", &host.swap, |swap| swap.total.get()),
        swap_free_bytes: gaps.take("host.swap_free_bytes", &host.swap, |swap| swap.free.get()),
        brim: Brim {
            limit_bytes: gaps.take("host.brim.limit_bytes", &brim, |brim| brim.limit.get()),
            set_by: gaps.take("host.brim.set_by", &brim, |brim| brim.set_by.to_string()),
            kind: gaps.take("host.brim.kind", &brim, |brim| brim.set_by.kind().into()),
        },
        headroom_bytes: gaps.take("host.headroom_bytes", &host.headroom(), bytes),
        swap_headroom_bytes: gaps.take("host.swap_headroom_bytes", &host.swap_headroom(), bytes),
        limits: host
            .limits()
            .iter()
            .enumerate()
            .map(|(idx, limit)| Limit {
                limit_bytes: limit.bytes.get(),
                set_by: limit.set_by.to_string(),
                effect: match limit.effect {
                    LimitEffect::Kills => "kills".into(),
                    LimitEffect::Throttles => "throttles".into(),
                },
                headroom_bytes: gaps.take(
                    &format!("host.limits[{idx}].headroom_bytes"),
                    &limit.headroom,
                    bytes,
                ),
            })
            .collect(),
        cgroups: match &host.cgroups {
            Fact::Known(cgroups) => Some(
                cgroups
                    .levels
                    .iter()
                    .enumerate()
                    .map(|(idx, level)| cgroup(level, &format!("host.cgroups[{idx}]"), gaps))
                    .collect(),
            ),
            missing @ Fact::Missing(_) => gaps.take("host.cgroups", missing, |_| Vec::new()),
        },
        overcommit: gaps.take("host.overcommit", &host.overcommit, |overcommit| {
            Overcommit {
                mode: match overcommit.mode {
                    OvercommitMode::Heuristic => "heuristic".into(),
                    OvercommitMode::Always => "always".into(),
                    OvercommitMode::Never => "never".into(),
                },
                commit_limit_bytes: overcommit.commit_limit.map(Bytes::get),
                committed_bytes: overcommit.committed.map(Bytes::get),
            }
        }),
        pressure: gaps.take("host.pressure", &host.pressure, |pressure| Pressure {
            some_avg10_percent: pressure.some_avg10,
            some_avg60_percent: pressure.some_avg60,
            full_avg10_percent: pressure.full_avg10,
            full_avg60_percent: pressure.full_avg60,
        }),
        oom_score_adj: gaps.take("host.oom_score_adj", &host.oom_score_adj, |score| *score),
        killers: gaps.take("host.killers", &host.killers, |killers| {
            killers
                .iter()
                .map(|killer| Killer {
                    name: killer.kind.name().into(),
                    pid: killer.pid,
                    acts_when: killer.kind.acts_when().into(),
                    arguments: killer.arguments.clone(),
                })
                .collect()
        }),
    }
}

fn cgroup(level: &CgroupLevel, path: &str, gaps: &mut Gaps) -> Cgroup {
    let mut note = |name: &str, gap: Option<&brimful::fact::Gap>| {
        if let Some(gap) = gap {
            gaps.take(
                &format!("{path}.{name}"),
                &Fact::<()>::Missing(gap.clone()),
                |()| (),
            );
        }
    };
    let usage = level.usage.known();
    note("max_bytes", level.max.gap());
    note("high_bytes", level.high.gap());
    note("used_bytes", level.usage.gap());
    note("anon_bytes", usage.and_then(|usage| usage.anon.gap()));
    note("shmem_bytes", usage.and_then(|usage| usage.shmem.gap()));
    note("swap_left_bytes", level.swap_left.gap());
    note("oom_group", level.oom_group.gap());
    note("oom_kill_disabled", level.oom_kill_disabled.gap());
    Cgroup {
        version: match level.version {
            CgroupVersion::V1 => 1,
            CgroupVersion::V2 => 2,
        },
        path: level.path.clone(),
        max_bytes: level.max.known().map(byte_limit),
        high_bytes: level.high.known().map(byte_limit),
        used_bytes: usage.map(|usage| usage.current.get()),
        reclaimable_bytes: usage.map(|usage| usage.reclaimable().get()),
        unreclaimable_bytes: usage.map(|usage| usage.unreclaimable().get()),
        anon_bytes: usage.and_then(|usage| usage.anon.known()).map(bytes),
        shmem_bytes: usage.and_then(|usage| usage.shmem.known()).map(bytes),
        swap_left_bytes: level.swap_left.known().map(byte_limit),
        oom_group: level.oom_group.known().copied(),
        oom_kill_disabled: level.oom_kill_disabled.known().copied(),
    }
}

fn process_limits(machine: &Machine, gaps: &mut Gaps) -> ProcessLimits {
    let limits = &machine.process_limits;
    ProcessLimits {
        address_space_bytes: gaps.take(
            "process_limits.address_space_bytes",
            &limits.address_space,
            rlimit,
        ),
        data_bytes: gaps.take("process_limits.data_bytes", &limits.data, rlimit),
        locked_memory_bytes: gaps.take(
            "process_limits.locked_memory_bytes",
            &limits.locked_memory,
            rlimit,
        ),
        open_files: gaps.take("process_limits.open_files", &limits.open_files, rlimit),
        max_map_count: gaps.take(
            "process_limits.max_map_count",
            &limits.max_map_count,
            |count| *count,
        ),
    }
}

fn cpus(machine: &Machine, gaps: &mut Gaps) -> Cpus {
    let cpus = &machine.cpus;
    let usable = cpus.usable();
    Cpus {
        usable: gaps.take("cpus.usable", &usable, |(count, _)| *count),
        limited_by: usable.known().map(|(_, limiter)| limiter.name().into()),
        online: gaps.take("cpus.online", &cpus.online, |count| *count),
        affinity: gaps.take("cpus.affinity", &cpus.affinity, |count| *count),
        cpuset: gaps
            .take("cpus.cpuset", &cpus.cpuset, |count| *count)
            .flatten(),
        quota: gaps
            .take("cpus.quota", &cpus.quota, |quota| *quota)
            .flatten(),
    }
}

fn gpus(machine: &Machine, gaps: &mut Gaps) -> Vec<Gpu> {
    gaps.take("gpus", &machine.gpus.complete, |()| ());
    machine
        .gpus
        .devices
        .iter()
        .enumerate()
        .map(|(idx, gpu)| gpu_document(gpu, &format!("gpus[{idx}]"), gaps))
        .collect()
}

fn gpu_document(gpu: &brimful::machine::Gpu, path: &str, gaps: &mut Gaps) -> Gpu {
    let at = |name: &str| format!("{path}.{name}");
    Gpu {
        vendor: gpu.vendor.id().into(),
        name: gaps.take(&at("name"), &gpu.name, Clone::clone),
        uuid: gaps.take(&at("uuid"), &gpu.uuid, Clone::clone),
        compute_capability: gaps.take(
            &at("compute_capability"),
            &gpu.compute_capability,
            ToString::to_string,
        ),
        multiprocessors: gaps.take(&at("multiprocessors"), &gpu.multiprocessors, |count| *count),
        total_bytes: gaps.take(&at("total_bytes"), &gpu.total, bytes),
        used_bytes: gaps.take(&at("used_bytes"), &gpu.used, bytes),
        reserved_bytes: gaps.take(&at("reserved_bytes"), &gpu.reserved, bytes),
        torch_visible_bytes: gaps.take(&at("torch_visible_bytes"), &gpu.torch_memory, |memory| {
            memory.bytes.get()
        }),
        torch_visible_by: gpu.torch_memory.known().map(|memory| match memory.origin {
            TorchMemoryOrigin::Driver => "driver".into(),
            TorchMemoryOrigin::Catalogue { how } => how.into(),
        }),
        torch_sees_it: gpu.torch_index.known().map(Option::is_some),
        torch_index: gaps
            .take(&at("torch_index"), &gpu.torch_index, |index| *index)
            .flatten(),
        processes: gaps.take(&at("processes"), &gpu.processes, |processes| {
            processes
                .iter()
                .map(|process| GpuProcess {
                    pid: process.pid,
                    name: process.name.known().cloned(),
                    used_bytes: process.used.known().map(bytes),
                })
                .collect()
        }),
        ecc: gaps.take(&at("ecc"), &gpu.ecc, |on| *on),
        mig_enabled: gaps.take(&at("mig_enabled"), &gpu.mig, Option::is_some),
        mig_instances: gpu
            .mig
            .known()
            .and_then(Option::as_ref)
            .into_iter()
            .flatten()
            .map(|instance| MigInstance {
                name: instance.name.known().cloned(),
                uuid: instance.uuid.known().cloned(),
                total_bytes: instance.total.known().map(bytes),
                used_bytes: instance.used.known().map(bytes),
                torch_index: instance.torch_index.known().copied().flatten(),
            })
            .collect(),
    }
}

fn platform(machine: &Machine, gaps: &mut Gaps) -> Platform {
    let platform = &machine.platform;
    Platform {
        name: platform.name().id().into(),
        layers: platform
            .layers
            .iter()
            .map(|layer| PlatformLayer {
                name: layer.name.id().into(),
                evidence: layer.evidence.clone(),
            })
            .collect(),
        system: gaps.take("platform.system", &platform.system, Clone::clone),
        slurm: platform.slurm.as_ref().map(|job| SlurmJob {
            job_id: job.job_id.clone(),
            memory_request_bytes: gaps.take(
                "platform.slurm.memory_request_bytes",
                &job.memory_request,
                byte_limit,
            ),
            cpus_on_node: gaps.take("platform.slurm.cpus_on_node", &job.cpus_on_node, |count| {
                *count
            }),
        }),
    }
}

fn python(machine: &Machine, gaps: &mut Gaps) -> Option<Python> {
    let python = match &machine.python {
        Fact::Known(python) => python,
        missing @ Fact::Missing(_) => return gaps.take("python", missing, |_| None)?,
    };
    let torch = python.torch.known();
    Some(Python {
        executable: python.executable.clone(),
        version: gaps.take("python.version", &python.version, ToString::to_string),
        found_by: python.found_by.clone(),
        torch: gaps.take("python.torch", &python.torch, |torch| Torch {
            version: torch.version_text.clone(),
            build: torch.accelerator.known().map(ToString::to_string),
            kernels_for: brimful::kernels::built_for(torch)
                .map(|kernels| kernels.iter().map(ToString::to_string).collect()),
        }),
    })
    .inspect(|_| {
        if let Some(torch) = torch {
            gaps.take("python.torch.build", &torch.accelerator, |_| ());
        }
    })
}
