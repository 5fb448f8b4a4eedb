//! One attempt of a run as a row of a table.

use std::collections::BTreeSet;
use std::path::Path;

use crate::plan::PlanBrim;
use crate::record::{Attempt, Outcome, Peaks, Record};
use crate::secrets::mask_text;
use crate::units::Bytes;

/// Raised when a column changes its meaning or goes away. Readers skip rows of a newer version; new columns do not raise
/// it.
pub const SCHEMA_VERSION: i32 = 1;

/// Characters of a text in a row.
pub const MAX_TEXT: usize = 400;

/// One attempt of a run. It has no variable of the environment and no word of the command but the name of the script.
///
/// Times and sizes are numbers in base units. What is not known is missing, never zero.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AttemptRow {
    pub schema_version: i32,
    pub run: String,
    /// A digest of the directory and the command: runs of the same job have the same.
    pub job: Option<String>,
    /// The file name of the script or program.
    pub script: Option<String>,
    pub host_name: String,
    pub brimful_version: String,
    /// The Slurm job, as its cgroup names it.
    pub slurm_job: Option<i64>,
    /// When the attempt began, in milliseconds since 1970.
    pub started_at_unix_ms: i64,
    /// From 1.
    pub attempt: i32,
    /// The last attempt of its run.
    pub is_last: bool,
    /// Duration, as far as it was recorded.
    pub seconds: f64,
    pub is_resumed: bool,
    /// Values of the knobs, as JSON.
    pub settings: Option<String>,
    /// Earlier attempts of the run that ran out of memory.
    pub rungs: i32,
    /// `finished`, `failed`, `killed`, `stopped_by_us`, `stopped_by_user`, `not_started`, `unseen`, or `cut_off` if
    /// brimful did not see the end.
    pub outcome: String,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    /// As in verdicts, such as `host_oom_kill`; missing if the attempt finished.
    pub cause: Option<String>,
    pub confidence: Option<String>,
    /// The cause is memory.
    pub is_memory: bool,
    pub n_false_alarms: i32,
    pub host_limit_bytes: Option<i64>,
    pub host_peak_bytes: Option<i64>,
    /// What was predicted: the likely value, and the safe one.
    pub host_likely_bytes: Option<i64>,
    pub host_safe_bytes: Option<i64>,
    pub shm_peak_bytes: Option<i64>,
    /// GPUs that the job used, or those of the machine if the driver does not say who uses them.
    pub n_gpus: i32,
    pub gpu: Option<String>,
    /// Of the fullest GPU.
    pub gpu_size_bytes: Option<i64>,
    pub gpu_peak_bytes: Option<i64>,
    pub gpu_likely_bytes: Option<i64>,
    pub gpu_safe_bytes: Option<i64>,
    /// Work that a failure has lost: from the newest checkpoint, or else from the start, to the end.
    pub wasted_seconds: f64,
    pub wasted_gpu_hours: f64,
}

/// The attempts of a run as rows, oldest first. Empty if nothing was started.
pub fn rows_of(record: &Record) -> Vec<AttemptRow> {
    let n_attempts = record.attempts.len();
    let mut rungs = 0;
    record
        .attempts
        .iter()
        .enumerate()
        .map(|(idx, attempt)| {
            let row = row(record, attempt, rungs, idx + 1 == n_attempts);
            rungs += i32::from(row.is_memory);
            row
        })
        .collect()
}

