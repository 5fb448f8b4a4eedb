//! The page of `brimful predict`.

use std::fmt::Write;

use brimful::predict::{FitVerdict, Footprint, Phase};
use brimful::printable::is_printable;
use brimful::units::Bytes;

use crate::json::{PredictedHost, Rehearsed};
use crate::text::machine_gpus;
use crate::text::page::{Page, Role, width_of, wrap};
use crate::text::predict_host::host_sections;
use crate::text::side_effects;
use crate::text::speed;
use crate::text::table::table;

/// Rows of the chart.
const CHART_ROWS: usize = 7;

/// One page: which GPUs the run fits, what the memory is used for, the largest allocations, and memory over the steps.
pub fn predict(rehearsed: &Rehearsed, footprints: &[Footprint], page: &Page) -> String {
    let Some(first) = footprints.first() else {
        let mut out = title(rehearsed, rehearsed.steps, page);
        host_sections(&mut out, rehearsed, page);
        side_effects::section(&mut out, &rehearsed.side_effects, page);
        return out;
    };
    let mut out = title(rehearsed, first.steps, page);
    let mut verdicts = fits(footprints, page);
    for (name, reason) in &rehearsed.failed {
        verdicts.push_str(&page.hang(
            "  ",
            2,
            &format!("{name}: the script failed before its first step: {reason}"),
        ));
    }
    if let Some(found) = alternative(footprints) {
        verdicts.push_str(&page.hang("  ", 2, &found));
    }
    for line in measured_contexts(footprints) {
        verdicts.push_str(&page.hang("  ", 2, &line));
    }
    verdicts.extend(machine_gpus::usual_line(rehearsed.gpus_from.id(), page));
    page.section(&mut out, "Fit", &verdicts);
    machine_gpus::section(&mut out, &rehearsed.machine_gpus(footprints), page);
    if let Some(found) = speed::section(rehearsed, footprints, page) {
        page.section(&mut out, "Speed", &found);
    }
    page.section(
        &mut out,
        &format!("Peak on {}", first.gpu),
        &peak(first, page),
    );
    page.section(&mut out, "Memory by use", &budget(first, page));
    page.section(
        &mut out,
        "Largest allocations at the peak",
        &largest(first, page),
    );
    page.section(&mut out, "Memory over time", &chart(first, page));
    host_sections(&mut out, rehearsed, page);
    page.section(&mut out, "Limits of this estimate", &caveats(first, page));
    side_effects::section(&mut out, &rehearsed.side_effects, page);
    out
}

/// One line for a log: on each GPU, whether the run fits, and what is left or missing.
pub fn predict_line(rehearsed: &Rehearsed, footprints: &[Footprint]) -> String {
    let on_each = footprints.iter().map(|footprint| {
        let (word, words) = verdict_words(footprint);
        format!("{}: {word}, {words}", footprint.gpu)
    });
    let failed = rehearsed
        .failed
        .iter()
        .map(|(gpu, reason)| format!("{gpu}: the script failed before its first step: {reason}"));
    let mut parts: Vec<String> = on_each.chain(failed).collect();
    if parts.is_empty() {
        let safe = rehearsed.host.as_ref().map(PredictedHost::of);
        parts.push(match safe {
            Some(host) => format!(
                "on the CPU: up to {} of host memory",
                Bytes(host.bytes.safe)
            ),
            None => "on the CPU: host memory was not measured".to_owned(),
        });
    }
    let line = parts.join("; ");
    let shown = line.chars();
    let mut line: String = shown
        .map(|c| if is_printable(c) { c } else { ' ' })
        .collect();
    line.push('\n');
    line
}

fn title(rehearsed: &Rehearsed, steps: u32, page: &Page) -> String {
    let processes = if rehearsed.world_size > 1 {
        format!(
            "{}{} processes, largest shown",
            page.dot(),
            rehearsed.world_size
        )
    } else {
        String::new()
    };
    let unit = if steps == 1 { "step" } else { "steps" };
    let text = format!(
        "{}{}torch {}{}{steps} {unit}{}{:.1} s{processes}",
        rehearsed.command.join(" "),
        page.dot(),
        rehearsed.torch_version,
        page.dot(),
        page.dot(),
        rehearsed.seconds,
    );
    let mut out = String::new();
    for line in wrap(&text, page.width) {
        out.push_str(&page.paint(Role::Strong, &line));
        out.push('\n');
    }
    out
}

