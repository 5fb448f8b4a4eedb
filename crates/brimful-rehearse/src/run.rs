//! One rehearsal: start the script on the stage, wait for its steps, read what it wrote.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use brimful::printable::is_printable;
use brimful::units::Bytes;
use brimful_allocsim::from_snapshot::EmptyCacheCalls;
use brimful_allocsim::snapshot;
use brimful_allocsim::trace::Trace;
use brimful_isolate::{Isolated, Isolation, StartError};
use serde::Deserialize;

use crate::connections;
use crate::doing;
use crate::error::RehearsalError;
use crate::facts::Facts;
use crate::protection::Protection;
use crate::reports::{LastStep, suppressed};
use crate::side_effects::SideEffects;
use crate::stage::Stage;
use crate::trackers;

/// How long the loop sleeps between two looks at the script.
const LOOK: Duration = Duration::from_millis(15);
/// The last of the script's output that is kept for a message.
const TAIL: u64 = 16 << 10;
/// More than any line of progress, and than all lines of a rehearsal.
const MAX_LINE: usize = 1 << 20;
const MAX_PROGRESS: u64 = 64 << 20;
/// Characters of a message about results that cannot be read.
const MAX_MESSAGE: usize = 300;
/// More than any snapshot of a rehearsal.
const LARGEST_RESULT: u64 = 2 << 30;

/// What to rehearse.
#[derive(Debug, Clone)]
pub struct Asked {
    pub command: Vec<OsString>,
    /// `libbrimful_phantom.so`.
    pub phantom: PathBuf,
    /// On the processors, without any card; `variants` then has one that is empty.
    pub processors: bool,
    /// For each card to rehearse on, descriptions for the phantom that are tried in turn until the script does not die
    /// of memory.
    pub variants: Vec<Vec<String>>,
    pub steps: u32,
    /// Of `eval` and `save`, what to go on for after the steps.
    pub with: Vec<String>,
    /// In place of the environment's own settings.
    pub alloc_conf: Option<String>,
    /// Even where a real driver is present.
    pub beside_driver: bool,
    pub time_limit: Duration,
    /// Where the script's own output goes; into a temporary file without it.
    pub output: Option<PathBuf>,
    pub protection: Protection,
}

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

/// What came of one card.
#[derive(Clone, Debug, Default)]
pub struct Variant {
    /// By rank; none where the script died before its first step.
    pub processes: Vec<Rehearsed>,
    /// The end of the script's output, where there are none.
    pub output: String,
}

/// One process of the script.
#[derive(Clone, Debug)]
pub struct Rehearsed {
    pub facts: Facts,
    pub trace: Trace,
    /// The script ended with an error, after its first steps.
    pub died: bool,
}

/// Something worth telling while it runs.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    Torch {
        torch: String,
    },
    /// Torch was built without CUDA: the script goes on with tensors that have shapes and no values.
    NoCuda {
        torch: String,
    },
    /// Something that cannot be rehearsed with this torch.
    Unsupported {
        torch: String,
        what: String,
    },
    Cuda {
        device: u32,
    },
    Step {
        step: u32,
        of: u32,
        bytes: u64,
    },
    Written {
        reason: String,
    },
    /// The process of one card is over.
    Ended {
        variant: usize,
        code: i32,
    },
    Problem {
        text: String,
    },
    /// Torch was loaded without the hook: the process has ended itself.
    Unhooked {
        torch: Option<String>,
        why: String,
    },
    /// Something that would have reached a service was not done.
    Suppressed {
        what: String,
    },
    /// The script asked for input, and got none.
    Input {
        prompt: String,
    },
    /// The script failed, and had read a value before that only the model could compute.
    AssumedValue {
        place: String,
    },
}

