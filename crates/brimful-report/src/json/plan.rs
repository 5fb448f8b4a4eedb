//! The outward form of a plan: what `brimful plan --json` prints and `brimful.plan()` returns.

use std::collections::BTreeMap;

use brimful::job::{ConfigOverrides, Settings, Value};
use brimful::plan::{
    Answer, Change, Impossible, Need, Plan, PlanBrim, PlanCandidate, RateSource, Reason,
    RehearsalUsed, Rung, Throughput,
};
use brimful::predict::MeasuredContext;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::json::{
    Containment, ContextMeasurement, HostConnection, SCHEMA_VERSION, SideEffects, SocketConnection,
};

/// What is known of a plan besides itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanContext {
    /// The job file.
    pub job: String,
    pub mode: Option<String>,
    /// The machine it is for.
    pub machine: String,
    /// What the settings make of the job's command.
    pub command: Vec<String>,
    pub variables: Vec<(String, String)>,
    /// What copies of config files get.
    pub config: Vec<ConfigOverrides>,
    pub rehearsals: Vec<RehearsalUsed>,
    /// Nothing where no script was started.
    pub side_effects: Option<SideEffects>,
    /// Where the CUDA context is not calculated.
    pub measured_context: Option<MeasuredContext>,
    pub seconds: f64,
}

/// The fastest settings that fit, the reasons, and the lower rungs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "brimful plan")]
pub struct PlanDocument {
    /// The schema version of this document.
    pub schema_version: u32,
    /// The version of brimful that wrote it.
    pub brimful_version: String,
    /// The job file.
    pub job: String,
    /// The mode, if one was selected.
    pub mode: Option<String>,
    /// The machine it is for.
    pub machine: String,
    /// Whether any settings fit. If none do, `settings` are the closest ones.
    pub fits: bool,
    /// One value per knob.
    pub settings: BTreeMap<String, SettingValue>,
    /// Samples per optimizer step, over all ranks and accumulated micro-batches.
    pub effective_batch: Option<u64>,
    /// The job's command line with these settings.
    pub command: Vec<String>,
    /// Variables to set for it.
    pub environment: Vec<EnvironmentVariable>,
    /// Values to write into copies of the config files that the command names.
    pub config: Vec<PlannedConfig>,
    /// What the settings need.
    pub footprint: PlannedFootprint,
    /// Every limit, and how much of it the settings need.
    pub brims: Vec<PlannedBrim>,
    /// Expected throughput; `null` if unknown.
    pub throughput: Option<PlannedThroughput>,
    /// Why these settings and not better ones.
    pub reasons: Vec<PlanReason>,
    /// The settings to try next, best first.
    pub rungs: Vec<PlannedRung>,
    /// The preferred settings, and what they would need.
    pub wanted: WantedSettings,
    /// The settings around the planned ones, at most 200, also those that do not fit.
    #[serde(default)]
    pub candidates: Vec<PlannedCandidate>,
    /// The CUDA context in the memory of the GPU, if earlier runs measured it; `null` if it is calculated.
    #[serde(default)]
    pub measured_context: Option<ContextMeasurement>,
    /// The rehearsals that the plan is based on.
    pub rehearsals: Vec<PlanRehearsal>,
    /// How your files were protected from the script: `overlay`, `redirect`, or `off` if writes were allowed. `null` if
    /// all rehearsals came from the cache.
    pub isolation: Option<String>,
    /// How the GPUs of this machine were hidden from the script: `devices` (they were absent from its `/dev`),
    /// `landlock` (it was denied to open them), or `no_driver` if there is nothing to hide. `null` if all rehearsals came
    /// from the cache.
    #[serde(default)]
    pub gpu_hidden: Option<String>,
    /// How each kind of thing that the script could have reached was kept from it. `null` if
    /// all rehearsals came from the cache.
    #[serde(default)]
    pub containment: Option<Containment>,
    /// Requests of the script to experiment trackers and hubs that were not sent in the rehearsals made now.
    pub suppressed: Vec<String>,
    /// Other hosts, and services on this machine, that the script connected to in the rehearsals made now.
    pub connections: Vec<HostConnection>,
    /// Local sockets that the script connected to, or could not, in the rehearsals made now.
    #[serde(default)]
    pub sockets: Vec<SocketConnection>,
    /// How long planning took.
    pub seconds: f64,
}

