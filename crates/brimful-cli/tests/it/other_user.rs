//! A second, real user against every file that brimful makes: nothing is read, nothing replaced, no planted code runs.
//!
//! Needs root, to make two users; skipped with a message otherwise.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tempfile::TempDir;

use crate::context::program_for_all_users;

/// One that everybody can start, unlike those in root's home.
const PYTHON: &str = "/usr/bin/python3";
const TOKEN: &str = concat!("hf", "_", "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6");
const SCRIPT: &str = "import argparse, time\n\
    parser = argparse.ArgumentParser()\nparser.add_argument('--workers', type=int, default=2)\n\
    time.sleep(0.3)\nparser.parse_args()\n";

/// Two users who share their group, as the members of a lab do, and a directory for the test.
struct Users {
    root: TempDir,
    group: String,
    names: Vec<String>,
    victim: u32,
    other: u32,
    gid: u32,
}

impl Users {
    fn new(case: &str) -> Option<Users> {
        let skipped = |why: &str| {
            eprintln!("skipped: {why}");
            None
        };
        if fs::metadata("/proc/self").unwrap().uid() != 0 {
            return skipped("only root can make a second user");
        }
        if !Path::new(PYTHON).exists() {
            return skipped("there is no Python that every user can start");
        }
        let root = tempfile::tempdir().unwrap();
        mode(root.path(), 0o755);
        let stem = format!("brimful-test-{}-{case}", std::process::id());
        let mut users = Users {
            root,
            group: format!("{stem}-g"),
            names: Vec::new(),
            victim: 0,
            other: 0,
            gid: 0,
        };
        if !succeeds("groupadd", &[&users.group]) {
            return skipped("groupadd does not work here");
        }
        for number in ["a", "b"] {
            let name = format!("{stem}-{number}");
            let arguments = ["-M", "-N", "-g", &users.group, "-s", "/bin/sh", &name];
            if !succeeds("useradd", &arguments) {
                return skipped("useradd does not work here");
            }
            users.names.push(name);
        }
        users.victim = id("-u", &users.names[0]);
        users.other = id("-u", &users.names[1]);
        users.gid = id("-g", &users.names[0]);
        program_for_all_users(users.root.path());
        for (name, owner, open) in [
            ("home", users.victim, 0o755),
            ("attacker", users.other, 0o755),
            ("tmp", 0, 0o1777),
            ("marks", 0, 0o1777),
            ("metrics", 0, 0o1777),
        ] {
            users.directory(name, owner, open);
        }
        users.directory("home/work", users.victim, 0o755);
        fs::write(users.at("home/work/train.py"), SCRIPT).unwrap();
        fs::write(
            users.at("attacker/attack.py"),
            include_str!("other_user.py"),
        )
        .unwrap();
        Some(users)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn directory(&self, name: &str, owner: u32, open: u32) -> PathBuf {
        let path = self.at(name);
        fs::create_dir(&path).unwrap();
        self.give(&path, owner, open);
        path
    }

    fn give(&self, path: &Path, owner: u32, open: u32) {
        chown(path, Some(owner), Some(self.gid)).unwrap();
        mode(path, open);
    }

    fn as_user(&self, user: u32, umask: u32, words: &[&str]) -> Command {
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", &format!("umask {umask:03o}; exec \"$@\""), "sh"])
            .args(words)
            .uid(user)
            .gid(self.gid)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.at("home"))
            .env("TMPDIR", self.at("tmp"))
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .current_dir(self.at("home/work"));
        command
    }

    /// Runs brimful as the first user. Whatever was planted, it comes to an end.
    fn brimful(&self, umask: u32, state: Option<&Path>, arguments: &[&str]) -> Output {
        let program = self.at("brimful");
        let mut words = vec!["timeout", "60", program.to_str().unwrap()];
        words.extend(arguments);
        let mut command = self.as_user(self.victim, umask, &words);
        if let Some(state) = state {
            command.env("BRIMFUL_STATE_DIR", state);
        }
        let output = command.output().unwrap();
        assert_ne!(output.status.code(), Some(124), "{arguments:?} hangs");
        output
    }

    /// A shell command as the second user, which must succeed.
    fn plant(&self, script: &str) {
        let mut command = self.as_user(self.other, 0, &["/bin/sh", "-ec", script]);
        let status = command.current_dir(self.at("attacker")).status().unwrap();
        assert!(status.success(), "{script}");
    }

    /// Everything that brimful does, one after the other.
    fn do_everything(&self, umask: u32, state: Option<&Path>) {
        let run = |arguments: &[&str]| self.brimful(umask, state, arguments);
        assert!(run(&["probe"]).status.success());
        let metrics = self.at(&format!("metrics/{umask:03o}.prom"));
        let output = run(&[
            "run",
            "--metrics-file",
            metrics.to_str().unwrap(),
            "--",
            PYTHON,
            "-c",
            "import time; print('started', flush=True); time.sleep(1.2); raise SystemExit(3)",
            "--hf-token",
            TOKEN,
        ]);
        assert_eq!(output.status.code(), Some(3), "{}", told(&output));
        assert!(metrics.exists(), "{}", told(&output));
        for arguments in [&["explain"][..], &["runs"]] {
            let output = run(arguments);
            assert!(output.status.success(), "{}", told(&output));
            assert!(!told(&output).contains(TOKEN));
        }
        let drafted = self.at(&format!("home/work/{umask:03o}.toml"));
        let job = [
            "init",
            "--force",
            "--output",
            drafted.to_str().unwrap(),
            "--",
        ];
        let output = run(&[&job[..], &[PYTHON, "train.py"]].concat());
        assert!(output.status.success(), "{}", told(&output));
        // Ends with an error, since this Python has no torch; its stage was there by then.
        run(&["predict", "--gpu", "none", "--", PYTHON, "train.py"]);
        for named in [&metrics, &drafted] {
            let found = named.metadata().unwrap().mode() & 0o777;
            assert_eq!(
                found,
                0o666 & !umask,
                "{} follows the umask",
                named.display()
            );
        }
    }

    /// What must hold whatever was tried.
    fn check(&self, attack: Attack, watch: Watch) {
        drop(attack);
        let seen = watch.finish();
        let log = fs::read_to_string(self.at("attacker/log")).unwrap_or_default();
        assert_eq!(log, "", "the second user succeeded");
        let ran: Vec<String> = fs::read_dir(self.at("marks"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.starts_with(&format!("{}-", self.victim)))
            .collect();
        assert!(ran.is_empty(), "planted code ran: {ran:?}");
        assert!(seen.too_open.is_empty(), "{:#?}", seen.too_open);
        // Or there was nothing to get at.
        for made in [
            "record.jsonl",
            "sitecustomize.py",
            "events",
            "pressure",
            "results",
        ] {
            assert!(
                seen.names.contains(made),
                "{made} was not seen: {:?}",
                seen.names
            );
        }
        for (path, text) in texts(self.root.path()) {
            assert!(!text.contains(TOKEN), "a secret is in {}", path.display());
        }
    }
}

