//! The measured rows, and the job that rebuilds each.

use std::path::Path;

use anyhow::Context;
use serde_json::json;

use super::table::{self, Cells};
use super::text::hash;
use super::workers::{RunOn, WorkerJob};

/// Why a row is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Its error counts.
    Scored,
    /// Measured, but odd: more than 35 % off the model's own line. Counted beside the others.
    Odd,
    /// The run died, by a record.
    DiedByRecord,
    /// The run died, as the source's figures suggest.
    DiedByInference,
}

/// What the figure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Truth {
    /// Used memory of the whole card, contexts included.
    Device,
    /// Growth of the used memory of the card after the context was there.
    Growth,
    /// Blocks of the allocator that are in use at the end.
    AllocatedNow,
    /// The most blocks of the allocator that were in use at a time.
    AllocatedPeak,
}

/// One measured row.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub set: &'static str,
    pub model: String,
    pub label: String,
    pub role: Role,
    pub truth: Truth,
    /// In bytes; 0 if the run died and left no figure.
    pub measured: f64,
    pub card: u64,
    /// What orders rows by size before anything was measured or predicted.
    pub size: u64,
    pub benchmark: bool,
    pub job: WorkerJob,
    /// Other people's estimates of the row.
    pub others: Vec<(&'static str, f64)>,
}

impl Row {
    /// Whether choices may be made by looking at this row: one half of the models, by a hash of the name. Where the
    /// source leaves nothing open there is nothing to choose, and every row is a test.
    pub(super) fn is_for_calibration(&self) -> bool {
        !LITGPT.iter().any(|(_, set)| *set == self.set) && hash(&self.model).is_multiple_of(2)
    }
}

/// Rows that cannot be used, by set and reason.
pub(super) type LeftOut = std::collections::BTreeMap<(&'static str, String), usize>;

/// What a directory of ground truth holds.
#[derive(Debug, Default)]
pub(super) struct Sets {
    pub rows: Vec<Row>,
    pub left_out: LeftOut,
    /// Sets that are not there, each with the reason.
    pub absent: Vec<String>,
}

/// Why a row is left out.
type Reason = String;

const MIB: u64 = 1 << 20;
/// Optimizer steps that are made; reserved memory grows no more after the third.
const STEPS: u32 = 4;

// What the context takes of each card, to know how much the allocator can have. Rough on purpose: it decides only
// whether a run near the limit retries. From the description of the ground truth: 1,450 MiB on the stack of 2024, 1,750
// with cuDNN; later ones load kernels lazily.
const CONTEXT_2024: u64 = 1450 * MIB;
const CONTEXT_2024_CUDNN: u64 = 1750 * MIB;
const CONTEXT_LAZY: u64 = 400 * MIB;

/// Sets whose figures hold the context of the process, and what it is taken to be where the directory has too few
/// models to tell.
pub(super) const WITH_CONTEXT: [(&str, u64); 2] =
    [("timm", CONTEXT_2024_CUDNN), ("mlp", CONTEXT_2024)];

/// A card that the table of cards knows.
fn place(card: &str, total: Option<u64>, context: u64) -> Option<(RunOn, u64)> {
    let id = card.to_lowercase().replace(' ', "-");
    let first = id.split('-').next().unwrap_or_default().to_owned();
    let card = brimful::cards::find(&id)
        .or_else(|_| brimful::cards::find(&first))
        .ok()?;
    let total = total
        .filter(|total| *total > context)
        .unwrap_or(card.torch_visible.value.get());
    let device = format!(
        "name={},memory={total},room={},cc={},multiprocessors={}",
        card.name,
        total.saturating_sub(context),
        card.compute_capability?,
        card.multiprocessors.value
    );
    Some((
        RunOn {
            device,
            workspaces: true,
        },
        total,
    ))
}

fn number<T: std::str::FromStr>(cells: &Cells, column: &str) -> Option<T> {
    cells.get(column)?.trim().parse().ok()
}

fn needed<T: std::str::FromStr>(cells: &Cells, column: &str) -> Result<T, Reason> {
    number(cells, column).ok_or_else(|| format!("no number in column {column}"))
}

/// A count that must not be zero.
fn counted(cells: &Cells, column: &str) -> Result<u64, Reason> {
    needed(cells, column).and_then(|count: u64| match count {
        0 => Err(format!("zero in column {column}")),
        _ => Ok(count),
    })
}

/// A measurement: more than nothing, and finite.
fn measured(cells: &Cells, column: &str) -> Result<f64, Reason> {
    let found: f64 = needed(cells, column)?;
    if found.is_finite() && found > 0.0 {
        Ok(found)
    } else {
        Err(format!("no measurement in column {column}"))
    }
}

fn text<'a>(cells: &'a Cells, column: &str) -> &'a str {
    cells.get(column).map_or("", |text| text.trim())
}

