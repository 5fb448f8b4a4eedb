//! Preparation of datasets.

#![expect(
    clippy::needless_pass_by_value,
    reason = "what Python hands over is ours"
)]

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use brimful::preview::Preview;
use brimful::units::Bytes;
use brimful_load::expression::OpExpression;
use brimful_prepare::{
    Coordinator, CoordinatorState, LocalSettings, Manifest, OnSampleError, PhaseName, Preparation,
    PrepareError, Prepared, Preparing, Recipe, Trial,
};
use brimful_report::html::report::{PrepareReport, PrepareStage, prepare_report};
use brimful_workflow::{ReportError, check_report_path, write_report};
use pyo3::prelude::*;

use crate::border::{Failure, call};
use crate::data::dataset::{NativeDataset, hints_of, quiet_decoder_panics};
use crate::data::with_causes;

/// How long a wait goes on before Python looks at its signals.
const A_MOMENT: Duration = Duration::from_millis(50);

#[pyclass(frozen, name = "Recipe", module = "brimful._native")]
#[derive(Debug)]
pub(crate) struct NativeRecipe {
    recipe: Recipe,
}

#[pymethods]
impl NativeRecipe {
    #[staticmethod]
    #[pyo3(signature = (path, keep=None))]
    fn read(py: Python<'_>, path: PathBuf, keep: Option<PathBuf>) -> PyResult<NativeRecipe> {
        let recipe = call(py, || {
            let mut recipe = Recipe::read(&path)?;
            if keep.is_some() {
                recipe.keep = keep;
                recipe.make_absolute(Path::new(""))?;
                recipe.check()?;
            }
            Ok(recipe)
        })?;
        Ok(NativeRecipe { recipe })
    }

    #[staticmethod]
    #[pyo3(signature = (dataset, *, field, tokenizer, dtype, end_id, special_tokens, block, seed, shard, split, on_error, keep))]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    fn of(
        py: Python<'_>,
        dataset: &NativeDataset,
        field: Option<String>,
        tokenizer: Option<PathBuf>,
        dtype: Option<String>,
        end_id: Option<u32>,
        special_tokens: bool,
        block: Option<usize>,
        seed: u64,
        shard: u64,
        split: u64,
        on_error: &str,
        keep: Option<PathBuf>,
    ) -> PyResult<NativeRecipe> {
        let mut expression = dataset.expression().clone();
        if let Some(tokenizer) = tokenizer {
            expression.ops.push(OpExpression {
                tokenize: Some(tokenizer),
                field,
                dtype,
                end_id,
                special_tokens: Some(special_tokens),
                ..OpExpression::default()
            });
        }
        let recipe = call(py, || {
            let mut recipe = Recipe {
                block,
                seed,
                keep,
                shard: Bytes(shard),
                split: Bytes(split),
                on_error: match on_error {
                    "raise" => OnSampleError::Raise,
                    "skip" => OnSampleError::Skip,
                    other => {
                        return Err(Failure::Input {
                            message: format!(
                                "expected `on_error` to be \"raise\" or \"skip\", found {other:?}"
                            ),
                            hints: Vec::new(),
                        });
                    }
                },
                ..Recipe::of(expression)
            };
            recipe.make_absolute(Path::new(""))?;
            recipe.check()?;
            Ok(recipe)
        })?;
        Ok(NativeRecipe { recipe })
    }

    /// What preparing would take, as JSON; and a report of it, if a path is given.
    #[pyo3(signature = (out, memory, report=None))]
    fn estimate(
        &self,
        py: Python<'_>,
        out: PathBuf,
        memory: u64,
        report: Option<PathBuf>,
    ) -> PyResult<String> {
        quiet_decoder_panics();
        call(py, || {
            let preparation = Preparation::begin(&self.recipe, &out)?;
            let trial = preparation.estimate(Bytes(memory), report.is_some())?;
            let text = trial.estimate.to_json();
            if let Some(path) = &report {
                write_page(path, &report_of_trial(trial, &out, Bytes(memory)))?;
            }
            Ok(text)
        })
    }

    /// Writes a report of the dataset that was prepared.
    #[pyo3(signature = (out, memory, path, peak=None))]
    fn report(
        &self,
        py: Python<'_>,
        out: PathBuf,
        memory: u64,
        path: PathBuf,
        peak: Option<u64>,
    ) -> PyResult<()> {
        call(py, || {
            let preparation = Preparation::begin(&self.recipe, &out)?;
            let Some(manifest) = preparation.finished()? else {
                return Err(Failure::Input {
                    message: format!("expected a prepared dataset in {}", out.display()),
                    hints: vec!["prepare it first".to_owned()],
                });
            };
            let report = PrepareReport {
                preview: preparation.preview(&manifest)?,
                ..report_of(&manifest, &out, Bytes(memory), peak.map(Bytes))
            };
            write_page(&path, &report)
        })
    }
}

