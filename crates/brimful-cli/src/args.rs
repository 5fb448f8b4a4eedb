//! The command line. Completions, manual pages and the reference are generated from these definitions.

mod compare;
mod prepare;
mod run;
mod verify;

use std::ffi::OsString;
use std::path::PathBuf;

use brimful::units::Bytes;
use clap::{Args, ColorChoice, CommandFactory, Parser, Subcommand, ValueEnum};

pub use compare::CompareArguments;
pub use prepare::{PrepareArguments, PrepareTaskArguments};
pub use run::{CheckpointSignal, OnPressureChoice, RunArguments};
pub use verify::VerifyArguments;

/// Predicts, monitors and explains the memory use of PyTorch training runs.
#[derive(Debug, Parser)]
#[command(
    name = "brimful",
    version,
    long_about = "Predicts, monitors and explains the memory use of PyTorch training runs.",
    disable_help_subcommand = true,
    subcommand_required = true,
    arg_required_else_help = true,
    max_term_width = 80,
    after_help = "Exit codes: 0 success, 70 internal error, 96 invalid input, 97 environment error, \
                  98 problem found (--fail-on) or GPU in use, 99 nothing fits."
)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,

    /// Control colors in output
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        display_order = 900
    )]
    pub color: ColorChoice,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show this machine's effective memory limits and likely problems
    #[command(
        long_about = "Show this machine's effective memory limits and likely problems.\n\n\
                      Reads cgroup, /dev/shm and process limits, and detects CPUs, GPUs and the installed torch. \
                      Starts no processes, imports no Python modules, creates no CUDA context and needs no root. \
                      If a value cannot be read, the report says why.",
        after_long_help = "Examples:\n  \
                           brimful probe                    Check this machine\n  \
                           brimful probe --json             Print the result as JSON\n  \
                           brimful probe --as colab-t4      Check a Colab T4 runtime from here\n  \
                           brimful probe --gpu rtx-4090     Check this machine with another GPU\n  \
                           brimful probe --as k8s-default --memory 16GiB --gpu a100-40gb\n  \
                           brimful probe --fail-on fatal    Stop a job script before training starts"
    )]
    Probe(ProbeArguments),
    /// Predict how much memory a training command needs, without a GPU
    #[command(
        long_about = "Predict how much memory a training command needs, without a GPU.\n\n\
                      Runs your unmodified script for a few optimizer steps on a phantom GPU. The phantom's memory is \
                      only addresses and its kernels do nothing, but PyTorch's own code decides every allocation. Needs \
                      a CUDA build of torch, but no GPU and no driver. CPU-only builds (2.10+) work but give less \
                      accurate estimates.",
        after_long_help = "Examples:\n  \
                           brimful predict -- python train.py --batch-size 64\n  \
                           brimful predict --gpu rtx-4090,a100-80gb -- python train.py\n  \
                           brimful predict --gpu \"2x t4\" -- torchrun --nproc-per-node 2 train.py\n  \
                           brimful predict --with eval,save -- python train.py\n  \
                           brimful predict --alloc-conf expandable_segments:True -- python train.py\n\n\
                           Exits with 0 if the command fits at least one GPU, 99 if it fits none."
    )]
    Predict(PredictArguments),
    /// Compare GPUs for a training command: memory, time and cost
    #[command(
        long_about = "Compare GPUs for a training command: memory, time and cost.\n\n\
                      Rehearses your unmodified script as `brimful predict` does, and calculates from the operators of \
                      one step how long it takes on each GPU. No GPU is needed. Times are ranges; how far off they were \
                      on published measurements is in docs/accuracy.md. Without a command, the job file's settings \
                      are planned for each GPU, as `brimful plan` does.",
        after_long_help = "Examples:\n  \
                           brimful compare -- python train.py\n  \
                           brimful compare --gpu t4,l4,a100-40gb,h100 --epochs 10 -- python train.py\n  \
                           brimful compare --gpu l4,h100 --price l4=0.70,h100=2.99 -- python train.py\n  \
                           brimful compare --as colab-t4,kaggle-t4x2 --report compare.html -- python train.py\n  \
                           brimful compare --gpu t4,l4                  Plan the settings of ./brimful.toml for each\n\n\
                           Exits with 0 if the command fits at least one of them, 99 if it fits none."
    )]
    Compare(CompareArguments),
    /// Find the fastest settings that fit in memory
    #[command(
        long_about = "Find the fastest settings that fit in memory.\n\n\
                      Reads the job file in the current directory (brimful.toml), rehearses its command with a few \
                      settings, and searches the job's knobs. Knobs that do not change the training result are searched \
                      freely; others only if the job file lists them under `sacrifice`, in that order. A plan fits only \
                      if its safe memory use stays below all limits: host memory, /dev/shm and GPU memory. Rehearsals \
                      are cached.",
        after_long_help = "Examples:\n  \
                           brimful plan                          Plan for this machine\n  \
                           brimful plan --as colab-t4            Plan for a Colab T4 runtime\n  \
                           brimful plan --gpu rtx-4090 --memory 32GiB\n  \
                           brimful plan workers=2 resolution=24  Fix some knobs\n  \
                           brimful plan --mode debug --json\n  \
                           eval \"$(brimful plan --format args)\"  Start the job with the planned settings\n\n\
                           Exits with 0 if any settings fit, 99 if none do."
    )]
    Plan(PlanArguments),
    /// Replay recorded allocations on another GPU or with other allocator settings
    #[command(
        long_about = "Replay recorded allocations on another GPU or with other allocator settings.\n\n\
                      Reads a PyTorch memory snapshot (torch.cuda.memory._dump_snapshot) or a trace saved by \
                      `brimful predict --save-trace`, and replays its allocations through an exact model of PyTorch's \
                      caching allocator. No code in the file is executed.",
        after_long_help = "Examples:\n  \
                           brimful replay snapshot.pickle --gpu t4\n  \
                           brimful replay snapshot.pickle --capacity 12GiB --capacity 16GiB\n  \
                           brimful replay run.brimtrace --gpu t4 --alloc-conf \"\" \\\n      \
                           --alloc-conf expandable_segments:True\n\n\
                           Exits with 0 if at least one replay fits, 99 if none does."
    )]
    Replay(ReplayArguments),
    /// Run a training command, monitor its memory and explain failures
    #[command(
        long_about = "Run a training command, monitor its memory and explain failures.\n\n\
                      Needs no configuration and no code changes. The terminal, signals, output and exit code of the \
                      command pass through. While it runs, brimful compares its memory use with the brim (the nearest \
                      limit that kills), prints a warning before memory runs out, and records the run. If the command \
                      dies, brimful prints the cause and the evidence for it.\n\n\
                      Without a command, runs the job file in the current directory (brimful.toml): plans, starts with \
                      the fastest settings that fit, and after an out-of-memory failure restarts one rung lower from \
                      the last complete checkpoint.",
        after_long_help = "Examples:\n  \
                           brimful run -- python train.py --batch-size 64\n  \
                           brimful run                      Plan and run the job, restart on failure\n  \
                           brimful run --as-wanted          The same, without planning first\n  \
                           brimful run -- torchrun --nproc-per-node 2 train.py\n  \
                           brimful run --on-pressure checkpoint --signal USR1 -- python train.py\n  \
                           brimful run --on-pressure stop --dry-run -- python train.py\n\n\
                           Exits with the exit code of the command. If a signal killed the command, brimful ends \
                           by the same signal, and a shell shows 128 + N."
    )]
    Run(RunArguments),
    /// Compare a prediction with what this machine's GPU measures
    #[command(
        long_about = "Compare a prediction with what this machine's GPU measures.\n\n\
                      Rehearses your unmodified script as `brimful predict` does, then runs the same optimizer steps on \
                      the GPU, as `brimful run` does, and ends the script after the last one. Prints allocated, \
                      reserved and total memory, the CUDA context and steps per second: predicted, measured and the \
                      error. The next predictions for this GPU use the measured context.\n\n\
                      Files that the script writes, deletes or renames are changed in a scratch directory only, which \
                      is removed: your checkpoints and logs stay as they are. Where no isolation is available, the \
                      command is refused; with --allow-writes the script changes them for real, so give it an output \
                      directory of its own. Experiment trackers are off.\n\n\
                      The GPU must be idle: what other processes do on it would be measured too.",
        after_long_help = "Examples:\n  \
                           brimful verify -- python train.py --batch-size 64\n  \
                           brimful verify --steps 50 --gpu 1 -- python train.py\n  \
                           brimful verify --gpu 0,1 -- torchrun --nproc-per-node 2 train.py\n\n\
                           Writes the values, the GPU, its driver and the releases to brimful-verify.json, without any \
                           path, name or argument of yours. Nothing is sent anywhere.\n\n\
                           Exits with 0 if the run was measured, 98 if the GPU is in use, 99 if its memory ran out."
    )]
    Verify(VerifyArguments),
    /// Explain why a run died, from a run record, log or snapshot
    #[command(
        long_about = "Explain why a run died, from a run record, log or snapshot.\n\n\
                      Names one cause, how certain it is, the evidence, and what to do, cheapest first. If the evidence \
                      is not conclusive, lists what would confirm the cause.",
        after_long_help = "Examples:\n  \
                           brimful explain                     Explain the last run\n  \
                           brimful explain 2026-11-15T10-05    Explain a run by a prefix of its ID\n  \
                           brimful explain slurm-4711.out      Explain a log\n  \
                           brimful explain snapshot.pickle     Explain a CUDA memory snapshot\n  \
                           dmesg | tail -50 | brimful explain -"
    )]
    Explain(ExplainArguments),
    /// Write a report with charts, as one HTML file
    #[command(
        long_about = "Write a report with charts, as one HTML file.\n\n\
                      Of a run: why it died, with its last minutes, and how full host memory, GPUs and /dev/shm were over \
                      time. Of several runs: a comparison. Of a memory snapshot, a trace, or the saved JSON of `brimful \
                      predict`, `compare`, `plan` or `replay`: where the memory goes and what fits. The file loads nothing from the \
                      network, works without scripts and prints well. Secrets are masked as in run records.",
        after_long_help = "Examples:\n  \
                           brimful report                          Report the last run\n  \
                           brimful report 2026-11-15T10-05 -o run.html --open\n  \
                           brimful report RUN RUN RUN              Compare runs\n  \
                           brimful report snapshot.pickle          Report a CUDA memory snapshot\n  \
                           brimful predict --json -- python train.py > prediction.json\n  \
                           brimful report prediction.json"
    )]
    Report(ReportArguments),
    /// List recorded runs
    #[command(
        long_about = "List recorded runs, or summarize those of many users and machines.\n\n\
                      With --at: causes of failures, jobs that run out of memory again and again, GPU hours lost, memory \
                      that was never used, and how good predictions were, from the files of `brimful run --records`.",
        after_long_help = "Examples:\n  \
                           brimful runs                              List the runs of this user on this machine\n  \
                           brimful runs --at /shared/records         Summarize all runs recorded there\n  \
                           brimful runs --at s3://bucket/records --report fleet.html"
    )]
    Runs(RunsArguments),
    /// Show a running job live: memory, processes, alarms and progress
    #[command(
        long_about = "Show a running job live: memory, processes, alarms and progress.\n\n\
                      Shows host memory, each GPU, /dev/shm, memory stalls, the processes with their share of the \
                      rise, alarms and steps of a run that `brimful run` started. Only the run record is read: the job \
                      is not touched, and the view works in another terminal, over ssh, in tmux and after the run has \
                      ended. Terminals smaller than 60x12 show one line.\n\n\
                      Keys: q quits, left and right change the time range, tab chooses a panel to scroll, e explains, \
                      ? shows all keys.",
        after_long_help = "Examples:\n  \
                           brimful top                     Show the newest running run\n  \
                           brimful top .                   Show the run of the job in this directory\n  \
                           brimful top 2026-11-15T10-05    Show a run by a prefix of its ID\n  \
                           brimful top --once              Print one frame"
    )]
    Top(TopArguments),
    /// Write raw data once as shuffled shards, within a memory budget
    #[command(
        long_about = "Write raw data once as shuffled shards, within a memory budget.\n\n\
                      A recipe names the source, what is done with its fields (tokenize and pack into blocks, decode, \
                      resize, voxelize, ...), the seed and the size of the shards. Samples are shuffled globally; \
                      `brimful.data.prepared` loads the result. An interrupted run loses only the tasks that were \
                      running: run the same command again to continue. The result does not depend on the memory budget \
                      or the number of threads.",
        after_long_help = "Examples:\n  \
                           brimful prepare recipe.toml --out shards --memory 1GiB\n  \
                           brimful prepare recipe.toml --out shards --dry-run\n\n\
                           A recipe:\n  \
                           source = { lines = \"text.jsonl\", json = \"text\" }\n  \
                           ops = [{ tokenize = \"tokenizer.json\", end_id = 0 }]\n  \
                           block = 2049\n  \
                           seed = 1\n  \
                           shard = \"64MiB\""
    )]
    Prepare(PrepareArguments),
    /// Run tasks of `brimful prepare` in this process, for a scheduler
    #[command(hide = true)]
    PrepareTask(PrepareTaskArguments),
    /// Create a job file (brimful.toml) for a training command
    #[command(
        long_about = "Create a job file (brimful.toml) for a training command.\n\n\
                      Starts your script and stops it when it parses its arguments, before it loads data or builds a \
                      model. From the options that argparse, HfArgumentParser or LightningCLI define, brimful writes \
                      the command, the knobs and the checkpoint paths, with a comment on each. Values on the command \
                      line become the preferred values.",
        after_long_help = "Examples:\n  \
                           brimful init -- python train.py --batch-size 64\n  \
                           brimful init --output - -- torchrun --nproc-per-node 2 train.py\n  \
                           brimful init --force -- python main.py fit --config config.yaml"
    )]
    Init(InitArguments),
    /// Generate a shell completion script
    #[command(long_about = "Generate a shell completion script.")]
    Completions(CompletionsArguments),
}

