//! A Python: what the caller knows of it, and what was found.

use brimful::fact::Fact;
use brimful::machine::PythonVersion;

/// What the caller knows about the Python to look at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PythonHint {
    /// Look at this executable and no other.
    pub executable: Option<String>,
    /// Where it imports from (`sys.path`), if the caller is that Python.
    pub import_directories: Vec<String>,
    pub version: Option<PythonVersion>,
    /// The directory of the `brimful` program: a Python beside it is a candidate.
    pub program_directory: Option<String>,
    /// The directory the job would start in, for per-directory choices of pyenv.
    pub working_directory: Option<String>,
}

/// A Python and the directories it imports from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Installation {
    pub(crate) executable: String,
    pub(crate) found_by: String,
    pub(crate) version: Fact<PythonVersion>,
    pub(crate) import_directories: Vec<String>,
}