/// Raises an error if a report cannot be written to `path`. The directory `out` will exist.
#[pyfunction]
pub(crate) fn check_report(py: Python<'_>, path: PathBuf, out: PathBuf) -> PyResult<()> {
    call(py, || check_new_report(&path, &out))
}

fn check_new_report(path: &Path, out: &Path) -> Result<(), Failure> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    if folder != out && !folder.is_dir() {
        return Err(Failure::Input {
            message: format!(
                "expected a directory for the report {}, found none at {}",
                path.display(),
                folder.display()
            ),
            hints: vec!["create it, or name a file in another directory".to_owned()],
        });
    }
    check_report_path(path, false).map_err(|error| match error {
        ReportError::FileExists { .. } => Failure::Input {
            message: error.to_string(),
            hints: vec!["name another file, or remove this one".to_owned()],
        },
        other => other.into(),
    })
}

fn write_page(path: &Path, report: &PrepareReport) -> Result<(), Failure> {
    let page = prepare_report(report).map_err(|error| Failure::Internal {
        message: error.to_string(),
    })?;
    Ok(write_report(path, &page, false)?)
}

fn report_of_trial(trial: Trial, out: &Path, memory: Bytes) -> PrepareReport {
    let estimate = trial.estimate;
    PrepareReport {
        out: out.display().to_string(),
        samples: estimate.samples,
        shards: estimate.shards,
        shard_bytes: Bytes(estimate.shard_bytes),
        memory,
        stage: PrepareStage::Tried {
            tasks: estimate.map_tasks.saturating_add(estimate.shards),
            input_bytes: Bytes(estimate.input_bytes),
            run_bytes: Bytes(estimate.run_bytes),
            free_bytes: estimate.free_bytes.map(Bytes),
            time: Duration::try_from_secs_f64(estimate.cpu_seconds).unwrap_or(Duration::MAX),
        },
        preview: trial.preview,
    }
}

/// A report without samples.
fn report_of(manifest: &Manifest, out: &Path, memory: Bytes, peak: Option<Bytes>) -> PrepareReport {
    PrepareReport {
        out: out.display().to_string(),
        samples: manifest.samples,
        shards: manifest.shards.len() as u64,
        shard_bytes: Bytes(manifest.shards.iter().map(|shard| shard.bytes).sum()),
        memory,
        stage: PrepareStage::Finished {
            digest: manifest.digest.clone(),
            peak,
            documents: manifest.documents,
            tokens: manifest.tokens,
            dropped_tokens: manifest.dropped_tokens,
            left_out: manifest.left_out,
            skipped: manifest.skipped.count,
            skipped_reasons: manifest.skipped.reasons.clone(),
        },
        preview: Preview::default(),
    }
}

/// A preparation whose tasks other processes run.
#[pyclass(frozen, name = "TaskCoordinator", module = "brimful._native")]
#[derive(Debug)]
pub(crate) struct NativeCoordinator {
    coordinator: Mutex<Option<Coordinator>>,
    finished: Option<String>,
    out: PathBuf,
}

