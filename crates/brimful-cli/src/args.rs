//! What may be typed. Completions, manual pages and the reference are made from these definitions.

use std::ffi::OsString;
use std::path::PathBuf;

use brimful::units::Bytes;
use clap::{Args, ColorChoice, CommandFactory, Parser, Subcommand, ValueEnum};

/// Keeps machine-learning training from dying of memory.
#[derive(Debug, Parser)]
#[command(
    name = "brimful",
    version,
    long_about = "Keeps machine-learning training from dying of memory: \
                  you know before, you see it coming, you know why, and it comes back.",
    disable_help_subcommand = true,
    subcommand_required = true,
    arg_required_else_help = true,
    max_term_width = 80,
    after_help = "Exit codes: 0 done, 70 a bug in brimful, 96 your turn (an argument or a file), \
                  97 the machine stands in the way, 98 what --fail-on asks for, 99 it does not fit."
)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,

    /// When to color text
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub color: ColorChoice,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show what this machine really allows, and what will bite
    #[command(
        long_about = "Show what this machine really allows, and what will bite.\n\n\
                      Reads limits (control groups, /dev/shm, process limits), processors, GPUs and the installed torch. \
                      Starts nothing, imports nothing, makes no CUDA context, needs no root. \
                      A fact that cannot be read is named with its reason.",
        after_long_help = "Examples:\n  \
                           brimful probe                         this machine\n  \
                           brimful probe --json                  the same for programs\n  \
                           brimful probe --as colab-t4           a machine that is not here\n  \
                           brimful probe --gpu rtx-4090          this machine with another card\n  \
                           brimful probe --as k8s-default --memory 16GiB --gpu a100-40gb\n  \
                           brimful probe --fail-on fatal         for a job's first line: stop before it is too late"
    )]
    Probe(ProbeArguments),
    /// Rehearse a training command on a phantom GPU: how much memory it takes, and which cards it fits
    #[command(
        long_about = "Rehearse a training command on a phantom GPU: how much memory it takes, and which cards it fits.\n\n\
                      Starts your own script, unchanged, on a GPU that is not there: its memory is addresses only, its \
                      kernels do nothing, and everything that decides memory is PyTorch's own code. After a few optimizer \
                      steps the script is stopped. Needs no GPU and no driver, only the CUDA build of torch; with a build \
                      without CUDA the figures are weaker.",
        after_long_help = "Examples:\n  \
                           brimful predict -- python train.py --batch-size 64\n  \
                           brimful predict --gpu rtx-4090,a100-80gb -- python train.py\n  \
                           brimful predict --gpu \"2x t4\" -- torchrun --nproc-per-node 2 train.py\n  \
                           brimful predict --with eval,save -- python train.py\n  \
                           brimful predict --alloc-conf expandable_segments:True --json -- python train.py\n\n\
                           Ends with 0 if the training fits at least one of the cards, with 99 if it fits none."
    )]
    Predict(PredictArguments),
    /// Find the best settings that fit here, and say why
    #[command(
        long_about = "Find the best settings that fit here, and say why.\n\n\
                      Reads the job of this folder (brimful.toml), rehearses its command at a few settings, and searches \
                      over its knobs: what does not change the result of the training freely, what does only as the job \
                      allows, in its order of sacrifice. The safe need stays below every limit at once: host memory, \
                      /dev/shm and the GPU. Rehearsals are kept, so that the next answer takes a moment.",
        after_long_help = "Examples:\n  \
                           brimful plan                          the job of this folder on this machine\n  \
                           brimful plan --as colab-t4            on a machine that is not here\n  \
                           brimful plan --gpu rtx-4090 --memory 32GiB\n  \
                           brimful plan workers=2 resolution=24  with some knobs held\n  \
                           brimful plan --mode debug --json\n  \
                           eval \"$(brimful plan --format args)\"  start it with them\n\n\
                           Ends with 0 if something fits, with 99 if nothing does."
    )]
    Plan(PlanArguments),
    /// Replay a recorded run on another card or with other allocator settings
    #[command(
        long_about = "Replay a recorded run on another card or with other allocator settings.\n\n\
                      Reads a memory snapshot of PyTorch (torch.cuda.memory._dump_snapshot) or a trace of \
                      `brimful predict --save-trace`, and plays its allocations and frees through an exact model of \
                      PyTorch's allocator. Nothing in the file is run.",
        after_long_help = "Examples:\n  \
                           brimful replay snapshot.pickle --gpu t4\n  \
                           brimful replay snapshot.pickle --capacity 12GiB --capacity 16GiB\n  \
                           brimful replay run.brimtrace --gpu t4 --alloc-conf \"\" --alloc-conf expandable_segments:True\n\n\
                           Ends with 0 if at least one replay fits, with 99 if none does."
    )]
    Replay(ReplayArguments),
    /// Run a training command, watch it, and explain its death
    #[command(
        long_about = "Run a training command, watch it, and explain its death.\n\n\
                      Needs no configuration and no change of code. The command's terminal, signals, exit code and output \
                      pass through. While it runs, brimful watches its memory against the nearest limit that kills, says \
                      when the end is coming, and keeps a record. When it dies, one sentence says why, with what proves it.\n\n\
                      Without a command it runs the job of this folder (brimful.toml): it plans, starts with the best \
                      settings that fit, and when the training dies of memory all the same, it goes on a rung lower from \
                      the newest complete checkpoint.",
        after_long_help = "Examples:\n  \
                           brimful run -- python train.py --batch-size 64\n  \
                           brimful run                           the job of this folder: plan, run, come back\n  \
                           brimful run --as-wanted               the same, beginning with what is wanted most\n  \
                           brimful run -- torchrun --nproc-per-node 2 train.py\n  \
                           brimful run --on-pressure checkpoint --signal USR1 -- python train.py\n  \
                           brimful run --on-pressure stop --dry-run -- python train.py\n\n\
                           Ends with the command's own exit code, or 128 and the signal that ended it."
    )]
    Run(RunArguments),
    /// Say why a run died: a run, a log, a CUDA memory snapshot, or pasted text
    #[command(
        long_about = "Say why a run died: a run, a log, a CUDA memory snapshot, or pasted text.\n\n\
                      Names one cause out of a closed list, says how sure it is, shows what proves it and what to do, \
                      cheapest first. Where the evidence does not decide, it says so, and what would settle it.",
        after_long_help = "Examples:\n  \
                           brimful explain                       the last run\n  \
                           brimful explain 2026-11-15T10-05      a run by the beginning of its id\n  \
                           brimful explain slurm-4711.out        a log\n  \
                           brimful explain snapshot.pickle       torch.cuda.memory._dump_snapshot\n  \
                           dmesg | tail -50 | brimful explain -"
    )]
    Explain(ExplainArguments),
    /// List the runs that are recorded
    Runs(RunsArguments),
    /// Write a job file (brimful.toml) for a training command
    #[command(
        long_about = "Write a job file (brimful.toml) for a training command.\n\n\
                      Starts your script until it looks at its arguments, and ends it there: before its data, its model and \
                      its first step. From the options that argparse, HfArgumentParser or LightningCLI accept it writes how \
                      the job is started, which knobs may be turned and where checkpoints are, with a comment for each. What \
                      stands on the command line is what is wanted.",
        after_long_help = "Examples:\n  \
                           brimful init -- python train.py --batch-size 64\n  \
                           brimful init --output - -- torchrun --nproc-per-node 2 train.py\n  \
                           brimful init --force -- python main.py fit --config config.yaml"
    )]
    Init(InitArguments),
    /// Print a completion script for a shell
    Completions(CompletionsArguments),
}

