//! A command for real, on this machine's GPUs: as many steps as were rehearsed, isolated as a rehearsal is.
//!
//! The script computes, and what it writes goes to scratch. There is no phantom; the hook counts its steps, measures and
//! ends it (`brimful_verify.py`).

use std::ffi::OsString;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use brimful_isolate::Isolation;
use serde::Deserialize;

use crate::error::RehearsalError;
use crate::events::{Event, Progress, ProgressFile};
use crate::protection::Protection;
use crate::reports::LastStep;
use crate::results::{bounded, tail};
use crate::script_end::ScriptEnd;
use crate::stage::Stage;
use crate::trackers;

/// How long the loop sleeps between two looks at the script.
const LOOK: Duration = Duration::from_millis(50);
/// Ending of the files that the hook writes.
const MEASURED: &str = "measured";
/// More than any of them.
const MAX_MEASURED_BYTES: u64 = 1 << 20;
/// Ranks on one machine.
const MAX_PROCESSES: usize = 64;

/// What to run.
#[derive(Debug)]
pub struct RealRunRequest<'a> {
    /// The script's command behind whatever watches it.
    pub command: Vec<OsString>,
    /// Holds the hook and its results; whatever watches the script may write below it too.
    pub stage: &'a Stage,
    /// The value of `CUDA_VISIBLE_DEVICES`.
    pub visible_gpus: String,
    pub steps: u32,
    pub time_limit: Duration,
    /// Where the script's own output goes; into a temporary file without it.
    pub output: Option<PathBuf>,
    pub protection: Protection,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct RealRun {
    pub isolation: Isolation,
    /// By rank; none where the script made no step on a GPU.
    pub processes: Vec<MeasuredProcess>,
    /// How it ended, if not with success.
    pub failure: Option<ScriptEnd>,
    /// The end of the script's own output.
    pub output: String,
    pub last_step: LastStep,
}

/// What one process of the script measured of itself.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct MeasuredProcess {
    pub torch: String,
    pub cuda: Option<String>,
    pub cudnn: Option<u64>,
    pub rank: u32,
    pub world_size: u32,
    /// Optimizer steps, and how many of them were timed, in how many seconds.
    pub steps: u32,
    pub timed_steps: u32,
    pub timed_seconds: f64,
    /// The time during which it held all of its memory and did nothing, as the run record counts.
    pub held_from_ms: u64,
    pub held_until_ms: u64,
    pub devices: Vec<MeasuredDevice>,
}

/// The allocator of one process on one GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct MeasuredDevice {
    /// As the process numbers it.
    pub device: u32,
    pub peak_allocated_bytes: u64,
    pub peak_reserved_bytes: u64,
    /// While all was held.
    pub reserved_bytes: u64,
    pub retries: u64,
}

/// Runs the command until it has made its steps.
///
/// `look` is called many times a second, with something to show or without, and ends the run by breaking.
pub fn run_for_real(
    request: &RealRunRequest<'_>,
    mut look: impl FnMut(Option<&Progress>) -> ControlFlow<()>,
) -> Result<RealRun, RehearsalError> {
    let first = run_in(request, None, &mut look)?;
    let has_failed = first.failure.is_some() && first.last_step.step == 0;
    if has_failed && request.protection.may_redirect_after(&first.output) {
        if look(Some(&Progress::own(Event::Redirected))).is_break() {
            return Ok(first);
        }
        match run_in(request, Some(Isolation::Redirect), &mut look) {
            Err(RehearsalError::NotIsolated { .. }) => return Ok(first),
            second => return second,
        }
    }
    Ok(first)
}

