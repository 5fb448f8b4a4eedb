//! `faults/faults.toml`: what each program must end with.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use brimful::explain::{Cause, Confidence};
use serde::Deserialize;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    fault: Vec<Fault>,
}

/// One program in its surroundings, and what must be said about its end.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fault {
    pub(crate) name: String,
    /// A file beside the manifest.
    pub(crate) program: String,
    #[serde(default)]
    pub(crate) args: Vec<String>,

    pub(crate) memory_limit_mib: Option<u64>,
    /// As containers have it: control groups can only be read, and the kernel's log is not there.
    #[serde(default)]
    pub(crate) container: bool,
    pub(crate) open_files: Option<u64>,
    pub(crate) address_space_mib: Option<u64>,
    pub(crate) shm_mib: Option<u64>,
    pub(crate) disk_mib: Option<u64>,
    /// The phantom's devices, or `none` for a program that uses torch without a card.
    pub(crate) gpu: Option<String>,
    /// Options of `brimful run`.
    #[serde(default)]
    pub(crate) run_options: Vec<String>,

    pub(crate) after_ready: Option<Outside>,
    /// Before that, the kernel kills somebody else's program, in a group of its own, for want of memory.
    #[serde(default)]
    pub(crate) neighbor_killed: bool,

    pub(crate) exit_code: i32,
    /// Without brimful, where that differs.
    pub(crate) bare_exit_code: Option<i32>,
    pub(crate) prints: Option<String>,
    pub(crate) cause: Cause,
    #[serde(default)]
    pub(crate) detail: Vec<String>,
    #[serde(default)]
    pub(crate) confidence: Vec<Confidence>,
    #[serde(default)]
    pub(crate) evidence: Vec<String>,
    #[serde(default)]
    pub(crate) remedies: Vec<String>,
    pub(crate) next_run_says: Option<String>,
    #[serde(default = "usual_time_limit")]
    pub(crate) time_limit_s: u64,
}