/// What `brimful probe` accepts.
#[derive(Debug, Default, Args)]
pub struct ProbeArguments {
    /// Describe a recorded machine instead of this one (see --list)
    #[arg(long = "as", value_name = "MACHINE")]
    pub as_machine: Option<String>,

    /// Put these cards in place of the GPUs, such as t4 or "2x a100-40gb" (see --list)
    #[arg(long, value_name = "CARDS")]
    pub gpu: Option<String>,

    /// Put this limit in place of the control groups', such as 16GiB
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub memory: Option<Bytes>,

    /// The Python that would run the job, if not the one found
    #[arg(long, value_name = "PATH", conflicts_with = "as_machine")]
    pub python: Option<String>,

    /// Print one JSON document
    #[arg(long)]
    pub json: bool,

    /// End with exit code 98 if something as bad as this will bite
    #[arg(long, value_name = "SEVERITY")]
    pub fail_on: Option<FailOn>,

    /// List the recorded machines and cards
    #[arg(long, conflicts_with_all = ["as_machine", "gpu", "memory", "python", "fail_on"])]
    pub list: bool,
}

/// What `brimful predict` accepts.
#[derive(Debug, Args)]
pub struct PredictArguments {
    /// Cards to answer for, such as t4,rtx-4090 or "2x a100-40gb"; none: on the processors [default: t4,l4,a100-40gb]
    #[arg(long, value_name = "CARDS")]
    pub gpu: Option<String>,

