//! One rehearsal: start the script on the stage, wait for its steps, read what it wrote.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use brimful_allocsim::from_snapshot::EmptyCacheCalls;
use brimful_allocsim::snapshot::{self, SnapshotError};
use brimful_allocsim::trace::Trace;
use serde::Deserialize;

use crate::facts::Facts;
use crate::stage::Stage;

/// How long the loop sleeps between two looks at the script.
const LOOK: Duration = Duration::from_millis(15);
/// The last of the script's output that is kept for a message.
const TAIL: u64 = 16 << 10;
/// More than any snapshot of a rehearsal.
const LARGEST_RESULT: u64 = 2 << 30;

/// What to rehearse.
#[derive(Debug, Clone)]
pub struct Asked {
    pub command: Vec<OsString>,
    /// `libbrimful_phantom.so`.
    pub phantom: PathBuf,
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
}

/// What came of it.
#[derive(Debug)]
pub struct Rehearsal {
    /// By rank, for each variant. A script of several processes has run on the first one only.
    pub variants: Vec<Vec<Rehearsed>>,
    pub seconds: f64,
    /// The end of the script's own output.
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
    Torch { torch: String },
    NoCuda { torch: String },
    Cuda { device: u32 },
    Step { step: u32, of: u32, bytes: u64 },
    Written { reason: String },
    Problem { text: String },
}

/// An event and the process it is from.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Progress {
    pub pid: u32,
    #[serde(flatten)]
    pub event: Event,
}

/// The rehearsal brought no figures.
#[derive(Debug, thiserror::Error)]
pub enum RehearsalError {
    #[error("`{program}` could not be started")]
    Start {
        program: String,
        #[source]
        source: io::Error,
    },
    #[error("the rehearsal could not be prepared in the temporary folder")]
    Stage(#[source] io::Error),
    #[error("no step was made within {} seconds", limit.as_secs())]
    TimeLimit { limit: Duration, output: String },
    #[error("the script ended with {status} before its first optimizer step")]
    Died { status: String, output: String },
    #[error("the script ended without importing torch in a Python that can be watched")]
    NoTorch { output: String },
    #[error("torch {torch} is a build without CUDA: the phantom has nothing to stand in for")]
    NoCuda { torch: String },
    #[error("the script ended without using the GPU")]
    GpuUnused { output: String },
    #[error("what the script's process wrote cannot be read: {what}")]
    Result { what: String },
    #[error("the allocator's snapshot cannot be read")]
    Snapshot(#[from] SnapshotError),
}

impl RehearsalError {
    /// The end of the script's own output, where it may tell more.
    pub fn output(&self) -> Option<&str> {
        match self {
            RehearsalError::TimeLimit { output, .. }
            | RehearsalError::Died { output, .. }
            | RehearsalError::NoTorch { output }
            | RehearsalError::GpuUnused { output } => Some(output),
            _ => None,
        }
    }
}

/// Runs the script until it has made its steps.
pub fn rehearse(
    asked: &Asked,
    mut progress: impl FnMut(&Progress),
) -> Result<Rehearsal, RehearsalError> {
    let start = Instant::now();
    let stage = Stage::new(&asked.phantom).map_err(RehearsalError::Stage)?;
    let output = asked
        .output
        .clone()
        .unwrap_or_else(|| stage.results().join("output"));
    let mut child = spawn(asked, &stage, &output)?;
    let mut lines = ProgressFile::new(stage.results().join("progress"));
    let mut seen = Vec::new();
    let status = loop {
        for line in lines.read() {
            progress(&line);
            seen.push(line.event);
        }
        match child.0.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) => {}
            Err(error) => return Err(RehearsalError::Stage(error)),
        }
        if start.elapsed() > asked.time_limit {
            child.end();
            return Err(RehearsalError::TimeLimit {
                limit: asked.time_limit,
                output: tail(&output),
            });
        }
        std::thread::sleep(LOOK);
    };
    for line in lines.read() {
        progress(&line);
        seen.push(line.event);
    }
    child.end();
    let processes = read_results(&stage.results())?;
    let text = tail(&output);
    if processes.is_empty() {
        return Err(nothing_came(
            &seen,
            status.success(),
            &status.to_string(),
            text,
        ));
    }
    let trained = processes.iter().any(|process| process.facts.steps > 0);
    if !trained
        && processes
            .iter()
            .all(|process| process.facts.reason == "end")
        && !status.success()
    {
        return Err(RehearsalError::Died {
            status: status.to_string(),
            output: text,
        });
    }
    let died = !status.success();
    let mut variants: Vec<Vec<Rehearsed>> = asked.variants.iter().map(|_| Vec::new()).collect();
    for mut process in processes {
        process.died = died && process.facts.reason == "end";
        let variant = process.facts.variant.unwrap_or(0);
        if let Some(processes) = variants.get_mut(variant) {
            processes.push(process);
        }
    }
    Ok(Rehearsal {
        variants,
        seconds: start.elapsed().as_secs_f64(),
        output: text,
    })
}

