//! Segments and blocks before and after a setting of the allocator.

use std::fmt::Write;

use brimful::units::Bytes;
use serde::Serialize;

use crate::html::report::shown::Shown;
use crate::json::{ReplayDocument, ReplayResult};

/// More than any GPU: the replay had no limit.
pub(super) const NO_LIMIT: u64 = 1 << 45;
/// As many as a replay makes; a document may come from anybody.
const MAX_SEGMENTS: usize = 64;
const MAX_BLOCKS: usize = 256;
const MAX_RESULTS: usize = 64;
/// Strips of one picture.
const MAX_STRIPS: u64 = 40;
/// As many as look well.
const USUAL_STRIPS: u64 = 24;
const WIDTH: f64 = 1000.0;
const STRIP: u64 = 26;
const GAP: u64 = 6;
/// Cells of a strip, and of a picture.
const PER_STRIP: u64 = 250;
const MAX_CELLS: u64 = PER_STRIP * MAX_STRIPS;

/// The view.
#[derive(Debug, Serialize)]
pub(super) struct Fragmentation {
    title: &'static str,
    about: Shown,
    pictures: Vec<Picture>,
    rows: Vec<ResultRow>,
}

#[derive(Debug, Default, Serialize)]
struct Picture {
    title: Shown,
    described: Shown,
    height: u64,
    reserved: String,
    used: String,
    mixed: String,
    borders: String,
    stroke: u64,
    request: Option<String>,
    class: &'static str,
    words: String,
}

#[derive(Debug, Serialize)]
struct ResultRow {
    settings: Shown,
    gpu: Shown,
    reserved: String,
    allocated: String,
    retries: u64,
    result: String,
    class: &'static str,
}

impl Fragmentation {
    pub(super) fn of(document: &ReplayDocument) -> Fragmentation {
        let results = &document.results[..document.results.len().min(MAX_RESULTS)];
        let before = results.first().filter(|result| result.layout.is_some());
        // The settings that help most, of those that fit.
        let after = results
            .iter()
            .skip(1)
            .filter(|result| result.layout.is_some() && !result.oom)
            .min_by_key(|result| result.peak_reserved_bytes);
        let shown: Vec<&ReplayResult> = before.into_iter().chain(after).collect();
        let largest = shown
            .iter()
            .filter_map(|result| Some(result.layout.as_ref()?.reserved_bytes))
            .max()
            .unwrap_or(0);
        let asked = before.and_then(|result| result.oom_request_bytes);
        let strip = strip_bytes(largest, asked.unwrap_or(0));
        let is_fragmented = before.and_then(|result| Some((result, result.layout.as_ref()?)));
        let is_fragmented = is_fragmented.filter(|(result, layout)| {
            let free = layout.reserved_bytes.saturating_sub(layout.used_bytes);
            result.oom_request_bytes.is_some_and(|asked| asked <= free)
        });
        Fragmentation {
            title: if is_fragmented.is_some() {
                "Enough memory, but fragmented"
            } else {
                "How PyTorch uses what it reserves"
            },
            about: about(before, strip),
            pictures: shown
                .iter()
                .filter_map(|result| picture(result, strip))
                .collect(),
            rows: results.iter().map(row).collect(),
        }
    }
}

/// The settings of a result in words.
pub(super) fn settings_of(result: &ReplayResult) -> &str {
    if result.alloc_conf.is_empty() {
        "default settings"
    } else {
        &result.alloc_conf
    }
}

fn about(before: Option<&ReplayResult>, strip: u64) -> Shown {
    let Some((result, layout)) = before.and_then(|result| Some((result, result.layout.as_ref()?)))
    else {
        return Shown::of("The peaks of each replay; segments were not recorded.");
    };
    let free = Bytes(layout.reserved_bytes.saturating_sub(layout.used_bytes));
    let asked = result.oom_request_bytes.map_or_else(String::new, |asked| {
        format!("; {} were requested", Bytes(asked))
    });
    Shown::of(&format!(
        "Each strip is {} of reserved memory. {free} are unused, the largest unused block has {}{asked}.",
        Bytes(strip),
        Bytes(layout.largest_free_bytes)
    ))
}

/// A round size, so that the larger picture has few strips and the request fits into one.
fn strip_bytes(reserved: u64, asked: u64) -> u64 {
    let wanted = reserved.div_ceil(USUAL_STRIPS).max(asked).max(16 << 20);
    wanted.checked_next_power_of_two().unwrap_or(1 << 63)
}

fn row(result: &ReplayResult) -> ResultRow {
    let limit = Bytes(result.capacity_bytes);
    ResultRow {
        settings: Shown::of(settings_of(result)),
        gpu: match &result.gpu {
            Some(name) => Shown::of(name),
            None if result.capacity_bytes >= NO_LIMIT => Shown::of("no limit"),
            None => Shown::of(&limit.to_string()),
        },
        reserved: Bytes(result.peak_reserved_bytes).to_string(),
        allocated: Bytes(result.peak_allocated_bytes).to_string(),
        retries: result.retries,
        result: match result.oom_request_bytes {
            Some(asked) => format!("✕ {} could not be allocated", Bytes(asked)),
            None if result.oom => "✕ out of memory".to_owned(),
            None => "✓ fits".to_owned(),
        },
        class: if result.oom { "critical" } else { "good" },
    }
}

/// Segments one after the other in strips of equal length, each divided into cells.
struct Strips {
    strip: u64,
    /// Reserved bytes and bytes in use of each cell.
    cells: Vec<(u64, u64)>,
    at: u64,
    /// Where segments end.
    borders: String,
}

