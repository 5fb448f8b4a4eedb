//! The measured speeds, and the job that rebuilds each.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use brimful::speed::{CapturedOp, CapturedStep};
use serde_json::json;

use super::super::score::quantile;
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
    /// Samples of one step; 1 where all rows of a training have the same.
    pub(super) samples: f64,
    pub(super) work: Work,
}

impl SpeedRow {
    /// Names what was measured on several GPUs, if with batches as large as each can hold.
    pub(super) fn training(&self) -> &str {
        match self.set {
            Set::Lambda => self.label.split(", batch").next().unwrap_or(&self.label),
            _ => &self.label,
        }
    }

    /// Measured seconds of one sample.
    pub(super) fn seconds_per_sample(&self) -> f64 {
        self.seconds / self.samples
    }
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
    /// NVIDIA's examples as Lambda measured them on many GPUs.
    Lambda,
    /// Finetuning and generation by LitGPT in bfloat16.
    LitGpt,
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
            Set::Lambda => "NVIDIA's examples by Lambda",
            Set::LitGpt => "LitGPT, bfloat16, A100",
            Set::NeuSightKernels => "NeuSight fp32 kernels",
        }
    }
}

const STEPS: u32 = 2;
/// Maximum number of kernels of one kind on one GPU.
const KERNELS_PER_KIND: usize = 120;
/// Inference is sampled: one model in this many.
const INFERENCE_SHARE: u64 = 6;