fn fits(footprints: &[Footprint], page: &Page) -> String {
    let mut out = String::new();
    let rows: Vec<(Role, &str, String)> = footprints.iter().map(verdict).collect();
    let name_width = footprints
        .iter()
        .map(|f| width_of(&f.gpu))
        .max()
        .unwrap_or(0);
    let words_width = rows
        .iter()
        .map(|(_, _, words)| width_of(words))
        .max()
        .unwrap_or(0);
    // What is left of the line after the name, the verdict and the words.
    let cells = page
        .width
        .saturating_sub(name_width + 12 + words_width + 8)
        .min(14);
    for (footprint, (role, word, words)) in footprints.iter().zip(&rows) {
        let share = footprint.device.likely.share_of(footprint.total);
        let verdict = page.paint_padded(*role, word, 12);
        if cells >= 6 {
            let bar = page.paint(*role, &page.bar(share, cells));
            let _ = writeln!(
                out,
                "  {:<name_width$}  {bar}  {verdict}  {words}",
                footprint.gpu
            );
        } else {
            let bar = page.paint(*role, &page.bar(share, 14));
            let _ = writeln!(
                out,
                "  {}\n    {bar}  {verdict}\n    {words}",
                footprint.gpu
            );
        }
    }
    out
}

/// Where the CUDA context was measured and not calculated.
fn measured_contexts(footprints: &[Footprint]) -> impl Iterator<Item = String> {
    footprints.iter().filter_map(|footprint| {
        let measured = footprint.measured_context.as_ref()?;
        Some(format!(
            "The CUDA context on {} is {measured}.",
            footprint.gpu
        ))
    })
}

/// A setting of the allocator that would hold less, for the first GPU where it would.
fn alternative(footprints: &[Footprint]) -> Option<String> {
    footprints.iter().find_map(|footprint| {
        let found = footprint.alternative.as_ref()?;
        let fits = if found.fits && footprint.verdict != FitVerdict::Fits {
            ", which fits"
        } else {
            ""
        };
        Some(format!(
            "With PYTORCH_ALLOC_CONF={}, PyTorch would reserve {} instead of {} on {}{fits}.",
            found.settings, found.peak_reserved, footprint.peak_reserved, footprint.gpu
        ))
    })
}

fn verdict(footprint: &Footprint) -> (Role, &'static str, String) {
    let (word, words) = verdict_words(footprint);
    let role = match footprint.verdict {
        FitVerdict::Fits => Role::Command,
        FitVerdict::Tight => Role::Risk,
        FitVerdict::DoesNotFit => Role::Fatal,
    };
    let retries = match footprint.retries {
        0 => String::new(),
        count => format!(", {count} retries"),
    };
    (role, word, format!("{words}{retries}"))
}

/// The verdict, and what is left or missing.
pub(crate) fn verdict_words(footprint: &Footprint) -> (&'static str, String) {
    let (left, total) = (Bytes(footprint.headroom.unsigned_abs()), footprint.total);
    let at_worst = match footprint.worst_case {
        Some(worst) if worst.safe > footprint.device.safe => ", worst case",
        _ => "",
    };
    match footprint.verdict {
        FitVerdict::Fits => ("fits", format!("{left} of {total} free{at_worst}")),
        FitVerdict::Tight => ("tight", format!("up to {left} over {total}{at_worst}")),
        FitVerdict::DoesNotFit if footprint.is_lower_bound => {
            ("does not fit", format!("at least {left} over {total}"))
        }
        FitVerdict::DoesNotFit => ("does not fit", format!("{left} over {total}")),
    }
}

fn peak(footprint: &Footprint, page: &Page) -> String {
    let when = format!("in the {} pass", footprint.peak_phase.name());
    let when = match footprint.peak_phase {
        Phase::Optimizer => "in the optimizer step",
        Phase::Setup => "during setup",
        Phase::Evaluation => "during evaluation",
        Phase::Save => "while saving a checkpoint",
        Phase::Forward | Phase::Backward => &when,
    };
    let mut rows = vec![
        vec![
            "allocated (tensors)".into(),
            footprint.peak_allocated.to_string(),
        ],
        vec![
            "reserved by PyTorch".into(),
            footprint.peak_reserved.to_string(),
        ],
        vec![
            "total GPU memory, likely".into(),
            footprint.device.likely.to_string(),
        ],
        vec![
            "total GPU memory, safe".into(),
            footprint.device.safe.to_string(),
        ],
    ];
    if let Some(worst) = footprint.worst_case {
        rows.push(vec![
            "total GPU memory, worst case".into(),
            worst.safe.to_string(),
        ]);
    }
    table(page, &[when, ""], &rows)
}

fn budget(footprint: &Footprint, page: &Page) -> String {
    let phases: Vec<Phase> = footprint
        .phases
        .iter()
        .map(|peak| peak.phase)
        .filter(|phase| *phase != Phase::Setup)
        .collect();
    let mut heading = vec!["", "at the peak"];
    heading.extend(phases.iter().map(|phase| phase.name()));
    let mut rows = Vec::new();
    let mut totals = vec![Bytes::ZERO; phases.len() + 1];
    for term in &footprint.terms {
        let mut values = vec![term.likely];
        values.extend(phases.iter().map(|phase| {
            term.by_phase
                .iter()
                .find(|(of, _)| of == phase)
                .map_or(Bytes::ZERO, |(_, bytes)| *bytes)
        }));
        for (total, value) in totals.iter_mut().zip(&values) {
            *total = total.saturating_add(*value);
        }
        if values.iter().all(|value| *value == Bytes::ZERO) {
            continue;
        }
        let mut row = vec![term_name(term.id).to_owned()];
        row.extend(values.iter().map(|value| in_mib(*value)));
        rows.push(row);
    }
    let mut sum = vec!["total".to_owned()];
    sum.extend(totals.iter().map(|total| in_mib(*total)));
    rows.push(sum);
    let mut out = page.paint(Role::Label, "  MiB, at the peak of each phase");
    out.push('\n');
    out.push_str(&table(page, &heading, &rows));
    out
}

