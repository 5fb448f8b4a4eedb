//! A machine without a fault, for the rules' tests to break.

use crate::cards;
use crate::fact::Fact;
use crate::findings::{Finding, of};
use crate::machine::{
    Accelerator, CgroupLevel, CgroupVersion, Cgroups, Cpus, Gpus, HiddenAncestors, Host,
    IsolationSupport, KernelVersion, Landlock, Machine, Overcommit, OvercommitMode, Platform,
    Pressure, ProcessLimits, Python, PythonVersion, Rlimit, ScratchFilesystem, SharedMemory,
    Subject, Swap, Torch, TorchVersion, Usage, UserNamespaces,
};
use crate::units::Bytes;

/// A roomy workstation with an idle RTX 3090 and a current PyTorch.
pub(super) fn healthy() -> Machine {
    let mut gpu = cards::find("rtx-3090")
        .unwrap()
        .as_gpu(Fact::Known(Some(0)));
    gpu.used = Fact::Known(Bytes::from_mib(300));
    gpu.processes = Fact::Known(vec![]);
    Machine {
        subject: Subject::this_machine(),
        host: Host {
            physical: Fact::Known(Bytes::from_gib(64)),
            available: Fact::Known(Bytes::from_gib(60)),
            swap: Fact::Known(Swap {
                total: Bytes::from_gib(8),
                free: Bytes::from_gib(8),
            }),
            given_limit: None,
            cgroups: Fact::Known(Cgroups {
                levels: vec![],
                hidden: HiddenAncestors::None,
            }),
            overcommit: Fact::Known(Overcommit {
                mode: OvercommitMode::Heuristic,
                commit_limit: Some(Bytes::from_gib(40)),
                committed: Some(Bytes::from_gib(4)),
            }),
            pressure: Fact::Known(Pressure {
                some_avg10: 0.0,
                some_avg60: 0.0,
                full_avg10: 0.0,
                full_avg60: 0.0,
            }),
            oom_score_adj: Fact::Known(0),
            killers: Fact::Known(vec![]),
        },
        shm: SharedMemory {
            path: "/dev/shm".into(),
            total: Fact::Known(Bytes::from_gib(32)),
            free: Fact::Known(Bytes::from_gib(32)),
            counts_against_brim: Fact::Known(true),
        },
        process_limits: ProcessLimits {
            address_space: Fact::Known(Rlimit::Unlimited),
            data: Fact::Known(Rlimit::Unlimited),
            locked_memory: Fact::Known(Rlimit::Finite(8 << 20)),
            open_files: Fact::Known(Rlimit::Finite(65_536)),
            max_map_count: Fact::Known(1_048_576),
        },
        cpus: Cpus {
            online: Fact::Known(16),
            affinity: Fact::Known(16),
            cpuset: Fact::Known(None),
            quota: Fact::Known(None),
        },
        gpus: Gpus {
            devices: vec![gpu],
            complete: Fact::Known(()),
            driver_version: Fact::Known("580.95.05".into()),
            driver_cuda: Fact::Known((13, 0)),
            visible_devices_variable: None,
            visible_devices_end_at: None,
        },
        platform: Platform {
            layers: vec![],
            system: Fact::Known("Linux 6.1".into()),
            slurm: None,
        },
        isolation: Fact::Known(IsolationSupport {
            kernel: Fact::Known(KernelVersion { major: 6, minor: 1 }),
            overlay_filesystem: Fact::Known(true),
            cap_sys_admin: Fact::Known(false),
            user_namespaces: UserNamespaces {
                supported: Fact::Known(true),
                max: Fact::Known(255_000),
                unprivileged: Fact::Known(true),
                restricted_by_apparmor: Fact::Known(false),
            },
            apparmor_profile: Fact::Known(None),
            seccomp_filter: Fact::Known(false),
            scratch: Fact::Known(ScratchFilesystem {
                directory: "/var/tmp".into(),
                kind: "ext4".into(),
            }),
            landlock: Fact::Known(Landlock::Abi(2)),
        }),
        python: Fact::Known(Python {
            executable: "/usr/bin/python3".into(),
            version: Fact::Known(PythonVersion::new(3, 12)),
            found_by: "first on PATH".into(),
            torch: Fact::Known(torch(TorchVersion::new(2, 9, 1), (12, 8))),
        }),
        allocator_variables: vec![],
    }
}

pub(super) fn torch(version: TorchVersion, (major, minor): (u32, u32)) -> Torch {
    Torch {
        version,
        version_text: format!("{version}+cu{major}{minor}"),
        accelerator: Fact::Known(Accelerator::Cuda { major, minor }),
    }
}

/// Puts another torch into the machine.
pub(super) fn set_torch(machine: &mut Machine, torch: Torch) {
    let Fact::Known(python) = &mut machine.python else {
        unreachable!("the healthy machine has a Python");
    };
    python.torch = Fact::Known(torch);
}

/// A group of v2 with a limit in GiB and 1 GiB in use.
pub(super) fn group(path: &str, max_gib: Option<u64>) -> CgroupLevel {
    CgroupLevel {
        version: CgroupVersion::V2,
        path: path.into(),
        max: Fact::Known(max_gib.map(Bytes::from_gib)),
        high: Fact::Known(None),
        usage: Fact::Known(Usage {
            current: Bytes::from_gib(1),
            file_cache: Bytes::ZERO,
            slab_reclaimable: Bytes::ZERO,
            shmem: Fact::Known(Bytes::ZERO),
            anon: Fact::Known(Bytes::from_gib(1)),
        }),
        swap_left: Fact::Known(None),
        oom_group: Fact::Known(false),
        oom_kill_disabled: Fact::Known(false),
    }
}

pub(super) fn set_groups(machine: &mut Machine, levels: Vec<CgroupLevel>) {
    machine.host.cgroups = Fact::Known(Cgroups {
        levels,
        hidden: HiddenAncestors::None,
    });
}

/// Breaks the healthy machine and returns what `id` says of it, if anything.
pub(super) fn finding(id: &str, break_it: impl FnOnce(&mut Machine)) -> Option<Finding> {
    let mut machine = healthy();
    break_it(&mut machine);
    of(&machine).into_iter().find(|finding| finding.id == id)
}

/// Asserts that the rule fires and that its words hold `expected`.
pub(super) fn check(id: &str, break_it: impl FnOnce(&mut Machine), expected: &str) {
    let found = finding(id, break_it).unwrap_or_else(|| panic!("{id} did not fire"));
    assert!(!found.evidence.is_empty(), "{id} has no evidence");
    assert!(!found.remedies.is_empty(), "{id} has no remedy");
    let text = format!(
        "{}\n{}\n{}",
        found.summary,
        found.evidence.join("\n"),
        found.remedies.join("\n")
    );
    assert!(text.contains(expected), "{expected:?} is not in:\n{text}");
}

/// Asserts that the rule keeps quiet.
pub(super) fn check_quiet(id: &str, break_it: impl FnOnce(&mut Machine)) {
    let found = finding(id, break_it);
    assert!(found.is_none(), "{found:?}");
}
