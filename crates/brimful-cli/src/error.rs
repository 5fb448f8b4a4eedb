//! What goes wrong, by whose turn it is.

use std::io;

use brimful::cards::UnknownCard;
use brimful::profiles::UnknownProfile;
use brimful::units::ImplausibleLimit;
use brimful_probe::PlatformUnsupported;

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
    PlatformUnsupported(#[from] PlatformUnsupported),
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
            | CommandError::NoSuchPython { .. } => ExitStatus::BadInput,
            CommandError::PlatformUnsupported(_) | CommandError::Output(_) => {
                ExitStatus::MachineRefuses
            }
            CommandError::Json(_) => ExitStatus::InternalError,
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
            CommandError::Json(_) => Vec::new(),
            CommandError::Output(_) => vec!["look whether the disk behind it is full".into()],
        }
    }
}