/// The preferred settings: the first value of each knob.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WantedSettings {
    /// One value per knob.
    pub settings: BTreeMap<String, SettingValue>,
    /// Every limit, and how much of it they would need. Empty if unknown.
    pub brims: Vec<PlannedBrim>,
    /// Expected throughput; `null` if unknown.
    pub throughput: Option<PlannedThroughput>,
    /// Knobs whose planned value changes the training result.
    pub result_changes: Vec<String>,
}

/// Settings that were compared with the planned ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedCandidate {
    /// One value per knob.
    pub settings: BTreeMap<String, SettingValue>,
    /// Every limit, and how much of it they need.
    pub brims: Vec<PlannedBrim>,
    /// Expected throughput; `null` if unknown.
    pub throughput: Option<PlannedThroughput>,
    /// Whether they fit.
    pub fits: bool,
}

/// A value of a knob.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum SettingValue {
    /// A boolean.
    Flag(bool),
    /// An integer.
    Whole(i64),
    /// A floating-point number.
    Number(f64),
    /// A string.
    Text(String),
}

impl SettingValue {
    /// The value as people write it.
    pub(crate) fn words(&self) -> String {
        match self {
            SettingValue::Flag(flag) => flag.to_string(),
            SettingValue::Whole(number) => number.to_string(),
            SettingValue::Number(number) => number.to_string(),
            SettingValue::Text(text) => text.clone(),
        }
    }
}

/// The values to write into the copy of a config file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedConfig {
    /// The file as the command names it.
    pub file: String,
    /// Keys, with dots, and their values.
    pub values: BTreeMap<String, SettingValue>,
}

/// A variable to set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EnvironmentVariable {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// The host and GPU memory that settings need.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedFootprint {
    /// Anonymous and shared memory of all processes together.
    pub host: PlannedBytes,
    /// The part of it in /dev/shm.
    pub shm: PlannedBytes,
    /// The GPU with the highest use; `null` for a job on the CPU.
    pub gpu: Option<PlannedBytes>,
    /// Use of host memory at its peak.
    pub host_terms: Vec<PlannedTerm>,
}

/// A likely and a safe number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedBytes {
    /// The most likely value.
    pub likely_bytes: u64,
    /// The safe value: 95 % of runs stay below it.
    pub safe_bytes: u64,
}

/// One use of host memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedTerm {
    /// Such as `program`, `dataset`, `worker_copies` or `batches`.
    pub name: String,
    /// The most likely value.
    pub likely_bytes: u64,
    /// The safe value: 95 % of runs stay below it.
    pub safe_bytes: u64,
    /// An explanation, if there is one.
    pub reason: Option<String>,
}

/// A limit, and how much of it the settings need.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedBrim {
    /// `host`, `shm` or `gpu`, with an index if there are several.
    pub name: String,
    /// Bytes available to the job.
    pub limit_bytes: u64,
    /// The most likely use.
    pub likely_bytes: u64,
    /// The safe value: 95 % of runs stay below it.
    pub safe_bytes: u64,
}

/// Expected throughput.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedThroughput {
    /// Samples per second.
    pub samples_per_second: f64,
    /// `measured` in an earlier run with these settings, `calculated` from the operators of a rehearsed step, or
    /// `estimated`: a ranking of settings, not a value.
    pub source: String,
}

/// One reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlanReason {
    /// Such as `refused`, `sacrificed`, `chosen` or `estimated`.
    pub kind: String,
    /// The sentence.
    pub text: String,
    /// The limit that is exceeded, if any.
    pub brim: Option<String>,
    /// By how many bytes it is exceeded.
    pub missing_bytes: Option<u64>,
}

