//! Small programs, each bare and under `brimful run`: is anything about them different that is not promised?
//!
//! The programs are in `faults/never-worse/`. `surroundings.py` runs them in surroundings made for real and tells what
//! can be seen, `compare.rs` compares, and `promises.rs` lists what may differ.

mod compare;
mod observe;
mod programs;
mod promises;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::faults::built_brimful;
use compare::{Difference, differences};
use observe::{Observation, Observer, Supervision};
use programs::{Program, Surroundings};
use promises::PROMISES;

/// How often a pair of runs is repeated that differs: a busy machine delays one of them.
const RETRIES: u32 = 2;

/// What may be asked.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Options {
    /// Only this one, and others so named
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// The program, if not the one that cargo builds
    #[arg(long, value_name = "PATH")]
    brimful: Option<PathBuf>,
    /// Print the documented differences of each program too
    #[arg(long)]
    show: bool,
}

/// One program in one of its surroundings.
struct Case<'a> {
    program: &'a Program,
    surroundings: Surroundings,
}

/// What was found about a case.
#[derive(Default)]
struct Found {
    problems: Vec<String>,
    promised: Vec<&'static str>,
    n_retries: u32,
}

/// Runs all cases; a difference that is not promised is an error.
pub(crate) fn run(options: &Options) -> Result<()> {
    promises::check_guide()?;
    let programs = programs::load()?;
    for name in &options.only {
        ensure!(
            programs.iter().any(|program| &program.name == name),
            "there is no program {name}"
        );
    }
    let brimful = match &options.brimful {
        Some(path) => path.canonicalize().context("--brimful")?,
        None => built_brimful()?,
    };
    let chosen =
        |program: &&Program| options.only.is_empty() || options.only.contains(&program.name);
    let cases: Vec<Case<'_>> = programs
        .iter()
        .filter(chosen)
        .flat_map(|program| {
            program
                .surroundings()
                .into_iter()
                .map(move |surroundings| Case {
                    program,
                    surroundings,
                })
        })
        .collect();
    let began = Instant::now();
    let found = run_all(&cases, &brimful)?;
    report(&cases, &found, options.show, began);
    let n_different = found
        .iter()
        .filter(|found| !found.problems.is_empty())
        .count();
    ensure!(
        n_different == 0,
        "{n_different} of {} programs and surroundings differ under `brimful run`",
        cases.len()
    );
    Ok(())
}

fn report(cases: &[Case<'_>], found: &[Found], show: bool, began: Instant) {
    let mut by_promise: BTreeMap<&str, usize> = BTreeMap::new();
    for (case, found) in cases.iter().zip(found) {
        for promise in &found.promised {
            *by_promise.entry(promise).or_default() += 1;
        }
        let name = format!("{} ({})", case.program.name, case.surroundings.name());
        if found.n_retries > 0 && found.problems.is_empty() {
            println!("{name}: flaky, right after {} retries", found.n_retries);
        }
        for problem in &found.problems {
            println!("{name}: {problem}");
        }
        if show && !found.promised.is_empty() {
            println!("{name}: promised: {}", found.promised.join(", "));
        }
    }
    println!(
        "{} programs and surroundings, each bare and with {} sets of options, in {:.0} s",
        cases.len(),
        Supervision::ALL.len() - 1,
        began.elapsed().as_secs_f64()
    );
    for promise in PROMISES {
        let n_cases = by_promise.get(promise.id).copied().unwrap_or(0);
        println!("{n_cases:>5}  {}", promise.title);
    }
}

fn run_all(cases: &[Case<'_>], brimful: &Path) -> Result<Vec<Found>> {
    let directory = tempfile::tempdir()?;
    let next = AtomicUsize::new(0);
    let found: Mutex<Vec<Option<Result<Found>>>> = Mutex::new(cases.iter().map(|_| None).collect());
    // Most of them wait for something most of the time.
    let n_workers = 2 * std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..n_workers {
            scope.spawn(|| {
                let mut observer = Observer::new(directory.path(), brimful);
                loop {
                    let idx = next.fetch_add(1, Ordering::Relaxed);
                    let Some(case) = cases.get(idx) else { break };
                    let seen = check(&mut observer, case, idx);
                    if let Ok(mut found) = found.lock() {
                        found[idx] = Some(seen);
                    }
                }
            });
        }
    });
    let found = found.into_inner().ok().context("a worker panicked")?;
    found
        .into_iter()
        .map(|found| found.context("a case was not run")?)
        .collect()
}

/// Compares a program with itself, and once more where it differs.
fn check(observer: &mut Observer, case: &Case<'_>, idx: usize) -> Result<Found> {
    let mut found = Found::default();
    for attempt in 0..=RETRIES {
        found = Found {
            n_retries: attempt,
            ..Found::default()
        };
        let mut seen: Vec<(Supervision, Observation)> = Vec::new();
        for supervision in Supervision::ALL {
            let name = format!("{idx}-{attempt}-{}", supervision.name());
            let observation = observer
                .observe(case.program, case.surroundings, supervision, &name)
                .with_context(|| case.program.name.clone())?;
            seen.push((supervision, observation));
        }
        let (_, bare) = &seen[0];
        for (supervision, under) in &seen[1..] {
            for difference in differences(case.program, case.surroundings, bare, under) {
                match difference {
                    Difference::Promised(id) => found.promised.push(id),
                    Difference::Undocumented(text) => found
                        .problems
                        .push(format!("with {}: {text}", supervision.name())),
                }
            }
        }
        found.promised.sort_unstable();
        found.promised.dedup();
        if found.problems.is_empty() {
            break;
        }
    }
    Ok(found)
}
