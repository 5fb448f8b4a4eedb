//! The latest state of a run, from the lines of its record.

use std::collections::{BTreeMap, VecDeque};

use crate::explain::Verdict;
use crate::live::columns::{PeakColumns, TimeRange};
use crate::live::events::{EventKind, LiveEvent, plain_action, plain_outcome, plain_text};
use crate::live::gpus::{LiveGpu, MAX_GPUS, live_gpus};
use crate::live::processes::{LiveProcess, ProcessHistory};
use crate::plan::Change;
use crate::record::{AttemptLine, EndLine, HookLine, Line, Outcome, RunLine};
use crate::units::Bytes;
use crate::watch::{HostSample, Sample, SharedMemorySample, Stall, Trend, Watch};

/// Events that are kept, newest last.
const MAX_EVENTS: usize = 200;
/// Settings that differ from the attempt before.
const MAX_CHANGES: usize = 16;
/// A time to the limit beyond this is no news.
const MAX_FORECAST_MS: f64 = 48.0 * 3.6e6;
/// Changes of less, as a share of the limit over a time range, are no rise.
const LEAST_RISE_SHARE: f64 = 0.002;

/// A run as its record shows it so far. Its size is bounded, however long the record is.
#[derive(Clone, Debug, Default)]
pub struct LiveRun {
    has_begun: bool,
    id: String,
    command: String,
    started_at_unix_ms: u64,
    attempt: Option<LiveAttempt>,
    /// Of the newest line, in milliseconds since the run began.
    now_ms: u64,
    watch: Watch,
    host: Option<HostSample>,
    shm: Option<SharedMemorySample>,
    stall: Option<Stall>,
    gpus: Vec<LiveGpu>,
    gpu_names: BTreeMap<u32, String>,
    progress: Option<LiveProgress>,
    /// Its path and when it was written, in milliseconds since 1970.
    checkpoint: Option<(String, u64)>,
    processes: ProcessHistory,
    used: PeakColumns,
    own: PeakColumns,
    shm_used: PeakColumns,
    gpus_used: BTreeMap<u32, PeakColumns>,
    events: VecDeque<LiveEvent>,
    n_alarms: usize,
    end: Option<LiveEnd>,
}

/// The attempt that runs, or the last one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveAttempt {
    /// From 1.
    pub number: u32,
    /// When it began, in milliseconds since the run began.
    pub started_ms: u64,
    /// What sets the limit of host memory.
    pub limit_set_by: Option<String>,
    /// The checkpoint it resumed from.
    pub resumed_from: Option<String>,
    /// Its settings, such as `workers 4`, where the job has knobs.
    pub settings: Vec<String>,
    /// What differs from the attempt before, such as `workers 4 → 2`.
    pub changed: Vec<String>,
    /// What the next rung of the plan would change.
    pub next_rung: Vec<String>,
}

/// How the last attempt ended.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveEnd {
    /// Milliseconds since the run began.
    pub at_ms: u64,
    pub outcome: Outcome,
    /// The highest use of host memory by the job.
    pub peak_host_used: Option<Bytes>,
    /// As recorded, where it is.
    pub verdict: Option<Box<Verdict>>,
}

/// How far the training is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LiveProgress {
    /// Optimizer steps of the process with the most.
    pub steps: u64,
    pub steps_per_second: Option<f64>,
    /// From 1.
    pub epoch: Option<u64>,
}

/// The newest checkpoint of the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveCheckpoint {
    pub path: String,
    /// Milliseconds between its writing and the newest line of the record.
    pub age_ms: u64,
}

/// When host memory reaches its limit if it continues to rise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveForecast {
    pub left_ms: u64,
    /// The time whose rise was continued; `None` for the present moment.
    pub observed_ms: Option<u64>,
}

impl LiveRun {
    /// Takes the next line of the record.
    pub fn take(&mut self, line: Line) {
        match line {
            Line::Run(run) => self.take_run(&run),
            Line::Attempt(start) => self.take_attempt(&start),
            Line::Sample(sample) => self.take_sample(&sample),
            Line::Alarm(alarm) => {
                self.n_alarms = self.n_alarms.saturating_add(1);
                let kind = EventKind::Alarm {
                    urgency: alarm.urgency,
                    message: plain_text(&alarm.message),
                };
                self.add_event(alarm.at_ms, kind);
            }
            Line::Action(line) => {
                self.add_event(line.at_ms, EventKind::Action(plain_action(&line)));
            }
            Line::Gap(gap) => {
                let message = plain_text(&gap.message);
                self.add_event(gap.at_ms, EventKind::Gap { message });
            }
            Line::Checkpoint(line) => {
                self.checkpoint = Some((plain_text(&line.path), line.written_at_unix_ms));
            }
            Line::Hook(line) => self.take_hook(&line),
            Line::End(end) => self.take_end(&end),
            Line::Verdict(line) => {
                if let Some(end) = &mut self.end {
                    end.verdict = Some(Box::new(line.verdict));
                }
            }
            Line::Output(_) | Line::Unknown => {}
        }
    }

