//! Which isolation of rehearsals is expected on recorded machines, and on this one.

use brimful::fact::Fact;
use brimful::machine::{IsolationSupport, Landlock};
use brimful_probe::probe;
use brimful_testkit::{FakeMachine, machine_names};

fn support(machine: &FakeMachine) -> IsolationSupport {
    let read = probe(&machine.surroundings());
    read.isolation.known().expect("it is always read").clone()
}

/// The name and the reason of what is expected, or `missing` and the reason for that.
fn expected(machine: &FakeMachine) -> (String, String) {
    match support(machine).expected() {
        Fact::Known(expected) => (expected.name().into(), expected.reason()),
        Fact::Missing(gap) => ("missing".into(), gap.to_string()),
    }
}

fn check(machine: &FakeMachine, name: &str, reason: &str) {
    assert_eq!(expected(machine), (name.into(), reason.into()));
}

fn load(name: &str) -> FakeMachine {
    FakeMachine::load(name)
}

#[test]
fn root_that_may_mount() {
    check(
        &load("hybrid-v1-vm"),
        "overlay",
        "this process can mount file systems (CAP_SYS_ADMIN)",
    );
}

#[test]
fn an_ordinary_user_whose_kernel_loads_the_overlay_module_on_demand() {
    let machine = load("workstation-two-cards");
    check(&machine, "overlay", "user namespaces are allowed");
    machine.write("/proc/sys/kernel/modules_disabled", "1\n");
    check(
        &machine,
        "redirect",
        "the kernel does not support overlayfs",
    );
    machine.write("/proc/sys/kernel/modules_disabled", "0\n");
    machine.remove("/lib/modules/6.1.0-28-amd64/modules.dep");
    check(
        &machine,
        "missing",
        "the overlay file system is not loaded, and the kernel's modules cannot be seen from here",
    );
}

#[test]
fn ubuntu_restricts_user_namespaces_of_programs_without_a_profile() {
    let machine = load("desktop-v2");
    check(&machine, "redirect", "AppArmor restricts user namespaces");
    machine.write("/proc/self/attr/apparmor/current", "brimful (unconfined)\n");
    check(&machine, "overlay", "user namespaces are allowed");
    machine.write("/proc/self/attr/apparmor/current", "unconfined\n");
    machine.write(
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "0\n",
    );
    check(&machine, "overlay", "user namespaces are allowed");
    machine.remove("/proc/sys/kernel/apparmor_restrict_unprivileged_userns");
    check(&machine, "overlay", "user namespaces are allowed");
}

#[test]
fn docker_by_default_and_with_the_documented_options() {
    let machine = load("docker-v2");
    check(
        &machine,
        "redirect",
        "a seccomp filter may block namespaces; AppArmor enforces the profile docker-default; \
         /var/tmp is on overlay, which does not support overlays",
    );
    // --cap-add SYS_ADMIN --security-opt apparmor=unconfined, and a volume at /var/tmp.
    machine.write(
        "/proc/self/status",
        "CapEff:\t00000000a82425fb\nSeccomp:\t2\n",
    );
    machine.write("/proc/self/attr/apparmor/current", "unconfined\n");
    machine.write(
        "/proc/self/mountinfo",
        "513 412 0:85 / / rw - overlay overlay rw\n520 513 8:1 / /var/tmp rw - ext4 /dev/sda1 rw\n",
    );
    check(
        &machine,
        "overlay",
        "this process can mount file systems (CAP_SYS_ADMIN)",
    );
}

#[test]
fn scratch_is_looked_for_where_a_rehearsal_looks_for_it() {
    let machine = load("docker-v2");
    machine.write("/scratch/file", "");
    machine.write(
        "/proc/self/mountinfo",
        "1 0 0:85 / / rw - overlay overlay rw\n2 1 0:99 / /var/tmp rw - tmpfs tmpfs rw\n\
         3 1 8:1 / /tmp rw - xfs /dev/sda1 rw\n4 1 8:2 / /scratch rw - nfs4 server:/ rw\n",
    );
    let mut surroundings = machine.surroundings();
    let mut scratch = |variables: &[(&str, &str)]| {
        surroundings.env = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let machine = probe(&surroundings);
        let scratch = machine.isolation.known().unwrap().scratch.clone();
        scratch.map(|scratch| (scratch.directory, scratch.kind))
    };
    let known = |directory: &str, kind: &str| Fact::Known((directory.into(), kind.into()));
    assert_eq!(scratch(&[]), known("/tmp", "xfs"));
    assert_eq!(
        scratch(&[("TMPDIR", "/scratch")]),
        known("/scratch", "nfs4")
    );
    assert_eq!(scratch(&[("TMPDIR", "/gone")]), known("/tmp", "xfs"));
    assert_eq!(scratch(&[("TMPDIR", "relative")]), known("/tmp", "xfs"));
}

