//! The start of `brimful run` under faults: whatever fails, the training starts once and its exit code is kept.
//!
//! Faults are injected at every step (`BRIMFUL_FAULT`, in builds with debug assertions), and made for real with limits of
//! the process and with mounts.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use brimful_supervise::StartStep;
use brimful_supervise::fault::{KINDS, MARKS, VARIABLE};
use tempfile::TempDir;

use crate::context::{program, program_for_all_users, shell_status};

/// How trainings end, and the exit code that a shell would see.
const ENDS: [(&str, i32, &str); 4] = [
    ("exit 0", 0, "finished"),
    ("exit 1", 1, "exited with code 1"),
    ("exit 3", 3, "exited with code 3"),
    ("kill -TERM $$", 143, "was killed by SIGTERM"),
];

/// A directory with a state directory in it, and a training that prints one line per start.
struct Place(TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The arguments of brimful.
    fn words(&self, end: &str) -> Vec<String> {
        // Without a redirection, for which a shell needs another descriptor.
        let script = format!("echo output; {end}");
        let state = self.at("state").display().to_string();
        let metrics = self.at("m.prom").display().to_string();
        [
            "run",
            "-q",
            "--state-dir",
            &state,
            "--metrics-file",
            &metrics,
            "--",
            "sh",
            "-c",
            &script,
        ]
        .map(str::to_owned)
        .to_vec()
    }

    fn command(&self, end: &str) -> Command {
        let mut command = Command::new(program());
        command.args(self.words(end));
        self.prepared(command)
    }

    /// brimful behind another program that sets a limit or hides something.
    fn command_behind(&self, wrapper: &[&str], program: &Path, end: &str) -> Command {
        let mut command = Command::new(wrapper[0]);
        command
            .args(&wrapper[1..])
            .arg(program)
            .args(self.words(end));
        self.prepared(command)
    }

    fn prepared(&self, mut command: Command) -> Command {
        command
            .current_dir(self.0.path())
            .env("NO_COLOR", "1")
            // To name the frames of a debug build takes longer than all the rest.
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::null());
        command
    }

    /// What the next start here tells of the last one.
    fn told_next(&self) -> String {
        let output = self
            .prepared(Command::new(program()))
            .args(["run", "--state-dir"])
            .arg(self.at("state"))
            .args(["--", "true"])
            .output()
            .unwrap();
        text(&output.stderr)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What is wrong with a run whose exit code must be this one.
fn problem(output: &Output, code: i32) -> Option<String> {
    let found = shell_status(output.status);
    let mut wrong = String::new();
    if found != code {
        let _ = write!(wrong, "expected exit code {code}, found {found}; ");
    }
    if output.stdout != b"output\n" {
        let _ = write!(wrong, "printed {:?}; ", text(&output.stdout));
    }
    (!wrong.is_empty()).then(|| format!("{wrong}said {:?}", text(&output.stderr)))
}

/// What is wrong with a run whose brimful was killed: nothing was started, or the next start tells the real end.
fn problem_after_kill(
    place: &Place,
    output: &Output,
    (_, _, end): (&str, i32, &str),
) -> Option<String> {
    use std::os::unix::process::ExitStatusExt;
    if output.status.signal() != Some(9) {
        return Some(format!("expected SIGKILL, found {}", output.status));
    }
    // All of its output has come, so the training has ended; the keeper may have a few calls to make.
    let give_up = Instant::now() + Duration::from_secs(10);
    let mut told = place.told_next();
    while told.contains("is still running") && Instant::now() < give_up {
        std::thread::sleep(Duration::from_millis(10));
        told = place.told_next();
    }
    let is_right = match output.stdout.as_slice() {
        b"" => !told.contains("continued") && !told.contains("at the same time"),
        b"output\n" => told.contains(&format!("the command continued and {end}")),
        _ => false,
    };
    (!is_right).then(|| format!("printed {:?}, told {told:?}", text(&output.stdout)))
}

/// Runs cases on a few threads; returns how many there were, and what was wrong.
fn all_of<T: Sync>(
    cases: &[T],
    check: impl Fn(&T) -> Option<String> + Sync,
) -> (usize, Vec<String>) {
    let next = AtomicUsize::new(0);
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    wrong.lock().unwrap().extend(check(case));
                }
            });
        }
    });
    (cases.len(), wrong.into_inner().unwrap())
}

/// Runs to the end, but not for ever.
fn output_of(command: &mut Command) -> Result<Output, String> {
    use std::io::Read;
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    let (mut out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let (sender, received) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let _ = out.read_to_end(&mut stdout);
        let _ = err.read_to_end(&mut stderr);
        let _ = sender.send((stdout, stderr));
    });
    let received = received.recv_timeout(Duration::from_secs(40));
    if received.is_err() {
        let _ = child.kill();
    }
    let status = child.wait().unwrap();
    let (stdout, stderr) = received.map_err(|_| "its output did not end within 40 s")?;
    Ok(Output {
        status,
        stdout,
        stderr,
    })
}

