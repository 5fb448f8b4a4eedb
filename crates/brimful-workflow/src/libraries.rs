//! The native files that come with brimful.

use std::path::{Path, PathBuf};

use crate::error::WorkflowError;

const PHANTOM: &str = "libbrimful_phantom.so";
const REDIRECT: &str = "libbrimful_redirect.so";

/// Where the native files are.
#[derive(Clone, Debug)]
pub struct Libraries {
    /// The `brimful` program, which starts itself inside the isolation.
    pub program: PathBuf,
    /// The phantom GPU, or the paths that were searched.
    pub phantom: Result<PathBuf, String>,
    /// The library of the redirect isolation. Without it there is one isolation less; which one is used is reported.
    pub redirect: PathBuf,
}

impl Libraries {
    /// The files beside the running program, or where the wheel puts them.
    pub fn of_this_program(phantom: Option<&Path>) -> Libraries {
        Libraries {
            program: PathBuf::from("/proc/self/exe"),
            phantom: match phantom {
                Some(named) => Ok(named.to_owned()),
                None => installed(PHANTOM),
            },
            redirect: installed(REDIRECT).unwrap_or_else(|_| PathBuf::from(REDIRECT)),
        }
    }

    pub(crate) fn phantom(&self) -> Result<PathBuf, WorkflowError> {
        self.phantom
            .clone()
            .map_err(|searched| WorkflowError::NoPhantom { searched })
    }
}

/// A library beside the program, or where the wheel puts it; or the paths that were searched.
fn installed(name: &str) -> Result<PathBuf, String> {
    let program = std::env::current_exe()
        .ok()
        .and_then(|program| program.canonicalize().ok());
    let candidates: Vec<PathBuf> = program
        .as_deref()
        .and_then(Path::parent)
        .map(|directory| {
            vec![
                directory.join(name),
                directory.join("../lib/brimful").join(name),
            ]
        })
        .unwrap_or_default();
    candidates
        .iter()
        .find(|path| path.is_file())
        .and_then(|path| path.canonicalize().ok())
        .ok_or_else(|| {
            candidates
                .iter()
                .map(|path| path.display().to_string())
                .collect::<Vec<_>>()
                .join(", ")
        })
}
