//! Settings in the forms that others take: arguments, variables, Hugging Face, Lightning, JSON, TOML.
//!
//! Whatever the settings, the keywords of a DataLoader are a combination that it takes: `prefetch_factor` and
//! `persistent_workers` only with workers, `pin_memory` only with a GPU.

use std::fmt::Write;

use serde_json::{Map, Value as Json, json};

use crate::job::render::ALLOCATOR_VARIABLE;
use crate::job::value::{Settings, Value};
use crate::job::{Job, knobs};
use crate::printable::is_printable;

/// The knob `precision`: of other science, and known to frameworks.
const PRECISION: &str = "precision";

/// A form of settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The command line, quoted for a shell.
    Args,
    /// Lines such as `BRIMFUL_WORKERS=2`, quoted for a shell.
    Env,
    /// Hugging Face `TrainingArguments`.
    Hf,
    /// Arguments of Lightning's `Trainer`, and of a DataLoader.
    Lightning,
    Json,
    /// A job file's tables, with every knob at one value.
    Toml,
}

impl Form {
    pub const ALL: [Form; 6] = [
        Form::Args,
        Form::Env,
        Form::Hf,
        Form::Lightning,
        Form::Json,
        Form::Toml,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Form::Args => "args",
            Form::Env => "env",
            Form::Hf => "hf",
            Form::Lightning => "lightning",
            Form::Json => "json",
            Form::Toml => "toml",
        }
    }

    /// The settings of a job in this form, with a final newline.
    pub fn write(self, job: &Job, settings: &Settings, has_gpu: bool) -> String {
        let all = with_gpu(job.all_values(settings), has_gpu);
        match self {
            Form::Args => command_line(job, &all),
            Form::Env => variables(&all),
            Form::Hf => pretty(&Json::Object(training_arguments(&all, has_gpu))),
            Form::Lightning => pretty(&json!({
                "trainer": trainer(&all),
                "dataloader": dataloader(&all, has_gpu),
            })),
            Form::Json => pretty(&Json::Object(
                all.0
                    .iter()
                    .map(|(name, value)| (name.clone(), json(value)))
                    .collect(),
            )),
            Form::Toml => toml(job, &all),
        }
    }
}

/// Keywords of Hugging Face's `TrainingArguments`.
pub fn training_arguments(settings: &Settings, has_gpu: bool) -> Map<String, Json> {
    let mut keywords = Map::new();
    let mut put = |name: &str, value: Json| {
        keywords.insert(name.to_owned(), value);
    };
    for (knob, name) in [
        (knobs::MICRO_BATCH, "per_device_train_batch_size"),
        (knobs::EVAL_BATCH, "per_device_eval_batch_size"),
        (knobs::ACCUMULATION, "gradient_accumulation_steps"),
    ] {
        if let Some(count) = settings.count(knob) {
            put(name, count.into());
        }
    }
    for (knob, name) in [
        (knobs::ACTIVATION_CHECKPOINTING, "gradient_checkpointing"),
        (knobs::COMPILE, "torch_compile"),
        ("bf16", "bf16"),
        ("fp16", "fp16"),
    ] {
        if let Some(value) = settings.get(knob) {
            put(name, (*value != Value::Flag(false)).into());
        }
    }
    if let Some(precision) = settings.get(PRECISION).and_then(Precision::of) {
        put("bf16", (precision == Precision::Bf16).into());
        put("fp16", (precision == Precision::Fp16).into());
    }
    for (name, value) in dataloader(settings, has_gpu) {
        let name = match name.as_str() {
            "batch_size" => continue,
            "num_workers" => "dataloader_num_workers",
            "prefetch_factor" => "dataloader_prefetch_factor",
            "persistent_workers" => "dataloader_persistent_workers",
            _ => "dataloader_pin_memory",
        };
        keywords.insert(name.to_owned(), value);
    }
    keywords
}

/// Keywords of Lightning's `Trainer`.
pub fn trainer(settings: &Settings) -> Map<String, Json> {
    let mut keywords = Map::new();
    if let Some(count) = settings.count(knobs::ACCUMULATION) {
        keywords.insert("accumulate_grad_batches".into(), count.into());
    }
    if let Some(value) = settings.get(PRECISION) {
        let precision = match Precision::of(value) {
            Some(Precision::Bf16) => "bf16-mixed".into(),
            Some(Precision::Fp16) => "16-mixed".into(),
            Some(Precision::Fp32) => "32-true".into(),
            None => json(value),
        };
        keywords.insert("precision".into(), precision);
    }
    keywords
}

