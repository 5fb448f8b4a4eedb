//! Several attempts in one run, from outside: `examples/ladder.rs` runs one script after the other.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use brimful::explain::Cause;
use brimful::plan::Observed;
use brimful::record::{Outcome, Record};
use brimful_testkit::TestGroup;
use tempfile::TempDir;

const LIMIT: u64 = 160 << 20;
/// Twice of what the group may have.
const TOO_MUCH: &str = "python3 -c 'held = bytearray(320 << 20)'";

/// The example lies beside the test's own program.
fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.ancestors().nth(2).unwrap().join("examples/ladder");
    assert!(
        path.exists(),
        "expected {}, found nothing; build it with `cargo build -p brimful-supervise --examples`",
        path.display()
    );
    path
}

/// A directory for the records, and a group with a limit. `None` and a word about it where there are no groups.
struct Place {
    directory: TempDir,
    group: TestGroup,
}

impl Place {
    fn new() -> Option<Place> {
        let group = match TestGroup::new() {
            Ok(group) => group,
            Err(reason) => {
                println!("skipped, no control group can be made here: {}", reason.0);
                return None;
            }
        };
        group.limit(LIMIT).unwrap();
        Some(Place {
            directory: tempfile::tempdir().unwrap(),
            group,
        })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, scripts: &[&str]) -> Command {
        let mut command = self.group.command(&program());
        command
            .arg(self.at("state"))
            .args(scripts)
            .current_dir(self.directory.path())
            .stdin(Stdio::null());
        command
    }

    fn run(&self, scripts: &[&str]) -> Output {
        self.command(scripts).output().unwrap()
    }

