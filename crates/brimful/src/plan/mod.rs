//! Plan: the best settings that fit, and the rungs below them.
//!
//! Read first: [`Plan`]; [`Shape`], what a rehearsal found; [`next_step`], which asks for rehearsals until it can decide.
//! Everything here is a function of values.
//!
//! `candidates.rs` and `choices.rs` list the combinations, `cost.rs` says how fast one is, `fit.rs` whether it stays
//! below the limits, `estimate.rs` what lies between rehearsals, `lessons.rs` what earlier runs change in all of it;
//! `view.rs` puts these together. On it stand `search.rs` (which to rehearse and to choose), `reasons.rs` and
//! `impossible.rs` (why), `rungs.rs` and `revise.rs` (what next, before and after a death).

mod candidate;
mod candidates;
mod choices;
mod considered;
mod cost;
mod estimate;
mod fit;
mod impossible;
mod learning;
mod learnt;
mod lessons;
mod measurement;
mod moves;
mod observed;
mod pipe;
mod reasons;
mod request;
mod revise;
mod room;
mod rungs;
mod search;
mod view;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use candidates::wanted;
pub use learnt::{LearntRun, MeasuredOn};
pub use measurement::{GpuMeasurement, Measurements, held_context, peak_used};
pub use observed::Observed;
pub use request::{RequestedGpu, ResourceRequest};
pub use revise::revise;
pub use search::next_step;

use serde::{Deserialize, Serialize};

use crate::job::Settings;
use crate::predict::host::{HostFacts, HostNeed};
use crate::units::Bytes;

/// The limits that a plan has to stay below.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlanLimits {
    /// Host memory left to the brim; nothing where it is not known.
    pub host: Option<Bytes>,
    pub shm: Option<Bytes>,
    /// One for each card of the machine that the job uses: its name and what torch sees of it.
    pub gpus: Vec<(String, Bytes)>,
    /// Processors that the job may use.
    pub cpus: f64,
    /// Ranks on all nodes, if the command tells.
    #[serde(default)]
    pub ranks: Option<u64>,
}

/// What one rehearsal found. It holds for every value of the computed knobs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Shape {
    /// The values of all knobs, as they were rehearsed.
    pub settings: Settings,
    /// On each setting of the allocator that was replayed; the first is the job's own. Empty for a job on processors.
    pub gpu: Vec<GpuNeed>,
    pub host: HostFacts,
    pub pace: Pace,
    /// Ranks that train together.
    pub world_size: u64,
    /// It could not be rehearsed to its first steps: why, in one line.
    pub failed: Option<String>,
    /// When it was rehearsed, milliseconds since 1970.
    pub rehearsed_at_unix_ms: u64,
    /// The version of torch that it was rehearsed with.
    pub torch: String,
}

/// Bytes of one card under one setting of the allocator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuNeed {
    /// `PYTORCH_CUDA_ALLOC_CONF`, empty for none.
    pub allocator: String,
    pub likely: Bytes,
    pub safe: Bytes,
    /// Whether the replay on the card itself went through with the safe value: it may give cached memory back.
    pub fits: bool,
    /// The highest of the evaluation alone.
    pub evaluation: Option<Bytes>,
}

/// How long things took in a rehearsal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pace {
    /// Seconds of one micro-batch through the model, in the process that trains, without waiting for data.
    pub step_seconds: f64,
    /// Processor seconds to make one sample of data.
    pub sample_seconds: f64,
    /// Seconds to hand one batch from a worker to the training.
    pub handover_seconds: f64,
    /// Seconds of the GPU for one micro-batch, by the model of its speed; 0 where it is not known.
    pub gpu_seconds: f64,
    /// Measured on the processors that will train; otherwise the card's own time is not in it.
    pub on_cpu: bool,
}

/// Samples per second, and where the figure is from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    pub samples_per_second: f64,
    pub from: RateSource,
}

/// Where a figure comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RateSource {
    /// From an earlier run of this job with these settings.
    Measured,
    /// From the operators of a rehearsed step and the model of the GPU's speed.
    Calculated,
    /// From the rehearsal and the cost model.
    #[default]
    Estimated,
}

/// Chosen settings, what they need, why, and the rungs below.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    pub settings: Settings,
    pub effective_batch: Option<u64>,
    pub footprint: Need,
    pub brims: Vec<PlanBrim>,
    pub throughput: Throughput,
    /// Why these and not better ones, in sentences.
    pub reasons: Vec<Reason>,
    /// What would be tried next, in the order of a death for want of nothing in particular.
    pub rungs: Vec<Rung>,
    /// What the user would have started with.
    pub wanted: WantedSettings,
    /// The settings around the chosen ones, at most 200, also those that do not fit.
    #[serde(default)]
    pub candidates: Vec<PlanCandidate>,
}

