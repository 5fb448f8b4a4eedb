//! Where the job is described: the file that was named, `brimful.toml`, or `[tool.brimful]` of `pyproject.toml`.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use brimful::job::{self, JobError, JobFile, MAX_JOB_FILE_BYTES};
use brimful::user_error::{ErrorKind, Hint, UserError};

/// A job file that cannot be read or followed.
#[derive(Debug, thiserror::Error)]
pub enum JobFileError {
    #[error("failed to read `{}`", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("invalid job file `{}`", path.display())]
    Job {
        path: PathBuf,
        #[source]
        source: JobError,
    },
    #[error("`{}` has no [tool.brimful]", path.display())]
    NoJobInProject { path: PathBuf },
}

impl UserError for JobFileError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Input
    }

    fn hints(&self) -> Vec<Hint> {
        match self {
            JobFileError::Read { .. } => Vec::new(),
            JobFileError::Job { source, .. } => UserError::hints(source),
            JobFileError::NoJobInProject { .. } => vec![Hint::CreateJobFile],
        }
    }
}

const OWN: &str = "brimful.toml";
const PROJECT: &str = "pyproject.toml";

/// The job file that was named, else the one of this folder; nothing where it has none.
pub fn find(named: Option<&Path>) -> Result<Option<(PathBuf, JobFile)>, JobFileError> {
    if let Some(path) = named {
        let file = read(path)?.ok_or_else(|| JobFileError::NoJobInProject {
            path: path.to_owned(),
        })?;
        return Ok(Some((path.to_owned(), file)));
    }
    for name in [OWN, PROJECT] {
        let path = Path::new(name);
        if path.is_file()
            && let Some(file) = read(path)?
        {
            return Ok(Some((path.to_owned(), file)));
        }
    }
    Ok(None)
}

/// Nothing for a `pyproject.toml` without a job.
fn read(path: &Path) -> Result<Option<JobFile>, JobFileError> {
    let text = text(path).map_err(|source| JobFileError::Read {
        path: path.to_owned(),
        source,
    })?;
    let is_project = path.file_name().is_some_and(|name| name == PROJECT);
    let file = if is_project {
        job::read_pyproject(&text)
    } else {
        job::read(&text).map(Some)
    };
    file.map_err(|source| JobFileError::Job {
        path: path.to_owned(),
        source,
    })
}

/// The text, a byte more than a job file may have at the most.
fn text(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    brimful_private::open_named(path)?
        .take(MAX_JOB_FILE_BYTES as u64 + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() > MAX_JOB_FILE_BYTES {
        return Ok(String::from_utf8_lossy(&bytes).into_owned());
    }
    String::from_utf8(bytes)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not text in UTF-8"))
}

/// Patterns of the checkpoints of the job in this directory; none where there is no job.
pub fn checkpoints_here() -> Vec<String> {
    let file = find(None).ok().flatten();
    file.and_then(|(_, file)| file.job(None, &[]).ok())
        .map(|job| job.checkpoints)
        .unwrap_or_default()
}
