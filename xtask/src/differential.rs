//! The model against PyTorch's own allocator, on the phantom GPU, event by event.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use brimful_allocsim::allocator::{Allocator, Handle, PoolId};
use brimful_allocsim::device::ModelledGpu;
use brimful_allocsim::settings::AllocatorSettings;
use brimful_allocsim::version::TorchVersion;
use serde::{Deserialize, Serialize};

use crate::shell::root;

const MIB: u64 = 1 << 20;

/// One way to set the allocator up.
#[derive(Debug, Clone, Serialize)]
struct Scenario {
    conf: &'static str,
    capacity: u64,
    streams: u32,
    fraction: Option<f64>,
    kind: &'static str,
}

const T4: u64 = 15_843_721_216;
const SMALL_CARD: u64 = 2048 * MIB;

/// Settings alone and together, with and without a tight card, on one and several streams.
fn scenarios() -> Vec<Scenario> {
    let plain = |conf, capacity, streams| Scenario {
        conf,
        capacity,
        streams,
        fraction: None,
        kind: "raw",
    };
    vec![
        plain("", T4, 1),
        plain("", T4, 3),
        plain("", SMALL_CARD, 1),
        plain("", SMALL_CARD, 3),
        plain("max_split_size_mb:32", SMALL_CARD, 2),
        plain("max_split_size_mb:128", T4, 1),
        plain(
            "max_split_size_mb:64,max_non_split_rounding_mb:64",
            SMALL_CARD,
            1,
        ),
        plain("roundup_power2_divisions:4", T4, 1),
        plain("roundup_power2_divisions:16", SMALL_CARD, 2),
        plain("roundup_power2_divisions:[1:2,16:4,64:8,>:1]", T4, 1),
        plain("expandable_segments:True", T4, 1),
        plain("expandable_segments:True", SMALL_CARD, 1),
        plain("expandable_segments:True", SMALL_CARD, 3),
        plain(
            "expandable_segments:True,roundup_power2_divisions:8",
            SMALL_CARD,
            1,
        ),
        // On a full card this combination ends PyTorch 2.13 with a segmentation fault of its own.
        plain("expandable_segments:True,max_split_size_mb:64", T4, 2),
        plain("large_segment_size_mb:64", SMALL_CARD, 1),
        plain(
            "large_segment_size_mb:40,expandable_segments:True",
            SMALL_CARD,
            2,
        ),
        plain("per_process_memory_fraction:0.5", SMALL_CARD, 1),
        Scenario {
            fraction: Some(0.6),
            ..plain("garbage_collection_threshold:0.6", SMALL_CARD, 1)
        },
        Scenario {
            fraction: Some(0.8),
            ..plain(
                "garbage_collection_threshold:0.3,max_split_size_mb:64",
                SMALL_CARD,
                2,
            )
        },
        Scenario {
            fraction: Some(0.7),
            ..plain("expandable_segments:True", SMALL_CARD, 1)
        },
        Scenario {
            kind: "record",
            ..plain("", SMALL_CARD, 3)
        },
        Scenario {
            kind: "record",
            ..plain("expandable_segments:True", SMALL_CARD, 3)
        },
        // Not with expandable segments: some traces end PyTorch 2.13 with an internal assertion there.
        Scenario {
            kind: "pools",
            ..plain("", SMALL_CARD, 2)
        },
        Scenario {
            kind: "graphs",
            ..plain("", SMALL_CARD, 2)
        },
    ]
}

/// Every segment's address and its blocks: size, and whether in use.
type Layout = Vec<(u64, Vec<(u64, bool)>)>;

/// What the recorder writes for one trace.
#[derive(Debug, Deserialize)]
struct Recorded {
    events: Vec<Vec<serde_json::Value>>,
    after: Vec<[u64; 3]>,
    ooms: Vec<usize>,
    layouts: BTreeMap<usize, Layout>,
    #[serde(rename = "final")]
    end: Final,
}

#[derive(Debug, Deserialize, PartialEq, Eq)]
struct Final {
    peak_allocated: u64,
    peak_reserved: u64,
    ooms: u64,
    retries: u64,
    device_allocs: u64,
    device_frees: u64,
}

