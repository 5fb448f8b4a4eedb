//! Writes the run record, line by line, and keeps it short.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use brimful::record::{EndLine, KernelCounts, Line, Merger, Outcome, OwnCost, Peaks};
use rustix::fs::{FlockOperation, flock};

/// Beyond this the record is shortened. A day-long run stays below 20 MB with room for everything that is not a sample.
const SHORTEN_AT: u64 = 6 << 20;
/// Beyond this only what every attempt has once is written: a job may have thousands of processes that report, and
/// shortening may fail.
const MAX_BYTES: u64 = 18 << 20;
/// Beyond this the output of further attempts is left out too. A reader stops at 64 MiB.
const MAX_BYTES_WITH_OUTPUT: u64 = 48 << 20;
/// Samples of the last ten minutes stay whole.
const KEEP_MS: u64 = 600_000;

pub(crate) const FILE_NAME: &str = "record.jsonl";

/// The record of one run. What cannot be written is told once, as a value, and the training goes on.
#[derive(Debug)]
pub(crate) struct Recorder {
    path: PathBuf,
    file: Option<File>,
    size: u64,
    shorten_at: u64,
    /// The number of the newest attempt.
    attempt: u32,
    /// The last write stopped in the middle of a line.
    broken: bool,
    problem: Option<String>,
    problem_told: bool,
}

impl Recorder {
    /// A new record in `directory`.
    pub(crate) fn create(directory: &Path) -> Recorder {
        let path = directory.join(FILE_NAME);
        let mut recorder = Recorder {
            path,
            file: None,
            size: 0,
            shorten_at: SHORTEN_AT,
            attempt: 0,
            broken: false,
            problem: None,
            problem_told: false,
        };
        match open(&recorder.path, true) {
            Ok(file) => recorder.file = Some(file),
            Err(error) => recorder.note(&error),
        }
        recorder
    }

    /// No record. Whoever could not make a place for it has said why.
    pub(crate) fn none() -> Recorder {
        Recorder {
            path: PathBuf::new(),
            file: None,
            size: 0,
            shorten_at: SHORTEN_AT,
            attempt: 0,
            broken: false,
            problem: None,
            problem_told: false,
        }
    }

    /// Adds one line, in one write: whoever is killed, only that line can be lost.
    pub(crate) fn write(&mut self, line: &Line) {
        let Some(file) = &mut self.file else { return };
        if let Line::Attempt(start) = line {
            self.attempt = start.number;
        }
        let max_bytes = match line {
            Line::Run(_) | Line::Attempt(_) | Line::End(_) | Line::Verdict(_) => u64::MAX,
            Line::Output(_) => MAX_BYTES_WITH_OUTPUT,
            _ => MAX_BYTES,
        };
        if self.size >= max_bytes {
            return;
        }
        let mut text = line.to_json();
        if self.broken {
            text.insert(0, '\n');
        }
        let (n_written, result) = write_once(file, text.as_bytes());
        self.size += n_written as u64;
        self.broken = n_written > 0 && n_written < text.len() || self.broken && n_written == 0;
        if let Err(error) = result {
            self.note(&error);
        }
        if self.size > self.shorten_at
            && let Line::Sample(sample) = line
        {
            let shortened = self.shorten(sample.at_ms.saturating_sub(KEEP_MS));
            if let Err(error) = shortened {
                self.note(&error);
            }
            // Not again at once where it did not help.
            self.shorten_at = (self.size + SHORTEN_AT / 4).max(SHORTEN_AT);
        }
    }

    /// What went wrong, told once.
    pub(crate) fn take_problem(&mut self) -> Option<String> {
        if self.problem_told {
            return None;
        }
        let problem = self.problem.take();
        self.problem_told = problem.is_some();
        problem
    }

    fn note(&mut self, error: &io::Error) {
        self.problem
            .get_or_insert_with(|| format!("{} cannot be written: {error}", self.path.display()));
    }

    /// Merges the old samples into a new file that takes the place of the old one in one step.
    fn shorten(&mut self, old_before_ms: u64) -> io::Result<()> {
        let new_path = self.path.with_extension("jsonl.new");
        // Left there by a brimful that was killed.
        let _ = std::fs::remove_file(&new_path);
        let result = self.write_shorter(&new_path, old_before_ms);
        if result.is_err() {
            let _ = std::fs::remove_file(&new_path);
        }
        result
    }

    fn write_shorter(&mut self, new_path: &Path, old_before_ms: u64) -> io::Result<()> {
        let old = BufReader::new(brimful_private::open(&self.path)?);
        let mut new = BufWriter::new(open(new_path, true)?);
        let mut merger = Merger::new(old_before_ms, self.attempt);
        let mut failed = Ok(());
        for line in bounded_lines(old) {
            let Ok(line) = serde_json::from_slice::<Line>(&line?) else {
                continue;
            };
            if matches!(line, Line::Unknown) {
                continue;
            }
            merger.push(line, |line| {
                if failed.is_ok() {
                    failed = new.write_all(line.to_json().as_bytes());
                }
            });
        }
        failed?;
        if let Some(line) = merger.finish() {
            new.write_all(line.to_json().as_bytes())?;
        }
        let new = new.into_inner().map_err(io::IntoInnerError::into_error)?;
        std::fs::rename(new_path, &self.path)?;
        self.size = new.metadata()?.len();
        self.file = Some(new);
        Ok(())
    }
}

