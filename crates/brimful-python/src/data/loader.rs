//! The loader's native half.

use std::sync::Mutex;
use std::time::Duration;

use brimful::units::Bytes;
use brimful_load::loader::{LoaderError, OnError, Statistics};
use brimful_load::pipeline::{SampleCause, SampleError};
use brimful_load::{Epoch, Loader, LoaderSettings, Next, ReadError, Truncated};
use pyo3::prelude::*;

use crate::border::{Failure, call};
use crate::data::array::BatchArray;
use crate::data::dataset::NativeDataset;
use crate::data::with_causes;

/// What [`NativeLoader::statistics`] gives.
type StatisticsTuple = (u64, u64, u64, f64, f64, f64, Vec<(String, f64)>);

/// How long a wait goes on before Python's signals are looked at.
const A_MOMENT: Duration = Duration::from_millis(50);

#[pyclass(frozen, name = "Loader", module = "brimful._native")]
#[derive(Debug)]
pub(crate) struct NativeLoader {
    loader: Loader,
}

#[pymethods]
impl NativeLoader {
    #[new]
    #[pyo3(signature = (dataset, *, batch_size, shuffle, seed, memory, threads, prefetch, rank, world_size, drop_last, skip_errors))]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    fn new(
        py: Python<'_>,
        dataset: &NativeDataset,
        batch_size: u64,
        shuffle: bool,
        seed: u64,
        memory: u64,
        threads: Option<usize>,
        prefetch: u64,
        rank: u64,
        world_size: u64,
        drop_last: bool,
        skip_errors: bool,
    ) -> PyResult<NativeLoader> {
        let settings = LoaderSettings {
            batch_size,
            shuffle_seed: shuffle.then_some(seed),
            seed,
            memory: Bytes(memory),
            threads,
            prefetch,
            rank,
            world_size,
            drop_last,
            on_error: if skip_errors {
                OnError::Skip
            } else {
                OnError::Raise
            },
        };
        let pipeline = dataset.pipeline().clone();
        let loader = call(py, || Ok(Loader::new(pipeline, settings)?))?;
        Ok(NativeLoader { loader })
    }

    /// Samples of an epoch, over all ranks.
    #[getter]
    fn samples(&self) -> u64 {
        self.loader.samples()
    }

    /// Batches of this rank from a position to the end of an epoch.
    fn batches(&self, position: u64) -> u64 {
        self.loader.batches(position)
    }

    /// Threads, how many of them are past reading at once, batches ahead, bytes of a batch.
    #[getter]
    fn budget(&self) -> (usize, usize, u64, u64) {
        let budget = self.loader.budget();
        (
            budget.threads,
            budget.op_scratches,
            budget.batches,
            budget.batch.get(),
        )
    }

    #[getter]
    fn held_bytes(&self) -> u64 {
        self.loader.held().get()
    }

    fn set_pressure(&self, pressure: f64) {
        self.loader.set_pressure(pressure);
    }

    /// Batches, samples, skipped samples; seconds that the consumer waited, that threads worked and that they were idle, and
    /// those of each stage.
    #[getter]
    fn statistics(&self) -> StatisticsTuple {
        let Statistics {
            batches,
            samples,
            skipped,
            waited,
            worked,
            idle,
            stages,
        } = self.loader.statistics();
        (
            batches,
            samples,
            skipped,
            waited.as_secs_f64(),
            worked.as_secs_f64(),
            idle.as_secs_f64(),
            stages
                .into_iter()
                .map(|(stage, time)| (stage, time.as_secs_f64()))
                .collect(),
        )
    }

    /// Why samples were left out, of the first ones.
    #[getter]
    fn skipped(&self) -> Vec<String> {
        let skipped = self.loader.skipped();
        skipped.iter().map(|error| with_causes(&**error)).collect()
    }

    /// Starts to make the batches of an epoch from a position on.
    fn epoch(&self, epoch: u64, position: u64) -> NativeEpoch {
        NativeEpoch {
            epoch: Mutex::new(Some(self.loader.epoch(epoch, position))),
            process: std::process::id(),
        }
    }
}

#[pyclass(frozen, name = "Epoch", module = "brimful._native")]
#[derive(Debug)]
pub(crate) struct NativeEpoch {
    epoch: Mutex<Option<Epoch>>,
    /// Threads do not follow a fork.
    process: u32,
}

#[pymethods]
impl NativeEpoch {
    /// The fields of the next batch and the position after it; None at the end.
    fn next(&self, py: Python<'_>) -> PyResult<Option<(Vec<BatchArray>, u64)>> {
        loop {
            let next = call(py, || self.wait())?;
            match next {
                Next::Batch(batch) => {
                    let arrays = batch.fields.into_iter().map(BatchArray::new);
                    return Ok(Some((arrays.collect(), batch.next)));
                }
                Next::NotYet => py.check_signals()?,
                Next::End => return Ok(None),
            }
        }
    }

    /// Ends the threads.
    fn close(&self, py: Python<'_>) {
        if std::process::id() == self.process {
            py.detach(|| drop(self.take()));
        }
    }
}

impl NativeEpoch {
    fn take(&self) -> Option<Epoch> {
        self.epoch
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .take()
    }

    fn wait(&self) -> Result<Next, Failure> {
        let here = std::process::id();
        if here != self.process {
            return Err(Failure::Input {
                message: format!(
                    "this iterator belongs to process {}, but was used in its fork {here}",
                    self.process
                ),
                hints: vec![
                    "threads do not survive a fork; start a new loop over the loader in this process".to_owned(),
                ],
            });
        }
        let mut epoch = self
            .epoch
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        match epoch.as_mut() {
            Some(epoch) => Ok(epoch.next(A_MOMENT)?),
            None => Ok(Next::End),
        }
    }
}

impl Drop for NativeEpoch {
    fn drop(&mut self) {
        let epoch = self.take();
        if std::process::id() != self.process {
            // Its threads are in another process, and waiting for them would last forever.
            std::mem::forget(epoch);
        }
    }
}

impl From<SampleError> for Failure {
    fn from(error: SampleError) -> Failure {
        let hint = match *error.cause {
            SampleCause::Read(ReadError::Truncated(_)) => Truncated::HINT,
            _ => "pass `on_error=\"skip\"` to skip and count such samples",
        };
        Failure::Input {
            message: with_causes(&error),
            hints: vec![hint.to_owned()],
        }
    }
}

impl From<LoaderError> for Failure {
    fn from(error: LoaderError) -> Failure {
        let hints = match &error {
            LoaderError::TooLittleMemory { needed, .. } => vec![format!(
                "set `memory` to at least {needed}, or reduce `batch_size`"
            )],
            LoaderError::Pipeline(error) => crate::data::dataset::hints_of(error),
            LoaderError::Setting { .. } => Vec::new(),
        };
        Failure::Input {
            message: with_causes(&error),
            hints,
        }
    }
}