/// What somebody does from outside once the program says that it is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Outside {
    pub(crate) signal: Signal,
    pub(crate) to: Target,
    /// The program must outlive the signal; a moment later it is killed, as schedulers do.
    #[serde(default)]
    pub(crate) then_kill: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) enum Signal {
    #[serde(rename = "INT")]
    Interrupt,
    #[serde(rename = "TERM")]
    Terminate,
    #[serde(rename = "KILL")]
    Kill,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Target {
    /// The process that was started: brimful, or the program itself without it.
    Brimful,
    /// The program.
    Training,
    /// brimful and everything in its control group.
    Everything,
}

/// Several times what the slowest takes on two busy cores.
fn usual_time_limit() -> u64 {
    60
}

/// The folder of the programs.
pub(crate) fn folder() -> PathBuf {
    crate::shell::root().join("faults")
}

/// Every fault, in the order of the file.
pub(crate) fn load() -> Result<Vec<Fault>> {
    let path = folder().join("faults.toml");
    let text =
        std::fs::read_to_string(&path).with_context(|| format!("{} is missing", path.display()))?;
    let faults = parse(&text).with_context(|| path.display().to_string())?;
    for fault in &faults {
        let program = folder().join(&fault.program);
        ensure!(
            program.is_file(),
            "{}: {} is not there",
            fault.name,
            program.display()
        );
    }
    Ok(faults)
}

fn parse(text: &str) -> Result<Vec<Fault>> {
    let manifest: Manifest = toml::from_str(text)?;
    let mut names = BTreeSet::new();
    for fault in &manifest.fault {
        let name = &fault.name;
        ensure!(names.insert(name), "{name} is there twice");
        ensure!(
            (0..=255).contains(&fault.exit_code),
            "{name}: expected an exit code from 0 to 255, found {}",
            fault.exit_code
        );
        ensure!(
            fault.disk_mib.is_some() == fault.args.iter().any(|text| text.contains("{disk}")),
            "{name}: `disk_mib` and `{{disk}}` go together"
        );
        ensure!(
            fault.after_ready.is_some() || !fault.neighbor_killed,
            "{name}: `neighbor_killed` needs `after_ready`"
        );
        let kills_everything = fault
            .after_ready
            .is_some_and(|act| act.to == Target::Everything);
        ensure!(
            kills_everything == fault.next_run_says.is_some(),
            "{name}: where everything is killed, `next_run_says` is expected, and only there"
        );
    }
    Ok(manifest.fault)
}

/// The named ones; all of them if none is named.
pub(crate) fn choose(faults: Vec<Fault>, names: &[String]) -> Result<Vec<Fault>> {
    for name in names {
        ensure!(
            faults.iter().any(|fault| fault.name == *name),
            "expected one of {}, found {name}",
            faults
                .iter()
                .map(|fault| fault.name.as_str())
                .collect::<Vec<_>>()
                .join(", ")
        );
    }
    Ok(faults
        .into_iter()
        .filter(|fault| names.is_empty() || names.contains(&fault.name))
        .collect())
}

impl Fault {
    /// The program and its arguments.
    pub(crate) fn command(&self, python: &Path, disk: &Path) -> Vec<String> {
        let program = folder().join(&self.program).display().to_string();
        let python = python.display().to_string();
        let is_python = has_ending(&self.program, "py");
        let mut words = if is_python {
            vec![python.clone(), program]
        } else {
            vec![program]
        };
        words.extend(self.args.iter().map(|text| {
            text.replace("{python}", &python)
                .replace("{disk}", &disk.display().to_string())
        }));
        words
    }

    /// Whether it needs mounts of its own.
    pub(crate) fn needs_mounts(&self) -> bool {
        self.shm_mib.is_some() || self.disk_mib.is_some() || self.container
    }

    /// Whether it needs a control group: for its limit, or to find everything in it.
    pub(crate) fn needs_group(&self) -> bool {
        self.memory_limit_mib.is_some()
            || self.neighbor_killed
            || self
                .after_ready
                .is_some_and(|act| act.to == Target::Everything)
    }

    /// Whether brimful gives the verdict when the run is over: not for one that went well or was stopped by its user.
    pub(crate) fn is_told_at_once(&self) -> bool {
        let by_the_user = self
            .after_ready
            .is_some_and(|act| act.to == Target::Brimful && !act.then_kill);
        self.exit_code != 0 && !by_the_user && !self.kills_brimful()
    }

    /// Whether brimful is killed too, and so cannot write the end of its record or tidy up.
    pub(crate) fn kills_brimful(&self) -> bool {
        self.after_ready
            .is_some_and(|act| act.to == Target::Everything)
    }
}

fn has_ending(name: &str, ending: &str) -> bool {
    Path::new(name)
        .extension()
        .is_some_and(|found| found == ending)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(more: &str) -> Result<Fault> {
        let text = format!(
            "[[fault]]\nname = \"a\"\nprogram = \"a.py\"\nexit_code = 1\ncause = \"not_memory\"\n{more}\n"
        );
        parse(&text).map(|mut faults| faults.remove(0))
    }

    fn check_refused(more: &str, expected: &str) {
        let error = format!("{:#}", one(more).unwrap_err());
        assert!(
            error.contains(expected),
            "`{error}` should say `{expected}`"
        );
    }

    #[test]
    fn what_is_not_said_is_not_there() {
        let fault = one("").unwrap();
        assert_eq!(
            (fault.memory_limit_mib, fault.time_limit_s, fault.cause),
            (None, 60, Cause::NotMemory)
        );
        assert!(!fault.needs_mounts() && !fault.needs_group() && !fault.kills_brimful());
    }

    #[test]
    fn commands_name_the_python_and_the_disk() {
        let fault = one("args = [\"{disk}\", \"x\"]\ndisk_mib = 16").unwrap();
        let words = fault.command(Path::new("/py"), Path::new("/small"));
        assert_eq!((words[0].as_str(), words[2].as_str()), ("/py", "/small"));
        assert!(words[1].ends_with("faults/a.py"));
    }

    #[test]
    fn scripts_are_programs_themselves() {
        let mut fault = one("args = [\"{python}\"]").unwrap();
        fault.program = "a.sh".into();
        let words = fault.command(Path::new("/py"), Path::new("/small"));
        assert!(words[0].ends_with("faults/a.sh"));
        assert_eq!(words[1], "/py");
    }

    #[test]
    fn mistakes_are_refused() {
        check_refused("color = \"red\"", "color");
        check_refused("confidence = [\"sure\"]", "sure");
        check_refused("disk_mib = 16", "go together");
        check_refused("neighbor_killed = true", "needs `after_ready`");
        check_refused(
            "after_ready = { signal = \"KILL\", to = \"everything\" }",
            "next_run_says",
        );
        check_refused(
            "after_ready = { signal = \"HUP\", to = \"brimful\" }",
            "HUP",
        );
        let twice =
            "[[fault]]\nname = \"a\"\nprogram = \"a.py\"\nexit_code = 1\ncause = \"not_memory\"\n"
                .repeat(2);
        assert!(
            format!("{:#}", parse(&twice).unwrap_err()).contains("twice"),
            "{twice}"
        );
    }

    #[test]
    fn the_manifest_of_the_repository_is_sound() {
        let faults = load().unwrap();
        assert!(faults.len() >= 22, "{} faults", faults.len());
        let causes: BTreeSet<Cause> = faults.iter().map(|fault| fault.cause).collect();
        let missing: Vec<&str> = Cause::ALL
            .into_iter()
            .filter(|cause| !causes.contains(cause))
            .map(Cause::id)
            .collect();
        assert!(missing.is_empty(), "no fault for {missing:?}");
    }

    #[test]
    fn every_program_is_used() {
        let used: BTreeSet<String> = load()
            .unwrap()
            .into_iter()
            .map(|fault| fault.program)
            .collect();
        for entry in std::fs::read_dir(folder()).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(
                !has_ending(&name, "py") && !has_ending(&name, "sh") || used.contains(&name),
                "{name} has no entry in faults.toml"
            );
        }
    }

    #[test]
    fn unknown_names_are_told_the_known_ones() {
        let faults = vec![one("").unwrap()];
        let error = choose(faults.clone(), &["b".into()])
            .unwrap_err()
            .to_string();
        assert_eq!(error, "expected one of a, found b");
        assert_eq!(choose(faults, &[]).unwrap().len(), 1);
    }
}
