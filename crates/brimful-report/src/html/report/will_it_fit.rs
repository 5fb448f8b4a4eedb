//! Whether a run fits on each GPU model.

use brimful::units::Bytes;
use serde::Serialize;

use crate::html::report::shown::Shown;
use crate::json::{GpuFit, PredictDocument};

const MAX_GPUS: usize = 20;
const MAX_NOTES: usize = 12;
/// Width of the widest bar.
const WIDTH: u64 = 1000;

/// The view.
#[derive(Debug, Serialize)]
pub(super) struct WillItFit {
    gpus: Vec<GpuBar>,
    legend: Vec<LegendItem>,
    n_left_out: usize,
    notes: Vec<Shown>,
}

#[derive(Debug, Serialize)]
struct GpuBar {
    name: Shown,
    described: Shown,
    parts: Vec<BarPart>,
    total: u64,
    likely: u64,
    margin: u64,
    spill_width: u64,
    hatch: &'static str,
    class: &'static str,
    verdict: &'static str,
    words: String,
    likely_bytes: String,
    safe_bytes: String,
    total_bytes: String,
}

#[derive(Debug, Serialize)]
struct BarPart {
    x: u64,
    width: u64,
    color: &'static str,
}

#[derive(Debug, Serialize)]
struct LegendItem {
    name: &'static str,
    color: &'static str,
}

impl WillItFit {
    pub(super) fn of(document: &PredictDocument) -> WillItFit {
        let shown = &document.gpus[..document.gpus.len().min(MAX_GPUS)];
        let widest = shown
            .iter()
            .map(|gpu| gpu.total_bytes.max(gpu.device_bytes.safe))
            .max()
            .unwrap_or(1);
        let mut notes: Vec<Shown> = shown.iter().filter_map(alternative).collect();
        notes.extend(document.failed.iter().map(|gpu| {
            Shown::of(&format!(
                "{}: the script failed before its first step: {}",
                gpu.name, gpu.reason
            ))
        }));
        notes.extend(
            document
                .caveats
                .iter()
                .map(|caveat| Shown::of(&caveat.text)),
        );
        notes.truncate(MAX_NOTES);
        WillItFit {
            gpus: shown.iter().map(|gpu| bar(gpu, widest)).collect(),
            legend: vec![
                LegendItem {
                    name: "in tensors",
                    color: "optimizer",
                },
                LegendItem {
                    name: "reserved by PyTorch, unused",
                    color: "workspaces",
                },
                LegendItem {
                    name: "CUDA context and NCCL",
                    color: "rest",
                },
            ],
            n_left_out: document.gpus.len() - shown.len(),
            notes,
        }
    }
}

fn bar(gpu: &GpuFit, widest: u64) -> GpuBar {
    let x = |bytes: u64| {
        let share = u128::from(bytes.min(widest)) * u128::from(WIDTH) / u128::from(widest.max(1));
        u64::try_from(share).unwrap_or(WIDTH)
    };
    let likely = gpu.device_bytes.likely;
    let allocated = gpu.peak_allocated_bytes.min(likely);
    let reserved = gpu.peak_reserved_bytes.clamp(allocated, likely);
    let part = |from: u64, to: u64, color: &'static str| BarPart {
        x: x(from),
        width: x(to).saturating_sub(x(from)),
        color,
    };
    let safe = gpu.device_bytes.safe.max(likely);
    let (class, verdict) = match gpu.verdict.as_str() {
        "fits" => ("good", "fits"),
        "tight" => ("warning", "may not fit"),
        _ => ("critical", "does not fit"),
    };
    let left = Bytes(gpu.headroom_bytes.unsigned_abs());
    let total = Bytes(gpu.total_bytes);
    let is_worst_case =
        (gpu.worst_case_bytes.as_ref()).is_some_and(|worst| worst.safe > gpu.device_bytes.safe);
    let at_worst = if is_worst_case {
        " in the worst case"
    } else {
        ""
    };
    let words = if gpu.headroom_bytes < 0 {
        format!("{left} missing of {total}{at_worst}")
    } else {
        format!("{left} left of {total}{at_worst}")
    };
    GpuBar {
        described: Shown::of(&format!(
            "{}: {verdict}, {words}; likely {}, safe {}",
            gpu.name,
            Bytes(likely),
            Bytes(safe)
        )),
        name: Shown::of(&gpu.name),
        parts: vec![
            part(0, allocated, "optimizer"),
            part(allocated, reserved, "workspaces"),
            part(reserved, likely, "rest"),
        ],
        total: x(gpu.total_bytes),
        likely: x(likely),
        margin: x(safe).saturating_sub(x(likely)),
        spill_width: x(safe).saturating_sub(x(gpu.total_bytes)),
        hatch: "activations",
        class,
        verdict,
        words,
        likely_bytes: Bytes(likely).to_string(),
        safe_bytes: Bytes(safe).to_string(),
        total_bytes: total.to_string(),
    }
}

fn alternative(gpu: &GpuFit) -> Option<Shown> {
    let other = gpu.alternative.as_ref()?;
    let fits = if other.fits && !gpu.fits {
        ", and it fits"
    } else {
        ""
    };
    Some(Shown::of(&format!(
        "{}: with `{}`, PyTorch reserves {} instead of {}{fits}.",
        gpu.name,
        other.alloc_conf,
        Bytes(other.peak_reserved_bytes),
        Bytes(gpu.peak_reserved_bytes)
    )))
}
