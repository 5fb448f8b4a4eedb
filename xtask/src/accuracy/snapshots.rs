//! Recorded allocator events: replayed exactly, and set beside a model rebuilt in PyTorch.

use std::path::Path;

use anyhow::{Context, Result};
use brimful_allocsim::agreement::agreement;
use brimful_allocsim::settings::Settings;
use brimful_allocsim::trace::Trace;
use brimful_allocsim::version::TorchVersion;
use brimful_rehearse::stage::Stage;
use serde::{Deserialize, Serialize};

use crate::shell::{program, read, root, run};

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

/// Replays every recorded snapshot; nothing if there are none.
pub(super) fn replays(truth: &Path, python: &Path) -> Result<Option<Replays>> {
    if !truth.join("snapshots/metadata.json").is_file() {
        return Ok(None);
    }
    let folder = crate::shell::cache().join("accuracy/traces");
    std::fs::create_dir_all(&folder)?;
    for old in std::fs::read_dir(&folder)? {
        std::fs::remove_file(old?.path())?;
    }
    run(program(python, &["-B", "benches/accuracy/traces.py"])
        .arg(truth)
        .arg(&folder))?;
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
        let found = agreement(&trace, &Settings::default(), version);
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
    Ok(Some(sum))
}

/// One recorded step of the language model, and the same step rebuilt.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Rebuilt {
    pub id: String,
    pub allocations: usize,
    /// Allocations before the first that differs in size.
    pub identical: usize,
    pub peak_allocated: u64,
    pub own_peak_allocated: u64,
    pub peak_reserved: u64,
    pub own_peak_reserved: u64,
}

/// Rebuilds the recorded language models whose whole program is known.
pub(super) fn rebuilt(truth: &Path, python: &Path, stage: &Stage) -> Result<Vec<Rebuilt>> {
    if !truth.join("snapshots/metadata.json").is_file() {
        return Ok(Vec::new());
    }
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
        .map(|line| Ok(serde_json::from_str(line)?))
        .collect()
}
