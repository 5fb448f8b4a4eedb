//! The outward form of verdicts and runs: what `brimful explain --json` and `brimful runs --json` print.

use brimful::explain::Verdict;
use brimful::record::{Attempt, Measured, Outcome, Record, TimeAxis, curves};
use brimful::units::Bytes;
use schemars::JsonSchema;
use serde::Serialize;

use crate::json::SCHEMA_VERSION;

/// Columns of the sparkline of a run.
const SPARKLINE_COLUMNS: usize = 60;

/// Why a run died.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(title = "brimful explain")]
pub struct ExplainDocument {
    /// The schema version of this document.
    pub schema_version: u32,
    /// The version of brimful that wrote it.
    pub brimful_version: String,
    /// What was explained: the ID of a run, the name of a file, or `-` for standard input.
    pub source: String,
    /// The run, if it was one.
    pub run: Option<RunSummary>,
    /// What happened in each attempt, if the run was restarted; empty otherwise.
    pub attempts: Vec<ExplainedAttempt>,
    /// Why the last attempt ended.
    pub verdict: ExplainedVerdict,
}

/// One attempt of a run that was restarted.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ExplainedAttempt {
    /// The number of the attempt, from 1.
    pub number: u32,
    /// What differs from the attempt before, such as `workers 4 to 2`.
    pub changed: Vec<String>,
    /// The checkpoint it resumed from.
    pub resumed_from: Option<String>,
    /// The cause of its end, if it has ended.
    pub cause: Option<String>,
    /// `proved`, `likely` or `cannot_tell`.
    pub confidence: Option<String>,
    /// One sentence.
    pub summary: Option<String>,
    /// Number of alarms after which memory did not run out.
    pub n_false_alarms: u32,
}

/// Why an attempt ended.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ExplainedVerdict {
    /// One of the closed list of causes, such as `host_oom_kill`.
    pub cause: String,
    /// `proved`, `likely` or `cannot_tell`.
    pub confidence: String,
    /// A closer description of the cause.
    pub detail: String,
    /// One sentence.
    pub summary: String,
    /// Evidence, strongest first.
    pub evidence: Vec<ExplainedProof>,
    /// What to do, cheapest first.
    pub remedies: Vec<ExplainedRemedy>,
    /// What would confirm the cause, if it is not proved.
    pub would_settle: Vec<String>,
}

/// One line of evidence.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ExplainedProof {
    /// Where it comes from: `kernel`, `kernel_log`, `wait_status`, `samples`, `hook`, `snapshot` or `output`.
    pub source: String,
    /// What it shows, with the measured values.
    pub text: String,
}

/// A way to avoid the failure.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ExplainedRemedy {
    /// What to do.
    pub text: String,
    /// The effect it would have had on this run, if that can be computed.
    pub effect: Option<String>,
    /// Memory that would then be in use, if that can be computed.
    pub used_bytes: Option<u64>,
    /// The limit that `used_bytes` counts against.
    pub limit_bytes: Option<u64>,
}

/// All recorded runs, newest first.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(title = "brimful runs")]
pub struct RunsDocument {
    /// The schema version of this document.
    pub schema_version: u32,
    /// The version of brimful that wrote it.
    pub brimful_version: String,
    /// The state directory.
    pub state_dir: String,
    /// Newest first.
    pub runs: Vec<RunSummary>,
}

/// Summary of a run.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RunSummary {
    /// The ID of the run.
    pub id: String,
    /// Milliseconds since 1970.
    pub started_at_unix_ms: u64,
    /// The command.
    pub command: Vec<String>,
    /// The working directory.
    pub folder: String,
    /// `running`, `finished`, `failed`, `killed`, `stopped_by_us`, `stopped_by_user`, `not_started`, `ended` if its exit
    /// status is unknown, or `cut_off` if brimful itself ended before the run.
    pub state: String,
    /// The exit code, if it exited.
    pub exit_code: Option<i32>,
    /// The signal, if one killed it.
    pub signal: Option<i32>,
    /// Number of attempts: more than one if it was restarted.
    pub n_attempts: u32,
    /// Total duration of all attempts, as far as it was observed.
    pub duration_ms: u64,
    /// Peak host memory of all attempts.
    pub peak_host_used_bytes: Option<u64>,
    /// The nearest limit that kills.
    pub host_limit_bytes: Option<u64>,
    /// The cause in the verdict of the last attempt, if there is one.
    pub cause: Option<String>,
    /// The summary of the verdict.
    pub summary: Option<String>,
    /// Peak host memory in each of 60 equal parts of the run, in bytes; `null` where nothing was sampled. Empty if
    /// nothing was sampled at all.
    pub host_used_sparkline: Vec<Option<u64>>,
}

