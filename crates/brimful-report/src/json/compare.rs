//! The outward form of a comparison of GPUs: what `brimful compare --json` prints.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::json::{
    ContextMeasurement, GpusFrom, LikelyAndSafe, LowLikelyHigh, MachineGpu, PredictedSpeed,
    SettingValue,
};

/// The same training command on several GPUs and machines: whether it fits, how long it takes, what it costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "brimful compare")]
pub struct CompareDocument {
    /// The schema version of this document.
    pub schema_version: u32,
    /// The version of brimful that wrote it.
    pub brimful_version: String,
    /// The rehearsed command.
    pub command: Vec<String>,
    /// The PyTorch version of the rehearsal.
    pub torch_version: String,
    /// How long the job is.
    pub length: JobLength,
    /// In the requested order.
    pub candidates: Vec<ComparedGpu>,
    /// Where the GPU models come from: `requested`, `machine` (this machine's, if none were named) or `usual` (this machine
    /// has none that is known).
    #[serde(default = "GpusFrom::before")]
    pub gpus_from: String,
    /// This machine's GPUs with what is free on each now, if `gpus_from` is `machine`; otherwise empty.
    #[serde(default)]
    pub machine_gpus: Vec<MachineGpu>,
    /// The candidate with the shortest time among those that fit; `null` if no time is known.
    pub fastest: Option<String>,
    /// The candidate with the lowest cost among those that fit; `null` if no cost is known.
    pub cheapest: Option<String>,
    /// Predicted host memory; `null` if it could not be measured.
    pub host_bytes: Option<LikelyAndSafe>,
}

/// How long a job is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobLength {
    /// Passes over the training data; `null` if the length is given in steps, or unknown.
    pub epochs: Option<f64>,
    /// Optimizer steps; `null` if they are not known.
    pub steps: Option<f64>,
    /// What has to be known for a time in hours, if it is not.
    pub missing: Option<String>,
}

/// One GPU or machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparedGpu {
    /// The name in the request.
    pub name: String,
    /// The GPU.
    pub gpu: String,
    /// The machine's profile; `null` for a GPU alone.
    pub machine: Option<String>,
    /// Whether it fits, by the safe values of GPU memory and, for a machine, host memory.
    pub fits: bool,
    /// `fits`, `tight`, `does_not_fit`, `host_does_not_fit` or `failed`.
    pub verdict: String,
    /// GPU memory left, by the safe value; negative if it does not fit. `null` if the script failed there.
    pub headroom_bytes: Option<i64>,
    /// Peak GPU memory of the process; `null` if the script failed there.
    pub device_bytes: Option<LikelyAndSafe>,
    /// The CUDA context in `device_bytes`, if earlier runs measured it; `null` if it is calculated.
    #[serde(default)]
    pub measured_context: Option<ContextMeasurement>,
    /// Host memory of the machine; `null` if it is not known.
    pub host_limit_bytes: Option<u64>,
    /// The settings that were planned for it; `null` if the command runs as it is.
    #[serde(default)]
    pub settings: Option<BTreeMap<String, SettingValue>>,
    /// Samples per second over all GPUs; `null` if the batch size or the speed is not known.
    #[serde(default)]
    pub samples_per_second: Option<LowLikelyHigh>,
    /// How fast the command is as it is; `null` if it could not be predicted, or if settings were planned.
    pub speed: Option<PredictedSpeed>,
    /// Hours for the job; `null` if its length or the speed is not known.
    pub hours: Option<LowLikelyHigh>,
    /// The price of one hour, as given.
    pub price_per_hour: Option<f64>,
    /// The price of the job; `null` without a price or a time.
    pub cost: Option<LowLikelyHigh>,
    /// Why the script failed there; `null` if it did not.
    pub reason: Option<String>,
}

impl ComparedGpu {
    /// Samples per second, or steps where a step's samples are not known, and the unit.
    pub(crate) fn rate(&self) -> Option<(LowLikelyHigh, &'static str)> {
        let speed = self.speed.as_ref();
        let samples = self
            .samples_per_second
            .or_else(|| speed?.samples_per_second);
        samples
            .map(|range| (range, "samples/s"))
            .or_else(|| Some((speed?.steps_per_second, "steps/s")))
    }

    /// `batch 32, workers 2`; nothing where the command runs as it is.
    pub(crate) fn settings_words(&self) -> Option<String> {
        let words = self.settings.as_ref()?.iter();
        let words: Vec<String> = words
            .map(|(knob, value)| format!("{knob} {}", value.words()))
            .collect();
        Some(words.join(", "))
    }
}
