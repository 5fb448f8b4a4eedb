//! The outward form of a predicted speed.

use brimful::speed::{RateRange, SecondsByPart, SecondsRange, Speed, SpeedBasis};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How fast the training is on a GPU, before the first run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PredictedSpeed {
    /// Optimizer steps per second.
    pub steps_per_second: LowLikelyHigh,
    /// Samples per second over all GPUs; `null` if the batch size is not known.
    pub samples_per_second: Option<LowLikelyHigh>,
    /// Seconds for one pass over the training data, without evaluation; `null` if the size of the data is not known.
    pub epoch_seconds: Option<LowLikelyHigh>,
    /// What the GPU's time for one step consists of.
    pub seconds_by_part: StepSeconds,
    /// `model` (calculated), `scaled` (calculated, and scaled by a measured run of this job) or `measured`.
    pub basis: String,
    /// What makes these values less certain.
    pub notes: Vec<String>,
}

/// A range: eight of ten measured runs were inside.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LowLikelyHigh {
    /// The low end.
    pub low: f64,
    /// The likely value.
    pub likely: f64,
    /// The high end.
    pub high: f64,
}

/// Seconds of one step on the GPU, by kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepSeconds {
    /// Matrix products.
    pub matmul: f64,
    /// Convolutions.
    pub convolution: f64,
    /// Fused attention.
    pub attention: f64,
    /// Operators limited by memory bandwidth: normalization, activations, copies.
    pub memory_bound: f64,
    /// The optimizer step.
    pub optimizer: f64,
    /// Gaps between kernels.
    pub launches: f64,
}

impl PredictedSpeed {
    pub fn of(speed: &Speed) -> PredictedSpeed {
        PredictedSpeed {
            steps_per_second: speed.steps_per_second.into(),
            samples_per_second: speed.samples_per_second.map(Into::into),
            epoch_seconds: speed.epoch_seconds.map(Into::into),
            seconds_by_part: speed.seconds_by_part.into(),
            basis: basis_id(speed.basis).to_owned(),
            notes: speed.notes.clone(),
        }
    }
}

fn basis_id(basis: SpeedBasis) -> &'static str {
    match basis {
        SpeedBasis::Model => "model",
        SpeedBasis::Scaled => "scaled",
        SpeedBasis::Measured => "measured",
    }
}

/// Four digits: no rate is known any better.
fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let scale = 10_f64.powf(3.0 - value.abs().log10().floor());
    (value * scale).round() / scale
}

impl From<RateRange> for LowLikelyHigh {
    fn from(range: RateRange) -> LowLikelyHigh {
        LowLikelyHigh {
            low: rounded(range.low),
            likely: rounded(range.likely),
            high: rounded(range.high),
        }
    }
}

impl From<SecondsRange> for LowLikelyHigh {
    fn from(range: SecondsRange) -> LowLikelyHigh {
        LowLikelyHigh {
            low: rounded(range.low),
            likely: rounded(range.likely),
            high: rounded(range.high),
        }
    }
}

impl From<SecondsByPart> for StepSeconds {
    fn from(parts: SecondsByPart) -> StepSeconds {
        StepSeconds {
            matmul: rounded(parts.matmul),
            convolution: rounded(parts.convolution),
            attention: rounded(parts.attention),
            memory_bound: rounded(parts.memory_bound),
            optimizer: rounded(parts.optimizer),
            launches: rounded(parts.launches),
        }
    }
}