    /// Go on after the steps until the script has evaluated or saved a checkpoint
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    pub with: Vec<With>,

    /// The allocator's settings, as in PYTORCH_CUDA_ALLOC_CONF, in place of the environment's
    #[arg(long, value_name = "CONF", allow_hyphen_values = true)]
    pub alloc_conf: Option<String>,

    /// Print one JSON document
    #[arg(long)]
    pub json: bool,

    /// Write the script's own output to this file
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Write the trace of the rehearsal to this file, for `brimful replay`
    #[arg(long, value_name = "FILE")]
    pub save_trace: Option<PathBuf>,

    #[command(flatten)]
    pub rehearsal: RehearsalArguments,

    /// The command, as you would start the training
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// What a rehearsal goes on for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum With {
    /// An evaluation
    Eval,
    /// A checkpoint
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

/// Which job.
#[derive(Debug, Default, Args)]
pub struct JobArguments {
    /// The job file [default: ./brimful.toml, or [tool.brimful] in ./pyproject.toml]
    #[arg(long, value_name = "FILE")]
    pub job: Option<PathBuf>,

    /// A mode of the job, such as debug
    #[arg(long, value_name = "NAME")]
    pub mode: Option<String>,
}

/// How a command is rehearsed.
#[derive(Debug, Args)]
pub struct RehearsalArguments {
    /// Optimizer steps to rehearse; the second step often needs more than the first
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub steps: u32,

    /// Give a rehearsal up after so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    pub time_limit: u64,

    /// Rehearse although this machine has an NVIDIA driver
    #[arg(long)]
    pub beside_driver: bool,

    /// The phantom library, if not the one that came with brimful
    #[arg(long, value_name = "PATH", hide = true)]
    pub phantom: Option<PathBuf>,

    #[command(flatten)]
    pub protection: ProtectionArguments,
}

/// How a script is kept from your files while it is rehearsed.
#[derive(Debug, Args)]
pub struct ProtectionArguments {
    /// Rehearse without isolation: the script's writes, deletions and renames reach your files
    #[arg(long)]
    pub allow_writes: bool,

    /// Disk space for what the script writes during a rehearsal [default: a tenth of the free space]
    #[arg(long, value_name = "SIZE")]
    pub scratch: Option<Bytes>,

    /// What the script can reach during a rehearsal
    #[arg(long, value_name = "WHICH", default_value = "full")]
    pub network: NetworkChoice,

    /// Use only this isolation
    #[arg(long, value_name = "WHICH", hide = true)]
    pub isolation: Option<IsolationChoice>,
}

/// What a rehearsed script can reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NetworkChoice {
    /// The network as it is
    Full,
    /// Only this machine: a network namespace with loopback
    None,
}

