//! A script that brimful starts by itself leaves no trace. `init` starts any command, so that no torch is needed here.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::context::{program, program_for_all_users};

/// A Python that every user can start.
const PYTHON: &str = "/usr/bin/python3";

/// Changes everything that it can reach, checks that it sees its own changes, and ends with 0 only if it does.
const SCRIPT: &str = r#"
set -e
test "$(cat kept.txt)" = kept
echo changed > kept.txt
echo more >> log.csv
rm -r cleared
mkdir cleared
echo new > cleared/new.txt
mv moved.txt elsewhere.txt
mv directory renamed
ln -s kept.txt link
chmod 600 mode.txt
touch -d 2001-01-01 kept.txt
truncate -s 3 long.txt 2>/dev/null || : > long.txt
test "$(cat kept.txt)" = changed
test "$(wc -l < log.csv)" = 2
test "$(ls cleared)" = new.txt
test ! -e moved.txt
test "$(cat renamed/inner.txt)" = inner
test "$(cat link)" = changed
echo home > "$HOME/written"
echo data > "$DATA/written"
rm "$DATA/set.bin"
test "$(cat "$HOME/written")" = home
"#;

/// A working directory, a home and a data directory.
struct Place {
    _root: tempfile::TempDir,
    root: PathBuf,
}

impl Place {
    fn new() -> Place {
        let held = tempfile::tempdir().unwrap();
        let root = held.path().canonicalize().unwrap();
        for directory in ["work/cleared", "work/directory", "home", "data"] {
            std::fs::create_dir_all(root.join(directory)).unwrap();
        }
        for (name, text) in [
            ("work/kept.txt", "kept"),
            ("work/log.csv", "0\n"),
            ("work/cleared/old.txt", "old"),
            ("work/moved.txt", "moved"),
            ("work/directory/inner.txt", "inner"),
            ("work/mode.txt", "mode"),
            ("work/long.txt", "a long text"),
            ("data/set.bin", "samples"),
        ] {
            std::fs::write(root.join(name), text).unwrap();
        }
        Place { _root: held, root }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(program());
        self.set_up(command.arg("init").args(["--output", "-"]).args(arguments));
        command
    }

    fn set_up(&self, command: &mut Command) {
        command
            .current_dir(self.root.join("work"))
            .env("HOME", self.root.join("home"))
            .env("DATA", self.root.join("data"))
            .env_remove("XDG_CACHE_HOME")
            .env("NO_COLOR", "1");
    }

    /// Name, kind, mode, time and contents of everything.
    fn contents(&self) -> BTreeMap<PathBuf, (u32, i64, i64, Vec<u8>)> {
        let mut found = BTreeMap::new();
        let mut next = vec![self.root.clone()];
        while let Some(directory) = next.pop() {
            for entry in std::fs::read_dir(&directory).unwrap() {
                let path = entry.unwrap().path();
                let facts = path.symlink_metadata().unwrap();
                let contents = if facts.is_file() {
                    std::fs::read(&path).unwrap()
                } else {
                    Vec::new()
                };
                if facts.is_dir() {
                    next.push(path.clone());
                }
                let value = (facts.mode(), facts.mtime(), facts.mtime_nsec(), contents);
                found.insert(path, value);
            }
        }
        found
    }

