//! `brimful prepare`: hands over to the Python package, which contains the loader.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::args::{PrepareArguments, PrepareTaskArguments};
use crate::error::CommandError;

/// Imports the package, and not something of that name in the current directory.
const START: &str = "import sys; sys.path[:] = [path for path in sys.path if path];";

/// Returns only if Python cannot be started.
pub(crate) fn prepare(arguments: &PrepareArguments) -> Result<(), CommandError> {
    let mut words: Vec<OsString> = vec![arguments.recipe.clone().into()];
    words.extend(["--out".into(), arguments.out.clone().into()]);
    words.extend(["--memory".into(), arguments.memory.clone().into()]);
    if let Some(threads) = arguments.threads {
        words.extend(["--threads".into(), threads.to_string().into()]);
    }
    if let Some(path) = &arguments.keep {
        words.extend(["--keep".into(), path.clone().into()]);
    }
    if let Some(path) = &arguments.report {
        words.extend(["--report".into(), path.clone().into()]);
    }
    if let Some(place) = &arguments.on {
        words.extend(["--on".into(), place.into()]);
    }
    let flags = [("--dry-run", arguments.dry_run), ("--json", arguments.json)];
    words.extend(flags.iter().filter(|flag| flag.1).map(|flag| flag.0.into()));
    Err(hand_over(
        arguments.python.as_deref(),
        "_prepare_command",
        words,
    ))
}

/// Returns only if Python cannot be started.
pub(crate) fn prepare_task(arguments: &PrepareTaskArguments) -> Result<(), CommandError> {
    let numbers = [
        ("--memory", arguments.memory.get()),
        ("--element", arguments.element),
        ("--of", arguments.of),
    ];
    let mut words: Vec<OsString> = vec![arguments.out.clone().into()];
    words.push(arguments.phase.clone().into());
    for (name, number) in numbers {
        words.extend([name.into(), number.to_string().into()]);
    }
    Err(hand_over(
        arguments.python.as_deref(),
        "_prepare_task",
        words,
    ))
}

/// Becomes a Python that runs `main` of a module of the package.
fn hand_over(python: Option<&Path>, module: &str, words: Vec<OsString>) -> CommandError {
    let python = match python {
        Some(python) => python.to_owned(),
        None => beside_program().unwrap_or_else(|| PathBuf::from("python3")),
    };
    let start = format!("{START} from brimful.{module} import main; sys.exit(main())");
    let error = Command::new(&python)
        .arg("-c")
        .arg(start)
        .args(words)
        .exec();
    CommandError::NotStarted {
        program: python.display().to_string(),
        source: error,
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
