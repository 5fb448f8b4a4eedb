//! The page of `brimful compare`.

use brimful::units::Bytes;

use crate::json::{CompareDocument, ComparedGpu, LowLikelyHigh};
use crate::text::machine_gpus;
use crate::text::page::{Page, Role, wrap};
use crate::text::speed::rate;
use crate::text::table::table;

/// One page: a table of all candidates, and which is the fastest and the cheapest.
pub fn compare(document: &CompareDocument, page: &Page) -> String {
    let title = format!(
        "{}{}torch {}",
        document.command.join(" "),
        page.dot(),
        document.torch_version
    );
    let mut out = String::new();
    for line in wrap(&title, page.width) {
        out.push_str(&page.paint(Role::Strong, &line));
        out.push('\n');
    }
    let has_cost = document.candidates.iter().any(|found| found.cost.is_some());
    let unit = document.candidates.iter().find_map(ComparedGpu::rate);
    let mut heading = vec!["GPU", "memory"];
    heading.push(unit.map_or("steps/s", |(_, unit)| unit));
    heading.push("time");
    heading.push("range");
    if has_cost {
        heading.push("cost");
    }
    let rows: Vec<Vec<String>> = document
        .candidates
        .iter()
        .map(|found| row(found, has_cost))
        .collect();
    let mut body = table(page, &heading, &rows);
    for line in length_words(document) {
        body.push_str(&page.hang("  ", 2, &line));
    }
    for found in &document.candidates {
        if let Some(measured) = &found.measured_context {
            let line = format!("{}: the CUDA context is {}.", found.name, measured.words());
            body.push_str(&page.hang("  ", 2, &line));
        }
    }
    body.extend(machine_gpus::usual_line(&document.gpus_from, page));
    page.section(&mut out, "Comparison", &body);
    machine_gpus::section(&mut out, &document.machine_gpus, page);
    let planned = settings_lines(document);
    if !planned.is_empty() {
        let mut settings = String::new();
        for line in planned {
            settings.push_str(&page.hang("  ", 4, &line));
        }
        page.section(&mut out, "Settings", &settings);
    }
    let mut notes = String::new();
    for line in conclusions(document) {
        notes.push_str(&page.hang("  ", 2, &line));
    }
    page.section(&mut out, "Result", &notes);
    out
}

fn row(found: &ComparedGpu, has_cost: bool) -> Vec<String> {
    let missing = || "-".to_owned();
    let memory = match (found.verdict.as_str(), found.headroom_bytes) {
        ("fits", Some(left)) => format!("fits, {} free", Bytes(left.unsigned_abs())),
        ("tight", _) => "tight".to_owned(),
        ("does_not_fit", Some(left)) if left < 0 => {
            format!("{} over", Bytes(left.unsigned_abs()))
        }
        ("does_not_fit", _) => "does not fit".to_owned(),
        ("host_does_not_fit", _) => "host memory".to_owned(),
        _ => "failed".to_owned(),
    };
    let rates = found.rate().map(|(range, _)| range);
    // What does not fit has no time.
    let shown = |range: Option<LowLikelyHigh>| range.filter(|_| found.fits);
    let mut cells = vec![
        found.name.clone(),
        memory,
        shown(rates).map_or_else(missing, |range| rate(range.likely)),
        shown(found.hours).map_or_else(missing, |range| hours_words(range.likely)),
        // Of the time, or of the rate where the length of the job is not known.
        match (shown(found.hours), shown(rates)) {
            (Some(range), _) => {
                format!("{} to {}", hours_words(range.low), hours_words(range.high))
            }
            (None, Some(range)) => format!("{} to {}/s", rate(range.low), rate(range.high)),
            (None, None) => missing(),
        },
    ];
    if has_cost {
        cells.push(shown(found.cost).map_or_else(missing, |range| cost_words(range.likely)));
    }
    cells
}