#[test]
fn an_old_kernel_has_neither() {
    check(
        &load("slurm-v1"),
        "none",
        "overlays require Linux 5.12, but this is 4.18; user.max_user_namespaces is 0; the kernel does not support \
         Landlock, or a seccomp filter hides it",
    );
    assert_eq!(expected(&load("docker-v1")).0, "none");
}

#[test]
fn what_was_not_recorded_is_missing_with_its_reason() {
    check(
        &load("nothing-readable"),
        "missing",
        "/proc/self/status does not exist",
    );
    check(
        &load("k8s-v2"),
        "missing",
        "/proc/self/status has no line \"CapEff\"",
    );
    // Linux 5.10: an obstacle is known, but not whether Landlock is there.
    check(
        &load("slurm-v2"),
        "missing",
        "the version of Landlock was not recorded",
    );
}

#[test]
fn a_malformed_file_never_allows_an_overlay() {
    let hostile = [
        String::new(),
        "\n".into(),
        "\0".repeat(300),
        "-1\n".into(),
        "9".repeat(40),
        "0x200000".into(),
        "\u{fffd}\u{202e}\u{1b}[2J".into(),
        "a".repeat(100_000),
        "CapEff:\nSeccomp:\n".into(),
        "CapEff:\tzz\nSeccomp:\t-2\n".into(),
        ":".repeat(5000),
    ];
    for content in &hostile {
        for path in [
            "/proc/self/status",
            "/proc/sys/kernel/osrelease",
            "/proc/filesystems",
            "/proc/sys/user/max_user_namespaces",
            "/proc/sys/kernel/unprivileged_userns_clone",
            "/proc/self/mountinfo",
            "/lib/modules/6.1.0-28-amd64/modules.dep",
        ] {
            let machine = load("workstation-two-cards");
            machine.write(path, content);
            // A list of file systems without overlay sends the question to the modules, which have it.
            let may_be_overlay = path == "/proc/filesystems";
            let (name, reason) = expected(&machine);
            assert!(
                name != "overlay" || may_be_overlay,
                "{path} of {:?}: {reason}",
                content.chars().take(20).collect::<String>()
            );
        }
    }
}

#[test]
fn names_are_bounded() {
    let machine = load("docker-v2");
    machine.write(
        "/proc/self/attr/apparmor/current",
        &format!("{} (enforce)", "p".repeat(3000)),
    );
    machine.write(
        "/proc/self/mountinfo",
        &format!("1 0 0:85 / / rw - fuse.{} x rw\n", "k".repeat(100_000)),
    );
    let (_, reason) = expected(&machine);
    assert!(reason.len() < 400, "{}", reason.len());
}

#[test]
fn every_file_of_every_machine_may_be_missing() {
    for name in machine_names() {
        let machine = load(&name);
        let paths: Vec<String> = machine.files().map(Into::into).collect();
        for path in paths {
            machine.remove(&path);
            let _ = expected(&machine);
        }
        // Landlock is not a file.
        let left = support(&machine);
        assert!(left.kernel.gap().is_some(), "{name}");
        assert!(left.cap_sys_admin.gap().is_some(), "{name}");
        assert!(left.user_namespaces.unprivileged.gap().is_some(), "{name}");
        assert!(left.apparmor_profile.gap().is_some(), "{name}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn every_fact_of_this_machine_is_known() {
    use brimful_probe::{PythonHint, Surroundings, current_environment};

    let live = Surroundings::live(current_environment(), PythonHint::default()).unwrap();
    let machine = probe(&live);
    let support = machine.isolation.known().unwrap();
    assert!(support.kernel.known().is_some(), "{support:?}");
    assert!(support.cap_sys_admin.known().is_some(), "{support:?}");
    assert!(support.seccomp_filter.known().is_some(), "{support:?}");
    assert!(support.landlock.known().is_some(), "{support:?}");
    if let Fact::Known(Landlock::Abi(abi)) = support.landlock {
        assert!((1..100).contains(&abi), "{abi}");
    }
}
