//! The `brimful` command as a library: arguments in, exit code out. The binary is ten lines around [`main`].
//!
//! Only this crate prints. Results go to standard output, messages to standard error.
//!
//! Read first: [`args::Arguments`], the command line, and [`exit`], the exit codes.

#![cfg_attr(
    test,
    expect(clippy::disallowed_methods, reason = "tests make files of all kinds")
)]

pub mod args;
pub mod exit;

mod commands;
mod error;
mod hints;
mod interruption;
mod nvidia_smi;
mod output;
mod package;
mod requests;

use std::ffi::OsString;
use std::panic;

use brimful_supervise::keeper;
use clap::Parser;
use clap::error::ErrorKind;

use args::{Arguments, Command};
use error::CommandError;
use exit::ExitStatus;
use output::Output;

/// Runs one command line, from the program's name on.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitStatus {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    // Internal: brimful starts itself this way, next to a run.
    if arguments
        .get(1)
        .is_some_and(|first| first == keeper::ARGUMENT)
    {
        return ExitStatus::Passed(keeper::keep(&arguments[2..]));
    }
    if arguments
        .get(1)
        .is_some_and(|first| first == brimful_isolate::ARGUMENT)
    {
        return ExitStatus::Passed(brimful_isolate::program(&arguments[2..]));
    }
    if arguments
        .get(1)
        .is_some_and(|first| first == commands::PROCESS_WATCH_ARGUMENT)
    {
        return commands::process_watch(&arguments[2..]);
    }
    if arguments
        .get(1)
        .is_some_and(|first| first == brimful_rehearse::stage::NVIDIA_SMI_ARGUMENT)
    {
        return nvidia_smi::nvidia_smi(&arguments[2..]);
    }
    if arguments
        .get(1)
        .is_some_and(|first| first == brimful_workflow::RANK_ARGUMENT)
    {
        return commands::rank(&arguments[2..]);
    }
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => return print_usage_error(&error),
    };
    let output = Output::new(arguments.color);
    output::silence_panics();
    let outcome = panic::catch_unwind(|| run(&arguments.command, &output));
    match outcome {
        Ok(Ok(status)) => status,
        Ok(Err(error)) => {
            output::print_error(&error);
            error.status()
        }
        Err(payload) => {
            output::print_internal_error(&output::panic_message(payload.as_ref()));
            ExitStatus::InternalError
        }
    }
}

fn run(command: &Command, output: &Output) -> Result<ExitStatus, CommandError> {
    match command {
        Command::Probe(arguments) => commands::probe(arguments, output),
        Command::Predict(arguments) => commands::predict(arguments, output),
        Command::Compare(arguments) => commands::compare(arguments, output),
        Command::Plan(arguments) => commands::plan(arguments, output),
        Command::Replay(arguments) => commands::replay(arguments, output),
        Command::Run(arguments) => commands::run(arguments, output),
        Command::Verify(arguments) => commands::verify(arguments, output),
        Command::Explain(arguments) => commands::explain(arguments, output),
        Command::Report(arguments) => commands::report(arguments, output),
        Command::Runs(arguments) => commands::runs(arguments, output),
        Command::Top(arguments) => commands::top(arguments, output),
        Command::Prepare(arguments) => commands::prepare(arguments).map(|()| ExitStatus::Success),
        Command::PrepareTask(arguments) => {
            commands::prepare_task(arguments).map(|()| ExitStatus::Success)
        }
        Command::Init(arguments) => commands::init(arguments, output),
        Command::Completions(arguments) => {
            commands::completions(arguments, output).map(|()| ExitStatus::Success)
        }
    }
}

/// Help and version are successes; everything else that clap stops at is invalid input.
fn print_usage_error(error: &clap::Error) -> ExitStatus {
    // A closed pipe is not a failure.
    let _ = error.print();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitStatus::Success,
        _ => ExitStatus::BadInput,
    }
}
