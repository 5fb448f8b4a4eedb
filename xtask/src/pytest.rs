//! Runs Python tests against what is installed in an environment, never against the source directory.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::shell::{cache, root, run};
use crate::tools::PythonEnvironment;

/// How often a test or program that met bad luck is repeated. Luck is reported; it decides nothing.
pub(crate) const RETRIES: u32 = 2;

/// How long the slowest files take, in seconds on two quiet cores. A file that is not here counts as one of the others;
/// a wrong figure only makes the halves uneven.
const SLOW_FILES: &[(&str, u32)] = &[];
const OTHER_FILES: u32 = 10;

/// Runs the tests of these files or directories; those that fail are repeated.
pub(crate) fn pytest(environment: &PythonEnvironment, paths: &[PathBuf], name: &str) -> Result<()> {
    let outcome = run(&mut command(environment, paths, name, Repeat::No)?);
    repeat_failed(environment, paths, name, outcome)
}

/// Runs the test files of a directory in two processes: most tests wait for one other process at a time.
pub(crate) fn pytest_in_two_halves(
    environment: &PythonEnvironment,
    directory: &Path,
) -> Result<()> {
    let [first, second] = halves(test_files(directory)?);
    fs::create_dir_all(cache().join("pytest"))?;
    let log = cache().join("pytest/second-half.log");
    let output = File::create(&log)?;
    let mut beside = command(environment, &second, "second-half", Repeat::No)?
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()
        .context("pytest could not be started")?;
    let outcome_of_first = pytest(environment, &first, "first-half");
    let status = beside.wait()?;
    print!("{}", String::from_utf8_lossy(&fs::read(&log)?));
    let succeeded = || -> Result<()> {
        ensure!(status.success(), "pytest ended with {status}");
        Ok(())
    };
    outcome_of_first.and(repeat_failed(
        environment,
        &second,
        "second-half",
        succeeded(),
    ))
}

fn repeat_failed(
    environment: &PythonEnvironment,
    paths: &[PathBuf],
    name: &str,
    mut outcome: Result<()>,
) -> Result<()> {
    for retry in 1..=RETRIES {
        if outcome.is_ok() {
            break;
        }
        println!("FLAKY? repeating the tests that failed ({retry} of {RETRIES})");
        outcome = run(&mut command(environment, paths, name, Repeat::Failed)?);
    }
    outcome
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeat {
    No,
    /// Only the tests that failed the last time.
    Failed,
}

fn command(
    environment: &PythonEnvironment,
    paths: &[PathBuf],
    name: &str,
    repeat: Repeat,
) -> Result<Command> {
    let failed_tests = cache().join("pytest").join(name);
    let mut command = environment.python(&["-m", "pytest", "--import-mode=importlib"]);
    match repeat {
        Repeat::No if failed_tests.exists() => fs::remove_dir_all(&failed_tests)?,
        Repeat::No => {}
        Repeat::Failed => {
            command.args(["--last-failed", "--last-failed-no-failures", "none"]);
        }
    }
    let mut cache_option = OsString::from("cache_dir=");
    cache_option.push(&failed_tests);
    let mut search_path = environment.bin().into_os_string();
    search_path.push(":");
    search_path.push(std::env::var_os(crate::env_vars::PATH).unwrap_or_default());
    command
        .arg("-o")
        .arg(&cache_option)
        .args(["--quiet", "--durations=10", "-c"])
        .arg(root().join("pyproject.toml"))
        .args(paths)
        .env("PATH", search_path)
        .current_dir(std::env::temp_dir());
    Ok(command)
}

fn test_files(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> = fs::read_dir(directory)
        .with_context(|| directory.display().to_string())?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("test_") && name.ends_with(".py")
        })
        .collect();
    files.sort();
    Ok(files)
}

/// The slowest first, each to the half that has less to do.
fn halves(mut files: Vec<PathBuf>) -> [Vec<PathBuf>; 2] {
    let seconds = |path: &Path| {
        let name = path.file_name().unwrap_or_default();
        let known = SLOW_FILES.iter().find(|(slow, _)| name == *slow);
        known.map_or(OTHER_FILES, |(_, seconds)| *seconds)
    };
    files.sort_by_key(|path| std::cmp::Reverse(seconds(path)));
    let mut halves = [Vec::new(), Vec::new()];
    let mut sums = [0, 0];
    for path in files {
        let to = usize::from(sums[1] < sums[0]);
        sums[to] += seconds(&path);
        halves[to].push(path);
    }
    halves
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_in_one_half_and_neither_has_much_more_to_do() {
        let files: Vec<PathBuf> = (0..9).map(|n| format!("test_{n}.py").into()).collect();
        let [first, second] = halves(files.clone());
        assert_eq!((first.len(), second.len()), (5, 4));
        let mut all = [first, second].concat();
        all.sort();
        assert_eq!(all, files);
    }
}
