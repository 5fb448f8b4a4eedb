//! One rehearsal: start the script on the stage, wait for its steps, read what it wrote.

use std::ffi::OsString;
use std::fs::File;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use brimful::nodes::Torchrun;
use brimful::predict::AssumedCase;
use brimful_isolate::{Isolated, Isolation};

use crate::connections;
use crate::error::RehearsalError;
use crate::events::{Event, Progress, ProgressFile};
use crate::outcome::{EndOfScript, Variant, by_variant};
use crate::reports::{LastStep, suppressed};
use crate::request::RehearsalRequest;
use crate::results::tail;
use crate::side_effects::SideEffects;
use crate::stacks;
use crate::stage::Stage;
use crate::stall::StallWatch;
use crate::trackers;

/// How long the loop sleeps between two looks at the script.
const LOOK: Duration = Duration::from_millis(15);

/// What came of it.
#[derive(Debug)]
pub struct Rehearsal {
    pub side_effects: SideEffects,
    /// One for each card asked for.
    pub variants: Vec<Variant>,
    pub seconds: f64,
    /// The end of the script's own output.
    pub output: String,
}

/// Runs the script until it has made its steps.
///
/// `look` is called many times a second, with something to tell or without, and ends the rehearsal by breaking.
pub fn rehearse(
    request: &RehearsalRequest,
    mut look: impl FnMut(Option<&Progress>) -> ControlFlow<()>,
) -> Result<Rehearsal, RehearsalError> {
    let first = rehearse_in(request, None, &mut look);
    match &first {
        Err(RehearsalError::Died { output, .. })
            if request.protection.may_redirect_after(output) =>
        {
            if look(Some(&Progress::own(Event::Redirected))).is_break() {
                return first;
            }
            match rehearse_in(request, Some(Isolation::Redirect), &mut look) {
                Err(RehearsalError::NotIsolated { .. } | RehearsalError::GpuReached { .. }) => {
                    first
                }
                second => second,
            }
        }
        _ => first,
    }
}

fn rehearse_in(
    request: &RehearsalRequest,
    isolation: Option<Isolation>,
    look: &mut dyn FnMut(Option<&Progress>) -> ControlFlow<()>,
) -> Result<Rehearsal, RehearsalError> {
    let start = Instant::now();
    let stage = if request.on_cpus {
        Stage::without_card()
    } else {
        File::open(&request.phantom).map_err(|source| RehearsalError::Phantom {
            path: request.phantom.clone(),
            source,
        })?;
        Stage::new(&request.phantom).and_then(|stage| {
            stage.add_nvidia_smi(request.protection.program())?;
            Ok(stage)
        })
    };
    let stage = stage.map_err(RehearsalError::Stage)?;
    let output = request
        .output
        .clone()
        .unwrap_or_else(|| stage.results().join("output"));
    // Goes after the script.
    let guard = request.protection.guard().map_err(RehearsalError::Guard)?;
    let mut script = spawn(request, &stage, &output, isolation)?;
    let (isolation, gpu_hidden) = (script.isolation(), script.gpu_hidden());
    let containment = script.containment();
    let mut meter = request.protection.scratch().meter();
    let mut lines = ProgressFile::new(stage.results().join("progress"));
    let mut seen = Vec::new();
    let mut read = |look: &mut dyn FnMut(Option<&Progress>) -> ControlFlow<()>| {
        let new = lines.read();
        let n_new = new.len();
        for line in new {
            look(Some(&line))?;
            seen.push(line.event);
        }
        look(None)?;
        ControlFlow::Continue(n_new)
    };
    let mut stall = StallWatch::new(script.ancestor(), request.time_limit);
    let mut stalled = None;
    let status = loop {
        let ControlFlow::Continue(n_new) = read(look) else {
            script.end();
            return Err(RehearsalError::Interrupted {
                progress: LastStep::of(&seen),
            });
        };
        if n_new > 0 {
            stall.note_progress();
        }
        meter.check(script.ancestor())?;
        match script.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if start.elapsed() > request.time_limit => break None,
            Ok(None) => {
                stalled = stall.check(Instant::now());
                if stalled.is_some() {
                    break None;
                }
                std::thread::sleep(LOOK);
            }
            Err(error) => return Err(RehearsalError::Stage(error)),
        }
    };
    let _ = read(look);
    script.end();
    request.protection.scratch().remove(script.scratch());
    guard.restore()?;
    let ended = EndOfScript {
        status,
        stalled,
        seen,
        output: tail(&output),
        place: stacks::place_at_end(&stage.results()),
    };
    let variants = by_variant(request, &ended, &stage.results())?;
    Ok(Rehearsal {
        side_effects: SideEffects {
            isolation,
            gpu_hidden,
            containment,
            network: request.protection.network(),
            suppressed: suppressed(&ended.seen),
            connections: connections::read(&stage.results()),
        },
        variants,
        seconds: start.elapsed().as_secs_f64(),
        output: ended.output,
    })
}

