//! Arguments of `brimful run`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::args::{JobArguments, PlanRehearsalArguments, StateArguments};

/// Arguments of `brimful run`.
#[derive(Debug, Args)]
pub struct RunArguments {
    #[command(flatten)]
    pub state: StateArguments,

    /// Action to take before host memory runs out
    #[arg(long, value_name = "ACTION", default_value = "warn")]
    pub on_pressure: OnPressureChoice,

    /// Checkpoint signal; sent only to processes that have a handler for it
    #[arg(long, value_name = "SIGNAL", default_value = "USR1")]
    pub signal: CheckpointSignal,

    /// Grace period in seconds between the checkpoint signal, SIGTERM and SIGKILL; shortened if memory will run out sooner
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub grace: u64,

    /// Print the actions of --on-pressure without taking them
    #[arg(long)]
    pub dry_run: bool,

    /// Do not inject the Python hook (disables step, DataLoader and CUDA allocator statistics)
    #[arg(long)]
    pub no_hook: bool,

    /// Record every CUDA allocation, so that `brimful explain` can test other allocator settings after a failure
    #[arg(long, conflicts_with = "no_hook")]
    pub trace_allocations: bool,

    /// Write Prometheus metrics to this file, for node_exporter
    #[arg(long, value_name = "FILE")]
    pub metrics_file: Option<PathBuf>,

    /// Send metrics to an OpenTelemetry collector, by OTLP over HTTP [default URL: $OTEL_EXPORTER_OTLP_ENDPOINT, else http://localhost:4318]
    #[arg(long, value_name = "URL", num_args = 0..=1, require_equals = true, value_parser = collector_url)]
    pub otlp: Option<Option<String>>,

    /// Write one Parquet file about the run to this directory or s3:// URL when it has ended, for `brimful runs --at` [default: $BRIMFUL_RECORDS]
    #[arg(long, value_name = "DIR|URL")]
    pub records: Option<String>,

    /// Hide the status line
    #[arg(long)]
    pub no_status: bool,

    /// Stop the command if the process with this ID, which started brimful, ends
    #[arg(long, value_name = "PID")]
    pub stop_with_parent: Option<u32>,

    /// Print nothing except the cause of a failure
    #[arg(long, short)]
    pub quiet: bool,

    /// Do not print the outcome and its explanation at the end; `brimful explain` shows them later
    #[arg(long)]
    pub no_summary: bool,

    #[command(flatten)]
    pub job: JobArguments,

    /// Restrict a knob of the job to a value, for example workers=2; can be repeated
    #[arg(long = "set", value_name = "KNOB=VALUE")]
    pub overrides: Vec<String>,

    /// Skip planning and start with the preferred value of every knob
    #[arg(long)]
    pub as_wanted: bool,

    /// Start from the complete checkpoint with the highest step
    #[arg(long)]
    pub resume: bool,

    /// Accept checkpoints that belong to another user, are dated in the future, or contain only zeros
    #[arg(long)]
    pub force: bool,

    /// Maximum number of attempts
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub attempts: u32,

    /// Plan for these GPU models; "none" plans for the CPU [default: the GPUs of this machine]
    #[arg(long, value_name = "GPUS")]
    pub gpu: Option<String>,

    /// Ignore measurements from earlier runs of this job
    #[arg(long)]
    pub forget: bool,

    #[command(flatten)]
    pub rehearse: PlanRehearsalArguments,

    /// Training command to run [default: the job in the current directory]
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    pub command: Vec<OsString>,
}

/// The URL of a collector.
fn collector_url(text: &str) -> Result<String, String> {
    let is_url = text.starts_with("http://") || text.starts_with("https://");
    if is_url && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(text.to_owned());
    }
    Err("expected a URL such as http://localhost:4318".to_owned())
}

/// What to do before memory runs out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnPressureChoice {
    /// Print a warning
    Warn,
    /// Send the checkpoint signal and let the run continue
    Checkpoint,
    /// Send the checkpoint signal, then SIGTERM, then SIGKILL
    Stop,
}

/// A signal on which a training process may write a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CheckpointSignal {
    #[value(name = "USR1", alias = "SIGUSR1", alias = "usr1")]
    Usr1,
    #[value(name = "USR2", alias = "SIGUSR2", alias = "usr2")]
    Usr2,
    #[value(name = "HUP", alias = "SIGHUP", alias = "hup")]
    Hup,
    #[value(name = "INT", alias = "SIGINT", alias = "int")]
    Int,
    #[value(name = "TERM", alias = "SIGTERM", alias = "term")]
    Term,
}

impl CheckpointSignal {
    pub(crate) fn number(self) -> i32 {
        use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
        match self {
            CheckpointSignal::Usr1 => SIGUSR1,
            CheckpointSignal::Usr2 => SIGUSR2,
            CheckpointSignal::Hup => SIGHUP,
            CheckpointSignal::Int => SIGINT,
            CheckpointSignal::Term => SIGTERM,
        }
    }
}