fn in_mib(bytes: Bytes) -> String {
    let mib = bytes.get() as f64 / Bytes::MIB as f64;
    if bytes == Bytes::ZERO {
        "-".to_owned()
    } else if mib < 10.0 {
        format!("{mib:.1}")
    } else {
        grouped(&format!("{mib:.0}"))
    }
}

/// `12345` as `12,345`.
pub fn grouped(digits: &str) -> String {
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// What a term is called on pages.
pub(crate) fn term_name(id: &str) -> &str {
    match id {
        "optimizer_state" => "optimizer state",
        "cached" => "cached, unused",
        "context" => "CUDA context",
        "nccl" => "NCCL",
        other => other,
    }
}

fn largest(footprint: &Footprint, page: &Page) -> String {
    let rows: Vec<Vec<String>> = footprint
        .largest
        .iter()
        .map(|largest| {
            let times = if largest.count > 1 {
                format!(" ({} allocations)", largest.count)
            } else {
                String::new()
            };
            let name: String = largest
                .made_by
                .chars()
                .filter(|c| is_printable(*c))
                .collect();
            let room = page.width.saturating_sub(34);
            vec![
                format!(
                    "{}{times}",
                    shortened(&name, room.saturating_sub(width_of(&times)))
                ),
                term_name(largest.kind.id()).to_owned(),
                largest.size.to_string(),
            ]
        })
        .collect();
    if rows.is_empty() {
        String::new()
    } else {
        table(page, &["allocated by", "used for", ""], &rows)
    }
}

/// The end of a long name says more than its beginning.
fn shortened(name: &str, room: usize) -> String {
    let length = name.chars().count();
    if length <= room || room < 8 {
        return name.to_owned();
    }
    let tail: String = name.chars().skip(length + 1 - room).collect();
    format!("…{tail}")
}

/// Columns of allocated (full) and reserved (light) memory, and the capacity of the GPU if it is in range.
fn chart(footprint: &Footprint, page: &Page) -> String {
    let highest = footprint
        .curve
        .iter()
        .map(|point| point.reserved)
        .max()
        .unwrap_or_default();
    if highest == Bytes::ZERO {
        return String::new();
    }
    let (full, light) = if page.unicode {
        ('█', '░')
    } else {
        ('#', '.')
    };
    let label_width = 10;
    let columns = page
        .width
        .saturating_sub(label_width + 3)
        .min(footprint.curve.len());
    let mut out = String::new();
    for row in 0..CHART_ROWS {
        let floor = highest.get() as f64 * (CHART_ROWS - row - 1) as f64 / CHART_ROWS as f64;
        let half = highest.get() as f64 / CHART_ROWS as f64 / 2.0;
        let label = match row {
            0 => highest.to_string(),
            _ if row == CHART_ROWS / 2 => Bytes(highest.get() / 2).to_string(),
            _ => String::new(),
        };
        let mut cells = String::new();
        for column in 0..columns {
            let at = column * footprint.curve.len() / columns;
            let point = &footprint.curve[at];
            cells.push(if point.allocated.get() as f64 > floor + half {
                full
            } else if point.reserved.get() as f64 > floor + half {
                light
            } else {
                ' '
            });
        }
        let bar = if page.unicode { '│' } else { '|' };
        let _ = writeln!(out, "{label:>label_width$} {bar}{}", cells.trim_end());
    }
    let mut marks = String::new();
    let mut last = 0;
    for column in 0..columns {
        let step = footprint.curve[column * footprint.curve.len() / columns].step;
        if step > last && marks.chars().count() <= column {
            let pad = column - marks.chars().count();
            marks.push_str(&" ".repeat(pad));
            let tick = if page.unicode { '╵' } else { '\'' };
            let _ = write!(marks, "{tick}{step}");
            last = step;
        }
    }
    let _ = writeln!(out, "{:>label_width$}  {marks}", "steps done");
    let legend = format!("{full} allocated  {light} reserved, unused");
    out.push_str(&page.paint(Role::Label, &format!("{:>label_width$}  {legend}", "")));
    out.push('\n');
    out
}

fn caveats(footprint: &Footprint, page: &Page) -> String {
    footprint
        .caveats
        .iter()
        .map(|caveat| page.commands(&page.hang("  - ", 4, &caveat.text)))
        .collect()
}
