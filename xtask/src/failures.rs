//! The explainer against failure texts whose cause is known: a table of what it said.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use anyhow::Context;
use brimful::explain::{Cause, Confidence, Evidence, explain};
use serde::Deserialize;

/// A file of labelled texts is small; more than this is something else.
const MAX_BYTES: u64 = 64 << 20;

/// One labelled text.
#[derive(Debug, Deserialize)]
struct Failure {
    #[serde(default)]
    id: String,
    text: String,
    label: String,
    #[serde(default)]
    sublabel: String,
}

/// What came out for one label.
#[derive(Debug, Default)]
struct Row {
    n: usize,
    said: BTreeMap<&'static str, usize>,
}

#[derive(Debug)]
struct Wrong {
    id: String,
    label: String,
    said: &'static str,
    is_proved: bool,
    detail: String,
    sublabel: String,
}

/// Explains every text of a file, from the text alone, and sets the answers beside the labels.
pub(crate) fn run(file: &Path, json: bool) -> anyhow::Result<()> {
    let reader = BufReader::new(
        File::open(file)
            .with_context(|| format!("failed to open {}", file.display()))?
            .take(MAX_BYTES),
    );
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    let mut wrong = Vec::new();
    let mut n_skipped = 0;
    for line in reader.lines() {
        let line = line.with_context(|| format!("failed to read {}", file.display()))?;
        if line.trim().is_empty() {
            continue;
        }
        let Ok(failure) = serde_json::from_str::<Failure>(&line) else {
            n_skipped += 1;
            continue;
        };
        let verdict = explain(&Evidence {
            text: failure.text,
            ..Evidence::default()
        });
        let said = verdict.cause.id();
        let row = rows.entry(failure.label.clone()).or_default();
        row.n += 1;
        *row.said.entry(said).or_default() += 1;
        if said != failure.label {
            wrong.push(Wrong {
                id: failure.id,
                label: failure.label,
                said,
                is_proved: verdict.confidence == Confidence::Proved,
                detail: verdict.detail.id().to_owned(),
                sublabel: failure.sublabel,
            });
        }
    }
    let n: usize = rows.values().map(|row| row.n).sum();
    let n_right = n - wrong.len();
    let n_false_alarms = wrong
        .iter()
        .filter(|wrong| {
            wrong.label == Cause::NotMemory.id()
                && Cause::ALL
                    .iter()
                    .any(|cause| cause.id() == wrong.said && cause.is_memory())
        })
        .count();
    if json {
        print_json(&rows, &wrong, n, n_skipped, n_false_alarms);
    } else {
        print_table(&rows, &wrong, n, n_skipped, n_false_alarms);
    }
    anyhow::ensure!(n > 0, "no labelled text in {}", file.display());
    if !json {
        println!("{n_right} of {n} right: {:.1} %", percent(n_right, n));
    }
    Ok(())
}

fn n_proved(wrong: &[Wrong]) -> usize {
    wrong.iter().filter(|wrong| wrong.is_proved).count()
}

fn percent(part: usize, whole: usize) -> f64 {
    if whole == 0 {
        0.0
    } else {
        100.0 * part as f64 / whole as f64
    }
}

fn print_table(
    rows: &BTreeMap<String, Row>,
    wrong: &[Wrong],
    n: usize,
    n_skipped: usize,
    n_false_alarms: usize,
) {
    println!("{:<30} {:>4} {:>6}  said instead", "label", "n", "right");
    for (label, row) in rows {
        let right = row.said.get(label.as_str()).copied().unwrap_or(0);
        let instead: Vec<String> = row
            .said
            .iter()
            .filter(|(said, _)| *said != label)
            .map(|(said, count)| format!("{count} {said}"))
            .collect();
        println!(
            "{label:<30} {:>4} {right:>6}  {}",
            row.n,
            instead.join(", ")
        );
    }
    if !wrong.is_empty() {
        println!();
    }
    for wrong in wrong {
        println!(
            "{}: {}, said {} ({}); {}",
            wrong.id, wrong.label, wrong.said, wrong.detail, wrong.sublabel
        );
    }
    println!("\nnot memory, called memory: {n_false_alarms}");
    println!("wrong, called proved: {}", n_proved(wrong));
    if n_skipped > 0 {
        println!("lines that are no labelled text: {n_skipped} beside {n}");
    }
}

fn print_json(
    rows: &BTreeMap<String, Row>,
    wrong: &[Wrong],
    n: usize,
    n_skipped: usize,
    n_false_alarms: usize,
) {
    let labels: serde_json::Map<String, serde_json::Value> = rows
        .iter()
        .map(|(label, row)| {
            (
                label.clone(),
                serde_json::json!({ "n": row.n, "said": row.said }),
            )
        })
        .collect();
    let wrong_ids: Vec<serde_json::Value> = wrong
        .iter()
        .map(|wrong| {
            serde_json::json!({
                "id": wrong.id, "label": wrong.label, "said": wrong.said, "detail": wrong.detail,
            })
        })
        .collect();
    let n_right = n - wrong.len();
    println!(
        "{}",
        serde_json::json!({
            "n": n,
            "n_right": n_right,
            "percent_right": percent(n_right, n),
            "n_not_memory_called_memory": n_false_alarms,
            "n_wrong_called_proved": n_proved(wrong),
            "n_skipped": n_skipped,
            "labels": labels,
            "wrong": wrong_ids,
        })
    );
}