/// One rung.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedRung {
    /// One value per knob.
    pub settings: BTreeMap<String, SettingValue>,
    /// What differs from the rung above.
    pub changed: Vec<KnobChange>,
    /// Every limit, and how much of it the rung needs.
    pub brims: Vec<PlannedBrim>,
    /// Expected throughput; `null` if unknown.
    pub throughput: Option<PlannedThroughput>,
}

/// A knob that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KnobChange {
    /// The knob.
    pub knob: String,
    /// Its value on the rung above.
    pub before: String,
    /// Its value on this one.
    pub after: String,
}

/// A rehearsal that the plan is based on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlanRehearsal {
    /// One value per knob.
    pub settings: BTreeMap<String, SettingValue>,
    /// Whether it came from the cache.
    pub reused: bool,
    /// How long ago it was made.
    pub age_seconds: f64,
    /// How long it took when it was made.
    pub seconds: f64,
    /// The last line of output, if the script failed before its first steps.
    pub failed: Option<String>,
}

impl PlanDocument {
    /// The document of an answer.
    pub fn of(context: &PlanContext, answer: &Answer) -> PlanDocument {
        match answer {
            Answer::Plan(plan) => PlanDocument::of_plan(context, plan),
            Answer::Impossible(closest) => PlanDocument::of_impossible(context, closest),
        }
    }

    fn of_plan(context: &PlanContext, plan: &Plan) -> PlanDocument {
        let effects = context.side_effects.as_ref();
        PlanDocument {
            schema_version: SCHEMA_VERSION,
            brimful_version: env!("CARGO_PKG_VERSION").into(),
            job: context.job.clone(),
            mode: context.mode.clone(),
            machine: context.machine.clone(),
            fits: true,
            settings: settings(&plan.settings),
            effective_batch: plan.effective_batch,
            command: context.command.clone(),
            environment: environment(&context.variables),
            config: config(&context.config),
            footprint: footprint(&plan.footprint),
            brims: plan.brims.iter().map(brim).collect(),
            throughput: throughput(Some(plan.throughput)),
            reasons: plan.reasons.iter().map(reason).collect(),
            rungs: plan.rungs.iter().map(rung).collect(),
            wanted: WantedSettings {
                settings: settings(&plan.wanted.settings),
                brims: plan.wanted.brims.iter().map(brim).collect(),
                throughput: throughput(plan.wanted.throughput),
                result_changes: plan.wanted.result_changes.clone(),
            },
            candidates: plan.candidates.iter().map(candidate).collect(),
            measured_context: context
                .measured_context
                .as_ref()
                .map(ContextMeasurement::of),
            rehearsals: context.rehearsals.iter().map(rehearsal).collect(),
            isolation: effects.map(|effects| effects.isolation.clone()),
            gpu_hidden: effects.map(|effects| effects.gpu_hidden.clone()),
            containment: effects.map(|effects| effects.containment.clone()),
            suppressed: effects.map_or_else(Vec::new, |effects| effects.suppressed.clone()),
            connections: effects.map_or_else(Vec::new, |effects| effects.connections.clone()),
            sockets: effects.map_or_else(Vec::new, |effects| effects.sockets.clone()),
            seconds: rounded(context.seconds),
        }
    }

    fn of_impossible(context: &PlanContext, closest: &Impossible) -> PlanDocument {
        PlanDocument {
            fits: false,
            ..PlanDocument::of_plan(
                context,
                &Plan {
                    settings: closest.settings.clone(),
                    effective_batch: closest.effective_batch,
                    footprint: closest.footprint.clone(),
                    brims: closest.brims.clone(),
                    reasons: closest.reasons.clone(),
                    candidates: closest.candidates.clone(),
                    ..Plan::default()
                },
            )
        }
    }
}

/// Settings as a document holds them.
fn settings(of: &Settings) -> BTreeMap<String, SettingValue> {
    of.0.iter()
        .map(|(knob, value)| (knob.clone(), setting(value)))
        .collect()
}

