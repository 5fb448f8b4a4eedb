//! A trace or a CUDA memory snapshot, run through the model of PyTorch's allocator for other GPUs and settings.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use brimful::cards::{self, UnknownCard};
use brimful::units::Bytes;
use brimful::user_error::{ErrorKind, Hint, UserError};
use brimful_allocsim::agreement::agreement;
use brimful_allocsim::by_line::{LineMemory, memory_by_line};
use brimful_allocsim::format::MAGIC;
use brimful_allocsim::from_snapshot::EmptyCacheCalls;
use brimful_allocsim::replay::{Moment, Outcome, Setup, replay as play, replay_observed};
use brimful_allocsim::settings::{AllocatorSettings, SettingsError};
use brimful_allocsim::snapshot;
use brimful_allocsim::trace::{Event, Trace};
use brimful_allocsim::version::{TorchVersion, VersionError};
use brimful_report::json;

use crate::layout;

/// More than any snapshot that PyTorch writes.
const MAX_FILE_BYTES: u64 = 8 << 30;

/// Columns of the memory over a file.
const MAX_COLUMNS: usize = 480;
/// Lines of code that are listed.
const MAX_LINES: usize = 40;
/// Results whose segments are kept: as it was, and the settings that people try first.
const MAX_LAYOUTS: usize = 8;

/// Settings that are tried when none are named: PyTorch's default and the ones people try first.
const USUAL_SETTINGS: [&str; 4] = [
    "",
    "expandable_segments:True",
    "max_split_size_mb:128",
    "roundup_power2_divisions:8",
];

/// What to replay, and where.
#[derive(Clone, Debug, Default)]
pub struct ReplayRequest {
    /// A trace of `brimful predict --save-trace`, or a snapshot of PyTorch.
    pub file: PathBuf,
    /// GPU models, each a list with commas.
    pub gpu: Vec<String>,
    pub capacity: Vec<Bytes>,
    /// Allocator settings; the usual ones if empty.
    pub alloc_conf: Vec<String>,
    /// The device of a snapshot; the one with the longest history without it.
    pub device: Option<u32>,
    /// The version of torch, in place of the one in the file.
    pub torch: Option<String>,
    /// Add what a report shows: memory over the file, and segments at the failure or at the peak.
    pub with_layout: bool,
}

/// The file cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error(transparent)]
    UnknownCard(#[from] UnknownCard),
    #[error(transparent)]
    AllocatorSettings(#[from] SettingsError),
    #[error(transparent)]
    Version(#[from] VersionError),
    #[error("failed to read `{}`", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot replay `{}`: {problem}", path.display())]
    Unreadable {
        path: PathBuf,
        problem: String,
        hint: &'static str,
    },
    #[error("cannot replay `{}`: it contains no allocation history", path.display())]
    EmptyRecord { path: PathBuf },
}

impl UserError for ReplayError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Input
    }

    fn hints(&self) -> Vec<Hint> {
        match self {
            ReplayError::UnknownCard(error) => error.hints(),
            ReplayError::AllocatorSettings(_)
            | ReplayError::Version(_)
            | ReplayError::Read { .. } => Vec::new(),
            ReplayError::Unreadable { hint, .. } => vec![Hint::text(*hint)],
            ReplayError::EmptyRecord { .. } => vec![Hint::text(
                "call `torch.cuda.memory._record_memory_history()` before training",
            )],
        }
    }
}

/// Replays the file for every GPU and every allocator setting.
pub fn replay(request: &ReplayRequest) -> Result<json::ReplayDocument, ReplayError> {
    let mut targets = targets(request)?;
    let Replayable {
        trace,
        device,
        version,
        room,
        by_line,
    } = read(request)?;
    let is_unlimited = request.gpu.is_empty() && request.capacity.is_empty();
    if let (true, true, Some(room)) = (request.with_layout, is_unlimited, room) {
        targets = vec![ReplayTarget {
            gpu: None,
            capacity: room,
            held: 0,
        }];
    }
    let confs: Vec<String> = if request.alloc_conf.is_empty() {
        usual_settings(&trace)
    } else {
        request.alloc_conf.clone()
    };
    let mut results = Vec::new();
    let mut timeline = Timeline::new(trace.events.len());
    for target in &targets {
        for conf in &confs {
            let settings = AllocatorSettings::parse(conf, version)?;
            let setup = Setup {
                capacity: target.capacity,
                held: target.held,
                settings,
                version,
            };
            let is_first = results.is_empty() && request.with_layout;
            let outcome = if is_first {
                replay_observed(&trace, &setup, |moment| timeline.see(moment))
            } else {
                play(&trace, &setup)
            };
            let mut found = result(target, conf, &outcome);
            if request.with_layout && results.len() < MAX_LAYOUTS {
                found.layout = Some(layout::layout(&trace, &setup, &outcome));
            }
            results.push(found);
        }
    }
    Ok(json::ReplayDocument {
        schema_version: json::SCHEMA_VERSION,
        brimful_version: env!("CARGO_PKG_VERSION").into(),
        file: request.file.display().to_string(),
        torch_version: version.to_string(),
        torch_version_assumed: trace.torch.is_empty(),
        device,
        events: counted(&trace),
        agreement: compared(&trace, version),
        timeline: timeline.columns,
        by_line,
        results,
    })
}

