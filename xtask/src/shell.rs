//! Running other programs, and knowing where things are.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies below the root")
        .to_owned()
}

/// A folder that outlives the clone, for what is slow to make: `BRIMFUL_CACHE`, else the user's cache folder, else
/// `target`.
pub(crate) fn cache() -> PathBuf {
    let named = std::env::var_os(crate::env_vars::BRIMFUL_CACHE).map(PathBuf::from);
    let home =
        || Some(PathBuf::from(std::env::var_os(crate::env_vars::HOME)?).join(".cache/brimful"));
    let cache = named
        .or_else(home)
        .filter(|folder| std::fs::create_dir_all(folder).is_ok());
    cache.unwrap_or_else(|| root().join("target"))
}

/// A cargo command in the repository's root.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command =
        Command::new(std::env::var_os(crate::env_vars::CARGO).unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).args(arguments);
    command
}

/// Any other program in the repository's root.
pub(crate) fn program(name: impl AsRef<OsStr>, arguments: &[&str]) -> Command {
    let mut command = Command::new(name);
    command.current_dir(root()).args(arguments);
    command
}

/// Runs a command to its end; anything but success is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("{} could not be started", shown(command)))?;
    if !status.success() {
        bail!("{} ended with {status}", shown(command));
    }
    Ok(())
}

/// Runs a command and returns what it printed.
pub(crate) fn read(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("{} could not be started", shown(command)))?;
    if !output.status.success() {
        bail!(
            "{} ended with {}\n{}",
            shown(command),
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn shown(command: &Command) -> String {
    let words: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(OsStr::to_string_lossy)
        .collect();
    words.join(" ")
}