/// The planned settings of each candidate, those with the same in one line.
fn settings_lines(document: &CompareDocument) -> Vec<String> {
    let mut lines: Vec<(String, Vec<&str>)> = Vec::new();
    for found in &document.candidates {
        let Some(words) = found.settings_words().filter(|_| found.fits) else {
            continue;
        };
        match lines.iter_mut().find(|(known, _)| *known == words) {
            Some((_, names)) => names.push(&found.name),
            None => lines.push((words, vec![&found.name])),
        }
    }
    let line = |(words, names): (String, Vec<&str>)| format!("{}: {words}", names.join(", "));
    lines.into_iter().map(line).collect()
}

/// A time in the unit that suits it: "40 s", "12 min", "3.5 h".
pub(crate) fn hours_words(hours: f64) -> String {
    let seconds = hours * 3600.0;
    match seconds {
        s if s < 100.0 => format!("{s:.0} s"),
        s if s < 6000.0 => format!("{:.0} min", s / 60.0),
        _ if hours < 100.0 => format!("{hours:.1} h"),
        _ => format!("{hours:.0} h"),
    }
}

pub(crate) fn cost_words(cost: f64) -> String {
    if cost > 0.0 && cost < 0.005 {
        "< 0.01".to_owned()
    } else {
        format!("{cost:.2}")
    }
}

fn is_planned(document: &CompareDocument) -> bool {
    let mut candidates = document.candidates.iter();
    candidates.any(|found| found.settings.is_some())
}

fn length_words(document: &CompareDocument) -> Vec<String> {
    let length = &document.length;
    // A plan knows the rate of data loading.
    let without = if is_planned(document) {
        "evaluation"
    } else {
        "evaluation and data loading"
    };
    match (length.epochs, length.steps, &length.missing) {
        (_, _, Some(missing)) => vec![format!("No time for the job: {missing}.")],
        (Some(epochs), _, None) => {
            let unit = if (epochs - 1.0).abs() < 1e-9 {
                "epoch"
            } else {
                "epochs"
            };
            vec![format!("Time for {epochs} {unit}, without {without}.")]
        }
        (None, Some(steps), None) => {
            vec![format!("Time for {steps:.0} steps, without {without}.")]
        }
        (None, None, None) => Vec::new(),
    }
}

fn conclusions(document: &CompareDocument) -> Vec<String> {
    let mut lines = Vec::new();
    match (&document.fastest, &document.cheapest) {
        (Some(fastest), Some(cheapest)) if fastest == cheapest => {
            lines.push(format!("{fastest} is the fastest and the cheapest."));
        }
        (fastest, cheapest) => {
            lines.extend(fastest.iter().map(|name| format!("{name} is the fastest.")));
            lines.extend(
                cheapest
                    .iter()
                    .map(|name| format!("{name} is the cheapest.")),
            );
        }
    }
    if document.candidates.iter().all(|found| !found.fits) {
        lines.push(if is_planned(document) {
            "No settings of the job fit on any of them.".to_owned()
        } else {
            "The command fits on none of them as it is; with a job file (`brimful init`), `brimful compare` without a command searches for settings that do.".to_owned()
        });
    }
    if let Some(host) = document.host_bytes {
        lines.push(format!(
            "It needs {} of host memory; {} to be safe.",
            Bytes(host.likely),
            Bytes(host.safe)
        ));
    }
    let mut notes: Vec<String> = Vec::new();
    for found in &document.candidates {
        let speed = found.speed.iter();
        for note in speed.flat_map(|speed| &speed.notes) {
            let line = format!("{}: {note}.", found.name);
            let known = notes
                .iter_mut()
                .find(|known| known.ends_with(&format!(": {note}.")));
            match known {
                Some(known) => *known = format!("{}, {known}", found.name),
                None => notes.push(line),
            }
        }
        notes.extend(
            found
                .reason
                .iter()
                .map(|reason| match found.verdict.as_str() {
                    "failed" => format!(
                        "{}: the script failed before its first step: {reason}",
                        found.name
                    ),
                    _ => format!("{}: {reason}.", found.name),
                }),
        );
    }
    lines.extend(notes);
    lines.push(if is_planned(document) {
        "Times are calculated from the operators of rehearsed steps, unless a run with these settings was measured; see docs/accuracy.md.".to_owned()
    } else {
        "Times are calculated from the operators of one step, not measured; see docs/accuracy.md."
            .to_owned()
    });
    lines
}
