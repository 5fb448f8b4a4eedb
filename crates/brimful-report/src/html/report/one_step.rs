//! Where the memory of one step goes: by kind over time, and by module at the peak.

use brimful::units::Bytes;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Value};
use serde::Serialize;

use crate::html::report::chart::{Scale, Tick, area, line};
use crate::html::report::kinds::{KindStyle, stacked};
use crate::html::report::markup::as_markup;
use crate::html::report::shown::Shown;
use crate::html::report::time::percent;
use crate::json::{ModuleUse, PredictDocument, StepColumn};

/// As many as the core makes; a document may come from anybody.
const MAX_COLUMNS: usize = 480;
const MAX_PHASES: usize = 48;
const MAX_MODULES: usize = 100;
const MAX_DEPTH: usize = 16;

/// The view.
#[derive(Debug, Serialize)]
pub(super) struct OneStep {
    about: Shown,
    described: String,
    n_columns: usize,
    phases: Vec<PhaseName>,
    ticks: Vec<Tick>,
    /// From the top of the stack to its bottom: each is painted over the one before.
    layers: Vec<Layer>,
    reserved: String,
    limit_y: Option<u64>,
    peak_x: f64,
    peak_side: String,
    peak_at: f64,
    peak_label: String,
    kinds: Vec<KindRow>,
    peak_bytes: String,
    reserved_bytes: String,
    #[serde(serialize_with = "as_markup")]
    modules: String,
}

#[derive(Debug, Serialize)]
struct PhaseName {
    name: Shown,
    left: f64,
    width: f64,
}

#[derive(Debug, Serialize)]
struct Layer {
    area: String,
    color: &'static str,
}

#[derive(Debug, Serialize)]
struct KindRow {
    name: &'static str,
    color: &'static str,
    bytes: String,
}

/// A line of the tree.
#[derive(Debug, Serialize)]
struct ModuleRow {
    name: Shown,
    depth: usize,
    bytes: String,
    parts: Vec<ModulePart>,
    /// The lines after it are inside it.
    opens: bool,
    /// One for each module that ends after it.
    closes: Vec<u8>,
}

#[derive(Debug, Serialize)]
struct ModulePart {
    percent: f64,
    color: &'static str,
}

impl OneStep {
    pub(super) fn of(document: &PredictDocument) -> Option<OneStep> {
        let step = document.timeline.as_ref()?;
        let columns = &step.columns[..step.columns.len().min(MAX_COLUMNS)];
        let peak_at = columns
            .iter()
            .enumerate()
            .max_by_key(|(idx, column)| (column.allocated_bytes, std::cmp::Reverse(*idx)))
            .map(|(idx, _)| idx)?;
        let peak = &columns[peak_at];
        let kinds = stacked(&step.kinds);
        let gpu = document.gpus.first()?;
        let limit = Bytes(gpu.total_bytes);
        let held = columns.iter().map(|column| column.reserved_bytes).max()?;
        let scale = Scale::to_highest(Bytes(held.max(peak.allocated_bytes)), Some(limit));
        let n_columns = columns.len();
        let share = percent(peak_at as u64 * 2 + 1, n_columns as u64 * 2);
        Some(OneStep {
            about: Shown::of(&format!(
                "Step {} on {}: {} allocations and frees in {n_columns} columns, each at its fullest moment. Dashed: reserved by PyTorch.",
                step.step, gpu.name, step.events
            )),
            described: format!(
                "Memory by use in one step, peak {} of {limit}",
                Bytes(peak.allocated_bytes)
            ),
            n_columns,
            phases: step
                .phases
                .iter()
                .take(MAX_PHASES)
                .map(|phase| PhaseName {
                    name: Shown::of(&phase.phase),
                    left: percent(u64::from(phase.first_column), n_columns as u64),
                    width: percent(u64::from(phase.columns), n_columns as u64),
                })
                .collect(),
            ticks: scale.ticks(),
            layers: layers(columns, &kinds, &scale),
            reserved: line(
                columns
                    .iter()
                    .map(|column| Some(Bytes(column.reserved_bytes))),
                &scale,
            ),
            limit_y: scale.limit.map(|limit| scale.y(limit)),
            peak_x: peak_at as f64 + 0.5,
            peak_side: if share > 60.0 {
                format!("right:{:.2}%", 100.0 - share + 0.8)
            } else {
                format!("left:{:.2}%", share + 0.8)
            },
            peak_at: (scale.at(Bytes(peak.allocated_bytes)) - 8.0).max(0.0),
            peak_label: format!("peak {}", Bytes(peak.allocated_bytes)),
            kinds: kinds
                .iter()
                .rev()
                .map(|kind| KindRow {
                    name: kind.name,
                    color: kind.color,
                    bytes: Bytes(bytes_of(&peak.bytes, kind)).to_string(),
                })
                .collect(),
            peak_bytes: Bytes(peak.allocated_bytes).to_string(),
            reserved_bytes: Bytes(peak.reserved_bytes).to_string(),
            modules: tree(&step.modules, &kinds),
        })
    }
}

fn bytes_of(bytes: &[u64], kind: &KindStyle) -> u64 {
    bytes.get(kind.index).copied().unwrap_or(0)
}

fn layers(columns: &[StepColumn], kinds: &[KindStyle], scale: &Scale) -> Vec<Layer> {
    (0..kinds.len())
        .rev()
        .map(|top| {
            let values = columns.iter().map(|column| {
                let below = kinds[..=top].iter();
                let sum = below.fold(0_u64, |sum, kind| {
                    sum.saturating_add(bytes_of(&column.bytes, kind))
                });
                Some(Bytes(sum))
            });
            Layer {
                area: area(values, scale),
                color: kinds[top].color,
            }
        })
        .collect()
}

/// The modules as nested elements that open without a script.
fn tree(modules: &[ModuleUse], kinds: &[KindStyle]) -> String {
    let whole: u64 = modules
        .iter()
        .fold(0, |sum, module| sum.saturating_add(total(module)));
    let mut rows = Vec::new();
    add(modules, kinds, whole, 0, &mut rows);
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    let context = minijinja::context! { rows => Value::from(Serde(&rows)) };
    let rendered = environment.render_str(include_str!("module.html"), context);
    rendered.unwrap_or_default()
}

fn total(module: &ModuleUse) -> u64 {
    module
        .bytes
        .iter()
        .fold(0, |sum, bytes| sum.saturating_add(*bytes))
}

fn add(
    modules: &[ModuleUse],
    kinds: &[KindStyle],
    whole: u64,
    depth: usize,
    rows: &mut Vec<ModuleRow>,
) {
    for module in modules {
        if rows.len() >= MAX_MODULES {
            return;
        }
        let at = rows.len();
        rows.push(ModuleRow {
            name: Shown::of(&module.name),
            depth,
            bytes: Bytes(total(module)).to_string(),
            parts: kinds
                .iter()
                .map(|kind| ModulePart {
                    percent: percent(bytes_of(&module.bytes, kind), whole),
                    color: kind.color,
                })
                .filter(|part| part.percent > 0.0)
                .collect(),
            opens: false,
            closes: Vec::new(),
        });
        if depth < MAX_DEPTH {
            add(&module.inside, kinds, whole, depth + 1, rows);
        }
        if rows.len() > at + 1 {
            rows[at].opens = true;
            if let Some(last) = rows.last_mut() {
                last.closes.push(0);
            }
        }
    }
}
