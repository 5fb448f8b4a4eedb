//! `brimful top`: one frame, errors, and a real terminal.

use std::path::PathBuf;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::context::{Sandbox, program};

fn fixture(name: &str) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/runs");
    root.join(name).join("record.jsonl").display().to_string()
}

#[test]
fn without_a_terminal_one_frame_is_printed() {
    let sandbox = Sandbox::new();
    let record = fixture("dataloader-worker-killed");
    let text = sandbox.told(&["top", &record]);
    assert!(text.starts_with("exit code: 0\n"), "{text}");
    assert!(text.contains("┌ ended "), "{text}");
    assert!(text.contains("ended"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");
    assert_eq!(
        text,
        sandbox.told(&["top", "--once", "--color", "never", &record])
    );
    let colored = sandbox.told(&["top", "--once", "--color", "always", &record]);
    assert!(colored.contains("\u{1b}[34m"), "{colored}");
}

#[test]
fn a_missing_run_has_a_hint() {
    let sandbox = Sandbox::with("train.log", "not a record\n");
    insta::assert_snapshot!(sandbox.told(&["top"]), @r"
    exit code: 96
    ----- stdout -----
    ----- stderr -----
    error: no run has been recorded in `[DIR]/state`

    hint: record one with `brimful run -- python train.py`, or explain a log with `brimful explain train.log`
    ");
    insta::assert_snapshot!(sandbox.told(&["top", "."]), @r"
    exit code: 96
    ----- stdout -----
    ----- stderr -----
    error: no run was started in `.` (state directory `[DIR]/state`)

    hint: run `brimful runs` to list recorded runs
    ");
    insta::assert_snapshot!(sandbox.told(&["top", "2026"]), @r"
    exit code: 96
    ----- stdout -----
    ----- stderr -----
    error: no run `2026` in `[DIR]/state`

    hint: run `brimful runs` to list recorded runs
    ");
    insta::assert_snapshot!(sandbox.told(&["top", "train.log"]), @r"
    exit code: 96
    ----- stdout -----
    ----- stderr -----
    error: `train.log` is not a run record

    hint: pass a run ID, the directory of a job, or a record.jsonl
    ");
}

#[test]
fn a_run_is_found_by_its_directory_and_by_default() {
    let sandbox = Sandbox::new();
    sandbox.told(&["run", "--", "sh", "-c", "sleep 0.6"]);
    for arguments in [&["top"][..], &["top", "."]] {
        let text = sandbox.told(arguments);
        assert!(text.contains("sh -c sleep 0.6"), "{text}");
        assert!(text.contains("finished"), "{text}");
    }
}

/// A tmux server of its own, ended with the test.
struct Tmux {
    socket: String,
}

impl Tmux {
    /// Starts a command on a terminal of this size; `None` where there is no tmux.
    fn start(name: &str, columns: u16, rows: u16, command: &str) -> Option<Tmux> {
        let tmux = Tmux {
            socket: format!("brimful-{name}-{}", std::process::id()),
        };
        let size = [columns.to_string(), rows.to_string()];
        let started = Command::new("tmux")
            .args(["-L", &tmux.socket, "-f", "/dev/null", "new-session", "-d"])
            .args(["-x", &size[0], "-y", &size[1], command])
            .env("LC_ALL", "C.UTF-8")
            .env_remove("NO_COLOR")
            .status();
        match started {
            Ok(status) if status.success() => Some(tmux),
            _ => {
                eprintln!("skipped: tmux is not installed or does not start");
                None
            }
        }
    }

    fn tell(&self, arguments: &[&str]) -> String {
        let output = Command::new("tmux")
            .args(["-L", &self.socket])
            .args(arguments)
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn screen(&self) -> String {
        self.tell(&["capture-pane", "-p"])
    }

    fn press(&self, key: &str) {
        self.tell(&["send-keys", key]);
    }

    fn wait_for(&self, text: &str) -> String {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let screen = self.screen();
            if screen.contains(text) {
                return screen;
            }
            assert!(
                Instant::now() < until,
                "expected {text:?}, found:\n{screen}"
            );
            sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        self.tell(&["kill-server"]);
    }
}

/// Shows a record, and then the state of the terminal.
fn then_stty(before: &str, record: &str) -> String {
    let program = program();
    format!(
        "sh -c '{before} {} top {record}; echo left with $?; stty -a; sleep 60'",
        program.display()
    )
}

fn check_restored(tmux: &Tmux, code: &str) {
    let screen = tmux.wait_for("icanon");
    assert!(screen.contains(&format!("left with {code}")), "{screen}");
    assert!(
        !screen.contains("-icanon") && !screen.contains("-echo "),
        "{screen}"
    );
    assert_eq!(
        tmux.tell(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]),
        "0 1\n"
    );
}

#[test]
fn keys_work_in_a_real_terminal_and_quitting_restores_it() {
    let record = fixture("dataloader-worker-killed");
    let Some(tmux) = Tmux::start("keys", 80, 24, &then_stty("", &record)) else {
        return;
    };
    let screen = tmux.wait_for("q quit");
    assert!(screen.contains("processes"), "{screen}");
    tmux.press("e");
    tmux.wait_for("Evidence");
    tmux.press("?");
    tmux.wait_for("Keys");
    tmux.press("Escape");
    tmux.wait_for("q quit · ");
    tmux.press("Tab");
    tmux.press("Right");
    tmux.press("Right");
    tmux.wait_for("all ");
    tmux.tell(&["resize-window", "-x", "40", "-y", "10"]);
    tmux.wait_for("exit code 1");
    tmux.tell(&["resize-window", "-x", "200", "-y", "50"]);
    tmux.wait_for("processes");
    tmux.press("q");
    check_restored(&tmux, "0");
}

#[test]
fn a_signal_restores_the_terminal() {
    let record = fixture("dataloader-worker-killed");
    let command = then_stty("timeout --foreground --signal TERM 3", &record);
    let Some(tmux) = Tmux::start("signal", 80, 24, &command) else {
        return;
    };
    tmux.wait_for("q quit");
    // The exit code of timeout.
    check_restored(&tmux, "124");
}

#[test]
fn it_ends_with_its_terminal() {
    let record = fixture("dataloader-worker-killed");
    let command = format!("exec {} top {record}", program().display());
    let Some(tmux) = Tmux::start("hangup", 80, 24, &command) else {
        return;
    };
    tmux.wait_for("q quit");
    let pid = tmux.tell(&["display-message", "-p", "#{pane_pid}"]);
    let process = PathBuf::from(format!("/proc/{}/stat", pid.trim()));
    assert!(process.exists());
    tmux.tell(&["kill-server"]);
    let until = Instant::now() + Duration::from_secs(20);
    // A process that has ended may wait for somebody to ask.
    while std::fs::read_to_string(&process).is_ok_and(|stat| !stat.contains(") Z ")) {
        assert!(Instant::now() < until, "it outlives its terminal");
        sleep(Duration::from_millis(50));
    }
}
