//! `brimful plan`.

use std::path::PathBuf;

use brimful::job::forms::Form;
use brimful::job::{ConfigOverrides, Job};
use brimful::plan::{Answer, Room};
use brimful_rehearse::{NO_CARD, Planned};
use brimful_report::{json, text};
use brimful_supervise::job_key;

use crate::args::{FormatChoice, PlanArguments};
use crate::commands::planning::{self, Search};
use crate::commands::protection::side_effects;
use crate::commands::run::state_dir;
use crate::error::CommandError;
use crate::exit::ExitStatus;
use crate::output::Output;

pub(crate) fn plan(arguments: &PlanArguments, output: &Output) -> Result<ExitStatus, CommandError> {
    let found = planning::find_job(&arguments.job, &arguments.overrides)?;
    let machine = planning::machine(
        arguments.as_machine.as_deref(),
        arguments.gpu.as_deref(),
        arguments.memory,
    )?;
    let on_processors = arguments.gpu.as_deref() == Some(NO_CARD);
    let (mut room, card) = Room::for_job(&machine, on_processors);
    room.shm = arguments.shm.or(room.shm);
    if let Some(left) = arguments.gpu_memory {
        for (_, bytes) in &mut room.gpus {
            *bytes = (*bytes).min(left);
        }
    }
    let state = state_dir(&arguments.state);
    let key = job_key(&current_folder(), &found.job.command);
    if arguments.forget {
        let forgotten = state.as_ref().map_or(0, |state| state.forget(&key));
        output.talk(&format!(
            "brimful: {forgotten} earlier runs of this job are forgotten\n"
        ));
    }
    let search = Search {
        room,
        here: arguments.as_machine.is_none() && arguments.memory.is_none(),
        card,
        learnt: state
            .as_ref()
            .map_or_else(Vec::new, |state| state.history(&key)),
    };
    for problem in found.job.problems() {
        output.notice(&problem.to_string(), "see docs/reference/job-file.md");
    }
    let planned = planning::search(
        &found.job,
        &search,
        &arguments.rehearse,
        state.as_ref(),
        output,
    )?;
    let context = context(
        &found.path.display().to_string(),
        arguments.job.mode.as_deref(),
        &text::machine_title(&machine, card),
        &found.job,
        &planned,
    );
    let fits = matches!(planned.answer, Answer::Plan(_));
    match arguments.format {
        Some(format) if fits => {
            let settings = planned.answer.settings();
            if matches!(format, FormatChoice::Args) {
                for file in &context.config {
                    output.notice(
                        &format!(
                            "the command alone does not apply the values of `{}`: {}",
                            file.path,
                            assigned(file)
                        ),
                        "write them into a copy of the file, or let `brimful run` do it",
                    );
                }
            }
            output.print(&form(format).write(&found.job, settings, card.is_some()))?;
        }
        // Who asked for settings alone reads them by a program: why there are none is talk.
        Some(_) => output.talk(&text::plan(&context, &planned.answer, &Output::page())),
        None if arguments.json => {
            output.print(&json::to_text(&json::PlanDocument::of(
                &context,
                &planned.answer,
            ))?)?;
        }
        None => output.print(&text::plan(&context, &planned.answer, &Output::page()))?,
    }
    Ok(if fits {
        ExitStatus::Success
    } else {
        ExitStatus::DoesNotFit
    })
}

fn assigned(file: &ConfigOverrides) -> String {
    let values = file.entries.iter();
    let values: Vec<String> = values
        .map(|(key, value)| format!("{key} = {value}"))
        .collect();
    values.join(", ")
}

fn form(format: FormatChoice) -> Form {
    match format {
        FormatChoice::Args => Form::Args,
        FormatChoice::Env => Form::Env,
        FormatChoice::Hf => Form::Hf,
        FormatChoice::Lightning => Form::Lightning,
        FormatChoice::Json => Form::Json,
        FormatChoice::Toml => Form::Toml,
    }
}

pub(crate) fn current_folder() -> PathBuf {
    std::env::current_dir().unwrap_or_default()
}

/// What is known of a plan besides itself.
pub(crate) fn context(
    job_path: &str,
    mode: Option<&str>,
    machine: &str,
    job: &Job,
    planned: &Planned,
) -> json::PlanContext {
    let rendered = job.render(planned.answer.settings(), None);
    json::PlanContext {
        job: job_path.to_owned(),
        mode: mode.map(str::to_owned),
        machine: machine.to_owned(),
        command: rendered.command,
        variables: rendered.variables,
        config: rendered.config,
        rehearsals: planned.rehearsals.clone(),
        side_effects: planned.side_effects.clone().map(side_effects),
        seconds: planned.seconds,
    }
}