    /// Runs the script and holds what it left against what was there before.
    fn check(&self, mut command: Command) {
        let before = self.contents();
        let output = command.output().unwrap();
        let said = errors(&output);
        assert!(said.contains("exit status: 0"), "{said}");
        assert_eq!(self.contents(), before);
    }
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Starts `brimful init` without user namespaces and privileges: as in most containers.
fn without_namespaces(place: &Place, arguments: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command
        .args(WITHOUT_NAMESPACES)
        .arg(program())
        .args(["init", "--output", "-"])
        .args(arguments);
    place.set_up(&mut command);
    command
}

/// Arguments of `unshare`, before a command that then has neither user namespaces nor privileges.
const WITHOUT_NAMESPACES: [&str; 6] = [
    "--user",
    "--map-root-user",
    "sh",
    "-c",
    "echo 0 > /proc/sys/user/max_user_namespaces && \
     exec setpriv --inh-caps=-all --bounding-set=-all --no-new-privs \"$@\"",
    "sh",
];

fn has_redirecting_library() -> bool {
    redirecting_library().is_file()
}

#[test]
fn an_overlay_leaves_no_trace() {
    let place = Place::new();
    place.check(place.command(&["--isolation", "overlay", "--", "sh", "-c", SCRIPT]));
}

#[test]
fn an_overlay_needs_no_root() {
    if !rustix_is_root() {
        return;
    }
    let place = Place::new();
    // Everything belongs to the other user, and the directory above must let it pass.
    std::fs::set_permissions(&place.root, PermissionsExt::from_mode(0o755)).unwrap();
    let user = 54_321;
    for path in place.contents().keys() {
        std::os::unix::fs::lchown(path, Some(user), Some(user)).unwrap();
    }
    let script = SCRIPT.replace("mv directory renamed", "cp -r directory renamed");
    let program = program_for_all_users(&place.root);
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", "54321", "--regid", "54321", "--clear-groups"])
        .arg(program)
        .args(["init", "--output", "-", "--isolation", "overlay", "--"])
        .args(["sh", "-c", &script]);
    place.set_up(&mut command);
    place.check(command);
}

#[test]
fn a_script_that_an_overlay_was_in_the_way_of_has_its_writes_redirected() {
    if !rustix_is_root() || !has_redirecting_library() || !Path::new(PYTHON).exists() {
        eprintln!("skipped: needs root, libbrimful_redirect.so and {PYTHON}");
        return;
    }
    let place = Place::new();
    let user = 54321;
    for path in place.contents().keys().chain([&place.root]) {
        std::os::unix::fs::lchown(path, Some(user), Some(user)).unwrap();
    }
    let program = program_for_all_users(&place.root);
    let library = place.root.join("libbrimful_redirect.so");
    std::fs::copy(redirecting_library(), &library).unwrap();
    std::fs::set_permissions(&library, PermissionsExt::from_mode(0o755)).unwrap();
    // An overlay without privileges cannot rename a directory of the user's.
    let script = "import os; os.rename('directory', 'renamed'); print(os.listdir('renamed'))";
    let started = |options: &[&str]| {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", "54321", "--regid", "54321", "--clear-groups"])
            .arg(&program)
            .args(["init", "--output", "-"])
            .args(options)
            .args(["--", PYTHON, "-c", script]);
        place.set_up(&mut command);
        command
    };
    let refused = errors(&started(&["--isolation", "overlay"]).output().unwrap());
    assert!(refused.contains("cross-device"), "{refused}");
    place.check(started(&[]));
}

/// The library that was built with the program.
fn redirecting_library() -> PathBuf {
    program().with_file_name("libbrimful_redirect.so")
}

fn rustix_is_root() -> bool {
    let own = std::fs::metadata("/proc/self").unwrap();
    if own.uid() == 0 {
        return true;
    }
    eprintln!("skipped: only root can become another user");
    false
}

#[test]
fn redirected_writes_leave_no_trace() {
    if !has_redirecting_library() {
        eprintln!("skipped: libbrimful_redirect.so was not built");
        return;
    }
    let place = Place::new();
    place.check(place.command(&["--isolation", "redirect", "--", "sh", "-c", SCRIPT]));
}

#[test]
fn without_namespaces_writes_are_redirected() {
    if !has_redirecting_library() {
        eprintln!("skipped: libbrimful_redirect.so was not built");
        return;
    }
    let place = Place::new();
    place.check(without_namespaces(&place, &["--", "sh", "-c", SCRIPT]));
}

#[test]
fn where_nothing_isolates_the_script_it_is_not_started() {
    let place = Place::new();
    let before = place.contents();
    let mut command = without_namespaces(
        &place,
        &["--isolation", "overlay", "--", "sh", "-c", SCRIPT],
    );
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(97), "{}", errors(&output));
    let said = errors(&output);
    assert!(said.contains("overlay is not available"), "{said}");
    assert!(said.contains("--allow-writes"), "{said}");
    assert_eq!(place.contents(), before);
}

