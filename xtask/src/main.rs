//! Repository chores: `cargo xtask ci`, `cargo xtask wheel`, `cargo xtask generate`.

#![expect(clippy::disallowed_methods, reason = "a tool for developers")]
#![expect(clippy::print_stdout, reason = "a tool for people at a terminal")]

mod accuracy;
mod build;
mod ci;
mod differential;
mod docs;
mod env_vars;
mod failures;
mod faults;
mod fuzz;
mod generate;
mod never_worse;
mod pytest;
mod shell;
mod structure;
mod tools;
mod wheel;
mod words;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// Builds, checks and generates what the repository holds.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Set predictions beside measurements of real GPUs
    Accuracy {
        /// The directory of measurements
        #[arg(long, value_name = "DIR")]
        truth: PathBuf,
        /// Compare speeds instead of memory
        #[arg(long)]
        speed: bool,
        /// Compare only what lies outside of PyTorch's allocator; needs no Python
        #[arg(long, conflicts_with = "speed")]
        contexts: bool,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
        /// Only so many rows of each set, the same each time; below 100 no page is written
        #[arg(long, value_name = "N")]
        sample: Option<usize>,
        /// A Python with torch, timm, transformers, torchvision and pyarrow
        #[arg(long, value_name = "PATH", default_value = "python3")]
        python: PathBuf,
        /// The phantom library, if not the one that cargo builds
        #[arg(long, value_name = "PATH")]
        phantom: Option<PathBuf>,
    },
    /// Fit the parameters of the speed model to measured speeds, and write them into the source
    Fit {
        /// The directory of measurements
        #[arg(long, value_name = "DIR")]
        truth: PathBuf,
        /// A Python with torch, timm, transformers, torchvision and pyarrow
        #[arg(long, value_name = "PATH", default_value = "python3")]
        python: PathBuf,
        /// The phantom library, if not the one that cargo builds
        #[arg(long, value_name = "PATH")]
        phantom: Option<PathBuf>,
    },
    /// Run everything that CI runs, step by step
    Ci {
        /// Begin with this step, such as `wheel`, after a failure there was mended
        #[arg(long, value_name = "STEP")]
        from: Option<String>,
        /// Run also what takes too long for every submission
        #[arg(long)]
        full: bool,
    },
    /// Build the wheel: the Python package and the native program
    Wheel {
        /// Where to put it
        #[arg(long, value_name = "DIR", default_value = "dist")]
        out: PathBuf,
    },
    /// Build the source distribution
    Sdist {
        /// Where to put it
        #[arg(long, value_name = "DIR", default_value = "dist")]
        out: PathBuf,
    },
    /// Build the documentation site; a broken link is an error
    Docs {
        /// Where to put it, if not into the cache
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
    /// Play random traces on PyTorch's own allocator, on the phantom GPU, and compare the model event by event
    Differential {
        /// The Python whose torch is asked
        #[arg(long, value_name = "PATH")]
        python: PathBuf,
        /// How many traces, over all settings
        #[arg(long, value_name = "N", default_value_t = 10_000)]
        traces: usize,
        #[arg(long, value_name = "N", default_value_t = 500)]
        events: usize,
        #[arg(long, value_name = "N", default_value_t = 1)]
        seed: u64,
        /// The phantom library, if not the one that cargo builds
        #[arg(long, value_name = "PATH")]
        phantom: Option<PathBuf>,
    },
    /// Explain failure texts whose cause is known, and count what is right
    Failures {
        /// One JSON object per line with `id`, `text` and `label`
        #[arg(long, value_name = "PATH")]
        file: PathBuf,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Run programs that misbehave on purpose under `brimful run`, and compare what it says about their ends
    Faults {
        /// How often each
        #[arg(long, value_name = "N", default_value_t = 1)]
        rounds: u32,
        /// Repeat a run that goes wrong up to N times; one that is right at a later try is reported as flaky
        #[arg(long, value_name = "N", default_value_t = 0)]
        retries: u32,
        /// Only this one, and others so named
        #[arg(long, value_name = "NAME")]
        only: Vec<String>,
        /// The program, if not the one that cargo builds
        #[arg(long, value_name = "PATH")]
        brimful: Option<PathBuf>,
        /// A Python with torch and numpy, if not the one that CI uses
        #[arg(long, value_name = "PATH")]
        python: Option<PathBuf>,
        /// The phantom library, if not the one that cargo builds
        #[arg(long, value_name = "PATH")]
        phantom: Option<PathBuf>,
        /// One more option of `brimful run`, such as `--with=--no-hook`
        #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
        with: Vec<String>,
        /// Without brimful: only whether each program ends as it should
        #[arg(long)]
        bare: bool,
        /// Print what brimful says at the end of each
        #[arg(long)]
        show: bool,
        /// Copy the record of each run into a directory of its name here
        #[arg(long, value_name = "DIR")]
        keep: Option<PathBuf>,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Run small programs bare and under `brimful run`, and compare everything that can be seen of them
    NeverWorse(never_worse::Options),
    /// Print import cycles, vocabulary collisions and long functions
    Structure,
    /// Look for phrases that readers stumble over
    Words,
    /// Look for inputs that break the parsers, for some seconds each
    Fuzz {
        /// Only this target
        #[arg(value_name = "TARGET")]
        target: Option<String>,
        /// Seconds for each target
        #[arg(long, value_name = "N", default_value_t = 10)]
        seconds: u64,
        /// Start from this seed instead of a new one
        #[arg(long, value_name = "N")]
        seed: Option<u32>,
        /// Run the target once on this input, such as one that CI found
        #[arg(long, value_name = "PATH", requires = "target")]
        input: Option<PathBuf>,
        /// Keep the inputs that reach most code in fuzz/corpus
        #[arg(long)]
        keep: bool,
    },
    /// Write the files that are made from code: schemas, Python classes, stubs, reference pages
    Generate {
        /// Write nothing; fail if a file would change
        #[arg(long)]
        check: bool,
    },
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().task {
        Task::Accuracy {
            truth,
            speed,
            contexts,
            json,
            sample,
            python,
            phantom,
        } => {
            let compare = match (speed, contexts) {
                (true, _) => accuracy::run_speed,
                (false, true) => accuracy::run_contexts,
                (false, false) => accuracy::run,
            };
            compare(&accuracy::Options {
                truth,
                json,
                sample,
                python,
                phantom,
            })
        }
        Task::Fit {
            truth,
            python,
            phantom,
        } => accuracy::write_parameters(&accuracy::Options::of_all(truth, python, phantom)),
        Task::Ci { from, full } => ci::run_steps(from.as_deref(), full),
        Task::Wheel { out } => {
            let wheel = wheel::build(&out)?;
            println!("{}", wheel.display());
            Ok(())
        }
        Task::Docs { out } => {
            let out = out.unwrap_or_else(docs::default_directory);
            docs::build(&out)?;
            println!("{}", out.join("index.html").display());
            Ok(())
        }
        Task::Sdist { out } => wheel::build_source(&out),
        Task::Differential {
            python,
            traces,
            events,
            seed,
            phantom,
        } => differential::run(
            &python,
            &differential::phantom(phantom)?,
            traces,
            seed,
            events,
        ),
        Task::Failures { file, json } => failures::run(&file, json),
        Task::Faults {
            rounds,
            retries,
            only,
            brimful,
            python,
            phantom,
            with,
            bare,
            show,
            keep,
            json,
        } => faults::run(&faults::Options {
            rounds,
            retries,
            only,
            brimful,
            python,
            phantom,
            with,
            bare,
            show,
            keep,
            json,
        }),
        Task::Fuzz {
            target,
            seconds,
            seed,
            input,
            keep,
        } => fuzz::fuzz(&fuzz::Options {
            target,
            seconds,
            seed,
            input,
            keep,
        }),
        Task::NeverWorse(options) => never_worse::run(&options),
        Task::Structure => structure::check(),
        Task::Words => words::check(),
        Task::Generate { check } => generate::all(check),
    }
}
