//! Why a rehearsal brought no figures, and what to do about it.

use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use brimful::explain::{Detail, Evidence, explain};
use brimful::user_error::{ErrorKind, Hint, UserError};
use brimful_allocsim::snapshot::SnapshotError;
use brimful_isolate::{Isolation, ScratchFull, StartError};

use crate::guard::NotRestored;
use crate::reports::{LastStep, quoted};
use crate::script_end::ScriptEnd;

/// The rehearsal brought no figures.
#[derive(Debug, thiserror::Error)]
pub enum RehearsalError {
    #[error("failed to start `{program}`")]
    Start {
        program: String,
        #[source]
        source: io::Error,
    },
    #[error("failed to prepare the rehearsal in the temporary directory")]
    Stage(#[source] io::Error),
    #[error(
        "the script was not started: no isolation is available to keep it from changing your files"
    )]
    NotIsolated { reasons: Vec<(Isolation, String)> },
    #[error("the script was not started: this machine's GPU cannot be hidden from it ({reason})")]
    GpuReached { reason: String },
    #[error(transparent)]
    ScratchFull(#[from] ScratchFull),
    #[error("failed to back up the job's checkpoints; the script was not started")]
    Guard(#[source] io::Error),
    #[error(transparent)]
    NotRestored(#[from] NotRestored),
    #[error(
        "the rehearsal timed out after {} seconds with {made} of {steps} steps completed{}",
        limit.as_secs(),
        place.as_ref().map(|place| format!("; the script was at {place}")).unwrap_or_default()
    )]
    TimeLimit {
        limit: Duration,
        made: u32,
        steps: u32,
        /// Where it was at the end, if it had made no step for some time.
        place: Option<String>,
        output: String,
    },
    #[error(
        "the script stopped making progress: it has waited{} for {} seconds, with {made} of {steps} steps completed",
        place.as_ref().map(|place| format!(" at {place}")).unwrap_or_default(),
        waited.as_secs()
    )]
    Stalled {
        /// For how long none of its processes computed, read or wrote anything.
        waited: Duration,
        made: u32,
        steps: u32,
        place: Option<String>,
        output: String,
    },
    #[error("the rehearsal was interrupted {progress}")]
    Interrupted { progress: LastStep },
    #[error("torch {}was loaded without brimful's hook: {why}", torch.as_ref().map(|torch| format!("{torch} ")).unwrap_or_default())]
    Unhooked {
        torch: Option<String>,
        why: String,
        output: String,
    },
    #[error(
        "the script asked for input before its first optimizer step: {}",
        quoted(prompt)
    )]
    Input { prompt: String, output: String },
    #[error("failed to write the script's output to `{}`", path.display())]
    Output {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("failed to read the phantom GPU library `{}`", path.display())]
    Phantom {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "the script ended with {ended}{} {}{}",
        crash_place.as_ref().map(|place| format!(" ({place}),")).unwrap_or_default(),
        after(*made, *steps),
        assumed.as_ref().map(|place| format!(", after it read a value that only the model can compute ({place})")).unwrap_or_default()
    )]
    Died {
        ended: ScriptEnd,
        /// Where native code crashed.
        crash_place: Option<String>,
        made: u32,
        steps: u32,
        /// Where it last read a value that a rehearsal has to assume.
        assumed: Option<String>,
        output: String,
    },
    #[error("the script exited before brimful saw it import torch")]
    NoTorch { output: String },
    #[error("torch {torch} is a CPU-only build, which cannot rehearse this script: {found}")]
    NoCuda {
        torch: String,
        found: String,
        output: String,
    },
    #[error("the script ended without using the GPU")]
    GpuUnused { output: String },
    #[error("failed to read the measurements of the script's process: {what}")]
    Result { what: String },
    #[error("failed to read the allocator snapshot")]
    Snapshot(#[from] SnapshotError),
}

impl RehearsalError {
    /// Why `program` did not start.
    pub(crate) fn at_start(error: StartError, program: &OsStr) -> RehearsalError {
        match error {
            StartError::NotStarted(source) => RehearsalError::Start {
                program: program.to_string_lossy().into_owned(),
                source,
            },
            StartError::NoIsolation { reasons } => RehearsalError::NotIsolated { reasons },
            StartError::GpuReached { reason } => RehearsalError::GpuReached { reason },
            StartError::Keeper(source) => RehearsalError::Stage(source),
        }
    }

