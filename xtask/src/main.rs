//! Repository chores: `cargo xtask ci`, `cargo xtask wheel`, `cargo xtask generate`.

#![expect(clippy::print_stdout, reason = "a tool for people at a terminal")]

mod ci;
mod generate;
mod shell;
mod tools;
mod wheel;

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
    /// Run everything that CI runs, step by step
    Ci,
    /// Build the wheel: the Python package and the native program
    Wheel {
        /// Where to put it
        #[arg(long, value_name = "DIR", default_value = "dist")]
        out: PathBuf,
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
        Task::Ci => ci::all_steps(),
        Task::Wheel { out } => {
            let wheel = wheel::build(&out)?;
            println!("{}", wheel.display());
            Ok(())
        }
        Task::Generate { check } => generate::all(check),
    }
}
