//! Files that are missing, cut off, swollen or lying: the probe goes on, and says what it could not read.

use brimful::findings;
use brimful_probe::probe;
use brimful_testkit::{FakeMachine, machine_names};

/// Contents no kernel writes.
fn nasty() -> Vec<(&'static str, String)> {
    vec![
        ("empty", String::new()),
        ("a lone newline", "\n".into()),
        ("zeros", "\0".repeat(300)),
        ("a negative number", "-1\n".into()),
        ("too large a number", format!("{}\n", "9".repeat(40))),
        ("a float", "1e400\n".into()),
        ("not text", "\u{fffd}\u{202e}\u{1b}[2J".into()),
        ("one endless line", "a".repeat(100_000)),
        ("many colons", ":".repeat(5000)),
        (
            "climbing",
            "0::/../../../../etc/passwd\n1:memory:/../..\n".into(),
        ),
        ("deep", format!("0::{}\n", "/x".repeat(5000))),
        ("half a table", "MemTotal: 12 kB\nMemAvai".into()),
        ("many lines", "MemTotal: 1 kB\n".repeat(20_000)),
    ]
}

/// Renders everything that can be rendered, so that a panic anywhere shows.
fn examine(machine: &FakeMachine) {
    let read = probe(&machine.surroundings());
    let _ = findings::of(&read);
    let _ = read.host.limits();
    let _ = format!("{read:?}");
}

#[test]
fn every_file_may_be_missing() {
    for name in machine_names() {
        let paths: Vec<String> = FakeMachine::load(&name).files().map(Into::into).collect();
        let machine = FakeMachine::load(&name);
        for path in paths {
            machine.remove(&path);
            examine(&machine);
        }
    }
}

#[test]
fn every_file_may_hold_anything() {
    // One machine of each hierarchy and each vendor covers every reader.
    for name in [
        "docker-v1",
        "k8s-v2",
        "slurm-v1",
        "desktop-v2",
        "rocm-mi300x",
        "colab-t4",
        "lxc-lxcfs",
    ] {
        let recorded = FakeMachine::load(name);
        for path in recorded.files() {
            let machine = FakeMachine::load(name);
            for (_, content) in nasty() {
                machine.write(path, &content);
                examine(&machine);
            }
        }
    }
}

#[test]
fn a_malformed_limit_is_a_gap_and_never_a_number() {
    for (what, content) in nasty() {
        let machine = FakeMachine::load("docker-v2");
        machine.write("/sys/fs/cgroup/memory.max", &content);
        let read = probe(&machine.surroundings());
        let level = &read.host.cgroups.known().unwrap().levels[0];
        assert!(level.max.gap().is_some(), "{what}: {:?}", level.max);
    }
}

#[test]
fn a_directory_in_place_of_a_file_is_a_gap() {
    let machine = FakeMachine::load("docker-v2");
    machine.remove("/proc/meminfo");
    machine.write("/proc/meminfo/inside", "x");
    let read = probe(&machine.surroundings());
    let gap = read.host.physical.gap().unwrap().to_string();
    assert_eq!(gap, "/proc/meminfo cannot be read: not a regular file");
}

#[test]
fn a_fifo_in_place_of_a_file_does_not_stall() {
    let machine = FakeMachine::load("docker-v2");
    machine.remove("/proc/meminfo");
    let made = std::process::Command::new("mkfifo")
        .arg(machine.root().join("proc/meminfo"))
        .status()
        .unwrap();
    assert!(made.success());
    assert!(probe(&machine.surroundings()).host.physical.gap().is_some());
}

#[test]
fn unreadable_and_missing_are_told_apart() {
    let machine = FakeMachine::load("docker-v2");
    machine.remove("/proc/self/oom_score_adj");
    machine.write("/proc/pressure/memory", "what?");
    let read = probe(&machine.surroundings());
    assert_eq!(
        read.host.oom_score_adj.gap().unwrap().to_string(),
        "/proc/self/oom_score_adj does not exist"
    );
    assert_eq!(
        read.host.pressure.gap().unwrap().to_string(),
        "/proc/pressure/memory has an unexpected format: \"what?\""
    );
}

#[test]
fn hostile_variables_change_nothing_but_words() {
    let machine = FakeMachine::load("k8s-v2");
    let mut surroundings = machine.surroundings();
    for value in [
        "",
        ",,,,",
        "0,0",
        "-1",
        "99999999999999999999",
        "GPU-",
        "MIG-",
        "\u{1b}[2J",
    ] {
        for name in [
            "CUDA_VISIBLE_DEVICES",
            "PYTORCH_CUDA_ALLOC_CONF",
            "SLURM_JOB_ID",
            "SLURM_MEM_PER_NODE",
            "PATH",
            "PYTHONPATH",
            "PYENV_VERSION",
            "HOME",
        ] {
            surroundings.env.insert(name.into(), value.into());
            let read = probe(&surroundings);
            let _ = findings::of(&read);
        }
    }
}