/// A GPU to replay on.
struct ReplayTarget {
    gpu: Option<String>,
    capacity: u64,
    held: u64,
}

fn targets(request: &ReplayRequest) -> Result<Vec<ReplayTarget>, ReplayError> {
    let mut targets = Vec::new();
    for list in &request.gpu {
        for name in cards::alternatives(list)? {
            let (card, _) = cards::find_counted(name)?;
            targets.push(ReplayTarget {
                gpu: Some(card.name.to_owned()),
                capacity: card.torch_visible.value.get(),
                held: brimful::predict::likely_context(card).get(),
            });
        }
    }
    targets.extend(request.capacity.iter().map(|capacity| ReplayTarget {
        gpu: None,
        capacity: capacity.get(),
        held: 0,
    }));
    if targets.is_empty() {
        // Without a limit: what the settings alone change.
        targets.push(ReplayTarget {
            gpu: None,
            capacity: 1 << 46,
            held: 0,
        });
    }
    Ok(targets)
}

fn usual_settings(trace: &Trace) -> Vec<String> {
    let mut confs = vec![trace.settings.clone()];
    confs.extend(
        USUAL_SETTINGS
            .iter()
            .map(|conf| (*conf).to_owned())
            .filter(|conf| *conf != trace.settings),
    );
    confs
}

/// What a file holds.
struct Replayable {
    trace: Trace,
    device: u32,
    version: TorchVersion,
    /// What the allocator could hold when it ran out, for a snapshot that ends with a failure.
    room: Option<u64>,
    by_line: Option<json::MemoryByLine>,
}

/// A trace of ours, or a snapshot of PyTorch's.
fn read(request: &ReplayRequest) -> Result<Replayable, ReplayError> {
    let bytes = bounded(&request.file)?;
    let unreadable = |error: &dyn std::error::Error, hint: &'static str| ReplayError::Unreadable {
        path: request.file.clone(),
        problem: error.to_string(),
        hint,
    };
    let (mut trace, device, room, by_line) = if bytes.starts_with(MAGIC) {
        let trace = Trace::from_bytes(&bytes).map_err(|error| {
            unreadable(
                &error,
                "save it again with `brimful predict --save-trace FILE`",
            )
        })?;
        (trace, 0, None, None)
    } else {
        let snapshot = snapshot::read(&bytes).map_err(|error| ReplayError::Unreadable {
            path: request.file.clone(),
            problem: format!("neither a trace nor a CUDA memory snapshot: {error}"),
            hint: error.hint(),
        })?;
        // The file may be larger than all that is kept of it.
        drop(bytes);
        let device = request.device.unwrap_or_else(|| busiest(&snapshot));
        let mut trace = Trace::from_snapshot(&snapshot, device, EmptyCacheCalls::Infer);
        snapshot
            .alloc_conf()
            .unwrap_or_default()
            .clone_into(&mut trace.settings);
        trace.check().map_err(|error| {
            unreadable(
                &error,
                "record it again with `torch.cuda.memory._record_memory_history()`",
            )
        })?;
        let by_line = by_line(&snapshot, device);
        (trace, device, room_at_failure(&snapshot, device), by_line)
    };
    if let Some(version) = &request.torch {
        trace.torch.clone_from(version);
    }
    let version = if trace.torch.is_empty() {
        TorchVersion::NEWEST_CHECKED
    } else {
        trace.torch.parse()?
    };
    if counted(&trace) == 0 {
        return Err(ReplayError::EmptyRecord {
            path: request.file.clone(),
        });
    }
    Ok(Replayable {
        trace,
        device,
        version,
        room,
        by_line,
    })
}

