//! Why a workflow has no result.

use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;

use brimful::cards::UnknownCard;
use brimful::job::JobError;
use brimful::profiles::UnknownProfile;
use brimful::units::{BadSize, ImplausibleLimit};
use brimful::user_error::{ErrorKind, Hint, UserError};
use brimful_probe::PlatformUnsupported;
use brimful_rehearse::{ConfigFileError, JobFileError, LastStep, PlanError, PredictionError};
use brimful_supervise::checkpoints::Refusal;

use crate::nodes::NoSharedDirectory;
use crate::verify_error::VerifyError;

/// A prediction, a plan or the preparation of a run failed.
#[derive(Debug, thiserror::Error)]
pub enum WorkflowError {
    #[error(transparent)]
    UnknownProfile(#[from] UnknownProfile),
    #[error(transparent)]
    UnknownCard(#[from] UnknownCard),
    #[error(transparent)]
    BadSize(#[from] BadSize),
    #[error(transparent)]
    ImplausibleLimit(#[from] ImplausibleLimit),
    #[error(transparent)]
    PlatformUnsupported(#[from] PlatformUnsupported),
    #[error("the phantom GPU library (libbrimful_phantom.so) was not found; searched {searched}")]
    NoPhantom { searched: String },
    #[error("failed to create a directory for files that a rehearsed script writes")]
    NoScratch(#[source] io::Error),
    #[error(
        "no job file found: the current directory has no brimful.toml and no [tool.brimful] in pyproject.toml"
    )]
    NoJob,
    #[error(transparent)]
    Job(#[from] JobError),
    #[error(transparent)]
    JobFile(#[from] JobFileError),
    #[error(transparent)]
    Config(#[from] ConfigFileError),
    #[error(transparent)]
    Prediction(#[from] PredictionError),
    #[error(transparent)]
    Plan(PlanError),
    #[error("expected the GPUs of one machine, found alternatives: `{list}`")]
    Alternatives { list: String },
    #[error("a price was given for `{name}`, which is not among the compared GPUs and machines")]
    UnknownPrice { name: String },
    #[error("the profile `{id}` names no GPU")]
    NoGpuInProfile { id: &'static str },
    #[error(transparent)]
    Verify(#[from] VerifyError),
    #[error(transparent)]
    NoCommand(#[from] NoCommand),
    #[error(transparent)]
    NoSharedDirectory(#[from] NoSharedDirectory),
    #[error(
        "`--nnodes={least}:{most}` lets the number of nodes change; a job file needs one number of nodes"
    )]
    ElasticNodes { least: u64, most: u64 },
    #[error("the number of nodes is not a number (`--nnodes`, PET_NNODES)")]
    UnknownNodes,
    #[error("`--virtual-local-rank` is not supported for a job file on several nodes")]
    VirtualLocalRanks,
    #[error("no settings of this job fit in memory; the job was not started")]
    NothingFits,
    #[error("no checkpoint of this job is usable{}", listed(.refused))]
    NoUsableCheckpoint { refused: Vec<(PathBuf, Refusal)> },
}

impl WorkflowError {
    /// How far the rehearsal had come, if the user interrupted it.
    pub fn interrupted(&self) -> Option<LastStep> {
        match self {
            WorkflowError::Prediction(error) => error.interrupted(),
            _ => None,
        }
    }

    fn inner(&self) -> Option<&dyn UserError> {
        Some(match self {
            WorkflowError::UnknownProfile(error) => error,
            WorkflowError::UnknownCard(error) => error,
            WorkflowError::BadSize(error) => error,
            WorkflowError::ImplausibleLimit(error) => error,
            WorkflowError::PlatformUnsupported(error) => error,
            WorkflowError::Job(error) => error,
            WorkflowError::JobFile(error) => error,
            WorkflowError::Config(error) => error,
            WorkflowError::Prediction(error) => error,
            WorkflowError::Plan(error) => error,
            WorkflowError::Verify(error) => error,
            WorkflowError::NoCommand(error) => error,
            WorkflowError::NoSharedDirectory(error) => error,
            WorkflowError::NoPhantom { .. }
            | WorkflowError::NoScratch(_)
            | WorkflowError::ElasticNodes { .. }
            | WorkflowError::UnknownNodes
            | WorkflowError::VirtualLocalRanks
            | WorkflowError::NoJob
            | WorkflowError::Alternatives { .. }
            | WorkflowError::UnknownPrice { .. }
            | WorkflowError::NoGpuInProfile { .. }
            | WorkflowError::NothingFits
            | WorkflowError::NoUsableCheckpoint { .. } => return None,
        })
    }
}

impl UserError for WorkflowError {
    fn kind(&self) -> ErrorKind {
        match self {
            WorkflowError::NoPhantom { .. } | WorkflowError::NoScratch(_) => ErrorKind::Environment,
            WorkflowError::NothingFits => ErrorKind::Outcome,
            other => other.inner().map_or(ErrorKind::Input, UserError::kind),
        }
    }

    fn hints(&self) -> Vec<Hint> {
        match self {
            WorkflowError::NoPhantom { .. } => vec![Hint::InstallPhantom],
            WorkflowError::NoScratch(_) => vec![Hint::text(
                "set TMPDIR to a writable directory on a disk (not tmpfs)",
            )],
            WorkflowError::Alternatives { .. } => vec![
                Hint::text("name one GPU model, or several of one machine, for example `2x t4`"),
                Hint::text("`compare` takes alternatives"),
            ],
            WorkflowError::UnknownNodes => {
                vec![Hint::text("write it out, for example `--nnodes=2`")]
            }
            WorkflowError::VirtualLocalRanks => vec![Hint::text("remove the option")],
            WorkflowError::ElasticNodes { most, .. } => vec![
                Hint::text(format!("write `--nnodes={most}`")),
                Hint::text(
                    "`brimful run -- torchrun …` watches such a job and does not restart it",
                ),
            ],
            WorkflowError::NoJob => vec![Hint::CreateJobFile, Hint::RunWithoutJob],
            WorkflowError::NothingFits => vec![Hint::AllowMoreKnobs, Hint::StartAsWanted],
            WorkflowError::NoUsableCheckpoint { refused } => {
                let is_lifted = |(_, why): &(PathBuf, Refusal)| why.is_lifted_by_force();
                let force = refused.iter().any(is_lifted).then_some(Hint::ForceResume);
                force
                    .into_iter()
                    .chain([Hint::StartFromBeginning])
                    .collect()
            }
            other => other.inner().map_or_else(Vec::new, UserError::hints),
        }
    }

    fn script_output(&self) -> Option<&str> {
        self.inner().and_then(UserError::script_output)
    }
}

impl From<PlanError> for WorkflowError {
    fn from(error: PlanError) -> WorkflowError {
        match error {
            PlanError::Prediction(error) => WorkflowError::Prediction(error),
            PlanError::Config(error) => WorkflowError::Config(error),
            PlanError::Endless => WorkflowError::Plan(error),
        }
    }
}

/// The command of an attempt could not be prepared.
#[derive(Debug, thiserror::Error)]
pub enum NoCommand {
    #[error(transparent)]
    Config(#[from] ConfigFileError),
    #[error("failed to write the order of an attempt to the temporary directory")]
    Order(#[from] io::Error),
}

impl UserError for NoCommand {
    fn kind(&self) -> ErrorKind {
        match self {
            NoCommand::Config(error) => error.kind(),
            NoCommand::Order(_) => ErrorKind::Environment,
        }
    }

    fn hints(&self) -> Vec<Hint> {
        match self {
            NoCommand::Config(error) => error.hints(),
            NoCommand::Order(_) => vec![Hint::text(
                "check that the temporary directory (TMPDIR) exists and has free space",
            )],
        }
    }
}

/// A line for each checkpoint, with the reason why it is refused.
fn listed(refused: &[(PathBuf, Refusal)]) -> String {
    const MAX_LISTED: usize = 10;
    let mut lines = String::new();
    for (path, why) in refused.iter().take(MAX_LISTED) {
        let path = path.display().to_string().replace(char::is_control, "?");
        let _ = write!(lines, "\n  {path}: {why}");
    }
    if refused.len() > MAX_LISTED {
        let _ = write!(lines, "\n  and {} more", refused.len() - MAX_LISTED);
    }
    lines
}