    /// Whether the line that begins a record was there.
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    /// The command in one line.
    pub fn command(&self) -> &str {
        &self.command
    }

    pub fn attempt(&self) -> Option<&LiveAttempt> {
        self.attempt.as_ref()
    }

    /// Milliseconds from the start of the run to its newest line.
    pub fn elapsed_ms(&self) -> u64 {
        self.now_ms
    }

    pub fn host(&self) -> Option<&HostSample> {
        self.host.as_ref()
    }

    pub fn shm(&self) -> Option<&SharedMemorySample> {
        self.shm.as_ref()
    }

    pub fn stall(&self) -> Option<&Stall> {
        self.stall.as_ref()
    }

    pub fn gpus(&self) -> &[LiveGpu] {
        &self.gpus
    }

    /// The model of a GPU, where the driver named it.
    pub fn gpu_name(&self, index: u32) -> Option<&str> {
        self.gpu_names.get(&index).map(String::as_str)
    }

    /// The newest checkpoint that the supervisor has found, where the job names its checkpoints.
    pub fn checkpoint(&self) -> Option<LiveCheckpoint> {
        let (path, written_at_unix_ms) = self.checkpoint.as_ref()?;
        let now_unix_ms = self.started_at_unix_ms.saturating_add(self.now_ms);
        Some(LiveCheckpoint {
            path: path.clone(),
            age_ms: now_unix_ms.saturating_sub(*written_at_unix_ms),
        })
    }

    pub fn progress(&self) -> Option<LiveProgress> {
        self.progress
    }

    /// Host memory in use inside the limit, by the job and by others.
    pub fn used_history(&self) -> &PeakColumns {
        &self.used
    }

    pub fn shm_history(&self) -> &PeakColumns {
        &self.shm_used
    }

    pub fn gpu_history(&self, index: u32) -> Option<&PeakColumns> {
        self.gpus_used.get(&index)
    }

    /// Oldest first.
    pub fn events(&self) -> impl DoubleEndedIterator<Item = &LiveEvent> + ExactSizeIterator {
        self.events.iter()
    }

    /// Alarms so far, also those that are no longer kept.
    pub fn n_alarms(&self) -> usize {
        self.n_alarms
    }

    /// How the last attempt ended; `None` while it runs, and where nobody recorded its end.
    pub fn end(&self) -> Option<&LiveEnd> {
        self.end.as_ref()
    }

    /// By role, with their shares of the rise in a time range.
    pub fn processes(&self, range: TimeRange) -> Vec<LiveProcess> {
        self.processes.processes(range)
    }

    /// Processes of the job that [`LiveRun::processes`] leaves out because there are too many.
    pub fn n_processes_left_out(&self) -> usize {
        self.processes.n_left_out()
    }

    /// Bytes per second that the job's own host memory rises by in a time range; negative where it falls, 0 where it is
    /// steady, `None` where too little is known.
    pub fn rise(&self, range: TimeRange) -> Option<f64> {
        let limit = self.host?.limit;
        let trend = self.own.trend(range)?;
        let is_steady = trend.rise().abs() < LEAST_RISE_SHARE * limit.get() as f64;
        Some(if is_steady { 0.0 } else { trend.slope })
    }

