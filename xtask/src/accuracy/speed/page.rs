//! The part of the speed on the page of the accuracy.

use std::fmt::Write as _;

use brimful::speed::{FITTED, Parameter, Parameters};

use super::scores::{ClassScore, Score, Scores};

/// Families that are named.
const NAMED: usize = 16;

pub(super) fn part(scores: &Scores) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "\nSamples per second, predicted from one captured step, against published measurements of real GPUs. The\n\
         parameters come from {}. \"Family left out\" predicts each model with parameters that saw no model of its\n\
         family. The models were built by {}; {} rows could not be built.\n",
        FITTED.split, scores.versions, scores.left_out
    );
    table(&mut out, "Measurements", &scores.tables);
    let pairs: Vec<String> = scores
        .pairs
        .iter()
        .map(|(set, pairs)| format!("{set} {} of {}", pairs.right, pairs.all))
        .collect();
    let _ = writeln!(
        out,
        "\nPairs of GPUs with the same training in the right order: {}.\n",
        pairs.join(", ")
    );
    let _ = writeln!(
        out,
        "NVIDIA's examples (DeepLearningExamples at 729963d, one GPU; fused optimizers and layers there, plain PyTorch here).\n\
         BERT with 512 tokens in fp32 was measured at more than the V100 can compute (its table would be 20 TFLOP/s of 15.7):\n\
         those runs left work out, and the prediction is too low.\n\n\
         | GPU | Training | Error |\n|---|---|---|"
    );
    for (gpu, label, error) in &scores.examples {
        let _ = writeln!(out, "| {gpu} | {label} | {:+.0} % |", error * 100.0);
    }
    let _ = writeln!(
        out,
        "\nSimpler rules, on the timm rows, each with one constant fitted to them:\n"
    );
    table(&mut out, "Rule", &scores.baselines);
    let _ = writeln!(
        out,
        "\nPublished for comparison, each on its own rows: NeuSight 6.2 % median (it needs captures made by its own\n\
         tool), Habitat 11.8 % (needs a GPU). Two measurements of the same models on the same RTX 3090 with PyTorch 1.11\n\
         and 1.12 differ by 2.5 % (median): less than about 5 % means nothing.\n"
    );
    let _ = writeln!(
        out,
        "Where it is most wrong, by family left out (median error of the family):\n"
    );
    let _ = writeln!(out, "| Family | Rows | Error |\n|---|---|---|");
    for (family, rows, error) in scores.families.iter().take(NAMED) {
        let _ = writeln!(out, "| {family} | {rows} | {:+.0} % |", error * 100.0);
    }
    classes(&mut out, &scores.classes);
    let _ = writeln!(
        out,
        "\nWhat limits it: convolutions of groups with channels last, which cuDNN of 2022 computed at very different\n\
         rates by the size of a group; depthwise kernels of other sizes than 3 and 5; models whose code has changed since\n\
         the measurement (tresnet, ecaresnext).\n\n\
         Lambda's Transformer-XL was measured 1.4 to 2 times slower than NVIDIA's own runs of it on the same GPUs; against\n\
         those the prediction is closer (table above). SSD300 in fp16 is predicted 1.3 to 1.6 times too fast on A100 and H100, and\n\
         BERT finetuning on A100 1.4 to 1.6 times; why is not known.\n\n\
         Neither these nor BERT with 512 tokens decide the ranges that `brimful predict` shows.\n\n\
         LitGPT's rows are launch-bound: their times hardly depend on the batch. They decide what one call of the host costs\n\
         ({:.0} µs on the server where they ran), and are the only rows in bfloat16. The lengths of their samples are not\n\
         published (128 tokens are assumed).\n\n\
         Not scored: checkpointing and `torch.compile` (fewer than ten public rows each: torchtune has five, all compiled),\n\
         LitGPT's configurations (run times with evaluations in them), and tensor-core training on T4 and L4 (no public rows).",
        Parameters::fitted().get(Parameter::HostCall)
    );
    out
}

fn classes(out: &mut String, scores: &[ClassScore]) {
    let _ = writeln!(
        out,
        "\nBy class of operator. Published times are of whole steps, except for NeuSight's kernels; a row is counted with\n\
         the class that takes most of its predicted time. The median with its sign is above\n\
         zero where the predicted rates are too high.\n\n\
         | Class | Measurements | Rows | Median with its sign | Median error | 90 % are below |\n|---|---|---|---|---|---|"
    );
    for score in scores {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {:+.0} % | {:.1} % | {:.1} % |",
            score.class,
            score.set,
            score.errors.rows,
            score.errors.bias * 100.0,
            score.errors.median * 100.0,
            score.errors.p90 * 100.0
        );
    }
}

fn table(out: &mut String, title: &str, scores: &[Score]) {
    let _ = writeln!(
        out,
        "| {title} | Rows | Median error | 90 % are below | Worst | Within 2x |\n|---|---|---|---|---|---|"
    );
    for score in scores {
        let _ = writeln!(
            out,
            "| {} | {} | {:.1} % | {:.1} % | {:.0} % | {:.1} % |",
            score.title,
            score.errors.rows,
            score.errors.median * 100.0,
            score.errors.p90 * 100.0,
            score.errors.worst * 100.0,
            score.within_twice * 100.0
        );
    }
}
