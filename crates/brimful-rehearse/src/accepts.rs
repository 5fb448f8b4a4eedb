//! What a script takes on its command line: it is started until it looks at its arguments.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use brimful::job::Value;
use brimful::job::draft::Accepts;
use brimful::user_error::{ErrorKind, Hint, UserError};
use brimful_isolate::{Isolated, Isolation, ScratchFull, StartError};
use serde::Deserialize;

use crate::error::{GPU_IN_REACH, not_isolated};
use crate::protection::Protection;
use crate::results::tail;
use crate::script_end::ScriptEnd;
use crate::stage::Stage;
use crate::trackers;

const LOOK: Duration = Duration::from_millis(15);
/// Nothing is trained on it: it has room for any model that a script makes before it looks at its arguments.
const LARGE_GPU: &str =
    "name=NVIDIA A100-SXM4-80GB,memory=85097971712,held=0,cc=8.0,multiprocessors=108";
/// A parser of thousands of options takes less.
const MAX_RESULT_BYTES: u64 = 16 << 20;

/// What came of asking.
#[derive(Debug)]
pub enum Accepted {
    /// Its parser reported its options.
    Parsed(Accepts),
    /// It got past its arguments, or to its end, without a parser that can be watched.
    NeverParsed {
        /// How it ended; nothing where it was ended by us.
        status: Option<String>,
        output: String,
        /// Values that it was seen to use and that no option changes.
        hard_coded: Vec<HardCoded>,
    },
}

/// A call of the script with values that are written into it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct HardCoded {
    /// `DataLoader`, `TrainingArguments`.
    pub call: String,
    /// Below the working directory.
    pub file: String,
    pub line: u64,
    pub values: BTreeMap<String, Value>,
}

/// The script could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum AcceptsError {
    #[error("failed to start `{program}`")]
    Start {
        program: String,
        #[source]
        source: io::Error,
    },
    #[error("failed to write to the temporary directory")]
    Folder(#[source] io::Error),
    #[error(
        "the script was not started: no isolation is available to keep it from changing your files"
    )]
    NotIsolated { reasons: Vec<(Isolation, String)> },
    #[error("the script was not started: this machine's GPU cannot be hidden from it ({reason})")]
    GpuReached { reason: String },
    #[error(transparent)]
    ScratchFull(#[from] ScratchFull),
    #[error("the script did not parse its arguments within {} seconds", limit.as_secs())]
    TimeLimit { limit: Duration, output: String },
    #[error("the script ended with {ended} before it parsed its arguments")]
    Died { ended: ScriptEnd, output: String },
    #[error("interrupted while waiting for the script to parse its arguments")]
    Interrupted,
}

impl UserError for AcceptsError {
    fn kind(&self) -> ErrorKind {
        match self {
            AcceptsError::Folder(_)
            | AcceptsError::NotIsolated { .. }
            | AcceptsError::GpuReached { .. }
            | AcceptsError::ScratchFull(_) => ErrorKind::Environment,
            AcceptsError::Start { .. }
            | AcceptsError::TimeLimit { .. }
            | AcceptsError::Died { .. }
            | AcceptsError::Interrupted => ErrorKind::Input,
        }
    }

    fn hints(&self) -> Vec<Hint> {
        vec![match self {
            AcceptsError::Start { .. } => Hint::WriteCommand,
            AcceptsError::Folder(_) => {
                Hint::text("check that the temporary directory (TMPDIR) is writable")
            }
            AcceptsError::NotIsolated { reasons } => return not_isolated(reasons),
            AcceptsError::GpuReached { .. } => Hint::text(GPU_IN_REACH),
            AcceptsError::ScratchFull(_) => Hint::RaiseScratch,
            AcceptsError::TimeLimit { .. } => Hint::RaiseTimeLimit,
            AcceptsError::Died { .. } => Hint::text("see the end of its output for the reason"),
            AcceptsError::Interrupted => Hint::text("nothing was left running"),
        }]
    }

    fn script_output(&self) -> Option<&str> {
        match self {
            AcceptsError::TimeLimit { output, .. } | AcceptsError::Died { output, .. } => {
                Some(output)
            }
            _ => None,
        }
    }
}

/// What the hook wrote.
#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum Written {
    Problem {
        #[expect(dead_code, reason = "the hook's own words, for somebody who looks")]
        problem: String,
        #[serde(default)]
        hard_coded: Vec<HardCoded>,
    },
    Options(Accepts),
}

/// What is going on while the script runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// It was started this long ago.
    Since(Duration),
    /// An overlay was in its way: it is started once more with its writes redirected.
    Redirected,
}

