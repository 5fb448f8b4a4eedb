//! `brimful init`.

use std::error::Error;
use std::io;
use std::path::Path;
use std::time::Duration;

use brimful::job::draft::{Accepts, draft, script_arguments};
use brimful::job::read;
use brimful::printable::is_printable;
use brimful::secrets::mask_command;
use brimful_rehearse::{
    Accepted, AcceptsError, HardCoded, Waiting, accepts, config_files, job_file,
};
use brimful_workflow::Libraries;

use crate::args::InitArguments;
use crate::error::CommandError;
use crate::exit::ExitStatus;
use crate::interruption::Interruption;
use crate::output::Output;
use crate::requests;

/// Calls with hard-coded values that are shown.
const MAX_CALLS: usize = 8;

pub(crate) fn init(arguments: &InitArguments, output: &Output) -> Result<ExitStatus, CommandError> {
    let path = arguments.output.as_path();
    let to_stdout = path == Path::new("-");
    if !to_stdout && !arguments.force && path.exists() {
        return Err(CommandError::FileExists {
            path: path.to_owned(),
        });
    }
    // An unreadable job file does not prevent writing a new one.
    let earlier = job_file::find(None).ok().flatten().map(|(path, _)| path);
    let command: Vec<String> = arguments
        .command
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let (configs, unreadable) = config_files::named_in(script_arguments(&command));
    let has_config = !configs.is_empty();
    let accepts = Accepts {
        configs,
        ..ask(arguments, has_config, output)?
    };
    for error in &unreadable {
        let why = error.source().map(|why| format!(": {why}"));
        output.notice(
            &format!("{error}{}", why.unwrap_or_default()),
            "fix the file, or add its knobs to the job file by hand",
        );
    }
    if mask_command(&command) != command {
        output.notice(
            "the command contains a secret, so the job file contains it too",
            "pass it in an environment variable such as HF_TOKEN instead, and remove it from the command",
        );
    }
    let drafted = draft(&command, &accepts);
    read(&drafted.text).map_err(CommandError::Draft)?;
    if to_stdout {
        output.print(&drafted.text)?;
        report_missing(&drafted.missing, output);
        return Ok(ExitStatus::Success);
    }
    write(path, &drafted.text, arguments.force)?;
    let turns = match drafted.knobs.as_slice() {
        [] => "no knobs were found".to_owned(),
        knobs => format!("the knobs are {}", knobs.join(", ")),
    };
    output.notice(
        &format!("wrote {}: {turns}", path.display()),
        "check the file, then run `brimful plan` to choose settings",
    );
    report_missing(&drafted.missing, output);
    if let Some(other) = earlier.filter(|other| other != path) {
        output.notice(
            &format!("{} also contains a job", other.display()),
            "brimful.toml takes precedence over pyproject.toml; pass `--job FILE` to choose one",
        );
    }
    Ok(ExitStatus::Success)
}

/// The options that the script accepts; none if it does not parse arguments.
fn ask(
    arguments: &InitArguments,
    has_config: bool,
    output: &Output,
) -> Result<Accepts, CommandError> {
    let libraries = Libraries::of_this_program(None);
    let protection = requests::isolation(&arguments.protection)
        .protection(&libraries, job_file::checkpoints_here())?;
    let interruption = Interruption::watch();
    let limit = Duration::from_secs(arguments.time_limit);
    // Reading arguments works without the library too.
    let phantom = libraries.phantom.ok();
    let told = accepts(
        &arguments.command,
        limit,
        &protection,
        phantom.as_deref(),
        |waiting| {
            match waiting {
                Waiting::Since(elapsed) => output.status(&format!(
                    "waiting for the script to parse its arguments: {} of {} s",
                    elapsed.as_secs(),
                    limit.as_secs()
                )),
                Waiting::Redirected => output.notice(
                    "the overlay file system got in the script's way: starting the script again",
                    "what it writes is redirected to a private directory",
                ),
            }
            interruption.check()
        },
    );
    output.clear_status();
    // All started processes have ended by now; this deletes the files that they wrote.
    drop(protection);
    interruption.obey();
    // A script without a parser may fail on a machine without a GPU, but its config files are known.
    let told = match told {
        Err(error @ AcceptsError::Died { .. }) if has_config => {
            output.notice(
                &error.to_string(),
                "the job file is based on the command and its config files only; run the script without brimful to see why it exited",
            );
            return Ok(Accepts::default());
        }
        told => told?,
    };
    match told {
        Accepted::Parsed(accepts) => Ok(accepts),
        Accepted::NeverParsed {
            status, hard_coded, ..
        } => {
            let how = match status {
                Some(status) => format!("it exited with {status}"),
                None => "it was stopped when it created an optimizer".to_owned(),
            };
            let known = if has_config {
                "the job file is based on the command and its config files only"
            } else {
                "add placeholders such as {workers} to the command in the job file"
            };
            output.notice(&format!("the script did not parse arguments: {how}"), known);
            for call in hard_coded.iter().take(MAX_CALLS) {
                output.notice(
                    &written(call),
                    "turn these values into options of the script or keys of a config file, so that brimful can change them",
                );
            }
            Ok(Accepts::default())
        }
    }
}

fn report_missing(missing: &[&str], output: &Output) {
    if !missing.is_empty() {
        output.notice(
            &format!("found no setting for {}", listed(missing)),
            "if the script has one under another name, add a placeholder for it to the job file, for example {workers} (see docs/reference/job-file.md)",
        );
    }
}

/// Hard-coded values of a call in the script.
fn written(call: &HardCoded) -> String {
    let values = call.values.iter();
    let values: Vec<String> = values
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let text = format!(
        "{}:{}: {}({}) is hard-coded",
        call.file,
        call.line,
        call.call,
        values.join(", ")
    );
    // A script chooses its file names and values.
    text.chars()
        .filter(|c| is_printable(*c))
        .take(300)
        .collect()
}

fn listed(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [name] => (*name).to_owned(),
        [names @ .., last] => format!("{} and {last}", names.join(", ")),
    }
}

fn write(path: &Path, text: &str, force: bool) -> Result<(), CommandError> {
    let written = if force {
        brimful_private::write_named(path, text.as_bytes())
    } else {
        brimful_private::write_new_named(path, text.as_bytes())
    };
    written.map_err(|source| match source.kind() {
        // Another process created it in the meantime.
        io::ErrorKind::AlreadyExists => CommandError::FileExists {
            path: path.to_owned(),
        },
        _ => CommandError::Write {
            path: path.to_owned(),
            source,
        },
    })
}