/// Keywords of PyTorch's `DataLoader`, always a combination that it takes.
pub fn dataloader(settings: &Settings, has_gpu: bool) -> Map<String, Json> {
    let mut keywords = Map::new();
    let mut put = |name: &str, value: Json| {
        keywords.insert(name.to_owned(), value);
    };
    if let Some(count) = settings.count(knobs::MICRO_BATCH) {
        put("batch_size", count.into());
    }
    let workers = settings.count(knobs::WORKERS);
    if let Some(workers) = workers {
        put("num_workers", workers.into());
    }
    // Where the number of workers is the script's own, it may be none.
    let has_workers = workers.is_some_and(|workers| workers > 0);
    if let Some(count) = settings.count(knobs::PREFETCH).filter(|_| has_workers) {
        put("prefetch_factor", count.into());
    }
    if let Some(flag) = settings.flag(knobs::PERSISTENT_WORKERS) {
        put("persistent_workers", (flag && has_workers).into());
    } else if !has_workers && workers.is_some() {
        put("persistent_workers", false.into());
    }
    if let Some(flag) = settings.flag(knobs::PIN_MEMORY) {
        put("pin_memory", (flag && has_gpu).into());
    }
    keywords
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Precision {
    Bf16,
    Fp16,
    Fp32,
}

impl Precision {
    /// Nothing for those that are not one of the three.
    fn of(value: &Value) -> Option<Precision> {
        match value.to_string().to_lowercase().as_str() {
            "bf16" | "bfloat16" | "bf16-mixed" => Some(Precision::Bf16),
            "fp16" | "float16" | "half" | "16" | "16-mixed" => Some(Precision::Fp16),
            "fp32" | "float32" | "full" | "32" | "32-true" | "no" => Some(Precision::Fp32),
            _ => None,
        }
    }
}

fn with_gpu(mut settings: Settings, has_gpu: bool) -> Settings {
    if !has_gpu && settings.get(knobs::PIN_MEMORY).is_some() {
        settings.set(knobs::PIN_MEMORY, false);
    }
    settings
}

fn command_line(job: &Job, settings: &Settings) -> String {
    let rendered = job.render(settings, None);
    let mut words: Vec<String> = rendered
        .variables
        .iter()
        .map(|(name, value)| format!("{name}={}", quoted(value)))
        .collect();
    words.extend(rendered.command.iter().map(|word| quoted(word)));
    words.join(" ") + "\n"
}

fn variables(settings: &Settings) -> String {
    let mut out = String::new();
    for (name, value) in &settings.0 {
        let variable: String = name
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() {
                    c.to_ascii_uppercase()
                } else {
                    '_'
                }
            })
            .collect();
        let text = quoted(&value.to_string());
        let _ = if name == knobs::ALLOCATOR {
            writeln!(out, "{ALLOCATOR_VARIABLE}={text}")
        } else {
            writeln!(out, "BRIMFUL_{variable}={text}")
        };
    }
    out
}

fn toml(job: &Job, settings: &Settings) -> String {
    let mut out = String::new();
    if let Some(batch) = job.effective_batch {
        let _ = writeln!(out, "[keep]\neffective_batch = {batch}\n");
    }
    out.push_str("[knobs]\n");
    for (name, value) in &settings.0 {
        if job.knob(name).is_some() {
            let _ = writeln!(out, "{} = {}", toml_key(name), toml_value(value));
        }
    }
    if let Some(count) = settings.count(knobs::ACCUMULATION) {
        let _ = writeln!(out, "# accumulation = {count} follows from effective_batch");
    }
    out
}

/// A key of a TOML table.
pub(crate) fn toml_key(name: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if !name.is_empty() && name.chars().all(is_bare) {
        name.to_owned()
    } else {
        toml_text(name)
    }
}

pub(crate) fn toml_value(value: &Value) -> String {
    match value {
        Value::Text(text) => toml_text(text),
        // A whole number as a float must stay one.
        Value::Number(number) => format!("{number:?}"),
        other => other.to_string(),
    }
}

/// A basic string of TOML.
pub(crate) fn toml_text(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if !is_printable(c) => {
                let _ = write!(out, "\\u{:04X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A word as a shell takes it.
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

fn json(value: &Value) -> Json {
    match value {
        Value::Flag(flag) => (*flag).into(),
        Value::Whole(number) => (*number).into(),
        Value::Number(number) => (*number).into(),
        Value::Text(text) => text.clone().into(),
    }
}

fn pretty(document: &Json) -> String {
    format!("{document:#}\n")
}
