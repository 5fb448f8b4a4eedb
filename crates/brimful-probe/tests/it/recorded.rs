//! Every recorded machine, read by the same code as a real one.

use brimful::fact::Fact;
use brimful::findings;
use brimful::machine::{HiddenAncestors, Machine};
use brimful::units::Bytes;
use brimful_probe::probe;
use brimful_testkit::{FakeMachine, machine_names};

fn read(name: &str) -> Machine {
    probe(&FakeMachine::load(name).surroundings())
}

/// The platform, the brim with who sets it, the headroom, and the usable processors.
fn check(name: &str, platform: &str, brim: &str, headroom: &str, cpus: f64) {
    let machine = read(name);
    let found = machine.host.brim();
    let found = found
        .known()
        .unwrap_or_else(|| panic!("{name} has no brim"));
    assert_eq!(machine.platform.name().id(), platform, "{name}");
    assert_eq!(format!("{}, {}", found.limit, found.set_by), brim, "{name}");
    assert_eq!(
        found.headroom.known().unwrap().to_string(),
        headroom,
        "{name}"
    );
    assert_eq!(
        machine.cpus.usable().known().unwrap().0.to_string(),
        cpus.to_string(),
        "{name}"
    );
}

#[test]
fn every_recording_names_its_origin() {
    let names = machine_names();
    assert!(names.len() >= 12);
    for name in names {
        let machine = FakeMachine::load(&name);
        assert!(
            !machine.title().is_empty() && !machine.origin().is_empty(),
            "{name}"
        );
    }
}

#[test]
fn colab_is_read_past_the_group_that_is_not_its_own() {
    check(
        "colab-t4",
        "colab",
        "12.72 GiB, physical memory",
        "11.97 GiB",
        2.0,
    );
    let machine = read("colab-t4");
    assert_eq!(
        machine.host.cgroups.known().unwrap().hidden,
        HiddenAncestors::OwnGroup
    );
    assert_eq!(
        machine.gpus.devices[0]
            .torch_memory
            .known()
            .unwrap()
            .bytes
            .to_string(),
        "14.62 GiB"
    );
}

#[test]
fn containers_of_both_versions() {
    let group = "c33988ec7651ebc867cb24755eaf637a6734088bc7eef59d5799293a9e5450f7";
    check(
        "docker-v1",
        "docker",
        &format!("4 GiB, cgroup v1 /docker/{group} (Docker container)"),
        "3.28 GiB",
        4.0,
    );
    check(
        "docker-v2",
        "docker",
        "7.32 GiB, cgroup / (this container)",
        "5.01 GiB",
        1.5,
    );
    check(
        "podman-rootless",
        "podman",
        "2 GiB, cgroup / (this container)",
        "1.66 GiB",
        8.0,
    );
}

#[test]
fn a_hidden_limit_above_a_pod_is_found_by_version_one() {
    check(
        "k8s-v1",
        "kubernetes",
        "4 GiB, a parent cgroup that is not visible",
        "3.38 GiB",
        32.0,
    );
}

#[test]
fn kubernetes_and_its_group_kill() {
    check(
        "k8s-v2",
        "kubernetes",
        "16 GiB, cgroup / (this container)",
        "13.8 GiB",
        8.0,
    );
    let machine = read("k8s-v2");
    assert_eq!(machine.host.killed_together().unwrap().path, "/");
}

#[test]
fn slurm_limits_sit_above_the_process() {
    check(
        "slurm-v1",
        "slurm",
        "20 GiB, cgroup v1 /slurm/uid_1156392/job_3532212 (Slurm job 3532212)",
        "19.49 GiB",
        8.0,
    );
    check(
        "slurm-v2",
        "slurm",
        "3.91 GiB, cgroup /system.slice/slurm-worker-1_slurmstepd.scope/job_4749 (Slurm job 4749)",
        "3.72 GiB",
        4.0,
    );
    let machine = read("slurm-v2-enroot");
    let ids: Vec<&str> = findings::of(&machine)
        .iter()
        .map(|finding| finding.id)
        .collect();
    assert!(ids.contains(&"limits_above_not_visible"), "{ids:?}");
    assert!(ids.contains(&"slurm_request_not_enforced"), "{ids:?}");
}

