//! What a process holds outside of PyTorch's allocator, against what out-of-memory messages tell of it.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context as _, Result};
use brimful::cards::{self, Card};
use brimful::predict::{LoadedLibraries, context};
use brimful_allocsim::version::TorchVersion;
use serde::Serialize;

use super::Options;
use super::score::quantile;
use super::table::{self, Cells};
use super::text::hash;

const FILE: &str = "real-runs/context_from_oom_messages.csv";
const MIB: f64 = 1_048_576.0;
/// A message tells the card by its capacity: the commonest one of each. Small GeForces of one capacity differ by three
/// times and are left out.
const CARDS: [(&str, &str); 18] = [
    ("A100 40", "a100-40gb"),
    ("A100 80", "a100-80gb"),
    ("A100 80 (or H100)", "a100-80gb"),
    ("B200", "b200"),
    ("H100 80", "h100-80gb"),
    ("H100 80 (driver 570+)", "h100-80gb"),
    ("H200", "h200"),
    ("L4 / A10 / A10G", "a10g"),
    ("L40S / L40 / A40 / 6000 Ada (ECC on)", "l40s"),
    ("RTX 3080 10", "rtx-3080-10gb"),
    ("RTX 3090", "rtx-3090"),
    ("RTX 4090 / 3090 (display)", "rtx-4090"),
    ("RTX 4090 / 3090 (newer driver)", "rtx-4090"),
    ("RTX 5090", "rtx-5090"),
    ("RTX A6000 / 48 GB consumer mod / RTX 8000", "rtx-a6000"),
    ("RTX PRO 6000", "rtx-pro-6000"),
    ("T4", "t4"),
    ("V100 32", "v100-sxm2-32gb"),
];
/// A message whose figures miss more than this contradicts itself.
const MAX_MISSING_MIB: f64 = 60.0;

/// Prints how well contexts are predicted.
pub(crate) fn run(options: &Options) -> Result<()> {
    let found = scores(&options.truth)?
        .with_context(|| format!("expected {FILE} in {}", options.truth.display()))?;
    if options.json {
        println!("{}", serde_json::to_string_pretty(&found)?);
    } else {
        let mut out = String::new();
        write_scores(&mut out, &found)?;
        println!("{out}");
    }
    Ok(())
}

/// How well contexts are predicted.
#[derive(Debug, Serialize)]
pub(super) struct ContextScores {
    fitted: ContextScore,
    scored: ContextScore,
    left_out: usize,
}

/// The processes of one half of the sources.
#[derive(Debug, Serialize)]
struct ContextScore {
    processes: usize,
    median_error_mib: f64,
    p90_error_mib: f64,
    /// Share above the safe value without cuDNN, and with it.
    exceeded: [f64; 2],
}

/// MiB of one process.
struct Process {
    is_for_calibration: bool,
    measured: f64,
    likely: f64,
    /// Without cuDNN, and with it: the messages do not tell.
    safe: [f64; 2],
}

/// Nothing where there are no messages.
pub(super) fn scores(truth: &Path) -> Result<Option<ContextScores>> {
    let Some(table) = table::read(&truth.join(FILE))? else {
        return Ok(None);
    };
    let processes: Vec<Process> = table.rows.iter().filter_map(process).collect();
    let half = |is_for_calibration: bool| {
        let half = processes
            .iter()
            .filter(|process| process.is_for_calibration == is_for_calibration);
        score(&half.collect::<Vec<_>>())
    };
    Ok(Some(ContextScores {
        fitted: half(true),
        scored: half(false),
        left_out: table.rows.len() - processes.len(),
    }))
}

fn score(processes: &[&Process]) -> ContextScore {
    let errors: Vec<f64> = processes
        .iter()
        .map(|process| (process.likely - process.measured).abs())
        .collect();
    let exceeded = |which: usize| {
        let above = processes
            .iter()
            .filter(|process| process.measured > process.safe[which]);
        above.count() as f64 / processes.len().max(1) as f64
    };
    ContextScore {
        processes: processes.len(),
        median_error_mib: quantile(&errors, 0.5),
        p90_error_mib: quantile(&errors, 0.9),
        exceeded: [exceeded(0), exceeded(1)],
    }
}

