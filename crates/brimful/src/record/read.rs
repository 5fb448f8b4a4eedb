//! Reading a record, whatever became of its writer.

use std::io::{self, BufRead, Read};

use crate::explain::{Evidence, Verdict};
use crate::record::bounds::{bound, n_parts};
use crate::record::line::{
    ActionLine, AttemptLine, CheckpointLine, EndLine, GapLine, HookLine, Line, Outcome, OutputLine,
    RunLine,
};
use crate::record::merge::merged;
use crate::watch::{Alarm, Sample};

/// A line longer than this is not ours.
pub const MAX_LINE_BYTES: u64 = 1 << 20;
/// A record is held below 20 MB by its writer, but for the ends of many attempts. A record that was never shortened has
/// 430,000 samples after 24 hours; a hostile one is cut off here.
pub const MAX_BYTES: u64 = 512 << 20;
/// A run has at most 100 attempts.
const MAX_ATTEMPTS: usize = 1000;
/// Of all attempts together. Beyond this, older samples are merged; the writer's own bounds are lower.
const MAX_SAMPLES: usize = 100_000;
/// Samples of the last ten minutes stay whole, as in the record itself.
const KEEP_MS: u64 = 600_000;
/// Parts of a sample of a real machine, on average. Merging larger ones takes time that only a hostile record costs.
const MAX_MERGED_PARTS: usize = 64;
/// Processes, gauges and GPUs in samples, of all attempts together.
const MAX_SAMPLE_PARTS: usize = 1_000_000;
/// Of each other kind of line, of all attempts together.
const MAX_LINES: usize = 20_000;

/// A run as its record tells it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    pub run: RunLine,
    pub attempts: Vec<Attempt>,
    pub gaps: Vec<GapLine>,
    /// Lines that could not be read: one where the writer was killed in the middle of it.
    pub n_broken_lines: usize,
    /// Lines of a newer brimful.
    pub n_unknown_lines: usize,
    /// Lines beyond what a record of ours has.
    pub n_lines_left_out: usize,
}

/// Lines that were kept so far, by kind.
#[derive(Default)]
struct Kept {
    gaps: usize,
    samples: usize,
    sample_parts: usize,
    is_full: bool,
    alarms: usize,
    actions: usize,
    hook: usize,
}

impl Kept {
    /// Whether this sample fits without merging others.
    fn has_room_for(&self, sample: &Sample) -> bool {
        self.samples < MAX_SAMPLES && self.sample_parts + n_parts(sample) <= MAX_SAMPLE_PARTS
    }

    /// Whether there is room for one more like this; it is counted then.
    fn has_room(&mut self, line: &Line, n_attempts: usize) -> bool {
        let (kept, max) = match line {
            Line::Gap(_) => (&mut self.gaps, MAX_LINES),
            Line::Alarm(_) => (&mut self.alarms, MAX_LINES),
            Line::Action(_) => (&mut self.actions, MAX_LINES),
            Line::Hook(_) => (&mut self.hook, MAX_LINES),
            Line::Sample(sample) => {
                if !self.has_room_for(sample) {
                    return false;
                }
                self.sample_parts += n_parts(sample);
                (&mut self.samples, MAX_SAMPLES)
            }
            Line::Attempt(_) => return n_attempts < MAX_ATTEMPTS,
            // One of each attempt, or not kept.
            Line::Run(_)
            | Line::Output(_)
            | Line::End(_)
            | Line::Verdict(_)
            | Line::Checkpoint(_)
            | Line::Unknown => return true,
        };
        *kept += 1;
        *kept <= max
    }
}

/// Merges pairs among the first `n_old` samples.
fn merge_pairs(samples: &mut Vec<Sample>, n_old: usize) {
    let n_old = n_old.min(samples.len());
    let recent = samples.split_off(n_old);
    let old = std::mem::take(samples);
    samples.reserve(n_old / 2 + 1 + recent.len());
    let mut waiting: Option<Sample> = None;
    for sample in old {
        match waiting.take() {
            Some(first) => samples.push(merged(&first, &sample)),
            None => waiting = Some(sample),
        }
    }
    samples.extend(waiting);
    samples.extend(recent);
}