fn named(cells: &Cells, column: &str) -> Result<String, Reason> {
    match text(cells, column) {
        "" => Err(format!("nothing in column {column}")),
        text => Ok(text.to_owned()),
    }
}

impl Sets {
    /// Everything that a directory of ground truth holds.
    pub(super) fn read(truth: &Path) -> anyhow::Result<Sets> {
        let mut sets = Sets::default();
        let (place, card) = place("A100-SXM4-40GB", None, CONTEXT_2024_CUDNN)
            .context("no A100 in the table of cards")?;
        sets.table(truth, "gpumemnet/timm_a100_40gb.csv", "timm", |cells| {
            timm(cells, &place, card)
        });
        let (place, card) = self::place("A100-SXM4-40GB", None, CONTEXT_2024)
            .context("no A100 in the table of cards")?;
        sets.table(truth, "gpumemnet/mlp_a100_40gb.csv", "mlp", |cells| {
            perceptron(cells, &place, card)
        });
        sets.table(truth, "xmem/xmem_sample.csv", "xmem", xmem);
        let (place, card) =
            self::place("h100", None, CONTEXT_LAZY).context("no H100 in the table of cards")?;
        sets.table(truth, "cs336/attention_after_forward.csv", "attention", {
            |cells| attention(cells, &place, card)
        });
        sets.table(truth, "llm_tables/litgpt.csv", "litgpt", litgpt);
        Ok(sets)
    }

    /// Reads one table; what cannot be used is counted with its reason.
    fn table(
        &mut self,
        truth: &Path,
        file: &str,
        set: &'static str,
        row: impl Fn(&Cells) -> Result<Row, Reason>,
    ) {
        let table = match table::read(&truth.join(file)) {
            Ok(Some(table)) => table,
            Ok(None) => {
                self.absent.push(format!("{set}: no file {file}"));
                return;
            }
            Err(error) => {
                self.absent
                    .push(format!("{set}: {file} cannot be read: {error}"));
                return;
            }
        };
        if table.rows.is_empty() && table.odd_lines == 0 {
            self.absent.push(format!("{set}: no rows in {file}"));
        }
        if table.odd_lines > 0 {
            let reason = "a line with too few or too many cells".to_owned();
            *self.left_out.entry((set, reason)).or_default() += table.odd_lines;
        }
        for cells in &table.rows {
            match row(cells) {
                Ok(row) => self.rows.push(row),
                Err(reason) => *self.left_out.entry((set, reason)).or_default() += 1,
            }
        }
    }
}

fn timm(cells: &Cells, place: &RunOn, card: u64) -> Result<Row, Reason> {
    let role = match text(cells, "status") {
        "ok" => Role::Scored,
        "off_trend" => Role::Odd,
        "oom_likely" | "near_limit" => Role::DiedByInference,
        other => return Err(format!("status {other}")),
    };
    let (model, batch) = (named(cells, "model")?, counted(cells, "batch")?);
    let parameters: Option<u64> = number(cells, "params");
    let mut others = Vec::new();
    if let (Some(peak), Some(parameters)) =
        (number::<f64>(cells, "faketensor_peak_mib"), parameters)
    {
        // The trivial baseline that the description of the ground truth names.
        others.push((
            "1750 + 2P + FakeTensor",
            (1750.0 + peak) * MIB as f64 + 2.0 * 4.0 * parameters as f64,
        ));
    }
    Ok(Row {
        set: "timm",
        label: format!("{model}, batch {batch}"),
        role,
        truth: Truth::Device,
        measured: measured(cells, "measured_mib")? * MIB as f64,
        card,
        size: parameters.unwrap_or(u64::MAX).saturating_mul(batch),
        benchmark: true,
        // Autotuning picks by time. A 1x1 convolution is a matrix product and needs no workspace; for the others
        // the heuristics are as good a guess as any. On 200 rows of the calibration half this had a median error of
        // 1.3 % on convolutional networks (heuristics throughout 2.3 %, no workspaces 2.2 %, their middle 2.3 %).
        job: WorkerJob {
            place: place.clone(),
            program: "timm",
            settings: json!({ "model": model, "batch": batch, "steps": STEPS, "autotuned": true }),
        },
        model,
        others,
    })
}