    fn run_directory(&self) -> PathBuf {
        let mut runs: Vec<PathBuf> = std::fs::read_dir(self.at("state/runs"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        assert_eq!(runs.len(), 1, "{runs:?}");
        runs.remove(0)
    }

    fn record(&self) -> Record {
        let file = File::open(self.run_directory().join("record.jsonl")).unwrap();
        let record = Record::read(file).unwrap();
        assert_eq!(record.n_broken_lines, 0);
        record
    }

    /// Nothing is left: no process, no group, no file beside the record.
    fn assert_clean(&self) {
        assert_eq!(self.group.groups_below(), Vec::<PathBuf>::new());
        // The keeper was told to go, and on a busy machine goes a moment later.
        let give_up = Instant::now() + Duration::from_secs(5);
        while !self.group.processes().is_empty() && Instant::now() < give_up {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(self.group.processes(), Vec::<u32>::new());
        let left: Vec<_> = std::fs::read_dir(self.run_directory())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(left, ["record.jsonl"]);
    }
}

fn outcomes(record: &Record) -> Vec<Outcome> {
    record
        .attempts
        .iter()
        .map(|attempt| attempt.end.clone().unwrap().outcome)
        .collect()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn kill(pid: u32, signal: &str) {
    let status = Command::new("kill")
        .args(["-s", signal, &pid.to_string()])
        .status()
        .unwrap();
    assert!(status.success());
}

/// Waits for a line of the command's output.
fn wait_for(child: &mut Child, expected: &str) {
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    let found = lines.any(|line| line.unwrap() == expected);
    assert!(found, "expected a line {expected:?}");
}

#[test]
fn killed_by_the_kernel_it_comes_back_and_finishes() {
    let Some(place) = Place::new() else { return };
    // Something of the first attempt that does not listen, in a session of its own.
    let first =
        format!("(trap '' TERM; exec setsid sleep 300) & echo first $RUNG; exec {TOO_MUCH}");
    let output = place.run(&[&first, "echo second $RUNG"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!(output.stdout, b"first 1\nsecond 2\n");
    let record = place.record();
    assert_eq!(
        outcomes(&record),
        [Outcome::Killed { signal: 9 }, Outcome::Finished]
    );
    let [first, second] = &record.attempts[..] else {
        panic!("{}", record.attempts.len());
    };
    let (first_end, second_end) = (first.end.as_ref().unwrap(), second.end.as_ref().unwrap());
    // Each attempt has counters, a clock and an output of its own.
    assert_eq!(first_end.kernel.oom_kills, Some(1));
    assert_eq!(second_end.kernel.oom_kills, Some(0));
    assert!(first_end.n_left_behind >= 1);
    assert_ne!(first.start.cgroup, second.start.cgroup);
    assert!(second_end.at_ms < first_end.at_ms + 5000);
    assert_eq!(second.output[0].tail, "second 2\n");
    assert_eq!(first.verdict.as_ref().unwrap().cause, Cause::HostOomKill);
    // And says what is different about it.
    assert_eq!((first.start.number, second.start.number), (1, 2));
    assert_eq!(second.start.command, ["sh", "-c", "echo second $RUNG"]);
    assert_eq!(
        second.start.settings.as_ref().unwrap().count("rung"),
        Some(2)
    );
    assert_eq!(second.start.changed[0].knob, "rung");
    assert_eq!(second.start.why.as_deref(), Some("script 2"));
    let seen = Observed::of(first);
    assert_eq!(seen.host_limit.map(brimful::units::Bytes::get), Some(LIMIT));
    assert!(seen.host_used.unwrap().get() > LIMIT / 4, "{seen:?}");
    assert!(said(&output).contains("attempt 2 after: the process was killed by the kernel"));
    place.assert_clean();
}

#[test]
fn what_is_not_memory_is_not_tried_again() {
    let Some(place) = Place::new() else { return };
    let output = place.run(&["exit 3", "echo never"]);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(output.stdout, b"");
    assert_eq!(place.record().attempts.len(), 1);
    place.assert_clean();
}

#[test]
fn at_its_end_the_exit_code_is_that_of_the_last_attempt() {
    let Some(place) = Place::new() else { return };
    let output = place.run(&[&format!("exec {TOO_MUCH}"), &format!("{TOO_MUCH}; exit 41")]);
    assert_eq!(output.status.code(), Some(41));
    assert!(said(&output).contains("at its end after 2 attempts"));
    assert_eq!(place.record().attempts.len(), 2);
    place.assert_clean();
}

#[test]
fn an_attempt_that_cannot_be_started_passes_on_the_code_before() {
    let Some(place) = Place::new() else { return };
    let output = place.run(&[&format!("exec {TOO_MUCH}"), ""]);
    assert_eq!(output.status.code(), Some(137));
    assert!(said(&output).contains("attempt 2 could not be started"));
    let record = place.record();
    assert_eq!(outcomes(&record), [Outcome::Killed { signal: 9 }]);
    place.assert_clean();
}

#[test]
fn what_the_user_ends_stays_ended() {
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let Some(place) = Place::new() else { return };
        let mut child = place
            .command(&["echo ready; exec sleep 60", "echo never"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        wait_for(&mut child, "ready");
        kill(child.id(), signal);
        assert_eq!(child.wait().unwrap().code(), Some(code));
        assert_eq!(place.record().attempts.len(), 1);
        place.assert_clean();
    }
}

#[test]
fn who_dies_of_memory_after_a_signal_is_not_brought_back() {
    let Some(place) = Place::new() else { return };
    // It saves what it has when told to end, and that is too much.
    let script = format!("trap 'exec {TOO_MUCH_IN_A_TRAP}' TERM; echo ready; sleep 60 & wait");
    let mut child = place
        .command(&[&script, "echo never"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for(&mut child, "ready");
    kill(child.id(), "TERM");
    assert_eq!(child.wait().unwrap().code(), Some(137));
    let record = place.record();
    assert_eq!(outcomes(&record), [Outcome::Killed { signal: 9 }]);
    assert_eq!(
        record.attempts[0].verdict.as_ref().unwrap().cause,
        Cause::HostOomKill
    );
    place.assert_clean();
}

#[test]
fn a_signal_between_two_attempts_ends_the_run() {
    let Some(place) = Place::new() else { return };
    let mut child = place
        .command(&[&format!("exec {TOO_MUCH}"), "echo never"])
        .env("LADDER_PAUSE_MS", "1000")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "ladder: choosing"));
    kill(child.id(), "INT");
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert_eq!(child.wait().unwrap().code(), Some(137));
    assert!(
        rest.iter().any(|line| line.contains("signal 2 came")),
        "{rest:?}"
    );
    assert_eq!(place.record().attempts.len(), 1);
    place.assert_clean();
}

/// On a terminal of its own: types `hello` and prints what comes back.
const ON_A_TERMINAL: &str = r#"
import os, pty, select, sys, time
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
os.write(terminal, b"hello\n")
out, end = b"", time.monotonic() + 20
while b"got hello" not in out and time.monotonic() < end:
    if select.select([terminal], [], [], 0.1)[0]:
        try:
            out += os.read(terminal, 4096)
        except OSError:
            break
if b"got hello" not in out:
    os.killpg(os.tcgetpgrp(terminal), 9)
os.waitpid(pid, 0)
print(out.decode())
"#;

#[test]
fn every_attempt_has_the_terminal_from_its_first_moment() {
    let Some(place) = Place::new() else { return };
    // Whoever reads from a terminal that somebody else has is stopped.
    let output = place
        .group
        .command("python3".as_ref())
        .args(["-c", ON_A_TERMINAL])
        .arg(program())
        .arg(place.at("state"))
        .args([&format!("exec {TOO_MUCH}"), "read word; echo got $word"])
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(shown.contains("got hello"), "{shown}");
    assert_eq!(place.record().attempts.len(), 2);
}

const TOO_MUCH_IN_A_TRAP: &str = r#"python3 -c "held = bytearray(320 << 20)""#;

#[test]
fn killed_itself_in_the_second_attempt_the_next_start_tells() {
    let Some(place) = Place::new() else { return };
    let second = "echo second; sleep 1; touch done";
    let mut child = place
        .command(&[&format!("exec {TOO_MUCH}"), second])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for(&mut child, "second");
    kill(child.id(), "KILL");
    child.wait().unwrap();
    let give_up = Instant::now() + Duration::from_secs(20);
    while !place.at("done").exists() || !place.group.processes().is_empty() {
        assert!(Instant::now() < give_up, "expected the training to go on");
        std::thread::sleep(Duration::from_millis(20));
    }
    let record = place.record();
    assert_eq!(record.attempts.len(), 2);
    assert!(!record.has_end());

    let output = place.run(&["true"]);
    assert!(said(&output).contains("cut off"), "{}", said(&output));
    let output = place.run(&["true"]);
    assert!(!said(&output).contains("cut off"), "{}", said(&output));
}