/// One launch and what became of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attempt {
    pub start: AttemptLine,
    pub samples: Vec<Sample>,
    pub alarms: Vec<Alarm>,
    pub actions: Vec<ActionLine>,
    pub hook: Vec<HookLine>,
    /// The newest of each stream.
    pub output: Vec<OutputLine>,
    /// The newest one that the supervisor has found.
    pub checkpoint: Option<CheckpointLine>,
    pub end: Option<EndLine>,
    pub verdict: Option<Verdict>,
}

/// Not a run record.
#[derive(Debug, thiserror::Error)]
pub enum RecordUnreadable {
    #[error("failed to read the run record")]
    Io(#[from] io::Error),
    #[error("not a run record: expected the header of a run in the first line, found {found:?}")]
    NotARecord { found: String },
}

impl Line {
    /// Reads one line; what is longer in it than anything of ours is cut off. `None` where it is not a line of a record.
    pub fn from_json(text: &[u8]) -> Option<Line> {
        let mut line = serde_json::from_slice::<Line>(text).ok()?;
        bound(&mut line);
        Some(line)
    }
}

impl Record {
    /// Reads a record. Broken lines are counted and skipped; only a file that does not begin as a record is refused.
    pub fn read(file: impl Read) -> Result<Record, RecordUnreadable> {
        let mut reader = io::BufReader::new(file.take(MAX_BYTES));
        let mut record = Record::default();
        let mut kept = Kept::default();
        let mut seen_run = false;
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            let n_read = (&mut reader)
                .take(MAX_LINE_BYTES)
                .read_until(b'\n', &mut bytes)?;
            if n_read == 0 {
                break;
            }
            let line = Line::from_json(&bytes);
            if !seen_run {
                let Some(Line::Run(run)) = line else {
                    let found = String::from_utf8_lossy(&bytes).chars().take(60).collect();
                    return Err(RecordUnreadable::NotARecord { found });
                };
                record.run = run;
                seen_run = true;
                continue;
            }
            if let Some(Line::Sample(sample)) = &line
                && !kept.is_full
                && !kept.has_room_for(sample)
            {
                record.merge_samples();
                (kept.samples, kept.sample_parts) = record.n_samples_and_parts();
                // Merging did not help, and would not for the next sample.
                kept.is_full = kept.sample_parts > MAX_SAMPLE_PARTS / 8 * 7;
            }
            match line {
                Some(line) if kept.has_room(&line, record.attempts.len()) => record.add(line),
                Some(_) => record.n_lines_left_out += 1,
                None => record.n_broken_lines += 1,
            }
        }
        if seen_run {
            Ok(record)
        } else {
            Err(RecordUnreadable::NotARecord {
                found: String::new(),
            })
        }
    }

    /// Merges pairs of neighbouring samples, but for those of the last ten minutes unless they alone are too many.
    fn merge_samples(&mut self) {
        let (n_samples, n_parts) = self.n_samples_and_parts();
        if n_parts > n_samples.saturating_mul(MAX_MERGED_PARTS) {
            return;
        }
        let newest = self.attempts.len().saturating_sub(1);
        for (idx, attempt) in self.attempts.iter_mut().enumerate() {
            let last_ms = attempt.samples.last().map_or(0, |sample| sample.at_ms);
            let old_before_ms = last_ms.saturating_sub(KEEP_MS);
            let n_old = if idx == newest {
                attempt
                    .samples
                    .partition_point(|sample| sample.at_ms < old_before_ms)
            } else {
                attempt.samples.len()
            };
            let enough = attempt.samples.len() / 2;
            merge_pairs(
                &mut attempt.samples,
                if n_old < enough { usize::MAX } else { n_old },
            );
        }
    }

    fn n_samples_and_parts(&self) -> (usize, usize) {
        let samples = || self.attempts.iter().flat_map(|attempt| &attempt.samples);
        (samples().count(), samples().map(n_parts).sum())
    }

    fn add(&mut self, line: Line) {
        match line {
            Line::Run(_) => self.n_broken_lines += 1,
            Line::Gap(gap) => self.gaps.push(gap),
            Line::Unknown => self.n_unknown_lines += 1,
            Line::Attempt(start) => self.attempts.push(Attempt {
                start,
                ..Attempt::default()
            }),
            other => match self.attempts.last_mut() {
                Some(attempt) => attempt.add(other),
                None => self.n_broken_lines += 1,
            },
        }
    }