impl Event {
    /// One line for somebody who waits; nothing where there is nothing to tell.
    pub fn line(&self) -> Option<String> {
        Some(match self {
            Event::Torch { torch } | Event::NoCuda { torch } => format!("torch {torch} is loaded"),
            Event::Cuda { .. } => "the model is being built".to_owned(),
            Event::Step { step, of, bytes } => {
                format!("step {step} of {of}, {} in tensors", Bytes(*bytes))
            }
            Event::Written { .. } => "replaying".to_owned(),
            Event::Problem { text } => text.clone(),
            Event::Unsupported { what, .. } => what.clone(),
            Event::Unhooked { .. } => "torch was loaded without the hook".to_owned(),
            Event::Input { .. } => "the script asks for input".to_owned(),
            Event::Ended { .. } | Event::Suppressed { .. } | Event::AssumedValue { .. } => {
                return None;
            }
        })
    }
}

/// An event and the process it is from.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Progress {
    pub pid: u32,
    #[serde(flatten)]
    pub event: Event,
}

/// Runs the script until it has made its steps.
///
/// `look` is called many times a second, with something to tell or without, and ends the rehearsal by breaking.
pub fn rehearse(
    asked: &Asked,
    mut look: impl FnMut(Option<&Progress>) -> ControlFlow<()>,
) -> Result<Rehearsal, RehearsalError> {
    let first = rehearse_in(asked, None, &mut look);
    match &first {
        Err(RehearsalError::Died { output, .. }) if asked.protection.may_redirect_after(output) => {
            match rehearse_in(asked, Some(Isolation::Redirect), &mut look) {
                Err(RehearsalError::NotIsolated { .. }) => first,
                second => second,
            }
        }
        _ => first,
    }
}

fn rehearse_in(
    asked: &Asked,
    isolation: Option<Isolation>,
    look: &mut dyn FnMut(Option<&Progress>) -> ControlFlow<()>,
) -> Result<Rehearsal, RehearsalError> {
    let start = Instant::now();
    let stage = if asked.processors {
        Stage::without_card()
    } else {
        File::open(&asked.phantom).map_err(|source| RehearsalError::Phantom {
            path: asked.phantom.clone(),
            source,
        })?;
        Stage::new(&asked.phantom)
    };
    let stage = stage.map_err(RehearsalError::Stage)?;
    let output = asked
        .output
        .clone()
        .unwrap_or_else(|| stage.results().join("output"));
    // Goes after the script.
    let guard = asked.protection.guard().map_err(RehearsalError::Guard)?;
    let mut script = spawn(asked, &stage, &output, isolation)?;
    let isolation = script.isolation();
    let mut meter = asked.protection.scratch().meter();
    let mut lines = ProgressFile::new(stage.results().join("progress"));
    let mut seen = Vec::new();
    let mut read = |look: &mut dyn FnMut(Option<&Progress>) -> ControlFlow<()>| {
        for line in lines.read() {
            look(Some(&line))?;
            seen.push(line.event);
        }
        look(None)
    };
    let status = loop {
        if read(look).is_break() {
            script.end();
            return Err(RehearsalError::Interrupted {
                progress: LastStep::of(&seen),
            });
        }
        meter.check(script.ancestor())?;
        match script.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if start.elapsed() > asked.time_limit => break None,
            Ok(None) => std::thread::sleep(LOOK),
            Err(error) => return Err(RehearsalError::Stage(error)),
        }
    };
    let _ = read(look);
    script.end();
    asked.protection.scratch().remove(script.scratch());
    guard.restore()?;
    let ended = Ended {
        status,
        seen,
        output: tail(&output),
        doing: doing::read(&stage.results()),
    };
    let variants = sort_out(asked, &ended, &stage.results())?;
    Ok(Rehearsal {
        side_effects: SideEffects {
            isolation,
            suppressed: suppressed(&ended.seen),
            connections: connections::read(&stage.results()),
        },
        variants,
        seconds: start.elapsed().as_secs_f64(),
        output: ended.output,
    })
}

