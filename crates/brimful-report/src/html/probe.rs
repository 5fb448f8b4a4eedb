//! The HTML that a notebook shows for `brimful.probe()`.

use brimful::fact::Fact;
use brimful::machine::{LimitEffect, Machine, SubjectKind};
use brimful::units::Bytes;
use serde::Serialize;

use crate::html::card;
use crate::json::{FindingDocument, ProbeDocument};
use crate::text::Page;

const TEMPLATE: &str = include_str!("probe.html");

/// A self-contained fragment: inline styles and SVG, and the plain text for readers without either.
pub fn probe(machine: &Machine) -> Result<String, minijinja::Error> {
    let shown = ProbeCard {
        title: title(machine),
        bars: bars(machine),
        rows: rows(machine),
        findings: ProbeDocument::of(machine).findings,
        text: crate::text::probe(machine, &Page::plain(80)),
    };
    card(TEMPLATE, &shown)
}

#[derive(Debug, Serialize)]
struct ProbeCard {
    title: String,
    bars: Vec<Bar>,
    rows: Vec<(String, String)>,
    findings: Vec<FindingDocument>,
    text: String,
}

/// One memory with its use, in percent of the bar's width.
#[derive(Debug, Serialize)]
struct Bar {
    label: String,
    /// `None` where the use is not known: no bar is drawn then, since an empty one would be a claim.
    used_percent: Option<f64>,
    words: String,
    is_brim: bool,
}

fn bar(label: String, used: Option<Bytes>, total: Bytes, is_brim: bool) -> Bar {
    Bar {
        used_percent: used.map(|used| (used.share_of(total) * 100.0).clamp(0.0, 100.0)),
        words: match used {
            Some(used) => format!("{used} of {total}"),
            None => format!("{total}, usage unknown"),
        },
        label,
        is_brim,
    }
}

fn title(machine: &Machine) -> String {
    match &machine.subject.kind {
        SubjectKind::ThisMachine => match machine.platform.layers.first() {
            Some(layer) => format!("This machine: {}", layer.name.title()),
            None => "This machine".into(),
        },
        SubjectKind::Profile { title, .. } => title.clone(),
    }
}

fn bars(machine: &Machine) -> Vec<Bar> {
    let mut bars = Vec::new();
    let brim = machine.host.brim();
    for limit in machine.host.limits() {
        let is_brim = limit.effect == LimitEffect::Kills
            && brim
                .known()
                .is_some_and(|brim| brim.limit == limit.bytes && brim.set_by == limit.set_by);
        let used = limit
            .headroom
            .known()
            .map(|left| limit.bytes.saturating_sub(*left));
        bars.push(bar(limit.set_by.to_string(), used, limit.bytes, is_brim));
    }
    if let Fact::Known(total) = &machine.shm.total {
        let used = machine
            .shm
            .free
            .known()
            .map(|free| total.saturating_sub(*free));
        bars.push(bar(machine.shm.path.clone(), used, *total, false));
    }
    for gpu in &machine.gpus.devices {
        let total = match (&gpu.torch_memory, &gpu.total) {
            (Fact::Known(memory), _) => memory.bytes,
            (Fact::Missing(_), Fact::Known(total)) => *total,
            _ => continue,
        };
        bars.push(bar(
            gpu.label().to_owned(),
            gpu.used.known().copied(),
            total,
            false,
        ));
    }
    bars
}

fn rows(machine: &Machine) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    let mut row = |name: &str, value: String| rows.push((name.to_owned(), value));
    match machine.host.brim() {
        Fact::Known(brim) => {
            row("brim", format!("{}, set by {}", brim.limit, brim.set_by));
            if let Fact::Known(headroom) = brim.headroom {
                row("headroom", format!("{headroom} until the kernel kills"));
            }
        }
        Fact::Missing(gap) => row("brim", format!("unknown: {gap}")),
    }
    if let Fact::Known((usable, _)) = machine.cpus.usable() {
        row("CPUs", format!("{usable} usable"));
    }
    for gpu in &machine.gpus.devices {
        let torch = match &gpu.torch_memory {
            Fact::Known(memory) => format!("torch sees {}", memory.bytes),
            Fact::Missing(_) => "memory visible to torch unknown".into(),
        };
        row(gpu.label(), torch);
    }
    if let Fact::Known(python) = &machine.python
        && let Fact::Known(torch) = &python.torch
    {
        row("torch", torch.version_text.clone());
    }
    rows
}