/// Arguments of `brimful probe`.
#[derive(Debug, Default, Args)]
pub struct ProbeArguments {
    /// Describe a known machine instead of this one (see --list)
    #[arg(long = "as", value_name = "MACHINE")]
    pub as_machine: Option<String>,

    /// Replace the GPUs with these models, for example "2x a100-40gb", or with each of t4,l4 (see --list)
    #[arg(long, value_name = "GPUS")]
    pub gpu: Option<String>,

    /// Override the cgroup memory limit (for example 16GiB)
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub memory: Option<Bytes>,

    /// Python interpreter that will run the job [default: detected from PATH]
    #[arg(long, value_name = "PATH", conflicts_with = "as_machine")]
    pub python: Option<String>,

    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,

    /// Exit with code 98 if any problem is at least this severe
    #[arg(long, value_name = "SEVERITY")]
    pub fail_on: Option<FailOn>,

    /// List known machines and GPU models
    #[arg(long, conflicts_with_all = ["as_machine", "gpu", "memory", "python", "fail_on"])]
    pub list: bool,
}

/// Arguments of `brimful predict`.
#[derive(Debug, Args)]
pub struct PredictArguments {
    /// GPU models to predict for, for example t4,rtx-4090 or "2x a100-40gb"; "none" rehearses on the CPU [default: the GPUs of this machine, or t4,l4,a100-40gb,h100 if it has none]
    #[arg(long, value_name = "GPUS")]
    pub gpu: Option<String>,