fn perceptron(cells: &Cells, place: &RunOn, card: u64) -> Result<Row, Reason> {
    let layers = named(cells, "layers")?;
    let (input, batch) = (counted(cells, "input")?, counted(cells, "batch")?);
    let parameters = counted(cells, "params")?;
    let model = format!("{input} in, batch {batch}, {layers}");
    Ok(Row {
        set: "mlp",
        label: model.chars().take(60).collect(),
        model,
        role: Role::Scored,
        truth: Truth::Device,
        measured: measured(cells, "measured_mib")? * MIB as f64,
        card,
        size: parameters,
        benchmark: false,
        job: WorkerJob {
            place: place.clone(),
            program: "mlp",
            settings: json!({
                "layers": layers,
                "input": input,
                "output": counted(cells, "output")?,
                "batch": batch,
                "params": parameters,
                "dropout_rate": number::<f64>(cells, "dropout_rate").unwrap_or(0.0),
            }),
        },
        others: Vec::new(),
    })
}

const XMEM_ESTIMATES: [(&str, &str); 4] = [
    ("xMem", "xmem_bytes"),
    ("DNNMem", "dnnmem_bytes"),
    ("SchedTune", "schedtune_bytes"),
    ("LLMem", "llmem_bytes"),
];

fn xmem(cells: &Cells) -> Result<Row, Reason> {
    let (set, program) = match text(cells, "family") {
        "cnn" => ("xmem cnn", "torchvision"),
        "" => return Err("nothing in column family".to_owned()),
        _ => ("xmem transformer", "transformers"),
    };
    let (place, card) = place(
        text(cells, "gpu"),
        number(cells, "gpu_total_bytes"),
        CONTEXT_LAZY,
    )
    .ok_or_else(|| format!("no card {}", text(cells, "gpu")))?;
    let size = text(cells, "input")
        .split('x')
        .map(str::parse::<u64>)
        .collect::<Result<Vec<_>, _>>();
    let size = match (set, size) {
        ("xmem cnn", Err(_)) => return Err("no size in column input".to_owned()),
        (_, size) => size.unwrap_or_default(),
    };
    let batch = counted(cells, "batch")?;
    let model = named(cells, "model")?;
    let settings = json!({
        "model": model,
        "optimizer": text(cells, "optimizer"),
        "batch": batch,
        "steps": STEPS,
        "input": size,
        // Lines of text are cut at 128 tokens; of four batches one holds such a line all but surely.
        "sequence": 128,
        // Where it is not recorded. Of the six language model rows of the calibration half, this has a
        // median error of 3.0 %, just before the backward pass 4.6 %; the other half had been seen too.
        "zero_grad": "start",
    });
    let estimate = |(name, column)| Some((name, number::<f64>(cells, column)?));
    Ok(Row {
        set,
        label: format!(
            "{model}, {}, batch {batch}, {}",
            text(cells, "optimizer"),
            text(cells, "gpu")
        ),
        role: if text(cells, "real_oom") == "1" {
            Role::DiedByRecord
        } else {
            Role::Scored
        },
        truth: Truth::Growth,
        measured: measured(cells, "ground_bytes")?,
        card,
        size: batch,
        benchmark: false,
        others: XMEM_ESTIMATES.into_iter().filter_map(estimate).collect(),
        job: WorkerJob {
            place,
            program,
            settings,
        },
        model,
    })
}

fn attention(cells: &Cells, place: &RunOn, card: u64) -> Result<Row, Reason> {
    let (suite, backend) = (text(cells, "suite"), text(cells, "backend"));
    if backend != "pytorch" {
        return Err(format!("suite {suite}, backend {backend}"));
    }
    let (batch, length) = (counted(cells, "batch_size")?, counted(cells, "seq_len")?);
    let width = counted(cells, "d_model")?;
    Ok(Row {
        set: "attention",
        model: format!("{suite} {length} {width}"),
        label: format!("{suite}, {length} tokens, width {width}"),
        role: Role::Scored,
        truth: Truth::AllocatedNow,
        measured: measured(cells, "activation_mib")? * MIB as f64,
        card,
        size: length.saturating_mul(width),
        benchmark: false,
        job: WorkerJob {
            place: place.clone(),
            program: "attention",
            settings: json!({
                "batch": batch, "sequence": length, "width": width,
                "precision": text(cells, "precision"), "causal": text(cells, "causal") == "True",
                "suite": suite,
            }),
        },
        others: Vec::new(),
    })
}

/// The tables of LitGPT's measurements, and what they are called here.
const LITGPT: [(&str, &str); 2] = [
    ("resource_tables", "litgpt tables"),
    ("config_hub", "litgpt configurations"),
];