    pub fn last_attempt(&self) -> Option<&Attempt> {
        self.attempts.last()
    }

    /// Whether the record tells how the run ended.
    pub fn has_end(&self) -> bool {
        self.last_attempt()
            .is_some_and(|attempt| attempt.end.is_some())
    }
}

impl Attempt {
    fn add(&mut self, line: Line) {
        match line {
            Line::Sample(sample) => self.samples.push(sample),
            Line::Alarm(alarm) => self.alarms.push(alarm),
            Line::Action(action) => self.actions.push(action),
            Line::Hook(hook) => self.hook.push(hook),
            Line::Output(output) => {
                self.output.retain(|older| older.stream != output.stream);
                self.output.push(output);
            }
            Line::End(end) => self.end = Some(*end),
            Line::Verdict(verdict) => self.verdict = Some(verdict.verdict),
            Line::Checkpoint(checkpoint) => self.checkpoint = Some(checkpoint),
            Line::Run(_) | Line::Attempt(_) | Line::Gap(_) | Line::Unknown => {}
        }
    }

    /// Alarms that did not come true: memory was said to run out, and the attempt did not end of it.
    pub fn n_false_alarms(&self, verdict: &Verdict) -> u32 {
        let ended_of_memory = verdict.cause.is_memory()
            || self.end.as_ref().is_none_or(|end| {
                matches!(
                    end.outcome,
                    Outcome::StoppedByUs { .. } | Outcome::StoppedByUser { .. }
                )
            });
        if ended_of_memory {
            return 0;
        }
        let false_ones = self.alarms.iter().filter(|alarm| alarm.foretells_the_end());
        u32::try_from(false_ones.count()).unwrap_or(u32::MAX)
    }

