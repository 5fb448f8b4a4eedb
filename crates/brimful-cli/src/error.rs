//! What goes wrong, by whose turn it is.

use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;

use brimful::cards::UnknownCard;
use brimful::job::JobError;
use brimful::profiles::UnknownProfile;
use brimful::record::RecordUnreadable;
use brimful::units::ImplausibleLimit;
use brimful_allocsim::settings::SettingsError;
use brimful_allocsim::version::VersionError;
use brimful_isolate::Isolation;
use brimful_probe::PlatformUnsupported;
use brimful_rehearse::{
    AcceptsError, ConfigFileError, JobFileError, PlanError, PredictionError, RehearsalError,
};
use brimful_supervise::checkpoints::Refusal;
use brimful_supervise::{RunError, RunNotFound};

use crate::exit::ExitStatus;

/// A command could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    #[error(transparent)]
    UnknownProfile(#[from] UnknownProfile),
    #[error(transparent)]
    UnknownCard(#[from] UnknownCard),
    #[error(transparent)]
    ImplausibleLimit(#[from] ImplausibleLimit),
    #[error("expected a Python executable, found none at `{path}`")]
    NoSuchPython { path: String },
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    Version(#[from] VersionError),
    #[error("the phantom GPU (libbrimful_phantom.so) was not found; looked at {looked}")]
    NoPhantom { looked: String },
    #[error("there is no directory for what a rehearsed script writes")]
    NoScratch(#[source] io::Error),
    #[error(
        "expected a job in this folder, found neither brimful.toml nor [tool.brimful] in pyproject.toml"
    )]
    NoJob,
    #[error(transparent)]
    Job(#[from] JobError),
    #[error("no settings of the job fit here; it was not started")]
    NothingFits,
    #[error("none of the job's checkpoints can be resumed from{}", listed(.refused))]
    NoUsableCheckpoint { refused: Vec<(PathBuf, Refusal)> },
    #[error("the search for settings came to no end")]
    Endless,
    #[error(transparent)]
    Prediction(#[from] PredictionError),
    #[error("`{}` cannot be read", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("file `{}` does not exist", path.display())]
    NoSuchFile { path: PathBuf },
    #[error("`{}` cannot be written", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("`{}` is not a record that can be replayed: {problem}", path.display())]
    Unreadable {
        path: PathBuf,
        problem: String,
        hint: String,
    },
    #[error("`{}` holds no history: there is nothing to replay", path.display())]
    EmptyRecord { path: PathBuf },
    #[error(transparent)]
    PlatformUnsupported(#[from] PlatformUnsupported),
    #[error("neither --state-dir nor HOME says where runs are kept")]
    NoStateDir,
    #[error(transparent)]
    NoSuchRun(#[from] RunNotFound),
    #[error("run {id} is still going on")]
    StillRunning { id: String },
    #[error("`{}` is not a run record", path.display())]
    Record {
        path: PathBuf,
        #[source]
        source: RecordUnreadable,
    },
    #[error(transparent)]
    JobFile(#[from] JobFileError),
    #[error(transparent)]
    Config(#[from] ConfigFileError),
    #[error("`{}` is there already", path.display())]
    FileExists { path: PathBuf },
    #[error(transparent)]
    Accepts(#[from] AcceptsError),
    #[error("the drafted job file cannot be read back")]
    Draft(#[source] JobError),
    #[error("`{program}` cannot be started")]
    NotStarted {
        program: String,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Run(#[from] RunError),
    #[error("the document could not be written as JSON")]
    Json(#[from] serde_json::Error),
    #[error("standard output cannot be written")]
    Output(#[source] io::Error),
}

impl CommandError {
    pub(crate) fn status(&self) -> ExitStatus {
        match self {
            CommandError::UnknownProfile(_)
            | CommandError::UnknownCard(_)
            | CommandError::ImplausibleLimit(_)
            | CommandError::Settings(_)
            | CommandError::Version(_)
            | CommandError::Read { .. }
            | CommandError::NoSuchFile { .. }
            | CommandError::Unreadable { .. }
            | CommandError::EmptyRecord { .. }
            | CommandError::NoJob
            | CommandError::Job(_)
            | CommandError::NoStateDir
            | CommandError::NoSuchRun(_)
            | CommandError::StillRunning { .. }
            | CommandError::Record { .. }
            | CommandError::NotStarted { .. }
            | CommandError::JobFile(_)
            | CommandError::Config(_)
            | CommandError::NoUsableCheckpoint { .. }
            | CommandError::FileExists { .. }
            | CommandError::NoSuchPython { .. } => ExitStatus::BadInput,
            CommandError::PlatformUnsupported(_)
            | CommandError::NoPhantom { .. }
            | CommandError::NoScratch(_)
            | CommandError::Write { .. }
            | CommandError::Run(_)
            | CommandError::Output(_) => ExitStatus::MachineRefuses,
            CommandError::Prediction(error) => match error {
                PredictionError::BesideDriver
                | PredictionError::Rehearsal(
                    RehearsalError::Stage(_)
                    | RehearsalError::NotIsolated { .. }
                    | RehearsalError::ScratchFull(_)
                    | RehearsalError::Guard(_)
                    | RehearsalError::NotRestored(_)
                    | RehearsalError::Unhooked { .. }
                    | RehearsalError::Phantom { .. }
                    | RehearsalError::Output { .. },
                ) => ExitStatus::MachineRefuses,
                PredictionError::NoFigures
                | PredictionError::Rehearsal(
                    RehearsalError::Result { .. } | RehearsalError::Snapshot(_),
                ) => ExitStatus::InternalError,
                _ => ExitStatus::BadInput,
            },
            CommandError::NothingFits => ExitStatus::DoesNotFit,
            CommandError::Accepts(error) => match error {
                AcceptsError::Folder(_)
                | AcceptsError::NotIsolated { .. }
                | AcceptsError::ScratchFull(_) => ExitStatus::MachineRefuses,
                _ => ExitStatus::BadInput,
            },
            CommandError::Json(_) | CommandError::Draft(_) | CommandError::Endless => {
                ExitStatus::InternalError
            }
        }
    }

    /// Whether brimful itself failed where it should not have, and neither the user's input nor the job is to blame.
    pub(crate) fn is_ours(&self) -> bool {
        let is_staging = matches!(
            self,
            CommandError::Prediction(PredictionError::Rehearsal(
                RehearsalError::Stage(_) | RehearsalError::Output { .. }
            ))
        );
        is_staging || self.status() == ExitStatus::InternalError
    }

    /// The end of a script's own output, where it may tell more.
    pub(crate) fn script_output(&self) -> Option<&str> {
        match self {
            CommandError::Prediction(PredictionError::Rehearsal(error)) => error.output(),
            CommandError::Accepts(error) => error.output(),
            _ => None,
        }
    }

    /// What to do next.
    pub(crate) fn hints(&self) -> Vec<String> {
        let near = |close: &[&str]| close.first().map(|name| format!("did you mean `{name}`?"));
        let listed = "`brimful probe --list` names all of them".to_owned();
        match self {
            CommandError::UnknownProfile(error) => {
                near(&error.close).into_iter().chain([listed]).collect()
            }
            CommandError::UnknownCard(error) => {
                near(&error.close).into_iter().chain([listed]).collect()
            }
            CommandError::ImplausibleLimit(_) => {
                vec!["write the unit, as in `--memory 16GiB`".into()]
            }
            CommandError::NoSuchPython { .. } => {
                vec!["give the path of the executable itself, such as `.venv/bin/python`, or a name on PATH".into()]
            }
            CommandError::PlatformUnsupported(error) => vec![error.hint().into()],
            CommandError::NoPhantom { .. } => {
                vec!["install brimful with pip, which brings the library along, or name it with --phantom PATH".into()]
            }
            CommandError::NoScratch(_) => vec![
                "set TMPDIR to a directory on a disk (not tmpfs) that can be written".into(),
            ],
            CommandError::Prediction(error) => match error {
                PredictionError::Rehearsal(
                    error @ RehearsalError::NotIsolated { reasons },
                ) => not_isolated_hints(reasons, error.hint()),
                PredictionError::UnknownCard(error) => {
                    near(&error.close).into_iter().chain([listed]).collect()
                }
                PredictionError::NotNvidia { .. } => vec![listed],
                PredictionError::BesideDriver => vec![
                    "add --beside-driver: the script then sees the phantom and never the real card"
                        .into(),
                ],
                PredictionError::Rehearsal(error) => vec![error.hint().into()],
                PredictionError::TooMany { .. } => {
                    vec!["name fewer, as in `--gpu \"8x t4\"`".into()]
                }
                PredictionError::Settings(_) | PredictionError::NoFigures => Vec::new(),
            },
            CommandError::Unreadable { hint, .. } => vec![hint.clone()],
            CommandError::EmptyRecord { .. } => {
                vec!["begin to record before training, with `torch.cuda.memory._record_memory_history()`".into()]
            }
            CommandError::NoJob => vec![
                "write one with `brimful init -- python train.py`, name one with --job FILE, or give a command: `brimful run -- python train.py`".into(),
            ],
            CommandError::Job(error) => error.hints(),
            CommandError::NothingFits => vec![
                "allow more (docs/reference/job-file.md: sacrifice), or begin all the same with --as-wanted".into(),
            ],
            CommandError::NoUsableCheckpoint { refused } => {
                let is_lifted = |(_, why): &(PathBuf, Refusal)| why.is_lifted_by_force();
                let accept = refused.iter().any(is_lifted).then(|| {
                    "to resume from one of them all the same, add --force once you know who wrote it".into()
                });
                let start_over = "to start from the beginning, move them away or leave out --resume".into();
                accept.into_iter().chain([start_over]).collect()
            }
            CommandError::Endless => vec!["please report it, with the job file".into()],
            CommandError::NoStateDir => vec!["name the folder, as in `--state-dir ~/.local/state/brimful`".into()],
            CommandError::NoSuchRun(RunNotFound::None { .. }) => {
                vec!["start one with `brimful run -- python train.py`, or give a log: `brimful explain train.log`".into()]
            }
            CommandError::NoSuchRun(RunNotFound::Unusable { .. }) => {
                vec!["choose another one with --state-dir or BRIMFUL_STATE_DIR".into()]
            }
            CommandError::NoSuchRun(_) => vec!["`brimful runs` lists them".into()],
            CommandError::StillRunning { .. } => vec!["wait for its end, or read its record beside the others: `brimful runs`".into()],
            CommandError::Record { .. } => vec!["give a record (record.jsonl), a log, or a CUDA memory snapshot".into()],
            CommandError::NotStarted { source, .. } => vec![match source.kind() {
                io::ErrorKind::NotFound => "look whether it is installed and on PATH; a command with blanks in it is several words here".into(),
                io::ErrorKind::PermissionDenied => "it may not be executed; for a script, name its interpreter: `brimful run -- python train.py`".into(),
                _ => "try it without brimful".into(),
            }],
            CommandError::JobFile(error) => error.hints(),
            CommandError::Config(error) => vec![error.hint()],
            CommandError::FileExists { .. } => {
                vec!["write over it with --force, or to another file with --output FILE".into()]
            }
            CommandError::Accepts(error @ AcceptsError::NotIsolated { reasons }) => {
                not_isolated_hints(reasons, error.hint())
            }
            CommandError::Accepts(error) => vec![error.hint().into()],
            CommandError::Draft(_) => vec!["please report this together with the command and what it prints for --help".into()],
            CommandError::Json(_)
            | CommandError::Run(_)
            | CommandError::Settings(_)
            | CommandError::Version(_)
            | CommandError::Read { .. }
            | CommandError::Write { .. } => Vec::new(),
            CommandError::NoSuchFile { .. } => vec![
                "pass a log, a snapshot or the id of a run (`brimful runs` lists all); without an argument the last run is explained".into(),
            ],
            CommandError::Output(_) => vec!["look whether the disk behind it is full".into()],
        }
    }
}

/// What was tried, and what to do.
fn not_isolated_hints(reasons: &[(Isolation, String)], hint: &str) -> Vec<String> {
    let tried = reasons
        .iter()
        .map(|(isolation, reason)| format!("{isolation} is not available: {reason}"));
    tried.chain([hint.to_owned()]).collect()
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

impl From<PlanError> for CommandError {
    fn from(error: PlanError) -> Self {
        match error {
            PlanError::Prediction(error) => CommandError::Prediction(error),
            PlanError::Config(error) => CommandError::Config(error),
            PlanError::Endless => CommandError::Endless,
        }
    }
}
