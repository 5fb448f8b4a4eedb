//! What outlives `brimful run`: after a SIGKILL of brimful the keeper records how the training ended, and after one of
//! the keeper brimful continues alone.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::context::program;

struct Place(TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn command(&self, command: &[&str]) -> Command {
        let mut run = Command::new(program());
        run.args(["run", "--state-dir"])
            .arg(self.0.path().join("state"))
            .arg("--")
            .args(command)
            .env("NO_COLOR", "1")
            .current_dir(self.0.path())
            .stdin(Stdio::null());
        run
    }

    fn start(&self, script: &str) -> Child {
        self.command(&["sh", "-c", script])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// What the next start here says.
    fn next(&self) -> String {
        let output = self.command(&["true"]).output().unwrap();
        assert!(output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// The run that was started first.
    fn first_run(&self) -> PathBuf {
        let runs = std::fs::read_dir(self.0.path().join("state/runs")).unwrap();
        let mut runs: Vec<PathBuf> = runs.map(|entry| entry.unwrap().path()).collect();
        runs.sort_by_key(|run| run.metadata().unwrap().created().unwrap());
        runs.remove(0)
    }

    fn states(&self) -> Vec<String> {
        let output = Command::new(program())
            .args(["runs", "--json", "--state-dir"])
            .arg(self.0.path().join("state"))
            .output()
            .unwrap();
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let runs = document["runs"].as_array().unwrap();
        runs.iter()
            .map(|run| run["state"].as_str().unwrap().to_owned())
            .collect()
    }
}

fn kill(pid: u32, signal: &str) {
    let status = Command::new("kill")
        .args(["-s", signal, &pid.to_string()])
        .status()
        .unwrap();
    assert!(status.success());
}

fn next_line(child: &mut Child) -> String {
    let mut line = String::new();
    let out = child.stdout.as_mut().unwrap();
    let mut byte = [0];
    while out.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
        line.push(char::from(byte[0]));
    }
    line
}

/// The rest of the output. The keeper holds it open until the training has ended and its end is recorded.
fn rest(child: &mut Child) -> String {
    let mut rest = String::new();
    let mut out = child.stdout.take().unwrap();
    out.read_to_string(&mut rest).unwrap();
    rest
}

fn parent_of(pid: u32) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields = stat.rsplit_once(')').unwrap().1;
    fields.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn after_a_kill_of_brimful_the_next_start_tells_the_real_end() {
    for (end, told) in [
        ("exit 0", "the command continued and finished"),
        ("exit 3", "the command continued and exited with code 3"),
        (
            "kill -TERM $$",
            "the command continued and was killed by SIGTERM",
        ),
    ] {
        let place = Place::new();
        let mut child = place.start(&format!("echo ready; sleep 0.3; echo more; {end}"));
        assert_eq!(next_line(&mut child), "ready");
        kill(child.id(), "KILL");
        child.wait().unwrap();
        assert_eq!(rest(&mut child), "more\n");
        let give_up = Instant::now() + Duration::from_secs(10);
        let mut said = place.next();
        while said.contains("is still running") && Instant::now() < give_up {
            said = place.next();
        }
        assert!(said.contains(told), "{said}");
        assert!(!said.contains("at the same time"), "{said}");
        let run = place.first_run();
        let output = Command::new(program())
            .args(["explain", "--json", "--state-dir"])
            .arg(place.0.path().join("state"))
            .arg(run.file_name().unwrap())
            .output()
            .unwrap();
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_ne!(document["verdict"]["detail"], "everything_killed");
        assert!(!run.join("exit-status.json").exists());
        assert!(!place.next().contains("was interrupted"), "reported twice");
    }
}

#[test]
fn a_training_that_still_runs_is_told_as_such() {
    let place = Place::new();
    let mut child = place.start("echo $$; while [ ! -e stop ]; do sleep 0.02; done; exit 7");
    let training: u32 = next_line(&mut child).parse().unwrap();
    kill(child.id(), "KILL");
    child.wait().unwrap();
    let said = place.next();
    let still = format!("is still running as process {training}");
    assert!(said.contains(&still), "{said}");
    assert!(place.states().contains(&"running".to_owned()));
    std::fs::write(place.0.path().join("stop"), "").unwrap();
    rest(&mut child);
    let give_up = Instant::now() + Duration::from_secs(10);
    while place.states().contains(&"running".to_owned()) && Instant::now() < give_up {
        std::thread::sleep(Duration::from_millis(10));
    }
    // Also before somebody was told.
    assert!(place.states().contains(&"failed".to_owned()));
}

#[test]
fn after_a_kill_of_the_keeper_brimful_continues_alone() {
    let place = Place::new();
    let script = "trap 'echo asked; exit 5' TERM; echo $$; while :; do sleep 0.02; done";
    let mut child = place.start(script);
    let training: u32 = next_line(&mut child).parse().unwrap();
    let keeper = parent_of(training);
    assert_ne!(keeper, child.id());
    kill(keeper, "KILL");
    let give_up = Instant::now() + Duration::from_secs(10);
    while parent_of(training) != child.id() {
        assert!(Instant::now() < give_up, "expected brimful as the parent");
        std::thread::sleep(Duration::from_millis(5));
    }
    kill(child.id(), "TERM");
    assert_eq!(rest(&mut child), "asked\n");
    assert_eq!(child.wait().unwrap().code(), Some(5));
    assert!(!place.first_run().join("exit-status.json").exists());
}

/// On a terminal of its own, with a status line and with faults.
const ON_A_TERMINAL: &str = r#"
import os, pty, signal, sys, time
pid, terminal = pty.fork()
if pid == 0:
    os.environ["TERM"] = "xterm"
    os.execv(sys.argv[1], sys.argv[1:])
out, stopped = b"", False
while True:
    try:
        chunk = os.read(terminal, 4096)
    except OSError:
        break
    if not chunk:
        break
    out += chunk
    if b"ready" in out and not stopped:
        stopped = True
        os.write(terminal, sys.stdin.buffer.read())
_, status = os.waitpid(pid, 0)
sys.stdout.buffer.write(out)
sys.exit(os.waitstatus_to_exitcode(status) % 256)
"#;

fn on_a_terminal(place: &Place, fault: &str, script: &str, typed: &[u8]) -> (Option<i32>, String) {
    use std::io::Write;
    let inner = place.command(&["sh", "-c", script]);
    let mut child = Command::new("python3")
        .args(["-c", ON_A_TERMINAL])
        .arg(program())
        .args(inner.get_args())
        .env("BRIMFUL_FAULT", fault)
        .current_dir(place.0.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(typed).unwrap();
    let output = child.wait_with_output().unwrap();
    (
        output.status.code(),
        String::from_utf8_lossy(&output.stdout).into_owned(),
    )
}

#[test]
fn on_a_terminal_faults_keep_the_exit_code_too() {
    let faults = ["emfile", "panic", "enospc"]
        .iter()
        .flat_map(|kind| {
            [
                "status_line",
                "job_control",
                "terminal",
                "streams",
                "keeper",
            ]
            .iter()
            .map(move |step| format!("{step}:{kind}"))
        })
        .collect::<Vec<_>>();
    std::thread::scope(|scope| {
        for fault in &faults {
            scope.spawn(move || {
                let place = Place::new();
                let script =
                    "test -t 1 && echo ready; read word; echo got $word; sleep 1.2; exit 3";
                let (code, shown) = on_a_terminal(&place, fault, script, b"word\n");
                assert_eq!(code, Some(3), "{fault}: {shown}");
                assert!(shown.contains("got word"), "{fault}: {shown}");
            });
        }
    });
}

#[test]
fn ctrl_c_reaches_the_training_behind_its_keeper() {
    let place = Place::new();
    let script = "trap 'echo interrupted; exit 6' INT; echo ready; while :; do sleep 0.02; done";
    let (code, shown) = on_a_terminal(&place, "", script, b"\x03");
    assert_eq!(code, Some(6), "{shown}");
    assert_eq!(shown.matches("interrupted").count(), 1, "{shown}");
}

/// An interactive shell with job control: types each word after what it waits for has been shown.
const IN_A_SHELL: &str = r#"
import os, pty, select, sys, time
pid, terminal = pty.fork()
if pid == 0:
    os.environ.update(PS1="PROMPT> ", TERM="xterm", HISTFILE="")
    os.execvp("bash", ["bash", "--norc", "-i"])
shown = b""
for step in sys.argv[1:]:
    awaited, typed = step.split("|", 1)
    end = time.monotonic() + 20
    while awaited.encode() not in shown:
        if time.monotonic() > end:
            sys.exit(f"expected {awaited!r}, found {shown!r}")
        if select.select([terminal], [], [], 0.05)[0]:
            shown += os.read(terminal, 4096)
    shown = shown.split(awaited.encode(), 1)[1]
    time.sleep(0.2)
    os.write(terminal, typed.encode().decode("unicode_escape").encode())
os.close(terminal)
os.waitpid(pid, 0)
"#;

#[test]
fn ctrl_z_fg_and_bg_work_behind_the_keeper() {
    let has_bash = Command::new("bash").arg("--version").output().is_ok();
    if !has_bash {
        eprintln!("skipped, there is no bash here");
        return;
    }
    let place = Place::new();
    // Quoted so that the shell's echo of the line is not taken for the output.
    let script = "echo re''ady; while [ ! -e stop ]; do sleep 0.02; done; echo fin''ished; exit 4";
    let start = format!(
        "PROMPT> |{} run --no-status --state-dir state -- sh -c \"{script}\"\\n",
        program().display()
    );
    let output = Command::new("python3")
        .args(["-c", IN_A_SHELL, &start])
        .args(["ready|\\x1a", "Stopped|", "PROMPT> |fg\\n"])
        .args(["run --no-status|\\x1a", "Stopped|", "PROMPT> |bg\\n"])
        .args([
            "PROMPT> |touch stop; fg\\n",
            "finished|",
            "PROMPT> |echo code=$?\\n",
        ])
        .args(["code=4|exit\\n"])
        .current_dir(place.0.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
}

#[test]
fn a_plan_that_fails_for_brimfuls_own_reasons_does_not_stop_the_job() {
    for (fault, started) in [
        ("plan:panic", true),
        ("plan:enospc", true),
        ("plan:kill", false),
    ] {
        let place = Place::new();
        std::fs::write(
            place.0.path().join("brimful.toml"),
            "[job]\ncommand = [\"sh\", \"-c\", \"echo output; exit 3\"]\n",
        )
        .unwrap();
        let output = Command::new(program())
            .args(["run", "--gpu", "none", "--state-dir"])
            .arg(place.0.path().join("state"))
            .env("BRIMFUL_FAULT", fault)
            .current_dir(place.0.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if started {
            assert_eq!(output.status.code(), Some(3), "{fault}: {said}");
            assert_eq!(output.stdout, b"output\n");
            assert!(
                said.contains("starting with the preferred value of every knob"),
                "{said}"
            );
        } else {
            assert_eq!(output.status.code(), None);
            assert_eq!(output.stdout, b"");
        }
    }
}