/// How a rehearsed script can be isolated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum IsolationChoice {
    Overlay,
    Redirect,
}

/// How a plan rehearses.
#[derive(Debug, Args)]
pub struct PlanRehearsalArguments {
    /// Rehearse again what was rehearsed before
    #[arg(long)]
    pub fresh: bool,

    #[command(flatten)]
    pub rehearsal: RehearsalArguments,
}

/// What `brimful plan` accepts.
#[derive(Debug, Args)]
pub struct PlanArguments {
    #[command(flatten)]
    pub job: JobArguments,

    /// Plan for a recorded machine instead of this one (see `brimful probe --list`)
    #[arg(long = "as", value_name = "MACHINE")]
    pub as_machine: Option<String>,

    /// Plan for these cards, such as t4 or "2x a100-40gb"; none: on processors
    #[arg(long, value_name = "CARDS")]
    pub gpu: Option<String>,

    /// Put this limit in place of the control groups', such as 16GiB
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub memory: Option<Bytes>,

    /// Put this size in place of what is free in /dev/shm
    #[arg(long, value_name = "SIZE")]
    pub shm: Option<Bytes>,

    /// What is left of each card, where others hold some of it
    #[arg(long, value_name = "SIZE")]
    pub gpu_memory: Option<Bytes>,

    #[command(flatten)]
    pub rehearse: PlanRehearsalArguments,

    #[command(flatten)]
    pub state: StateArguments,

    /// Forget what earlier runs of this job have taught
    #[arg(long)]
    pub forget: bool,

    /// Print only the settings, in this form
    #[arg(long, value_name = "FORM", conflicts_with = "json")]
    pub format: Option<FormatChoice>,

    /// Print one JSON document
    #[arg(long)]
    pub json: bool,

    /// Values to hold, such as workers=2 or resolution=24,16
    #[arg(value_name = "KNOB=VALUE")]
    pub overrides: Vec<String>,
}

/// A form of settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FormatChoice {
    /// The job's command line
    Args,
    /// Environment variables
    Env,
    /// Names of Hugging Face's TrainingArguments
    Hf,
    /// Arguments of Lightning's Trainer and of the DataLoader
    Lightning,
    /// A JSON object
    Json,
    /// Lines for a brimful.toml
    Toml,
}

/// What `brimful replay` accepts.
#[derive(Debug, Args)]
pub struct ReplayArguments {
    /// A memory snapshot of PyTorch, or a trace of `brimful predict --save-trace`
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Cards to replay on, such as t4,rtx-4090
    #[arg(long, value_name = "CARDS")]
    pub gpu: Vec<String>,

    /// Bytes to replay with, such as 12GiB: all that PyTorch may hold
    #[arg(long, value_name = "SIZE")]
    pub capacity: Vec<Bytes>,

    /// Settings to try, as in PYTORCH_CUDA_ALLOC_CONF; "" is the default
    #[arg(long, value_name = "CONF", allow_hyphen_values = true)]
    pub alloc_conf: Vec<String>,

    /// The version of PyTorch whose rules to follow, if the record does not tell
    #[arg(long, value_name = "VERSION")]
    pub torch: Option<String>,

    /// The device of the record, if not the one with the longest history
    #[arg(long, value_name = "N")]
    pub device: Option<u32>,

    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Where runs are kept.
#[derive(Debug, Default, Args)]
pub struct StateArguments {
    /// Keep records in this folder [default: $BRIMFUL_STATE_DIR, else $XDG_STATE_HOME/brimful]
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
}

/// What `brimful run` accepts.
#[derive(Debug, Args)]
pub struct RunArguments {
    #[command(flatten)]
    pub state: StateArguments,

    /// What to do when memory runs out: only say it, ask for a checkpoint, or end the training before the kernel does
    #[arg(long, value_name = "WHAT", default_value = "warn")]
    pub on_pressure: OnPressureChoice,

