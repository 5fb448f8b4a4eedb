//! The fuzz targets of `fuzz/`: built into one program with libFuzzer's coverage counters, then each run for some seconds.
//! What they find anew can be kept in `fuzz/corpus/`, which the tests run through.
//!
//! A stable compiler is enough: the flags below are those that cargo-fuzz passes, without a sanitizer.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::shell::{cache, cargo, program, read, root, run};

/// Counters of edges and comparisons, as cargo-fuzz has them.
const RUSTFLAGS: &str = "-Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Cdebug-assertions";

/// An input that takes longer is a finding.
const MAX_INPUT_SECONDS: u32 = 10;
/// A target that holds more memory has found something.
const MAX_RESIDENT_MIB: u32 = 1024;
/// Bytes of an input, where the manifest gives no other number.
const MAX_INPUT_BYTES: usize = 4096;
/// Targets at once, at most: each may take the memory above.
const MAX_AT_ONCE: usize = 4;
/// Names the target to the program.
const TARGET_VARIABLE: &str = "BRIMFUL_FUZZ_TARGET";
/// Inputs of one target that are kept, of those that together reach everything that was reached.
const MAX_KEPT: usize = 64;

/// What to fuzz, and for how long.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// All targets without it.
    pub target: Option<String>,
    pub seconds: u64,
    /// The same inputs each time, as far as time allows; without it new ones.
    pub seed: Option<u32>,
    /// Runs this input once, and nothing else.
    pub input: Option<PathBuf>,
    /// Keeps what was found in `fuzz/corpus/`.
    pub keep: bool,
}

/// Builds the targets and runs each for the given time; a finding is an error with the command that reproduces it.
pub(crate) fn fuzz(options: &Options) -> Result<()> {
    let targets = targets(options.target.as_deref())?;
    let began = Instant::now();
    let libfuzzer = build()?;
    println!("built in {:.0} s", began.elapsed().as_secs_f64());
    if let Some(input) = &options.input {
        let [target] = &targets[..] else {
            bail!("--input needs the name of one target");
        };
        return run(libfuzzer.command(target).arg(input));
    }
    let next = AtomicUsize::new(0);
    let findings = Mutex::new(Vec::new());
    let at_once = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..at_once.min(MAX_AT_ONCE) {
            scope.spawn(|| {
                while let Some(target) = targets.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match fuzz_one(target, &libfuzzer, options) {
                        Ok(executions) => println!("{:<22} {executions}", target.name),
                        Err(error) => {
                            let mut findings = findings.lock().expect("no thread panics here");
                            findings.push(format!("{}: {error:#}", target.name));
                        }
                    }
                }
            });
        }
    });
    let findings = findings.into_inner().expect("no thread panics here");
    ensure!(findings.is_empty(), "{}", findings.join("\n\n"));
    Ok(())
}

/// A fuzz target and what it begins with.
#[derive(Clone, Debug)]
struct Target {
    name: String,
    seeds: Seeds,
}

/// Files that a target's first inputs are, as the manifest names them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Seeds {
    /// Below the root.
    directory: Option<PathBuf>,
    /// Only files with one of these extensions.
    #[serde(default)]
    extensions: Vec<String>,
    max_input_bytes: Option<usize>,
}

/// What is read of `fuzz/Cargo.toml`.
#[derive(Debug, Deserialize)]
struct Manifest {
    package: Package,
}

#[derive(Debug, Deserialize)]
struct Package {
    metadata: Metadata,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    seeds: BTreeMap<String, Seeds>,
}

/// The named target, or all of them.
fn targets(name: Option<&str>) -> Result<Vec<Target>> {
    let known = target_names()?;
    let path = root().join("fuzz/Cargo.toml");
    let text = fs::read_to_string(&path).context("fuzz/Cargo.toml")?;
    let manifest: Manifest = toml::from_str(&text).context("fuzz/Cargo.toml")?;
    let mut seeds = manifest.package.metadata.seeds;
    if let Some(unknown) = seeds.keys().find(|name| !known.contains(name)) {
        bail!("fuzz/Cargo.toml has seeds for {unknown:?}, which is no target");
    }
    let targets: Vec<Target> = (known.iter())
        .filter(|known| name.is_none_or(|name| name == *known))
        .map(|name| Target {
            name: name.clone(),
            seeds: seeds.remove(name).unwrap_or_default(),
        })
        .collect();
    ensure!(
        !targets.is_empty(),
        "there is no fuzz target {:?}; there are {}",
        name.unwrap_or_default(),
        known.join(", ")
    );
    Ok(targets)
}