/// Every kind of fault at every step once, and a quarter of them from that step on, as where a limit is reached: all
/// four ends together have all of them.
fn check_matrix(end_idx: usize) {
    let end = ENDS[end_idx];
    if !cfg!(debug_assertions) {
        eprintln!("skipped, this build injects no faults");
        return;
    }
    let mut cases = Vec::new();
    for (step_idx, step) in StartStep::ALL.into_iter().enumerate() {
        for (kind_idx, kind) in KINDS.into_iter().enumerate() {
            // Steps that are taken only after another one has failed.
            let before = match step {
                StartStep::Scope => "cgroup:eagain;",
                StartStep::Launch => "keeper:eagain;",
                _ => "",
            };
            cases.push((step, format!("{before}{}:{kind}", step.name()), kind));
            if (step_idx + kind_idx) % ENDS.len() == end_idx {
                cases.push((step, format!("{before}{}+:{kind}", step.name()), kind));
            }
        }
    }
    let began = Instant::now();
    let n_reached = AtomicUsize::new(0);
    let (n_cases, wrong) = all_of(&cases, |(step, fault, kind)| {
        let place = Place::new();
        let marks = place.at("marks");
        std::fs::create_dir(&marks).unwrap();
        let of_keeper = matches!(step, StartStep::KeeperLaunch | StartStep::KeeperWatch);
        // Steps that are taken while it runs.
        let stays = match step {
            StartStep::FirstSample | StartStep::Metrics => format!(
                "i=0; while [ ! -e marks/{} ] && [ $i -lt 500 ]; do sleep 0.02; i=$((i+1)); done; ",
                step.name()
            ),
            _ => String::new(),
        };
        let mut command = place.command(&format!("{stays}{}", end.0));
        command.env(VARIABLE, fault).env(MARKS, &marks);
        let problem = match output_of(&mut command) {
            Err(problem) => Some(problem),
            // A step that is not taken, or a fault that hit the keeper: nothing was killed.
            Ok(output) if *kind == "kill" && !of_keeper && was_killed(&output) => {
                problem_after_kill(&place, &output, end)
            }
            Ok(output) => problem(&output, end.1),
        };
        let reached = marks.join(step.name()).exists();
        n_reached.fetch_add(usize::from(reached), Ordering::Relaxed);
        let missed = !reached && !may_be_left_out(*step);
        let problem = problem.or(missed.then(|| "the step was not taken".into()));
        problem.map(|problem| format!("{fault}, {}: {problem}", end.0))
    });
    eprintln!(
        "start-up faults with `{}`: {n_cases} cases ({} of them reached; {} steps, {} kinds), {} right, in {:.1} s",
        end.0,
        n_reached.into_inner(),
        StartStep::ALL.len(),
        KINDS.len(),
        n_cases - wrong.len(),
        began.elapsed().as_secs_f64()
    );
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

/// Steps that need a job file, a terminal or systemd. `keeper.rs` tests the first two.
fn may_be_left_out(step: StartStep) -> bool {
    matches!(
        step,
        StartStep::Plan | StartStep::StatusLine | StartStep::ScopeGroup
    )
}

/// By the fault, not as the training, which dies of another signal.
fn was_killed(output: &Output) -> bool {
    use std::os::unix::process::ExitStatusExt;
    output.status.signal() == Some(9)
}

#[test]
fn every_fault_at_every_step_keeps_exit_code_0() {
    check_matrix(0);
}

#[test]
fn every_fault_at_every_step_keeps_exit_code_1() {
    check_matrix(1);
}

#[test]
fn every_fault_at_every_step_keeps_exit_code_3() {
    check_matrix(2);
}

#[test]
fn every_fault_at_every_step_keeps_a_signal() {
    check_matrix(3);
}

#[test]
fn an_unsupervised_training_is_said_in_one_line_and_leaves_no_record() {
    for (fault, why) in [
        ("signals:emfile", "Too many open files (os error 24)"),
        ("signals:panic", "a bug in brimful: injected"),
        (
            "keeper+:eagain",
            "Resource temporarily unavailable (os error 11)",
        ),
        ("cgroup:abort", "brimful aborted (out of memory, or a bug)"),
    ] {
        let place = Place::new();
        let mut command = place.command("exit 3");
        let output = output_of(command.env(VARIABLE, fault)).unwrap();
        assert_eq!(problem(&output, 3), None);
        let said = text(&output.stderr);
        let line = format!("brimful: running unsupervised: {why}\n");
        assert!(said.ends_with(&line), "{fault}: {said}");
        assert_eq!(
            said.matches("brimful: running").count(),
            1,
            "{fault}: {said}"
        );
        let told = place.told_next();
        assert!(!told.contains("was interrupted"), "{fault}: {told}");
    }
}

/// Runs brimful behind `wrapper` with each end, if the wrapper works with these arguments at all.
fn check_real(cases: &[Vec<String>], what: &str) {
    let cases: Vec<_> = cases
        .iter()
        .enumerate()
        .map(|(idx, wrapper)| (wrapper, ENDS[idx % ENDS.len()]))
        .collect();
    let programs = tempfile::tempdir().unwrap();
    let program = program_for_all_users(programs.path());
    let n_able = AtomicUsize::new(0);
    let (n_cases, wrong) = all_of(&cases, |(wrapper, end)| {
        let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
        // Where brimful itself cannot be loaded, or the command fails by itself, nothing can be kept.
        let loads = |words: &[&str]| {
            Command::new(wrapper[0])
                .args(&wrapper[1..])
                .args(words)
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .output()
                .is_ok_and(|output| output.status.success() && !output.stdout.is_empty())
        };
        if !loads(&[program.to_str().unwrap(), "--version"]) || !loads(&["sh", "-c", "echo x"]) {
            return None;
        }
        n_able.fetch_add(1, Ordering::Relaxed);
        let place = Place::new();
        open_to_all(place.0.path());
        let problem = match output_of(&mut place.command_behind(&wrapper, &program, end.0)) {
            Ok(output) => problem(&output, end.1),
            Err(problem) => Some(problem),
        };
        problem.map(|problem| format!("{wrapper:?}, {}: {problem}", end.0))
    });
    let n_able = n_able.into_inner();
    eprintln!(
        "{what}: {n_cases} cases, {n_able} in which brimful loads, {} failed",
        wrong.len()
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(n_able > 0, "{what}: brimful loads in none of the cases");
}

fn open_to_all(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output().unwrap();
    output.stdout == b"0\n"
}

#[test]
fn few_open_files_keep_the_exit_code() {
    let cases: Vec<_> = (4..40)
        .map(|limit| words(&["prlimit", &format!("--nofile={limit}")]))
        .collect();
    check_real(&cases, "RLIMIT_NOFILE");
}

#[test]
fn little_address_space_keeps_the_exit_code() {
    let cases: Vec<_> = (1..60)
        .map(|step| words(&["prlimit", &format!("--as={}", step * (4 << 20))]))
        .collect();
    check_real(&cases, "RLIMIT_AS");
}

#[test]
fn few_processes_keep_the_exit_code() {
    // Root is not counted; everybody else is by number, so each case has one of its own.
    let cases: Vec<_> = (1..12)
        .map(|limit: u32| {
            let limit_word = format!("--nproc={limit}");
            if is_root() {
                let user = format!("--reuid={}", 64_100 + limit);
                words(&[
                    "setpriv",
                    &user,
                    "--regid=64100",
                    "--clear-groups",
                    "prlimit",
                    &limit_word,
                ])
            } else {
                words(&["prlimit", &limit_word])
            }
        })
        .collect();
    if is_root() {
        check_real(&cases, "RLIMIT_NPROC");
    } else {
        eprintln!("skipped, other processes of this user would be counted");
    }
}

#[test]
fn small_files_keep_the_exit_code() {
    // The training notes its start in a file: some bytes must be allowed.
    let cases: Vec<_> = [8, 64, 200, 300, 600, 1000, 2000, 5000, 20_000]
        .iter()
        .map(|limit| words(&["prlimit", &format!("--fsize={limit}")]))
        .collect();
    check_real(&cases, "RLIMIT_FSIZE");
}

/// In a mount namespace of its own, after this preparation.
fn check_mounted(preparation: &str, what: &str) {
    let script = format!("{preparation} && exec \"$@\"");
    let wrapper = ["unshare", "-m", "sh", "-c", &script, "sh"];
    let tried = Command::new(wrapper[0])
        .args(&wrapper[1..])
        .arg("true")
        .stderr(Stdio::null())
        .current_dir(Place::new().0.path())
        .status();
    if !tried.is_ok_and(|status| status.success()) {
        eprintln!("skipped, nothing can be mounted here: {what}");
        return;
    }
    let wrong: Vec<String> = ENDS
        .into_iter()
        .filter_map(|end| {
            let place = Place::new();
            match output_of(&mut place.command_behind(&wrapper, &program(), end.0)) {
                Ok(output) => problem(&output, end.1),
                Err(problem) => Some(problem),
            }
        })
        .collect();
    eprintln!("{what}: {} cases, {} failed", ENDS.len(), wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_hidden_proc_keeps_the_exit_code() {
    check_mounted("mount -t tmpfs none /proc", "hidden /proc");
}

#[test]
fn a_full_state_directory_keeps_the_exit_code() {
    let fill = "mkdir -p state && mount -t tmpfs -o size=64k none state && (head -c 1000000 /dev/zero > state/full; true) 2>/dev/null";
    check_mounted(fill, "full state directory");
    let fill = "mkdir -p state && mount -t tmpfs -o size=64k,nr_inodes=4 none state && touch state/a state/b";
    check_mounted(fill, "state directory without inodes");
}

#[test]
fn an_unwritable_state_directory_keeps_the_exit_code() {
    let seal = "mkdir -p state && mount -t tmpfs -o ro none state";
    check_mounted(seal, "unwritable state directory");
}
