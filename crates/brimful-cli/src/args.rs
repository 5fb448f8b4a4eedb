//! What may be typed. Completions, manual pages and the reference are made from these definitions.

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
                  97 the machine stands in the way, 98 what --fail-on asks for."
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
