//! The answer: steps and samples per second on one GPU, as a range with a likely value.

use serde::{Deserialize, Serialize};

use crate::cards::Card;
use crate::speed::fit_result::Spreads;
use crate::speed::fitted::FITTED;
use crate::speed::gpu::{GpuRates, RatesBasis};
use crate::speed::op::CapturedStep;
use crate::speed::parameters::{Parameter, Parameters};
use crate::speed::step::{Kernels, SecondsByPart};

/// How fast a training is on one GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Speed {
    pub steps_per_second: RateRange,
    /// Nothing where the batch is not known.
    pub samples_per_second: Option<RateRange>,
    /// Seconds of one pass over the training data; nothing where its length is not known.
    pub epoch_seconds: Option<SecondsRange>,
    /// Of one step on the GPU.
    pub seconds_by_part: SecondsByPart,
    pub basis: SpeedBasis,
    /// What makes the values less certain, as sentences.
    pub notes: Vec<String>,
}

/// Between `low` and `high` lie eight of ten measured runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RateRange {
    pub low: f64,
    pub likely: f64,
    pub high: f64,
}

/// A time, the shortest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SecondsRange {
    pub low: f64,
    pub likely: f64,
    pub high: f64,
}

/// What a speed rests on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpeedBasis {
    /// The model alone.
    #[default]
    Model,
    /// The model, scaled by a measured run of the job.
    Scaled,
    /// A measured run with the same settings on the same GPU.
    Measured,
}

/// What is known besides the operators.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepFacts {
    /// Samples of one batch of each rank; 0 where it is not known.
    pub micro_batch: u64,
    pub ranks: u64,
    /// Samples per second that the CPUs of the rehearsal can make, with as many workers.
    pub loading_rate: Option<f64>,
    /// Samples of the training data; 0 where it does not say.
    pub dataset_samples: u64,
    /// Measured time divided by what the model said, in an earlier run of the job.
    pub scale: Option<f64>,
}

/// The time of one step on a card.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepTime {
    pub gpu_seconds: SecondsByPart,
    /// What the host takes to call every operator, beside the GPU.
    pub launching_seconds: f64,
    pub basis: RatesBasis,
}

impl StepTime {
    /// Nothing where the card's rates are not known.
    pub fn of(step: &CapturedStep, card: &Card) -> Option<StepTime> {
        let gpu = GpuRates::of(card)?;
        let parameters = Parameters::fitted();
        Some(StepTime {
            gpu_seconds: Kernels::of(step).seconds(&gpu, &parameters),
            launching_seconds: step.calls() as f64 * parameters.get(Parameter::HostCall) * 1e-6,
            basis: RatesBasis::of(card, step.main_precision()),
        })
    }
}

/// Half widths after a measured run of the same job (see the page of the accuracy).
const SCALED: [f64; 2] = [0.87, 1.15];

impl Speed {
    /// The speed of a captured step on a card; nothing where the card's rates are not known.
    pub fn of(step: &CapturedStep, card: &Card, facts: &StepFacts) -> Option<Speed> {
        let StepTime {
            gpu_seconds: by_part,
            launching_seconds: launching,
            basis,
        } = StepTime::of(step, card)?;
        let scale = facts
            .scale
            .filter(|scale| scale.is_finite() && *scale > 0.0);
        let on_gpu = by_part.total() * scale.unwrap_or(1.0);
        let seconds = on_gpu.max(launching);
        if !(seconds.is_finite() && seconds > 0.0) {
            return None;
        }
        let spread = match scale {
            _ if launching > on_gpu => FITTED.errors.launch_bound,
            Some(_) => SCALED,
            None => spread(&FITTED.errors, basis),
        };
        let steps = RateRange::around(1.0 / seconds, spread);
        let samples = facts
            .micro_batch
            .saturating_mul(step.batches)
            .saturating_mul(facts.ranks.max(1));
        let rate = (samples > 0).then(|| steps.times(samples as f64));
        Some(Speed {
            steps_per_second: steps,
            samples_per_second: rate,
            epoch_seconds: rate
                .filter(|_| facts.dataset_samples > 0)
                .map(|rate| rate.time_for(facts.dataset_samples as f64)),
            seconds_by_part: by_part,
            basis: match scale {
                Some(_) => SpeedBasis::Scaled,
                None => SpeedBasis::Model,
            },
            notes: notes(step, basis, facts, launching > on_gpu, rate),
        })
    }
}

