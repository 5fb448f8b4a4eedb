//! Arguments of `brimful prepare`.

use std::path::PathBuf;

use clap::Args;

/// Arguments of `brimful prepare`.
#[derive(Debug, Args)]
pub struct PrepareArguments {
    /// Recipe: a TOML file with the source, the ops and the shards
    #[arg(value_name = "RECIPE")]
    pub recipe: PathBuf,

    /// Directory of the dataset: new, empty, or from an interrupted run
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,

    /// Memory budget, without the tokenizer and Python itself
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    pub memory: String,

    /// Number of threads [default: one per usable CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub threads: Option<u64>,

    /// Where tasks run: ray (the cluster of RAY_ADDRESS, or a new one here), ray://HOST:PORT, or slurm [default: here]
    #[arg(long, value_name = "PLACE", value_parser = place, conflicts_with = "threads")]
    pub on: Option<String>,

    /// Show the tasks, the bytes and the time that it would take, and write nothing
    #[arg(long)]
    pub dry_run: bool,

    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,

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
