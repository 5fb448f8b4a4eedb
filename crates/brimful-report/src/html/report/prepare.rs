//! The report of a prepared dataset, or of one that will be prepared.

use std::time::Duration;

use brimful::preview::Preview;
use brimful::units::Bytes;
use serde::Serialize;

use crate::html::report::first_samples::FirstSamples;
use crate::html::report::page::{Frame, Renderer, StateChip, Tile};
use crate::html::report::shown::Shown;
use crate::html::report::time::exact;
use crate::text::grouped;

const MAX_REASONS: usize = 20;

/// What the page of a dataset needs.
#[derive(Clone, Debug, PartialEq)]
pub struct PrepareReport {
    pub out: String,
    pub samples: u64,
    pub shards: u64,
    pub shard_bytes: Bytes,
    pub memory: Bytes,
    pub stage: PrepareStage,
    pub preview: Preview,
}

/// How far a dataset is.
#[derive(Clone, Debug, PartialEq)]
pub enum PrepareStage {
    /// Before the start, from a trial of the first task.
    Tried {
        tasks: u64,
        input_bytes: Bytes,
        run_bytes: Bytes,
        /// `None` for an object store.
        free_bytes: Option<Bytes>,
        /// Of one CPU.
        time: Duration,
    },
    Finished {
        digest: String,
        /// `None` if other processes or an earlier command did the work.
        peak: Option<Bytes>,
        documents: u64,
        tokens: u64,
        dropped_tokens: u64,
        left_out: u64,
        skipped: u64,
        skipped_reasons: Vec<String>,
    },
}

/// The samples that failed.
#[derive(Debug, Serialize)]
struct SkippedView {
    count: String,
    reasons: Vec<Shown>,
}

/// The page of a dataset.
pub fn prepare_report(report: &PrepareReport) -> Result<String, minijinja::Error> {
    let mut renderer = Renderer::new();
    let is_tried = matches!(report.stage, PrepareStage::Tried { .. });
    renderer.add(
        include_str!("first_samples.html"),
        &FirstSamples::of(&report.preview, is_tried),
    )?;
    if let PrepareStage::Finished {
        skipped,
        skipped_reasons,
        ..
    } = &report.stage
        && *skipped > 0
    {
        let reasons = skipped_reasons.iter().take(MAX_REASONS);
        renderer.add(
            include_str!("skipped_samples.html"),
            &SkippedView {
                count: number(*skipped),
                reasons: reasons.map(|reason| Shown::of(reason)).collect(),
            },
        )?;
    }
    let (samples, shards) = (number(report.samples), number(report.shards));
    let plural = |count: u64, noun: &str| match count {
        1 => noun.to_owned(),
        _ => format!("{noun}s"),
    };
    let amount = format!(
        "{samples} {} in {shards} {}",
        plural(report.samples, "sample"),
        plural(report.shards, "shard")
    );
    renderer.page(&Frame {
        subject: "report of a prepared dataset",
        headline: Shown::of(&if is_tried {
            format!("About {amount} will be prepared")
        } else {
            amount
        }),
        state: Some(StateChip {
            class: if is_tried { "" } else { "good" },
            text: Shown::of(if is_tried { "not started" } else { "finished" }),
        }),
        command: Some(Shown::of(&report.out)),
        facts: facts(&report.stage),
        tiles: tiles(report),
        footer: Shown::of(&format!(
            "Written by brimful {} from {}. The page loads nothing from the network.",
            env!("CARGO_PKG_VERSION"),
            if is_tried {
                "a trial of the first task"
            } else {
                "the manifest and the first shard"
            }
        )),
    })
}

fn facts(stage: &PrepareStage) -> Vec<Shown> {
    match stage {
        PrepareStage::Tried { tasks, .. } => vec![Shown::of(&format!("{} tasks", number(*tasks)))],
        PrepareStage::Finished {
            digest, left_out, ..
        } => {
            let mut facts = vec![Shown::of(&format!("digest {digest}"))];
            if *left_out > 0 {
                let left_out = number(*left_out);
                facts.push(Shown::of(&format!("{left_out} samples left out by keep")));
            }
            facts
        }
    }
}

fn tiles(report: &PrepareReport) -> Vec<Tile> {
    let plain = |name: &str, value: String, hint: Option<String>| Tile {
        name: Shown::of(name),
        value,
        hint: hint.map(|hint| Shown::of(&hint)),
        ..Tile::default()
    };
    let shards = plain("Shards", report.shard_bytes.to_string(), None);
    match &report.stage {
        PrepareStage::Tried {
            input_bytes,
            run_bytes,
            free_bytes,
            time,
            ..
        } => {
            let needed = Bytes(report.shard_bytes.get().saturating_add(run_bytes.get()));
            let time_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            vec![
                plain("Input", input_bytes.to_string(), None),
                Tile {
                    hint: Some(Shown::of(&format!("and {run_bytes} of temporary runs"))),
                    ..shards
                },
                match free_bytes {
                    Some(free) => Tile::of_memory("Disk space", needed, Some(*free), "shm"),
                    None => plain("Object store", needed.to_string(), None),
                },
                plain(
                    "CPU time",
                    format!("about {}", exact(time_ms)),
                    Some("to map; from a trial of the first task".to_owned()),
                ),
            ]
        }
        PrepareStage::Finished {
            peak,
            documents,
            tokens,
            dropped_tokens,
            skipped,
            ..
        } => {
            let mut tiles = vec![shards];
            if *documents > 0 {
                let dropped = number(*dropped_tokens);
                tiles.push(plain(
                    "Tokens",
                    number(*tokens),
                    Some(format!(
                        "of {} documents; {dropped} at the end fill no block",
                        number(*documents)
                    )),
                ));
            }
            tiles.push(plain("Samples skipped", number(*skipped), None));
            if let Some(peak) = peak {
                tiles.push(Tile {
                    hint: Some(Shown::of("the budget does not include the program itself")),
                    ..Tile::of_memory("Memory peak", *peak, Some(report.memory), "host")
                });
            }
            tiles
        }
    }
}

fn number(value: u64) -> String {
    grouped(&value.to_string())
}
