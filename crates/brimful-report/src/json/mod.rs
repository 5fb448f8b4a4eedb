//! The documents that programs read.

mod compare;
mod explain;
mod fleet;
mod from_machine;
mod gaps;
mod job;
mod machine_gpu;
mod measured;
mod plan;
mod predict;
mod predict_host;
mod probe;
mod range;
mod read;
mod replay;
mod side_effects;
mod speed;
mod verify;

pub use compare::{CompareDocument, ComparedGpu, JobLength};
pub use explain::{
    ExplainDocument, ExplainedAttempt, ExplainedProof, ExplainedRemedy, ExplainedVerdict,
    RunSummary, RunsDocument,
};
pub use fleet::{
    FleetCause, FleetDocument, FleetFiles, FleetJob, PredictionError, SkippedFile, UnusedMemory,
};
pub use gaps::Gap;
pub use job::{Choices, JobChoice, JobDocument, JobStart, Keep, Knobs, Mode, OneOrMore};
pub use machine_gpu::{GpusFrom, MachineGpu};
pub use measured::ContextMeasurement;
pub use plan::{
    EnvironmentVariable, KnobChange, PlanContext, PlanDocument, PlanReason, PlanRehearsal,
    PlannedBrim, PlannedBytes, PlannedCandidate, PlannedFootprint, PlannedRung, PlannedTerm,
    PlannedThroughput, SettingValue, WantedSettings,
};
pub use predict::{
    AllocatorAlternative, BudgetTerm, CurveColumn, FailedGpu, GpuFit, LargestUse, ModuleUse,
    PhaseBytes, PhaseUse, PredictDocument, PredictedPeak, PredictedTimeline, PredictionCaveat,
    Rehearsed, StepColumn, StepPhase,
};
pub use predict_host::{HostBudgetTerm, HostByWorkers, PredictedHost};
pub use probe::{
    AllocatorVariable, BrimDocument, Cgroup, Cpus, FindingDocument, Gpu, GpuProcess, Host, Killer,
    LimitDocument, MigInstance, Overcommit, Platform, PlatformLayer, PressureDocument,
    ProbeDocument, ProcessLimits, ProcessorLimit, Python, SCHEMA_VERSION, SharedMemory, SlurmJob,
    Subject, Torch, WholeLimit,
};

pub use range::LikelyAndSafe;
pub use read::{DocumentUnreadable, SavedDocument};
pub use replay::{
    LayoutBlock, LayoutSegment, LineMemory, MemoryByLine, MemoryLayout, ReplayAgreement,
    ReplayColumn, ReplayDocument, ReplayResult,
};
pub use side_effects::{Containment, HostConnection, SideEffects, SocketConnection};
pub use speed::{LowLikelyHigh, PredictedSpeed, StepSeconds};
pub use verify::{VerifiedBytes, VerifiedGpu, VerifiedRate, VerifyDocument};

use std::fmt::Write;

use brimful::printable::is_bidirectional_control;

/// The JSON Schema of [`ProbeDocument`].
pub fn probe_schema() -> schemars::Schema {
    schema::<ProbeDocument>()
}

/// The JSON Schema of [`PredictDocument`].
pub fn predict_schema() -> schemars::Schema {
    schema::<PredictDocument>()
}

/// The JSON Schema of [`CompareDocument`].
pub fn compare_schema() -> schemars::Schema {
    schema::<CompareDocument>()
}

/// The JSON Schema of [`PlanDocument`].
pub fn plan_schema() -> schemars::Schema {
    schema::<PlanDocument>()
}

/// The JSON Schema of [`ReplayDocument`].
pub fn replay_schema() -> schemars::Schema {
    schema::<ReplayDocument>()
}

/// The JSON Schema of [`ExplainDocument`].
pub fn explain_schema() -> schemars::Schema {
    schema::<ExplainDocument>()
}

/// The JSON Schema of [`FleetDocument`].
pub fn fleet_schema() -> schemars::Schema {
    schema::<FleetDocument>()
}

/// The JSON Schema of [`RunsDocument`].
pub fn runs_schema() -> schemars::Schema {
    schema::<RunsDocument>()
}

/// The JSON Schema of [`VerifyDocument`].
pub fn verify_schema() -> schemars::Schema {
    schema::<VerifyDocument>()
}

/// The JSON Schema of a job file, `brimful.toml`: what may be written, not what is printed.
pub fn job_schema() -> schemars::Schema {
    schemars::generate::SchemaSettings::draft2020_12()
        .for_deserialize()
        .into_generator()
        .into_root_schema_for::<JobDocument>()
}

fn schema<T: schemars::JsonSchema>() -> schemars::Schema {
    schemars::generate::SchemaSettings::draft2020_12()
        .for_serialize()
        .into_generator()
        .into_root_schema_for::<T>()
}

/// One JSON document, indented, with a final newline.
pub fn to_text(document: &impl serde::Serialize) -> Result<String, serde_json::Error> {
    let plain = serde_json::to_string_pretty(document)?;
    let mut text = String::with_capacity(plain.len() + 1);
    for c in plain.chars() {
        if is_bidirectional_control(c) {
            // Within a string, where alone such a character can be.
            let _ = write!(text, "\\u{:04x}", u32::from(c));
        } else {
            text.push(c);
        }
    }
    text.push('\n');
    Ok(text)
}

#[cfg(test)]
mod tests {
    #[test]
    fn text_in_other_scripts_stays_and_what_turns_it_around_is_escaped() {
        let text = super::to_text(&["a\u{202e}b\u{2066}", "שלום"]).unwrap();
        assert!(text.contains("a\\u202eb\\u2066") && text.contains("שלום"));
        let back: Vec<String> = serde_json::from_str(&text).unwrap();
        assert_eq!(back[0], "a\u{202e}b\u{2066}");
    }
}