#[pymethods]
impl NativeCoordinator {
    /// Begins with a recipe, or continues what was begun.
    #[new]
    #[pyo3(signature = (out, recipe=None))]
    fn new(
        py: Python<'_>,
        out: PathBuf,
        recipe: Option<&NativeRecipe>,
    ) -> PyResult<NativeCoordinator> {
        let state = call(py, || {
            Ok(match recipe {
                Some(recipe) => Coordinator::begin(&recipe.recipe, &out)?,
                None => Coordinator::open(&out)?,
            })
        })?;
        let (coordinator, finished) = match state {
            CoordinatorState::Locked(coordinator) => (Some(*coordinator), None),
            CoordinatorState::Finished(manifest) => {
                (None, Some(prepared(*manifest, true).to_json()))
            }
        };
        Ok(NativeCoordinator {
            coordinator: Mutex::new(coordinator),
            finished,
            out,
        })
    }

    /// The result if it was finished before, as JSON.
    #[getter]
    fn finished(&self) -> Option<String> {
        self.finished.clone()
    }

    /// The number of map tasks; the task of that number is to be run when all others are finished.
    fn map_tasks(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |coordinator| Ok(coordinator.preparation().map_tasks()))
    }

    /// Map tasks that are not finished.
    fn missing_map_tasks(&self, py: Python<'_>) -> PyResult<Vec<u64>> {
        self.with(py, |coordinator| Ok(coordinator.missing_map_tasks()))
    }

    /// The number of shard tasks, after all map tasks.
    fn shards(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, Coordinator::shards)
    }

    /// Writes the manifest, after all shard tasks; the result as JSON.
    fn finish(&self, py: Python<'_>) -> PyResult<String> {
        let manifest = self.with(py, Coordinator::finish)?;
        Ok(prepared(manifest, false).to_json())
    }

    /// Unlocks the directory.
    fn close(&self) {
        drop(self.lock().take());
    }
}

impl NativeCoordinator {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Coordinator>> {
        self.coordinator
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Coordinator) -> Result<T, PrepareError> + Send,
    ) -> PyResult<T> {
        call(py, || match self.lock().as_ref() {
            Some(coordinator) => Ok(work(coordinator)?),
            None => Err(PrepareError::Busy {
                path: self.out.clone(),
            }
            .into()),
        })
    }
}

fn prepared(manifest: Manifest, was_finished: bool) -> Prepared {
    Prepared {
        manifest,
        peak_bytes: 0,
        was_finished,
    }
}

/// The text of the manifest of a prepared dataset; None if there is none.
#[pyfunction]
pub(crate) fn read_manifest(py: Python<'_>, out: PathBuf) -> PyResult<Option<String>> {
    call(py, || Ok(brimful_prepare::read_manifest(&out)?))
}

/// Bytes of the named files of a prepared dataset; None for those that are missing.
#[pyfunction]
pub(crate) fn file_sizes(
    py: Python<'_>,
    out: PathBuf,
    names: Vec<String>,
) -> PyResult<Vec<Option<u64>>> {
    call(py, || Ok(brimful_prepare::file_sizes(&out, &names)?))
}

/// The numbers of map tasks and of shard tasks; none of the latter before all runs are there.
#[pyfunction]
pub(crate) fn prepare_tasks(py: Python<'_>, out: PathBuf) -> PyResult<(u64, Option<u64>)> {
    call(py, || {
        let preparation = Preparation::open(&out)?;
        Ok((preparation.map_tasks(), preparation.shard_tasks()?))
    })
}

/// Runs one task of a preparation that was begun in `out`.
#[pyfunction]
pub(crate) fn run_prepare_task(
    py: Python<'_>,
    out: PathBuf,
    phase: &str,
    task: u64,
    memory: u64,
) -> PyResult<()> {
    quiet_decoder_panics();
    call(py, || {
        let preparation = Preparation::open_again(&out)?;
        let done = match phase {
            "map" => preparation.run_map_task(task, Bytes(memory)),
            "shard" => preparation.run_shard_task(task, Bytes(memory)),
            other => {
                return Err(Failure::Input {
                    message: format!("expected the phase map or shard, found {other:?}"),
                    hints: Vec::new(),
                });
            }
        };
        Ok(done.inspect_err(|_| Preparation::forget_last())?)
    })
}