    /// Continue after the last step until the script reaches these phases
    #[arg(long, value_name = "PHASES", value_delimiter = ',')]
    pub with: Vec<With>,

    /// Override PYTORCH_CUDA_ALLOC_CONF
    #[arg(long, value_name = "CONF", allow_hyphen_values = true)]
    pub alloc_conf: Option<String>,

    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,

    /// Print one line; the exit code is 0 if the command fits at least one of the GPUs, else 99
    #[arg(long, conflicts_with = "json")]
    pub brief: bool,

    /// Write the script's output to this file
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Write a report with charts to this HTML file
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,

    /// Save the allocation trace to this file, for use with `brimful replay`
    #[arg(long, value_name = "FILE")]
    pub save_trace: Option<PathBuf>,

    #[command(flatten)]
    pub rehearsal: RehearsalArguments,

    /// Training command to rehearse
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// A phase that a rehearsal can reach after its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum With {
    /// An evaluation
    Eval,
    /// Saving a checkpoint
    Save,
}

impl With {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            With::Eval => "eval",
            With::Save => "save",
        }
    }
}

/// Which job to plan or run.
#[derive(Debug, Default, Args)]
pub struct JobArguments {
    /// Path to the job file [default: ./brimful.toml, or [tool.brimful] in ./pyproject.toml]
    #[arg(long, value_name = "FILE")]
    pub job: Option<PathBuf>,

