//! Errors of commands.

use std::io;
use std::path::PathBuf;

use brimful::job::JobError;
use brimful::user_error::{ErrorKind, Hint, UserError};
use brimful_rehearse::AcceptsError;
use brimful_supervise::RunNotFound;
use brimful_top::TopError;
use brimful_workflow::{ExplainError, ReplayError, ReportError, VerifyError, WorkflowError};

use crate::exit::ExitStatus;

/// A command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    #[error(transparent)]
    Workflow(#[from] WorkflowError),
    #[error(transparent)]
    Explain(#[from] ExplainError),
    #[error(transparent)]
    Replay(#[from] ReplayError),
    #[error(transparent)]
    Report(#[from] ReportError),
    #[error(transparent)]
    Accepts(#[from] AcceptsError),
    #[error(transparent)]
    NoSuchRun(#[from] RunNotFound),
    #[error(transparent)]
    Top(#[from] TopError),
    #[error("no Python executable at `{path}`")]
    NoSuchPython { path: String },
    #[error("failed to write `{}`", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("`{}` already exists", path.display())]
    FileExists { path: PathBuf },
    #[error("failed to read the drafted job file back")]
    Draft(#[source] JobError),
    #[error("failed to start `{program}`")]
    NotStarted {
        program: String,
        #[source]
        source: io::Error,
    },
    #[error("failed to write the document as JSON")]
    Json(#[from] serde_json::Error),
    #[error("failed to write to standard output")]
    Output(#[source] io::Error),
}

impl CommandError {
    pub(crate) fn status(&self) -> ExitStatus {
        match self {
            CommandError::Workflow(WorkflowError::Verify(VerifyError::Busy(_))) => {
                ExitStatus::ProblemFound
            }
            _ => ExitStatus::from(self.kind()),
        }
    }

    fn inner(&self) -> Option<&dyn UserError> {
        Some(match self {
            CommandError::Workflow(error) => error,
            CommandError::Explain(error) => error,
            CommandError::Replay(error) => error,
            CommandError::Report(error) => error,
            CommandError::Accepts(error) => error,
            CommandError::NoSuchRun(error) => error,
            CommandError::Top(error) => error,
            CommandError::NoSuchPython { .. }
            | CommandError::Write { .. }
            | CommandError::FileExists { .. }
            | CommandError::Draft(_)
            | CommandError::NotStarted { .. }
            | CommandError::Json(_)
            | CommandError::Output(_) => return None,
        })
    }
}

impl UserError for CommandError {
    fn kind(&self) -> ErrorKind {
        match self {
            CommandError::Write { .. } | CommandError::Output(_) => ErrorKind::Environment,
            CommandError::Json(_) | CommandError::Draft(_) => ErrorKind::Bug,
            other => other.inner().map_or(ErrorKind::Input, UserError::kind),
        }
    }

    fn hints(&self) -> Vec<Hint> {
        match self {
            CommandError::NoSuchPython { .. } => vec![Hint::text(
                "pass the path of the executable, for example `.venv/bin/python`, or a name on PATH",
            )],
            CommandError::FileExists { .. } => vec![Hint::text(
                "pass `--force` to overwrite it, or `--output FILE` to write another file",
            )],
            CommandError::Draft(_) => vec![Hint::text(
                "this is a bug; please report it with the command and its `--help` output",
            )],
            CommandError::NotStarted { program, source } => not_started(program, source),
            CommandError::Output(_) => vec![Hint::text("check whether the disk is full")],
            CommandError::Json(_) | CommandError::Write { .. } => Vec::new(),
            other => other.inner().map_or_else(Vec::new, UserError::hints),
        }
    }

    fn script_output(&self) -> Option<&str> {
        self.inner().and_then(UserError::script_output)
    }
}

fn not_started(program: &str, source: &io::Error) -> Vec<Hint> {
    match source.kind() {
        io::ErrorKind::NotFound => {
            let installed = Hint::text("check that it is installed and on PATH");
            let spaces = program.contains(' ').then(|| {
                Hint::text("this command contains spaces; write it as a list of arguments")
            });
            [installed].into_iter().chain(spaces).collect()
        }
        io::ErrorKind::PermissionDenied => vec![Hint::text(
            "make the file executable, or name its interpreter, for example `brimful run -- python train.py`",
        )],
        _ => vec![Hint::text(
            "run the command without brimful to see whether it starts",
        )],
    }
}
