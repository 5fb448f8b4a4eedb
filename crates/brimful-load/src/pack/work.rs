//! The threads that pack, and how what they make comes into one order.
//!
//! A thread takes the next few samples, a run. Its tokens wait until all runs before it are written. Where a run has more
//! tokens than fit into its memory, its thread waits for its turn and then writes as it goes.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::pack::document::{DocumentEncoder, DocumentScratch, TokenSink, Unfinished};
use crate::pack::error::PackError;
use crate::pack::output::{Output, Packed};

/// Bytes of the tokens of a run that may wait, or those of one piece of a document if that has more.
pub(super) const RUN_BYTES: usize = 512 << 10;

/// A run is made of so many samples that its tokens take about this, so that few of them wait for another.
const USUAL_BYTES: u64 = 128 << 10;

/// Most samples of a run.
const MAX_SAMPLES: u64 = 4096;

/// Samples of a run before it is known how many tokens they have.
const FIRST_SAMPLES: u64 = 8;

#[derive(Debug)]
pub(super) struct Shared {
    encoder: DocumentEncoder,
    total: u64,
    /// Runs that may be in work or wait at once.
    max_runs: u64,
    line: Mutex<Line>,
    /// The line has moved, or there is an end.
    moved: Condvar,
    is_stopped: AtomicBool,
    /// No sample from here on is wanted any more: one before it has failed.
    end: AtomicU64,
}

/// What is written, and who comes next.
#[derive(Debug)]
struct Line {
    /// Nothing when it is finished.
    output: Option<Output>,
    /// The first sample that nobody has taken.
    next_sample: u64,
    /// Runs that were taken.
    taken: u64,
    /// The run that is to be written.
    turn: u64,
    waiting: BTreeMap<u64, Tokens>,
    /// Bytes of tokens and samples so far, for the size of the next run.
    bytes: u64,
    samples: u64,
    /// Threads at work.
    working: usize,
    error: Option<(u64, PackError)>,
}

/// The tokens of a run, and how many each document has.
#[derive(Debug, Default)]
struct Tokens {
    bytes: Vec<u8>,
    lengths: Vec<u64>,
}

struct Run {
    number: u64,
    samples: Range<u64>,
}

impl Shared {
    pub(super) fn new(encoder: DocumentEncoder, output: Output, n_threads: usize) -> Shared {
        Shared {
            total: encoder.len(),
            encoder,
            max_runs: 2 * n_threads as u64,
            line: Mutex::new(Line {
                output: Some(output),
                next_sample: 0,
                taken: 0,
                turn: 0,
                waiting: BTreeMap::new(),
                bytes: 0,
                samples: 0,
                working: 0,
                error: None,
            }),
            moved: Condvar::new(),
            is_stopped: AtomicBool::new(false),
            end: AtomicU64::new(u64::MAX),
        }
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    pub(super) fn done(&self) -> u64 {
        let line = self.lock();
        line.output.as_ref().map_or(self.total, Output::documents)
    }

    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        // Under the lock: nobody is between looking and waiting.
        drop(self.lock());
        self.moved.notify_all();
    }

