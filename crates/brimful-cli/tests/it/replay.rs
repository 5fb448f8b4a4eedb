//! `brimful replay` on files as people have them.

use brimful_allocsim::trace::Trace;
use tempfile::TempDir;

use crate::context::brimful;

const MIB: u64 = 1 << 20;

/// A run whose freed blocks are too small for what follows: fragmentation.
fn fragmented() -> Trace {
    let mut trace = Trace {
        torch: "2.13.0".into(),
        ..Trace::default()
    };
    let parts: Vec<u32> = (0..16).map(|_| trace.alloc(50 * MIB, 0)).collect();
    for part in parts.iter().step_by(2) {
        trace.free(*part);
    }
    for _ in 0..4 {
        trace.alloc(90 * MIB, 0);
    }
    trace
}

fn file(trace: &Trace) -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.brimtrace");
    std::fs::write(&path, trace.to_bytes()).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}

#[test]
fn each_capacity_and_setting_gets_its_line() {
    let (_folder, path) = file(&fragmented());
    let done = brimful(&[
        "replay",
        &path,
        "--json",
        "--capacity",
        "1GiB",
        "--capacity",
        "500MiB",
    ]);
    assert_eq!(done.status.code(), Some(0));
    let document: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    let results = document["results"].as_array().unwrap();
    assert_eq!(results.len(), 8, "two capacities, four usual settings");
    let ooms: Vec<bool> = results
        .iter()
        .map(|result| result["oom"].as_bool().unwrap())
        .collect();
    assert_eq!(&ooms[4..], [true; 4], "nothing helps with 500 MiB");
    assert!(!ooms[0]);
    assert_eq!(results[0]["peak_allocated_bytes"], 800 * MIB);
}

#[test]
fn what_never_fits_ends_with_99() {
    let (_folder, path) = file(&fragmented());
    let done = brimful(&["replay", &path, "--capacity", "100MiB"]);
    assert_eq!(done.status.code(), Some(99));
    let page = String::from_utf8_lossy(&done.stdout);
    assert!(page.contains("No allocator setting fits"), "{page}");
}

#[test]
fn a_file_that_is_no_record_is_refused_with_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes, expected) in [
        ("text", &b"hello"[..], "cannot replay"),
        ("zip", b"PK\x03\x04rest", "zip"),
        ("class", b"\x80\x04cos\nsystem\n(S'true'\ntR.", "os"),
        ("cut", b"BRIMTRACE1\x00", "cut off"),
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let done = brimful(&["replay", path.to_str().unwrap()]);
        let told = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(96), "{name}: {told}");
        assert!(told.contains(expected), "{name}: {told}");
        assert!(told.contains("hint:"), "{name}: {told}");
    }
    let done = brimful(&["replay", "/nowhere/at/all"]);
    assert_eq!(done.status.code(), Some(96));
}