fn nothing_came(seen: &[Event], success: bool, status: &str, output: String) -> RehearsalError {
    let without_cuda = seen.iter().find_map(|event| match event {
        Event::NoCuda { torch } => Some(torch.clone()),
        _ => None,
    });
    match without_cuda {
        Some(torch) => RehearsalError::NoCuda { torch },
        None if !success => RehearsalError::Died {
            status: status.to_owned(),
            output,
        },
        None if seen
            .iter()
            .any(|event| matches!(event, Event::Torch { .. })) =>
        {
            RehearsalError::GpuUnused { output }
        }
        None => RehearsalError::NoTorch { output },
    }
}

/// A child in its own process group: nothing of it outlives us.
struct Group(Child);

impl Group {
    #[cfg(unix)]
    fn end(&mut self) {
        use rustix::process::{Pid, Signal, kill_process_group};
        if let Some(group) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            // Most often it is gone already.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.0.wait();
    }

    #[cfg(not(unix))]
    fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.end();
    }
}

fn spawn(asked: &Asked, stage: &Stage, output: &Path) -> Result<Group, RehearsalError> {
    let program = asked.command.first().cloned().unwrap_or_default();
    let mut command = Command::new(&program);
    command.args(asked.command.iter().skip(1));
    stage.apply_hook(&mut command);
    let first_device = asked
        .variants
        .first()
        .and_then(|tries| tries.last())
        .map_or("", String::as_str);
    command
        .env("BRIMFUL_PHANTOM_DEVICES", first_device)
        .env(
            "BRIMFUL_REHEARSAL_VARIANTS",
            serde_json::to_string(&asked.variants).unwrap_or_default(),
        )
        .env("BRIMFUL_REHEARSAL_STEPS", asked.steps.to_string())
        .env("BRIMFUL_REHEARSAL_WITH", asked.with.join(","))
        // Some scripts stop and ask, others log to a service.
        .env("WANDB_MODE", "disabled");
    if asked.beside_driver {
        command.env("BRIMFUL_PHANTOM_BESIDE_DRIVER", "1");
    }
    if let Some(conf) = &asked.alloc_conf {
        command
            .env("PYTORCH_CUDA_ALLOC_CONF", conf)
            .env_remove("PYTORCH_ALLOC_CONF");
    }
    let file = File::create(output).map_err(RehearsalError::Stage)?;
    let second = file.try_clone().map_err(RehearsalError::Stage)?;
    command.stdin(Stdio::null()).stdout(file).stderr(second);
    #[cfg(unix)]
    {
        use std::os::unix::process::CommandExt;
        command.process_group(0);
    }
    let child = command.spawn().map_err(|source| RehearsalError::Start {
        program: program.to_string_lossy().into_owned(),
        source,
    })?;
    Ok(Group(child))
}

/// Lines that several processes append.
struct ProgressFile {
    path: PathBuf,
    at: u64,
    rest: String,
}

impl ProgressFile {
    fn new(path: PathBuf) -> Self {
        ProgressFile {
            path,
            at: 0,
            rest: String::new(),
        }
    }

    fn read(&mut self) -> Vec<Progress> {
        let Ok(mut file) = File::open(&self.path) else {
            return Vec::new();
        };
        let mut new = Vec::new();
        if file.seek(SeekFrom::Start(self.at)).is_err()
            || file.take(1 << 20).read_to_end(&mut new).is_err()
        {
            return Vec::new();
        }
        self.at += new.len() as u64;
        self.rest.push_str(&String::from_utf8_lossy(&new));
        let complete = self.rest.rfind('\n').map_or(0, |end| end + 1);
        let lines: String = self.rest.drain(..complete).collect();
        lines
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }
}

fn tail(path: &Path) -> String {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
        let mut bytes = Vec::new();
        file.take(TAIL).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

fn read_results(folder: &Path) -> Result<Vec<Rehearsed>, RehearsalError> {
    let unreadable = |what: &dyn std::fmt::Display| RehearsalError::Result {
        what: what.to_string(),
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
        if !snapshot.exists() {
            continue;
        }
        let bytes = bounded(&snapshot).map_err(|error| unreadable(&error))?;
        let trace = trace_of(&bytes, &facts)?;
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