/// Settings that were compared with the chosen ones.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlanCandidate {
    pub settings: Settings,
    pub brims: Vec<PlanBrim>,
    pub throughput: Throughput,
    /// Whether they stay below every limit, and no earlier run with them ran out of memory.
    pub fits: bool,
}

/// The settings that were wanted, and what they would take.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WantedSettings {
    pub settings: Settings,
    /// Empty where it is not known.
    pub brims: Vec<PlanBrim>,
    pub throughput: Option<Throughput>,
    /// Knobs whose planned value changes the result of the training.
    pub result_changes: Vec<String>,
}

/// Bytes of the host and the cards.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Need {
    pub host: HostNeed,
    pub gpu: Option<GpuNeed>,
}

/// One limit and what the plan takes of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanBrim {
    /// `host`, `shm`, `gpu`.
    pub name: String,
    #[serde(rename = "limit_bytes")]
    pub limit: Bytes,
    #[serde(rename = "likely_bytes")]
    pub likely: Bytes,
    #[serde(rename = "safe_bytes")]
    pub safe: Bytes,
}

/// One sentence of why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    pub kind: ReasonKind,
    pub text: String,
    /// For what was refused: which limit, and by how many bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brim: Option<String>,
    #[serde(
        rename = "missing_bytes",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub missing: Option<Bytes>,
}

/// What a reason is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasonKind {
    /// How the effective batch is made.
    #[default]
    Chosen,
    /// Faster settings do not fit.
    Refused,
    /// A value that changes the result was given up.
    Sacrificed,
    /// An earlier run that needed no more ran out of memory.
    Died,
    /// What would need less memory.
    Remedy,
    /// Settings that promise too little to be rehearsed.
    NotRehearsed,
    /// PyTorch has to return cached memory to stay below the limit.
    GivesBack,
    /// A rehearsal failed.
    Failed,
    /// A limit is not known.
    UnknownLimit,
    /// A value is estimated, not measured.
    Estimated,
    /// A knob has no effect.
    Unused,
    /// Predictions were raised after earlier runs, or a value that one measured stands in for a calculated one.
    Learnt,
}

impl ReasonKind {
    /// The name in JSON.
    pub fn id(self) -> &'static str {
        match self {
            ReasonKind::Chosen => "chosen",
            ReasonKind::Refused => "refused",
            ReasonKind::Sacrificed => "sacrificed",
            ReasonKind::Died => "died",
            ReasonKind::Remedy => "remedy",
            ReasonKind::NotRehearsed => "not_rehearsed",
            ReasonKind::GivesBack => "gives_back",
            ReasonKind::Failed => "failed",
            ReasonKind::UnknownLimit => "unknown_limit",
            ReasonKind::Estimated => "estimated",
            ReasonKind::Unused => "unused",
            ReasonKind::Learnt => "learnt",
        }
    }
}

/// One step down.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rung {
    pub settings: Settings,
    /// What differs from the rung above.
    pub changed: Vec<Change>,
    pub brims: Vec<PlanBrim>,
    pub throughput: Option<Throughput>,
}

/// A knob that differs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    pub knob: String,
    pub from: crate::job::Value,
    pub to: crate::job::Value,
}

/// Settings that fit, or what comes closest.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Plan(Box<Plan>),
    Impossible(Box<Impossible>),
}

impl Answer {
    pub fn settings(&self) -> &Settings {
        match self {
            Answer::Plan(plan) => &plan.settings,
            Answer::Impossible(closest) => &closest.settings,
        }
    }
}

/// A rehearsal that an answer rests on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RehearsalUsed {
    pub settings: Settings,
    /// It was made before and kept.
    pub reused: bool,
    pub age_seconds: f64,
    /// How long it took when it was made.
    pub seconds: f64,
    /// It died before its first steps: its last words.
    pub failed: Option<String>,
}

/// What to do to come to a plan.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// A rehearsal with these settings is needed to go on.
    Rehearse(Settings),
    Done(Box<Plan>),
    /// Nothing fits: the closest, and the bytes that forbid it.
    Impossible(Box<Impossible>),
}

/// Nothing fits: what misses least, and what would help.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Impossible {
    pub settings: Settings,
    pub effective_batch: Option<u64>,
    pub footprint: Need,
    pub brims: Vec<PlanBrim>,
    /// One of kind `refused` for each limit that is missed, with its bytes; and what else is to say.
    pub reasons: Vec<Reason>,
    /// What would help, as sentences in the imperative.
    pub help: Vec<String>,
    /// The settings around the closest ones, at most 200.
    #[serde(default)]
    pub candidates: Vec<PlanCandidate>,
}

/// What follows a death.
#[derive(Clone, Debug, PartialEq)]
pub enum Revision {
    /// The next try, what differs from the last, and why, in one sentence.
    Next {
        settings: Settings,
        changed: Vec<Change>,
        why: String,
    },
    /// No setting would help.
    GiveUp { why: String },
}
