//! Datasets: a source and what is done with its fields.

#![expect(
    clippy::needless_pass_by_value,
    reason = "what Python hands over is ours"
)]

use std::io;
use std::panic::{self, AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use brimful::units::Bytes;
use brimful_load::expression::{
    Expression, ExpressionError, NormalizeExpression, OpExpression, Sides, SourceExpression,
};
use brimful_load::pipeline::PipelineError;
use brimful_load::{Access, DType, Indexes, Opening, Pipeline, SourceError, remote};
use pyo3::prelude::*;

use crate::border::{Failure, call};
use crate::data::with_causes;

#[pyclass(frozen, name = "Dataset", module = "brimful._native")]
#[derive(Debug)]
pub(crate) struct NativeDataset {
    /// The same as a value.
    expression: Expression,
    pipeline: Pipeline,
}

impl NativeDataset {
    pub(crate) fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    pub(crate) fn expression(&self) -> &Expression {
        &self.expression
    }

    fn with(&self, py: Python<'_>, op: OpExpression) -> PyResult<NativeDataset> {
        let pipeline = call(py, || Ok(op.apply(&self.pipeline)?))?;
        let mut expression = self.expression.clone();
        expression.ops.push(op);
        Ok(NativeDataset {
            expression,
            pipeline,
        })
    }
}

#[pymethods]
impl NativeDataset {
    fn __len__(&self) -> usize {
        usize::try_from(self.pipeline.source().len()).unwrap_or(usize::MAX)
    }

    /// Names of fields and what they are.
    fn fields(&self) -> Vec<(String, String)> {
        let fields = self.pipeline.fields().into_iter();
        fields
            .map(|field| (field.name, field.spec.to_string()))
            .collect()
    }

    /// How the bytes are read, and why.
    fn reading(&self) -> String {
        let choice = self.pipeline.source().choice();
        let access = match choice.access {
            Access::Mapped => "mapped",
            Access::Read => "read",
            Access::Direct => "direct",
            Access::Remote => "remote",
        };
        format!("{access}: {}", choice.reason)
    }

    fn decode(&self, py: Python<'_>, field: String, max_pixels: u64) -> PyResult<NativeDataset> {
        let op = OpExpression {
            decode: Some(true),
            max_pixels: Some(max_pixels),
            ..of(field)
        };
        self.with(py, op)
    }

    fn resize(
        &self,
        py: Python<'_>,
        field: String,
        height: usize,
        width: usize,
        filter: String,
    ) -> PyResult<NativeDataset> {
        let op = OpExpression {
            resize: Some(Sides::HeightAndWidth([height, width])),
            filter: Some(filter),
            ..of(field)
        };
        self.with(py, op)
    }

    fn crop(
        &self,
        py: Python<'_>,
        fields: Vec<String>,
        height: usize,
        width: usize,
        random: bool,
    ) -> PyResult<NativeDataset> {
        let op = OpExpression {
            crop: Some(Sides::HeightAndWidth([height, width])),
            random: Some(random),
            fields: Some(fields),
            ..OpExpression::default()
        };
        self.with(py, op)
    }

    fn flip(
        &self,
        py: Python<'_>,
        fields: Vec<String>,
        probability: f64,
    ) -> PyResult<NativeDataset> {
        let op = OpExpression {
            flip: Some(probability),
            fields: Some(fields),
            ..OpExpression::default()
        };
        self.with(py, op)
    }

    /// The samples at these positions; with a seed, of an order that is shuffled by it.
    #[pyo3(signature = (start, end, seed))]
    fn part(
        &self,
        py: Python<'_>,
        start: u64,
        end: u64,
        seed: Option<u64>,
    ) -> PyResult<NativeDataset> {
        let op = OpExpression {
            part: Some([start, end]),
            seed,
            ..OpExpression::default()
        };
        self.with(py, op)
    }

    /// With a field that has the number of each sample.
    fn numbered(&self, py: Python<'_>, name: String) -> PyResult<NativeDataset> {
        let op = OpExpression {
            numbered: Some(name),
            ..OpExpression::default()
        };
        self.with(py, op)
    }

    fn transpose(
        &self,
        py: Python<'_>,
        field: String,
        axes: Vec<usize>,
    ) -> PyResult<NativeDataset> {
        let op = OpExpression {
            transpose: Some(axes),
            ..of(field)
        };
        self.with(py, op)
    }

    #[pyo3(signature = (field, mean, std, scale))]
    fn normalize(
        &self,
        py: Python<'_>,
        field: String,
        mean: Vec<f32>,
        std: Vec<f32>,
        scale: Option<f32>,
    ) -> PyResult<NativeDataset> {
        let op = OpExpression {
            normalize: Some(NormalizeExpression { mean, std, scale }),
            ..of(field)
        };
        self.with(py, op)
    }

    fn cast(&self, py: Python<'_>, field: String, dtype: String) -> PyResult<NativeDataset> {
        let op = OpExpression {
            cast: Some(dtype),
            ..of(field)
        };
        self.with(py, op)
    }

    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    fn voxelize(
        &self,
        py: Python<'_>,
        field: String,
        size: usize,
        dtype: String,
        channel: bool,
        surface: bool,
        rotations: u32,
    ) -> PyResult<NativeDataset> {
        let op = OpExpression {
            voxelize: Some(size),
            dtype: Some(dtype),
            channel: Some(channel),
            surface: Some(surface),
            rotations: Some(rotations),
            ..of(field)
        };
        self.with(py, op)
    }

    #[pyo3(signature = (field, tokenizer, length, *, pad_id, special_tokens, max_bytes, mask))]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    fn tokenize(
        &self,
        py: Python<'_>,
        field: String,
        tokenizer: PathBuf,
        length: usize,
        pad_id: Option<u32>,
        special_tokens: bool,
        max_bytes: Option<usize>,
        mask: Option<String>,
    ) -> PyResult<NativeDataset> {
        let op = OpExpression {
            tokenize: Some(tokenizer),
            length: Some(length),
            pad_id,
            special_tokens: Some(special_tokens),
            max_bytes,
            mask,
            ..of(field)
        };
        self.with(py, op)
    }

    fn copy(&self, py: Python<'_>, field: String, to: String) -> PyResult<NativeDataset> {
        let op = OpExpression {
            copy: Some(to),
            ..of(field)
        };
        self.with(py, op)
    }

    fn keep(&self, py: Python<'_>, fields: Vec<String>) -> PyResult<NativeDataset> {
        let op = OpExpression {
            select: Some(fields),
            ..OpExpression::default()
        };
        self.with(py, op)
    }

    fn rename(&self, py: Python<'_>, field: String, to: String) -> PyResult<NativeDataset> {
        let op = OpExpression {
            rename: Some(to),
            ..of(field)
        };
        self.with(py, op)
    }
}

