//! `faults/never-worse/programs.toml`: the programs, and what is special about each.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

use crate::never_worse::promises::PROMISES;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    program: Vec<Program>,
}

/// Where a program runs.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Surroundings {
    Terminal,
    Pipe,
    Cron,
    Sbatch,
}

impl Surroundings {
    const ALL: [Surroundings; 4] = [
        Surroundings::Terminal,
        Surroundings::Pipe,
        Surroundings::Cron,
        Surroundings::Sbatch,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Surroundings::Terminal => "terminal",
            Surroundings::Pipe => "pipe",
            Surroundings::Cron => "cron",
            Surroundings::Sbatch => "sbatch",
        }
    }
}

/// One program. The file describes the fields.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Program {
    pub(crate) name: String,
    run: Option<Vec<String>>,
    sh: Option<String>,
    python: Option<String>,
    /// Whether the command is there to be started at all.
    #[serde(default = "yes")]
    pub(crate) is_started: bool,
    pub(crate) act: Option<String>,
    #[serde(default)]
    only: Vec<Surroundings>,
    #[serde(default)]
    pub(crate) caller: BTreeMap<String, Value>,
    #[serde(default)]
    pub(crate) environment: BTreeMap<String, Option<String>>,
    #[serde(default)]
    pub(crate) differs: Vec<String>,
}

fn yes() -> bool {
    true
}

impl Program {
    /// Where it runs.
    pub(crate) fn surroundings(&self) -> Vec<Surroundings> {
        if self.only.is_empty() {
            Surroundings::ALL.to_vec()
        } else {
            self.only.clone()
        }
    }

    /// The command.
    pub(crate) fn words(&self) -> Vec<String> {
        let script =
            |program: &str, text: &String| vec![program.to_owned(), "-c".to_owned(), text.clone()];
        let words = self.run.clone();
        words
            .or_else(|| self.sh.as_ref().map(|text| script("sh", text)))
            .or_else(|| self.python.as_ref().map(|text| script("python3", text)))
            .unwrap_or_default()
    }
}

/// The directory of the programs.
pub(crate) fn directory() -> PathBuf {
    crate::shell::root().join("faults/never-worse")
}

/// Every program, in the order of the file.
pub(crate) fn load() -> Result<Vec<Program>> {
    let path = directory().join("programs.toml");
    let text =
        std::fs::read_to_string(&path).with_context(|| format!("{} is missing", path.display()))?;
    parse(&text).with_context(|| path.display().to_string())
}

fn parse(text: &str) -> Result<Vec<Program>> {
    let manifest: Manifest = toml::from_str(text)?;
    let mut names = BTreeSet::new();
    for program in &manifest.program {
        let name = &program.name;
        ensure!(names.insert(name), "{name} is there twice");
        let n_commands = [
            program.run.is_some(),
            program.sh.is_some(),
            program.python.is_some(),
        ];
        ensure!(
            n_commands.iter().filter(|given| **given).count() == 1,
            "{name}: expected one of `run`, `sh` and `python`"
        );
        for differs in &program.differs {
            ensure!(
                PROMISES.iter().any(|promise| promise.id == differs),
                "{name}: there is no promise {differs}"
            );
        }
    }
    Ok(manifest.program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_are_as_described() {
        let programs = load().unwrap();
        assert!(programs.len() >= 60, "{}", programs.len());
        assert!(programs.iter().all(|program| !program.words().is_empty()));
    }

    #[test]
    fn a_program_has_one_command_and_known_promises() {
        assert!(parse("[[program]]\nname = \"a\"\nsh = \"true\"\n").is_ok());
        assert!(parse("[[program]]\nname = \"a\"\n").is_err());
        let both = "[[program]]\nname = \"a\"\nsh = \"true\"\npython = \"1\"\n";
        assert!(parse(both).is_err());
        let unknown = "[[program]]\nname = \"a\"\nsh = \"true\"\ndiffers = [\"speed\"]\n";
        assert!(parse(unknown).is_err());
    }
}
