//! `brimful prepare`: hands over to the Python package, which contains the loader.

use std::ffi::OsString;

use crate::args::{PrepareArguments, PrepareTaskArguments};
use crate::error::CommandError;
use crate::package::hand_over;

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
