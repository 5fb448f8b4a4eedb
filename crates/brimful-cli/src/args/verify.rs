//! Arguments of `brimful verify`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use crate::args::{DEFAULT_TIME_LIMIT, ProtectionArguments, StateArguments};

/// Steps of a measured run. The first three are not timed.
const DEFAULT_VERIFY_STEPS: u32 = 10;

/// Arguments of `brimful verify`.
#[derive(Debug, Args)]
pub struct VerifyArguments {
    /// Number of optimizer steps to rehearse and then to run on the GPU; all but the first 3 are timed
    #[arg(long, value_name = "N", default_value_t = DEFAULT_VERIFY_STEPS, value_parser = clap::value_parser!(u32).range(5..=1000))]
    pub steps: u32,

    /// GPU to run on, as PyTorch numbers it; several with commas for a command with several processes
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "0")]
    pub gpu: Vec<u32>,

    /// Write the values to this file
    #[arg(long, value_name = "FILE", default_value = brimful_workflow::DEFAULT_VERIFY_FILE)]
    pub save: PathBuf,

    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,

    /// Write the output of the run on the GPU to this file
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Abort the rehearsal, and then the run on the GPU, after this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = DEFAULT_TIME_LIMIT)]
    pub time_limit: u64,

    #[command(flatten)]
    pub protection: ProtectionArguments,

    #[command(flatten)]
    pub state: StateArguments,

    /// Path to the phantom GPU library [default: the one installed with brimful]
    #[arg(long, value_name = "PATH", hide = true)]
    pub phantom: Option<PathBuf>,

    /// Training command to verify
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}