/// Everything that a directory of measured speeds holds.
pub(super) fn read(truth: &Path) -> Result<Vec<SpeedRow>> {
    let directory = truth.join("speed");
    let mut rows = timm(&directory)?;
    rows.extend(neusight(&directory)?);
    rows.extend(inference(&directory)?);
    rows.extend(nvidia(&directory)?);
    rows.extend(lambda(&directory)?);
    rows.extend(litgpt(&directory)?);
    rows.extend(kernels(&directory)?);
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
fn timm(directory: &Path) -> Result<Vec<SpeedRow>> {
    let mut newest: BTreeMap<(String, String), Cells> = BTreeMap::new();
    for cells in cells_of(&directory.join("timm_train.csv"))? {
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
            samples: 1.0,
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

fn neusight(directory: &Path) -> Result<Vec<SpeedRow>> {
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
            samples: 1.0,
            work: job(
                "neusight",
                json!({"model": model, "mode": mode, "sequence": whole(sequence), "batch": whole(batch), "steps": STEPS, "capture": true}),
            ),
            model,
        })
    };
    let cells = cells_of(&directory.join("neusight_e2e.csv"))?;
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
fn inference(directory: &Path) -> Result<Vec<SpeedRow>> {
    let mut newest: BTreeMap<(String, String, String), Cells> = BTreeMap::new();
    for cells in unpacked(&directory.join("timm_infer.csv.gz"))? {
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
            samples: 1.0,
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

/// A training of NVIDIA's examples that is rebuilt, and where its table has the measurement.
struct NvidiaExample {
    /// Parts of the table's columns `model` and `heading`.
    model: &'static str,
    heading: &'static str,
    gpu: &'static str,
    column: &'static str,
    sequence: Option<u64>,
    training: &'static str,
    precision: &'static str,
    batch: u64,
}

const fn example(
    (model, heading, gpu): (&'static str, &'static str, &'static str),
    column: &'static str,
    training: &'static str,
    sequence: Option<u64>,
    precision: &'static str,
    batch: u64,
) -> NvidiaExample {
    NvidiaExample {
        model,
        heading,
        gpu,
        column,
        sequence,
        training,
        precision,
        batch,
    }
}

const RESNET_A100: (&str, &str, &str) = ("resnet50v1.5", "DGX A100", "a100-80gb");
const RESNET_V100: (&str, &str, &str) = ("resnet50v1.5", "DGX-1 16GB", "v100-sxm2-16gb");
const RESNEXT_A100: (&str, &str, &str) = ("ConvNets/resnext101-32x4d", "DGX A100", "a100-80gb");
const RESNEXT_V100: (&str, &str, &str) =
    ("ConvNets/resnext101-32x4d", "DGX-1 16GB", "v100-sxm2-16gb");
const BERT_A100: (&str, &str, &str) = ("BERT", "Pre-training NVIDIA DGX A100", "a100-80gb");
const BERT_V100: (&str, &str, &str) = ("BERT", "Pre-training NVIDIA DGX-1", "v100-sxm2-32gb");
const SQUAD_A100: (&str, &str, &str) = ("BERT", "Fine-tuning NVIDIA DGX A100", "a100-80gb");
const SQUAD_V100: (&str, &str, &str) = ("BERT", "Fine-tuning NVIDIA DGX-1", "v100-sxm2-32gb");

const TRANSFORMER_XL: &str = "Transformer-XL";
const XL_A100: (&str, &str, &str) = (TRANSFORMER_XL, "Base model", "a100-40gb");
/// The second table under the heading, by its batch size.
const XL_V100: (&str, &str, &str) = (TRANSFORMER_XL, "Base model", "v100-sxm2-16gb");

/// Batch sizes of the classifiers are those of `ConvNets/configs.yml`, those of BERT are in its tables.
#[rustfmt::skip]
const NVIDIA: &[NvidiaExample] = &[
    example(RESNET_A100, "Throughput - TF32", "resnet50", None, "tf32", 256),
    example(RESNET_A100, "Throughput - mixed precision", "resnet50", None, "amp", 256),
    example(RESNET_V100, "Throughput - FP32", "resnet50", None, "fp32", 112),
    example(RESNET_V100, "Throughput - mixed precision", "resnet50", None, "amp", 256),
    example(RESNEXT_A100, "Throughput - TF32", "resnext101", None, "tf32", 128),
    example(RESNEXT_A100, "Throughput - mixed precision", "resnext101", None, "amp", 128),
    example(RESNEXT_V100, "Throughput - FP32", "resnext101", None, "fp32", 64),
    example(RESNEXT_V100, "Throughput - mixed precision", "resnext101", None, "amp", 128),
    example(BERT_A100, "Throughput - TF32(sequences/sec)", "pretraining", Some(128), "tf32", 128),
    example(BERT_A100, "Throughput - mixed precision(sequences/sec)", "pretraining", Some(128), "fp16", 256),
    example(BERT_A100, "Throughput - TF32(sequences/sec)", "pretraining", Some(512), "tf32", 16),
    example(BERT_A100, "Throughput - mixed precision(sequences/sec)", "pretraining", Some(512), "fp16", 32),
    example(BERT_V100, "Throughput - FP32(sequences/sec)", "pretraining", Some(128), "fp32", 32),
    example(BERT_V100, "Throughput - mixed precision(sequences/sec)", "pretraining", Some(128), "fp16", 64),
    example(BERT_V100, "Throughput - FP32(sequences/sec)", "pretraining", Some(512), "fp32", 4),
    example(BERT_V100, "Throughput - mixed precision(sequences/sec)", "pretraining", Some(512), "fp16", 8),
    example(SQUAD_A100, "Throughput - TF32(sequences/sec)", "finetuning", None, "tf32", 32),
    example(SQUAD_A100, "Throughput - mixed precision(sequences/sec)", "finetuning", None, "fp16", 32),
    example(SQUAD_V100, "Throughput - FP32(sequences/sec)", "finetuning", None, "fp32", 8),
    example(SQUAD_V100, "Throughput - mixed precision(sequences/sec)", "finetuning", None, "fp16", 16),
    example(XL_A100, "Throughput - TF32 (tok/s)", "transformerxlbase", None, "fp32", 32),
    example(XL_A100, "Throughput - Mixed precision (tok/s)", "transformerxlbase", None, "fp16", 32),
    example(XL_V100, "Throughput - FP32 (tok/s)", "transformerxlbase", None, "fp32", 16),
    example(XL_V100, "Throughput - Mixed precision (tok/s)", "transformerxlbase", None, "fp16", 16),
];
/// SQuAD's samples have this length.
const SQUAD_SEQUENCE: u64 = 384;

impl NvidiaExample {
    /// Samples per second by the table.
    fn rate(&self, table: &[Cells]) -> Option<f64> {
        let value =
            |row: &serde_json::Value, name: &str| row.get(name)?.as_str().map(str::to_owned);
        table.iter().find_map(|cells| {
            let is_named = text(cells, "model").contains(self.model)
                && text(cells, "heading").contains(self.heading)
                && !text(cells, "heading").contains("Multi-node");
            let row: serde_json::Value = serde_json::from_str(text(cells, "row")).ok()?;
            let is_alone = value(&row, "GPUs").as_deref() == Some("1");
            let is_length = self
                .sequence
                .is_none_or(|length| value(&row, "Sequence length") == Some(length.to_string()));
            let is_batch =
                value(&row, "Batch Size / GPU").is_none_or(|batch| batch == self.batch.to_string());
            if !(is_named && is_alone && is_length && is_batch) {
                return None;
            }
            let number = value(&row, self.column)?.replace(',', "");
            number.split(' ').next()?.parse::<f64>().ok()
        })
    }

    fn row(&self, table: &[Cells]) -> Option<SpeedRow> {
        let settings = match self.model {
            "BERT" => {
                let sequence = self.sequence.unwrap_or(SQUAD_SEQUENCE);
                json!({"task": self.training, "sequence": sequence, "precision": self.precision, "batch": self.batch, "steps": STEPS, "capture": true})
            }
            _ => {
                json!({"model": self.training, "precision": self.precision, "batch": self.batch, "steps": STEPS, "capture": true})
            }
        };
        let program = match self.model {
            "BERT" => "nvidia_bert",
            TRANSFORMER_XL => "nvidia_example",
            _ => "nvidia_convnet",
        };
        let length = self
            .sequence
            .map_or_else(String::new, |length| format!(" of {length} tokens"));
        let name = match self.model {
            "BERT" => format!("BERT large {}{length}", self.training),
            TRANSFORMER_XL => "Transformer-XL base".to_owned(),
            _ => self.training.to_owned(),
        };
        Some(SpeedRow {
            set: Set::Nvidia,
            model: name.clone(),
            family: name.clone(),
            gpu: self.gpu,
            label: format!("{name}, {}, batch {}", self.precision, self.batch),
            seconds: self.batch as f64 * units_per_element(self.training).unwrap_or(1.0)
                / self.rate(table)?,
            samples: 1.0,
            work: job(program, settings),
        })
    }
}

/// The rows of NVIDIA's examples for one GPU that are rebuilt.
fn nvidia(directory: &Path) -> Result<Vec<SpeedRow>> {
    let table = cells_of(&directory.join("nvidia_examples_train.csv"))?;
    Ok(NVIDIA.iter().filter_map(|one| one.row(&table)).collect())
}

/// Units of the throughput that one element of a batch stands for.
fn units_per_element(model: &str) -> Option<f64> {
    match model {
        "ssd" | "ncf" => Some(1.0),
        // Tokens of a segment.
        "transformerxlbase" => Some(192.0),
        // Sentences and spectrograms of many lengths.
        _ => None,
    }
}

/// One GPU each. The median where the same GPU was measured in several servers.
fn lambda(directory: &Path) -> Result<Vec<SpeedRow>> {
    let mut measured: BTreeMap<(String, &'static str, String, u64), Vec<f64>> = BTreeMap::new();
    for cells in cells_of(&directory.join("lambda_train.csv"))? {
        let (model, precision) = (text(&cells, "model"), text(&cells, "precision"));
        let units = units_per_element(model).filter(|_| text(&cells, "gpus") == "1");
        let gpu = gpus::of_lambda(text(&cells, "card"));
        let found = (
            units,
            gpu,
            number(&cells, "batch_size"),
            number(&cells, "throughput"),
        );
        if let (Some(units), Some(gpu), Some(batch), Some(rate)) = found {
            let key = (model.to_owned(), gpu, precision.to_owned(), whole(batch));
            measured.entry(key).or_default().push(batch * units / rate);
        }
    }
    let row = |((model, gpu, precision, batch), seconds): ((String, _, String, u64), Vec<f64>)| {
        SpeedRow {
            set: Set::Lambda,
            family: model.clone(),
            gpu,
            label: format!("{model}, {precision}, batch {batch}"),
            seconds: quantile(&seconds, 0.5),
            samples: batch as f64,
            work: job(
                "nvidia_example",
                json!({"model": model, "precision": precision, "batch": batch, "steps": STEPS, "capture": true}),
            ),
            model,
        }
    };
    Ok(measured.into_iter().map(row).collect())
}

/// The iteration that is captured is the third: the first has the longest sample, the second an optimizer's step, of
/// which the measured runs had one in 128 / batch.
const LITGPT_STEPS: u32 = 3;

/// LitGPT's resource tables for one A100 without quantization. Their times hardly depend on the batch: the host's
/// calls decide.
fn litgpt(directory: &Path) -> Result<Vec<SpeedRow>> {
    let row = |cells: &Cells| {
        let heading = text(cells, "heading");
        let table: serde_json::Value = serde_json::from_str(text(cells, "row")).ok()?;
        let cell = |name: &str| table.get(name)?.as_str();
        if !text(cells, "source").ends_with("resource-tables.md") || cell("Quantization")? != "None"
        {
            return None;
        }
        let model = format!("{} {}", cell("Model")?, cell("Size")?.replace(' ', ""));
        let trained = cell("Trainable parameters")
            .and_then(|count| count.replace(',', "").parse::<u64>().ok());
        let method = match heading {
            "Finetuning with LoRA on 1 GPU" => "lora",
            // Both versions are under one heading; the later one trains biases and scales too.
            "Finetuning with Adapter on 1 GPU" if trained? > 2_000_000 => "adapter_v2",
            "Finetuning with Adapter on 1 GPU" => "adapter",
            "Single-GPU Inference" => "inference",
            _ => return None,
        };
        let mut settings = json!({"table": "resource_tables", "model": model.to_lowercase(), "method": method, "precision": "bf16-true", "steps": LITGPT_STEPS, "capture": true});
        let number = |text: &str| text.split(' ').next()?.parse::<f64>().ok();
        let (seconds, batch) = if method == "inference" {
            (1.0 / number(cell("Token/sec")?)?, 1)
        } else {
            let batch: u64 = cell("Microbatch size")?.parse().ok()?;
            settings["micro_batch"] = batch.into();
            settings["max_seq_length"] = LITGPT_LENGTH.into();
            settings["trainable_params"] = trained?.into();
            (number(cell("Time 1k iterations")?)? * 60.0 / 1e3, batch)
        };
        Some(SpeedRow {
            set: Set::LitGpt,
            // The name by which the table was divided into halves.
            model: cell("Model")?.to_owned(),
            family: model.clone(),
            gpu: "a100-40gb",
            label: format!("{model}, {method}, batch {batch}"),
            seconds,
            samples: 1.0,
            work: job("litgpt", settings),
        })
    };
    let cells = cells_of(&directory.join("llm_tables_train.csv"))?;
    Ok(cells.iter().filter_map(row).collect())
}
/// Of the longest sample; the iteration that is captured has an ordinary one (`benches/accuracy/litgpt.py`).
const LITGPT_LENGTH: u64 = 1304;

/// Single kernels in fp32.
fn kernels(directory: &Path) -> Result<Vec<SpeedRow>> {
    let mut counts: BTreeMap<(String, &'static str), usize> = BTreeMap::new();
    let mut rows = Vec::new();
    for cells in unpacked(&directory.join("neusight_kernels_fp32.csv.gz"))? {
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