    /// Whether everything is written or has failed, at the latest after `timeout`.
    pub(super) fn wait(&self, timeout: Duration) -> bool {
        let began = Instant::now();
        let mut line = self.lock();
        loop {
            let is_over = line.turn == line.taken && line.next_sample >= self.total;
            if line.working == 0 && (is_over || line.error.is_some()) {
                return true;
            }
            let left = timeout.saturating_sub(began.elapsed());
            if left.is_zero() {
                return false;
            }
            line = self
                .moved
                .wait_timeout(line, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Gives the files their names, or says why there are none.
    pub(super) fn finish(&self) -> Result<Packed, PackError> {
        let mut line = self.lock();
        let output = line.output.take();
        if let Some((_, error)) = line.error.take() {
            return Err(error);
        }
        drop(line);
        output
            .ok_or_else(|| PackError::Setting {
                name: "packing",
                expected: "one that is not finished".to_owned(),
                found: "one that is".to_owned(),
            })?
            .finish()
    }

    pub(super) fn work(&self) {
        let mut read_scratch = DocumentScratch::default();
        self.lock().working += 1;
        let mut line = self.lock();
        loop {
            let (next, run) = self.take(line);
            line = next;
            let Some(run) = run else { break };
            drop(line);
            let outcome = self.encode(&run, &mut read_scratch);
            line = self.lock();
            match outcome {
                Ok(tokens) => self.hand_in(&mut line, run.number, tokens),
                Err(Some((sample, error))) => self.fail(&mut line, sample, error),
                Err(None) => {}
            }
        }
        line.working -= 1;
        self.moved.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_wanted(&self, sample: u64) -> bool {
        !self.is_stopped.load(Ordering::Relaxed) && sample < self.end.load(Ordering::Relaxed)
    }

    /// The next run; waits until there is room for one more, and gives nothing at the end.
    fn take<'a>(&self, mut line: MutexGuard<'a, Line>) -> (MutexGuard<'a, Line>, Option<Run>) {
        loop {
            let first = line.next_sample;
            if first >= self.total || !self.is_wanted(first) {
                return (line, None);
            }
            if line.taken - line.turn < self.max_runs {
                let usual = match line.bytes.checked_div(line.samples) {
                    Some(each) => (USUAL_BYTES / each.max(1)).clamp(1, MAX_SAMPLES),
                    None => FIRST_SAMPLES,
                };
                let run = Run {
                    number: line.taken,
                    samples: first..first.saturating_add(usual).min(self.total),
                };
                line.taken += 1;
                line.next_sample = run.samples.end;
                return (line, Some(run));
            }
            line = self
                .moved
                .wait(line)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The tokens of a run that are not written yet; an error is that of a sample, or nothing where they are not wanted.
    fn encode(
        &self,
        run: &Run,
        read_scratch: &mut DocumentScratch,
    ) -> Result<Tokens, Option<(u64, PackError)>> {
        let mut writing = Writing {
            shared: self,
            run: run.number,
            sample: run.samples.start,
            tokens: Tokens::default(),
        };
        for sample in run.samples.clone() {
            if !self.is_wanted(sample) {
                return Err(None);
            }
            writing.sample = sample;
            match self.encoder.document(sample, read_scratch, &mut writing) {
                Ok(length) => writing.tokens.lengths.push(length),
                Err(Unfinished::Failed(error)) => return Err(Some((sample, error.into()))),
                Err(Unfinished::Stopped(error)) => return Err(error.map(|error| (sample, error))),
            }
        }
        Ok(writing.tokens)
    }

    /// Puts the tokens of a finished run into the line, and writes all whose turn it is.
    fn hand_in(&self, line: &mut Line, run: u64, tokens: Tokens) {
        line.samples += tokens.lengths.len() as u64;
        line.bytes += tokens.bytes.len() as u64;
        line.waiting.insert(run, tokens);
        while let Some(tokens) = line.waiting.remove(&line.turn) {
            if let Some(output) = &mut line.output
                && let Err(error) = output.append(&tokens.bytes, &tokens.lengths)
            {
                self.fail(line, 0, error);
                return;
            }
            line.turn += 1;
        }
        self.moved.notify_all();
    }

    /// Keeps the failure of the first sample. Threads with samples before it go on to their end.
    fn fail(&self, line: &mut Line, sample: u64, error: PackError) {
        if line.error.as_ref().is_none_or(|(first, _)| sample < *first) {
            line.error = Some((sample, error));
            self.end.store(sample, Ordering::Relaxed);
        }
        self.moved.notify_all();
    }

    /// Waits for the turn of a run and writes what it has so far; nothing where it is not wanted any more.
    fn write_through(
        &self,
        run: u64,
        sample: u64,
        tokens: &mut Tokens,
    ) -> Result<(), Option<PackError>> {
        let mut line = self.lock();
        while line.turn != run {
            if !self.is_wanted(sample) {
                return Err(None);
            }
            line = self
                .moved
                .wait(line)
                .unwrap_or_else(PoisonError::into_inner);
        }
        line.samples += tokens.lengths.len() as u64;
        line.bytes += tokens.bytes.len() as u64;
        if let Some(output) = &mut line.output {
            output.append(&tokens.bytes, &tokens.lengths)?;
        }
        tokens.bytes.clear();
        tokens.lengths.clear();
        Ok(())
    }
}

/// A run that is being encoded.
struct Writing<'a> {
    shared: &'a Shared,
    run: u64,
    sample: u64,
    tokens: Tokens,
}

impl TokenSink for Writing<'_> {
    type Stopped = Option<PackError>;

    fn take(&mut self, bytes: &[u8]) -> Result<(), Option<PackError>> {
        let held = &mut self.tokens.bytes;
        if held.len() + bytes.len() > RUN_BYTES && !held.is_empty() {
            self.shared
                .write_through(self.run, self.sample, &mut self.tokens)?;
        }
        self.tokens.bytes.extend_from_slice(bytes);
        Ok(())
    }
}