    /// The signal that makes the training write a checkpoint; sent only to a process that has a handler for it
    #[arg(long, value_name = "SIGNAL", default_value = "USR1")]
    pub signal: CheckpointSignal,

    /// Seconds from the checkpoint signal to SIGTERM, and from there to SIGKILL, where the brim leaves as many
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub grace: u64,

    /// Say what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,

    /// Do not look inside of the training: no steps, no DataLoaders, no CUDA allocator
    #[arg(long)]
    pub no_hook: bool,

    /// Record every CUDA allocation, so that other allocator settings can be tried on a run that died
    #[arg(long, conflicts_with = "no_hook")]
    pub trace_allocations: bool,

    /// Write figures for Prometheus to this file, as its node exporter collects them
    #[arg(long, value_name = "FILE")]
    pub metrics_file: Option<PathBuf>,

    /// Show no status line
    #[arg(long)]
    pub no_status: bool,

    /// Say nothing but why it died
    #[arg(long, short)]
    pub quiet: bool,

    #[command(flatten)]
    pub job: JobArguments,

    /// A value to hold for the job, such as workers=2
    #[arg(long = "set", value_name = "KNOB=VALUE")]
    pub overrides: Vec<String>,

    /// Begin the job with what is wanted most, without planning
    #[arg(long)]
    pub as_wanted: bool,

    /// Start the job from its furthest complete checkpoint
    #[arg(long)]
    pub resume: bool,

    /// Accept checkpoints of other users, from the future, or with all tensors zero
    #[arg(long)]
    pub force: bool,

    /// Start the job so many times at the most
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub attempts: u32,

    /// Plan for these cards; none: on processors [default: those of this machine]
    #[arg(long, value_name = "CARDS")]
    pub gpu: Option<String>,

    /// Forget what earlier runs of this job have taught
    #[arg(long)]
    pub forget: bool,

    #[command(flatten)]
    pub rehearse: PlanRehearsalArguments,

    /// The command, as you would start the training; without one the job of this folder is run
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    pub command: Vec<OsString>,
}

/// What to do when memory runs out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnPressureChoice {
    /// Say it
    Warn,
    /// Send the checkpoint signal, then let it go on
    Checkpoint,
    /// Send the checkpoint signal, wait, then end it
    Stop,
}

/// A signal that a training may take as a wish for a checkpoint.
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

/// What `brimful explain` accepts.
#[derive(Debug, Args)]
pub struct ExplainArguments {
    /// A run, a file, or - for standard input [default: the last run]
    #[arg(value_name = "RUN|FILE|-")]
    pub what: Option<String>,

    #[command(flatten)]
    pub state: StateArguments,

    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// What `brimful runs` accepts.
#[derive(Debug, Args)]
pub struct RunsArguments {
    #[command(flatten)]
    pub state: StateArguments,

    /// Only the newest N
    #[arg(long, value_name = "N")]
    pub last: Option<usize>,

    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// What `brimful init` accepts.
#[derive(Debug, Args)]
pub struct InitArguments {
    /// Where to write it; - is standard output
    #[arg(long, value_name = "FILE", default_value = "brimful.toml")]
    pub output: PathBuf,

    /// Write over a file that is there
    #[arg(long)]
    pub force: bool,

    /// Give up after so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub time_limit: u64,

    #[command(flatten)]
    pub protection: ProtectionArguments,

    /// The command, as you would start the training
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// How bad a finding must be to fail the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    /// A usual training run fails
    Fatal,
    /// A usual training run may fail
    Risk,
    /// Anything at all
    Note,
}

#[derive(Debug, Args)]
pub struct CompletionsArguments {
    /// The shell to complete in
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

/// The definition of the whole command, for generators.
pub fn definition() -> clap::Command {
    Arguments::command()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        definition().debug_assert();
    }
}
