//! The form of a job file, for editors that check and complete it. It is read in `brimful::job`; this mirrors what is
//! accepted there.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

/// A training job: how it is started, what must be kept, and which knobs brimful may turn.
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

/// How the job is started and gone on with.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobStart {
    /// The command line, one word each. `{name}` is the value of a knob or a mode's value, `{name?text}` the text where
    /// it is true, `{name?text|other}` one or the other; `{{` and `}}` are braces. A knob without a place is added as
    /// an option of its name.
    #[schemars(length(min = 1, max = 1024))]
    pub command: Vec<String>,
    /// Patterns of the files or folders that hold checkpoints, below this file's folder.
    #[serde(default)]
    pub checkpoints: Option<OneOrMore>,
    /// What is added to the command to go on from a `{checkpoint}`.
    #[serde(default)]
    pub resume: Vec<String>,
}

/// One text or a list of them.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum OneOrMore {
    One(String),
    More(Vec<String>),
}

/// What is never changed.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Keep {
    /// Samples per optimizer step, over all ranks and accumulated micro-batches.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub effective_batch: Option<u64>,
}

/// Settings that may change. Names that are not listed here are the script's own and change the result.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
pub struct Knobs {
    /// Samples that go through the model at once; the effective batch is kept by accumulation.
    #[serde(default)]
    pub micro_batch: Option<Choices>,
    /// Worker processes of each DataLoader.
    #[serde(default)]
    pub workers: Option<Choices>,
    /// Batches that each worker makes ahead.
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
    /// Samples of an evaluation batch.
    #[serde(default)]
    pub eval_batch: Option<Choices>,
    /// Knobs of the script's own in the order in which they may be given up; without it never.
    #[serde(default)]
    pub sacrifice: Vec<String>,
    /// The script's own knobs.
    #[serde(flatten)]
    pub others: BTreeMap<String, Choices>,
}

/// `"auto"` for whatever fits best, one value, or a list: first what is wanted, then what is accepted.
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

/// Other values than those of the file. What is no knob is put into its place in the command, or added as an option.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
pub struct Mode {
    /// Arguments that are added at the end.
    #[serde(default)]
    pub extra: Vec<String>,
    #[serde(default)]
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub effective_batch: Option<u64>,
    #[serde(default)]
    pub sacrifice: Option<Vec<String>>,
    /// A knob's choices, or the value of another place.
    #[serde(flatten)]
    pub values: BTreeMap<String, Choices>,
}