/// What `brimful probe` expects, with its reason, and what `brimful init` then uses in the same surroundings.
fn expected_and_used(place: &Place, prefix: &[&str], program: &Path) -> (String, String, String) {
    let start = |arguments: &[&str]| {
        let mut words = prefix.iter();
        let mut command = match words.next() {
            Some(first) => Command::new(first),
            None => Command::new(program),
        };
        command.args(words);
        if !prefix.is_empty() {
            command.arg(program);
        }
        place.set_up(command.args(arguments));
        command.output().unwrap()
    };
    let probed = start(&["probe", "--json"]);
    assert!(probed.status.success(), "{}", errors(&probed));
    let document: serde_json::Value = serde_json::from_slice(&probed.stdout).unwrap();
    let of = |name: &str| {
        document["isolation"][name]
            .as_str()
            .unwrap_or("")
            .to_owned()
    };
    // The end of a failed script's output is shown.
    let script = "echo \"used $BRIMFUL_ISOLATION\"; exit 3";
    let said = errors(&start(&["init", "--output", "-", "--", "sh", "-c", script]));
    let used = said
        .split_once("used ")
        .and_then(|(_, rest)| rest.split_once(':'));
    let used = used.map(|(used, _)| used.to_owned());
    let refused = said.contains("redirect is not available");
    assert_ne!(used.is_some(), refused, "{said}");
    (of("expected"), of("reason"), used.unwrap_or("none".into()))
}

fn check_expected(place: &Place, prefix: &[&str], program: &Path, expected: &str, reason: &str) {
    let found = expected_and_used(place, prefix, program);
    assert_eq!(found, (expected.into(), reason.into(), expected.into()));
}

/// A probe may expect less than a rehearsal then gets, since it cannot read the rules of filters; never more.
fn check_kept(place: &Place, prefix: &[&str], program: &Path) {
    let (expected, reason, used) = expected_and_used(place, prefix, program);
    let kept: &[&str] = match expected.as_str() {
        "overlay" => &["overlay"],
        "redirect" if has_redirecting_library() => &["overlay", "redirect"],
        _ => &["overlay", "redirect", "none"],
    };
    assert!(
        kept.contains(&used.as_str()),
        "{expected} ({reason}), {used}"
    );
}

#[test]
fn probe_expects_no_more_than_is_used_here() {
    check_kept(&Place::new(), &[], &program());
}

