//! `brimful prepare`: hands over to the Python package, which contains the loader.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::args::PrepareArguments;
use crate::error::CommandError;

/// Imports the package, and not something of that name in the current directory.
const START: &str = "import sys; sys.path[:] = [path for path in sys.path if path]; \
                     from brimful._prepare_command import main; sys.exit(main())";

/// Returns only if Python cannot be started.
pub(crate) fn prepare(arguments: &PrepareArguments) -> Result<(), CommandError> {
    let python = match &arguments.python {
        Some(python) => python.clone(),
        None => beside_program().unwrap_or_else(|| PathBuf::from("python3")),
    };
    let mut words: Vec<OsString> = vec!["-c".into(), START.into()];
    words.push(arguments.recipe.clone().into());
    words.extend(["--out".into(), arguments.out.clone().into()]);
    words.extend(["--memory".into(), arguments.memory.clone().into()]);
    if let Some(threads) = arguments.threads {
        words.extend(["--threads".into(), threads.to_string().into()]);
    }
    if let Some(place) = &arguments.on {
        words.extend(["--on".into(), place.into()]);
    }
    let flags = [("--dry-run", arguments.dry_run), ("--json", arguments.json)];
    words.extend(flags.iter().filter(|flag| flag.1).map(|flag| flag.0.into()));
    let error = Command::new(&python).args(words).exec();
    Err(CommandError::NotStarted {
        program: python.display().to_string(),
        source: error,
    })
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