impl ExplainDocument {
    pub fn of(
        source: &str,
        run: Option<RunSummary>,
        attempts: Vec<ExplainedAttempt>,
        verdict: &Verdict,
    ) -> ExplainDocument {
        ExplainDocument {
            schema_version: SCHEMA_VERSION,
            brimful_version: env!("CARGO_PKG_VERSION").into(),
            source: source.to_owned(),
            run,
            attempts,
            verdict: ExplainedVerdict::of(verdict),
        }
    }
}

impl ExplainedAttempt {
    /// Every attempt of a run that came back.
    pub fn all_of(record: &Record) -> Vec<ExplainedAttempt> {
        if record.attempts.len() < 2 {
            return Vec::new();
        }
        record.attempts.iter().map(ExplainedAttempt::of).collect()
    }

    fn of(attempt: &Attempt) -> ExplainedAttempt {
        let verdict = attempt.verdict.as_ref();
        ExplainedAttempt {
            number: attempt.start.number,
            changed: attempt
                .start
                .changed
                .iter()
                .map(|change| format!("{} {} to {}", change.knob, change.from, change.to))
                .collect(),
            resumed_from: attempt.start.resumed_from.clone(),
            cause: verdict.map(|verdict| verdict.cause.id().to_owned()),
            confidence: verdict.map(|verdict| verdict.confidence.id().to_owned()),
            summary: verdict.map(|verdict| verdict.summary.clone()),
            n_false_alarms: verdict.map_or(0, |verdict| attempt.n_false_alarms(verdict)),
        }
    }
}

impl ExplainedVerdict {
    pub fn of(verdict: &Verdict) -> ExplainedVerdict {
        ExplainedVerdict {
            cause: verdict.cause.id().into(),
            confidence: verdict.confidence.id().to_owned(),
            detail: verdict.detail.id().to_owned(),
            summary: verdict.summary.clone(),
            evidence: verdict
                .evidence
                .iter()
                .map(|proof| ExplainedProof {
                    source: word(&proof.source),
                    text: proof.text.clone(),
                })
                .collect(),
            remedies: verdict
                .remedies
                .iter()
                .map(|remedy| ExplainedRemedy {
                    text: remedy.text.clone(),
                    effect: remedy.effect.clone(),
                    used_bytes: remedy.memory.map(|memory| memory.used.get()),
                    limit_bytes: remedy.memory.map(|memory| memory.limit.get()),
                })
                .collect(),
            would_settle: verdict.would_settle.clone(),
        }
    }
}

impl RunsDocument {
    pub fn of(state_dir: &str, runs: Vec<RunSummary>) -> RunsDocument {
        RunsDocument {
            schema_version: SCHEMA_VERSION,
            brimful_version: env!("CARGO_PKG_VERSION").into(),
            state_dir: state_dir.to_owned(),
            runs,
        }
    }
}