fn open(path: &Path, create: bool) -> io::Result<File> {
    let file = brimful_private::append(path, create)?;
    // Held as long as brimful lives: how others know that a run without an end is still going on.
    let _ = flock(&file, FlockOperation::NonBlockingLockExclusive);
    Ok(file)
}

/// Whether somebody still writes this record.
pub(crate) fn is_being_written(path: &Path) -> bool {
    brimful_private::open(path)
        .is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockShared).is_err())
}

/// Adds lines to a record whose writer is gone.
pub(crate) fn append(path: &Path, lines: &[Line]) -> io::Result<()> {
    let mut file = open(path, false)?;
    // The last line may be broken; an empty line is skipped by every reader.
    let text: String = std::iter::once("\n".to_owned())
        .chain(lines.iter().map(Line::to_json))
        .collect();
    file.write_all(text.as_bytes())
}

fn write_once(file: &mut File, bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut written = 0;
    while written < bytes.len() {
        match file.write(&bytes[written..]) {
            Ok(0) => return (written, Err(io::ErrorKind::WriteZero.into())),
            Ok(n_written) => written += n_written,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (written, Err(error)),
        }
    }
    (written, Ok(()))
}

/// Lines of at most 1 MiB; longer ones are not ours.
fn bounded_lines(mut reader: impl BufRead) -> impl Iterator<Item = io::Result<Vec<u8>>> {
    std::iter::from_fn(move || {
        let mut line = Vec::new();
        match (&mut reader).take(1 << 20).read_until(b'\n', &mut line) {
            Ok(0) => None,
            Ok(_) => Some(Ok(line)),
            Err(error) => Some(Err(error)),
        }
    })
}

/// The last line of an attempt of which nothing was measured.
pub(crate) fn end_line(at_ms: u64, outcome: Outcome) -> EndLine {
    EndLine {
        at_ms,
        outcome,
        kernel: KernelCounts::default(),
        peaks: Peaks::default(),
        last: None,
        n_left_behind: 0,
        orphans: Vec::new(),
        own_cost: OwnCost::default(),
    }
}

#[cfg(test)]
mod tests {
    use brimful::record::{AttemptLine, Record, RunLine};
    use brimful::units::Bytes;
    use brimful::watch::{HostSample, Sample};

    use super::*;

    fn sample(at_ms: u64, used: u64) -> Line {
        Line::Sample(Sample {
            at_ms,
            host: Some(HostSample {
                used: Bytes(used),
                limit: Bytes(1 << 34),
                headroom: Bytes(1 << 33),
                swapped: Some(Bytes(0)),
            }),
            gauges: vec![brimful::watch::Gauge {
                pid: 4711,
                steps: at_ms,
                allocated: Bytes(1 << 33),
                ..brimful::watch::Gauge::default()
            }],
            ..Sample::default()
        })
    }

    #[test]
    fn a_day_long_run_stays_small_and_keeps_its_peak() {
        let directory = tempfile::tempdir().unwrap();
        let mut recorder = Recorder::create(directory.path());
        recorder.write(&Line::Run(RunLine::default()));
        recorder.write(&Line::Attempt(AttemptLine::default()));
        let peak_at = 12_345;
        let mut largest = 0;
        for second in 0..86_400 {
            let used = if second == peak_at { 1 << 35 } else { second };
            recorder.write(&sample(second * 1000, used));
            largest = largest.max(recorder.size);
        }
        assert!(recorder.take_problem().is_none());
        assert!(largest < 20_000_000, "{largest}");
        let path = directory.path().join(FILE_NAME);
        assert!(is_being_written(&path));
        drop(recorder);
        assert!(!is_being_written(&path));
        let record = Record::read(File::open(path).unwrap()).unwrap();
        assert_eq!(record.n_broken_lines, 0);
        let samples = &record.attempts[0].samples;
        let peak = samples.iter().max_by_key(|s| s.host.unwrap().used).unwrap();
        assert_eq!(
            (peak.at_ms, peak.host.unwrap().used),
            (peak_at * 1000, Bytes(1 << 35))
        );
        assert!(samples.is_sorted_by_key(|s| s.at_ms));
        assert_eq!(samples.last().unwrap().at_ms, 86_399_000);
    }

    #[test]
    fn a_record_that_cannot_be_written_is_said_once() {
        let mut recorder = Recorder::create(Path::new("/proc/nowhere"));
        recorder.write(&sample(0, 0));
        assert!(recorder.take_problem().unwrap().contains("/proc/nowhere"));
        recorder.write(&sample(1, 0));
        assert!(recorder.take_problem().is_none());
    }
}
