//! The page for readers.

use std::fmt::Write;

use super::findings::{Findings, Group};
use super::score::Errors;

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// What each group is, in words.
fn described(name: &str) -> (&'static str, &'static str) {
    match name {
        "timm transformer" => (
            "timm transformers and MLP mixers",
            "used memory of an A100 40 GB",
        ),
        "timm cnn" => (
            "timm convolutional networks and hybrids",
            "used memory of an A100 40 GB",
        ),
        "mlp" => (
            "random multilayer perceptrons",
            "used memory of an A100 40 GB",
        ),
        "xmem cnn" => (
            "torchvision networks (xMem)",
            "growth of used memory, RTX 3060 and 4060",
        ),
        "xmem transformer" => (
            "Hugging Face models (xMem)",
            "growth of used memory, RTX 3060, 4060, A100",
        ),
        "attention" => ("one attention layer", "allocated after the forward"),
        "litgpt tables" => (
            "language models, LitGPT's resource tables",
            "peak allocated, A100 40 GB",
        ),
        "litgpt configurations" => (
            "language models, LitGPT's configurations",
            "peak allocated, A10G",
        ),
        _ => ("other", "see the set"),
    }
}

pub(super) fn page(findings: &Findings) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write_page(&mut out, findings);
    out
}

fn write_page(out: &mut String, findings: &Findings) -> std::fmt::Result {
    writeln!(out, "# Accuracy\n")?;
    writeln!(
        out,
        "How close predictions come to measurements that other people made on real GPUs.\n\
         Made by `cargo xtask accuracy --truth DIR --python PATH`; DIR holds the measurements, PATH a Python with {}.",
        findings.versions
    )?;
    if let Some(sample) = findings.sample {
        writeln!(out, "This is a sample of {sample} rows per set.")?;
    }
    writeln!(
        out,
        "One prediction takes {:.1} s on average, once PyTorch is imported.\n",
        findings.seconds_per_row
    )?;
    writeln!(
        out,
        "Each measured run's script was rebuilt from what its source says, and ran for four steps on the phantom GPU as \
         the card it was measured on.\n\
         Details that the sources leave open were chosen on one half of the models, by a hash of the name; the tables \
         show the other half unless they say otherwise.\n"
    )?;
    caveats(out, findings)?;
    likely(out, findings)?;
    beside_others(out, findings)?;
    sides(out, findings)?;
    safe(out, findings)?;
    out_of_memory(out, findings)?;
    exact(out, findings)?;
    outside(out, findings)?;
    left_out(out, findings)
}

/// What a reader must know before believing the tables.
fn caveats(out: &mut String, findings: &Findings) -> std::fmt::Result {
    let has = |name: &str| findings.groups.iter().any(|group| group.name == name);
    out.write_str(
        "Before you believe the tables:\n\n\
         - The timm runs had `cudnn.benchmark` on, which picks convolutions by time. Here 1x1 convolutions get no \
         workspace and the others what cuDNN's heuristics name, which is what `brimful predict` does with that \
         setting. With the heuristics throughout, about 150 convolutional rows of the calibration half had \
         a median error of 2.3 % and a p90 of 12.1 %; with the rule 1.3 % and 4.7 %.\n\
         - Autotuning likely also leaves behind the memory of what it tried and did not choose: mobilevitv2_100 \
         measured 19 GiB at batch 8 and 14 GiB at batch 32. That is not foretold; such rows are the worst of their \
         set, too low by up to 84 %.\n\
         - The halves are clean for timm only. For xMem and the perceptrons the position of `zero_grad` and the life \
         of a batch were settled after looking at rows of both halves.\n\
         - The attention layer and the course's language model were written by reading the very records they are \
         compared with. They show that the phantom allocates as a card does, not that the program could be guessed.\n\
         - The margin for convolutions chosen by timing (12 %) covers 97 % of the calibration half; the others are \
         the ones that the product had before.\n",
    )?;
    if has("litgpt tables") || has("litgpt configurations") {
        out.write_str(
            "- LitGPT's models and loops were written from its public repository as it was when each table was \
             measured; nothing was chosen by looking at the figures, so every row is a test. The source names all that \
             decides memory, which few sources do. It measured with older releases of PyTorch.\n",
        )?;
    }
    if has("litgpt tables") {
        out.write_str(
            "- The resource tables' LoRA rows of Llama 2 come out 3 to 5 % low. Their commit computes norms in \
             bfloat16. Norms in full precision, which the repository has had since eight days later, would bring each \
             to within 0.1 %; they are scored as the commit says.\n",
        )?;
    }
    if has("litgpt configurations") {
        out.write_str(
            "- Three rows of full finetuning are left out of LitGPT's configurations: their figures are below weights, \
             gradients and both moments of AdamW, so another program made them \
             ([litgpt#1555](https://github.com/Lightning-AI/litgpt/issues/1555) wonders about one).\n",
        )?;
    }
    writeln!(out)
}

