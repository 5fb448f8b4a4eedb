//! Programs that misbehave on purpose, run for real under `brimful run`: is the verdict right, and is nothing left?
//!
//! The programs and what must hold for each are in `faults/`.

mod drive;
mod judge;
mod leftovers;
mod manifest;
mod signals;
mod surroundings;
mod table;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use brimful::explain::{Confidence, Verdict};
use brimful_rehearse::stage::Stage;
use serde::de::DeserializeOwned;

use crate::shell::{cargo, read, root, run as run_command};
use crate::tools::torch_environment;
use drive::Ended;
use judge::{Explained, Seen};
use manifest::Fault;
use surroundings::{Powers, Surroundings};
use table::{Counts, Document, Row};

/// A program that finds that it cannot go wrong here says so with this code.
const NOT_HERE: i32 = 75;

/// What may be asked.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) rounds: u32,
    /// How many more tries a run has that went wrong.
    pub(crate) retries: u32,
    pub(crate) only: Vec<String>,
    pub(crate) brimful: Option<PathBuf>,
    pub(crate) python: Option<PathBuf>,
    pub(crate) phantom: Option<PathBuf>,
    /// More options of `brimful run`.
    pub(crate) with: Vec<String>,
    pub(crate) bare: bool,
    /// Print what brimful said at the end of each.
    pub(crate) show: bool,
    /// Copy the record of each run into a directory of its name here.
    pub(crate) keep: Option<PathBuf>,
    pub(crate) json: bool,
}

/// What every run needs.
struct Tools {
    brimful: PathBuf,
    python: PathBuf,
    stage: Stage,
    powers: Powers,
    with: Vec<String>,
    bare: bool,
    show: bool,
    keep: Option<PathBuf>,
}

/// Runs the matrix; anything but perfect is an error.
pub(crate) fn run(options: &Options) -> Result<()> {
    let faults = manifest::choose(manifest::load()?, &options.only)?;
    let tools = Tools::new(options)?;
    let mut progress = Progress {
        to_stderr: options.json,
    };
    progress.say(&table::head())?;
    let mut rows = Vec::new();
    for round in 1..=options.rounds {
        if options.rounds > 1 {
            progress.say(&format!("round {round} of {}", options.rounds))?;
        }
        for fault in &faults {
            let row = tools
                .row_with_retries(fault, round, options.retries)
                .with_context(|| fault.name.clone())?;
            progress.say(&row.lines())?;
            rows.push(row);
        }
    }
    let counts = Counts::of(&rows);
    progress.say(&counts.lines(options.bare))?;
    let is_perfect = counts.is_perfect();
    if options.json {
        let document = Document {
            schema_version: 1,
            rounds: options.rounds,
            counts,
            runs: &rows,
        };
        println!("{}", serde_json::to_string_pretty(&document)?);
    }
    ensure!(is_perfect, "not every fault was told as it is");
    Ok(())
}

impl Tools {
    fn new(options: &Options) -> Result<Tools> {
        let python = match &options.python {
            Some(path) => std::path::absolute(path)?,
            None => torch_environment()?.bin().join("python"),
        };
        let brimful = match &options.brimful {
            _ if options.bare => PathBuf::new(),
            Some(path) => path.canonicalize().context("--brimful")?,
            None => built_brimful()?,
        };
        let phantom = crate::differential::phantom(options.phantom.clone())?;
        Ok(Tools {
            brimful,
            python,
            stage: Stage::new(&phantom).context("the phantom cannot be staged")?,
            powers: Powers::find(),
            with: options.with.clone(),
            bare: options.bare,
            show: options.show,
            keep: options.keep.clone(),
        })
    }

    /// One run of a fault, repeated while it goes wrong.
    ///
    /// The kernel chooses its victims by what lies in the page cache, among other things; one unlucky choice is reported
    /// and decides nothing.
    fn row_with_retries(&self, fault: &Fault, round: u32, retries: u32) -> Result<Row> {
        let mut row = self.row(fault, round)?;
        let mut earlier = Vec::new();
        for _ in 0..retries {
            if row.problems.is_empty() {
                break;
            }
            earlier.append(&mut row.problems);
            row = self.row(fault, round)?;
        }
        row.flaky = earlier;
        Ok(row)
    }

