//! The report of a prediction.

use brimful::units::Bytes;

use crate::html::report::host_need::HostNeedView;
use crate::html::report::how_fast::HowFast;
use crate::html::report::one_step::OneStep;
use crate::html::report::page::{Frame, Renderer, Tile};
use crate::html::report::shown::Shown;
use crate::html::report::will_it_fit::WillItFit;
use crate::json::{GpuFit, PredictDocument};

/// GPUs that a headline names.
const MAX_NAMED: usize = 3;

/// The page of a prediction.
pub fn predict_report(document: &PredictDocument) -> Result<String, minijinja::Error> {
    let mut renderer = Renderer::new();
    if !document.gpus.is_empty() {
        renderer.add(include_str!("will_it_fit.html"), &WillItFit::of(document))?;
    }
    if let Some(view) = HowFast::of(document) {
        renderer.add(include_str!("how_fast.html"), &view)?;
    }
    if let Some(view) = OneStep::of(document) {
        renderer.add(include_str!("one_step.html"), &view)?;
    }
    if let Some(host) = &document.host {
        renderer.add(include_str!("host_need.html"), &HostNeedView::of(host))?;
    }
    let mut facts = vec![
        Shown::of(&format!("torch {}", document.torch_version)),
        Shown::of(&format!("{} rehearsed steps", document.steps)),
    ];
    if document.world_size > 1 {
        facts.push(Shown::of(&format!(
            "{} training processes",
            document.world_size
        )));
    }
    renderer.page(&Frame {
        subject: "prediction",
        headline: Shown::of(&headline(document)),
        state: None,
        command: Some(Shown::command(&document.command)),
        facts,
        tiles: tiles(document),
        footer: Shown::of(&format!(
            "Written by brimful {} from a rehearsal of the command without a GPU. The page loads nothing from the network.",
            env!("CARGO_PKG_VERSION")
        )),
    })
}

fn headline(document: &PredictDocument) -> String {
    let names = |gpus: &[&GpuFit]| {
        let mut named: Vec<&str> = gpus
            .iter()
            .take(MAX_NAMED)
            .map(|gpu| gpu.name.as_str())
            .collect();
        let rest = format!("{} more", gpus.len().saturating_sub(MAX_NAMED));
        if gpus.len() > MAX_NAMED {
            named.push(&rest);
        }
        named.join(", ")
    };
    let fitting: Vec<&GpuFit> = document.gpus.iter().filter(|gpu| gpu.fits).collect();
    match (document.gpus.as_slice(), fitting.as_slice()) {
        ([], _) => match &document.host {
            Some(host) => format!(
                "Needs {} of host memory; {} to be safe",
                Bytes(host.bytes.likely),
                Bytes(host.bytes.safe)
            ),
            None => "No memory was predicted".to_owned(),
        },
        ([one], [_]) => format!(
            "Fits on {} with {} to spare",
            one.name,
            Bytes(one.headroom_bytes.unsigned_abs())
        ),
        ([one], []) => format!(
            "Does not fit safely on {}: {} missing",
            one.name,
            Bytes(one.headroom_bytes.unsigned_abs())
        ),
        (all, []) => format!("Fits none of {} GPU models", all.len()),
        (all, some) if all.len() == some.len() => format!("Fits on all {} GPU models", all.len()),
        (all, some) => format!(
            "Fits on {} of {} GPU models: {}",
            some.len(),
            all.len(),
            names(some)
        ),
    }
}

fn tiles(document: &PredictDocument) -> Vec<Tile> {
    let mut tiles = Vec::new();
    if let Some(peak) = &document.peak {
        let total = document.gpus.first().map(|gpu| Bytes(gpu.total_bytes));
        let mut tile = Tile::of_memory(
            "GPU memory, likely",
            Bytes(peak.device_bytes.likely),
            total,
            "gpu",
        );
        tile.hint = Some(Shown::of(&format!(
            "on {}; peak in the {} phase",
            peak.gpu, peak.phase
        )));
        tiles.push(tile);
        tiles.push(Tile::of_memory(
            "GPU memory, safe",
            Bytes(peak.device_bytes.safe),
            total,
            "gpu",
        ));
    }
    if let Some(host) = &document.host {
        tiles.push(Tile {
            name: Shown::of("Host memory, safe"),
            value: Bytes(host.bytes.safe).to_string(),
            hint: Some(Shown::of(&format!("{} workers", host.workers))),
            ..Tile::default()
        });
    }
    tiles
}
