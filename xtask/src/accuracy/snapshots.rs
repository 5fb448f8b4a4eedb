//! Recorded allocator events: replayed exactly, and set beside a model rebuilt in PyTorch.

use std::path::Path;

use anyhow::{Context, Result};
use brimful_allocsim::agreement::agreement;
use brimful_allocsim::settings::AllocatorSettings;
use brimful_allocsim::trace::Trace;
use brimful_allocsim::version::TorchVersion;
use brimful_rehearse::stage::Stage;
use serde::{Deserialize, Serialize};

use super::options::Options;
use super::sets::LeftOut;
use super::text::plain;
use crate::shell::{program, read, root};

/// What a directory of ground truth needs to have.
const FILES: [&str; 5] = [
    "metadata.json",
    "events.parquet",
    "initial_segments.parquet",
    "initial_blocks.parquet",
    "final_blocks.parquet",
];

/// What came of the recorded snapshots.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    pub replays: Option<Replays>,
    pub rebuilt: Vec<Rebuilt>,
}

impl Snapshots {
    /// Replays and rebuilds; what is missing or cannot be read is named in `absent`.
    pub(super) fn read(
        truth: &Path,
        options: &Options,
        stage: &Stage,
        absent: &mut Vec<String>,
        left_out: &mut LeftOut,
    ) -> Snapshots {
        let missing = FILES
            .iter()
            .find(|file| !truth.join("snapshots").join(file).is_file());
        if let Some(file) = missing {
            absent.push(format!("snapshots: no file snapshots/{file}"));
            return Snapshots::default();
        }
        let mut note = |what: &str, error: &anyhow::Error| {
            let words = format!("{error:#}").replace(&truth.display().to_string(), "DIR");
            // Of a Python error the last line says what it was.
            let last = words.lines().rfind(|line| !line.trim().is_empty());
            absent.push(format!("{what}: {}", last.unwrap_or("failed").trim()));
        };
        Snapshots {
            replays: replays(truth, &options.python, left_out)
                .map_err(|error| note("snapshots, replayed", &error))
                .ok(),
            rebuilt: rebuilt(truth, &options.python, stage, left_out)
                .map_err(|error| note("snapshots, rebuilt", &error))
                .unwrap_or_default(),
        }
    }
}

/// What a converter says about a snapshot that it leaves out.
#[derive(Debug, Deserialize)]
struct Skipped {
    skip: String,
}

/// Counts a line of output that says that a snapshot is left out.
fn is_skipped(line: &str, left_out: &mut LeftOut) -> bool {
    let Ok(Skipped { skip }) = serde_json::from_str(line) else {
        return false;
    };
    *left_out.entry(("snapshots", plain(&skip))).or_default() += 1;
    true
}

/// The allocator model against the records.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Replays {
    pub snapshots: usize,
    pub allocations: usize,
    pub same_address: usize,
    pub segments: usize,
    pub same_segments: usize,
    pub segment_frees: usize,
    pub same_segment_frees: usize,
    pub same_final_layout: usize,
    pub same_peak_allocated: usize,
    pub same_peak_reserved: usize,
}

/// What the converter writes beside each trace.
#[derive(Debug, Deserialize)]
struct Expected {
    segments: Vec<(u64, Vec<(u64, bool)>)>,
    peak_allocated_bytes: u64,
    peak_reserved_bytes: u64,
}

/// Replays every recorded snapshot.
fn replays(truth: &Path, python: &Path, left_out: &mut LeftOut) -> Result<Replays> {
    let folder = crate::shell::cache().join("accuracy/traces");
    std::fs::create_dir_all(&folder)?;
    for old in std::fs::read_dir(&folder)? {
        std::fs::remove_file(old?.path())?;
    }
    let output = read(
        program(python, &["-B", "benches/accuracy/traces.py"])
            .arg(truth)
            .arg(&folder),
    )?;
    for line in output.lines() {
        is_skipped(line, left_out);
    }
    let mut sum = Replays::default();
    for entry in std::fs::read_dir(&folder)? {
        let path = entry?.path();
        if path
            .extension()
            .is_none_or(|extension| extension != "brimtrace")
        {
            continue;
        }
        let trace = Trace::from_bytes(&std::fs::read(&path)?)
            .with_context(|| path.display().to_string())?;
        let version = trace.torch.parse().unwrap_or(TorchVersion::NEWEST_CHECKED);
        let found = agreement(&trace, &AllocatorSettings::default(), version);
        let expected: Expected =
            serde_json::from_slice(&std::fs::read(path.with_extension("json"))?)?;
        let layout: Vec<_> = found
            .final_segments
            .iter()
            .map(|s| (s.address, s.blocks.clone()))
            .collect();
        sum.snapshots += 1;
        sum.allocations += found.allocations;
        sum.same_address += found.same_address;
        sum.segments += found.segments;
        sum.same_segments += found.same_segments;
        sum.segment_frees += found.segment_frees;
        sum.same_segment_frees += found.same_segment_frees;
        sum.same_final_layout += usize::from(layout == expected.segments);
        sum.same_peak_allocated +=
            usize::from(found.peak_allocated == expected.peak_allocated_bytes);
        sum.same_peak_reserved += usize::from(found.peak_reserved == expected.peak_reserved_bytes);
    }
    Ok(sum)
}

/// One recorded step of the language model, and the same step rebuilt.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Rebuilt {
    pub id: String,
    /// Allocations and frees.
    pub events: usize,
    /// Before the first that is of another size, or of another allocation.
    pub identical: usize,
    pub peak_allocated: u64,
    pub own_peak_allocated: u64,
    pub peak_reserved: u64,
    pub own_peak_reserved: u64,
}

/// Rebuilds the recorded language models whose whole program is known.
fn rebuilt(
    truth: &Path,
    python: &Path,
    stage: &Stage,
    left_out: &mut LeftOut,
) -> Result<Vec<Rebuilt>> {
    let mut command = program(python, &["-B", "benches/accuracy/course.py"]);
    stage.apply(&mut command);
    command
        .current_dir(root())
        .arg(truth)
        .env_remove("PYTORCH_CUDA_ALLOC_CONF")
        // The card is not known; its cuBLAS workspaces are those of a card that is neither 9.x nor 10.x.
        .env(
            "BRIMFUL_PHANTOM_DEVICES",
            "memory=85899345920,cc=8.0,multiprocessors=108",
        );
    let output = read(&mut command)?;
    output
        .lines()
        .filter(|line| !is_skipped(line, left_out))
        .map(|line| Ok(serde_json::from_str(line)?))
        .collect()
}
