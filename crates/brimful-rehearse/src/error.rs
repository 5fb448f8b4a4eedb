//! Why a rehearsal brought no figures, and what to do about it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use brimful::explain::{Evidence, explain};
use brimful_allocsim::snapshot::SnapshotError;
use brimful_isolate::{Isolation, ScratchFull};

use crate::guard::NotRestored;
use crate::reports::{LastStep, quoted};

/// The rehearsal brought no figures.
#[derive(Debug, thiserror::Error)]
pub enum RehearsalError {
    #[error("`{program}` could not be started")]
    Start {
        program: String,
        #[source]
        source: io::Error,
    },
    #[error("the rehearsal could not be prepared in the temporary folder")]
    Stage(#[source] io::Error),
    #[error("the script was not started: nothing here can keep it from changing your files")]
    NotIsolated { reasons: Vec<(Isolation, String)> },
    #[error(transparent)]
    ScratchFull(#[from] ScratchFull),
    #[error("the job's checkpoints cannot be copied aside, so the script was not started")]
    Guard(#[source] io::Error),
    #[error(transparent)]
    NotRestored(#[from] NotRestored),
    #[error(
        "{made} of {steps} steps were made within {} seconds{}",
        limit.as_secs(),
        doing.as_ref().map(|place| format!("; the script was at {place}")).unwrap_or_default()
    )]
    TimeLimit {
        limit: Duration,
        made: u32,
        steps: u32,
        /// Where it was at the end, if it had made no step.
        doing: Option<String>,
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
    #[error("the script's output cannot be written to `{}`", path.display())]
    Output {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the phantom GPU cannot be read from `{}`", path.display())]
    Phantom {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "the script ended with {status} before its first optimizer step{}",
        assumed.as_ref().map(|place| format!(", after it read a value that only the model can compute ({place})")).unwrap_or_default()
    )]
    Died {
        status: String,
        /// Where it last read a value that a rehearsal has to assume.
        assumed: Option<String>,
        output: String,
    },
    #[error("the script ended without importing torch in a Python that can be watched")]
    NoTorch { output: String },
    #[error(
        "torch {torch} is a build without CUDA; expected a script that runs on tensors without values, found {found}"
    )]
    NoCuda {
        torch: String,
        found: String,
        output: String,
    },
    #[error("the script ended without using the GPU")]
    GpuUnused { output: String },
    #[error("what the script's process wrote cannot be read: {what}")]
    Result { what: String },
    #[error("the allocator's snapshot cannot be read")]
    Snapshot(#[from] SnapshotError),
}

impl RehearsalError {
    /// The script's last words, where it ran out of host memory before its first steps.
    ///
    /// A card never runs out in a rehearsal: the last try has endless room.
    pub fn died_of_memory(&self) -> Option<String> {
        let RehearsalError::Died { status, output, .. } = self else {
            return None;
        };
        let evidence = Evidence {
            text: output.clone(),
            ..Evidence::default()
        };
        let killed = status.contains("signal: 9");
        let said = explain(&evidence);
        (killed || said.cause.is_memory()).then(|| {
            if said.cause.is_memory() {
                said.summary
            } else {
                format!("it ended with {status}, as when the kernel kills when memory runs out")
            }
        })
    }

    /// What to do next.
    pub fn hint(&self) -> &'static str {
        match self {
            RehearsalError::Start { .. } => {
                "write the command as you would start it, after `--`: `brimful predict -- python train.py`"
            }
            RehearsalError::TimeLimit {
                made: 0,
                doing: Some(_),
                ..
            } => {
                "if that line takes long before the first step, give it less to do (fewer examples, a smaller cache) or more time (--time-limit SECONDS); if it waits for something, a rehearsal cannot give it"
            }
            RehearsalError::TimeLimit { made: 0, .. } => {
                "give it more time (--time-limit SECONDS), or shorten what comes before the first step"
            }
            RehearsalError::TimeLimit { .. } => {
                "give it more time (--time-limit SECONDS), or ask for fewer steps"
            }
            RehearsalError::Interrupted { .. } => "nothing was left running",
            RehearsalError::Unhooked { .. } => {
                "import torch in the usual way, in a Python that reads PYTHONPATH (no -I, -E or -S)"
            }
            RehearsalError::Input { .. } => {
                "pass the answer as an option or an environment variable: nobody answers in a rehearsal"
            }
            RehearsalError::Output { .. } => "name a file in a folder that can be written",
            RehearsalError::Phantom { .. } => "it comes with the wheel: install brimful again",
            RehearsalError::Died { output, .. } if wants_more_gpus(output) => {
                "the script uses several GPUs: name as many, for example --gpu 2xl4"
            }
            RehearsalError::Died { output, .. } if is_about(output, "no_script") => {
                "the script does not exist: check its path and the working directory"
            }
            RehearsalError::Died { output, .. } if is_about(output, "missing_module") => {
                "this Python does not have the module: use the Python of the environment that has it, or install it there"
            }
            RehearsalError::Died {
                assumed: Some(_), ..
            } => {
                "a rehearsal assumes such values. If the script failed on one, skip that check where the environment variable BRIMFUL_REHEARSAL is set"
            }
            RehearsalError::Died { .. } => {
                "the end of its own output says why; it must run as far as its first steps"
            }
            RehearsalError::NoTorch { .. } => {
                "the script must import torch, and Python must read PYTHONPATH (no -I, -E or -S)"
            }
            RehearsalError::NoCuda { .. } => {
                "install the CUDA build of torch (the default on Linux): it needs no GPU and no driver here"
            }
            RehearsalError::GpuUnused { .. } => {
                "the script must put its model on `cuda`, as it would on a machine with a card"
            }
            RehearsalError::NotIsolated { .. } => {
                "allow user namespaces or Landlock (docs/guides/predict.md says how), or rehearse with --allow-writes: the script then writes for real"
            }
            RehearsalError::NotRestored(_) => "copy it back by hand before you go on training",
            RehearsalError::Guard(_) => {
                "rehearse without --allow-writes, or give more with --scratch SIZE"
            }
            RehearsalError::ScratchFull(_) => {
                "give it more with --scratch SIZE, or have the script write less in its first steps"
            }
            RehearsalError::Stage(_) => "look whether the temporary folder (TMPDIR) can be written",
            RehearsalError::Result { .. } | RehearsalError::Snapshot(_) => {
                "please report this together with the version of torch"
            }
        }
    }

    /// The end of the script's own output, where it may tell more.
    pub fn output(&self) -> Option<&str> {
        match self {
            RehearsalError::TimeLimit { output, .. }
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

/// Whether the end of the output is explained by this detail of a verdict.
fn is_about(output: &str, detail: &str) -> bool {
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
            status: "exit status: 1".into(),
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
        assert!(error.hint().contains("--gpu 2xl4"));
        assert!(!died("ValueError: 3", None).hint().contains("--gpu"));
    }

    #[test]
    fn a_script_that_may_have_failed_on_a_value_is_told_where_it_read_one() {
        let error = died("AssertionError", Some("train.py:41"));
        assert!(error.to_string().contains("train.py:41"), "{error}");
        assert!(error.hint().contains("BRIMFUL_REHEARSAL"));
    }
}