    /// When host memory reaches its limit. The supervisor's own forecast, which alarms are based on, comes first; else
    /// the rise of the time range continues.
    pub fn forecast(&self, range: TimeRange) -> Option<LiveForecast> {
        let host = self.host.filter(|_| self.end.is_none())?;
        if let Some(left_ms) = self.watch.state().time_to_brim_ms() {
            return Some(LiveForecast {
                left_ms,
                observed_ms: None,
            });
        }
        let own = self.own.trend(range).filter(Trend::is_rising)?;
        let used = self.used.trend(range).filter(Trend::is_rising)?;
        let is_steady = own.rise() < LEAST_RISE_SHARE * host.limit.get() as f64;
        // What other processes take or give back is not continued.
        let left_ms = host.headroom.get() as f64 / own.slope.min(used.slope) * 1e3;
        (!is_steady && left_ms <= MAX_FORECAST_MS).then(|| LiveForecast {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a positive number of at most 48 hours"
            )]
            left_ms: left_ms as u64,
            observed_ms: Some(self.own.span_ms(range)),
        })
    }

    fn take_run(&mut self, run: &RunLine) {
        self.has_begun = true;
        self.id = plain_text(&run.id);
        self.command = plain_text(&run.command.join(" "));
        self.started_at_unix_ms = run.started_at_unix_ms;
    }

    fn take_attempt(&mut self, start: &AttemptLine) {
        let since_run = start
            .started_at_unix_ms
            .saturating_sub(self.started_at_unix_ms);
        let attempt = LiveAttempt {
            number: start.number,
            started_ms: since_run.max(self.now_ms),
            limit_set_by: start.limit_set_by.as_deref().map(plain_text),
            resumed_from: start.resumed_from.as_deref().map(plain_text),
            settings: start
                .settings
                .iter()
                .flat_map(|settings| &settings.0)
                .take(MAX_CHANGES)
                .map(|(knob, value)| plain_text(&format!("{knob} {value}")))
                .collect(),
            changed: start.changed.iter().take(MAX_CHANGES).map(change).collect(),
            next_rung: start
                .next_rung
                .iter()
                .take(MAX_CHANGES)
                .map(change)
                .collect(),
        };
        self.now_ms = attempt.started_ms;
        self.watch = Watch::default();
        self.host = None;
        self.shm = None;
        self.stall = None;
        self.gpus.clear();
        self.gpu_names = start
            .gpus
            .iter()
            .take(MAX_GPUS)
            .map(|gpu| (gpu.index, plain_text(&gpu.name)))
            .collect();
        self.progress = None;
        self.processes = ProcessHistory::default();
        self.end = None;
        for columns in [&mut self.used, &mut self.own, &mut self.shm_used]
            .into_iter()
            .chain(self.gpus_used.values_mut())
        {
            columns.interrupt();
        }
        if start.number > 1 {
            let kind = EventKind::AttemptStarted {
                number: start.number,
                changed: attempt.changed.clone(),
            };
            self.push_event(self.now_ms, kind);
        }
        self.attempt = Some(attempt);
    }

    fn take_sample(&mut self, sample: &Sample) {
        let at_ms = self.time_of(sample.at_ms);
        // Alarms are those of the record: the supervisor saw every sample, this is what is left of them.
        let _ = self.watch.observe(sample);
        if let Some(host) = sample.host {
            let used = host.limit.saturating_sub(host.headroom);
            self.used.push(at_ms, used.get());
            self.own.push(at_ms, host.used.get());
            self.host = Some(host);
        }
        if let Some(shm) = sample.shm {
            self.shm_used.push(at_ms, shm.used.get());
            self.shm = Some(shm);
        }
        self.stall = sample.stall.or(self.stall);
        if !sample.gpus.is_empty() {
            self.gpus = live_gpus(&sample.gpus, &sample.gauges);
            for gpu in &self.gpus {
                let is_known = self.gpus_used.contains_key(&gpu.index);
                if is_known || self.gpus_used.len() < MAX_GPUS {
                    let columns = self.gpus_used.entry(gpu.index).or_default();
                    columns.push(at_ms, gpu.used.get());
                }
            }
        }
        if let Some(lead) = sample.gauges.iter().max_by_key(|gauge| gauge.steps) {
            self.progress = Some(LiveProgress {
                steps: lead.steps,
                steps_per_second: self.watch.state().steps_per_second(),
                epoch: Some(lead.epochs).filter(|epoch| *epoch > 0),
            });
        }
        self.processes.take(&sample.processes, at_ms);
    }

    fn take_hook(&mut self, line: &HookLine) {
        match line {
            HookLine::CudaOom(proof) => {
                let device = proof.device;
                self.add_event(proof.at_ms, EventKind::CudaOom { device });
            }
            HookLine::Exception {
                at_ms,
                type_name,
                message,
                ..
            } => {
                let message = plain_text(&format!("{type_name}: {message}"));
                self.add_event(*at_ms, EventKind::Exception { message });
            }
            HookLine::Torch { .. } | HookLine::Loader(_) => {}
        }
    }

    fn take_end(&mut self, end: &EndLine) {
        let at_ms = self.time_of(end.at_ms);
        let outcome = plain_outcome(&end.outcome);
        let number = self.attempt.as_ref().map_or(1, |attempt| attempt.number);
        self.push_event(
            at_ms,
            EventKind::AttemptEnded {
                number,
                outcome: outcome.clone(),
            },
        );
        self.end = Some(LiveEnd {
            at_ms,
            outcome,
            peak_host_used: end.peaks.host_used,
            verdict: None,
        });
    }

    fn add_event(&mut self, at_ms: u64, kind: EventKind) {
        let at_ms = self.time_of(at_ms);
        self.push_event(at_ms, kind);
    }

    fn push_event(&mut self, at_ms: u64, kind: EventKind) {
        self.events.push_back(LiveEvent { at_ms, kind });
        if self.events.len() > MAX_EVENTS {
            self.events.pop_front();
        }
    }

    /// The time of a line of the present attempt, since the run began. It never goes back.
    fn time_of(&mut self, at_ms: u64) -> u64 {
        let started_ms = self
            .attempt
            .as_ref()
            .map_or(0, |attempt| attempt.started_ms);
        self.now_ms = self.now_ms.max(started_ms.saturating_add(at_ms));
        self.now_ms
    }

    #[cfg(test)]
    pub(crate) fn n_held(&self) -> usize {
        let columns = [&self.used, &self.own, &self.shm_used];
        columns
            .into_iter()
            .chain(self.gpus_used.values())
            .map(PeakColumns::n_held)
            .sum::<usize>()
            + self.events.len()
            + self.gpus.len()
            + self.processes.n_held()
    }
}