#[test]
fn a_desktop_with_killers() {
    check(
        "desktop-v2",
        "plain",
        "15.5 GiB, physical memory",
        "9.35 GiB",
        12.0,
    );
    let machine = read("desktop-v2");
    let killers = machine.host.killers.known().unwrap();
    let names: Vec<&str> = killers.iter().map(|killer| killer.kind.name()).collect();
    assert_eq!(names, ["systemd-oomd", "earlyoom"]);
    assert_eq!(killers[1].arguments, ["-r", "3600", "-m", "4"]);
    let processes = machine.gpus.devices[0].processes.known().unwrap();
    assert_eq!(processes[0].name, Fact::Known("python".into()));
    assert!(processes[1].name.gap().is_some());
}

#[test]
fn hybrid_hierarchies_use_the_one_with_the_controller() {
    check(
        "hybrid-v1-vm",
        "plain",
        "23.54 GiB, physical memory",
        "23.27 GiB",
        2.0,
    );
    check(
        "wsl2",
        "wsl",
        "15.55 GiB, physical memory",
        "14.31 GiB",
        24.0,
    );
    check(
        "lxc-lxcfs",
        "lxc",
        "256 MiB, cgroup v1 /lxc/box (LXC container)",
        "181 MiB",
        4.0,
    );
}

#[test]
fn a_driver_that_keeps_quiet_is_answered_by_the_catalogue() {
    let machine = read("wsl2");
    let gpu = &machine.gpus.devices[0];
    assert!(gpu.reserved.gap().is_some());
    assert_eq!(
        gpu.torch_memory.known().unwrap().bytes.to_string(),
        "23.52 GiB"
    );
}

#[test]
fn amd_cards_are_read_from_the_kernel() {
    let machine = read("rocm-mi300x");
    let names: Vec<&str> = machine
        .gpus
        .devices
        .iter()
        .map(brimful::machine::Gpu::label)
        .collect();
    assert_eq!(names, ["AMD Instinct MI300X OAM (gfx942)"; 2]);
    assert_eq!(machine.gpus.devices[0].torch_index, Fact::Known(Some(0)));
    assert_eq!(machine.gpus.devices[1].torch_index, Fact::Known(None));
    assert_eq!(machine.gpus.devices[0].multiprocessors, Fact::Known(304));
    assert_eq!(
        machine.gpus.devices[1].used,
        Fact::Known(Bytes::from_gib(120))
    );
    assert_eq!(machine.gpus.complete, Fact::Known(()));
}

#[test]
fn one_instance_of_a_split_card_is_seen() {
    let machine = read("mig-a100");
    let gpu = &machine.gpus.devices[0];
    assert_eq!(gpu.torch_index, Fact::Known(None));
    let instances = gpu.mig.known().unwrap().as_ref().unwrap();
    assert_eq!(instances[0].torch_index, Fact::Known(None));
    assert_eq!(instances[1].torch_index, Fact::Known(Some(0)));
}

#[test]
fn two_different_cards_have_no_known_order() {
    let machine = read("workstation-two-cards");
    assert!(
        machine
            .gpus
            .devices
            .iter()
            .all(|gpu| gpu.torch_index.gap().is_some())
    );
}

#[test]
fn the_torch_of_the_job_is_found_without_python() {
    let machine = read("k8s-v2");
    let python = machine.python.known().unwrap();
    assert_eq!(python.executable, "/opt/venv/bin/python");
    assert_eq!(python.torch.known().unwrap().version_text, "2.9.1+cu128");
    let machine = read("colab-t4");
    let python = machine.python.known().unwrap();
    assert_eq!(python.version.known().unwrap().to_string(), "3.12");
    assert_eq!(python.torch.known().unwrap().version_text, "2.9.0+cu126");
}