    /// The script's last words, where it ran out of host memory before its first steps.
    ///
    /// A card never runs out in a rehearsal: the last try has endless room.
    pub fn died_of_memory(&self) -> Option<String> {
        let RehearsalError::Died { ended, output, .. } = self else {
            return None;
        };
        let evidence = Evidence {
            text: output.clone(),
            ..Evidence::default()
        };
        let said = explain(&evidence);
        (ended.is_kill() || said.cause.is_memory()).then(|| {
            if said.cause.is_memory() {
                said.summary
            } else {
                format!("it ended with {ended}, as when the kernel kills when memory runs out")
            }
        })
    }

    /// Advice that names no option, so that it reads the same everywhere.
    fn advice(&self) -> &'static str {
        match self {
            RehearsalError::Stalled { .. } => {
                "a rehearsal runs alone, so what another process, a server or a person provides never arrives; skip the wait when the environment variable BRIMFUL_REHEARSAL is set"
            }
            RehearsalError::Interrupted { .. } => "nothing was left running",
            RehearsalError::Unhooked { .. } => {
                "import torch in the usual way, and start Python without -I, -E and -S, which ignore PYTHONPATH"
            }
            RehearsalError::Input { .. } => {
                "pass the answer as an option or an environment variable; a rehearsal cannot answer prompts"
            }
            RehearsalError::Output { .. } => "name a file in a writable directory",
            RehearsalError::Phantom { .. } => "reinstall brimful; the library comes with the wheel",
            RehearsalError::Died { output, .. } if is_about(output, Detail::NoScript) => {
                "check the path of the script and the working directory"
            }
            RehearsalError::Died { output, .. } if is_about(output, Detail::MissingModule) => {
                "this Python does not have the module: use the environment that has it, or install it there"
            }
            RehearsalError::Died {
                assumed: Some(_), ..
            } => {
                "a rehearsal assumes such values; if the script failed on one, skip that check when the environment variable BRIMFUL_REHEARSAL is set"
            }
            RehearsalError::Died { ended, .. } if ended.is_crash() => {
                "if the script does not crash without brimful, this is a bug in brimful; please report it with the versions of torch and of the library that crashed"
            }
            RehearsalError::Died { .. } => {
                "see the end of its output for the reason; a rehearsal needs the script to reach its first steps"
            }
            RehearsalError::NoTorch { .. } => {
                "check that the script imports torch, and that Python is not started with -I, -E or -S, which ignore PYTHONPATH"
            }
            RehearsalError::NoCuda { .. } => {
                "install the CUDA build of torch (the default on Linux); it needs no GPU and no driver"
            }
            RehearsalError::GpuUnused { .. } => {
                "the script must move its model to `cuda`, as it would on a machine with a GPU, and must not hide the GPU with CUDA_VISIBLE_DEVICES"
            }
            RehearsalError::NotRestored(_) => "copy it back by hand before you continue training",
            RehearsalError::GpuReached { .. } => GPU_IN_REACH,
            RehearsalError::Stage(_) => "check that the temporary directory (TMPDIR) is writable",
            RehearsalError::Result { .. } | RehearsalError::Snapshot(_) => {
                "this is a bug; please report it with the version of torch"
            }
            RehearsalError::Start { .. }
            | RehearsalError::TimeLimit { .. }
            | RehearsalError::NotIsolated { .. }
            | RehearsalError::Guard(_)
            | RehearsalError::ScratchFull(_) => "",
        }
    }
}

impl UserError for RehearsalError {
    fn kind(&self) -> ErrorKind {
        match self {
            RehearsalError::Stage(_)
            | RehearsalError::NotIsolated { .. }
            | RehearsalError::GpuReached { .. }
            | RehearsalError::ScratchFull(_)
            | RehearsalError::Guard(_)
            | RehearsalError::NotRestored(_)
            | RehearsalError::Unhooked { .. }
            | RehearsalError::Phantom { .. }
            | RehearsalError::Output { .. } => ErrorKind::Environment,
            RehearsalError::Result { .. } | RehearsalError::Snapshot(_) => ErrorKind::Bug,
            RehearsalError::Start { .. }
            | RehearsalError::TimeLimit { .. }
            | RehearsalError::Stalled { .. }
            | RehearsalError::Interrupted { .. }
            | RehearsalError::Input { .. }
            | RehearsalError::Died { .. }
            | RehearsalError::NoTorch { .. }
            | RehearsalError::NoCuda { .. }
            | RehearsalError::GpuUnused { .. } => ErrorKind::Input,
        }
    }