/// How a script came to its end.
struct Ended {
    /// Nothing where the time was up.
    status: Option<ExitStatus>,
    seen: Vec<Event>,
    output: String,
    /// Where the script was, if it made no step for some time.
    doing: Option<String>,
}

impl Ended {
    fn success(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// Whether the processes of that card ended with an error; the whole script's end where nothing else is known.
    fn failed(&self, variant: usize) -> bool {
        let own = self.seen.iter().rev().find_map(|event| match event {
            Event::Ended { variant: of, code } if *of == variant => Some(*code),
            _ => None,
        });
        own.map_or(!self.success(), |code| code != 0)
    }

    fn steps_told(&self) -> u32 {
        let steps = self.seen.iter().filter_map(|event| match event {
            Event::Step { step, .. } => Some(*step),
            _ => None,
        });
        steps.max().unwrap_or(0)
    }

    /// Where the script last read a value that only the model could compute, if it failed after that.
    fn assumed_value(&self) -> Option<String> {
        self.seen.iter().rev().find_map(|event| match event {
            Event::AssumedValue { place } => Some(place.clone()),
            _ => None,
        })
    }

    /// The reason that a process of the script reported itself.
    fn told_reason(&self) -> Option<RehearsalError> {
        let unhooked = self.seen.iter().find_map(|event| match event {
            Event::Unhooked { torch, why } => Some(RehearsalError::Unhooked {
                torch: torch.clone(),
                why: why.clone(),
                output: self.output.clone(),
            }),
            _ => None,
        });
        // A script that got on without an answer ends for another reason.
        let input = self.seen.iter().rev().find_map(|event| match event {
            Event::Input { prompt } => Some(RehearsalError::Input {
                prompt: prompt.clone(),
                output: self.output.clone(),
            }),
            _ => None,
        });
        unhooked.or_else(|| input.filter(|_| self.status.is_some() && !self.success()))
    }

    /// Why there are no figures.
    fn reason(&self, asked: &Asked) -> RehearsalError {
        let output = self.output.clone();
        if let Some(told) = self.told_reason() {
            return told;
        }
        let unsupported = self.seen.iter().find_map(|event| match event {
            Event::Unsupported { torch, what } => Some((torch.clone(), what.clone())),
            _ => None,
        });
        if let Some((torch, found)) = unsupported {
            return RehearsalError::NoCuda {
                torch,
                found,
                output,
            };
        }
        let without_cuda = self.seen.iter().find_map(|event| match event {
            Event::NoCuda { torch } => Some(torch.clone()),
            _ => None,
        });
        match (without_cuda, self.status) {
            (_, None) => RehearsalError::TimeLimit {
                limit: asked.time_limit,
                made: self.steps_told(),
                steps: asked.steps,
                doing: self.doing.clone(),
                output,
            },
            (Some(torch), Some(status)) if !status.success() => RehearsalError::NoCuda {
                torch,
                found: format!("one that ended with {status} before its first optimizer step"),
                output,
            },
            (None, Some(status)) if !status.success() => RehearsalError::Died {
                status: status.to_string(),
                assumed: self.assumed_value(),
                output,
            },
            (_, Some(_)) => {
                let torch = |event: &Event| matches!(event, Event::Torch { .. });
                if self.seen.iter().any(torch) {
                    RehearsalError::GpuUnused { output }
                } else {
                    RehearsalError::NoTorch { output }
                }
            }
        }
    }
}

/// What each card's processes wrote. A card on which the script died before its first step has none.
fn sort_out(asked: &Asked, ended: &Ended, results: &Path) -> Result<Vec<Variant>, RehearsalError> {
    let processes = read_results(results, asked.processors)?;
    let mut variants: Vec<Variant> = asked.variants.iter().map(|_| Variant::default()).collect();
    for process in processes {
        let variant = process.facts.variant.unwrap_or(0);
        if let Some(variant) = variants.get_mut(variant) {
            variant.processes.push(process);
        }
    }
    for (number, variant) in variants.iter_mut().enumerate() {
        let died = ended.failed(number);
        for process in &mut variant.processes {
            process.died = died && process.facts.reason == "end";
        }
        let trained = |process: &Rehearsed| process.facts.steps > 0 || !process.died;
        if !variant.processes.iter().any(trained) {
            variant.processes.clear();
            let own = if number == 0 {
                "output".to_owned()
            } else {
                format!("output-{number}")
            };
            variant.output = tail(&results.join(own));
        }
    }
    if variants.iter().all(|variant| variant.processes.is_empty()) {
        return Err(ended.reason(asked));
    }
    Ok(variants)
}

fn spawn(
    asked: &Asked,
    stage: &Stage,
    output: &Path,
    isolation: Option<Isolation>,
) -> Result<Isolated, RehearsalError> {
    let program = asked.command.first().cloned().unwrap_or_default();
    let mut command = Command::new(&program);
    command.args(asked.command.iter().skip(1));
    if asked.processors {
        stage.apply_hook_without_card(&mut command);
    } else {
        stage.apply_hook(&mut command);
    }
    let first_device = asked
        .variants
        .first()
        .and_then(|tries| tries.last())
        .map_or("", String::as_str);
    let variants = if asked.processors {
        "[]".to_owned()
    } else {
        serde_json::to_string(&asked.variants).unwrap_or_default()
    };
    command
        .env("BRIMFUL_PHANTOM_DEVICES", first_device)
        .env("BRIMFUL_REHEARSAL_VARIANTS", variants)
        .env(
            "BRIMFUL_CONNECTIONS",
            stage.results().join(connections::FILE_NAME),
        )
        .env("BRIMFUL_REHEARSAL_STEPS", asked.steps.to_string())
        .env("BRIMFUL_REHEARSAL_WITH", asked.with.join(","));
    trackers::turn_off(&mut command, &stage.results().join("trackers"));
    if asked.beside_driver {
        command.env("BRIMFUL_PHANTOM_BESIDE_DRIVER", "1");
    }
    if let Some(conf) = &asked.alloc_conf {
        command
            .env("PYTORCH_CUDA_ALLOC_CONF", conf)
            .env_remove("PYTORCH_ALLOC_CONF");
    }
    let unwritable = |source| RehearsalError::Output {
        path: output.to_owned(),
        source,
    };
    let file = match &asked.output {
        Some(named) => brimful_private::create_named(named),
        None => brimful_private::create_new(output),
    };
    let file = file.map_err(unwritable)?;
    asked
        .protection
        .start(&command, &file, &[stage.path().to_owned()], isolation)
        .map_err(|error| match error {
            StartError::NotStarted(source) => RehearsalError::Start {
                program: program.to_string_lossy().into_owned(),
                source,
            },
            StartError::NoIsolation { reasons } => RehearsalError::NotIsolated { reasons },
            StartError::Keeper(source) => RehearsalError::Stage(source),
        })
}

/// Lines that several processes append.
#[derive(Debug)]
pub(crate) struct ProgressFile {
    path: PathBuf,
    at: u64,
    rest: String,
}

impl ProgressFile {
    pub(crate) fn new(path: PathBuf) -> Self {
        ProgressFile {
            path,
            at: 0,
            rest: String::new(),
        }
    }

