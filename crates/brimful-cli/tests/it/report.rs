//! `brimful report`: files in, one HTML file out.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::context::{Sandbox, brimful};

const RUNS: [&str; 6] = [
    "checkpoint-spike",
    "cuda-fragmented",
    "cuda-other-process",
    "dataloader-worker-killed",
    "killed-by-a-person",
    "shm-bus-error",
];

fn record(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/runs");
    path.join(name).join("record.jsonl").display().to_string()
}

fn write(arguments: &[&str], to: &Path) -> String {
    let to = to.display().to_string();
    let mut all = vec!["report"];
    all.extend(arguments);
    all.extend(["--output", &to]);
    let output = brimful(&all);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        format!("wrote {to}\n")
    );
    std::fs::read_to_string(to).unwrap()
}

#[test]
fn every_recorded_run_becomes_a_page() {
    let sandbox = Sandbox::new();
    for name in RUNS {
        let page = write(
            &[&record(name)],
            &sandbox.path().join(format!("{name}.html")),
        );
        assert!(
            page.contains("Why it died") && page.contains("How full it was"),
            "{name}"
        );
        let has_segments = page.contains("Enough memory, but fragmented");
        assert_eq!(has_segments, name == "cuda-fragmented", "{name}");
        assert!(page.len() < 500_000);
    }
}

#[test]
fn several_runs_become_a_comparison_and_a_snapshot_shows_its_segments() {
    let sandbox = Sandbox::new();
    let records: Vec<String> = RUNS.iter().map(|name| record(name)).collect();
    let names: Vec<&str> = records.iter().map(String::as_str).collect();
    let page = write(&names, &sandbox.path().join("runs.html"));
    assert!(
        page.contains("Runs side by side") && page.matches("<svg class=\"sparkline\"").count() == 6
    );

    let snapshot = record("cuda-fragmented").replace("record.jsonl", "oom-3864-1.pickle");
    let page = write(&[&snapshot], &sandbox.path().join("snapshot.html"));
    assert!(page.contains("Enough memory, but fragmented"));
    assert!(page.contains("expandable_segments:True"));
}

#[test]
fn a_file_that_is_not_a_report_is_left_alone() {
    let sandbox = Sandbox::with("mine.html", "<p>mine</p>");
    let path = sandbox.path().join("mine.html");
    let run = record("killed-by-a-person");
    let refused = brimful(&["report", &run, "-o", &path.display().to_string()]);
    assert_eq!(refused.status.code(), Some(96));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        said.contains("already exists and is not a report of brimful"),
        "{said}"
    );
    assert!(said.contains("--force"), "{said}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "<p>mine</p>");
    write(&[&run, "--force"], &path);
    write(&[&run], &path);
}

#[test]
fn the_page_can_go_to_standard_output() {
    let output = brimful(&["report", &record("killed-by-a-person"), "-o", "-"]);
    assert!(output.stdout.starts_with(b"<!doctype html>"));
}

#[test]
fn what_cannot_be_reported_says_what_can() {
    let sandbox = Sandbox::with("notes.txt", "notes");
    let path = sandbox.path().join("notes.txt").display().to_string();
    let output = brimful(&["report", &path, "-o", "-"]);
    assert_eq!(output.status.code(), Some(96));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("is not something a report can be made of"),
        "{said}"
    );
    assert!(said.contains("hint: pass a run ID"), "{said}");
    let mixed = brimful(&["report", &record("shm-bus-error"), &path, "-o", "-"]);
    assert_eq!(mixed.status.code(), Some(96));
}

/// The browser of the tests, where one is installed.
fn chromium() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory| directory.join("chromium"))
        .find(|program| program.is_file())
}

#[test]
fn a_browser_shows_it_light_dark_narrow_and_without_its_script() {
    let Some(chromium) = chromium() else {
        eprintln!("skipped: no chromium is installed here");
        return;
    };
    let sandbox = Sandbox::new();
    let path = sandbox.path().join("run.html");
    let page = write(&[&record("dataloader-worker-killed")], &path);
    let script_at = page.rfind("<script>").unwrap();
    let plain = sandbox.path().join("plain.html");
    std::fs::write(&plain, format!("{}</body></html>", &page[..script_at])).unwrap();
    let picture = |page: &Path, name: &str, options: &[&str]| {
        let to = sandbox.path().join(name);
        let output = Command::new(&chromium)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
            ])
            .args([
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
            ])
            .args(["--enable-logging=stderr", "--v=0", "--hide-scrollbars"])
            .arg(format!(
                "--user-data-dir={}",
                sandbox.path().join("profile").display()
            ))
            .args(options)
            .arg(format!("--screenshot={}", to.display()))
            .arg(format!("file://{}", page.display()))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!said.contains("CONSOLE"), "{name}: {said}");
        let bytes = std::fs::read(to).unwrap();
        assert!(
            bytes.starts_with(b"\x89PNG") && bytes.len() > 10_000,
            "{name}"
        );
        bytes
    };
    let size = "--window-size=1280,1800";
    let light = picture(
        &path,
        "light.png",
        &[size, "--blink-settings=preferredColorScheme=1"],
    );
    let dark = picture(
        &path,
        "dark.png",
        &[size, "--blink-settings=preferredColorScheme=0"],
    );
    assert_ne!(light, dark);
    picture(&path, "narrow.png", &["--window-size=390,3000"]);
    let without = picture(
        &plain,
        "plain.png",
        &[size, "--blink-settings=preferredColorScheme=1"],
    );
    assert_eq!(light, without, "the same picture without the script");
}
