//! The measured speeds, and the job that rebuilds each.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use brimful::speed::{CapturedOp, CapturedStep};
use serde_json::json;

use super::super::table::{self, Cells};
use super::super::text::hash;
use super::super::workers::{RunOn, WorkerJob};
use super::gpus;

/// One measured speed.
#[derive(Clone, Debug)]
pub(super) struct SpeedRow {
    pub(super) set: Set,
    pub(super) model: String,
    /// Models of one kind, such as all of `resnet`.
    pub(super) family: String,
    /// By the name of the catalogue.
    pub(super) gpu: &'static str,
    pub(super) label: String,
    /// Measured seconds of one step.
    pub(super) seconds: f64,
    /// Samples of one step.
    pub(super) samples: f64,
    pub(super) work: Work,
}

/// Where the operators come from.
#[derive(Clone, Debug)]
pub(super) enum Work {
    /// They are captured.
    Job(WorkerJob),
    /// One kernel.
    Kernel(Box<CapturedStep>),
}

/// A table of measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Set {
    TimmNchw,
    TimmNhwc,
    NeuSight,
    /// Inference of timm on the GPU of the trainings.
    Inference,
    /// The same on other GPUs.
    InferenceElsewhere,
    /// NVIDIA's own examples.
    Nvidia,
    NeuSightKernels,
}

impl Set {
    pub(super) fn title(self) -> &'static str {
        match self {
            Set::TimmNchw => "timm training, NCHW",
            Set::TimmNhwc => "timm training, NHWC",
            Set::NeuSight => "NeuSight end to end",
            Set::Inference => "timm inference, RTX 3090",
            Set::InferenceElsewhere => "timm inference, RTX 4090, 5090 and PRO 6000",
            Set::Nvidia => "NVIDIA's examples, A100 and V100",
            Set::NeuSightKernels => "NeuSight fp32 kernels",
        }
    }
}

const STEPS: u32 = 2;
/// Of the kernels of one kind on one GPU, so many decide.
const KERNELS_PER_KIND: usize = 120;
/// One of so many models decides for inference.
const INFERENCE_SHARE: u64 = 6;

/// Everything that a directory of measured speeds holds.
pub(super) fn read(truth: &Path) -> Result<Vec<SpeedRow>> {
    let folder = truth.join("speed");
    let mut rows = timm(&folder)?;
    rows.extend(neusight(&folder)?);
    rows.extend(inference(&folder)?);
    rows.extend(nvidia(&folder));
    rows.extend(kernels(&folder)?);
    Ok(rows)
}

fn cells_of(path: &Path) -> Result<Vec<Cells>> {
    Ok(table::read(path)
        .with_context(|| path.display().to_string())?
        .map(|table| table.rows)
        .unwrap_or_default())
}

fn number(cells: &Cells, column: &str) -> Option<f64> {
    let found: f64 = cells.get(column)?.trim().parse().ok()?;
    (found.is_finite() && found > 0.0).then_some(found)
}

fn text<'a>(cells: &'a Cells, column: &str) -> &'a str {
    cells.get(column).map_or("", String::as_str)
}

fn job(program: &'static str, settings: serde_json::Value) -> Work {
    Work::Job(WorkerJob {
        // Captured operators do not depend on the GPU's size.
        place: RunOn {
            device: "name=NVIDIA GeForce RTX 3090,memory=25769803776,room=1000000000000,held=0,cc=8.6,multiprocessors=82".to_owned(),
            workspaces: false,
        },
        program,
        settings,
    })
}

/// The newest measurement of each model and layout.
fn timm(folder: &Path) -> Result<Vec<SpeedRow>> {
    let mut newest: BTreeMap<(String, String), Cells> = BTreeMap::new();
    for cells in cells_of(&folder.join("timm_train.csv"))? {
        let key = (
            text(&cells, "model").to_owned(),
            text(&cells, "layout").to_owned(),
        );
        let is_newer = newest
            .get(&key)
            .is_none_or(|known| text(known, "torch") < text(&cells, "torch"));
        if is_newer {
            newest.insert(key, cells);
        }
    }
    let row = |((model, layout), cells): ((String, String), Cells)| {
        let (batch, image) = (number(&cells, "batch_size")?, number(&cells, "img_size")?);
        let rate = number(&cells, "samples_per_sec")?;
        Some(SpeedRow {
            set: if layout == "nhwc" {
                Set::TimmNhwc
            } else {
                Set::TimmNchw
            },
            family: family(&model),
            gpu: gpus::of_truth(text(&cells, "card"))?,
            label: format!("{model}, {image:.0} px, batch {batch:.0}, {layout}"),
            seconds: batch / rate,
            samples: batch,
            work: job(
                "timm_benchmark",
                json!({"model": model, "image": whole(image), "batch": whole(batch), "layout": layout, "steps": STEPS, "capture": true}),
            ),
            model,
        })
    };
    Ok(newest.into_iter().filter_map(row).collect())
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sizes of a table, checked to be positive"
)]
fn whole(number: f64) -> u64 {
    number as u64
}

