//! Makes the document of a machine.

use brimful::fact::Fact;
use brimful::findings;
use brimful::machine::{
    CgroupLevel, CgroupVersion, ExpectedIsolation, HiddenAncestors, Landlock, LimitEffect, Machine,
    OvercommitMode, Rlimit, SubjectKind, TorchMemoryOrigin,
};
use brimful::units::Bytes;

use crate::json::gaps::Gaps;
use crate::json::probe::{
    AllocatorVariable, BrimDocument, Cgroup, Cpus, FindingDocument, Gpu, GpuProcess, Host,
    Isolation, Killer, LimitDocument, MigInstance, Overcommit, Platform, PlatformLayer,
    PressureDocument, ProbeDocument, ProcessLimits, ProcessorLimit, Python, SCHEMA_VERSION,
    SharedMemory, SlurmJob, Subject, Torch, Unlimited, WholeLimit,
};

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
            gpu_visible_devices: machine
                .gpus
                .visible_devices_variable
                .as_ref()
                .map(|(name, value)| format!("{name}={value}")),
            platform: platform(machine, &mut gaps),
            isolation: isolation(machine, &mut gaps),
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
                .map(|finding| FindingDocument {
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
fn whole_limit(limit: &Option<Bytes>) -> WholeLimit {
    limit.map_or(WholeLimit::Unlimited(Unlimited::Unlimited), |limit| {
        WholeLimit::Finite(limit.get())
    })
}

fn rlimit(limit: &Rlimit) -> WholeLimit {
    whole_limit(&limit.finite().map(Bytes))
}

fn host(machine: &Machine, gaps: &mut Gaps) -> Host {
    let host = &machine.host;
    let brim = host.brim();
    Host {
        physical_bytes: gaps.take("host.physical_bytes", &host.physical, bytes),
        available_bytes: gaps.take("host.available_bytes", &host.available, bytes),
        swap_total_bytes: gaps.take("host.swap_total_bytes", &host.swap, |swap| swap.total.get()),
        swap_free_bytes: gaps.take("host.swap_free_bytes", &host.swap, |swap| swap.free.get()),
        brim: BrimDocument {
            limit_bytes: gaps.take("host.brim.limit_bytes", &brim, |brim| brim.limit.get()),
            set_by: gaps.take("host.brim.set_by", &brim, |brim| brim.set_by.to_string()),
            kind: gaps.take("host.brim.kind", &brim, |brim| brim.set_by.kind().into()),
            cgroup_path: brim
                .known()
                .and_then(|brim| brim.set_by.cgroup_path())
                .map(Into::into),
        },
        headroom_bytes: gaps.take("host.headroom_bytes", &host.headroom(), bytes),
        swap_headroom_bytes: gaps.take("host.swap_headroom_bytes", &host.swap_headroom(), bytes),
        limits: host
            .limits()
            .iter()
            .enumerate()
            .map(|(idx, limit)| LimitDocument {
                limit_bytes: limit.bytes.get(),
                set_by: limit.set_by.to_string(),
                kind: limit.set_by.kind().into(),
                cgroup_path: limit.set_by.cgroup_path().map(Into::into),
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
        hidden_groups: host.cgroups.known().map(|cgroups| {
            match cgroups.hidden {
                HiddenAncestors::None => "none",
                HiddenAncestors::OwnGroup => "own_group",
                HiddenAncestors::Unknown => "unknown",
                HiddenAncestors::NoneLower => "none_lower",
                HiddenAncestors::Limit(_) => "limit",
            }
            .into()
        }),
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
        pressure: gaps.take("host.pressure", &host.pressure, |pressure| {
            PressureDocument {
                some_avg10_percent: pressure.some_avg10,
                some_avg60_percent: pressure.some_avg60,
                full_avg10_percent: pressure.full_avg10,
                full_avg60_percent: pressure.full_avg60,
            }
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
        max_bytes: level.max.known().map(whole_limit),
        high_bytes: level.high.known().map(whole_limit),
        used_bytes: usage.map(|usage| usage.current.get()),
        reclaimable_bytes: usage.map(|usage| usage.reclaimable().get()),
        unreclaimable_bytes: usage.map(|usage| usage.unreclaimable().get()),
        anon_bytes: usage.and_then(|usage| usage.anon.known()).map(bytes),
        shmem_bytes: usage.and_then(|usage| usage.shmem.known()).map(bytes),
        swap_left_bytes: level.swap_left.known().map(whole_limit),
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
        cpuset: gaps.take("cpus.cpuset", &cpus.cpuset, |count| {
            count.map_or(WholeLimit::Unlimited(Unlimited::Unlimited), |count| {
                WholeLimit::Finite(count.into())
            })
        }),
        quota: gaps.take("cpus.quota", &cpus.quota, |quota| {
            quota.map_or(
                ProcessorLimit::Unlimited(Unlimited::Unlimited),
                ProcessorLimit::Finite,
            )
        }),
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
            memory_request_bytes: gaps
                .take(
                    "platform.slurm.memory_request_bytes",
                    &job.memory_request,
                    |request| request.map(Bytes::get),
                )
                .flatten(),
            whole_node: job.memory_request.known().map(Option::is_none),
            cpus_on_node: gaps.take("platform.slurm.cpus_on_node", &job.cpus_on_node, |count| {
                *count
            }),
        }),
    }
}

fn isolation(machine: &Machine, gaps: &mut Gaps) -> Option<Isolation> {
    let support = match &machine.isolation {
        Fact::Known(support) => support,
        missing @ Fact::Missing(_) => {
            gaps.take("isolation", missing, |_| ());
            return None;
        }
    };
    let expected = support.expected();
    let namespaces = &support.user_namespaces;
    let profile = &support.apparmor_profile;
    Some(Isolation {
        expected: gaps.take("isolation.expected", &expected, |expected| {
            expected.name().into()
        }),
        reason: expected.known().map(ExpectedIsolation::reason),
        cap_sys_admin: gaps.take("isolation.cap_sys_admin", &support.cap_sys_admin, |may| {
            *may
        }),
        user_namespaces: gaps.take(
            "isolation.user_namespaces",
            &namespaces.supported,
            |supported| *supported,
        ),
        max_user_namespaces: gaps
            .take("isolation.max_user_namespaces", &namespaces.max, |max| *max),
        unprivileged_userns_clone: gaps.take(
            "isolation.unprivileged_userns_clone",
            &namespaces.unprivileged,
            |allowed| *allowed,
        ),
        apparmor_restrict_unprivileged_userns: gaps.take(
            "isolation.apparmor_restrict_unprivileged_userns",
            &namespaces.restricted_by_apparmor,
            |restricted| *restricted,
        ),
        apparmor_profile: gaps
            .take("isolation.apparmor_profile", profile, |profile| {
                profile.as_ref().map(|profile| profile.name.clone())
            })
            .flatten(),
        apparmor_enforced: profile
            .known()
            .and_then(Option::as_ref)
            .map(|profile| profile.enforced),
        seccomp_filter: gaps.take(
            "isolation.seccomp_filter",
            &support.seccomp_filter,
            |filter| *filter,
        ),
        overlay_filesystem: gaps.take(
            "isolation.overlay_filesystem",
            &support.overlay_filesystem,
            |overlay| *overlay,
        ),
        scratch_directory: support
            .scratch
            .known()
            .map(|scratch| scratch.directory.clone()),
        scratch_filesystem: gaps.take(
            "isolation.scratch_filesystem",
            &support.scratch,
            |scratch| scratch.kind.clone(),
        ),
        landlock_abi: gaps.take("isolation.landlock_abi", &support.landlock, |landlock| {
            match landlock {
                Landlock::Abi(abi) => *abi,
                Landlock::Unknown | Landlock::Disabled | Landlock::Refused => 0,
            }
        }),
    })
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