fn of(field: String) -> OpExpression {
    OpExpression {
        field: Some(field),
        ..OpExpression::default()
    }
}

/// A type by its name.
pub(super) fn dtype_of(name: &str) -> Result<DType, ExpressionError> {
    DType::from_name(name).ok_or_else(|| ExpressionError::UnknownType(name.to_owned()))
}

impl From<ExpressionError> for Failure {
    fn from(error: ExpressionError) -> Failure {
        let message = with_causes(&error);
        let hints = match error {
            ExpressionError::Source(error) => return error.into(),
            ExpressionError::Pipeline(error) => return error.into(),
            ExpressionError::UnknownType(_) => vec![format!(
                "valid dtypes are {}",
                DType::ALL.map(DType::name).join(", ")
            )],
            ExpressionError::Op(_) | ExpressionError::Malformed { .. } => Vec::new(),
        };
        Failure::Input { message, hints }
    }
}

/// How long Ctrl-C waits to be heard.
const PATIENCE: Duration = Duration::from_millis(50);

/// Between two reports of how far the opening is.
const BETWEEN_REPORTS: Duration = Duration::from_millis(500);

/// Opens in a thread of its own: some files are looked through for minutes, and Ctrl-C must be heard meanwhile. What was
/// begun then goes on in the background, and nobody takes its result. `report` is called with the files that are looked
/// through, all files, and the same of bytes.
fn opened(
    py: Python<'_>,
    source: SourceExpression,
    opening: Opening,
    report: Option<&Bound<'_, PyAny>>,
) -> PyResult<NativeDataset> {
    quiet_decoder_panics();
    let opening = Arc::new(opening);
    let expression = Expression {
        source,
        ops: Vec::new(),
    };
    let (done, opened) = mpsc::channel();
    let opened = Mutex::new(opened);
    let work = {
        let (opening, expression) = (Arc::clone(&opening), expression.clone());
        move || {
            let open = || expression.open(&opening);
            drop(done.send(catch_unwind(AssertUnwindSafe(open))));
        }
    };
    let thread = std::thread::Builder::new().name("brimful-open".into());
    call(py, || thread.spawn(work).map_err(no_thread))?;
    let mut last = Instant::now();
    loop {
        let waited = call(py, || {
            let opened = opened.lock().unwrap_or_else(PoisonError::into_inner);
            match opened.recv_timeout(PATIENCE) {
                Ok(Ok(pipeline)) => Ok(Some(pipeline?)),
                Ok(Err(panic)) => resume_unwind(panic),
                Err(RecvTimeoutError::Timeout) => Ok(None),
                Err(RecvTimeoutError::Disconnected) => unreachable!("it sends before it ends"),
            }
        })?;
        if let Some(pipeline) = waited {
            return Ok(NativeDataset {
                expression,
                pipeline,
            });
        }
        py.check_signals()?;
        if let Some(report) = report
            && last.elapsed() >= BETWEEN_REPORTS
        {
            last = Instant::now();
            let passed = opening.progress.snapshot();
            let files = (passed.n_files_done, passed.n_files);
            let bytes = (passed.bytes_done.get(), passed.bytes.get());
            report.call1((files.0, files.1, bytes.0, bytes.1))?;
        }
    }
}

