//! The form of a job file, for editors that check and complete it. It is read in `brimful::job`; this mirrors what is
//! accepted there.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

/// A training job: its command, what must stay the same, and which knobs brimful may change.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(title = "brimful.toml")]
#[serde(deny_unknown_fields)]
pub struct JobDocument {
    pub job: JobStart,
    #[serde(default)]
    pub keep: Keep,
    #[serde(default)]
    pub knobs: Knobs,
    /// YAML or JSON files that the command names, such as `[config."train.yaml"]`. A copy of the file gets these values,
    /// and the command names the copy. Keys have dots: `"training.batch_size" = "{micro_batch}"`.
    #[serde(default)]
    pub config: BTreeMap<String, BTreeMap<String, JobChoice>>,
    /// Named sets of other values, such as `[modes.debug]`, chosen with `--mode debug`.
    #[serde(default)]
    pub modes: BTreeMap<String, Mode>,
}

/// How to start and resume the job.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobStart {
    /// The command as a list of arguments. `{name}` is the value of a knob or of a mode, `{name?text}` the text if
    /// it is true, `{name?text|other}` one or the other; `{{` and `}}` are braces. A knob without a placeholder is added as
    /// an option with its name.
    #[schemars(length(min = 1, max = 1024))]
    pub command: Vec<String>,
    /// Patterns of checkpoint files or directories, relative to the directory of this file.
    #[serde(default)]
    pub checkpoints: Option<OneOrMore>,
    /// Arguments to add to the command to resume from a `{checkpoint}`.
    #[serde(default)]
    pub resume: Vec<String>,
}

/// A string or a list of strings.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum OneOrMore {
    One(String),
    More(Vec<String>),
}

/// What must stay the same.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Keep {
    /// Samples per optimizer step, over all ranks and accumulated micro-batches.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub effective_batch: Option<u64>,
}

/// Settings that may change. Names other than these are knobs of the script, which change the training result.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
pub struct Knobs {
    /// Samples per forward pass; gradient accumulation keeps the effective batch size.
    #[serde(default)]
    pub micro_batch: Option<Choices>,
    /// Number of workers of each DataLoader.
    #[serde(default)]
    pub workers: Option<Choices>,
    /// Batches that each worker prefetches.
    #[serde(default)]
    pub prefetch: Option<Choices>,
    #[serde(default)]
    pub pin_memory: Option<Choices>,
    #[serde(default)]
    pub persistent_workers: Option<Choices>,
    /// `fork`, `forkserver` or `spawn`.
    #[serde(default)]
    pub start_method: Option<Choices>,
    #[serde(default)]
    pub activation_checkpointing: Option<Choices>,
    /// `torch.compile`.
    #[serde(default)]
    pub compile: Option<Choices>,
    /// Settings for PYTORCH_CUDA_ALLOC_CONF.
    #[serde(default)]
    pub allocator: Option<Choices>,
    /// Batch size of the evaluation.
    #[serde(default)]
    pub eval_batch: Option<Choices>,
    /// Knobs of the script that may change, in this order; without it, none may.
    #[serde(default)]
    pub sacrifice: Vec<String>,
    /// Knobs of the script.
    #[serde(flatten)]
    pub others: BTreeMap<String, Choices>,
}

/// `"auto"` to let brimful choose, one value, or a list: the preferred value first, then accepted ones.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Choices {
    One(JobChoice),
    Listed(#[schemars(length(min = 1, max = 256))] Vec<JobChoice>),
}

/// A value of a knob.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum JobChoice {
    Flag(bool),
    Whole(i64),
    Number(f64),
    Text(String),
}

/// Values that override those of the file. A name that is not a knob replaces its placeholder in the command, or is added as an option.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
pub struct Mode {
    /// Arguments to add at the end.
    #[serde(default)]
    pub extra: Vec<String>,
    #[serde(default)]
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub effective_batch: Option<u64>,
    #[serde(default)]
    pub sacrifice: Option<Vec<String>>,
    /// The choices of a knob, or the value of another placeholder.
    #[serde(flatten)]
    pub values: BTreeMap<String, Choices>,
}
