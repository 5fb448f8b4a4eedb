//! Why records cannot be written or read.

use std::io;
use std::path::{Path, PathBuf};

use brimful::user_error::{ErrorKind, Hint, UserError};
use brimful_load::remote::shown;
use parquet::errors::ParquetError;

#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    #[error("failed to read the records in `{}`", path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("failed to write to `{}`", path.display())]
    Unwritable {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("`{}` is not a directory", path.display())]
    NotADirectory { path: PathBuf },
    #[error("the run has no attempts")]
    NoRows,
    #[error("interrupted")]
    Interrupted,
    /// A mistake of ours: the rows do not fit their own columns.
    #[error("failed to encode the rows")]
    Encoding(#[from] ParquetError),
}

impl FleetError {
    pub(crate) fn unreadable(path: &Path, source: io::Error) -> FleetError {
        FleetError::Unreadable {
            path: shown(path).into_owned(),
            source,
        }
    }

    pub(crate) fn unwritable(path: &Path, source: io::Error) -> FleetError {
        FleetError::Unwritable {
            path: shown(path).into_owned(),
            source,
        }
    }
}

impl UserError for FleetError {
    fn kind(&self) -> ErrorKind {
        match self {
            FleetError::NotADirectory { .. } | FleetError::NoRows => ErrorKind::Input,
            FleetError::Unreadable { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                ErrorKind::Input
            }
            FleetError::Unreadable { .. } | FleetError::Unwritable { .. } => ErrorKind::Environment,
            FleetError::Interrupted => ErrorKind::Outcome,
            FleetError::Encoding(_) => ErrorKind::Bug,
        }
    }

    fn hints(&self) -> Vec<Hint> {
        match self {
            FleetError::Unreadable { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                vec![Hint::text(
                    "name the directory or URL that runs were recorded to with `brimful run --records`",
                )]
            }
            FleetError::NotADirectory { .. } => {
                vec![Hint::text("name the directory that contains the files")]
            }
            _ => Vec::new(),
        }
    }
}