/// Models of one kind: the letters in front, without the name of whoever trained it.
fn family(model: &str) -> String {
    const TRAINERS: [&str; 9] = [
        "tf_", "gluon_", "swsl_", "ssl_", "ig_", "legacy_", "tv_", "adv_", "ens_",
    ];
    let mut rest = model;
    for trainer in TRAINERS {
        rest = rest.strip_prefix(trainer).unwrap_or(rest);
    }
    let end = rest
        .find(|c: char| !c.is_ascii_alphabetic())
        .unwrap_or(rest.len());
    rest[..end.max(1)].to_owned()
}

fn neusight(folder: &Path) -> Result<Vec<SpeedRow>> {
    let row = |cells: Cells| {
        if !text(&cells, "option").is_empty() {
            return None;
        }
        let (model, mode) = (
            text(&cells, "model").to_owned(),
            text(&cells, "mode").to_owned(),
        );
        let (batch, sequence) = (number(&cells, "batch_size")?, number(&cells, "seqlen")?);
        Some(SpeedRow {
            set: Set::NeuSight,
            family: model.clone(),
            gpu: gpus::of_truth(text(&cells, "card"))?,
            label: format!("{model}, {mode}, {sequence:.0} tokens, batch {batch:.0}"),
            seconds: number(&cells, "step_ms")? / 1e3,
            samples: batch,
            work: job(
                "neusight",
                json!({"model": model, "mode": mode, "sequence": whole(sequence), "batch": whole(batch), "steps": STEPS, "capture": true}),
            ),
            model,
        })
    };
    let cells = cells_of(&folder.join("neusight_e2e.csv"))?;
    Ok(cells.into_iter().filter_map(row).collect())
}

/// The rows of a packed table; none if there is no such file.
fn unpacked(path: &Path) -> Result<Vec<Cells>> {
    if !path.is_file() {
        return Ok(Vec::new());
    }
    let output = Command::new("gzip")
        .arg("-dc")
        .arg(path)
        .output()
        .context("gzip could not be started")?;
    Ok(table::parse(&String::from_utf8_lossy(&output.stdout)).rows)
}

/// A sample of timm's inference, without compilation.
fn inference(folder: &Path) -> Result<Vec<SpeedRow>> {
    let mut newest: BTreeMap<(String, String, String), Cells> = BTreeMap::new();
    for cells in unpacked(&folder.join("timm_infer.csv.gz"))? {
        let is_wanted = text(&cells, "compiled") == "False"
            && text(&cells, "precision") == "amp"
            && text(&cells, "torch") >= "pt2"
            && hash(text(&cells, "model")).is_multiple_of(INFERENCE_SHARE);
        let key = ["card", "layout", "model"].map(|column| text(&cells, column).to_owned());
        let key: (String, String, String) = key.into();
        let is_newer = newest
            .get(&key)
            .is_none_or(|known| text(known, "torch") < text(&cells, "torch"));
        if is_wanted && is_newer {
            newest.insert(key, cells);
        }
    }
    let row = |((card, layout, model), cells): ((String, String, String), Cells)| {
        let (batch, image) = (number(&cells, "batch_size")?, number(&cells, "img_size")?);
        Some(SpeedRow {
            set: if card == "rtx3090" {
                Set::Inference
            } else {
                Set::InferenceElsewhere
            },
            family: family(&model),
            gpu: gpus::of_truth(&card)?,
            label: format!("{model}, {image:.0} px, batch {batch:.0}, {layout}"),
            seconds: batch / number(&cells, "samples_per_sec")?,
            samples: batch,
            work: job(
                "timm_inference",
                json!({"model": model, "image": whole(image), "batch": whole(batch), "layout": layout, "steps": STEPS, "capture": true}),
            ),
            // The name without the tag of its weights.
            model: model.split('.').next().unwrap_or(&model).to_owned(),
        })
    };
    Ok(newest.into_iter().filter_map(row).collect())
}

/// One GPU of NVIDIA's examples, without the sequences of 512 tokens, whose padding is counted but not computed: program, settings without precision, GPU, precision, batch, samples per second. The
/// batch sizes of the classifiers are those of the examples' scripts.
const NVIDIA: &[(&str, &str, &str, u64, f64)] = &[
    ("resnet50", "a100-80gb", "tf32", 256, 938.0),
    ("resnet50", "a100-80gb", "amp", 256, 2470.0),
    ("resnet50", "v100-sxm2-16gb", "fp32", 128, 367.0),
    ("resnet50", "v100-sxm2-16gb", "amp", 256, 1200.0),
    ("resnext101", "a100-80gb", "tf32", 128, 456.0),
    ("resnext101", "a100-80gb", "amp", 128, 1211.0),
    ("resnext101", "v100-sxm2-16gb", "fp32", 64, 147.0),
    ("resnext101", "v100-sxm2-16gb", "amp", 128, 587.0),
    ("bert pretraining 128", "a100-80gb", "tf32", 128, 317.0),
    ("bert pretraining 128", "a100-80gb", "fp16", 256, 580.0),
    ("bert finetuning 384", "a100-80gb", "tf32", 32, 61.5),
    ("bert finetuning 384", "a100-80gb", "fp16", 32, 110.5),
    ("bert pretraining 128", "v100-sxm2-32gb", "fp32", 32, 50.0),
    ("bert pretraining 128", "v100-sxm2-32gb", "fp16", 64, 224.0),
    ("bert finetuning 384", "v100-sxm2-32gb", "fp32", 8, 12.0),
    ("bert finetuning 384", "v100-sxm2-32gb", "fp16", 16, 52.0),
];

