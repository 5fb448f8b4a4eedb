//! Where a fault happens: a control group, limits of processes, mounts, a card. Made for real, for one run.

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use brimful_rehearse::stage::Stage;
use brimful_testkit::{NoGroups, TestGroup};

use crate::faults::manifest::{self, Fault};

/// What this machine allows.
#[derive(Debug)]
pub(crate) struct Powers {
    /// Why there are no control groups.
    pub(crate) groups: Result<(), String>,
    /// Why there are no private mounts.
    pub(crate) mounts: Result<(), String>,
}

impl Powers {
    pub(crate) fn find() -> Powers {
        let groups = TestGroup::new()
            .map(drop)
            .map_err(|NoGroups(reason)| reason);
        let mounts = Command::new("unshare")
            .args(["--mount", "mount", "-t", "tmpfs", "tmpfs", "/dev/shm"])
            .stdout(Stdio::null())
            .output()
            .map_err(|error| format!("unshare: {error}"))
            .and_then(|output| {
                output
                    .status
                    .success()
                    .then_some(())
                    .ok_or_else(|| String::from_utf8_lossy(&output.stderr).trim().to_owned())
            });
        Powers { groups, mounts }
    }

    /// Why the fault cannot happen here.
    pub(crate) fn lacking(&self, fault: &Fault) -> Option<String> {
        let groups = self.groups.as_ref().err().filter(|_| fault.needs_group());
        let mounts = self.mounts.as_ref().err().filter(|_| fault.needs_mounts());
        groups.or(mounts).cloned()
    }
}

/// The surroundings of one run; what was made is removed with this value.
#[derive(Debug)]
pub(crate) struct Surroundings {
    folder: tempfile::TempDir,
    /// `None` where the machine has no groups and the fault needs none.
    pub(crate) group: Option<TestGroup>,
    /// Stands in the environment of every process of the run.
    pub(crate) marker: String,
    words: Vec<String>,
    python: PathBuf,
}

/// Where the kernel shows control groups that count memory.
const GROUPS_V1: &str = "/sys/fs/cgroup/memory";
const GROUPS_V2: &str = "/sys/fs/cgroup";

/// Enough for Python to start.
const NEIGHBOR_LIMIT: u64 = 64 << 20;

/// The variable that every process of a run inherits.
pub(crate) const MARKER: &str = "BRIMFUL_FAULT_ID";

impl Surroundings {
    pub(crate) fn new(
        fault: &Fault,
        powers: &Powers,
        python: &Path,
        stage: &Stage,
    ) -> Result<Surroundings> {
        let folder = tempfile::Builder::new().prefix("fault-").tempdir()?;
        for name in ["tmp", "disk", "state"] {
            std::fs::create_dir(folder.path().join(name))?;
        }
        let group = match &powers.groups {
            Ok(()) => Some(TestGroup::new().map_err(|NoGroups(reason)| anyhow::anyhow!(reason))?),
            Err(_) => None,
        };
        if let (Some(group), Some(mib)) = (&group, fault.memory_limit_mib) {
            group.limit(mib << 20).context("the limit cannot be set")?;
        }
        let marker = format!(
            "{}-{}",
            fault.name,
            folder
                .path()
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
        );
        let mut environment = vec![
            (MARKER.to_owned(), Some(marker.clone())),
            variable("TMPDIR", folder.path().join("tmp")),
            variable("XDG_STATE_HOME", folder.path().join("state")),
            variable("PYTHONDONTWRITEBYTECODE", "1"),
            variable("NO_COLOR", "1"),
            variable("OMP_NUM_THREADS", "1"),
            // Ranks talk over loopback, whatever the machine's name stands for.
            variable("GLOO_SOCKET_IFNAME", "lo"),
        ];
        if let Some(devices) = &fault.gpu {
            environment.extend(staged(stage, python));
            environment.push(if devices == "none" {
                variable("CUDA_VISIBLE_DEVICES", "")
            } else {
                variable("BRIMFUL_PHANTOM_DEVICES", devices)
            });
        }
        let words = entry(
            fault,
            group.as_ref().map(TestGroup::folder),
            &folder.path().join("disk"),
            &environment,
        );
        Ok(Surroundings {
            folder,
            group,
            marker,
            words,
            python: python.to_owned(),
        })
    }

    /// A command that runs in here.
    pub(crate) fn command(&self, program: &[String]) -> Command {
        let mut command = Command::new(&self.words[0]);
        command
            .args(&self.words[1..])
            .args(program)
            .current_dir(self.folder.path())
            .stdin(Stdio::null());
        command
    }

    /// Has the kernel kill a program that has nothing to do with the run, in a group of its own.
    pub(crate) fn kill_a_neighbor(&self) -> Result<()> {
        let group = TestGroup::new().map_err(|NoGroups(reason)| anyhow::anyhow!(reason))?;
        group.limit(NEIGHBOR_LIMIT)?;
        let status = group
            .command(&self.python)
            .arg(manifest::folder().join("burst.py"))
            .status()?;
        ensure!(
            status.signal() == Some(9),
            "the neighbor ended with {status}, and should have been killed"
        );
        Ok(())
    }

    /// What `{disk}` stands for.
    pub(crate) fn disk(&self) -> PathBuf {
        self.folder.path().join("disk")
    }