fn run_in(
    request: &RealRunRequest<'_>,
    isolation: Option<Isolation>,
    look: &mut dyn FnMut(Option<&Progress>) -> ControlFlow<()>,
) -> Result<RealRun, RehearsalError> {
    let start = Instant::now();
    let results = request.stage.results();
    let output = match &request.output {
        Some(named) => named.clone(),
        None if isolation.is_none() => request.stage.path().join("output"),
        None => request.stage.path().join("output-redirected"),
    };
    // Goes after the script.
    let guard = request.protection.guard().map_err(RehearsalError::Guard)?;
    let mut script = spawn(request, &output, isolation)?;
    let isolation = script.isolation();
    let mut meter = request.protection.scratch().meter();
    let mut lines = ProgressFile::new(results.join("progress"));
    let mut seen = Vec::new();
    let mut read = |look: &mut dyn FnMut(Option<&Progress>) -> ControlFlow<()>| {
        for line in lines.read() {
            look(Some(&line))?;
            seen.push(line.event);
        }
        look(None)
    };
    let status = loop {
        let is_interrupted = read(look).is_break();
        if is_interrupted || start.elapsed() > request.time_limit {
            script.end();
            break None;
        }
        meter.check(script.ancestor())?;
        match script.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) => std::thread::sleep(LOOK),
            Err(error) => return Err(RehearsalError::Stage(error)),
        }
    };
    let is_interrupted = read(look).is_break();
    script.end();
    request.protection.scratch().remove(script.scratch());
    guard.restore()?;
    let last_step = LastStep::of(&seen);
    let Some(status) = status else {
        if is_interrupted {
            return Err(RehearsalError::Interrupted {
                progress: last_step,
            });
        }
        return Err(RehearsalError::TimeLimit {
            limit: request.time_limit,
            made: last_step.step,
            steps: request.steps,
            place: None,
            output: tail(&output),
        });
    };
    Ok(RealRun {
        isolation,
        processes: measured(&results)?,
        failure: ScriptEnd::of(status),
        output: tail(&output),
        last_step,
    })
}

fn spawn(
    request: &RealRunRequest<'_>,
    output: &Path,
    isolation: Option<Isolation>,
) -> Result<brimful_isolate::Isolated, RehearsalError> {
    let program = request.command.first().cloned().unwrap_or_default();
    let mut command = Command::new(&program);
    command.args(request.command.iter().skip(1));
    request.stage.apply_hook_for_real(&mut command);
    command
        .env("CUDA_VISIBLE_DEVICES", &request.visible_gpus)
        .env("BRIMFUL_REHEARSAL_STEPS", request.steps.to_string())
        // It is no run of the user's, and is not counted among them.
        .env_remove("BRIMFUL_RECORDS");
    trackers::turn_off(&mut command, &request.stage.results().join("trackers"));
    let file = match &request.output {
        Some(named) => brimful_private::create_named(named),
        None => brimful_private::create_new(output),
    };
    let file = file.map_err(|source| RehearsalError::Output {
        path: output.to_owned(),
        source,
    })?;
    let writable = [request.stage.path().to_owned()];
    request
        .protection
        .start_for_real(&command, &file, &writable, isolation)
        .map_err(|error| RehearsalError::at_start(error, &program))
}

/// What the hook of each process wrote.
fn measured(results: &Path) -> Result<Vec<MeasuredProcess>, RehearsalError> {
    let unreadable = |what: &dyn std::fmt::Display| RehearsalError::Result {
        what: what.to_string().chars().take(300).collect(),
    };
    let entries = fs::read_dir(results).map_err(|error| unreadable(&error))?;
    let mut found: Vec<MeasuredProcess> = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.extension().is_none_or(|ending| ending != MEASURED) || found.len() >= MAX_PROCESSES
        {
            continue;
        }
        let bytes = bounded(&path, MAX_MEASURED_BYTES).map_err(|error| unreadable(&error))?;
        found.push(serde_json::from_slice(&bytes).map_err(|error| unreadable(&error))?);
    }
    found.retain(|process| !process.devices.is_empty());
    found.sort_by_key(|process| process.rank);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_hook_wrote_is_read_by_rank() {
        let directory = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| {
            fs::write(directory.path().join(name), text).expect("a disk");
        };
        let device = r#"{"device":0,"peak_allocated_bytes":1,"peak_reserved_bytes":2,"reserved_bytes":2,"retries":0}"#;
        write(
            "9.measured",
            &format!(r#"{{"rank":1,"devices":[{device}]}}"#),
        );
        write(
            "7.measured",
            &format!(
                r#"{{"torch":"2.13.0","cuda":"13.0","cudnn":null,"rank":0,"world_size":2,"steps":10,"timed_steps":7,
                "timed_seconds":1.5,"held_from_ms":3000,"held_until_ms":6000,"reason":"steps","devices":[{device}]}}"#
            ),
        );
        write("8.measured", r#"{"rank":2,"devices":[]}"#);
        write("progress", "{}");
        let found = measured(directory.path()).expect("two processes");
        let ranks: Vec<u32> = found.iter().map(|process| process.rank).collect();
        assert_eq!(ranks, [0, 1]);
        assert_eq!((found[0].timed_steps, found[0].devices.len()), (7, 1));
        write("10.measured", "{");
        let error = measured(directory.path()).expect_err("cut short");
        assert!(matches!(error, RehearsalError::Result { .. }));
    }
}
