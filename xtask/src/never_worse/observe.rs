//! Running a program once and seeing what becomes of it: by `surroundings.py`, one process per worker.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::json;

use crate::never_worse::programs::{self, Program, Surroundings};

const OBSERVER: &str = include_str!("surroundings.py");

/// Without brimful, or with these options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Supervision {
    Bare,
    Default,
    Silent,
}

impl Supervision {
    pub(crate) const ALL: [Supervision; 3] =
        [Supervision::Bare, Supervision::Default, Supervision::Silent];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Supervision::Bare => "nothing",
            Supervision::Default => "default options",
            Supervision::Silent => "--no-status --no-summary",
        }
    }

    fn prefix(self, brimful: &Path) -> Vec<String> {
        let options: &[&str] = match self {
            Supervision::Bare => return Vec::new(),
            Supervision::Default => &["run", "--"],
            Supervision::Silent => &["run", "--no-status", "--no-summary", "--"],
        };
        let program = brimful.display().to_string();
        let options = options.iter().map(|option| (*option).to_owned());
        [program].into_iter().chain(options).collect()
    }
}

/// What was seen of one run.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Observation {
    /// What kept the run from being observed.
    pub(crate) problem: Option<String>,
    /// It did not end by itself.
    pub(crate) late: bool,
    /// As `waitpid` gives it.
    #[serde(default)]
    pub(crate) status: i32,
    #[serde(default)]
    pub(crate) seconds: f64,
    /// In base64, as bytes need not be text.
    #[serde(default)]
    pub(crate) out: String,
    #[serde(default)]
    pub(crate) err: String,
    /// Names of processes that are still there.
    #[serde(default)]
    pub(crate) left: Vec<String>,
    /// The foreground process group and the modes of the terminal at the end.
    #[serde(default)]
    pub(crate) terminal: String,
    /// Attributes of the command at its start.
    #[serde(default)]
    pub(crate) state: BTreeMap<String, String>,
}

/// Runs programs, one after the other.
pub(crate) struct Observer {
    directory: PathBuf,
    brimful: PathBuf,
    process: Option<(Child, ChildStdin, BufReader<ChildStdout>)>,
}

impl Observer {
    pub(crate) fn new(directory: &Path, brimful: &Path) -> Observer {
        Observer {
            directory: directory.to_owned(),
            brimful: brimful.to_owned(),
            process: None,
        }
    }

    /// Runs a program once.
    pub(crate) fn observe(
        &mut self,
        program: &Program,
        surroundings: Surroundings,
        supervision: Supervision,
        name: &str,
    ) -> Result<Observation> {
        // All have paths of the same length: they are printed in error messages.
        let directory = self.directory.join(name.replace(' ', ""));
        let directory = directory.display().to_string();
        let mut words = supervision.prefix(&self.brimful);
        if program.is_started {
            let prelude = programs::directory().join("state.sh");
            words.extend([
                "sh".into(),
                prelude.display().to_string(),
                directory.clone(),
            ]);
        }
        words.extend(program.words());
        let case = json!({
            "directory": directory,
            "marker": format!("{}-{name}", std::process::id()),
            "surroundings": surroundings.name(),
            "words": words,
            "act": program.act,
            "caller": program.caller,
            "environment": program.environment,
        });
        let answer = self.ask(&case.to_string())?;
        serde_json::from_str(&answer).with_context(|| format!("in {answer:?}"))
    }

    fn ask(&mut self, question: &str) -> Result<String> {
        if self.process.is_none() {
            self.process = Some(start()?);
        }
        let (_, asked, answers) = self.process.as_mut().context("no observer")?;
        writeln!(asked, "{question}")?;
        let mut answer = String::new();
        answers.read_line(&mut answer)?;
        Ok(answer)
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        if let Some((mut child, asked, _)) = self.process.take() {
            drop(asked);
            let _ = child.wait();
        }
    }
}

fn start() -> Result<(Child, ChildStdin, BufReader<ChildStdout>)> {
    let mut child = Command::new("python3")
        .args(["-I", "-c", OBSERVER])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("python3 cannot be started")?;
    let asked = child.stdin.take().context("a pipe")?;
    let answers = BufReader::new(child.stdout.take().context("a pipe")?);
    Ok((child, asked, answers))
}