/// Keeps panics that the loader turns into errors out of the user's output. Every dataset is opened before it is read,
/// so once is enough.
pub(crate) fn quiet_decoder_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| panic::set_hook(brimful_load::quiet_hook(panic::take_hook())));
}

fn opening(headroom: Option<u64>, indexes: Option<PathBuf>) -> Opening {
    Opening {
        headroom: headroom.map(Bytes),
        indexes: indexes.map(Indexes::in_folder),
        ..Opening::default()
    }
}

fn no_thread(cause: io::Error) -> Failure {
    Failure::Machine {
        message: format!("failed to start a thread to open files: {cause}"),
        hints: vec!["raise the process limit (ulimit -u, pids.max), or end other processes".into()],
    }
}

#[pyfunction]
#[pyo3(signature = (path, fields, headroom))]
pub(crate) fn open_hdf5(
    py: Python<'_>,
    path: PathBuf,
    fields: Option<Vec<(String, String)>>,
    headroom: Option<u64>,
) -> PyResult<NativeDataset> {
    let source = SourceExpression {
        hdf5: Some(path),
        fields,
        ..SourceExpression::default()
    };
    opened(py, source, opening(headroom, None), None)
}

#[pyfunction]
#[pyo3(signature = (paths, columns, headroom))]
pub(crate) fn open_arrow(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    columns: Option<Vec<String>>,
    headroom: Option<u64>,
) -> PyResult<NativeDataset> {
    let source = SourceExpression {
        arrow: Some(paths.into()),
        columns,
        ..SourceExpression::default()
    };
    opened(py, source, opening(headroom, None), None)
}

#[pyfunction]
#[pyo3(signature = (paths, columns, cache, headroom))]
pub(crate) fn open_parquet(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    columns: Option<Vec<String>>,
    cache: u64,
    headroom: Option<u64>,
) -> PyResult<NativeDataset> {
    let source = SourceExpression {
        parquet: Some(paths.into()),
        columns,
        cache: Some(Bytes(cache)),
        ..SourceExpression::default()
    };
    opened(py, source, opening(headroom, None), None)
}

#[pyfunction]
#[pyo3(signature = (files, headroom))]
pub(crate) fn open_npy(
    py: Python<'_>,
    files: Vec<(String, PathBuf)>,
    headroom: Option<u64>,
) -> PyResult<NativeDataset> {
    let source = SourceExpression {
        npy: Some(files),
        ..SourceExpression::default()
    };
    opened(py, source, opening(headroom, None), None)
}