fn row(record: &Record, attempt: &Attempt, rungs: i32, is_last: bool) -> AttemptRow {
    let start = &attempt.start;
    let end = attempt.end.as_ref();
    let outcome = end.map(|end| &end.outcome);
    let has_finished = outcome == Some(&Outcome::Finished);
    let verdict = attempt.verdict.as_ref().filter(|_| !has_finished);
    let (exit_code, signal) = codes(outcome);
    let observed = observed_peaks(attempt);
    let peaks = end.map_or(&observed, |end| &end.peaks);
    let last_ms = attempt.samples.last().map_or(0, |sample| sample.at_ms);
    let ms = end.map_or(last_ms, |end| end.at_ms);
    let gpus = GpuColumns::of(attempt, peaks);
    let predicted = |name: &str| start.predicted.iter().find(|brim| brim.name == name);
    let (host, gpu) = (predicted("host"), predicted("gpu"));
    let counts_as_lost = !matches!(
        outcome,
        Some(Outcome::Finished | Outcome::StoppedByUser { .. } | Outcome::NotStarted { .. })
    );
    let wasted_seconds = if counts_as_lost {
        lost_ms(attempt, ms) as f64 / 1e3
    } else {
        0.0
    };
    AttemptRow {
        schema_version: SCHEMA_VERSION,
        run: text(&record.run.id),
        job: Some(text(&record.run.job)).filter(|job| !job.is_empty()),
        script: script_of(&start.command),
        host_name: text(&record.run.host_name),
        brimful_version: text(&record.run.brimful_version),
        slurm_job: start.cgroup.as_deref().and_then(slurm_job),
        started_at_unix_ms: signed(start.started_at_unix_ms),
        attempt: i32::try_from(start.number).unwrap_or(i32::MAX),
        is_last,
        seconds: ms as f64 / 1e3,
        is_resumed: start.resumed_from.is_some(),
        settings: start
            .settings
            .as_ref()
            .and_then(|settings| serde_json::to_string(settings).ok())
            .map(|settings| text(&mask_text(&settings))),
        rungs,
        outcome: outcome.map_or("cut_off", Outcome::id).to_owned(),
        exit_code,
        signal,
        cause: verdict.map(|verdict| verdict.cause.id().to_owned()),
        confidence: verdict.map(|verdict| verdict.confidence.id().to_owned()),
        is_memory: verdict.is_some_and(|verdict| verdict.cause.is_memory()),
        n_false_alarms: attempt.verdict.as_ref().map_or(0, |verdict| {
            i32::try_from(attempt.n_false_alarms(verdict)).unwrap_or(i32::MAX)
        }),
        host_limit_bytes: start.limit.map(bytes),
        host_peak_bytes: peaks.host_used.map(bytes),
        host_likely_bytes: host.map(|host| bytes(host.likely)),
        host_safe_bytes: host.map(|host| bytes(host.safe)),
        shm_peak_bytes: peaks.shm_used.map(bytes),
        n_gpus: gpus.count,
        gpu: gpus.model,
        gpu_size_bytes: gpus.size.map(bytes),
        gpu_peak_bytes: gpus.peak.map(bytes),
        gpu_likely_bytes: gpu.map(|gpu: &PlanBrim| bytes(gpu.likely)),
        gpu_safe_bytes: gpu.map(|gpu| bytes(gpu.safe)),
        wasted_seconds,
        wasted_gpu_hours: wasted_seconds / 3600.0 * f64::from(gpus.count),
    }
}

fn codes(outcome: Option<&Outcome>) -> (Option<i32>, Option<i32>) {
    match outcome {
        Some(Outcome::Finished) => (Some(0), None),
        Some(Outcome::Failed { code }) => (Some(*code), None),
        Some(Outcome::Killed { signal } | Outcome::StoppedByUser { signal }) => {
            (None, Some(*signal))
        }
        Some(Outcome::StoppedByUs { signal, .. }) => (None, *signal),
        Some(Outcome::Unseen | Outcome::NotStarted { .. }) | None => (None, None),
    }
}

/// Of an attempt whose end brimful did not see.
fn observed_peaks(attempt: &Attempt) -> Peaks {
    let mut peaks = Peaks::default();
    for sample in &attempt.samples {
        peaks.include(sample);
    }
    peaks
}

/// Milliseconds from the newest checkpoint of an attempt, or else from its start, to its end.
fn lost_ms(attempt: &Attempt, end_ms: u64) -> u64 {
    let written_ms = attempt.checkpoint.as_ref().map_or(0, |checkpoint| {
        checkpoint
            .written_at_unix_ms
            .saturating_sub(attempt.start.started_at_unix_ms)
    });
    end_ms.saturating_sub(written_ms)
}

struct GpuColumns {
    count: i32,
    model: Option<String>,
    size: Option<Bytes>,
    peak: Option<Bytes>,
}