    /// Use this mode of the job file, for example debug
    #[arg(long, value_name = "NAME")]
    pub mode: Option<String>,
}

/// Optimizer steps of a rehearsal.
pub(crate) const DEFAULT_STEPS: u32 = 3;
/// Seconds that a rehearsal may take.
pub(crate) const DEFAULT_TIME_LIMIT: u64 = 900;

/// How a command is rehearsed.
#[derive(Debug, Args)]
pub struct RehearsalArguments {
    /// Number of optimizer steps to rehearse; the second step often needs more memory than the first
    #[arg(long, value_name = "N", default_value_t = DEFAULT_STEPS, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub steps: u32,

    /// Abort a rehearsal after this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = DEFAULT_TIME_LIMIT)]
    pub time_limit: u64,

    /// Has no effect: a rehearsal never uses the GPU of this machine
    #[arg(long, hide = true)]
    pub beside_driver: bool,

    /// Path to the phantom GPU library [default: the one installed with brimful]
    #[arg(long, value_name = "PATH", hide = true)]
    pub phantom: Option<PathBuf>,

    #[command(flatten)]
    pub protection: ProtectionArguments,
}

/// How a rehearsed script is kept from changing the user's files.
#[derive(Debug, Args)]
pub struct ProtectionArguments {
    /// Do not isolate the script: files that it writes, deletes or renames are really changed
    #[arg(long)]
    pub allow_writes: bool,