/// Runs all scenarios and fails on the first difference of each.
pub(crate) fn run(
    python: &Path,
    phantom: &Path,
    traces: usize,
    seed: u64,
    events: usize,
) -> Result<()> {
    let scenarios = scenarios();
    let each = traces.div_ceil(scenarios.len());
    let mut exact = 0;
    let mut played = 0;
    let mut differences = Vec::new();
    for scenario in &scenarios {
        let start = Instant::now();
        let mut sum = Compared::default();
        let mut left_out = None;
        // Private pools are never forgotten by a process: it grows slow with them.
        let at_once = if scenario.kind == "raw" { each } else { 40 };
        for first in (0..each).step_by(at_once) {
            let count = at_once.min(each - first);
            match compare(
                python,
                phantom,
                scenario,
                seed + first as u64,
                count,
                events,
            )? {
                Ok(part) => sum.add(part),
                Err(reason) => {
                    left_out = Some(reason);
                    break;
                }
            }
        }
        if let Some(reason) = left_out {
            println!("left out: {} ({reason})", shown(scenario));
            continue;
        }
        played += each;
        exact += sum.exact;
        println!(
            "torch {}  {:>5} of {each} exact  {:>6} ooms  {:>6} retries  {:>5.1} s  {}",
            sum.torch,
            sum.exact,
            sum.ooms,
            sum.retries,
            start.elapsed().as_secs_f64(),
            shown(scenario),
        );
        if let Some(difference) = sum.difference {
            println!("    {difference}");
            differences.push(difference);
        }
    }
    println!("{exact} of {played} traces exact");
    ensure!(
        differences.is_empty(),
        "the model differs from PyTorch's allocator"
    );
    Ok(())
}

fn shown(scenario: &Scenario) -> String {
    let fraction = scenario
        .fraction
        .map_or(String::new(), |part| format!(", fraction {part}"));
    let conf = if scenario.conf.is_empty() {
        "default"
    } else {
        scenario.conf
    };
    format!(
        "{conf}, {} MiB, {} streams{fraction}, {}",
        scenario.capacity / MIB,
        scenario.streams,
        scenario.kind
    )
}

/// What came of some traces of a scenario.
#[derive(Default)]
struct Compared {
    torch: String,
    exact: usize,
    ooms: u64,
    retries: u64,
    /// The first one.
    difference: Option<String>,
}

impl Compared {
    fn add(&mut self, other: Compared) {
        self.torch = other.torch;
        self.exact += other.exact;
        self.ooms += other.ooms;
        self.retries += other.retries;
        self.difference = self.difference.take().or(other.difference);
    }
}

/// Plays `count` traces; the inner error is the reason why this release has no such scenario.
fn compare(
    python: &Path,
    phantom: &Path,
    scenario: &Scenario,
    seed: u64,
    count: usize,
    events: usize,
) -> Result<Result<Compared, String>> {
    let torch = torch_version(python)?;
    let version: TorchVersion = torch.parse()?;
    let settings = match AllocatorSettings::parse(scenario.conf, version) {
        Ok(settings) => settings,
        Err(error) => return Ok(Err(error.to_string())),
    };
    if scenario.kind == "graphs" && version < TorchVersion::new(2, 15) {
        // Each capture takes two blocks for the random number generator, which is not the allocator's doing.
        return Ok(Err("captures allocate on their own".to_owned()));
    }
    let stage =
        brimful_rehearse::stage::Stage::new(phantom).context("the phantom cannot be staged")?;
    let device = format!(
        "name=Tesla T4,memory={},held=0,cc=7.5,multiprocessors=40",
        scenario.capacity
    );
    let mut command = std::process::Command::new(python);
    stage.apply(&mut command);
    let mut child = command
        .current_dir(root())
        .arg("benches/differential/record.py")
        .args([
            serde_json::to_string(scenario)?,
            seed.to_string(),
            count.to_string(),
            events.to_string(),
        ])
        .env("BRIMFUL_PHANTOM_DEVICES", device)
        .env("PYTORCH_CUDA_ALLOC_CONF", scenario.conf)
        // A line for every failed mapping otherwise.
        .env("TORCH_CPP_LOG_LEVEL", "ERROR")
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("{} could not be started", python.display()))?;
    let output = child.stdout.take().context("no output of the recorder")?;
    let mut lines = BufReader::new(output).lines();
    lines.next().context("the recorder printed nothing")??;
    let mut allocator = Allocator::new(ModelledGpu::new(scenario.capacity, 0), settings, version);
    if let Some(part) = scenario.fraction {
        allocator.set_memory_fraction(part);
    }
    let mut compared = Compared {
        torch,
        ..Compared::default()
    };
    for (at, line) in lines.enumerate() {
        let recorded: Recorded = serde_json::from_str(&line?).context("a line of the recorder")?;
        compared.ooms += recorded.end.ooms;
        compared.retries += recorded.end.retries;
        let generation = u32::try_from(at).unwrap_or(u32::MAX / 1000);
        match replay(&recorded, scenario, &mut allocator, generation) {
            Ok(()) => compared.exact += 1,
            Err(error) => {
                let told = format!("seed {}: {error}", seed + at as u64);
                compared.difference = compared.difference.or(Some(told));
                // The next trace begins where the real allocator does, as far as that is possible.
                allocator = Allocator::new(
                    ModelledGpu::new(scenario.capacity, 0),
                    allocator.settings().clone(),
                    version,
                );
            }
        }
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("the recorder ended with {status} for {}", shown(scenario));
    }
    Ok(Ok(compared))
}

