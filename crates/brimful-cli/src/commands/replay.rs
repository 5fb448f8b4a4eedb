//! `brimful replay`.

use std::io::Read;
use std::path::Path;

use brimful::cards;
use brimful_allocsim::agreement::agreement;
use brimful_allocsim::format::MAGIC;
use brimful_allocsim::from_snapshot::EmptyCacheCalls;
use brimful_allocsim::replay::{Setup, replay as play};
use brimful_allocsim::settings::Settings;
use brimful_allocsim::snapshot;
use brimful_allocsim::trace::{Event, Trace};
use brimful_allocsim::version::TorchVersion;
use brimful_report::{json, text};

use crate::args::ReplayArguments;
use crate::error::CommandError;
use crate::exit::ExitStatus;
use crate::output::Output;

/// More than any snapshot that PyTorch writes.
const LARGEST_FILE: u64 = 8 << 30;

/// Settings that are tried when none are named: PyTorch's default and what people reach for.
const USUAL_SETTINGS: [&str; 4] = [
    "",
    "expandable_segments:True",
    "max_split_size_mb:128",
    "roundup_power2_divisions:8",
];

pub(crate) fn replay(
    arguments: &ReplayArguments,
    output: &Output,
) -> Result<ExitStatus, CommandError> {
    let worlds = worlds(arguments)?;
    let (trace, device, version) = read(arguments)?;
    let confs: Vec<String> = if arguments.alloc_conf.is_empty() {
        usual_settings(&trace)
    } else {
        arguments.alloc_conf.clone()
    };
    let mut results = Vec::new();
    for world in &worlds {
        for conf in &confs {
            let settings = Settings::parse(conf, version)?;
            let setup = Setup {
                capacity: world.capacity,
                held: world.held,
                settings,
                version,
            };
            results.push(result(world, conf, &play(&trace, &setup)));
        }
    }
    let document = json::ReplayDocument {
        schema_version: json::SCHEMA_VERSION,
        brimful_version: env!("CARGO_PKG_VERSION").into(),
        file: arguments.file.display().to_string(),
        torch_version: version.to_string(),
        torch_version_assumed: trace.torch.is_empty(),
        device,
        events: counted(&trace),
        agreement: compared(&trace, version),
        results,
    };
    let page = if arguments.json {
        json::to_text(&document)?
    } else {
        text::replay(&document, &Output::page())
    };
    output.print(&page)?;
    let fits = document.results.iter().any(|result| !result.oom);
    Ok(if fits {
        ExitStatus::Success
    } else {
        ExitStatus::DoesNotFit
    })
}

/// A card to replay on.
struct World {
    gpu: Option<String>,
    capacity: u64,
    held: u64,
}

fn worlds(arguments: &ReplayArguments) -> Result<Vec<World>, CommandError> {
    let mut worlds = Vec::new();
    for list in &arguments.gpu {
        for card in cards::find_all(list)? {
            let context = brimful::predict::context(card.multiprocessors.value, true);
            worlds.push(World {
                gpu: Some(card.name.to_owned()),
                capacity: card.torch_visible.value.get(),
                held: context.likely.get(),
            });
        }
    }
    worlds.extend(arguments.capacity.iter().map(|capacity| World {
        gpu: None,
        capacity: capacity.get(),
        held: 0,
    }));
    if worlds.is_empty() {
        // Without a limit: what the settings alone change.
        worlds.push(World {
            gpu: None,
            capacity: 1 << 46,
            held: 0,
        });
    }
    Ok(worlds)
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

/// A trace of ours, or a snapshot of PyTorch's.
fn read(arguments: &ReplayArguments) -> Result<(Trace, u32, TorchVersion), CommandError> {
    let bytes = bounded(&arguments.file)?;
    let unreadable = |error: &dyn std::error::Error, hint: &str| CommandError::Unreadable {
        path: arguments.file.clone(),
        problem: error.to_string(),
        hint: hint.to_owned(),
    };
    let (mut trace, device) = if bytes.starts_with(MAGIC) {
        let trace = Trace::from_bytes(&bytes).map_err(|error| {
            unreadable(
                &error,
                "make it again with `brimful predict --save-trace FILE`",
            )
        })?;
        (trace, 0)
    } else {
        let snapshot = snapshot::read(&bytes).map_err(|error| unreadable(&error, error.hint()))?;
        let device = arguments.device.unwrap_or_else(|| busiest(&snapshot));
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
        (trace, device)
    };
    if let Some(version) = &arguments.torch {
        trace.torch.clone_from(version);
    }
    let version = if trace.torch.is_empty() {
        TorchVersion::NEWEST_CHECKED
    } else {
        trace.torch.parse()?
    };
    if counted(&trace) == 0 {
        return Err(CommandError::EmptyRecord {
            path: arguments.file.clone(),
        });
    }
    Ok((trace, device, version))
}

fn bounded(path: &Path) -> Result<Vec<u8>, CommandError> {
    let failed = |source| CommandError::Read {
        path: path.to_owned(),
        source,
    };
    let file = brimful_private::open_named(path).map_err(failed)?;
    if !file
        .metadata()
        .is_ok_and(|facts| facts.is_file() && facts.len() < LARGEST_FILE)
    {
        let problem = "expected a file of less than 8 GiB";
        return Err(failed(std::io::Error::new(
            std::io::ErrorKind::InvalidInput,
            problem,
        )));
    }
    let mut bytes = Vec::new();
    file.take(LARGEST_FILE)
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
    let settings = Settings::parse(&trace.settings, version).ok()?;
    let found = agreement(trace, &settings, version);
    (found.allocations > 0).then_some(json::ReplayAgreement {
        allocations: found.allocations as u64,
        same_address: found.same_address as u64,
    })
}

fn result(
    world: &World,
    conf: &str,
    outcome: &brimful_allocsim::replay::Outcome,
) -> json::ReplayResult {
    json::ReplayResult {
        gpu: world.gpu.clone(),
        alloc_conf: conf.to_owned(),
        capacity_bytes: world.capacity,
        peak_allocated_bytes: outcome.statistics.allocated.peak,
        peak_reserved_bytes: outcome.statistics.reserved.peak,
        oom: outcome.oom.is_some(),
        oom_request_bytes: outcome.oom.map(|oom| oom.error.requested),
        retries: outcome.statistics.retries,
    }
}