    /// Everything this attempt left behind as evidence. Snapshots of the allocator are files beside the record; who
    /// reads them adds what they say.
    pub fn evidence(&self) -> Evidence {
        let mut text = String::new();
        for output in &self.output {
            text.push_str(&output.tail);
            if !text.ends_with('\n') {
                text.push('\n');
            }
        }
        let mut evidence = Evidence {
            attempt: Some(self.start.clone()),
            end: self.end.clone(),
            supervisor_died: self.end.is_none(),
            samples: self.samples.clone(),
            alarms: self.alarms.clone(),
            hook: self.hook.clone(),
            text,
            ..Evidence::default()
        };
        for line in &self.hook {
            match line {
                HookLine::Loader(loader) => evidence.loaders.push(loader.clone()),
                HookLine::CudaOom(proof) => evidence.cuda_ooms.push(proof.clone()),
                HookLine::Torch { .. } | HookLine::Exception { .. } => {}
            }
        }
        evidence
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{GapLine, OutputLine, RunLine, Stream};
    use crate::watch::Gauge;

    fn read(lines: impl IntoIterator<Item = String>) -> Record {
        let mut text = Line::Run(RunLine::default()).to_json();
        text.extend(lines);
        Record::read(text.as_bytes()).unwrap()
    }

    fn attempt() -> String {
        Line::Attempt(AttemptLine::default()).to_json()
    }

    /// As short as a line of its kind can be.
    fn many(line: &str, count: usize) -> impl Iterator<Item = String> + use<> {
        std::iter::repeat_n(format!("{line}\n"), count)
    }

    #[test]
    fn lines_of_every_kind_are_bounded() {
        let record = read(many("{\"line\":\"gap\"}", MAX_LINES + 5));
        assert_eq!((record.gaps.len(), record.n_lines_left_out), (MAX_LINES, 5));
        let record = read(many("{\"line\":\"attempt\"}", MAX_ATTEMPTS + 5));
        assert_eq!(record.attempts.len(), MAX_ATTEMPTS);
        let hook = "{\"line\":\"hook\",\"kind\":\"cuda_oom\"}";
        let alarm = "{\"line\":\"alarm\",\"at_ms\":1,\"detector\":\"\",\"urgency\":\"note\",\"message\":\"\"}";
        let sample = "{\"line\":\"sample\",\"at_ms\":1}";
        let lines = std::iter::once(attempt())
            .chain(many(hook, MAX_LINES + 1))
            .chain(many(alarm, MAX_LINES + 1))
            .chain(many(sample, MAX_SAMPLES + 1));
        let record = read(lines);
        let found = &record.attempts[0];
        assert_eq!(
            (found.hook.len(), found.alarms.len()),
            (MAX_LINES, MAX_LINES)
        );
        assert!(found.samples.len() <= MAX_SAMPLES, "merged");
        assert_eq!(record.n_lines_left_out, 2);
        // Attempts share the bound.
        let lines = (0..50).flat_map(|_| std::iter::once(attempt()).chain(many(hook, 1000)));
        let hooks: usize = read(lines)
            .attempts
            .iter()
            .map(|found| found.hook.len())
            .sum();
        assert_eq!(hooks, MAX_LINES);
    }

    #[test]
    fn a_record_that_was_never_shortened_is_read_to_its_end() {
        let n_samples = 2 * MAX_SAMPLES as u64 + 10;
        let sample = |idx: u64| {
            let used = match idx {
                1234 => 9_000_000,
                1300 => 7,
                _ => 1_000_000 + idx,
            };
            let host = format!(
                "\"host\":{{\"used_bytes\":{used},\"limit_bytes\":9,\"headroom_bytes\":9}}"
            );
            format!("{{\"line\":\"sample\",\"at_ms\":{},{host}}}\n", idx * 200)
        };
        let record = read(std::iter::once(attempt()).chain((0..n_samples).map(sample)));
        let samples = &record.attempts[0].samples;
        assert!(samples.len() <= MAX_SAMPLES);
        assert_eq!(record.n_lines_left_out, 0);
        assert!(samples.is_sorted_by_key(|sample| sample.at_ms));
        let last_ms = (n_samples - 1) * 200;
        let recent = samples
            .iter()
            .filter(|sample| sample.at_ms > last_ms - 600_000);
        assert_eq!(recent.count(), 3000, "the last ten minutes are whole");
        let highest = samples
            .iter()
            .filter_map(|sample| Some(sample.host?.used.get()));
        assert_eq!(highest.max(), Some(9_000_000));
        let lowest = samples.iter().filter_map(Sample::lowest_host_used);
        assert_eq!(lowest.min().map(crate::units::Bytes::get), Some(7));
    }

    #[test]
    fn lists_and_texts_in_a_line_are_bounded() {
        let sample = |n_gauges| {
            Line::Sample(Sample {
                gauges: vec![Gauge::default(); n_gauges],
                ..Sample::default()
            })
        };
        let record = read([attempt(), sample(5000).to_json()]);
        assert_eq!(record.attempts[0].samples[0].gauges.len(), 4096);
        let mut kept = Kept::default();
        let large = sample(4000);
        let n_kept = (0..300).filter(|_| kept.has_room(&large, 1)).count();
        assert_eq!(n_kept, MAX_SAMPLE_PARTS / 4000);

        let long = "é".repeat(200_000);
        let output = Line::Output(OutputLine {
            at_ms: 0,
            stream: Stream::Both,
            tail: long.clone(),
        });
        let start = Line::Attempt(AttemptLine {
            command: vec![long.clone()],
            why: Some(long.clone()),
            ..AttemptLine::default()
        });
        let gap = Line::Gap(GapLine {
            at_ms: 0,
            message: long,
        });
        let start_of_many = Line::Attempt(AttemptLine {
            command: vec!["x".into(); 100_000],
            ..AttemptLine::default()
        });
        let record = read([
            start.to_json(),
            output.to_json(),
            gap.to_json(),
            start_of_many.to_json(),
        ]);
        assert_eq!(record.attempts[0].output[0].tail.len(), 256 << 10);
        assert_eq!(record.gaps[0].message.len(), 16 << 10);
        let start = &record.attempts[0].start;
        assert_eq!(start.command[0].len(), 16 << 10);
        assert_eq!(start.why.as_ref().unwrap().len(), 16 << 10);
        assert_eq!(record.attempts[1].start.command.len(), 4096);
    }

    #[test]
    fn a_line_that_is_too_long_is_passed_over() {
        let long = format!(
            "{{\"line\":\"gap\",\"message\":\"{}\"}}\n",
            "x".repeat(3 << 20)
        );
        let record = read([long, Line::Gap(GapLine::default()).to_json()]);
        assert_eq!(record.gaps.len(), 1);
        assert!(record.n_broken_lines > 0);
    }
}