impl GpuColumns {
    fn of(attempt: &Attempt, peaks: &Peaks) -> GpuColumns {
        let samples = || attempt.samples.iter().flat_map(|sample| &sample.gpus);
        let is_known = samples().any(|gpu| gpu.ours.is_some());
        let used: BTreeSet<u32> = samples()
            .filter(|gpu| gpu.ours.is_some_and(|ours| ours > Bytes(0)))
            .map(|gpu| gpu.index)
            .collect();
        let is_used = |index: u32| !is_known || used.contains(&index);
        let count = if is_known {
            used.len()
        } else {
            attempt.start.gpus.len()
        };
        let fullest = peaks
            .gpu_used
            .iter()
            .filter(|(index, _)| is_used(*index))
            .max_by_key(|(_, used)| *used);
        let index = fullest.map(|(index, _)| *index);
        let of_index = |of: u32| index.is_none_or(|index| index == of);
        GpuColumns {
            count: i32::try_from(count).unwrap_or(i32::MAX),
            model: attempt
                .start
                .gpus
                .iter()
                .find(|gpu| of_index(gpu.index))
                .map(|gpu| text(&gpu.name)),
            size: samples()
                .find(|gpu| of_index(gpu.index))
                .map(|gpu| gpu.total),
            peak: fullest.map(|(_, used)| *used),
        }
    }
}

/// The script of a command, else the module or the program, without its directory.
fn script_of(command: &[String]) -> Option<String> {
    let is_script = |word: &&String| {
        let extension = Path::new(word.as_str()).extension();
        !word.starts_with('-')
            && extension.is_some_and(|found| ["py", "ipynb", "sh"].iter().any(|one| found == *one))
    };
    let after_m = || {
        let at = command.iter().position(|word| word == "-m")?;
        command.get(at + 1)
    };
    let word = command
        .iter()
        .find(is_script)
        .or_else(after_m)
        .or_else(|| command.first())?;
    let name = Path::new(word).file_name()?.to_str()?;
    Some(text(&mask_text(name)))
}

/// `…/slurm/uid_1000/job_4711/step_0/…`, or `…/job_4711/…` with cgroup v2.
fn slurm_job(cgroup: &str) -> Option<i64> {
    cgroup
        .split('/')
        .find_map(|part| part.strip_prefix("job_")?.parse().ok())
}

/// Short and harmless on a terminal.
fn text(text: &str) -> String {
    text.chars()
        .map(|c| {
            if crate::printable::is_printable(c) {
                c
            } else {
                ' '
            }
        })
        .take(MAX_TEXT)
        .collect()
}

fn bytes(bytes: Bytes) -> i64 {
    signed(bytes.get())
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "small whole numbers are exact")]
mod tests {
    use super::*;
    use crate::explain::{Cause, Verdict};
    use crate::job::Settings;
    use crate::record::RunLine;
    use crate::record::{AttemptLine, CheckpointLine, EndLine, GpuModel, KernelCounts, OwnCost};
    use crate::watch::{GpuSample, Sample};

    fn ended(number: u32, outcome: Outcome, cause: Option<Cause>) -> Attempt {
        Attempt {
            start: AttemptLine {
                number,
                started_at_unix_ms: 1_000_000,
                command: [
                    "python",
                    "-u",
                    "/home/me/secret-project/train.py",
                    "--token=hf_abcdefghij",
                ]
                .map(str::to_owned)
                .to_vec(),
                gpus: vec![GpuModel::default(); 4],
                ..AttemptLine::default()
            },
            end: Some(EndLine {
                at_ms: 7_200_000,
                outcome,
                kernel: KernelCounts::default(),
                peaks: Peaks {
                    host_used: Some(Bytes(5)),
                    gpu_used: vec![(0, Bytes(3)), (1, Bytes(9))],
                    ..Peaks::default()
                },
                last: None,
                n_left_behind: 0,
                orphans: Vec::new(),
                own_cost: OwnCost::default(),
            }),
            verdict: cause.map(|cause| Verdict {
                cause,
                ..Verdict::cannot_tell()
            }),
            ..Attempt::default()
        }
    }

    fn record(attempts: Vec<Attempt>) -> Record {
        Record {
            run: RunLine {
                id: "r".into(),
                job: "0123456789abcdef".into(),
                ..RunLine::default()
            },
            attempts,
            ..Record::default()
        }
    }