impl RunSummary {
    /// A run in short; `running` says that brimful still watches it.
    pub fn of(record: &Record, running: bool) -> RunSummary {
        let attempt = record.last_attempt();
        let end = attempt.and_then(|attempt| attempt.end.as_ref());
        let (state, exit_code, signal) = match end.map(|end| &end.outcome) {
            Some(Outcome::Finished) => ("finished", Some(0), None),
            Some(Outcome::Failed { code }) => ("failed", Some(*code), None),
            Some(Outcome::Killed { signal }) => ("killed", None, Some(*signal)),
            Some(Outcome::StoppedByUs { signal, .. }) => ("stopped_by_us", None, *signal),
            Some(Outcome::StoppedByUser { signal }) => ("stopped_by_user", None, Some(*signal)),
            Some(Outcome::Unseen) => ("ended", None, None),
            Some(Outcome::NotStarted { .. }) => ("not_started", None, None),
            None if running => ("running", None, None),
            None => ("cut_off", None, None),
        };
        let verdict = attempt.and_then(|attempt| attempt.verdict.as_ref());
        RunSummary {
            id: record.run.id.clone(),
            started_at_unix_ms: record.run.started_at_unix_ms,
            // Records of earlier versions hold secrets.
            command: brimful::secrets::mask_command(&record.run.command),
            folder: record.run.folder.clone(),
            state: state.into(),
            exit_code,
            signal,
            n_attempts: u32::try_from(record.attempts.len()).unwrap_or(u32::MAX),
            duration_ms: record
                .attempts
                .iter()
                .fold(0, |sum, attempt| sum.saturating_add(attempt.duration_ms())),
            peak_host_used_bytes: record
                .attempts
                .iter()
                .filter_map(peak_host_used)
                .max()
                .map(Bytes::get),
            host_limit_bytes: attempt
                .and_then(|attempt| attempt.start.limit)
                .map(Bytes::get),
            cause: verdict.map(|verdict| verdict.cause.id().to_owned()),
            summary: verdict.map(|verdict| verdict.summary.clone()),
            host_used_sparkline: sparkline(record),
        }
    }
}

fn sparkline(record: &Record) -> Vec<Option<u64>> {
    let axis = TimeAxis::of(record);
    let curves = curves(record, &axis, (0, axis.end_ms()), SPARKLINE_COLUMNS);
    let host = curves
        .into_iter()
        .find(|curve| curve.measured == Measured::Host);
    let columns = host.map_or_else(Vec::new, |curve| curve.columns);
    columns
        .iter()
        .map(|extent| Some(extent.as_ref()?.highest.get()))
        .collect()
}

fn peak_host_used(attempt: &Attempt) -> Option<Bytes> {
    let end = attempt.end.as_ref();
    end.and_then(|end| end.peaks.host_used).or_else(|| {
        let samples = attempt.samples.iter();
        samples.filter_map(|sample| Some(sample.host?.used)).max()
    })
}

/// How a value of one word stands in JSON.
fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use brimful::record::Record;

    use super::*;

    #[test]
    fn a_run_is_told_by_its_last_attempt_and_counted_by_all() {
        let text = r#"{"line":"run","id":"a"}
{"line":"attempt","number":1}
{"line":"sample","at_ms":4000,"host":{"used_bytes":900,"limit_bytes":1000,"headroom_bytes":100}}
{"line":"end","at_ms":5000,"outcome":{"kind":"killed","signal":9},"kernel":{},"peaks":{"host_used_bytes":990},"last":null}
{"line":"verdict","at_ms":5000,"verdict":{"cause":"host_oom_kill","confidence":"proved","detail":"","summary":"killed","evidence":[],"remedies":[]}}
{"line":"attempt","number":2,"settings":{"workers":2},"changed":[{"knob":"workers","from":4,"to":2}]}
{"line":"sample","at_ms":2000,"host":{"used_bytes":500,"limit_bytes":1000,"headroom_bytes":500}}
"#;
        let record = Record::read(text.as_bytes()).unwrap();
        assert_eq!(record.n_broken_lines, 0);
        let summary = RunSummary::of(&record, true);
        assert_eq!(summary.state, "running");
        assert_eq!((summary.n_attempts, summary.duration_ms), (2, 7000));
        assert_eq!(summary.peak_host_used_bytes, Some(990));
        assert_eq!(summary.cause, None);
        assert_eq!(summary.host_used_sparkline.len(), SPARKLINE_COLUMNS);
        assert_eq!(summary.host_used_sparkline[34], Some(900));
        assert_eq!(summary.host_used_sparkline[59], Some(500));
        assert_eq!(RunSummary::of(&record, false).state, "cut_off");
    }
}