    pub(crate) fn read(&mut self) -> Vec<Progress> {
        let Ok(mut file) = File::open(&self.path) else {
            return Vec::new();
        };
        let mut new = Vec::new();
        let left = MAX_PROGRESS.saturating_sub(self.at).min(1 << 20);
        if file.seek(SeekFrom::Start(self.at)).is_err()
            || file.take(left).read_to_end(&mut new).is_err()
        {
            return Vec::new();
        }
        self.at += new.len() as u64;
        self.rest.push_str(&String::from_utf8_lossy(&new));
        let complete = self.rest.rfind('\n').map_or(0, |end| end + 1);
        let lines: String = self.rest.drain(..complete).collect();
        if self.rest.len() > MAX_LINE {
            self.rest.clear();
        }
        lines
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }
}

/// The end of a file.
pub(crate) fn tail(path: &Path) -> String {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
        let mut bytes = Vec::new();
        file.take(TAIL).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    brimful::secrets::mask_text(&String::from_utf8_lossy(&read().unwrap_or_default()))
}

pub(crate) fn read_results(
    folder: &Path,
    processors: bool,
) -> Result<Vec<Rehearsed>, RehearsalError> {
    // A message about JSON quotes what it found, which may be as long as the file.
    let unreadable = |what: &dyn std::fmt::Display| RehearsalError::Result {
        what: (what.to_string().chars())
            .map(|c| if is_printable(c) { c } else { ' ' })
            .take(MAX_MESSAGE)
            .collect(),
    };
    let mut processes = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| unreadable(&error))? {
        let path = entry.map_err(|error| unreadable(&error))?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let facts = bounded(&path).map_err(|error| unreadable(&error))?;
        let facts: Facts = serde_json::from_slice(&facts).map_err(|error| unreadable(&error))?;
        let snapshot = path.with_extension("snapshot");
        let trace = if snapshot.exists() {
            let bytes = bounded(&snapshot).map_err(|error| unreadable(&error))?;
            trace_of(&bytes, &facts)?
        } else if processors {
            Trace::default()
        } else {
            continue;
        };
        processes.push(Rehearsed {
            facts,
            trace,
            died: false,
        });
    }
    processes.sort_by_key(|process| process.facts.rank);
    Ok(processes)
}