/// One file each.
fn target_names() -> Result<Vec<String>> {
    let directory = root().join("fuzz/src/targets");
    let entries = fs::read_dir(&directory).with_context(|| directory.display().to_string())?;
    let mut names = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        if stem != "mod" {
            names.push(stem.into_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// The program with all targets.
struct LibFuzzer(PathBuf);

impl LibFuzzer {
    fn command(&self, target: &Target) -> Command {
        let mut command = Command::new(&self.0);
        command.env(TARGET_VARIABLE, &target.name);
        command
    }
}

fn build() -> Result<LibFuzzer> {
    // With a target of its own, cargo leaves build scripts and macros without the flags.
    let host = host()?;
    let directory = cache().join("fuzz-target");
    run(
        cargo(&["build", "--locked", "--quiet", "--profile", "fuzz"])
            .args(["--manifest-path", "fuzz/libfuzzer/Cargo.toml"])
            .args(["--target", &host])
            .arg("--target-dir")
            .arg(&directory)
            .env("RUSTFLAGS", RUSTFLAGS)
            .env_remove("CARGO_ENCODED_RUSTFLAGS"),
    )?;
    let program = directory.join(host).join("fuzz/brimful-libfuzzer");
    Ok(LibFuzzer(program))
}

/// The platform that rustc builds for by itself.
fn host() -> Result<String> {
    let rustc = std::env::var_os(crate::env_vars::RUSTC).unwrap_or_else(|| "rustc".into());
    let version = read(&mut program(rustc, &["-vV"]))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc -vV names no host")?.to_owned())
}

/// Runs one target in a directory that goes with it. How much it did, or what it found.
fn fuzz_one(target: &Target, libfuzzer: &LibFuzzer, options: &Options) -> Result<String> {
    let directory = working_directory()?;
    let corpus = directory.path().join("corpus");
    fs::create_dir(&corpus)?;
    let max_bytes = target.seeds.max_input_bytes.unwrap_or(MAX_INPUT_BYTES);
    target.seeds.copy_to(&corpus, max_bytes)?;
    for path in target.kept_inputs()? {
        fs::copy(&path, corpus.join(path.file_name().unwrap_or_default()))?;
    }
    let mut command = libfuzzer.command(target);
    command
        .arg(&corpus)
        .arg(format!("-max_total_time={}", options.seconds))
        .arg(format!("-timeout={MAX_INPUT_SECONDS}"))
        .arg(format!("-rss_limit_mb={MAX_RESIDENT_MIB}"))
        .arg(format!("-max_len={max_bytes}"))
        // Documents take some length before there is anything in them; by itself libFuzzer begins with a few bytes.
        .arg("-len_control=0")
        .args(["-print_final_stats=1", "-artifact_prefix=found-"])
        .current_dir(directory.path())
        .env("TMPDIR", directory.path())
        // The message of a panic is among the last lines then.
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null());
    if let Some(seed) = options.seed {
        command.arg(format!("-seed={seed}"));
    }
    let output = command
        .output()
        .with_context(|| format!("{} could not be started", target.name))?;
    let log = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        if options.keep {
            keep(target, libfuzzer, &corpus)?;
        }
        return Ok(statistics(&log));
    }
    let input = kept_input(target, directory.path())?;
    let reproduce = match &input {
        Some(input) => format!(
            "to reproduce: cargo xtask fuzz {} --input {}",
            target.name,
            input.display()
        ),
        None => "it left no input".to_owned(),
    };
    bail!("{}\n{}\n{reproduce}", output.status, last_lines(&log));
}

/// Puts inputs of all sizes, of those that together reach what was reached, in place of those that were kept.
fn keep(target: &Target, libfuzzer: &LibFuzzer, corpus: &Path) -> Result<()> {
    let merged = working_directory()?;
    let output = (libfuzzer.command(target))
        .arg("-merge=1")
        .arg(merged.path())
        .arg(corpus)
        .env("TMPDIR", merged.path())
        .current_dir(corpus)
        .output()?;
    ensure!(
        output.status.success(),
        "{}",
        last_lines(&String::from_utf8_lossy(&output.stderr))
    );
    let mut inputs = files_in(merged.path())?;
    inputs.sort_by_key(|path| fs::metadata(path).map_or(0, |facts| facts.len()));
    for path in target.kept_inputs()? {
        fs::remove_file(path)?;
    }
    let kept = target.kept();
    fs::create_dir_all(&kept)?;
    // Of all sizes: the shortest alone fail at the first check.
    let n_kept = inputs.len().min(MAX_KEPT);
    for number in 0..n_kept {
        let path = &inputs[number * (inputs.len() - 1) / (n_kept - 1).max(1)];
        fs::copy(path, kept.join(path.file_name().unwrap_or_default()))?;
    }
    Ok(())
}

fn files_in(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            files.push(entry.path());
        }
    }
    Ok(files)
}

