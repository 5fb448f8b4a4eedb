//! `brimful predict`.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use brimful::predict::Verdict;
use brimful::secrets::mask_command;
use brimful_rehearse::{Event, NO_CARD, PredictionError, Question, USUAL_CARDS};
use brimful_report::{json, text};

use crate::args::PredictArguments;
use crate::commands::protection::{phantom_library, protection, side_effects};
use crate::error::CommandError;
use crate::exit::ExitStatus;
use crate::output::Output;

pub(crate) fn predict(
    arguments: &PredictArguments,
    output: &Output,
) -> Result<ExitStatus, CommandError> {
    let on_processors = arguments.gpu.as_deref().map(str::trim) == Some(NO_CARD);
    let question = Question {
        command: arguments.command.clone(),
        gpu: arguments
            .gpu
            .clone()
            .unwrap_or_else(|| USUAL_CARDS.to_owned()),
        steps: arguments.rehearsal.steps,
        with: arguments
            .with
            .iter()
            .map(|what| what.name().to_owned())
            .collect(),
        alloc_conf: arguments.alloc_conf.clone(),
        phantom: if on_processors {
            PathBuf::new()
        } else {
            phantom_library(arguments.rehearsal.phantom.as_deref())?
        },
        beside_driver: arguments.rehearsal.beside_driver,
        time_limit: Duration::from_secs(arguments.rehearsal.time_limit),
        output: arguments.output.clone(),
        protection: protection(&arguments.rehearsal.protection, None)?,
    };
    output.status("rehearsing");
    let stop = Interruption::watch();
    let mut weaker_is_told = false;
    let predicted = brimful_rehearse::predict(&question, |progress| {
        if let Some(Event::NoCuda { torch }) = progress.map(|told| &told.event)
            && !std::mem::replace(&mut weaker_is_told, true)
        {
            output.notice(
                &format!("torch {torch} is a build without CUDA: the figures are weaker"),
                "install the CUDA build of torch for the exact ones: it needs no GPU and no driver here",
            );
        }
        if let Some(line) = progress.and_then(|told| told.event.line()) {
            output.status(&format!("rehearsing: {line}"));
        }
        if stop.asked() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    output.clear_status();
    // Everything that was started has ended by now.
    if let Some(progress) = predicted
        .as_ref()
        .err()
        .and_then(PredictionError::interrupted)
    {
        output.talk(&format!("interrupted {progress}\n"));
    }
    // What the script wrote goes, also where the signal ends us.
    drop(question);
    stop.obey();
    let predicted = predicted?;
    if let Some(path) = &arguments.save_trace {
        brimful_private::write_named(path, &predicted.trace.to_bytes()).map_err(|source| {
            CommandError::Write {
                path: path.clone(),
                source,
            }
        })?;
    }
    let rehearsed = json::Rehearsed {
        command: mask_command(
            &arguments
                .command
                .iter()
                .map(|word| word.to_string_lossy().into_owned())
                .collect::<Vec<_>>(),
        ),
        torch_version: predicted.torch,
        world_size: predicted.world_size,
        seconds: predicted.seconds,
        failed: predicted
            .failed
            .iter()
            .map(|card| (card.name.to_owned(), card.reason.clone()))
            .collect(),
        steps: predicted
            .processes
            .first()
            .map_or(0, |process| process.facts.steps),
        host: predicted.host,
        side_effects: side_effects(predicted.side_effects),
    };
    let page = if arguments.json {
        json::to_text(&json::PredictDocument::of(
            &rehearsed,
            &predicted.footprints,
        ))?
    } else {
        text::predict(&rehearsed, &predicted.footprints, &Output::page())
    };
    output.print(&page)?;
    let fits = predicted
        .footprints
        .iter()
        .any(|footprint| footprint.verdict == Verdict::Fits);
    Ok(if fits || predicted.footprints.is_empty() {
        ExitStatus::Success
    } else {
        ExitStatus::DoesNotFit
    })
}

/// Ctrl-C and its like, put off until the rehearsal has been taken down.
pub(super) struct Interruption(Vec<(i32, Arc<AtomicBool>)>);

impl Interruption {
    pub(super) fn watch() -> Self {
        let signals = [
            signal_hook::consts::SIGINT,
            signal_hook::consts::SIGTERM,
            signal_hook::consts::SIGHUP,
        ];
        let mut flags = Vec::new();
        for signal in signals {
            let flag = Arc::new(AtomicBool::new(false));
            if signal_hook::flag::register(signal, Arc::clone(&flag)).is_ok() {
                flags.push((signal, flag));
            }
        }
        Interruption(flags)
    }

    pub(super) fn asked(&self) -> bool {
        self.0.iter().any(|(_, flag)| flag.load(Ordering::Relaxed))
    }

    /// Ends as the signal would have ended us.
    pub(super) fn obey(&self) {
        for (signal, _) in self
            .0
            .iter()
            .filter(|(_, flag)| flag.load(Ordering::Relaxed))
        {
            let _ = signal_hook::low_level::emulate_default_handler(*signal);
        }
    }
}