    /// Disk space for files that the isolated script writes [default: 10 % of the free space]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub scratch: Option<Bytes>,

    /// Network access of the script while brimful rehearses it
    #[arg(long, value_name = "ACCESS", default_value = "full")]
    pub network: NetworkChoice,

    /// Isolation method [default: the best one available]
    #[arg(long, value_name = "METHOD", hide = true)]
    pub isolation: Option<IsolationChoice>,
}

/// Network access of a rehearsed script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NetworkChoice {
    /// Unrestricted
    Full,
    /// Loopback only, in a network namespace
    None,
}

/// Methods to isolate a rehearsed script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum IsolationChoice {
    Overlay,
    Redirect,
}

/// How a plan rehearses the job.
#[derive(Debug, Args)]
pub struct PlanRehearsalArguments {
    /// Ignore cached rehearsals
    #[arg(long)]
    pub fresh: bool,

    #[command(flatten)]
    pub rehearsal: RehearsalArguments,
}

/// Arguments of `brimful plan`.
#[derive(Debug, Args)]
pub struct PlanArguments {
    #[command(flatten)]
    pub job: JobArguments,

    /// Plan for a known machine instead of this one (see `brimful probe --list`)
    #[arg(long = "as", value_name = "MACHINE")]
    pub as_machine: Option<String>,

    /// Plan for these GPU models, for example "2x a100-40gb", or for each of t4,l4; "none" plans for the CPU
    #[arg(long, value_name = "GPUS")]
    pub gpu: Option<String>,

    /// Override the cgroup memory limit (for example 16GiB)
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub memory: Option<Bytes>,

    /// Override the free space in /dev/shm
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub shm: Option<Bytes>,

    /// Memory available on each GPU, if other processes use part of it
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub gpu_memory: Option<Bytes>,

    /// Write a report with charts to this HTML file
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,

    #[command(flatten)]
    pub rehearse: PlanRehearsalArguments,

    #[command(flatten)]
    pub state: StateArguments,

    /// Ignore measurements from earlier runs of this job
    #[arg(long)]
    pub forget: bool,

    /// Print only the settings, or a request to a scheduler, in this format
    #[arg(long, value_name = "FORMAT", conflicts_with = "json")]
    pub format: Option<FormatChoice>,

    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,

    /// Restrict a knob to these values, for example workers=2 or resolution=24,16
    #[arg(value_name = "KNOB=VALUE")]
    pub overrides: Vec<String>,
}

/// A format of settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FormatChoice {
    /// Command line of the job
    Args,
    /// Environment variables
    Env,
    /// Arguments for Hugging Face TrainingArguments
    Hf,
    /// Arguments for Lightning's Trainer and for DataLoader
    Lightning,
    /// JSON object
    Json,
    /// Tables for brimful.toml
    Toml,
    /// Batch script for Slurm with the resources that the plan needs
    Slurm,
    /// Kubernetes Job with the resources that the plan needs
    K8s,
    /// `ray job submit` with the resources that the plan needs
    Ray,
    /// SkyPilot task with the resources that the plan needs
    Skypilot,
}