fn litgpt(cells: &Cells) -> Result<Row, Reason> {
    let table = text(cells, "table");
    let (_, set) = *LITGPT
        .iter()
        .find(|(name, _)| *name == table)
        .ok_or_else(|| format!("no table {table}"))?;
    // No bitsandbytes on the phantom: its kernels are not PyTorch's.
    if !matches!(text(cells, "quantization"), "" | "none") {
        return Err("quantized by bitsandbytes".to_owned());
    }
    // A table says of its rows with four cards that they used one; the others are sharded.
    if counted(cells, "gpu_count")? != 1 {
        return Err("more than one GPU".to_owned());
    }
    let role = match text(cells, "outcome") {
        "ok" => Role::Scored,
        "OOM" => Role::DiedByRecord,
        other => return Err(format!("outcome {other}")),
    };
    let (model, method) = (named(cells, "model")?, named(cells, "method")?);
    // "A10G 24GB" is an A10G.
    let (place, card) = place(text(cells, "gpu"), None, CONTEXT_LAZY)
        .ok_or_else(|| format!("no card {}", text(cells, "gpu")))?;
    let mut settings = json!({
        "table": table,
        "model": model,
        "method": method,
        "precision": text(cells, "precision"),
    });
    let mut label = format!("{model}, {method}");
    if method != "inference" {
        let (batch, length) = (
            counted(cells, "micro_batch")?,
            counted(cells, "max_seq_length")?,
        );
        settings["micro_batch"] = batch.into();
        settings["max_seq_length"] = length.into();
        if let Some(trained) = number::<u64>(cells, "trainable_params") {
            settings["trainable_params"] = trained.into();
        }
        label = format!("{label}, batch {batch}, {length} tokens");
    }
    Ok(Row {
        set,
        model,
        label,
        role,
        truth: Truth::AllocatedPeak,
        measured: match role {
            Role::Scored => measured(cells, "peak_gb")? * 1e9,
            _ => 0.0,
        },
        card,
        size: 0,
        benchmark: false,
        job: WorkerJob {
            place,
            program: "litgpt",
            settings,
        },
        others: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows and the reasons of a directory with one table.
    fn check(file: &str, table: &str, rows: usize, reasons: &[(&str, usize)]) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, table).unwrap();
        let sets = Sets::read(folder.path()).unwrap();
        assert_eq!(sets.rows.len(), rows, "{:?}", sets.left_out);
        let found: Vec<_> = sets
            .left_out
            .iter()
            .map(|((_, r), n)| (r.as_str(), *n))
            .collect();
        assert_eq!(found, reasons);
        assert_eq!(sets.absent.len(), 4, "{:?}", sets.absent);
    }

    #[test]
    fn a_row_with_a_cell_that_says_nothing_is_left_out() {
        check(
            "gpumemnet/timm_a100_40gb.csv",
            "model,batch,measured_mib,status\n\
             vgg11,8,4000,ok\nvgg11,many,4000,ok\nvgg11,0,4000,ok\nvgg11,8,nan,ok\nvgg11,8,-1,ok\n,8,1,ok\nvgg11\n",
            1,
            &[
                ("a line with too few or too many cells", 1),
                ("no measurement in column measured_mib", 2),
                ("no number in column batch", 1),
                ("nothing in column model", 1),
                ("zero in column batch", 1),
            ],
        );
    }

    #[test]
    fn a_table_without_its_columns_is_left_out_row_by_row() {
        check(
            "gpumemnet/mlp_a100_40gb.csv",
            "a,b\n1,2\n3,4\n",
            0,
            &[("nothing in column layers", 2)],
        );
    }

    #[test]
    fn litgpt_rows_are_kept_if_they_ran_on_one_card_unquantized() {
        check(
            "llm_tables/litgpt.csv",
            "table,model,method,quantization,precision,micro_batch,max_seq_length,gpu,gpu_count,peak_gb,outcome\n\
             config_hub,phi-2,lora,none,bf16-true,4,512,A10G 24GB,1,13.98,ok\n\
             config_hub,phi-2,qlora,bnb.nf4,bf16-true,4,512,A10G 24GB,1,14.27,ok\n\
             config_hub,phi-2,lora,none,bf16-true,4,512,A10G 24GB,4,13.98,ok\n\
             resource_tables,Llama 2 70B,inference,none,bf16-true,,,A100-SXM4-40GB,1,,OOM\n\
             resource_tables,Llama 2 70B,inference,none,bf16-true,,,Abacus,1,,OOM\n\
             resource_tables,Llama 2 70B,inference,none,bf16-true,,,A100-SXM4-40GB,1,,error\n",
            2,
            &[
                ("more than one GPU", 1),
                ("no card Abacus", 1),
                ("outcome error", 1),
                ("quantized by bitsandbytes", 1),
            ],
        );
    }

    #[test]
    fn an_empty_directory_has_no_rows() {
        let folder = tempfile::tempdir().unwrap();
        let sets = Sets::read(folder.path()).unwrap();
        assert!(sets.rows.is_empty() && sets.left_out.is_empty());
        assert!(sets.absent[0].contains("no file gpumemnet/timm_a100_40gb.csv"));
    }
}