#[pyclass(frozen, name = "Preparing", module = "brimful._native")]
#[derive(Debug)]
pub(crate) struct NativePreparing {
    preparing: Mutex<Option<Preparing>>,
}

#[pymethods]
impl NativePreparing {
    #[new]
    #[pyo3(signature = (recipe, out, *, memory, threads))]
    fn new(
        py: Python<'_>,
        recipe: &NativeRecipe,
        out: PathBuf,
        memory: u64,
        threads: Option<usize>,
    ) -> PyResult<NativePreparing> {
        quiet_decoder_panics();
        let recipe = recipe.recipe.clone();
        let settings = LocalSettings {
            memory: Bytes(memory),
            threads,
        };
        let preparing = call(py, || Ok(Preparing::start(recipe, &out, settings)?))?;
        Ok(NativePreparing {
            preparing: Mutex::new(Some(preparing)),
        })
    }

    /// Name of the phase, finished tasks, all tasks, finished bytes, all bytes and the memory peak.
    #[getter]
    fn progress(&self, py: Python<'_>) -> (&'static str, u64, u64, u64, u64, u64) {
        let progress = py.detach(|| self.lock().as_ref().map(Preparing::progress));
        let progress = progress.unwrap_or_default();
        let phase = match progress.phase {
            PhaseName::Map => "map",
            PhaseName::Shard => "shard",
        };
        let (tasks, bytes) = (
            (progress.tasks_done, progress.tasks),
            (progress.bytes_done, progress.bytes),
        );
        (
            phase,
            tasks.0,
            tasks.1,
            bytes.0,
            bytes.1,
            progress.peak_bytes,
        )
    }

    /// The manifest and more as JSON; None after a short wait if preparing is not finished.
    fn wait(&self, py: Python<'_>) -> PyResult<Option<String>> {
        call(py, || {
            let prepared = match self.lock().as_ref() {
                Some(preparing) => preparing.wait(A_MOMENT)?,
                None => None,
            };
            Ok(prepared.map(|prepared| prepared.to_json()))
        })
    }

    /// Ends the threads; what is finished stays for the next time.
    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.lock().take()));
    }
}

impl NativePreparing {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Preparing>> {
        self.preparing
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<PrepareError> for Failure {
    fn from(error: PrepareError) -> Failure {
        let message = with_causes(&error);
        let hints = hints(&error);
        match error {
            PrepareError::Expression(error) => error.into(),
            PrepareError::Source(error) => error.into(),
            PrepareError::Busy { .. }
            | PrepareError::Unreadable { .. }
            | PrepareError::Unwritable { .. }
            | PrepareError::Damaged { .. } => Failure::Machine { message, hints },
            PrepareError::Panic { .. } => Failure::Internal { message },
            _ => Failure::Input { message, hints },
        }
    }
}

fn hints(error: &PrepareError) -> Vec<String> {
    let hint = match error {
        PrepareError::Pipeline(error) => return hints_of(error),
        PrepareError::TooLittleMemory { needed, .. } => {
            format!("set the memory budget to at least {needed}")
        }
        PrepareError::NotEmpty { .. } => "name a directory that does not exist yet".to_owned(),
        PrepareError::OtherRecipe { .. } | PrepareError::Damaged { .. } => {
            "name another directory, or remove this one to start over".to_owned()
        }
        PrepareError::ChangedInput { .. } => {
            "restore the file, or name another directory to start over".to_owned()
        }
        PrepareError::Busy { .. } => "wait until it ends, or name another directory".to_owned(),
        PrepareError::Sample(_) => {
            "to leave out samples that fail, set on_error to \"skip\"".to_owned()
        }
        PrepareError::Unwritable { .. } => {
            "finished tasks are kept; run the same command again to continue".to_owned()
        }
        _ => return Vec::new(),
    };
    vec![hint]
}