/// Starts the script until its parser of arguments is asked, and ends it there.
///
/// With `phantom`, the library of the phantom GPU, it sees one large GPU, so that a script that looks for one reaches its
/// parser; without, it sees none.
///
/// `look` is called many times a second, and ends it by breaking.
pub fn accepts(
    command: &[OsString],
    time_limit: Duration,
    protection: &Protection,
    phantom: Option<&Path>,
    mut look: impl FnMut(Waiting) -> ControlFlow<()>,
) -> Result<Accepted, AcceptsError> {
    let first = accepts_in(command, time_limit, protection, phantom, None, &mut look);
    match &first {
        Err(AcceptsError::Died { output, .. }) if protection.may_redirect_after(output) => {
            if look(Waiting::Redirected).is_break() {
                return first;
            }
            let redirect = Some(Isolation::Redirect);
            match accepts_in(
                command, time_limit, protection, phantom, redirect, &mut look,
            ) {
                Err(AcceptsError::NotIsolated { .. } | AcceptsError::GpuReached { .. }) => first,
                second => second,
            }
        }
        _ => first,
    }
}

fn accepts_in(
    command: &[OsString],
    time_limit: Duration,
    protection: &Protection,
    phantom: Option<&Path>,
    isolation: Option<Isolation>,
    look: &mut dyn FnMut(Waiting) -> ControlFlow<()>,
) -> Result<Accepted, AcceptsError> {
    let start = Instant::now();
    let stage = match phantom {
        Some(phantom) => Stage::new(phantom),
        None => Stage::without_card(),
    };
    let stage = stage.map_err(AcceptsError::Folder)?;
    let results = stage.results().join("accepts.json");
    let output = stage.path().join("output");
    // Goes after the script.
    let _guard = protection.guard().map_err(AcceptsError::Folder)?;
    let mut staged = Command::new(command.first().cloned().unwrap_or_default());
    staged.args(command.iter().skip(1));
    if phantom.is_some() {
        stage
            .add_nvidia_smi(protection.program())
            .map_err(AcceptsError::Folder)?;
        stage.apply(&mut staged);
        staged.env("BRIMFUL_PHANTOM_DEVICES", LARGE_GPU);
    }
    stage.put_hook_for_arguments(&mut staged, &results);
    trackers::turn_off(&mut staged, &stage.results().join("trackers"));
    let mut child = spawn(&staged, &stage, &output, protection, isolation)?;
    let mut meter = protection.scratch().meter();
    let status = loop {
        meter.check(child.ancestor())?;
        if look(Waiting::Since(start.elapsed())).is_break() {
            child.end();
            return Err(AcceptsError::Interrupted);
        }
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            // A launcher may go on when its ranks have ended.
            Ok(None) if is_told(&results) || start.elapsed() > time_limit => break None,
            Ok(None) => std::thread::sleep(LOOK),
            Err(error) => return Err(AcceptsError::Folder(error)),
        }
    };
    child.end();
    let output = tail(&output);
    let hard_coded = match read(&results) {
        Some(Written::Options(accepts)) => return Ok(Accepted::Parsed(accepts)),
        Some(Written::Problem { hard_coded, .. }) => hard_coded,
        None => Vec::new(),
    };
    let stopped = is_told(&results);
    match status {
        None if !stopped => Err(AcceptsError::TimeLimit {
            limit: time_limit,
            output,
        }),
        Some(status) if let Some(ended) = ScriptEnd::of(status).filter(|_| !stopped) => {
            Err(AcceptsError::Died { ended, output })
        }
        status => Ok(Accepted::NeverParsed {
            status: status.filter(|_| !stopped).map(|status| status.to_string()),
            output,
            hard_coded,
        }),
    }
}

/// Whether the hook has written its last word.
fn is_told(results: &Path) -> bool {
    results.with_extension("done").exists()
}

pub(crate) fn read(results: &Path) -> Option<Written> {
    let mut bytes = Vec::new();
    brimful_private::open(results)
        .ok()?
        .take(MAX_RESULT_BYTES)
        .read_to_end(&mut bytes)
        .ok()?;
    serde_json::from_slice(&bytes).ok()
}

fn spawn(
    command: &Command,
    stage: &Stage,
    output: &Path,
    protection: &Protection,
    isolation: Option<Isolation>,
) -> Result<Isolated, AcceptsError> {
    let file = brimful_private::create_new(output).map_err(AcceptsError::Folder)?;
    protection
        .start(command, &file, &[stage.path().to_owned()], isolation)
        .map_err(|error| match error {
            StartError::NotStarted(source) => AcceptsError::Start {
                program: command.get_program().to_string_lossy().into_owned(),
                source,
            },
            StartError::NoIsolation { reasons } => AcceptsError::NotIsolated { reasons },
            StartError::GpuReached { reason } => AcceptsError::GpuReached { reason },
            StartError::Keeper(source) => AcceptsError::Folder(source),
        })
}