    /// One run of a fault.
    fn row(&self, fault: &Fault, round: u32) -> Result<Row> {
        let mut row = Row {
            fault: fault.name.clone(),
            round,
            expected: fault.cause.id().to_owned(),
            found: String::new(),
            summary: None,
            exit_code: None,
            seconds: 0.0,
            skipped: self.powers.lacking(fault),
            problems: Vec::new(),
            flaky: Vec::new(),
        };
        if row.skipped.is_some() {
            return Ok(row);
        }
        let surroundings = Surroundings::new(fault, &self.powers, &self.python, &self.stage)?;
        let before = leftovers::Before::now();
        let command = fault.command(&self.python, &surroundings.disk());
        let ended = if self.bare {
            let ended = drive::run(fault, &surroundings, &command)?;
            row.found = last_line(&ended);
            let code = fault.bare_exit_code.unwrap_or(fault.exit_code);
            row.problems = judge::endings(fault, &ended, code);
            ended
        } else {
            let seen = self.supervised(fault, &surroundings, &before, &command)?;
            row.found = match &seen.verdict {
                Ok(verdict) => format!(
                    "{}, {}, {}",
                    verdict.cause.id(),
                    verdict.detail,
                    word(verdict.confidence)
                ),
                Err(_) => "no verdict".to_owned(),
            };
            row.summary = seen
                .verdict
                .as_ref()
                .ok()
                .map(|verdict| verdict.summary.clone());
            row.problems = judge::judge(fault, &seen);
            // What happens once in a thousand runs is not seen again by asking: it has to be told at once.
            if self.show || !row.problems.is_empty() {
                writeln!(
                    std::io::stderr(),
                    "--- {}\n{}",
                    fault.name,
                    seen.ended.errors
                )?;
            }
            seen.ended
        };
        leftovers::end(&surroundings);
        leftovers::sweep_shared_memory(&before);
        row.exit_code = Some(ended.code);
        row.seconds = ended.seconds;
        if ended.code == NOT_HERE {
            row.skipped = Some(last_line(&ended));
            row.problems.clear();
        }
        Ok(row)
    }

    /// One run under brimful, and what brimful says about it afterwards.
    fn supervised(
        &self,
        fault: &Fault,
        surroundings: &Surroundings,
        before: &leftovers::Before,
        command: &[String],
    ) -> Result<Seen> {
        let state = surroundings.state();
        let supervise = |command: &[String]| {
            let mut words = vec![
                self.brimful.display().to_string(),
                "run".into(),
                "--no-status".into(),
                "--state-dir".into(),
                state.display().to_string(),
            ];
            words.extend(self.with.iter().chain(&fault.run_options).cloned());
            words.push("--".into());
            words.extend(command.iter().cloned());
            words
        };
        let ended = drive::run(fault, surroundings, &supervise(command))?;
        if ended.late.is_some() {
            // Cut off by us: what is left is not brimful's doing.
            return Ok(Seen {
                verdict: Err("cut off".into()),
                ended,
                leftovers: Vec::new(),
                unreadable: Vec::new(),
                next_run: None,
            });
        }
        if let Some(keep) = &self.keep {
            keep_record(&state, &keep.join(&fault.name))?;
        }
        let mut leftovers = leftovers::processes_left(surroundings);
        let verdict = self
            .explain(&state)
            .map_err(|error| format!("{error:#}; run: {}", ended.errors.trim()));
        let mut unreadable = unreadable(&state, fault.kills_brimful());
        match self.n_runs(&state) {
            Ok(1) => {}
            Ok(n_runs) => unreadable.push(format!("`brimful runs` shows {n_runs} runs")),
            Err(error) => unreadable.push(format!("{error:#}")),
        }
        let next_run = if fault.kills_brimful() {
            let next = Fault {
                after_ready: None,
                ..fault.clone()
            };
            let words = supervise(&["true".to_owned()]);
            Some(drive::run(&next, surroundings, &words)?.errors)
        } else {
            leftovers.extend(leftovers::files_left(&state));
            None
        };
        // A killed brimful cannot tidy up; the next one does it.
        leftovers.extend(leftovers::things_left(surroundings, before, ended.pid));
        Ok(Seen {
            ended,
            verdict,
            leftovers,
            unreadable,
            next_run,
        })
    }