/// Arguments of `brimful replay`.
#[derive(Debug, Args)]
pub struct ReplayArguments {
    /// PyTorch memory snapshot, or trace saved by `brimful predict --save-trace`
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// GPU models to replay on, for example t4,rtx-4090
    #[arg(long, value_name = "GPUS")]
    pub gpu: Vec<String>,

    /// GPU memory available to PyTorch, for example 12GiB; can be repeated
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub capacity: Vec<Bytes>,

    /// Allocator settings to try, in PYTORCH_CUDA_ALLOC_CONF syntax; "" is the default; can be repeated
    #[arg(long, value_name = "CONF", allow_hyphen_values = true)]
    pub alloc_conf: Vec<String>,

    /// PyTorch version to model [default: the one in the file]
    #[arg(long, value_name = "VERSION")]
    pub torch: Option<String>,

    /// Device to replay [default: the one with the longest history]
    #[arg(long, value_name = "N")]
    pub device: Option<u32>,

    /// Write a report with charts to this HTML file
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,

    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// Where runs are recorded.
#[derive(Debug, Default, Args)]
pub struct StateArguments {
    /// Directory for run records [default: $BRIMFUL_STATE_DIR, else $XDG_STATE_HOME/brimful]
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
}

/// Arguments of `brimful explain`.
#[derive(Debug, Args)]
pub struct ExplainArguments {
    /// Run ID or a prefix of one, path to a file, or - for standard input [default: the last run]
    #[arg(value_name = "RUN|FILE|-")]
    pub what: Option<String>,

    #[command(flatten)]
    pub state: StateArguments,

    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `brimful report`.
#[derive(Debug, Args)]
pub struct ReportArguments {
    /// Run IDs or prefixes of them, run records, a snapshot, a trace, or saved JSON [default: the last run]
    #[arg(value_name = "RUN|FILE")]
    pub what: Vec<String>,

    /// Path of the report; - is standard output
    #[arg(long, short, value_name = "FILE", default_value = brimful_workflow::DEFAULT_REPORT)]
    pub output: PathBuf,

    /// Open the report in a browser
    #[arg(long)]
    pub open: bool,

    /// Overwrite a file that is not a report of brimful
    #[arg(long)]
    pub force: bool,

    #[command(flatten)]
    pub state: StateArguments,
}

/// Arguments of `brimful runs`.
#[derive(Debug, Args)]
pub struct RunsArguments {
    #[command(flatten)]
    pub state: StateArguments,

    /// List only the N most recent runs
    #[arg(long, value_name = "N")]
    pub last: Option<usize>,

    /// Summarize the runs of many users and machines, from the directory or URL of `brimful run --records`
    #[arg(long, value_name = "DIR|URL", conflicts_with_all = ["last", "state_dir"])]
    pub at: Option<OsString>,

    /// Also write the summary as a page with charts
    #[arg(long, value_name = "FILE", requires = "at")]
    pub report: Option<PathBuf>,

    /// Overwrite a file that is not a report
    #[arg(long, requires = "report")]
    pub force: bool,

    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `brimful top`.
#[derive(Debug, Args)]
pub struct TopArguments {
    /// Run ID or a prefix of one, directory of the job, or path to a run record [default: the newest running run, else the last one]
    #[arg(value_name = "RUN|DIR|FILE")]
    pub what: Option<String>,

    /// Print one frame and exit; the default if standard output is not a terminal
    #[arg(long)]
    pub once: bool,

    #[command(flatten)]
    pub state: StateArguments,
}

/// Arguments of `brimful init`.
#[derive(Debug, Args)]
pub struct InitArguments {
    /// Path of the job file; - is standard output
    #[arg(long, value_name = "FILE", default_value = "brimful.toml")]
    pub output: PathBuf,

    /// Overwrite an existing file
    #[arg(long)]
    pub force: bool,

    /// Abort if the script has not parsed its arguments after this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub time_limit: u64,

    #[command(flatten)]
    pub protection: ProtectionArguments,

    /// Training command to create a job file for
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// How severe a finding must be to fail the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    /// A typical training run fails
    Fatal,
    /// A typical training run may fail
    Risk,
    /// Any problem
    Note,
}

/// Arguments of `brimful completions`.
#[derive(Debug, Args)]
pub struct CompletionsArguments {
    /// Shell to generate the script for
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

/// The definition of the whole command line, for generators.
pub fn definition() -> clap::Command {
    Arguments::command()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_valid() {
        definition().debug_assert();
    }
}