fn config(files: &[ConfigOverrides]) -> Vec<PlannedConfig> {
    let planned = |file: &ConfigOverrides| PlannedConfig {
        file: file.path.clone(),
        values: file
            .entries
            .iter()
            .map(|(key, value)| (key.clone(), setting(value)))
            .collect(),
    };
    files.iter().map(planned).collect()
}

fn setting(value: &Value) -> SettingValue {
    match value {
        Value::Flag(flag) => SettingValue::Flag(*flag),
        Value::Whole(number) => SettingValue::Whole(*number),
        Value::Number(number) => SettingValue::Number(*number),
        Value::Text(text) => SettingValue::Text(text.clone()),
    }
}

fn environment(variables: &[(String, String)]) -> Vec<EnvironmentVariable> {
    variables
        .iter()
        .map(|(name, value)| EnvironmentVariable {
            name: name.clone(),
            value: value.clone(),
        })
        .collect()
}

fn footprint(need: &Need) -> PlannedFootprint {
    let bytes = |likely: brimful::units::Bytes, safe: brimful::units::Bytes| PlannedBytes {
        likely_bytes: likely.get(),
        safe_bytes: safe.get(),
    };
    PlannedFootprint {
        host: bytes(need.host.likely, need.host.safe),
        shm: bytes(need.host.shm_likely, need.host.shm_safe),
        gpu: need.gpu.as_ref().map(|gpu| bytes(gpu.likely, gpu.safe)),
        host_terms: need
            .host
            .terms
            .iter()
            .map(|term| PlannedTerm {
                name: term.id.name().to_owned(),
                likely_bytes: term.likely.get(),
                safe_bytes: term.safe.get(),
                reason: term.reason.clone(),
            })
            .collect(),
    }
}

fn brim(brim: &PlanBrim) -> PlannedBrim {
    PlannedBrim {
        name: brim.name.clone(),
        limit_bytes: brim.limit.get(),
        likely_bytes: brim.likely.get(),
        safe_bytes: brim.safe.get(),
    }
}

fn throughput(found: Option<Throughput>) -> Option<PlannedThroughput> {
    let found = found.filter(|found| found.samples_per_second > 0.0)?;
    Some(PlannedThroughput {
        samples_per_second: rounded(found.samples_per_second),
        source: match found.from {
            RateSource::Measured => "measured".into(),
            RateSource::Calculated => "calculated".into(),
            RateSource::Estimated => "estimated".into(),
        },
    })
}

fn reason(reason: &Reason) -> PlanReason {
    PlanReason {
        kind: reason.kind.id().to_owned(),
        text: reason.text.clone(),
        brim: reason.brim.clone(),
        missing_bytes: reason.missing.map(brimful::units::Bytes::get),
    }
}

fn rung(rung: &Rung) -> PlannedRung {
    PlannedRung {
        settings: settings(&rung.settings),
        changed: rung.changed.iter().map(change).collect(),
        brims: rung.brims.iter().map(brim).collect(),
        throughput: throughput(rung.throughput),
    }
}

fn candidate(candidate: &PlanCandidate) -> PlannedCandidate {
    PlannedCandidate {
        settings: settings(&candidate.settings),
        brims: candidate.brims.iter().map(brim).collect(),
        throughput: throughput(Some(candidate.throughput)),
        fits: candidate.fits,
    }
}

fn change(change: &Change) -> KnobChange {
    KnobChange {
        knob: change.knob.clone(),
        before: change.from.to_string(),
        after: change.to.to_string(),
    }
}

fn rehearsal(used: &RehearsalUsed) -> PlanRehearsal {
    PlanRehearsal {
        settings: settings(&used.settings),
        reused: used.reused,
        age_seconds: used.age_seconds.round(),
        seconds: (used.seconds * 10.0).round() / 10.0,
        failed: used.failed.clone(),
    }
}

fn rounded(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}