impl Drop for Users {
    fn drop(&mut self) {
        for name in &self.names {
            succeeds("userdel", &[name]);
        }
        succeeds("groupdel", &[&self.group]);
    }
}

/// The second user at work.
struct Attack(Child);

impl Attack {
    fn start(users: &Users, places: &[PathBuf]) -> Attack {
        let mut words = vec![
            PYTHON.to_owned(),
            users.at("attacker/attack.py").display().to_string(),
            users.victim.to_string(),
            users.at("attacker/log").display().to_string(),
            users.at("marks").display().to_string(),
        ];
        words.extend(places.iter().map(|place| place.display().to_string()));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut command = users.as_user(users.other, 0, &words);
        Attack(command.current_dir("/").spawn().unwrap())
    }
}

impl Drop for Attack {
    fn drop(&mut self) {
        assert!(
            matches!(self.0.try_wait(), Ok(None)) || std::thread::panicking(),
            "the second user gave up"
        );
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What root sees while brimful runs: files of the first user that others could read or change.
#[derive(Default)]
struct Seen {
    too_open: BTreeSet<String>,
    names: BTreeSet<String>,
}

struct Watch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Seen>,
}

impl Watch {
    fn start(users: &Users, places: &[PathBuf]) -> Watch {
        let stop = Arc::new(AtomicBool::new(false));
        let (places, owner, until) = (places.to_vec(), users.victim, Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let mut seen = Seen::default();
            while !until.load(Ordering::Relaxed) {
                for place in &places {
                    look(place, owner, &mut seen);
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            seen
        });
        Watch { stop, thread }
    }

    fn finish(self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

fn look(path: &Path, owner: u32, seen: &mut Seen) {
    let Ok(facts) = fs::symlink_metadata(path) else {
        return;
    };
    let mine = facts.uid() == owner;
    if mine && !facts.file_type().is_symlink() {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        seen.names.insert(name.into_owned());
        if facts.mode() & 0o077 != 0 {
            let open = facts.mode() & 0o7777;
            seen.too_open
                .insert(format!("{open:04o} {}", path.display()));
        }
    }
    // What a script writes during a rehearsal has the modes that the script gives it. Nobody gets below the directory.
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_closed = facts.mode().trailing_zeros() >= 6;
    if mine && name.starts_with("brimful-scratch-") && is_closed {
        return;
    }
    // Others' directories may be endless; only those of the first user and the places themselves are looked into.
    if facts.is_dir() && (mine || facts.uid() == 0) {
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            let below = entry.path();
            let is_ours = entry.metadata().is_ok_and(|facts| facts.uid() == owner);
            if is_ours {
                look(&below, owner, seen);
            }
        }
    }
}

fn texts(root: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let facts = entry.metadata().unwrap();
        if facts.is_dir() {
            found.extend(texts(&entry.path()));
        } else if facts.is_file() && facts.len() < 8 << 20 {
            let bytes = fs::read(entry.path()).unwrap();
            found.push((entry.path(), String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
    found
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn succeeds(program: &str, arguments: &[&str]) -> bool {
    Command::new(program)
        .args(arguments)
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn id(option: &str, user: &str) -> u32 {
    let output = Command::new("id").args([option, user]).output().unwrap();
    String::from_utf8(output.stdout)
        .unwrap()
        .trim()
        .parse()
        .unwrap()
}

fn told(output: &Output) -> String {
    crate::context::told(output)
}

/// Where brimful may make files.
fn places(users: &Users, state: Option<&Path>) -> Vec<PathBuf> {
    let mut places = vec![
        users.at("home/.local"),
        users.at("home/.cache"),
        users.at("tmp"),
        "/dev/shm".into(),
    ];
    places.extend(state.map(Path::to_owned));
    places
}

#[test]
fn nobody_gets_into_the_default_state_directory() {
    let Some(users) = Users::new("d") else { return };
    let places = places(&users, None);
    let (attack, watch) = (
        Attack::start(&users, &places),
        Watch::start(&users, &places),
    );
    for umask in [0o000, 0o002, 0o022, 0o077] {
        users.do_everything(umask, None);
    }
    users.check(attack, watch);
}

#[test]
fn nobody_gets_into_a_part_of_a_shared_state_directory() {
    let Some(users) = Users::new("s") else { return };
    let shared = users.directory("shared", 0, 0o1777);
    let places = places(&users, Some(&shared));
    let (attack, watch) = (
        Attack::start(&users, &places),
        Watch::start(&users, &places),
    );
    for umask in [0o000, 0o002, 0o022, 0o077] {
        users.do_everything(umask, Some(&shared));
    }
    users.check(attack, watch);
    let part = shared.join(format!("uid-{}", users.victim));
    assert_eq!(fs::read_dir(part.join("runs")).unwrap().count(), 4);
}

#[test]
fn what_was_planted_in_an_open_state_directory_is_not_believed() {
    let Some(users) = Users::new("o") else { return };
    // As an earlier version made it under umask 000.
    let state = users.directory("home/state", users.victim, 0o777);
    let path = state.display();
    users.plant(&format!(
        "mkdir -p {path}/runs/2020-01-01T00-00-00-dead {path}/runs/2099-01-01T00-00-00-beef {path}/runs/2098-01-01T00-00-00-face
         mkfifo {path}/runs/2020-01-01T00-00-00-dead/record.jsonl {path}/runs/2099-01-01T00-00-00-beef/record.jsonl
         printf '{{\"line\":\"run\",\"id\":\"planted\"}}\\n' > {path}/runs/2098-01-01T00-00-00-face/record.jsonl
         mkdir {path}/history; ln -s /etc {path}/rehearsals"
    ));
    let output = users.brimful(0o002, Some(&state), &["run", "--", "sh", "-c", "exit 3"]);
    assert_eq!(output.status.code(), Some(3), "{}", told(&output));
    assert!(
        told(&output).contains("belongs to another user"),
        "{}",
        told(&output)
    );
    assert_eq!(state.metadata().unwrap().mode() & 0o777, 0o700);
    let output = users.brimful(0o002, Some(&state), &["runs"]);
    assert!(!told(&output).contains("planted"), "{}", told(&output));

    // The same where the directories are the first user's own.
    users.give(&state.join("runs"), users.victim, 0o777);
    mode(&state, 0o777);
    fs::remove_dir(state.join("history")).unwrap();
    fs::remove_file(state.join("rehearsals")).unwrap();
    let output = users.brimful(0o002, Some(&state), &["run", "--", "true"]);
    assert!(
        !told(&output).contains("no run record"),
        "{}",
        told(&output)
    );
    let places = places(&users, Some(&state));
    let (attack, watch) = (
        Attack::start(&users, &places),
        Watch::start(&users, &places),
    );
    users.do_everything(0o002, Some(&state));
    for named in ["2099", "2020", "2098"] {
        let output = users.brimful(0o002, Some(&state), &["explain", named]);
        assert!(!output.status.success(), "{}", told(&output));
        assert!(!told(&output).contains("planted"), "{}", told(&output));
    }
    users.check(attack, watch);
}

#[test]
fn directories_that_others_could_replace_are_refused_and_the_run_goes_on() {
    let Some(users) = Users::new("r") else { return };
    let shared = users.directory("shared", 0, 0o1777);
    let planted = shared.join(format!("uid-{}", users.victim));
    users.plant(&format!(
        "mkdir -m 777 {0}; mkdir -m 777 {0}/runs",
        planted.display()
    ));
    let of_other = users.directory("theirs", users.other, 0o777);
    let of_group = users.directory("group", 0, 0o2775);
    let link = users.at("linked");
    mode(users.root.path(), 0o1777);
    users.plant(&format!("ln -s {} {}", of_other.display(), link.display()));
    mode(users.root.path(), 0o1777);
    for state in [
        &shared,
        &of_other,
        &of_group,
        &link,
        &of_other.join("below"),
    ] {
        for umask in [0o000, 0o077] {
            let output = users.brimful(
                umask,
                Some(state),
                &["run", "--", "sh", "-c", "echo through; exit 3"],
            );
            let told = told(&output);
            assert_eq!(output.status.code(), Some(3), "{told}");
            assert!(
                told.contains("through") && told.contains("no run record"),
                "{told}"
            );
            assert!(
                told.contains("--state-dir") && told.contains("mode "),
                "{told}"
            );
        }
    }
    let made: Vec<PathBuf> = texts(users.root.path())
        .into_iter()
        .map(|(path, _)| path)
        .filter(|path| path.ends_with("record.jsonl"))
        .collect();
    assert!(made.is_empty(), "{made:?}");
}

#[test]
fn links_and_pipes_at_the_metrics_file_overwrite_nothing() {
    let Some(users) = Users::new("m") else { return };
    let precious = users.at("home/precious");
    fs::write(&precious, "precious").unwrap();
    users.give(&precious, users.victim, 0o644);
    let at = |name: &str| users.at("metrics").join(name);
    users.plant(&format!(
        "ln -s {0} {1}/a.prom.new; ln -s {0} {1}/b.prom; mkfifo {1}/c.prom",
        precious.display(),
        users.at("metrics").display()
    ));
    for name in ["a.prom", "b.prom", "c.prom"] {
        let output = users.brimful(
            0o022,
            None,
            &[
                "run",
                "--metrics-file",
                at(name).to_str().unwrap(),
                "--",
                "sleep",
                "0.6",
            ],
        );
        assert!(output.status.success(), "{}", told(&output));
        assert_eq!(fs::read(&precious).unwrap(), b"precious", "{name}");
    }
    assert!(
        fs::read_to_string(at("a.prom"))
            .unwrap()
            .contains("brimful_")
    );
    let left = fs::read_dir(users.at("metrics")).unwrap().count();
    assert_eq!(left, 4, "nothing is left behind");
}