    fn hints(&self) -> Vec<Hint> {
        let hint = match self {
            RehearsalError::Start { .. } => Hint::WriteCommand,
            RehearsalError::TimeLimit {
                made: 0,
                place: Some(_),
                ..
            } => Hint::RaiseTimeLimitOrDoLess,
            RehearsalError::TimeLimit { made: 0, .. } => Hint::RaiseTimeLimit,
            RehearsalError::TimeLimit { .. } => Hint::RaiseTimeLimitOrLowerSteps,
            RehearsalError::Died { output, .. } if wants_more_gpus(output) => Hint::NameMoreGpus,
            RehearsalError::NotIsolated { reasons } => return not_isolated(reasons),
            RehearsalError::Guard(_) => Hint::IsolateOrRaiseScratch,
            RehearsalError::ScratchFull(_) => Hint::RaiseScratchOrWriteLess,
            _ => Hint::text(self.advice()),
        };
        vec![hint]
    }

    fn script_output(&self) -> Option<&str> {
        match self {
            RehearsalError::TimeLimit { output, .. }
            | RehearsalError::Stalled { output, .. }
            | RehearsalError::Unhooked { output, .. }
            | RehearsalError::Input { output, .. }
            | RehearsalError::Died { output, .. }
            | RehearsalError::NoTorch { output }
            | RehearsalError::NoCuda { output, .. }
            | RehearsalError::GpuUnused { output } => Some(output),
            _ => None,
        }
    }
}

/// What to do where a rehearsal could reach a GPU.
pub(crate) const GPU_IN_REACH: &str = "a rehearsal never uses the GPU of this machine; allow user namespaces or Landlock, which hide it (see docs/guides/predict.md)";

/// When it ended.
fn after(made: u32, steps: u32) -> String {
    match made {
        0 => "before its first optimizer step".to_owned(),
        _ => format!("after {made} of {steps} optimizer steps"),
    }
}

/// Why each isolation is not available, and how to make one available.
pub(crate) fn not_isolated(reasons: &[(Isolation, String)]) -> Vec<Hint> {
    let tried = reasons
        .iter()
        .map(|(isolation, reason)| Hint::text(format!("{isolation} is not available: {reason}")));
    tried.chain([Hint::AllowIsolation]).collect()
}

/// Whether the end of the output is explained by this detail of a verdict.
fn is_about(output: &str, detail: Detail) -> bool {
    let evidence = Evidence {
        text: output.to_owned(),
        ..Evidence::default()
    };
    explain(&evidence).detail == detail
}

/// Whether a script failed because it found fewer GPUs than it uses, in the words of PyTorch and Lightning.
fn wants_more_gpus(output: &str) -> bool {
    [
        "invalid device ordinal",
        "But your machine only has",
        "less than the number of accelerators available",
        "Invalid device id",
    ]
    .iter()
    .any(|words| output.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn died(output: &str, assumed: Option<&str>) -> RehearsalError {
        RehearsalError::Died {
            ended: ScriptEnd::Code(1),
            crash_place: None,
            made: 0,
            steps: 3,
            assumed: assumed.map(str::to_owned),
            output: output.into(),
        }
    }

    #[test]
    fn a_script_that_wants_more_gpus_is_told_how_to_name_them() {
        let error = died(
            "You requested gpu: [0, 1]\n But your machine only has: [0]",
            None,
        );
        assert_eq!(error.hints(), [Hint::NameMoreGpus]);
        assert_ne!(died("ValueError: 3", None).hints(), [Hint::NameMoreGpus]);
    }

    #[test]
    fn a_script_that_may_have_failed_on_a_value_is_told_where_it_read_one() {
        let error = died("AssertionError", Some("train.py:41"));
        assert!(error.to_string().contains("train.py:41"), "{error}");
        assert!(format!("{:?}", error.hints()).contains("BRIMFUL_REHEARSAL"));
    }
}
