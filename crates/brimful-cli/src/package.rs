//! The Python package that was installed with this program. It contains what the program does not link: the loader, object
//! stores, Parquet and OpenTelemetry.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::CommandError;

/// Imports the package, and not something of that name in the current directory.
const START: &str = "import sys; sys.path[:] = [path for path in sys.path if path];";

/// A Python that runs `main` of a module of the package.
pub(crate) fn package_command(python: Option<&Path>, module: &str) -> Command {
    let python = match python {
        Some(python) => python.to_owned(),
        None => beside_program().unwrap_or_else(|| PathBuf::from("python3")),
    };
    let start = format!("{START} from brimful.{module} import main; sys.exit(main())");
    let mut command = Command::new(python);
    command.arg("-c").arg(start);
    command
}

/// Becomes that Python.
pub(crate) fn hand_over(python: Option<&Path>, module: &str, words: Vec<OsString>) -> CommandError {
    let mut command = package_command(python, module);
    let source = command.args(words).exec();
    CommandError::NotStarted {
        program: command.get_program().to_string_lossy().into_owned(),
        source,
    }
}

/// The Python whose `pip` has installed this program.
fn beside_program() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let folder = program.parent()?;
    let beside = |name: &str| Path::new(folder).join(name);
    ["python", "python3"]
        .map(beside)
        .into_iter()
        .find(|path| path.is_file())
}