    #[test]
    fn a_run_that_came_back_has_a_row_for_each_attempt() {
        let oom = Outcome::Killed { signal: 9 };
        let rows = rows_of(&record(vec![
            ended(1, oom.clone(), Some(Cause::HostOomKill)),
            ended(2, Outcome::Finished, None),
        ]));
        let found: Vec<_> = rows
            .iter()
            .map(|row| {
                (
                    row.attempt,
                    row.rungs,
                    row.is_last,
                    row.is_memory,
                    row.outcome.as_str(),
                )
            })
            .collect();
        assert_eq!(
            found,
            [
                (1, 0, false, true, "killed"),
                (2, 1, true, false, "finished")
            ]
        );
        assert_eq!(rows[0].wasted_seconds, 7200.0);
        assert_eq!(rows[0].wasted_gpu_hours, 8.0);
        assert_eq!(rows[1].wasted_gpu_hours, 0.0);
        assert_eq!(rows[0].signal, Some(9));
        assert_eq!(rows[1].cause, None);
    }

    #[test]
    fn what_a_checkpoint_has_saved_is_not_lost() {
        let mut attempt = ended(
            1,
            Outcome::Failed { code: 1 },
            Some(Cause::CudaOomExhausted),
        );
        attempt.checkpoint = Some(CheckpointLine {
            written_at_unix_ms: 1_000_000 + 5_400_000,
            ..CheckpointLine::default()
        });
        assert_eq!(
            rows_of(&record(vec![attempt.clone()]))[0].wasted_seconds,
            1800.0
        );
        // It was written before the attempt: all of the attempt is lost.
        attempt.checkpoint = Some(CheckpointLine::default());
        assert_eq!(rows_of(&record(vec![attempt]))[0].wasted_seconds, 7200.0);
    }

    #[test]
    fn gpus_that_others_use_do_not_count() {
        let mut attempt = ended(1, Outcome::Finished, None);
        let gpu = |index, ours| GpuSample {
            index,
            total: Bytes(10),
            ours: Some(Bytes(ours)),
            ..GpuSample::default()
        };
        attempt.samples = vec![Sample {
            gpus: vec![gpu(0, 3), gpu(1, 0)],
            ..Sample::default()
        }];
        let row = &rows_of(&record(vec![attempt]))[0];
        assert_eq!((row.n_gpus, row.gpu_peak_bytes), (1, Some(3)));
    }

    #[test]
    fn a_row_has_no_command_and_no_secret() {
        let mut attempt = ended(1, Outcome::Finished, None);
        attempt.start.settings =
            Some(Settings::default().with("hub", "hf_abcdefghijklmnopqrstuvwxyz0123456789"));
        let row = format!("{:?}", rows_of(&record(vec![attempt])));
        assert!(row.contains("train.py"), "{row}");
        assert!(
            !row.contains("hf_abc") && !row.contains("secret-project"),
            "{row}"
        );
    }

    #[test]
    fn a_script_is_found_behind_its_launcher() {
        let name = |text: &str| {
            let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
            script_of(&words)
        };
        assert_eq!(
            name("torchrun --nnodes 2 a/b.py --config c.sh").as_deref(),
            Some("b.py")
        );
        assert_eq!(name("python -m pkg.train x").as_deref(), Some("pkg.train"));
        assert_eq!(name("/bin/sleep 5").as_deref(), Some("sleep"));
        assert_eq!(script_of(&[]), None);
    }

    #[test]
    fn an_attempt_that_nobody_saw_end_has_the_peaks_of_its_samples() {
        let mut attempt = ended(1, Outcome::Finished, None);
        attempt.end = None;
        attempt.samples = vec![Sample {
            at_ms: 3000,
            gpus: vec![GpuSample {
                used: Bytes(4),
                ..GpuSample::default()
            }],
            ..Sample::default()
        }];
        let row = &rows_of(&record(vec![attempt]))[0];
        assert_eq!((row.outcome.as_str(), row.seconds), ("cut_off", 3.0));
        assert_eq!(row.gpu_peak_bytes, Some(4));
        assert_eq!(row.host_peak_bytes, None);
    }

    #[test]
    fn slurm_names_its_jobs_in_cgroups() {
        assert_eq!(slurm_job("/slurm/uid_0/job_4711/step_batch"), Some(4711));
        assert_eq!(slurm_job("/system.slice/job_x/y"), None);
    }
}