fn process(row: &Cells) -> Option<Process> {
    let text = |name: &str| row.get(name).map(String::as_str);
    let number = |name: &str| text(name)?.parse::<f64>().ok();
    // NCCL and libraries that allocate by themselves come on top of a context.
    let is_plain = text("multi_gpu_or_special") == Some("0");
    let adds_up = number("closure_mib").is_none_or(|missing| missing >= -MAX_MISSING_MIB);
    if !(is_plain && adds_up) {
        return None;
    }
    let card = card(text("family_by_capacity")?, text("card_stated"))?;
    let torch = match text("torch_by_wording") {
        Some("2.1-2.2") => TorchVersion::new(2, 2),
        _ => TorchVersion::NEWEST_CHECKED,
    };
    let predicted = |cudnn: bool| {
        context(
            card.multiprocessors.value,
            card.compute_capability,
            LoadedLibraries { torch, cudnn },
        )
    };
    let mib = |bytes: brimful::units::Bytes| bytes.get() as f64 / MIB;
    Some(Process {
        is_for_calibration: hash(text("source")?).is_multiple_of(2),
        measured: number("outside_torch_mib")?,
        likely: mib(predicted(false).likely),
        safe: [mib(predicted(false).safe), mib(predicted(true).safe)],
    })
}

fn card(family: &str, stated: Option<&str>) -> Option<&'static Card> {
    let (_, commonest) = CARDS.iter().find(|(known, _)| *known == family)?;
    stated
        .and_then(|name| cards::find(name).ok())
        .or_else(|| cards::find(commonest).ok())
}

pub(super) fn write_scores(out: &mut String, found: &ContextScores) -> std::fmt::Result {
    writeln!(
        out,
        "`brimful predict` computes the context from the GPU model. PyTorch's out-of-memory messages tell how much a \
         process holds in all, and how much of it PyTorch. The constants were fitted to one half of the sources of public \
         messages, chosen by a hash; the other half is scored. {} messages are not used: NCCL or another library takes a \
         share, the GPU model is unknown, or the values contradict each other. The messages do not tell whether the \
         process used cuDNN, with which the safe value is higher.\n",
        found.left_out
    )?;
    writeln!(
        out,
        "| half | processes | median error | p90 | above the safe value without cuDNN | above the safe value with cuDNN |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|")?;
    for (name, score) in [("fitted", &found.fitted), ("scored", &found.scored)] {
        writeln!(
            out,
            "| {name} | {} | {:.0} MiB | {:.0} MiB | {:.1} % | {:.1} % |",
            score.processes,
            score.median_error_mib,
            score.p90_error_mib,
            score.exceeded[0] * 100.0,
            score.exceeded[1] * 100.0
        )?;
    }
    writeln!(
        out,
        "\nThe largest errors are processes that hold 0.7 to 1.8 GiB more than others on the same GPU model; the messages do \
         not tell for what."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "family_by_capacity,card_stated,outside_torch_mib,closure_mib,torch_by_wording,\
                          multi_gpu_or_special,source\n";

    fn processes(rows: &str) -> Vec<Process> {
        let table = table::parse(&format!("{HEADER}{rows}"));
        table.rows.iter().filter_map(process).collect()
    }

    #[test]
    fn every_family_has_its_card() {
        for (family, _) in CARDS {
            assert!(card(family, None).is_some(), "{family}");
        }
        assert_eq!(card("L4 / A10 / A10G", Some("A10")).unwrap().id, "a10");
    }

    #[test]
    fn messages_that_do_not_tell_a_context_are_left_out() {
        assert_eq!(processes("T4,,150,2,2.8-2.9,0,a\n").len(), 1);
        for row in [
            "T4,,1710,2,2.8-2.9,1,NCCL\n",
            "T4,,150,-3942,2.8-2.9,0,contradiction\n",
            "8 GB GeForce,,150,2,2.8-2.9,0,many\n",
            "T4,,150,2,2.8-2.9,0,\n",
        ] {
            assert!(processes(row).is_empty(), "{row}");
        }
    }

    #[test]
    fn old_releases_have_more_room() {
        let found = processes("T4,,1012,0,2.1-2.2,0,a\nT4,,1012,0,2.3-2.9,0,a\n");
        assert!(found[0].measured < found[0].safe[0]);
        assert!(found[1].measured > found[1].safe[1]);
        let score = score(&found.iter().collect::<Vec<_>>());
        assert!(
            score
                .exceeded
                .iter()
                .all(|share| (share - 0.5).abs() < 1e-9)
        );
    }
}
