//! Arguments of `brimful prepare`.

use std::path::PathBuf;

use brimful::units::Bytes;
use clap::Args;

/// Arguments of `brimful prepare`.
#[derive(Debug, Args)]
pub struct PrepareArguments {
    /// Recipe: a TOML file with the source, the ops and the shards
    #[arg(value_name = "RECIPE")]
    pub recipe: PathBuf,

    /// Directory of the dataset, or a prefix such as s3://bucket/shards: new, empty, or from an interrupted run
    #[arg(long, value_name = "DIR|URL")]
    pub out: PathBuf,

    /// Memory budget, without the tokenizer and Python itself
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    pub memory: String,

    /// Number of threads [default: one per usable CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub threads: Option<u64>,

    /// Keep only the samples that a Parquet file names, by `index` or by a field of JSON lines such as `id`
    #[arg(long, value_name = "PATH")]
    pub keep: Option<PathBuf>,

    /// Where tasks run: ray (the cluster of RAY_ADDRESS, or a new one here), ray://HOST:PORT, or slurm [default: here]
    #[arg(long, value_name = "PLACE", value_parser = place, conflicts_with = "threads")]
    pub on: Option<String>,

    /// Show the tasks, the bytes and the time that it would take, and write nothing
    #[arg(long)]
    pub dry_run: bool,

    /// Write a report with the first samples to this HTML file, also of a dry run
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,

    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,

    /// Python in which brimful is installed [default: the one beside this program]
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,
}

/// Arguments of `brimful prepare-task`.
#[derive(Debug, Args)]
pub struct PrepareTaskArguments {
    /// Directory or prefix in which `brimful prepare` has begun
    #[arg(value_name = "DIR|URL")]
    pub out: PathBuf,

    /// What to run: map, tails, shard or finish, in this order
    #[arg(value_name = "PHASE", value_parser = ["map", "tails", "shard", "finish"])]
    pub phase: String,

    /// Memory budget of the task
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    pub memory: Bytes,

    /// Number of this process, from 0 on
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub element: u64,

    /// Number of processes: each takes every N-th task
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub of: u64,

    /// Python in which brimful is installed [default: the one beside this program]
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,
}

fn place(text: &str) -> Result<String, String> {
    if matches!(text, "ray" | "slurm") || text.starts_with("ray://") {
        Ok(text.to_owned())
    } else {
        Err("expected ray, ray://HOST:PORT or slurm".to_owned())
    }
}