impl Strips {
    fn new(strip: u64) -> Strips {
        Strips {
            strip,
            cells: Vec::new(),
            at: 0,
            borders: String::new(),
        }
    }

    /// Adds a block after the last one.
    fn add(&mut self, bytes: u64, used: u64) {
        let size = (self.strip / PER_STRIP).max(1);
        let end = self
            .at
            .saturating_add(bytes)
            .min(size.saturating_mul(MAX_CELLS));
        while self.at < end {
            let cell = self.at / size;
            let stop = end.min((cell + 1).saturating_mul(size));
            let part = stop - self.at;
            let in_use = u128::from(part) * u128::from(used.min(bytes)) / u128::from(bytes.max(1));
            let index = usize::try_from(cell).unwrap_or(usize::MAX);
            if self.cells.len() <= index {
                self.cells.resize(index + 1, (0, 0));
            }
            self.cells[index].0 += part;
            self.cells[index].1 += u64::try_from(in_use).unwrap_or(part);
            self.at = stop;
        }
    }

    fn end_segment(&mut self) {
        let (row, x) = (self.at / self.strip, self.at % self.strip);
        let x = x as f64 / self.strip as f64 * WIDTH;
        let _ = write!(self.borders, "M{x:.0} {}v{STRIP}", row * (STRIP + GAP) + 1);
    }

    fn n_strips(&self) -> u64 {
        (self.cells.len() as u64).div_ceil(PER_STRIP).max(1)
    }

    /// Horizontal strokes through all cells of a kind, each as long as possible.
    fn strokes(&self, is_of_kind: impl Fn(u64, u64) -> bool) -> String {
        let mut out = String::new();
        let unit = 1000 / PER_STRIP;
        let per_strip = usize::try_from(PER_STRIP).unwrap_or(1);
        for (row, cells) in self.cells.chunks(per_strip).enumerate() {
            let y = row as u64 * (STRIP + GAP) + 1 + STRIP / 2;
            let mut start = None;
            for (x, cell) in cells.iter().copied().chain([(0, 0)]).enumerate() {
                let is_here = cell.0 > 0 && is_of_kind(cell.0, cell.1);
                match start {
                    None if is_here => start = Some(x as u64),
                    Some(from) if !is_here => {
                        let _ = write!(out, "M{} {y}h{}", from * unit, (x as u64 - from) * unit);
                        start = None;
                    }
                    _ => {}
                }
            }
        }
        out
    }
}

fn picture(result: &ReplayResult, strip: u64) -> Option<Picture> {
    let layout = result.layout.as_ref()?;
    let mut cells = Strips::new(strip);
    for segment in layout.segments.iter().take(MAX_SEGMENTS) {
        for block in segment.blocks.iter().take(MAX_BLOCKS) {
            cells.add(block.bytes, block.used_bytes);
        }
        cells.end_segment();
    }
    let is_used = |reserved: u64, used: u64| used >= reserved - reserved / 50;
    let mut picture = Picture {
        reserved: cells.strokes(|_, _| true),
        used: cells.strokes(is_used),
        mixed: cells.strokes(|reserved, used| used > 0 && !is_used(reserved, used)),
        borders: cells.borders.clone(),
        stroke: STRIP,
        ..Picture::default()
    };
    let mut height = cells.n_strips() * (STRIP + GAP);
    let reserved = Bytes(layout.reserved_bytes);
    let used = Bytes(layout.used_bytes);
    if let Some(asked) = result.oom_request_bytes {
        let width = (asked as f64 / strip as f64 * WIDTH).clamp(2.0, WIDTH);
        let (top, bottom) = (height + GAP, height + GAP + STRIP);
        picture.request = Some(format!("M1 {top}H{width:.1}V{bottom}H1Z"));
        height = bottom + GAP;
        picture.words = format!("✕ {} requested: no unused block is as large", Bytes(asked));
        picture.class = "critical";
    } else {
        picture.words.push_str("✓ fits");
        picture.class = "good";
    }
    if layout.other_segments > 0 {
        let _ = write!(
            picture.words,
            "; {} smaller segments ({}) are not drawn",
            layout.other_segments,
            Bytes(layout.other_bytes)
        );
    }
    let settings = settings_of(result);
    picture.title = Shown::of(&format!("With {settings}: {reserved} reserved for {used}"));
    picture.described = Shown::of(&format!(
        "Segments with {settings}: {reserved} reserved, {used} in use"
    ));
    picture.height = height;
    Some(picture)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::{LayoutBlock, LayoutSegment, MemoryLayout};

    #[test]
    fn a_hostile_layout_makes_a_small_picture() {
        let segment = LayoutSegment {
            blocks: vec![
                LayoutBlock {
                    bytes: u64::MAX,
                    used_bytes: 1
                };
                100_000
            ],
        };
        let result = ReplayResult {
            gpu: None,
            alloc_conf: "\"><script>".into(),
            capacity_bytes: 0,
            peak_allocated_bytes: u64::MAX,
            peak_reserved_bytes: u64::MAX,
            oom: true,
            oom_request_bytes: Some(u64::MAX),
            retries: 0,
            layout: Some(MemoryLayout {
                segments: vec![segment; 200],
                reserved_bytes: 1,
                ..MemoryLayout::default()
            }),
        };
        let picture = picture(&result, strip_bytes(1, 1)).unwrap();
        let n_bytes = picture.reserved.len() + picture.used.len() + picture.mixed.len();
        assert!(n_bytes + picture.borders.len() < 200_000);
    }
}