/// `2.13.0+cu130`, without importing it.
fn torch_version(python: &Path) -> Result<String> {
    let script = "import importlib.metadata; print(importlib.metadata.version('torch'))";
    let output = crate::shell::read(&mut crate::shell::program(python, &["-c", script]))?;
    Ok(output.trim().to_owned())
}

/// Plays a trace on the model and compares after every event. What one trace leaves behind (ranges of addresses that
/// PyTorch keeps, ages of segments) is there for the next, as in the process it came from.
fn replay(
    recorded: &Recorded,
    scenario: &Scenario,
    allocator: &mut Allocator<ModelledGpu>,
    generation: u32,
) -> Result<()> {
    allocator.empty_cache();
    allocator.reset_statistics();
    let mut player = Player {
        recorded,
        allocator,
        generation,
        is_graph: scenario.kind == "graphs",
        live: BTreeMap::new(),
        pools: Vec::new(),
        number: 0,
        capturing: false,
    };
    for (step, event) in recorded.events.iter().enumerate() {
        player.play(step, event)?;
        let now = player.allocator.statistics();
        let found = [
            now.allocated.current,
            now.active.current,
            now.reserved.current,
        ];
        let expected = recorded.after.get(step).context("a figure per event")?;
        ensure!(
            found == *expected,
            "event {step} {event:?}: allocated, active, reserved {expected:?} there, {found:?} here"
        );
        if let Some(expected) = recorded.layouts.get(&step) {
            compare_layouts(
                step,
                expected,
                player.allocator,
                scenario.conf.contains("expandable_segments:True"),
            )?;
        }
    }
    let now = player.allocator.statistics();
    let found = Final {
        peak_allocated: now.allocated.peak,
        peak_reserved: now.reserved.peak,
        ooms: now.ooms,
        retries: now.retries,
        device_allocs: now.device_allocs,
        device_frees: now.device_frees,
    };
    ensure!(
        found == recorded.end,
        "at the end: {:?} there, {found:?} here",
        recorded.end
    );
    player.free_all();
    Ok(())
}

/// A trace on the model, event by event.
struct Player<'a> {
    recorded: &'a Recorded,
    allocator: &'a mut Allocator<ModelledGpu>,
    generation: u32,
    is_graph: bool,
    live: BTreeMap<u64, Handle>,
    pools: Vec<PoolId>,
    /// Allocations so far, by which later events name them.
    number: u64,
    capturing: bool,
}