#[test]
fn probe_expects_no_more_than_an_ordinary_user_gets() {
    if !rustix_is_root() {
        return;
    }
    let place = Place::new();
    std::fs::set_permissions(&place.root, PermissionsExt::from_mode(0o755)).unwrap();
    for path in place.contents().keys() {
        std::os::unix::fs::lchown(path, Some(54_321), Some(54_321)).unwrap();
    }
    let program = program_for_all_users(&place.root);
    if has_redirecting_library() {
        let library = "libbrimful_redirect.so";
        let copy = program.with_file_name(library);
        std::fs::copy(crate::context::program().with_file_name(library), &copy).unwrap();
        std::fs::set_permissions(copy, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let become_user = "setpriv --reuid 54321 --regid 54321 --clear-groups";
    let prefix: Vec<&str> = become_user.split(' ').collect();
    check_kept(&place, &prefix, &program);
}

#[test]
fn probe_expects_redirection_without_namespaces() {
    if !has_redirecting_library() {
        eprintln!("skipped: libbrimful_redirect.so was not built");
        return;
    }
    let mut prefix = vec!["unshare"];
    prefix.extend(WITHOUT_NAMESPACES);
    check_expected(
        &Place::new(),
        &prefix,
        &program(),
        "redirect",
        "user.max_user_namespaces is 0",
    );
}

#[test]
fn probe_expects_redirection_where_scratch_lies_on_an_overlay() {
    if !has_redirecting_library() {
        eprintln!("skipped: libbrimful_redirect.so was not built");
        return;
    }
    if !rustix_is_root() {
        return;
    }
    let place = Place::new();
    for directory in ["lower", "upper", "layer", "merged"] {
        std::fs::create_dir(place.root.join(directory)).unwrap();
    }
    let script = "cd \"$1\" && shift && \
                  mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=layer overlay merged && \
                  export TMPDIR=\"$PWD/merged\" && cd work && exec \"$@\"";
    let root = place.root.to_str().unwrap();
    let prefix = ["unshare", "--mount", "sh", "-c", script, "sh", root];
    let merged = place.root.join("merged");
    check_expected(
        &place,
        &prefix,
        &program(),
        "redirect",
        &format!(
            "{} is on overlay, which does not support overlays",
            merged.display()
        ),
    );
}

/// Neither privileges nor the named system calls.
fn refused(calls: &str) -> Vec<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/refuse_calls.py");
    [
        "setpriv",
        "--inh-caps=-all",
        "--bounding-set=-all",
        "python3",
    ]
    .into_iter()
    .chain([script.to_str().unwrap(), calls])
    .map(Into::into)
    .collect()
}

#[test]
fn probe_expects_redirection_behind_a_filter_that_refuses_namespaces() {
    if !has_redirecting_library() {
        eprintln!("skipped: libbrimful_redirect.so was not built");
        return;
    }
    if !rustix_is_root() {
        return;
    }
    let prefix = refused("unshare");
    let prefix: Vec<&str> = prefix.iter().map(String::as_str).collect();
    let reason = "a seccomp filter may block namespaces";
    check_expected(&Place::new(), &prefix, &program(), "redirect", reason);
}

#[test]
fn probe_expects_a_refusal_where_nothing_isolates() {
    if !rustix_is_root() {
        return;
    }
    let prefix = refused("unshare,landlock");
    let prefix: Vec<&str> = prefix.iter().map(String::as_str).collect();
    let reason = "a seccomp filter may block namespaces; the kernel does not support Landlock, or a seccomp filter hides it";
    check_expected(&Place::new(), &prefix, &program(), "none", reason);
}

#[test]
fn writes_are_real_where_the_user_allows_them() {
    let place = Place::new();
    let script = "echo changed > kept.txt";
    let output = place
        .command(&["--allow-writes", "--", "sh", "-c", script])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let kept = std::fs::read_to_string(place.root.join("work/kept.txt")).unwrap();
    assert_eq!(kept, "changed\n");
}

#[test]
fn a_script_that_fills_scratch_is_ended_and_the_file_is_named() {
    let place = Place::new();
    let before = place.contents();
    let script = "head -c 400000000 /dev/zero > large.bin; sleep 30";
    let start = Instant::now();
    let output = place
        .command(&["--scratch", "100MiB", "--", "sh", "-c", script])
        .output()
        .unwrap();
    let said = errors(&output);
    assert_eq!(output.status.code(), Some(97), "{said}");
    assert!(said.contains("work/large.bin"), "{said}");
    assert!(start.elapsed() < Duration::from_secs(25));
    assert_eq!(place.contents(), before);
}

#[test]
fn a_kill_of_brimful_leaves_no_process_behind() {
    for isolation in ["overlay", "redirect"] {
        if isolation == "redirect" && !has_redirecting_library() {
            eprintln!("skipped: libbrimful_redirect.so was not built");
            continue;
        }
        let place = Place::new();
        let mark = format!("60{}", std::process::id());
        let script = format!("setsid sleep {mark} & sleep {mark}");
        let mut brimful = place
            .command(&["--isolation", isolation, "--", "sh", "-c", &script])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_for(|| sleeping(&mark) == 2);
        brimful.kill().unwrap();
        brimful.wait().unwrap();
        wait_for(|| sleeping(&mark) == 0);
    }
}

fn wait_for(condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "it took too long"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// How many processes sleep for that many seconds.
fn sleeping(seconds: &str) -> usize {
    let wanted = format!("sleep\0{seconds}\0");
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter(|entry| {
            let path: &Path = &entry.path().join("cmdline");
            std::fs::read(path).is_ok_and(|bytes| bytes == wanted.as_bytes())
        })
        .count()
}