impl Target {
    /// The inputs that the tests run through.
    fn kept(&self) -> PathBuf {
        root().join("fuzz/corpus").join(&self.name)
    }

    fn kept_inputs(&self) -> Result<Vec<PathBuf>> {
        if self.kept().is_dir() {
            files_in(&self.kept())
        } else {
            Ok(Vec::new())
        }
    }
}

/// In memory where that is possible: targets write the files that they have parsed.
fn working_directory() -> Result<tempfile::TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("brimful-fuzz-");
    let made = builder
        .tempdir_in("/dev/shm")
        .or_else(|_| builder.tempdir());
    made.context("no temporary directory could be made")
}

impl Seeds {
    /// Longer files would be cut, and then they are not what they were.
    fn copy_to(&self, corpus: &Path, max_bytes: usize) -> Result<()> {
        let Some(directory) = &self.directory else {
            return Ok(());
        };
        let directory = root().join(directory);
        let entries = fs::read_dir(&directory).with_context(|| directory.display().to_string())?;
        let mut n_copied = 0;
        for entry in entries {
            let path = entry?.path();
            let extension = path.extension().unwrap_or_default();
            let is_wanted = self
                .extensions
                .iter()
                .any(|known| extension == known.as_str());
            if is_wanted && fs::metadata(&path)?.len() <= max_bytes as u64 {
                fs::copy(&path, corpus.join(path.file_name().unwrap_or_default()))?;
                n_copied += 1;
            }
        }
        ensure!(
            n_copied > 0,
            "no seed of {:?} in {}",
            self.extensions,
            directory.display()
        );
        Ok(())
    }
}

/// Puts the input that libFuzzer left where it outlives the run.
fn kept_input(target: &Target, directory: &Path) -> Result<Option<PathBuf>> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        if let Some(name) = name.strip_prefix("found-") {
            let findings = cache().join("fuzz-findings");
            fs::create_dir_all(&findings)?;
            let kept = findings.join(format!("{}-{name}", target.name));
            fs::copy(&path, &kept)?;
            return Ok(Some(kept));
        }
    }
    Ok(None)
}

/// Of the figures that libFuzzer prints at the end, how many inputs were run, and the memory that they took.
fn statistics(log: &str) -> String {
    let figure = |name: &str| {
        let line = log.lines().find_map(|line| line.strip_prefix(name));
        line.map_or("?", |value| value.trim_start_matches(':').trim())
            .to_owned()
    };
    format!(
        "{:>9} executions, {:>5} per second, {:>4} MiB",
        figure("stat::number_of_executed_units"),
        figure("stat::average_exec_per_sec"),
        figure("stat::peak_rss_mb")
    )
}

/// The end of what a target printed: the panic, and libFuzzer's words about it.
fn last_lines(log: &str) -> String {
    const LINES: usize = 30;
    let is_told = |line: &&str| {
        !line.starts_with("stat::") && !line.contains("\tNEW ") && !line.contains("\tREDUCE")
    };
    let lines: Vec<&str> = log.lines().filter(is_told).collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_finds_its_seeds() {
        for target in targets(None).unwrap() {
            let corpus = tempfile::tempdir().unwrap();
            let max_bytes = target.seeds.max_input_bytes.unwrap_or(MAX_INPUT_BYTES);
            target.seeds.copy_to(corpus.path(), max_bytes).unwrap();
        }
    }

    #[test]
    fn an_unknown_target_is_named_beside_the_known_ones() {
        let error = targets(Some("tarr")).unwrap_err().to_string();
        assert!(
            error.contains("\"tarr\"") && error.contains("tar, "),
            "{error}"
        );
    }

    #[test]
    fn figures_are_those_of_the_last_lines() {
        let log = "Done 9 runs\nstat::number_of_executed_units: 1234\nstat::average_exec_per_sec:     411\n\
                   stat::peak_rss_mb:              57\n";
        assert_eq!(
            statistics(log),
            "     1234 executions,   411 per second,   57 MiB"
        );
        assert!(statistics("").contains('?'));
    }

    #[test]
    fn of_a_finding_the_panic_is_shown_and_the_search_is_not() {
        let log = "#1\tINITED cov: 3\n#2\tNEW    cov: 5\nthread panicked at x.rs:1\nstat::peak_rss_mb: 5\n";
        assert_eq!(
            last_lines(log),
            "#1\tINITED cov: 3\nthread panicked at x.rs:1"
        );
    }
}
