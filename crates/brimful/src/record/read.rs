//! Reading a record, whatever became of its writer.

use std::io::{self, BufRead, Read};

use crate::explain::{Evidence, Verdict};
use crate::record::line::{
    ActionLine, AttemptLine, EndLine, GapLine, HookLine, Line, OutputLine, RunLine,
};
use crate::watch::{Alarm, Sample};

/// A line longer than this is not ours.
const LONGEST_LINE: u64 = 4 << 20;
/// A record is held below 20 MB by its writer; a hostile one is cut off here.
const MOST_BYTES: u64 = 256 << 20;

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
    pub end: Option<EndLine>,
    pub verdict: Option<Verdict>,
}

/// Not a run record.
#[derive(Debug, thiserror::Error)]
pub enum RecordUnreadable {
    #[error("the record cannot be read")]
    Io(#[from] io::Error),
    #[error("expected a run record, whose first line names a run, found {found:?}")]
    NotARecord { found: String },
}

impl Record {
    /// Reads a record. Broken lines are counted and skipped; only a file that does not begin as a record is refused.
    pub fn read(file: impl Read) -> Result<Record, RecordUnreadable> {
        let mut reader = io::BufReader::new(file.take(MOST_BYTES));
        let mut record = Record::default();
        let mut seen_run = false;
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            let n_read = (&mut reader)
                .take(LONGEST_LINE)
                .read_until(b'\n', &mut bytes)?;
            if n_read == 0 {
                break;
            }
            let line = serde_json::from_slice::<Line>(&bytes);
            if !seen_run {
                let Ok(Line::Run(run)) = line else {
                    let found = String::from_utf8_lossy(&bytes).chars().take(60).collect();
                    return Err(RecordUnreadable::NotARecord { found });
                };
                record.run = run;
                seen_run = true;
                continue;
            }
            match line {
                Ok(line) => record.add(line),
                Err(_) => record.n_broken_lines += 1,
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
            Line::Run(_) | Line::Attempt(_) | Line::Gap(_) | Line::Unknown => {}
        }
    }

    /// Everything this attempt left behind as evidence. Snapshots of the allocator are files beside the record; who
    /// reads them adds what they say.
    pub fn evidence(&self) -> Evidence {
        let mut text = String::new();
        for output in &self.output {
            // Where standard error is a file, brimful's own lines stand between the training's.
            for line in output.tail.split_inclusive('\n') {
                if !line.starts_with("brimful: ") {
                    text.push_str(line);
                }
            }
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
