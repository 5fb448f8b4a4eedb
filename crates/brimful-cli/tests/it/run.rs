//! `brimful run` from outside: what passes through, what is left behind, what is on record.

use std::fs::File;
use std::io::{BufRead, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use brimful::record::{Outcome, Record};
use brimful_testkit::TestGroup;
use serde_json::Value;
use tempfile::TempDir;

use crate::context::{Sandbox, memory_hog, program};

/// A folder for the records of one test, and the commands that use it.
struct Place(TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn command(&self, options: &[&str], command: &[&str]) -> Command {
        let mut run = Command::new(program());
        run.arg("run")
            .arg("--state-dir")
            .arg(self.0.path().join("state"))
            .args(options)
            .arg("--")
            .args(command)
            .env("NO_COLOR", "1")
            .current_dir(self.0.path())
            .stdin(Stdio::null());
        run
    }

    fn run(&self, command: &[&str]) -> Output {
        self.command(&[], command).output().unwrap()
    }

    fn record_paths(&self) -> Vec<PathBuf> {
        let runs = self.0.path().join("state/runs");
        let mut paths: Vec<PathBuf> = std::fs::read_dir(runs)
            .unwrap()
            .map(|entry| entry.unwrap().path().join("record.jsonl"))
            .collect();
        paths.sort();
        paths
    }

    fn record(&self) -> Record {
        let path = self.record_paths().pop().expect("a run");
        let record = Record::read(File::open(path).unwrap()).unwrap();
        assert_eq!(record.n_broken_lines, 0);
        record
    }

    fn outcome(&self) -> Outcome {
        let record = self.record();
        record.last_attempt().unwrap().end.clone().unwrap().outcome
    }

    fn explained(&self) -> Value {
        let output = Command::new(program())
            .args(["explain", "--json", "--state-dir"])
            .arg(self.0.path().join("state"))
            .output()
            .unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

fn kill(pid: u32, signal: &str) {
    let status = Command::new("kill")
        .args(["-s", signal, &pid.to_string()])
        .status()
        .unwrap();
    assert!(status.success());
}

/// The next line that a running command prints.
fn next_line(child: &mut Child) -> String {
    let mut line = String::new();
    let out = child.stdout.as_mut().unwrap();
    let mut byte = [0];
    while out.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
        line.push(char::from(byte[0]));
    }
    line
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < give_up, "expected within 20 s: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn is_alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.contains(") Z ") && !stat.contains(") X "))
}

