//! The Python that would run the job and its PyTorch, told from files: nothing is started or imported.

mod locate;
pub mod parse;
mod torch;

use brimful::fact::Fact;
use brimful::machine::{Python, PythonVersion};

use crate::Environment;
use crate::files::Files;

/// What the caller knows about the Python to look at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PythonHint {
    /// Look at this executable and no other.
    pub executable: Option<String>,
    /// Where it imports from (`sys.path`), if the caller is that Python.
    pub import_folders: Vec<String>,
    pub version: Option<PythonVersion>,
    /// The folder of the `brimful` program: a Python beside it is a candidate.
    pub program_folder: Option<String>,
    /// The folder the job would start in, for per-folder choices of pyenv.
    pub working_folder: Option<String>,
}

/// A Python and the folders it imports from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Installation {
    pub(crate) executable: String,
    pub(crate) found_by: String,
    pub(crate) version: Fact<PythonVersion>,
    pub(crate) import_folders: Vec<String>,
}

pub(crate) fn read(files: &Files, env: &Environment, hint: &PythonHint) -> Fact<Python> {
    let candidates = locate::candidates(files, env, hint);
    let mut described = candidates.into_iter().map(|installation| Python {
        torch: torch::read(files, &installation),
        executable: installation.executable,
        version: installation.version,
        found_by: installation.found_by,
    });
    let Some(first) = described.next() else {
        return Fact::unavailable("no python is on PATH");
    };
    if first.torch.known().is_some() {
        return Fact::Known(first);
    }
    // brimful is often called by its full path from an environment that is not activated: the Python beside it is
    // the better guess if that is where PyTorch is.
    Fact::Known(
        described
            .find(|python| python.torch.known().is_some())
            .unwrap_or(first),
    )
}