fn spread(errors: &Spreads, basis: RatesBasis) -> [f64; 2] {
    match basis {
        RatesBasis::Fitted => errors.fitted_gpu,
        RatesBasis::Measured => errors.measured_gpu,
        RatesBasis::DataSheet => errors.data_sheet_gpu,
    }
}

fn notes(
    step: &CapturedStep,
    basis: RatesBasis,
    facts: &StepFacts,
    is_launching: bool,
    rate: Option<RateRange>,
) -> Vec<String> {
    let mut notes = Vec::new();
    if step.uncompiled {
        notes.push("the speed is that without torch.compile, which is usually faster".to_owned());
    }
    if basis == RatesBasis::DataSheet {
        notes.push("this GPU is known by its data sheet only: the range is wider".to_owned());
    }
    let unexplained = step.launches.saturating_sub(step.explained_launches);
    if unexplained > 0 {
        let names = step.unexplained.join(", ");
        notes.push(format!(
            "{unexplained} kernels of other libraries are not in the time: {names}"
        ));
    }
    let others = others_without_formula(step);
    if !others.is_empty() {
        notes.push(format!(
            "operators whose work is not known are taken to be limited by memory bandwidth: {}",
            others.join(", ")
        ));
    }
    if step.left_out > 0 {
        notes.push(format!("{} calls are not in the time", step.left_out));
    }
    if is_launching {
        notes.push(
            "launching kernels takes longer than computing: the speed depends on the CPU"
                .to_owned(),
        );
    }
    if let (Some(loading), Some(rate)) = (facts.loading_rate, rate)
        && loading < rate.likely
    {
        notes.push(format!(
            "data loading limits the speed: with its workers, this machine's CPUs make about {loading:.0} samples/s"
        ));
    }
    if facts.ranks > 1 {
        notes.push("the time of communication between GPUs is not in it".to_owned());
    }
    notes
}

/// Operators of other libraries that launch kernels, and of which no formula gives the operations.
fn others_without_formula(step: &CapturedStep) -> Vec<&str> {
    const MAX_NAMED: usize = 5;
    let mut named: Vec<&str> = Vec::new();
    for op in step.of_training().filter(|op| op.flops == 0) {
        let is_other = !op.op.starts_with("aten::") && op.launches > 0;
        let is_attention = op.op.contains("attention") || op.op.contains("attn");
        if (is_other || is_attention) && !named.contains(&op.op.as_str()) {
            named.push(&op.op);
        }
    }
    named.truncate(MAX_NAMED);
    named
}

impl RateRange {
    /// A rate that was calculated for any GPU and precision: the wider of the ranges.
    pub fn calculated(likely: f64) -> RateRange {
        RateRange::around(likely, FITTED.errors.data_sheet_gpu)
    }

    /// A rate that was measured in a run with the same settings.
    pub fn measured(likely: f64) -> RateRange {
        RateRange::around(likely, SCALED)
    }

    /// A rate whose time is between `spread[0]` and `spread[1]` times what is likely.
    fn around(likely: f64, spread: [f64; 2]) -> RateRange {
        RateRange {
            low: likely / spread[1],
            likely,
            high: likely / spread[0],
        }
    }

    /// Time for `count` of them.
    pub fn time_for(self, count: f64) -> SecondsRange {
        SecondsRange {
            low: count / self.high,
            likely: count / self.likely,
            high: count / self.low,
        }
    }

    pub fn times(self, factor: f64) -> RateRange {
        RateRange {
            low: self.low * factor,
            likely: self.likely * factor,
            high: self.high * factor,
        }
    }
}