fn bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = File::open(path)?
        .take(LARGEST_RESULT)
        .read_to_end(&mut bytes)?;
    if read as u64 == LARGEST_RESULT {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "more than 2 GiB of results",
        ));
    }
    Ok(bytes)
}

fn trace_of(bytes: &[u8], facts: &Facts) -> Result<Trace, RehearsalError> {
    let snapshot = snapshot::read(bytes)?;
    let mut trace = Trace::from_snapshot(&snapshot, facts.device, EmptyCacheCalls::LeaveOut);
    trace.torch.clone_from(&facts.torch);
    snapshot
        .alloc_conf()
        .unwrap_or_default()
        .clone_into(&mut trace.settings);
    let marks: Vec<(u64, String)> = facts
        .marks
        .iter()
        .map(|(count, kind, text)| (*count, format!("{kind}:{text}")))
        .collect();
    trace.insert_marks(&marks, "empty_cache:");
    trace.check().map_err(|error| RehearsalError::Result {
        what: error.to_string(),
    })?;
    Ok(trace)
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;
    use crate::protection::ProtectionRequest;

    fn asked() -> Asked {
        Asked {
            command: Vec::new(),
            phantom: PathBuf::new(),
            processors: false,
            variants: vec![Vec::new()],
            steps: 3,
            with: Vec::new(),
            alloc_conf: None,
            beside_driver: false,
            time_limit: Duration::from_secs(9),
            output: None,
            protection: Protection::new(ProtectionRequest::default()).expect("a disk"),
        }
    }

    fn reason(lines: &[&str], code: Option<i32>) -> RehearsalError {
        let event = |line: &&str| {
            serde_json::from_str::<Progress>(line)
                .expect("an event")
                .event
        };
        let ended = Ended {
            status: code.map(|code| ExitStatus::from_raw(code << 8)),
            seen: lines.iter().map(event).collect(),
            output: "its last words".into(),
            doing: None,
        };
        ended.reason(&asked())
    }

    #[test]
    fn a_message_about_results_is_short_and_printable() {
        let directory = tempfile::tempdir().expect("a directory");
        let text = format!("{{\"marks\": \"\\u001b{}\"}}", "x".repeat(100_000));
        fs::write(directory.path().join("7.json"), text).expect("a disk");
        let message = read_results(directory.path(), true)
            .expect_err("marks are a list")
            .to_string();
        assert!(
            message.len() < 1000 && message.chars().all(is_printable),
            "{message}"
        );
    }

    #[test]
    fn progress_without_an_end_of_a_line_takes_no_more_memory_than_a_line() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("progress");
        let mut file = File::create(&path).expect("a file");
        let mut lines = ProgressFile::new(path);
        for _ in 0..4 {
            io::Write::write_all(&mut file, &vec![b'x'; 1 << 20]).expect("a disk");
            assert_eq!(lines.read(), []);
            assert!(lines.rest.len() <= MAX_LINE);
        }
        io::Write::write_all(&mut file, format!("\n{TORCH}\n").as_bytes()).expect("a disk");
        assert_eq!(lines.read().len(), 1, "what follows is read");
        file.set_len(2 * MAX_PROGRESS).expect("a sparse file");
        for _ in 0..2 * (MAX_PROGRESS >> 20) {
            lines.read();
        }
        assert_eq!(lines.at, MAX_PROGRESS, "the rest is left alone");
    }

    const NO_CUDA: &str = r#"{"event":"no-cuda","torch":"2.14.1+cpu","pid":1}"#;
    const TORCH: &str = r#"{"event":"torch","torch":"2.14.1+cpu","pid":1}"#;
    const UNSUPPORTED: &str =
        r#"{"event":"unsupported","torch":"2.14.1+cpu","what":"aten.eig","pid":1}"#;

    #[test]
    fn without_cuda_the_message_says_what_was_expected_and_found() {
        let error = reason(&[NO_CUDA, TORCH, UNSUPPORTED], Some(1));
        assert_eq!(
            error.to_string(),
            "torch 2.14.1+cpu is a build without CUDA; expected a script that runs on tensors without values, found aten.eig"
        );
        assert!(error.hint().starts_with("install the CUDA build of torch"));
        assert_eq!(error.output(), Some("its last words"));
        let error = reason(&[NO_CUDA, TORCH], Some(1));
        assert!(
            error.to_string().ends_with(
                "found one that ended with exit status: 1 before its first optimizer step"
            )
        );
    }

    #[test]
    fn a_torch_without_the_hook_is_named_first() {
        let unhooked = r#"{"event":"unhooked","torch":"2.14.1","why":"it failed","pid":1}"#;
        let error = reason(&[NO_CUDA, TORCH, unhooked], Some(97));
        assert_eq!(
            error.to_string(),
            "torch 2.14.1 was loaded without brimful's hook: it failed"
        );
        let unknown = r#"{"event":"unhooked","torch":null,"why":"it failed","pid":1}"#;
        assert_eq!(
            reason(&[unknown], Some(97)).to_string(),
            "torch was loaded without brimful's hook: it failed"
        );
    }

    #[test]
    fn a_script_that_asked_for_input_is_told_so_only_if_it_failed() {
        let input = r#"{"event":"input","prompt":"Continue? [y/n]","pid":1}"#;
        let error = reason(&[input], Some(1));
        assert_eq!(
            error.to_string(),
            "the script asked for input before its first optimizer step: \"Continue? [y/n]\""
        );
        assert!(matches!(
            reason(&[input, TORCH], Some(0)),
            RehearsalError::GpuUnused { .. }
        ));
        assert!(matches!(
            reason(&[input], None),
            RehearsalError::TimeLimit { .. }
        ));
    }

    #[test]
    fn without_cuda_other_reasons_stay_what_they_are() {
        assert!(matches!(
            reason(&[NO_CUDA, TORCH], None),
            RehearsalError::TimeLimit { .. }
        ));
        assert!(matches!(
            reason(&[NO_CUDA, TORCH], Some(0)),
            RehearsalError::GpuUnused { .. }
        ));
        assert!(matches!(
            reason(&[TORCH], Some(1)),
            RehearsalError::Died { .. }
        ));
    }
}
