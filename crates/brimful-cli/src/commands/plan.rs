//! `brimful plan`.

use std::path::PathBuf;

use brimful::cards;
use brimful::job::Job;
use brimful::job::forms::Form;
use brimful::plan::Room;
use brimful_rehearse::{Answer, Planned, Used};
use brimful_report::{json, text};
use brimful_supervise::job_key;

use crate::args::{FormatChoice, PlanArguments};
use crate::commands::planning::{self, NO_GPU, Search};
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
    let card = if arguments.gpu.as_deref() == Some(NO_GPU) {
        None
    } else {
        cards::of_machine(&machine)
    };
    let mut room = Room::of(&machine);
    if card.is_none() {
        room.gpus.clear();
    }
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
    let page = match (&planned.answer, arguments.format) {
        (Answer::Plan(plan), Some(format)) => {
            form(format).write(&found.job, &plan.settings, card.is_some())
        }
        (Answer::Plan(plan), None) if arguments.json => {
            json::to_text(&json::PlanDocument::of(&context, plan))?
        }
        (Answer::Plan(plan), None) => text::plan(&context, plan, &Output::page()),
        (Answer::Impossible(closest), _) if arguments.json => {
            json::to_text(&json::PlanDocument::of_impossible(&context, closest))?
        }
        (Answer::Impossible(closest), Some(_)) => {
            output.talk(&text::impossible(&context, closest, &Output::page()));
            return Ok(ExitStatus::DoesNotFit);
        }
        (Answer::Impossible(closest), None) => text::impossible(&context, closest, &Output::page()),
    };
    output.print(&page)?;
    Ok(match planned.answer {
        Answer::Plan(_) => ExitStatus::Success,
        Answer::Impossible(_) => ExitStatus::DoesNotFit,
    })
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
    let settings = match &planned.answer {
        Answer::Plan(plan) => &plan.settings,
        Answer::Impossible(closest) => &closest.settings,
    };
    let rendered = job.render(settings, None);
    json::PlanContext {
        job: job_path.to_owned(),
        mode: mode.map(str::to_owned),
        machine: machine.to_owned(),
        command: rendered.command,
        variables: rendered.variables,
        rehearsals: planned.rehearsals.iter().map(used).collect(),
        seconds: planned.seconds,
    }
}

fn used(used: &Used) -> json::RehearsalUsed {
    json::RehearsalUsed {
        settings: json::settings(&used.settings),
        reused: used.reused,
        age_seconds: used.age_seconds.round(),
        seconds: (used.seconds * 10.0).round() / 10.0,
        failed: used.failed.clone(),
    }
}