fn by_line(snapshot: &snapshot::Snapshot, device: u32) -> Option<json::MemoryByLine> {
    let found = memory_by_line(snapshot, device)?;
    let sum = |lines: &[LineMemory]| {
        lines
            .iter()
            .fold(0_u64, |sum, line| sum.saturating_add(line.bytes))
    };
    let (listed, others) = found.lines.split_at(found.lines.len().min(MAX_LINES));
    let lines = listed.iter().map(|line| {
        let frame = snapshot.frame(line.frame);
        json::LineMemory {
            file: frame.map(|frame| frame.file.to_string()),
            line: frame.map(|frame| frame.line).filter(|line| *line > 0),
            function: frame
                .map(|frame| frame.name.to_string())
                .filter(|name| !name.is_empty()),
            bytes: line.bytes,
            allocations: line.allocations,
        }
    });
    Some(json::MemoryByLine {
        at_failure: found.is_failure,
        total_bytes: sum(&found.lines),
        lines: lines.collect(),
        other_bytes: sum(others),
    })
}

/// What was reserved and what was free when the last allocation failed.
fn room_at_failure(snapshot: &snapshot::Snapshot, device: u32) -> Option<u64> {
    let failed = snapshot.last_failure(device)?;
    let reserved = snapshot
        .segments
        .iter()
        .filter(|segment| segment.device == device)
        .fold(0_u64, |sum, segment| sum.saturating_add(segment.total_size));
    reserved.checked_add(failed.device_free?)
}

fn bounded(path: &Path) -> Result<Vec<u8>, ReplayError> {
    let failed = |source| ReplayError::Read {
        path: path.to_owned(),
        source,
    };
    let file = brimful_private::open_named(path).map_err(failed)?;
    if !file
        .metadata()
        .is_ok_and(|facts| facts.is_file() && facts.len() < MAX_FILE_BYTES)
    {
        let problem = "not a regular file of less than 8 GiB";
        return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, problem)));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    Ok(bytes)
}

/// The device with the longest history.
fn busiest(snapshot: &snapshot::Snapshot) -> u32 {
    let longest = snapshot
        .traces
        .iter()
        .enumerate()
        .rev()
        .max_by_key(|(_, trace)| trace.len());
    longest
        .and_then(|(device, _)| u32::try_from(device).ok())
        .unwrap_or(0)
}

fn counted(trace: &Trace) -> u64 {
    let counts = |event: &&Event| {
        matches!(
            event,
            Event::Alloc(_) | Event::Free(_) | Event::FreeRequested(_)
        )
    };
    trace.events.iter().filter(counts).count() as u64
}

fn compared(trace: &Trace, version: TorchVersion) -> Option<json::ReplayAgreement> {
    let expandable = trace.settings.contains("expandable_segments:True");
    if expandable
        || trace
            .allocations
            .iter()
            .all(|allocation| allocation.address == 0)
    {
        return None;
    }
    let settings = AllocatorSettings::parse(&trace.settings, version).ok()?;
    let found = agreement(trace, &settings, version);
    (found.allocations > 0).then_some(json::ReplayAgreement {
        allocations: found.allocations as u64,
        same_address: found.same_address as u64,
    })
}

fn result(target: &ReplayTarget, conf: &str, outcome: &Outcome) -> json::ReplayResult {
    json::ReplayResult {
        gpu: target.gpu.clone(),
        alloc_conf: conf.to_owned(),
        capacity_bytes: target.capacity,
        peak_allocated_bytes: outcome.statistics.allocated.peak,
        peak_reserved_bytes: outcome.statistics.reserved.peak,
        oom: outcome.oom.is_some(),
        oom_request_bytes: outcome.oom.map(|oom| oom.error.requested),
        retries: outcome.statistics.retries,
        layout: None,
    }
}

/// Memory over a replay, reduced to columns that each show their fullest moment.
struct Timeline {
    columns: Vec<json::ReplayColumn>,
    width: usize,
}

impl Timeline {
    fn new(n_events: usize) -> Timeline {
        Timeline {
            columns: Vec::new(),
            width: n_events.div_ceil(MAX_COLUMNS).max(1),
        }
    }

    fn see(&mut self, moment: Moment<'_>) {
        let now = json::ReplayColumn {
            allocated_bytes: moment.statistics.allocated.current,
            reserved_bytes: moment.statistics.reserved.current,
        };
        let column = moment.event / self.width;
        // Events that are not played leave a column as the one before it.
        let before = self.columns.last().copied().unwrap_or_default();
        if column >= self.columns.len() {
            self.columns.resize(column, before);
            self.columns.push(now);
        } else if let Some(found) = self.columns.get_mut(column)
            && now.allocated_bytes > found.allocated_bytes
        {
            *found = now;
        }
    }
}
