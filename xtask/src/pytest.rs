//! Runs Python tests against what is installed in an environment, never against the source directory.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::shell::{cache, root, run};
use crate::tools::PythonEnvironment;

/// How often a test or program that met bad luck is repeated. Luck is reported; it decides nothing.
pub(crate) const RETRIES: u32 = 2;

/// Test files at once: most of them wait for a process or for time to pass. Rehearsals take up to 2 GB each.
const AT_ONCE: &str = "4";

/// Files that take long, the slowest first: they begin first, so that none is left alone at the end. A file that is not
/// here comes after them.
const SLOW_FILES: &[&str] = &[
    "test_leaves_no_trace.py",
    "test_quick_starts.py",
    "test_rehearsal_hook.py",
    "test_prepare_remote.py",
    "test_stall.py",
    "test_comes_back.py",
    "test_inside.py",
    "test_predict.py",
    "test_rehearsal_steps.py",
    "test_plan.py",
    "test_without_cuda.py",
    "test_nodes.py",
    "test_data.py",
    "test_notebook.py",
    "test_run.py",
    "test_fleet.py",
];

/// Runs the test files of a directory; tests that fail are repeated.
pub(crate) fn pytest(environment: &PythonEnvironment, directory: &Path) -> Result<()> {
    let files = slowest_first(test_files(directory)?);
    let name = directory.file_name().unwrap_or_default();
    let failed_tests = cache().join("pytest").join(name);
    if failed_tests.exists() {
        fs::remove_dir_all(&failed_tests)?;
    }
    // Files stay whole: their tests share what was rehearsed once.
    let parallel = ["-n", AT_ONCE, "--dist=loadfile", "--no-loadscope-reorder"];
    let outcome = run(command(environment, &files, &failed_tests).args(parallel));
    repeat_failed(environment, &files, &failed_tests, outcome)
}

/// One after the other: what failed by bad luck may have had too many beside it.
fn repeat_failed(
    environment: &PythonEnvironment,
    files: &[PathBuf],
    failed_tests: &Path,
    mut outcome: Result<()>,
) -> Result<()> {
    for retry in 1..=RETRIES {
        if outcome.is_ok() {
            break;
        }
        println!("FLAKY? repeating the tests that failed ({retry} of {RETRIES})");
        let only_failed = ["--last-failed", "--last-failed-no-failures", "none"];
        outcome = run(command(environment, files, failed_tests).args(only_failed));
    }
    outcome
}

fn command(environment: &PythonEnvironment, files: &[PathBuf], failed_tests: &Path) -> Command {
    let mut cache_option = OsString::from("cache_dir=");
    cache_option.push(failed_tests);
    let mut search_path = environment.bin().into_os_string();
    search_path.push(":");
    search_path.push(std::env::var_os(crate::env_vars::PATH).unwrap_or_default());
    let mut command = environment.python(&["-m", "pytest", "--import-mode=importlib"]);
    command
        .arg("-o")
        .arg(&cache_option)
        .args(["--quiet", "--durations=25", "-c"])
        .arg(root().join("pyproject.toml"))
        .args(files)
        .env("PATH", search_path)
        .current_dir(std::env::temp_dir());
    command
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

fn slowest_first(mut files: Vec<PathBuf>) -> Vec<PathBuf> {
    files.sort_by_key(|path| {
        let name = path.file_name().unwrap_or_default();
        let place = SLOW_FILES.iter().position(|slow| name == *slow);
        place.unwrap_or(SLOW_FILES.len())
    });
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slow_file_is_there() {
        let known = ["tests", "torch_tests"]
            .map(|directory| test_files(&root().join("python").join(directory)).unwrap())
            .concat();
        for name in SLOW_FILES {
            assert!(known.iter().any(|path| path.ends_with(name)), "{name}");
        }
    }

    #[test]
    fn all_files_are_run() {
        let files: Vec<PathBuf> = (0..9).map(|n| format!("test_{n}.py").into()).collect();
        assert_eq!(slowest_first(files.clone()), files);
    }
}