fn shown(errors: &Errors) -> String {
    format!(
        "{} | {} | {} | {} | {} | {} | {}",
        errors.rows,
        errors.models,
        percent(errors.median),
        percent(errors.p90),
        percent(errors.worst),
        percent(errors.median_by_model),
        percent(errors.p90_by_model)
    )
}

fn likely(out: &mut String, findings: &Findings) -> std::fmt::Result {
    writeln!(out, "## The likely value\n")?;
    writeln!(
        out,
        "| set | truth | rows | models | median error | p90 | worst | median by model | p90 by model |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|---|---|---|")?;
    for group in &findings.groups {
        let (name, truth) = described(group.name);
        if let Some(errors) = &group.test_half {
            writeln!(out, "| {name} | {truth} | {} |", shown(errors))?;
        }
        let half = group.test_half.as_ref().map_or(0, |half| half.rows);
        if let Some(errors) = group.all.as_ref().filter(|all| all.rows > half) {
            writeln!(out, "| … both halves | | {} |", shown(errors))?;
        }
        if let Some(errors) = group
            .with_odd
            .as_ref()
            .filter(|odd| group.all.as_ref().is_some_and(|all| odd.rows > all.rows))
        {
            writeln!(
                out,
                "| … and rows off their model's trend | | {} |",
                shown(errors)
            )?;
        }
    }
    writeln!(out)
}

fn beside_others(out: &mut String, findings: &Findings) -> std::fmt::Result {
    writeln!(out, "## Beside other estimates\n")?;
    writeln!(
        out,
        "All on the rows for which the source lists that estimate, both halves of the models."
    )?;
    writeln!(
        out,
        "`1750 + 2P + FakeTensor` is the sum of a constant fitted on these rows, two copies of the weights,"
    )?;
    writeln!(
        out,
        "and the source's FakeTensor peak; it costs nothing to make.\n"
    )?;
    writeln!(
        out,
        "| set | estimate | rows | median error | p90 | worst | too low |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|---|")?;
    let line = |out: &mut String, set: &str, name: &str, errors: &Errors| {
        writeln!(
            out,
            "| {set} | {name} | {} | {} | {} | {} | {} |",
            errors.rows,
            percent(errors.median),
            percent(errors.p90),
            percent(errors.worst),
            percent(errors.under.share)
        )
    };
    for group in findings
        .groups
        .iter()
        .filter(|group| !group.others.is_empty())
    {
        let (name, _) = described(group.name);
        if let Some(errors) = &group.all {
            line(out, name, "**brimful**", errors)?;
        }
        for (other, [_, all]) in &group.others {
            if let Some(errors) = all {
                line(out, name, other, errors)?;
            }
        }
    }
    writeln!(out)
}

fn sides(out: &mut String, findings: &Findings) -> std::fmt::Result {
    writeln!(out, "## Too high and too low\n")?;
    writeln!(
        out,
        "An estimate that is too low is the one that costs a run.\n"
    )?;
    writeln!(
        out,
        "| set | too high | median | p90 | worst | too low | median | p90 | worst | too low by over 5 % |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|---|---|---|---|")?;
    for group in &findings.groups {
        if let Some(Errors { over, under, .. }) = &group.test_half {
            writeln!(
                out,
                "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
                described(group.name).0,
                percent(over.share),
                percent(over.median),
                percent(over.p90),
                percent(over.worst),
                percent(under.share),
                percent(under.median),
                percent(under.p90),
                percent(under.worst),
                percent(under.share_over_five_percent)
            )?;
        }
    }
    writeln!(out, "\nFarthest from the truth, of both halves:\n")?;
    for group in &findings.groups {
        let rows: Vec<_> = group
            .worst
            .iter()
            .map(|(label, error)| format!("{label} ({:+.1} %)", error * 100.0))
            .collect();
        writeln!(out, "- {}: {}", described(group.name).0, rows.join("; "))?;
    }
    writeln!(out)
}

fn safe(out: &mut String, findings: &Findings) -> std::fmt::Result {
    writeln!(out, "## The safe value\n")?;
    writeln!(
        out,
        "The likely value, a margin on reserved memory, and a margin on the context.\n"
    )?;
    writeln!(
        out,
        "| set | rows | margin | measured above the safe value | safe value above the measurement, median |"
    )?;
    writeln!(out, "|---|---|---|---|---|")?;
    let (mut rows, mut exceeded) = (0, 0.0);
    for Group { name, safe, .. } in &findings.groups {
        if let Some(safe) = safe {
            rows += safe.rows;
            exceeded += safe.exceeded * safe.rows as f64;
            writeln!(
                out,
                "| {} | {} | {} | {} | {} |",
                described(name).0,
                safe.rows,
                percent(safe.margin),
                percent(safe.exceeded),
                percent(safe.median_above)
            )?;
        }
    }
    writeln!(
        out,
        "| all | {rows} | | {} | |\n",
        percent(exceeded / rows.max(1) as f64)
    )
}

