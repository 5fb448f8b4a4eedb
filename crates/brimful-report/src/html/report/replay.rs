//! The report of a snapshot or a trace.

use brimful::units::Bytes;
use serde::Serialize;

use crate::html::report::by_line::ByLine;
use crate::html::report::chart::{Scale, Tick, area, line};
use crate::html::report::fragmentation::{Fragmentation, NO_LIMIT, settings_of};
use crate::html::report::page::{Frame, Renderer, Tile};
use crate::html::report::shown::Shown;
use crate::json::ReplayDocument;

const MAX_COLUMNS: usize = 480;
const TABLE_ROWS: usize = 24;

/// The page of a replay.
pub fn replay_report(document: &ReplayDocument) -> Result<String, minijinja::Error> {
    let mut renderer = Renderer::new();
    if !document.results.is_empty() {
        renderer.add(
            include_str!("fragmentation.html"),
            &Fragmentation::of(document),
        )?;
    }
    if let Some(memory) = &document.by_line {
        renderer.add(include_str!("by_line.html"), &ByLine::of(memory))?;
    }
    if let Some(view) = OverTheFile::of(document) {
        renderer.add(include_str!("over_the_file.html"), &view)?;
    }
    let assumed = if document.torch_version_assumed {
        " (assumed)"
    } else {
        ""
    };
    let mut facts = vec![
        Shown::of(&format!("device {}", document.device)),
        Shown::of(&format!("torch {}{assumed}", document.torch_version)),
        Shown::of(&format!("{} allocations and frees", document.events)),
    ];
    if let Some(agreement) = &document.agreement {
        facts.push(Shown::of(&format!(
            "{} of {} allocations at their recorded address",
            agreement.same_address, agreement.allocations
        )));
    }
    renderer.page(&Frame {
        subject: "replay of recorded allocations",
        headline: Shown::of(&headline(document)),
        state: None,
        command: Some(Shown::of(&document.file)),
        facts,
        tiles: tiles(document),
        footer: Shown::of(&format!(
            "Written by brimful {} with a model of PyTorch's caching allocator. The page loads nothing from the network.",
            env!("CARGO_PKG_VERSION")
        )),
    })
}

fn headline(document: &ReplayDocument) -> String {
    let Some(first) = document.results.first() else {
        return "Nothing was replayed".to_owned();
    };
    let other = document.results.iter().find(|result| !result.oom);
    match (first.oom, other) {
        (true, Some(other)) => format!(
            "Runs out of memory with {}, fits with {}",
            settings_of(first),
            settings_of(other)
        ),
        (true, None) => "Runs out of memory with all replayed settings".to_owned(),
        (false, _) => format!(
            "PyTorch reserves up to {} for {} of tensors",
            Bytes(first.peak_reserved_bytes),
            Bytes(first.peak_allocated_bytes)
        ),
    }
}

fn tiles(document: &ReplayDocument) -> Vec<Tile> {
    let Some(first) = document.results.first() else {
        return Vec::new();
    };
    let limit = Some(Bytes(first.capacity_bytes)).filter(|limit| limit.get() < NO_LIMIT);
    let peak = |name: &str, bytes: u64, color| Tile::of_memory(name, Bytes(bytes), limit, color);
    let mut tiles = vec![
        peak("Peak allocated", first.peak_allocated_bytes, "optimizer"),
        peak("Peak reserved", first.peak_reserved_bytes, "gpu"),
    ];
    if let Some(bytes) = first.oom_request_bytes {
        tiles.push(Tile {
            name: Shown::of("Failed request"),
            value: Bytes(bytes).to_string(),
            ..Tile::default()
        });
    }
    let best = document
        .results
        .iter()
        .filter(|result| !result.oom)
        .min_by_key(|result| result.peak_reserved_bytes);
    if let Some(best) =
        best.filter(|best| best.peak_reserved_bytes < first.peak_reserved_bytes || first.oom)
    {
        let mut tile = peak(
            "Peak reserved, other settings",
            best.peak_reserved_bytes,
            "good",
        );
        tile.hint = Some(Shown::of(&format!("with {}", settings_of(best))));
        tiles.push(tile);
    }
    tiles
}

/// The view of memory over the file.
#[derive(Debug, Serialize)]
struct OverTheFile {
    about: Shown,
    described: String,
    n_columns: usize,
    ticks: Vec<Tick>,
    reserved_area: String,
    allocated_area: String,
    reserved: String,
    limit_y: Option<u64>,
    table: Vec<FileRow>,
}

#[derive(Debug, Serialize)]
struct FileRow {
    part: String,
    allocated: String,
    reserved: String,
}

impl OverTheFile {
    fn of(document: &ReplayDocument) -> Option<OverTheFile> {
        let columns = &document.timeline[..document.timeline.len().min(MAX_COLUMNS)];
        let first = document.results.first()?;
        let peak = columns.iter().map(|column| column.reserved_bytes).max()?;
        let limit = Some(Bytes(first.capacity_bytes)).filter(|limit| limit.get() < NO_LIMIT);
        let scale = Scale::to_highest(Bytes(peak), limit);
        let allocated = || {
            columns
                .iter()
                .map(|column| Some(Bytes(column.allocated_bytes)))
        };
        let reserved = || {
            columns
                .iter()
                .map(|column| Some(Bytes(column.reserved_bytes)))
        };
        let per_row = columns.len().div_ceil(TABLE_ROWS).max(1);
        let table = columns.chunks(per_row).enumerate().map(|(idx, part)| {
            let highest = |of: fn(&crate::json::ReplayColumn) -> u64| {
                Bytes(part.iter().map(of).max().unwrap_or(0))
            };
            FileRow {
                part: format!("from {} %", idx * per_row * 100 / columns.len()),
                allocated: highest(|column| column.allocated_bytes).to_string(),
                reserved: highest(|column| column.reserved_bytes).to_string(),
            }
        });
        Some(OverTheFile {
            about: Shown::of(&format!(
                "{} allocations and frees with {} in {} columns, each at its fullest moment.",
                document.events,
                settings_of(first),
                columns.len()
            )),
            described: format!(
                "Allocated and reserved memory over the file, peak {}",
                Bytes(peak)
            ),
            n_columns: columns.len(),
            ticks: scale.ticks(),
            reserved_area: area(reserved(), &scale),
            allocated_area: area(allocated(), &scale),
            reserved: line(reserved(), &scale),
            limit_y: scale.limit.map(|limit| scale.y(limit)),
            table: table.collect(),
        })
    }
}
