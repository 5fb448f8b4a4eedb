//! A supervised command beside a bare one: how its shell sees its end, and what it has from its caller. `cargo xtask
//! never-worse` compares much more.

use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::context::{program, program_for_all_users};

struct Place(TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// A shell script in which `$BRIMFUL` is what stands before a supervised command.
    fn script(&self, text: &str) -> Command {
        let run = format!(
            "{} run -q --state-dir {} --",
            program().display(),
            self.path().join("state").display()
        );
        let mut command = Command::new("bash");
        command
            .args(["-c", text])
            .env("BRIMFUL", run)
            .current_dir(self.path())
            .stdin(Stdio::null());
        command
    }

    fn run(&self, text: &str) -> Output {
        self.script(text).output().unwrap()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Types Ctrl-C once `ready` was shown; prints what was shown until the end.
const INTERRUPTED: &str = r#"
import os, pty, sys
pid, terminal = pty.fork()
if pid == 0:
    os.execvp("bash", ["bash", "-c", sys.argv[1]])
shown, typed = b"", False
while True:
    try:
        chunk = os.read(terminal, 4096)
    except OSError:
        break
    if not chunk:
        break
    shown += chunk
    if b"ready" in shown and not typed:
        typed = True
        os.write(terminal, b"\x03")
print(shown.decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"#;

#[test]
fn ctrl_c_ends_a_loop_of_the_shell() {
    let place = Place::new();
    let script = "for n in 1 2 3; do $BRIMFUL sh -c 'echo ready; sleep 5'; echo round $n; done";
    let inner = place.script(script);
    let mut command = Command::new("python3");
    command.args(["-c", INTERRUPTED, script]);
    for (name, value) in inner.get_envs() {
        command.env(name, value.unwrap());
    }
    let output = command.current_dir(place.path()).output().unwrap();
    let shown = text(&output.stdout);
    assert_eq!(shown.matches("ready").count(), 1, "{shown}");
    assert!(!shown.contains("round"), "{shown}");
    assert!(shown.ends_with("-2\n"), "{shown}");
}

#[test]
fn a_shell_shows_128_and_the_signal() {
    let place = Place::new();
    let output = place.run("$BRIMFUL sh -c 'kill -TERM $$'; echo $?");
    assert_eq!(text(&output.stdout), "143\n");
    let output = place.run("set -e; $BRIMFUL sh -c 'kill -KILL $$'; echo never");
    assert_eq!(text(&output.stdout), "");
    assert_eq!(output.status.code(), Some(137));
}

#[test]
fn a_command_of_a_script_leads_no_process_group() {
    let place = Place::new();
    let output = place.run("$BRIMFUL python3 -c 'import os; os.setsid(); print(\"done\")'");
    assert_eq!(text(&output.stdout), "done\n", "{}", text(&output.stderr));
    let group = "$BRIMFUL sh -c 'cut -d \" \" -f 5 /proc/$$/stat'; cut -d ' ' -f 5 /proc/$$/stat";
    let output = place.run(group);
    let found = text(&output.stdout);
    let groups: Vec<&str> = found.lines().collect();
    assert_eq!(groups.len(), 2, "{found}");
    assert_eq!(groups[0], groups[1]);
}

#[test]
fn a_command_that_leads_a_process_group_still_does() {
    let place = Place::new();
    let script = "exec $BRIMFUL python3 -c 'import os; print(os.getpgrp() == os.getpid())'";
    let output = place.script(script).process_group(0).output().unwrap();
    assert_eq!(text(&output.stdout), "True\n", "{}", text(&output.stderr));
}

const COUNTS: &str = r#"
import signal, time
n = []
signal.signal(signal.SIGTERM, lambda *_: n.append(1))
print("ready", flush=True)
time.sleep(0.6)
print(len(n))
"#;

#[test]
fn a_process_group_of_another_namespace_is_in_nobodys_way() {
    let place = Place::new();
    let namespace = "unshare --pid --fork";
    if !place.run(&format!("{namespace} true")).status.success() {
        eprintln!("skipped: no PID namespace here");
        return;
    }
    let done = place.run(&format!("{namespace} $BRIMFUL sh -c 'echo done; exit 7'"));
    let said = text(&done.stderr);
    assert_eq!(text(&done.stdout), "done\n", "{said}");
    assert_eq!(done.status.code(), Some(7));
    assert!(!said.contains("unsupervised"), "{said}");
}

#[test]
fn a_signal_to_the_process_group_comes_once() {
    let place = Place::new();
    std::fs::write(place.path().join("counts.py"), COUNTS).unwrap();
    let script = "trap : TERM; $BRIMFUL python3 counts.py > out & \
                  until grep -q ready out; do sleep 0.01; done; sleep 0.05; kill -TERM 0; wait; wait; cat out";
    let output = place.script(script).process_group(0).output().unwrap();
    assert_eq!(
        text(&output.stdout),
        "ready\n1\n",
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn ignored_and_blocked_signals_are_those_of_the_caller() {
    const SHOWS: &str = "$BRIMFUL grep -E 'Sig(Blk|Ign)' /proc/self/status; \
                         grep -E 'Sig(Blk|Ign)' /proc/self/status";
    const SETS: &str = r#"
import os, signal, sys
for name in ("SIGPIPE", "SIGXFSZ"):
    signal.signal(getattr(signal, name), signal.SIG_DFL)
for name in sys.argv[1].split():
    signal.signal(getattr(signal, name), signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_SETMASK, [getattr(signal, name) for name in sys.argv[2].split()])
os.execvp("sh", ["sh", "-c", sys.argv[3]])
"#;
    for (ignored, blocked) in [
        ("", ""),
        ("SIGPIPE SIGHUP SIGCHLD", "SIGUSR1 SIGTERM SIGTTOU"),
        ("SIGTTOU SIGWINCH SIGABRT", "SIGCHLD SIGWINCH SIGINT"),
    ] {
        let place = Place::new();
        let inner = place.script("");
        let mut command = Command::new("python3");
        command.args(["-c", SETS, ignored, blocked, SHOWS]);
        for (name, value) in inner.get_envs() {
            command.env(name, value.unwrap());
        }
        let output = command.current_dir(place.path()).output().unwrap();
        let found = text(&output.stdout);
        let lines: Vec<&str> = found.lines().collect();
        assert_eq!(lines.len(), 4, "{found}{}", text(&output.stderr));
        assert_eq!(
            lines[..2],
            lines[2..],
            "ignored {ignored}, blocked {blocked}"
        );
    }
}

/// Reads a pipe whose other end a supervised command closes at once, and then goes on.
const READS_A_PIPE: &str = r#"
import os, subprocess, sys
reads, writes = os.pipe()
closes = "import os, sys, time; os.close(int(sys.argv[1])); time.sleep(20)"
words = [*sys.argv[1].split(), sys.executable, "-c", closes, str(writes)]
run = subprocess.Popen(words, pass_fds=[writes])
os.close(writes)
print(os.read(reads, 1), run.poll())
run.terminate()
print(run.wait())
"#;

#[test]
fn nobody_waits_for_a_descriptor_that_the_command_has_closed() {
    let place = Place::new();
    let output = place
        .script("exec python3 -c \"$READS_A_PIPE\" \"$BRIMFUL\"")
        .env("READS_A_PIPE", READS_A_PIPE)
        .output()
        .unwrap();
    assert_eq!(
        text(&output.stdout),
        "b'' None\n-15\n",
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn no_home_is_made() {
    let place = Place::new();
    let home = place.path().join("missing");
    let output = Command::new(program())
        .args(["run", "--", "true"])
        .env("HOME", &home)
        .env_remove("XDG_STATE_HOME")
        .env_remove("BRIMFUL_STATE_DIR")
        .output()
        .unwrap();
    assert!(output.status.success());
    assert!(!home.exists());
    let said = text(&output.stderr);
    assert!(said.contains("no run record: HOME does not name"), "{said}");
}

/// Resizes the terminal of brimful once `ready` was shown.
const RESIZED: &str = r#"
import fcntl, os, pty, struct, sys, termios
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
shown, resized = b"", False
while True:
    try:
        chunk = os.read(terminal, 4096)
    except OSError:
        break
    if not chunk:
        break
    shown += chunk
    if b"ready" in shown and not resized:
        resized = True
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
print(shown.decode())
"#;

#[test]
fn a_new_window_size_is_there_when_it_is_told() {
    const ASKS: &str = r#"
import os, signal, time
seen = []
signal.signal(signal.SIGWINCH, lambda *_: seen.append(tuple(os.get_terminal_size(1))))
print("ready", flush=True)
time.sleep(0.5)
print("last", seen[-1:])
"#;
    let place = Place::new();
    let output = Command::new("python3")
        .args(["-c", RESIZED])
        .arg(program())
        .args(["run", "-q", "--no-status", "--state-dir", "state", "--"])
        .args(["python3", "-c", ASKS])
        .current_dir(place.path())
        .output()
        .unwrap();
    let shown = text(&output.stdout);
    assert!(
        shown.contains("last [(100, 40)]"),
        "{shown}{}",
        text(&output.stderr)
    );
}

#[test]
fn a_log_is_read_from_a_pipe() {
    let place = Place::new();
    let script = format!(
        "{} explain <(echo 'torch.OutOfMemoryError: CUDA out of memory')",
        program().display()
    );
    let output = place.run(&script);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(
        text(&output.stdout).contains("cuda_oom"),
        "{}",
        text(&output.stdout)
    );
}

/// Where nobody may make a cgroup, such as a user in the root cgroup.
#[test]
fn the_peak_is_that_of_the_job_and_not_of_the_machine() {
    const NOBODY: u32 = 65534;
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        eprintln!("skipped, only root can become another user");
        return;
    }
    let place = Place::new();
    let copy = program_for_all_users(place.path());
    let work = place.path().join("work");
    std::fs::create_dir(&work).unwrap();
    chown(&work, Some(NOBODY), Some(NOBODY)).unwrap();
    let script = "held = b'x' * (100 << 20); import time; time.sleep(0.8)";
    let output = Command::new(copy)
        .args(["run", "--", "/usr/bin/python3", "-c", script])
        .uid(NOBODY)
        .gid(NOBODY)
        .env("HOME", &work)
        .current_dir(&work)
        .output()
        .unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    let peak = said.split("peak host memory ").nth(1).unwrap_or_default();
    let mut words = peak.split(' ');
    let size: f64 = words.next().unwrap().parse().unwrap();
    assert_eq!(words.next(), Some("MiB"), "{said}");
    assert!((90.0..200.0).contains(&size), "{said}");
}

#[test]
fn the_core_dump_is_the_commands_alone() {
    let place = Place::new();
    let output = place.run("ulimit -c unlimited; exec $BRIMFUL sh -c 'kill -SEGV $$'");
    assert_eq!(output.status.signal(), Some(11));
    assert!(!output.status.core_dumped());
}