    /// The folder for temporary files.
    pub(crate) fn temporary(&self) -> PathBuf {
        self.folder.path().join("tmp")
    }

    /// Where brimful keeps its runs.
    pub(crate) fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// A file for what is printed.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

impl Drop for Surroundings {
    fn drop(&mut self) {
        for group in self.group.iter().flat_map(TestGroup::groups_below) {
            // What is left was counted; the outer group cannot go before it.
            let _ = std::fs::remove_dir(group);
        }
    }
}

/// A variable to set; `None` takes it away.
type Variable = (String, Option<String>);

fn variable(name: &str, value: impl AsRef<std::ffi::OsStr>) -> Variable {
    let value = value.as_ref().to_string_lossy().into_owned();
    (name.to_owned(), Some(value))
}

/// What puts a program on the stage. Handed to `env` and not to the shell before it, which has no business there.
fn staged(stage: &Stage, python: &Path) -> Vec<Variable> {
    let mut command = Command::new(python);
    stage.apply(&mut command);
    command
        .get_envs()
        .map(|(name, value)| {
            (
                name.to_string_lossy().into_owned(),
                value.map(|value| value.to_string_lossy().into_owned()),
            )
        })
        .collect()
}

/// The words before a program that put it into the surroundings. Each of them becomes the next, so that the process
/// that is started is the program in the end.
fn entry(
    fault: &Fault,
    group: Option<&Path>,
    disk: &Path,
    environment: &[Variable],
) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut steps = vec!["set -e".to_owned()];
    if fault.needs_mounts() {
        words.extend(["unshare".into(), "--mount".into()]);
    }
    if let Some(mib) = fault.shm_mib {
        steps.push(format!("mount -t tmpfs -o size={mib}m tmpfs /dev/shm"));
    }
    if let Some(mib) = fault.disk_mib {
        steps.push(format!(
            "mount -t tmpfs -o size={mib}m tmpfs '{}'",
            disk.display()
        ));
    }
    if let Some(group) = group {
        steps.push(format!("echo 0 > '{}/cgroup.procs'", group.display()));
    }
    if fault.container {
        for folder in [GROUPS_V2, GROUPS_V1] {
            steps.push(format!("if [ -e {folder}/cgroup.procs ]; then"));
            steps.push(format!("  mount --bind {folder} {folder}"));
            steps.push(format!("  mount -o remount,ro,bind {folder}"));
            steps.push("fi".to_owned());
        }
        steps.push("mount --bind /dev/null /dev/kmsg".to_owned());
    }
    steps.push("exec \"$@\"".to_owned());
    words.extend(["sh".into(), "-c".into(), steps.join("\n"), "sh".into()]);
    // A shell that started us in the background made us deaf for Ctrl-C.
    words.extend(["env".into(), "--default-signal".into()]);
    for (name, value) in environment {
        if value.is_none() {
            words.push(format!("--unset={name}"));
        }
    }
    for (name, value) in environment {
        if let Some(value) = value {
            words.push(format!("{name}={value}"));
        }
    }
    let mut limits = Vec::new();
    if let Some(n_files) = fault.open_files {
        limits.push(format!("--nofile={n_files}"));
    }
    if let Some(mib) = fault.address_space_mib {
        limits.push(format!("--as={}", mib << 20));
    }
    if !limits.is_empty() {
        words.push("prlimit".into());
        words.extend(limits);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(more: &str) -> Fault {
        let text = format!(
            "name = \"a\"\nprogram = \"a.py\"\nexit_code = 1\ncause = \"not_memory\"\n{more}\n"
        );
        toml::from_str(&text).unwrap()
    }

    fn check(more: &str, group: Option<&str>, expected: &str) {
        let environment = [
            ("A".to_owned(), Some("b c".to_owned())),
            ("D".to_owned(), None),
        ];
        let words = entry(
            &fault(more),
            group.map(Path::new),
            Path::new("/small"),
            &environment,
        );
        assert_eq!(words.join("|"), expected);
    }

    #[test]
    fn nothing_asked_is_only_an_environment() {
        check(
            "",
            None,
            "sh|-c|set -e\nexec \"$@\"|sh|env|--default-signal|--unset=D|A=b c",
        );
    }

    #[test]
    fn each_part_becomes_the_next() {
        check(
            "shm_mib = 64\ndisk_mib = 16\nargs = [\"{disk}\"]\nopen_files = 96\naddress_space_mib = 1",
            Some("/g"),
            "unshare|--mount|sh|-c|set -e\nmount -t tmpfs -o size=64m tmpfs /dev/shm\n\
             mount -t tmpfs -o size=16m tmpfs '/small'\necho 0 > '/g/cgroup.procs'\nexec \"$@\"|sh|env|--default-signal|\
             --unset=D|A=b c|prlimit|--nofile=96|--as=1048576",
        );
    }

    #[test]
    fn a_machine_without_powers_says_which() {
        let powers = Powers {
            groups: Err("no groups".into()),
            mounts: Err("no mounts".into()),
        };
        let why = |more| powers.lacking(&fault(more));
        assert_eq!(why(""), None);
        assert_eq!(why("memory_limit_mib = 1").as_deref(), Some("no groups"));
        assert_eq!(why("shm_mib = 1").as_deref(), Some("no mounts"));
    }
}