/// The value of `BRIMFUL_REHEARSAL_CASE` (`brimful_plausible.py`).
fn case(assumed: AssumedCase) -> &'static str {
    match assumed {
        AssumedCase::Usual => "",
        AssumedCase::Balanced => "balanced",
        AssumedCase::Worst => "worst",
    }
}

/// The command for one of several nodes, and how many there are: a rehearsal must not meet the job's own nodes.
fn several_nodes(command: &[OsString]) -> Option<(Vec<String>, u64)> {
    let words: Vec<String> = command
        .iter()
        .map(|word| word.to_str().map(str::to_owned))
        .collect::<Option<_>>()?;
    let found = Torchrun::of(&words, |name| std::env::var(name).ok())?;
    found.has_several_nodes().then(|| {
        (
            found.one_node(&words),
            found.nodes.map_or(1, |(_, most)| most),
        )
    })
}

fn spawn(
    request: &RehearsalRequest,
    stage: &Stage,
    output: &Path,
    isolation: Option<Isolation>,
) -> Result<Isolated, RehearsalError> {
    let program = request.command.first().cloned().unwrap_or_default();
    let mut command = Command::new(&program);
    match several_nodes(&request.command) {
        Some((words, n_nodes)) => command
            .args(&words[1..])
            .env("BRIMFUL_REHEARSAL_NODES", n_nodes.to_string())
            .env_remove(brimful::env_vars::PET_NNODES),
        None => command.args(request.command.iter().skip(1)),
    };
    if request.on_cpus {
        stage.apply_hook_without_card(&mut command);
    } else {
        stage.apply_hook(&mut command);
    }
    let first_device = request
        .variants
        .first()
        .and_then(|tries| tries.last())
        .map_or("", String::as_str);
    let variants = if request.on_cpus {
        "[]".to_owned()
    } else {
        serde_json::to_string(&request.variants).unwrap_or_default()
    };
    command
        .env("BRIMFUL_PHANTOM_DEVICES", first_device)
        .env("BRIMFUL_REHEARSAL_VARIANTS", variants)
        .env(
            brimful::env_vars::BRIMFUL_CONNECTIONS,
            stage.results().join(connections::FILE_NAME),
        )
        .env("BRIMFUL_REHEARSAL_CASE", case(request.assumed))
        .env("BRIMFUL_REHEARSAL_STEPS", request.steps.to_string())
        .env("BRIMFUL_REHEARSAL_WITH", request.with.join(","));
    trackers::turn_off(&mut command, &stage.results().join("trackers"));
    if let Some(conf) = &request.alloc_conf {
        command
            .env("PYTORCH_CUDA_ALLOC_CONF", conf)
            .env_remove("PYTORCH_ALLOC_CONF");
    }
    let unwritable = |source| RehearsalError::Output {
        path: output.to_owned(),
        source,
    };
    let file = match &request.output {
        Some(named) => brimful_private::create_named(named),
        None => brimful_private::create_new(output),
    };
    let file = file.map_err(unwritable)?;
    request
        .protection
        .start(&command, &file, &[stage.path().to_owned()], isolation)
        .map_err(|error| RehearsalError::at_start(error, &program))
}