fn out_of_memory(out: &mut String, findings: &Findings) -> std::fmt::Result {
    writeln!(out, "## Out of memory, yes or no\n")?;
    writeln!(
        out,
        "Recorded: the source says that the run died. Inferred: its figure is at the card's limit, or is far"
    )?;
    writeln!(out, "below what the model's smaller batches need.\n")?;
    writeln!(
        out,
        "| set | recorded deaths foretold | inferred deaths foretold | runs that finished, called impossible |"
    )?;
    writeln!(out, "|---|---|---|---|")?;
    for group in &findings.groups {
        let found = &group.out_of_memory;
        writeln!(
            out,
            "| {} | {} of {} | {} of {} | {} of {} |",
            described(group.name).0,
            found.died_by_record_foretold,
            found.died_by_record,
            found.died_by_inference_foretold,
            found.died_by_inference,
            found.ran_but_called_impossible,
            found.ran
        )?;
    }
    writeln!(out)
}

fn exact(out: &mut String, findings: &Findings) -> std::fmt::Result {
    if let Some(replays) = &findings.replays {
        writeln!(out, "## The allocator, replayed\n")?;
        writeln!(
            out,
            "Recorded allocator events of real cards, given only where the driver put new segments:\n"
        )?;
        writeln!(out, "| | equal | of |\n|---|---|---|")?;
        for (what, same, all) in [
            (
                "addresses of allocations",
                replays.same_address,
                replays.allocations,
            ),
            (
                "new segments, need and size",
                replays.same_segments,
                replays.segments,
            ),
            (
                "segments given back",
                replays.same_segment_frees,
                replays.segment_frees,
            ),
            (
                "layouts at the end",
                replays.same_final_layout,
                replays.snapshots,
            ),
            (
                "peaks of allocated bytes",
                replays.same_peak_allocated,
                replays.snapshots,
            ),
            (
                "peaks of reserved bytes",
                replays.same_peak_reserved,
                replays.snapshots,
            ),
        ] {
            writeln!(out, "| {what} | {same} | {all} |")?;
        }
        writeln!(out)?;
    }
    if findings.rebuilt.is_empty() {
        return Ok(());
    }
    writeln!(out, "## A language model, rebuilt\n")?;
    writeln!(
        out,
        "A course's language model of 423 million parameters, written again from its description; one step's"
    )?;
    writeln!(
        out,
        "allocations and frees, in their order, beside those that a real card recorded.\n"
    )?;
    writeln!(
        out,
        "| record | events | identical in a row | peak allocated | difference | reserved, difference |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|")?;
    for rebuilt in &findings.rebuilt {
        let difference = |found: u64, truth: u64| i128::from(found) - i128::from(truth);
        writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} |",
            rebuilt.id,
            rebuilt.events,
            rebuilt.identical,
            rebuilt.peak_allocated,
            difference(rebuilt.own_peak_allocated, rebuilt.peak_allocated),
            difference(rebuilt.own_peak_reserved, rebuilt.peak_reserved)
        )?;
    }
    writeln!(
        out,
        "\nWhere every event is the same and a peak is not, the blocks lay elsewhere when the record began: a block\n\
         that is too large by less than 1 MiB is not split, and counts as a whole. The steps before the record were\n\
         not recorded. PyTorch 2.11.0, which made the records, gives these same figures on the phantom.\n"
    )
}

fn outside(out: &mut String, findings: &Findings) -> std::fmt::Result {
    writeln!(out, "## The context\n")?;
    writeln!(
        out,
        "What a process holds outside of the allocator belongs to the software stack."
    )?;
    writeln!(
        out,
        "It is the median over the five smallest models of the calibration half, which are not scored:"
    )?;
    for (set, mebibytes) in &findings.contexts_mib {
        if findings.assumed_contexts.contains(set) {
            writeln!(
                out,
                "{mebibytes} MiB for {set}, assumed: these measurements have too few models to take it from."
            )?;
        } else {
            writeln!(out, "{mebibytes} MiB for {set}.")?;
        }
    }
    writeln!(
        out,
        "The xMem figures are growth after the context was there; nothing is added.\n"
    )
}

fn left_out(out: &mut String, findings: &Findings) -> std::fmt::Result {
    writeln!(out, "## Rows left out\n")?;
    if findings.left_out.is_empty() {
        writeln!(out, "None.")?;
    } else {
        writeln!(out, "| set | reason | rows |\n|---|---|---|")?;
    }
    for (set, reason, count) in &findings.left_out {
        writeln!(out, "| {set} | {} | {count} |", reason.replace('|', "/"))?;
    }
    if !findings.absent.is_empty() {
        writeln!(
            out,
            "\nSets that DIR does not have, or that cannot be read:\n"
        )?;
    }
    for absent in &findings.absent {
        writeln!(out, "- {}", absent.replace('\n', " "))?;
    }
    Ok(())
}