/// `workers 4 → 2`
fn change(change: &Change) -> String {
    plain_text(&format!("{} {} → {}", change.knob, change.from, change.to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::AttemptLine;
    use crate::watch::Gauge;

    fn started() -> LiveRun {
        let mut live = LiveRun::default();
        live.take(Line::Run(RunLine {
            id: "a".into(),
            started_at_unix_ms: 1_000,
            command: vec!["python".into(), "train.py\u{1b}[2J".into()],
            ..RunLine::default()
        }));
        live.take(Line::Attempt(AttemptLine {
            number: 1,
            started_at_unix_ms: 2_000,
            ..AttemptLine::default()
        }));
        live
    }

    fn sample(at_ms: u64, used_mib: u64, steps: u64) -> Line {
        let limit = Bytes::from_gib(64);
        let used = Bytes::from_mib(used_mib);
        Line::Sample(Sample {
            at_ms,
            host: Some(HostSample {
                used,
                limit,
                headroom: limit.saturating_sub(used),
                swapped: None,
            }),
            gauges: vec![Gauge {
                pid: 1,
                steps,
                epochs: 2,
                ..Gauge::default()
            }],
            ..Sample::default()
        })
    }

    #[test]
    fn a_slow_rise_has_a_rate_and_a_time_to_the_limit() {
        let mut live = started();
        // 2.7 GiB per hour is 0.768 MiB per second.
        for second in 0..3600 {
            live.take(sample(
                second * 1000,
                40_000 + second * 768 / 1000,
                second * 3,
            ));
        }
        let rise = live.rise(TimeRange::TenMinutes).unwrap() * 3600.0 / f64::from(1 << 30);
        assert!((rise - 2.7).abs() < 0.1, "{rise}");
        let forecast = live.forecast(TimeRange::TenMinutes).unwrap();
        let hours = forecast.left_ms as f64 / 3.6e6;
        assert!((hours - 8.2).abs() < 0.5, "{hours}");
        assert_eq!(forecast.observed_ms, Some(600_000));
        let progress = live.progress().unwrap();
        assert_eq!(progress.steps, 3 * 3599);
        assert!((progress.steps_per_second.unwrap() - 3.0).abs() < 0.1);
        assert_eq!(progress.epoch, Some(2));
        assert_eq!(live.elapsed_ms(), 1_000 + 3_599_000);
    }

    #[test]
    fn steady_memory_has_no_forecast() {
        let mut live = started();
        for second in 0..3600 {
            live.take(sample(second * 1000, 40_000 + second % 7, second));
        }
        assert_eq!(live.rise(TimeRange::TenMinutes), Some(0.0));
        assert_eq!(live.forecast(TimeRange::TenMinutes), None);
    }

    #[test]
    fn a_new_attempt_forgets_the_values_of_the_last_one_and_keeps_the_curve() {
        let mut live = started();
        for second in 0..20 {
            live.take(sample(second * 1000, 100, second));
        }
        live.take(Line::Attempt(AttemptLine {
            number: 2,
            started_at_unix_ms: 60_000,
            ..AttemptLine::default()
        }));
        assert!(live.host().is_none() && live.progress().is_none());
        live.take(sample(1000, 300, 0));
        assert_eq!(live.elapsed_ms(), 60_000);
        let cells = live.used_history().cells(TimeRange::All, 4);
        assert_eq!(cells[0], Some(100 << 20));
        assert_eq!(cells[2], None);
        assert_eq!(cells[3], Some(300 << 20));
        assert!(matches!(
            live.events().next_back().unwrap().kind,
            EventKind::AttemptStarted { number: 2, .. }
        ));
    }

    #[test]
    fn texts_are_harmless() {
        assert_eq!(started().command(), "python train.py[2J");
    }
}