    fn explain(&self, state: &Path) -> Result<Verdict> {
        let explained: Explained = self.ask("explain", state)?;
        Ok(explained.verdict)
    }

    fn n_runs(&self, state: &Path) -> Result<usize> {
        let document: serde_json::Value = self.ask("runs", state)?;
        let runs = document.get("runs").and_then(serde_json::Value::as_array);
        Ok(runs.context("no list of runs")?.len())
    }

    /// Asks brimful about the runs of a folder, from outside of the surroundings.
    fn ask<T: DeserializeOwned>(&self, what: &str, state: &Path) -> Result<T> {
        let mut command = std::process::Command::new(&self.brimful);
        command
            .args([what, "--json", "--state-dir"])
            .arg(state)
            .env("NO_COLOR", "1");
        let text = read(&mut command)?;
        serde_json::from_str(&text).with_context(|| format!("in {text:?}"))
    }
}

/// Copies the record of the only run and the snapshots that it refers to.
fn keep_record(state: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for record in leftovers::records(state) {
        fs::copy(
            &record,
            to.join(record.file_name().context("a record has a name")?),
        )?;
        for snapshots in ["snapshots", "inside/snapshots"] {
            let snapshots = fs::read_dir(record.with_file_name(snapshots));
            for entry in snapshots.into_iter().flatten().flatten() {
                fs::copy(entry.path(), to.join(entry.file_name()))?;
            }
        }
    }
    Ok(())
}

/// What cannot be read of the records of a run. One run makes one record.
fn unreadable(state: &Path, writer_was_killed: bool) -> Vec<String> {
    let records = leftovers::records(state);
    if records.len() != 1 {
        return vec![format!("expected one record, found {}", records.len())];
    }
    match fs::read(&records[0]) {
        Ok(bytes) => leftovers::unreadable(&String::from_utf8_lossy(&bytes), writer_was_killed),
        Err(error) => vec![error.to_string()],
    }
}

fn word(confidence: Confidence) -> &'static str {
    match confidence {
        Confidence::Proved => "proved",
        Confidence::Likely => "likely",
        Confidence::CannotTell => "cannot tell",
    }
}

/// The last thing that was said, for a table.
fn last_line(ended: &Ended) -> String {
    let lines = ended.errors.lines().rev().chain(ended.output.lines().rev());
    let line = lines
        .map(str::trim)
        .find(|line| line.chars().any(char::is_alphanumeric));
    line.unwrap_or("nothing").chars().take(48).collect()
}

/// The program that cargo builds.
pub(crate) fn built_brimful() -> Result<PathBuf> {
    run_command(&mut cargo(&[
        "build",
        "--quiet",
        "--package",
        "brimful-cli",
    ]))?;
    let target = std::env::var_os(crate::env_vars::CARGO_TARGET_DIR)
        .map_or_else(|| root().join("target"), PathBuf::from);
    let program = target.join("debug/brimful");
    if !program.is_file() {
        bail!("{} was not built", program.display());
    }
    Ok(program)
}

/// Rows as they come; beside a document they go to the other stream.
struct Progress {
    to_stderr: bool,
}

impl Progress {
    fn say(&mut self, text: &str) -> Result<()> {
        if self.to_stderr {
            writeln!(std::io::stderr(), "{text}")?;
        } else {
            println!("{text}");
        }
        Ok(())
    }
}