/// What each machine is told, so that a change of a rule shows where it reaches.
#[test]
fn findings_of_every_machine() {
    let expected: &[(&str, &[&str])] = &[
        (
            "colab-t4",
            &[
                "limits_above_not_visible",
                "few_cpus_for_workers",
                "bf16_emulated",
            ],
        ),
        (
            "desktop-v2",
            &[
                "memory_high_throttles",
                "memory_pressure_now",
                "gpu_already_in_use",
                "userspace_killer_running",
                "low_open_files_limit",
                "expandable_segments_with_max_split_size",
                "workers_copy_the_dataset",
            ],
        ),
        (
            "docker-v1",
            &[
                "shm_too_small_for_workers",
                "container_limit_below_host_memory",
                "low_open_files_limit",
                "fewer_cpus_than_shown",
                "no_isolation_for_rehearsals",
            ],
        ),
        (
            "docker-v2",
            &[
                "shm_too_small_for_workers",
                "container_limit_below_host_memory",
                "fewer_cpus_than_shown",
            ],
        ),
        ("hybrid-v1-vm", &["few_cpus_for_workers"]),
        (
            "k8s-v1",
            &[
                "shm_too_small_for_workers",
                "container_limit_below_host_memory",
                "first_in_line_for_oom_killer",
            ],
        ),
        (
            "k8s-v2",
            &[
                "shm_too_small_for_workers",
                "container_limit_below_host_memory",
                "group_kill_takes_supervisor",
                "alloc_conf_ignored",
                "first_in_line_for_oom_killer",
                "fewer_cpus_than_shown",
            ],
        ),
        (
            "kaggle-t4x2",
            &["limits_above_not_visible", "bf16_emulated"],
        ),
        (
            "lxc-lxcfs",
            &[
                "headroom_low",
                "strict_overcommit",
                "shm_larger_than_headroom",
            ],
        ),
        ("mig-a100", &["gpu_split_into_instances"]),
        ("nothing-readable", &[]),
        (
            "podman-rootless",
            &[
                "shm_too_small_for_workers",
                "headroom_low",
                "container_limit_below_host_memory",
            ],
        ),
        ("rocm-mi300x", &[]),
        (
            "sagemaker",
            &[
                "driver_too_old_for_torch",
                "no_kernels_for_card",
                "limits_above_not_visible",
                "bf16_emulated",
            ],
        ),
        (
            "slurm-v1",
            &[
                "container_limit_below_host_memory",
                "shm_larger_than_headroom",
                "low_open_files_limit",
                "fewer_cpus_than_shown",
                "no_isolation_for_rehearsals",
            ],
        ),
        (
            "slurm-v2",
            &[
                "container_limit_below_host_memory",
                "shm_larger_than_headroom",
                "fewer_cpus_than_shown",
            ],
        ),
        (
            "slurm-v2-enroot",
            &[
                "slurm_request_not_enforced",
                "limits_above_not_visible",
                "fewer_cpus_than_shown",
            ],
        ),
        (
            "workstation-two-cards",
            &[
                "address_space_limited",
                "no_kernels_for_card",
                "low_max_map_count",
                "device_order_differs",
                "bf16_emulated",
            ],
        ),
        (
            "wsl2",
            &[
                "torch_without_gpu_support",
                "gpu_already_in_use",
                "wsl_memory_is_a_share",
            ],
        ),
    ];
    let listed: Vec<&str> = expected.iter().map(|(name, _)| *name).collect();
    assert_eq!(listed, machine_names(), "every recording is listed here");
    for (name, ids) in expected {
        let found: Vec<&str> = findings::of(&read(name))
            .iter()
            .map(|finding| finding.id)
            .collect();
        assert_eq!(&found, ids, "{name}");
    }
}
