//! What CI runs, step by step, each with its name and time.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::build::{build_everything, built};
use crate::pytest::{RETRIES, pytest};
use crate::shell::{cache, cargo, program, read, root, run};
use crate::tools::{
    cargo_deny, fresh_environment, prepare_environments, python_tools, tests_environment,
    torch_environment,
};
use crate::{differential, docs, faults, fuzz, generate, never_worse, structure, wheel, words};

/// One step: its name and what it does.
type Step = (&'static str, fn() -> Result<()>);

/// The library as the wheel brings it.
const PHANTOM: &str = "brimful.data/data/lib/brimful/libbrimful_phantom.so";

const STEPS: &[Step] = &[
    ("format", format),
    ("structure", structure::check),
    ("words", words::check),
    ("clippy", clippy),
    ("build", build_everything),
    ("tests", tests),
    ("doc tests", doc_tests),
    ("documentation", documentation),
    ("documentation site", documentation_site),
    ("dependency policy", dependency_policy),
    ("python style", python_style),
    ("workflows", workflows),
    ("generated files", generated_files),
    ("wheel", build_wheel),
    ("wheel alone", wheel_alone),
    ("python tests", python_tests),
    ("python types", python_types),
    ("torch on the phantom", torch_tests),
    ("faults", faults_once),
    ("escapes", escapes),
    ("never worse", never_worse_once),
    ("plans hold", plans_hold),
    ("allocator against torch", differential_sample),
];

/// What takes too long for every submission: `cargo xtask ci --full`.
const LONG_STEPS: &[Step] = &[
    ("fuzz targets", fuzz_targets),
    ("wheel for users", build_release_wheel),
    ("python tests of the wheel for users", release_wheel_tests),
    ("faults, three rounds", faults_three_rounds),
    ("plans hold, 60 jobs", plans_hold_long),
    ("allocator against torch, 10000 traces", differential_long),
];

/// Runs every step, or those from a named one on; the first failure ends it.
pub(crate) fn run_steps(first: Option<&str>, full: bool) -> Result<()> {
    let long: &[Step] = if full { LONG_STEPS } else { &[] };
    let steps: Vec<&Step> = STEPS.iter().chain(long).collect();
    let skipped = match first {
        Some(first) => steps
            .iter()
            .position(|(name, _)| *name == first)
            .with_context(|| {
                let known: Vec<&str> = steps.iter().map(|(name, _)| *name).collect();
                format!("there is no step {first:?}; there are {}", known.join(", "))
            })?,
        None => 0,
    };
    // Downloads wait for the network, and compilers do not.
    std::thread::spawn(prepare_environments);
    let start = Instant::now();
    let mut times = Vec::new();
    for (name, step) in &steps[skipped..] {
        println!("\n=== {name}");
        let (began, cpu_before) = (Instant::now(), cpu_seconds());
        step().with_context(|| format!("step failed: {name}"))?;
        let seconds = began.elapsed().as_secs_f64();
        let cpu = cpu_seconds() - cpu_before;
        println!("--- {name}: {seconds:.1} s, {cpu:.1} s of CPU time");
        times.push((name, seconds, cpu));
    }
    println!(
        "\nall steps passed in {:.0} s",
        start.elapsed().as_secs_f64()
    );
    println!("  elapsed  CPU time");
    for (name, seconds, cpu) in times {
        println!("{seconds:>7.1} s {cpu:>7.1} s  {name}");
    }
    Ok(())
}

/// What this process and those that it has waited for have computed; the environments are made beside the steps.
fn cpu_seconds() -> f64 {
    // Fields 14 to 17 of proc(5), counted from behind the name, in hundredths of a second.
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields.split_whitespace().skip(11).take(4);
    ticks
        .filter_map(|ticks| ticks.parse::<f64>().ok())
        .sum::<f64>()
        / 100.0
}

fn format() -> Result<()> {
    run(&mut cargo(&["fmt", "--all", "--check"]))
}

fn clippy() -> Result<()> {
    run(&mut cargo(&[
        "clippy",
        "--workspace",
        "--all-targets",
        "--locked",
        "--quiet",
        "--",
        "--deny",
        "warnings",
    ]))
}

fn tests() -> Result<()> {
    // What lands must not hang on luck: here the laws are held to the same cases each time. Everywhere else each run
    // draws new ones.
    run(cargo(&[
        "nextest",
        "run",
        "--workspace",
        "--locked",
        "--profile",
        "ci",
    ])
    .env("PROPTEST_RNG_SEED", "1"))
}

fn doc_tests() -> Result<()> {
    run(&mut cargo(&[
        "test",
        "--workspace",
        "--doc",
        "--locked",
        "--quiet",
    ]))
}

fn documentation() -> Result<()> {
    run(cargo(&[
        "doc",
        "--workspace",
        "--no-deps",
        "--locked",
        "--quiet",
        "--document-private-items",
    ])
    .env("RUSTDOCFLAGS", "--deny warnings"))
}

fn documentation_site() -> Result<()> {
    docs::build(&docs::default_directory())
}

/// Each target for ten seconds. The kept inputs of each are among the tests.
fn fuzz_targets() -> Result<()> {
    fuzz::fuzz(&fuzz::Options {
        target: None,
        seconds: 10,
        seed: None,
        input: None,
        keep: false,
    })
}

fn dependency_policy() -> Result<()> {
    // The policy covers every platform, and looks without a network: bring the crates of the others first.
    run(&mut cargo(&["fetch", "--locked", "--quiet"]))?;
    let deny = cargo_deny()?;
    let check = |what: &[&str]| {
        let mut command = std::process::Command::new(&deny);
        command
            .current_dir(root())
            .args(["--log-level", "error", "--offline", "check"])
            .args(what);
        command
    };
    run(&mut check(&["licenses", "bans", "sources"]))?;
    if has_advisory_database() {
        run(&mut check(&["advisories"]))
    } else {
        println!("advisories: skipped, the database is not here (`cargo deny fetch db` brings it)");
        Ok(())
    }
}

/// cargo-deny keeps each database in a folder of its own there, and makes the outer one even when it finds none.
fn has_advisory_database() -> bool {
    let home = std::env::var_os(crate::env_vars::CARGO_HOME).map(PathBuf::from);
    let default = || Some(PathBuf::from(std::env::var_os(crate::env_vars::HOME)?).join(".cargo"));
    home.or_else(default)
        .and_then(|home| fs::read_dir(home.join("advisory-dbs")).ok())
        .is_some_and(|entries| {
            entries
                .flatten()
                .any(|entry| entry.path().join(".git").exists())
        })
}

fn never_worse_once() -> Result<()> {
    never_worse::run(&never_worse::Options::default())
}

fn python_style() -> Result<()> {
    let tools = python_tools()?;
    let folders = [
        "python",
        "benches",
        "docs",
        "examples",
        "faults",
        "integrations",
        "xtask/src/never_worse",
        "crates/brimful-rehearse/src/hook",
        "crates/brimful-supervise/src/hook",
    ];
    run(tools.tool("ruff", &["check", "--no-cache"]).args(folders))?;
    run(tools
        .tool("ruff", &["format", "--no-cache", "--check"])
        .args(folders))
}

/// GitHub's workflows and issue forms: valid by their schemas, and free of known security mistakes.
///
/// Both tools bring what they compare with, and ask nobody.
fn workflows() -> Result<()> {
    let tools = python_tools()?;
    let files = |directory: &str| -> Result<Vec<PathBuf>> {
        let entries = fs::read_dir(root().join(directory))?;
        Ok(entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .collect())
    };
    let check = |schema: &str, files: &[PathBuf]| {
        let arguments = ["--quiet", "--builtin-schema", schema];
        run(tools.tool("check-jsonschema", &arguments).args(files))
    };
    let workflows = files(".github/workflows")?;
    check("vendor.github-workflows", &workflows)?;
    check("custom.github-workflows-require-timeout", &workflows)?;
    let mut forms = files(".github/ISSUE_TEMPLATE")?;
    forms.retain(|path| !path.ends_with("config.yml"));
    check("vendor.github-issue-forms", &forms)?;
    run(&mut tools.tool("zizmor", &["--offline", "--quiet", ".github"]))
}

fn generated_files() -> Result<()> {
    generate::all(true)
}

fn build_wheel() -> Result<()> {
    say_size(&wheel::assemble(&dist())?)
}

/// The wheel that users install: its size is part of the check.
fn build_release_wheel() -> Result<()> {
    say_size(&wheel::build(&release_dist())?)
}

/// What users install passes what the quick build has passed.
fn release_wheel_tests() -> Result<()> {
    let wheel = built_wheel(&release_dist())?;
    let environment = tests_environment()?;
    environment.replace_wheel(&wheel)?;
    pytest(&environment, &root().join("python/tests"))
}

fn say_size(wheel: &Path) -> Result<()> {
    let size = fs::metadata(wheel)?.len();
    println!(
        "{}: {size} bytes",
        wheel.file_name().unwrap_or_default().display()
    );
    Ok(())
}

fn dist() -> PathBuf {
    cache().join("dist")
}

fn release_dist() -> PathBuf {
    cache().join("dist-release")
}

fn built_wheel(directory: &Path) -> Result<PathBuf> {
    fs::read_dir(directory)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .context("no wheel was built")
}

/// The first thing a user does: a new environment, the wheel, the command.
fn wheel_alone() -> Result<()> {
    let environment = fresh_environment("wheel-alone")?;
    environment.install_wheel(&built_wheel(&dist())?)?;
    let installed = read(&mut environment.python(&[
        "-m",
        "pip",
        "list",
        "--format",
        "freeze",
        "--exclude",
        "pip",
        "--exclude",
        "setuptools",
    ]))?;
    ensure!(
        installed.trim() == format!("brimful=={}", env!("CARGO_PKG_VERSION")),
        "expected brimful alone, found {installed:?}: the wheel must need nothing else"
    );
    let program = environment.bin().join("brimful");
    ensure!(
        is_native(&program)?,
        "expected {} to be a native program",
        program.display()
    );
    run(&mut environment.tool("brimful", &["probe"]))?;
    run(&mut environment.python(&["-c", "import brimful; print(repr(brimful.probe()))"]))
}

fn is_native(path: &Path) -> Result<bool> {
    Ok(fs::read(path)?.starts_with(b"\x7fELF"))
}

/// The tests run against the installed wheel, never against the source folder.
fn python_tests() -> Result<()> {
    let environment = tests_environment()?;
    environment.replace_wheel(&built_wheel(&dist())?)?;
    pytest(&environment, &root().join("python/tests"))?;
    run(environment
        .python(&[
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "--quiet",
            "--doctest-modules",
            "--pyargs",
            "brimful",
        ])
        .current_dir(std::env::temp_dir()))
}

fn python_types() -> Result<()> {
    let tools = python_tools()?;
    let cache_dir = cache().join("mypy");
    run(tools.tool("mypy", &["--cache-dir"]).arg(&cache_dir))?;
    // The stubs against the module that was built.
    let python = tests_environment()?.bin().join("python");
    let stubtest = tools
        .python(&[
            "-c",
            "import sysconfig; print(sysconfig.get_path('purelib'))",
        ])
        .output()?;
    let site = String::from_utf8_lossy(&stubtest.stdout).trim().to_owned();
    run(std::process::Command::new(python)
        .args(["-m", "mypy.stubtest", "brimful._native", "--concise"])
        .arg("--allowlist")
        .arg(root().join("python/stubtest-allowed.txt"))
        .env("PYTHONPATH", site)
        .env("MYPY_CACHE_DIR", &cache_dir)
        .current_dir(std::env::temp_dir()))
}

/// PyTorch with the phantom as its GPU, and predictions of small scripts, from the installed wheel.
fn torch_tests() -> Result<()> {
    let environment = torch_environment()?;
    environment.replace_wheel(&built_wheel(&dist())?)?;
    pytest(&environment, &root().join("python/torch_tests"))
}

/// Every program of `faults/` once, under the program that the wheel brought.
fn faults_once() -> Result<()> {
    run_faults(1)
}

fn faults_three_rounds() -> Result<()> {
    run_faults(3)
}

fn run_faults(rounds: u32) -> Result<()> {
    let environment = torch_environment()?;
    faults::run(&faults::Options {
        rounds,
        retries: RETRIES,
        only: Vec::new(),
        brimful: Some(environment.bin().join("brimful")),
        python: Some(environment.bin().join("python")),
        phantom: Some(root().join(PHANTOM)),
        with: Vec::new(),
        show: false,
        keep: None,
        bare: false,
        json: false,
    })
}

/// Every way out of a rehearsal, as root, as another user and as in Docker; and the guide's table of what was found.
fn escapes() -> Result<()> {
    let mut suite = program("python3", &[]);
    suite
        .arg(root().join("faults/escapes/suite.py"))
        .arg(built("brimful"))
        .arg("--guide")
        .arg(root().join("docs/guides/predict.md"));
    run(&mut suite)
}

/// A sample of what `benches/plans/plans_hold.py` does: random jobs, planned and run under real limits.
fn plans_hold() -> Result<()> {
    let mut outcome = plan_random_jobs("10");
    for retry in 1..=RETRIES {
        if outcome.is_ok() {
            break;
        }
        println!("FLAKY? repeating ({retry} of {RETRIES})");
        outcome = plan_random_jobs("10");
    }
    outcome
}

fn plans_hold_long() -> Result<()> {
    plan_random_jobs("60")
}

fn plan_random_jobs(n_jobs: &str) -> Result<()> {
    if !may_make_groups() {
        println!("skipped: control groups cannot be made here");
        return Ok(());
    }
    let environment = torch_environment()?;
    let brimful = environment.bin().join("brimful");
    run(environment
        .python(&[
            "benches/plans/plans_hold.py",
            "--jobs",
            n_jobs,
            "--at-once",
            "2",
        ])
        .arg("--brimful")
        .arg(brimful)
        .current_dir(root()))
}

/// Whether this machine lets us set limits that kill.
fn may_make_groups() -> bool {
    let memory = Path::new("/sys/fs/cgroup/memory");
    let root = if memory.is_dir() {
        memory
    } else {
        Path::new("/sys/fs/cgroup")
    };
    let name = root.join(format!("brimful-ci-{}", std::process::id()));
    let made = fs::create_dir(&name).is_ok();
    let _ = fs::remove_dir(&name);
    made
}

/// A seeded part of what `cargo xtask differential` does.
fn differential_sample() -> Result<()> {
    let python = torch_environment()?.bin().join("python");
    differential::run(&python, &root().join(PHANTOM), 300, 1, 500)
}

fn differential_long() -> Result<()> {
    let python = torch_environment()?.bin().join("python");
    differential::run(&python, &root().join(PHANTOM), 10_000, 2, 500)
}