#[test]
fn the_output_of_a_run_that_finishes_and_of_runs_that_fail() {
    let sandbox = Sandbox::new();
    let run = |script: &str| sandbox.told_without_measurements(&["run", "--", "sh", "-c", script]);
    insta::assert_snapshot!(run("echo trained"), @r"
    exit code: 0
    ----- stdout -----
    trained
    ----- stderr -----
    brimful: the run finished
    ");
    insta::assert_snapshot!(run("echo \"KeyError: 'x'\" >&2; exit 3"), @r"
    exit code: 3
    ----- stdout -----
    ----- stderr -----
    KeyError: 'x'

    brimful: the run exited with code 3

    An error that is not about memory: KeyError: 'x'
    not_memory (exception) · likely

    Evidence
      exit status  exit code 3
      output  `KeyError: 'x'`

    Run `brimful explain [RUN]` to see this report again
    Open [DIR]/state/runs/[RUN]/report.html to see charts of this run
    ");
    insta::assert_snapshot!(run("kill -SEGV $$"), @r"
    exit code: 139
    ----- stdout -----
    ----- stderr -----

    brimful: the run was killed by SIGSEGV

    The process crashed: segmentation fault
    not_memory (segfault) · proved

    Evidence
      exit status  killed by signal 11

    What to do, cheapest first
      1. Run with `python -X faulthandler` to print the stack of each thread

    Run `brimful explain [RUN]` to see this report again
    Open [DIR]/state/runs/[RUN]/report.html to see charts of this run
    ");
}

#[test]
fn a_quiet_run_prints_nothing_of_its_own() {
    let sandbox = Sandbox::new();
    insta::assert_snapshot!(sandbox.told(&["run", "-q", "--", "echo", "trained"]), @r"
    exit code: 0
    ----- stdout -----
    trained
    ----- stderr -----
    ");
}

#[test]
fn exit_codes_and_signals_pass_through() {
    for (script, code) in [
        ("exit 0", 0),
        ("exit 1", 1),
        ("exit 42", 42),
        ("exit 255", 255),
        ("exit 137", 137),
    ] {
        let place = Place::new();
        let output = place.run(&["sh", "-c", script]);
        assert_eq!(output.status.code(), Some(code), "{script}");
    }
    for (script, signal) in [
        ("kill -INT $$; sleep 5", 2),
        ("kill -KILL $$", 9),
        ("kill -SEGV $$", 11),
        ("kill -TERM $$", 15),
        ("kill -40 $$", 40),
    ] {
        let place = Place::new();
        let output = place.run(&["sh", "-c", script]);
        assert_eq!(output.status.signal(), Some(signal), "{script}");
        assert!(!output.status.core_dumped(), "{script}");
        // After everything was recorded and printed.
        assert_ne!(place.outcome(), Outcome::Finished, "{script}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("brimful: the run "), "{said}");
    }
}

#[test]
fn output_passes_through_byte_by_byte_and_in_order() {
    let place = Place::new();
    let script = r"i=0; while [ $i -lt 2000 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done; printf '\377\000\033[31m'";
    let mut expected = Vec::new();
    for number in 0..2000 {
        expected.extend_from_slice(format!("out {number}\nerr {number}\n").as_bytes());
    }
    expected.extend_from_slice(b"\xff\x00\x1b[31m");
    // Both into one pipe, as in `2>&1 | tee`.
    let (mut reader, writer) = std::io::pipe().unwrap();
    let mut run = place.command(&["-q"], &["sh", "-c", script]);
    let mut child = run
        .stdout(writer.try_clone().unwrap())
        .stderr(writer)
        .spawn()
        .unwrap();
    drop(run);
    let mut found = Vec::new();
    reader.read_to_end(&mut found).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(found.len(), expected.len());
    assert!(found == expected);
}

#[test]
fn a_file_is_written_directly_and_its_end_is_on_record() {
    let place = Place::new();
    let path = place.0.path().join("log");
    let mut log = File::create(&path).unwrap();
    log.write_all(b"older lines\n").unwrap();
    let status = place
        .command(
            &["-q"],
            &["sh", "-c", "echo to the file; readlink /proc/self/fd/1"],
        )
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .status()
        .unwrap();
    assert!(status.success());
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.ends_with("/log\n"), "{text}");
    let record = place.record();
    let tail = &record.last_attempt().unwrap().output[0].tail;
    assert!(
        tail.contains("to the file") && !tail.contains("older lines"),
        "{tail}"
    );
}

#[test]
fn nobody_reading_is_told_as_without_us() {
    let place = Place::new();
    let mut child = place
        .command(&["-q"], &["yes"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    assert_eq!(next_line(&mut child), "y");
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().signal(), Some(13));
}

#[test]
fn a_signal_is_passed_on_once() {
    let place = Place::new();
    let script = r#"
import signal, sys, time
def caught(number, frame):
    print("caught", number, flush=True)
signal.signal(signal.SIGTERM, caught)
signal.signal(signal.SIGUSR1, caught)
print("ready", flush=True)
for _ in range(100):
    time.sleep(0.02)
print("end", flush=True)
"#;
    let mut child = place
        .command(&["-q"], &["python3", "-c", script])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    assert_eq!(next_line(&mut child), "ready");
    kill(child.id(), "TERM");
    assert_eq!(next_line(&mut child), "caught 15");
    kill(child.id(), "USR1");
    assert_eq!(next_line(&mut child), "caught 10");
    assert_eq!(next_line(&mut child), "end");
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_stop_by_the_user_is_no_death() {
    let place = Place::new();
    let mut child = place
        .command(&[], &["sh", "-c", "echo ready; exec sleep 60"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    assert_eq!(next_line(&mut child), "ready");
    kill(child.id(), "INT");
    assert_eq!(child.wait().unwrap().signal(), Some(2));
    assert_eq!(place.outcome(), Outcome::StoppedByUser { signal: 2 });
    assert_eq!(place.explained()["verdict"]["cause"], "not_memory");
}

#[test]
fn nothing_is_left_running() {
    let place = Place::new();
    // One that was set apart from its parent's group and session, and one that does not listen.
    let script = "setsid sleep 300 & echo $!; (trap '' TERM; sleep 300) & echo $!; exit 0";
    let output = place.run(&["sh", "-c", script]);
    assert!(output.status.success());
    let pids: Vec<u32> = output
        .stdout
        .lines()
        .map(|line| line.unwrap().parse().unwrap())
        .collect();
    assert_eq!(pids.len(), 2);
    for pid in pids {
        assert!(!is_alive(pid), "{pid} is still there");
    }
    let record = place.record();
    let attempt = record.last_attempt().unwrap();
    assert!(attempt.end.as_ref().unwrap().n_left_behind >= 2);
    if let Some(group) = &attempt.start.cgroup {
        for root in ["/sys/fs/cgroup", "/sys/fs/cgroup/memory"] {
            assert!(!PathBuf::from(format!("{root}{group}")).exists(), "{group}");
        }
    }
    let left: Vec<_> = std::fs::read_dir(place.record_paths()[0].parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["record.jsonl"]);
}

#[test]
fn a_kill_by_the_kernel_is_counted_and_explained() {
    let group = match TestGroup::new() {
        Ok(group) => group,
        Err(reason) => {
            eprintln!("skipped, no control group can be made here: {}", reason.0);
            return;
        }
    };
    group.limit(192 << 20).unwrap();
    let place = Place::new();
    let output = group
        .command(&program())
        .args(["run", "--state-dir"])
        .arg(place.0.path().join("state"))
        .arg("--")
        .arg(memory_hog())
        .arg("touch")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!(output.status.signal(), Some(9));
    let record = place.record();
    let end = record.last_attempt().unwrap().end.clone().unwrap();
    assert_eq!(end.outcome, Outcome::Killed { signal: 9 });
    assert_eq!(end.kernel.oom_kills, Some(1));
    let verdict = &place.explained()["verdict"];
    assert_eq!(verdict["cause"], "host_oom_kill");
    assert_eq!(verdict["confidence"], "proved");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("192 MiB"), "{said}");
}

#[test]
fn killed_itself_the_training_goes_on_and_the_next_start_tells() {
    let place = Place::new();
    let mark = place.0.path().join("done");
    let script = format!(
        "echo $$; i=0; while [ $i -lt 20 ]; do echo line $i; sleep 0.05; i=$((i+1)); done; touch {}",
        mark.display()
    );
    let mut child = place
        .command(&["-q"], &["sh", "-c", &script])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let training: u32 = next_line(&mut child).parse().unwrap();
    assert_eq!(next_line(&mut child), "line 0");
    kill(child.id(), "KILL");
    child.wait().unwrap();
    assert!(is_alive(training));
    // Its lines still come.
    let mut rest = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut rest)
        .unwrap();
    assert!(rest.ends_with("line 19\n"), "{rest}");
    wait_until("the training's end", || {
        mark.exists() && !is_alive(training)
    });

    let output = place.run(&["true"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("the previous run in this directory was interrupted"),
        "{said}"
    );
    let output = place.run(&["true"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!said.contains("was interrupted"), "reported twice: {said}");
}

#[test]
fn without_a_place_for_the_record_the_training_runs() {
    let place = Place::new();
    let file = place.0.path().join("a-file");
    std::fs::write(&file, "").unwrap();
    let output = Command::new(program())
        .args(["run", "--state-dir"])
        .arg(&file)
        .args(["--", "echo", "trained"])
        .output()
        .unwrap();
    assert!(output.status.success());
    assert_eq!(output.stdout, b"trained\n");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said.matches("no run record").count(), 1, "{said}");
}

#[test]
fn figures_for_prometheus_are_in_a_file() {
    let place = Place::new();
    let path = place.0.path().join("brimful.prom");
    let status = place
        .command(
            &["-q", "--metrics-file", path.to_str().unwrap()],
            &["sleep", "0.5"],
        )
        .status()
        .unwrap();
    assert!(status.success());
    let text = std::fs::read_to_string(path).unwrap();
    assert!(
        text.contains("# TYPE brimful_host_memory_used_bytes gauge\n"),
        "{text}"
    );
}

#[test]
fn under_nohup_a_hangup_stays_ignored() {
    let place = Place::new();
    let mut run = Command::new("sh");
    run.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]);
    let mut inner = place.command(&["-q"], &["sh", "-c", "kill -HUP $$; echo alive"]);
    inner.process_group(0);
    run.arg(program());
    run.args(inner.get_args());
    let output = run.output().unwrap();
    assert_eq!(output.stdout, b"alive\n");
}

#[test]
fn runs_are_listed_newest_first() {
    let place = Place::new();
    place.run(&["true"]);
    place.run(&["sh", "-c", "exit 3"]);
    let output = Command::new(program())
        .args(["runs", "--json", "--state-dir"])
        .arg(place.0.path().join("state"))
        .output()
        .unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let states: Vec<&str> = document["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["state"].as_str().unwrap())
        .collect();
    assert_eq!(states.len(), 2);
    assert!(states.contains(&"finished") && states.contains(&"failed"));
}

#[test]
fn a_pasted_log_is_explained() {
    let mut child = Command::new(program())
        .args(["explain", "--json", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"RuntimeError: DataLoader worker (pid 99) is killed by signal: Killed. \n")
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["verdict"]["cause"], "dataloader_worker_killed_oom");
    assert!(document["schema_version"].is_u64());
}
