//! The kernel has the last word: what it lets a child touch before it kills is held against the headroom that
//! `brimful probe` said, inside the same control group.

use std::io::Read;
use std::process::Stdio;

use brimful_testkit::TestGroup;
use serde_json::Value;

use crate::context::{memory_hog, program};

const MIB: u64 = 1 << 20;
/// How far the two may be apart.
const ALLOWED: f64 = 0.02;

fn groups() -> Option<TestGroup> {
    match TestGroup::new() {
        Ok(group) => Some(group),
        Err(reason) => {
            eprintln!("skipped, no control group can be made here: {}", reason.0);
            None
        }
    }
}

/// What the probe says inside the group, and what the kernel then allows.
fn check(what: &str, inside: &TestGroup, limited: &TestGroup) {
    let output = inside
        .command(&program())
        .args(["probe", "--json"])
        .output()
        .unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["host"]["brim"]["cgroup_path"], limited.path());
    let said = document["host"]["headroom_bytes"].as_u64().unwrap();

    let reached = touch_until_killed(inside);
    let apart = (reached as f64 - said as f64) / said as f64;
    let version = if inside.is_v2() { "v2" } else { "v1" };
    eprintln!(
        "{what} (cgroup {version}): probe said {:.1} MiB, the kernel killed at {:.1} MiB, {:+.2} %",
        said as f64 / MIB as f64,
        reached as f64 / MIB as f64,
        apart * 100.0
    );
    assert!(
        apart.abs() <= ALLOWED,
        "{what}: {:+.2} % apart",
        apart * 100.0
    );
}

/// Bytes that a child had touched when the kernel killed it.
fn touch_until_killed(group: &TestGroup) -> u64 {
    let mut child = group
        .command(&memory_hog())
        .arg("touch")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut steps = Vec::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_end(&mut steps)
        .unwrap();
    let status = child.wait().unwrap();
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&status),
        Some(9),
        "expected the kernel to kill the child, found {status}"
    );
    let last = steps.len() / 8 * 8;
    u64::from_le_bytes(steps[last - 8..last].try_into().unwrap())
}

#[test]
fn a_limit_on_the_group_itself() {
    let Some(group) = groups() else { return };
    group.limit(512 * MIB).unwrap();
    check("limit on the group", &group, &group);
}

#[test]
fn a_limit_on_the_parent() {
    let Some(parent) = groups() else { return };
    parent.limit(512 * MIB).unwrap();
    let child = parent.child("inner").unwrap();
    check("limit on the parent", &child, &parent);
}

#[test]
fn a_parent_tighter_than_the_group() {
    let Some(parent) = groups() else { return };
    parent.limit(400 * MIB).unwrap();
    let child = parent.child("inner").unwrap();
    child.limit(800 * MIB).unwrap();
    check("parent tighter than the group", &child, &parent);
}

#[test]
fn page_cache_and_tmpfs_already_charged() {
    let Some(group) = groups() else { return };
    group.limit(1024 * MIB).unwrap();
    // A disk for the page cache; /dev/shm for shared memory.
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let shm = tempfile::tempdir_in("/dev/shm").unwrap();
    for (kind, folder, mib) in [("cache", disk.path(), "300"), ("file", shm.path(), "200")] {
        let status = group
            .command(&memory_hog())
            .arg(kind)
            .arg(folder.join("data"))
            .arg(mib)
            .status()
            .unwrap();
        assert!(status.success());
    }
    check("300 MiB of page cache and 200 MiB of tmpfs", &group, &group);
}