impl Player<'_> {
    fn play(&mut self, step: usize, event: &[serde_json::Value]) -> Result<()> {
        let argument = |index: usize| {
            event
                .get(index)
                .and_then(serde_json::Value::as_u64)
                .unwrap_or(0)
        };
        // Every trace has pools of its own.
        let generation = self.generation;
        let pool = |index| match u32::try_from(argument(index)).unwrap_or(0) {
            0 => PoolId::DEFAULT,
            own => PoolId(generation * 1000 + own),
        };
        match event.first().and_then(serde_json::Value::as_str) {
            Some("alloc") => self.alloc(step, argument(1), argument(2), pool(3))?,
            Some("free") => {
                let handle = self.live.remove(&argument(1));
                self.allocator
                    .free(handle.context("a block that is not there")?);
            }
            Some("record") => {
                let handle = self.live.get(&argument(1));
                let handle = *handle.context("a block that is not there")?;
                self.allocator.record_stream(handle, argument(2));
            }
            Some("empty") => self.allocator.empty_cache(),
            Some("begin") => {
                if self.is_graph {
                    // The context of a capture empties the cache on entry.
                    self.allocator.empty_cache();
                    self.allocator.begin_capture(pool(1));
                } else {
                    self.allocator.begin_pool(pool(1));
                }
                self.pools.push(pool(1));
                self.capturing = true;
            }
            Some("end") => {
                self.allocator.end_pool(pool(1));
                self.capturing = false;
            }
            Some("release") => {
                self.pools.retain(|kept| *kept != pool(1));
                self.allocator.release_pool(pool(1));
            }
            other => bail!("event {step}: {other:?}"),
        }
        Ok(())
    }

    fn alloc(&mut self, step: usize, size: u64, stream: u64, pool: PoolId) -> Result<()> {
        // On the phantom an event is complete at once; PyTorch asks at the next allocation.
        if !self.capturing {
            self.allocator.complete_waiting();
        }
        let result = self.allocator.malloc(size, stream, pool);
        let failed = self.recorded.ooms.binary_search(&step).is_ok();
        ensure!(
            result.is_err() == failed,
            "event {step}: out of memory: {failed} there, {} here",
            result.is_err()
        );
        if let Ok(handle) = result {
            self.live.insert(self.number, handle);
        }
        self.number += 1;
        Ok(())
    }

    fn free_all(self) {
        for handle in self.live.into_values() {
            self.allocator.free(handle);
        }
        for pool in self.pools {
            self.allocator.release_pool(pool);
        }
    }
}

fn compare_layouts(
    step: usize,
    expected: &[(u64, Vec<(u64, bool)>)],
    allocator: &Allocator<ModelledGpu>,
    expandable: bool,
) -> Result<()> {
    let mut expected: Layout = expected.to_vec();
    let mut found: Vec<_> = allocator
        .segments()
        .into_iter()
        .map(|s| (s.address, s.blocks))
        .collect();
    if expandable {
        // Where a range of addresses lies decides nothing.
        expected
            .iter_mut()
            .chain(&mut found)
            .for_each(|segment| segment.0 = 0);
        expected.sort();
        found.sort();
    } else if let (Some(first), Some(own)) =
        (expected.first().map(|s| s.0), found.first().map(|s| s.0))
    {
        // Both count from the first segment's address.
        for segment in &mut expected {
            segment.0 -= first;
        }
        for segment in &mut found {
            segment.0 -= own;
        }
    }
    if let Some((there, here)) = expected
        .iter()
        .zip(&found)
        .find(|(there, here)| there != here)
    {
        bail!(
            "event {step}: segments differ ({} there, {} here), first {there:?} there, {here:?} here",
            expected.len(),
            found.len()
        );
    }
    ensure!(
        expected.len() == found.len(),
        "event {step}: {} segments there, {} here",
        expected.len(),
        found.len()
    );
    Ok(())
}

/// The library that cargo built, or the one that was named.
pub(crate) fn phantom(named: Option<PathBuf>) -> Result<PathBuf> {
    if let Some(path) = named {
        return Ok(path);
    }
    let mut command = crate::shell::cargo(&["build", "--quiet", "--package", "brimful-phantom"]);
    crate::shell::run(&mut command)?;
    let target = std::env::var_os(crate::env_vars::CARGO_TARGET_DIR)
        .map_or_else(|| root().join("target"), PathBuf::from);
    Ok(target.join("debug/libbrimful_phantom.so"))
}
