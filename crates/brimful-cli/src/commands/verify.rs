//! `brimful verify`.

use brimful_report::json::VerifyDocument;
use brimful_report::{json, text};
use brimful_workflow::{Progress, VerifyRequest, WorkflowError, check_verify_path};

use crate::args::VerifyArguments;
use crate::error::CommandError;
use crate::exit::ExitStatus;
use crate::interruption::Interruption;
use crate::output::Output;
use crate::requests;

pub(crate) fn verify(
    arguments: &VerifyArguments,
    output: &Output,
) -> Result<ExitStatus, CommandError> {
    check_verify_path(&arguments.save)?;
    let request = VerifyRequest {
        command: arguments.command.clone(),
        gpus: arguments.gpu.clone(),
        machine: requests::machine(),
        output: arguments.output.clone(),
        state: requests::state(&arguments.state),
        rehearsal: requests::rehearsal_to_verify(arguments),
    };
    output.status("rehearsing");
    let interruption = Interruption::watch();
    let verified = brimful_workflow::verify(request, |progress| {
        match progress {
            Progress::WithoutCuda { torch } => output.notice(
                &format!("torch {torch} is a CPU-only build, which cannot use the GPU"),
                "install the CUDA build of torch",
            ),
            Progress::Notice(note) => output.note(&note),
            Progress::RunningForReal {
                gpu,
                steps,
                is_isolated,
            } => output.note(&starting(&gpu, steps, is_isolated)),
            Progress::Line(line) => output.status(&line),
            _ => {}
        }
        interruption.check()
    });
    output.clear_status();
    if let Some(progress) = verified.as_ref().err().and_then(WorkflowError::interrupted) {
        output.print_to_stderr(&format!("interrupted {progress}\n"));
    }
    interruption.obey();
    let document = verified?;
    let json = json::to_text(&document)?;
    brimful_private::write_named(&arguments.save, json.as_bytes()).map_err(|source| {
        CommandError::Write {
            path: arguments.save.clone(),
            source,
        }
    })?;
    if arguments.json {
        output.print(&json)?;
    } else {
        output.print(&text::verify(&document, &Output::page()))?;
    }
    output.note(&format!(
        "wrote {}: the values above, the GPU, its driver and the releases, no path, name or argument of yours. \
         Nothing was sent. Read it before you share it",
        arguments.save.display()
    ));
    Ok(ExitStatus::of_fit(
        document.outcome == VerifyDocument::FINISHED,
    ))
}

/// What is about to happen to the user's GPU and files.
fn starting(gpu: &str, steps: u32, is_isolated: bool) -> String {
    let files = if is_isolated {
        "files that it writes, deletes or renames are changed in a scratch directory only, which is removed"
    } else {
        "files that it writes, deletes or renames are really changed (--allow-writes)"
    };
    format!("running the command on {gpu} for {steps} steps; {files}")
}