#[pyfunction]
#[pyo3(signature = (field, path, shape, dtype, headroom))]
pub(crate) fn open_raw(
    py: Python<'_>,
    field: String,
    path: PathBuf,
    shape: Vec<usize>,
    dtype: String,
    headroom: Option<u64>,
) -> PyResult<NativeDataset> {
    let source = SourceExpression {
        raw: Some(path),
        field: Some(field),
        shape: Some(shape),
        dtype: Some(dtype),
        ..SourceExpression::default()
    };
    opened(py, source, opening(headroom, None), None)
}

#[pyfunction]
#[pyo3(signature = (paths, length, dtype, as_int64, documents, headroom))]
pub(crate) fn open_tokens(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    length: usize,
    dtype: Option<String>,
    as_int64: bool,
    documents: bool,
    headroom: Option<u64>,
) -> PyResult<NativeDataset> {
    let source = SourceExpression {
        tokens: Some(paths.into()),
        length: Some(length),
        dtype,
        as_int64: Some(as_int64),
        documents: Some(documents),
        ..SourceExpression::default()
    };
    opened(py, source, opening(headroom, None), None)
}

#[pyfunction]
#[pyo3(signature = (paths, json, headroom, indexes, report))]
pub(crate) fn open_lines(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    json: Option<String>,
    headroom: Option<u64>,
    indexes: Option<PathBuf>,
    report: &Bound<'_, PyAny>,
) -> PyResult<NativeDataset> {
    let source = SourceExpression {
        lines: Some(paths.into()),
        json,
        ..SourceExpression::default()
    };
    opened(py, source, opening(headroom, indexes), Some(report))
}

#[pyfunction]
#[pyo3(signature = (root, extensions, labels, split, headroom))]
pub(crate) fn open_folder(
    py: Python<'_>,
    root: PathBuf,
    extensions: Vec<String>,
    labels: bool,
    split: Option<String>,
    headroom: Option<u64>,
) -> PyResult<NativeDataset> {
    let source = SourceExpression {
        folder: Some(root),
        extensions: Some(extensions),
        labels: Some(labels),
        split,
        ..SourceExpression::default()
    };
    opened(py, source, opening(headroom, None), None)
}

#[pyfunction]
#[pyo3(signature = (paths, extensions, headroom, indexes, report))]
pub(crate) fn open_tar(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    extensions: Vec<String>,
    headroom: Option<u64>,
    indexes: Option<PathBuf>,
    report: &Bound<'_, PyAny>,
) -> PyResult<NativeDataset> {
    let source = SourceExpression {
        tar: Some(paths.into()),
        extensions: Some(extensions),
        ..SourceExpression::default()
    };
    opened(py, source, opening(headroom, indexes), Some(report))
}

/// What to do about a pipeline that cannot be.
pub(super) fn hints_of(error: &PipelineError) -> Vec<String> {
    match error {
        PipelineError::NotBatchable { .. } => vec![String::from(
            "convert it with `decode`, `resize`, `crop`, `tokenize` or `voxelize`, or exclude it with `select`",
        )],
        _ => Vec::new(),
    }
}

impl From<PipelineError> for Failure {
    fn from(error: PipelineError) -> Failure {
        Failure::Input {
            message: with_causes(&error),
            hints: hints_of(&error),
        }
    }
}

/// Where a file was looked for that is not there: a notebook or a job may run elsewhere than one thinks.
fn hint_of_missing(path: &Path, cause: &io::Error) -> Option<String> {
    let is_looked_for_here = path.is_relative() && !remote::is_remote(path);
    if cause.kind() != io::ErrorKind::NotFound || !is_looked_for_here {
        return None;
    }
    let here = std::env::current_dir().ok()?;
    Some(format!(
        "relative paths are resolved from {}",
        here.display()
    ))
}

impl From<SourceError> for Failure {
    fn from(error: SourceError) -> Failure {
        let message = with_causes(&error);
        match error {
            SourceError::Unreadable { path, cause } => Failure::Machine {
                message,
                hints: hint_of_missing(&path, &cause).into_iter().collect(),
            },
            SourceError::Unsupported { hint, .. } => Failure::Input {
                message,
                hints: vec![hint],
            },
            SourceError::Malformed { .. } | SourceError::NoSuchField { .. } => Failure::Input {
                message,
                hints: Vec::new(),
            },
        }
    }
}