/// The rows of NVIDIA's examples for one GPU that were rebuilt, if the directory has their table.
fn nvidia(folder: &Path) -> Vec<SpeedRow> {
    if !folder.join("nvidia_examples_train.csv").is_file() {
        return Vec::new();
    }
    let row = |(model, gpu, precision, batch, rate): &(&str, &'static str, &str, u64, f64)| {
        let words: Vec<&str> = model.split(' ').collect();
        let work = match words[..] {
            ["bert", task, sequence] => job(
                "nvidia_bert",
                json!({"task": task, "sequence": sequence.parse::<u64>().unwrap_or(0), "precision": precision, "batch": batch, "steps": STEPS, "capture": true}),
            ),
            _ => job(
                "nvidia_convnet",
                json!({"model": model, "precision": precision, "batch": batch, "steps": STEPS, "capture": true}),
            ),
        };
        SpeedRow {
            set: Set::Nvidia,
            model: words[0].to_owned(),
            family: words[0].to_owned(),
            gpu,
            label: format!("{model}, {precision}, batch {batch}"),
            seconds: *batch as f64 / rate,
            samples: *batch as f64,
            work,
        }
    };
    NVIDIA.iter().map(row).collect()
}

/// Single kernels in fp32.
fn kernels(folder: &Path) -> Result<Vec<SpeedRow>> {
    let mut counts: BTreeMap<(String, &'static str), usize> = BTreeMap::new();
    let mut rows = Vec::new();
    for cells in unpacked(&folder.join("neusight_kernels_fp32.csv.gz"))? {
        let (Some(gpu), Some(milliseconds)) =
            (gpus::of_truth(text(&cells, "card")), number(&cells, "ms"))
        else {
            continue;
        };
        let kind = text(&cells, "op").to_owned();
        let Some(op) = kernel(&kind, &cells) else {
            continue;
        };
        let count = counts.entry((kind.clone(), gpu)).or_default();
        *count += 1;
        if *count > KERNELS_PER_KIND {
            continue;
        }
        rows.push(SpeedRow {
            set: Set::NeuSightKernels,
            model: kind.clone(),
            family: kind.clone(),
            gpu,
            label: format!("{kind} {:?}", op.shapes),
            seconds: milliseconds / 1e3,
            samples: 1.0,
            work: Work::Kernel(Box::new(CapturedStep {
                ops: vec![op],
                ..CapturedStep::default()
            })),
        });
    }
    Ok(rows)
}

fn kernel(kind: &str, cells: &Cells) -> Option<CapturedOp> {
    let size = |column| number(cells, column).map(whole);
    let op = |name: &str, shapes: Vec<Vec<u64>>, read: u64, written: u64| CapturedOp {
        op: format!("aten::{name}"),
        dtype: "float32".to_owned(),
        read_bytes: 4 * read,
        written_bytes: 4 * written,
        shapes,
        count: 1,
        ..CapturedOp::default()
    };
    Some(match kind {
        "linear" | "bmm" => {
            let (b, m, n, k) = (size("B").unwrap_or(1), size("M")?, size("N")?, size("K")?);
            let (read, written) = (b * (m * k + k * n), b * m * n);
            if kind == "bmm" {
                op("bmm", vec![vec![b, m, k], vec![b, k, n]], read, written)
            } else {
                op(
                    "mm",
                    vec![vec![b * m, k], vec![k, n]],
                    b * m * k + k * n,
                    written,
                )
            }
        }
        "softmax" => {
            let n = size("B")? * size("H")?;
            op("_softmax", vec![], n, n)
        }
        "ln" => {
            let n = size("B")? * size("H")?;
            op("native_layer_norm", vec![], n, n)
        }
        "add" | "mul" | "div" | "pow" => {
            let n = size("B")? * size("H")?;
            op(kind, vec![], 2 * n, n)
        }
        "addu" | "mulu" | "divu" | "powu" | "relu" | "gelu" | "tanh" => {
            let n = size("B")? * size("H")?;
            op(kind, vec![], n, n)
        }
        _ => return None,
    })
}

/// The digest of a text, by the program that every Linux has.
pub(super) fn sha256(text: &str) -> Option<[u8; 32]> {
    use std::io::Write as _;
    let mut child = Command::new("sha256sum")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .ok()?;
    child.stdin.take()?.write_all(text.as_bytes()).ok()?;
    let output = child.wait_with_output().ok()?.stdout;
    let digits = output.get(..64)?;
    let mut digest = [0; 32];
    for (byte, pair) in digest.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(digest)
}
