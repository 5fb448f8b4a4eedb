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
use brimful_load::kernels::Occupied;
use brimful_load::kernels::filter::Filter;
use brimful_load::ops::{
    Cast, Crop, CropAnchor, DecodeImage, Flip, Layout, Normalize, Op, Parse, Resize, Tokenize,
    Transpose, Voxelize,
};
use brimful_load::pipeline::PipelineError;
use brimful_load::sources::{
    ArrowFile, DatasetRequest, Folder, FolderOptions, Hdf5, Labels, Lines, Npy, Parquet, TarField,
    Tars, TokenForm, Tokens,
};
use brimful_load::text::Tokenizer;
use brimful_load::{
    Access, DType, FieldSpec, Indexes, OpError, Opening, Pipeline, Source, SourceError, remote,
};
use pyo3::prelude::*;

use crate::border::{Failure, call};
use crate::data::with_causes;

/// Channels of a decoded image.
const COLORS: usize = 3;

#[pyclass(frozen, name = "Dataset", module = "brimful._native")]
#[derive(Debug)]
pub(crate) struct NativeDataset {
    pipeline: Pipeline,
}

impl NativeDataset {
    pub(crate) fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    fn with(
        &self,
        py: Python<'_>,
        field: &str,
        make: impl FnOnce(u64, &FieldSpec) -> Result<Arc<dyn Op>, OpError> + Send,
    ) -> PyResult<NativeDataset> {
        let pipeline = call(py, || Ok(self.pipeline.with(field, make)?))?;
        Ok(NativeDataset { pipeline })
    }

    fn with_alike(
        &self,
        py: Python<'_>,
        fields: &[String],
        make: impl Fn(Layout, u64) -> Arc<dyn Op> + Send + Sync,
    ) -> PyResult<NativeDataset> {
        let pipeline = call(py, || {
            Ok(self.pipeline.with_alike(fields, |field, number, _| {
                Ok(make(self.layout(field), number))
            })?)
        })?;
        Ok(NativeDataset { pipeline })
    }

    /// The default for a field that does not exist, which the op then reports.
    fn layout(&self, field: &str) -> Layout {
        self.pipeline.layout(field).unwrap_or_default()
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

    fn decode(&self, py: Python<'_>, field: &str, max_pixels: u64) -> PyResult<NativeDataset> {
        self.with(py, field, |_, _| {
            Ok(Arc::new(DecodeImage {
                max_pixels,
                ..DecodeImage::default()
            }))
        })
    }

    fn resize(
        &self,
        py: Python<'_>,
        field: &str,
        height: usize,
        width: usize,
        filter: &str,
    ) -> PyResult<NativeDataset> {
        let layout = self.layout(field);
        self.with(py, field, |_, kind| {
            let filter = match filter {
                "bilinear" => Filter::Bilinear,
                "bicubic" => Filter::Bicubic,
                other => return Err(wrong("resize", "the filter bilinear or bicubic", other)),
            };
            let resize = Resize::new((height, width), filter, layout, COLORS, kind)?;
            Ok(Arc::new(resize))
        })
    }

    fn crop(
        &self,
        py: Python<'_>,
        fields: Vec<String>,
        height: usize,
        width: usize,
        random: bool,
    ) -> PyResult<NativeDataset> {
        let place = if random {
            CropAnchor::Random
        } else {
            CropAnchor::Center
        };
        self.with_alike(py, &fields, |layout, number| {
            Arc::new(Crop::new(number, (height, width), place, layout, COLORS))
        })
    }

    fn flip(
        &self,
        py: Python<'_>,
        fields: Vec<String>,
        probability: f64,
    ) -> PyResult<NativeDataset> {
        self.with_alike(py, &fields, |layout, number| {
            Arc::new(Flip::new(number, probability, layout))
        })
    }

    /// The samples at these positions; with a seed, of an order that is shuffled by it.
    #[pyo3(signature = (start, end, seed))]
    fn part(&self, start: u64, end: u64, seed: Option<u64>) -> NativeDataset {
        let pipeline = self.pipeline.part(start..end, seed);
        NativeDataset { pipeline }
    }

    /// With a field that has the number of each sample.
    fn numbered(&self, py: Python<'_>, name: &str) -> PyResult<NativeDataset> {
        let pipeline = call(py, || Ok(self.pipeline.numbered(name)?))?;
        Ok(NativeDataset { pipeline })
    }

    fn transpose(&self, py: Python<'_>, field: &str, axes: Vec<usize>) -> PyResult<NativeDataset> {
        self.with(py, field, |_, _| Ok(Arc::new(Transpose::new(&axes)?)))
    }

    #[pyo3(signature = (field, mean, std, scale))]
    fn normalize(
        &self,
        py: Python<'_>,
        field: &str,
        mean: Vec<f32>,
        std: Vec<f32>,
        scale: Option<f32>,
    ) -> PyResult<NativeDataset> {
        let layout = self.layout(field);
        self.with(py, field, |_, _| {
            Ok(Arc::new(Normalize::new(&mean, &std, scale, layout)?))
        })
    }

    fn cast(&self, py: Python<'_>, field: &str, dtype: &str) -> PyResult<NativeDataset> {
        let dtype = call(py, || Ok(dtype_of(dtype)?))?;
        self.with(py, field, |_, kind| {
            Ok(match kind {
                FieldSpec::Encoded(_) => Arc::new(Parse::new(dtype)),
                FieldSpec::Array(_) | FieldSpec::Ragged { .. } => Arc::new(Cast::new(dtype)),
            })
        })
    }

    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    fn voxelize(
        &self,
        py: Python<'_>,
        field: &str,
        size: usize,
        dtype: &str,
        channel: bool,
        surface: bool,
        rotations: u32,
    ) -> PyResult<NativeDataset> {
        let dtype = call(py, || Ok(dtype_of(dtype)?))?;
        let occupied = if surface {
            Occupied::Surface
        } else {
            Occupied::Points
        };
        self.with(py, field, |_, _| {
            Ok(Arc::new(Voxelize {
                dtype,
                channel,
                occupied,
                rotations,
                ..Voxelize::new(size)
            }))
        })
    }

    #[pyo3(signature = (field, tokenizer, length, *, pad_id, special_tokens, max_bytes, mask))]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    fn tokenize(
        &self,
        py: Python<'_>,
        field: &str,
        tokenizer: PathBuf,
        length: usize,
        pad_id: Option<u32>,
        special_tokens: bool,
        max_bytes: Option<usize>,
        mask: Option<&str>,
    ) -> PyResult<NativeDataset> {
        let pipeline = call(py, || {
            let tokenizer = Arc::new(Tokenizer::open(&tokenizer)?);
            let make = |number| {
                let mut op = Tokenize::new(number, Arc::clone(&tokenizer), length);
                op.pad_id = pad_id.unwrap_or(op.pad_id);
                op.max_bytes = max_bytes.unwrap_or(op.max_bytes);
                op.special_tokens = special_tokens;
                op
            };
            let Some(mask) = mask else {
                return Ok(self
                    .pipeline
                    .with(field, |number, _| Ok(Arc::new(make(number))))?);
            };
            let mut of_mask = None;
            let pipeline = self.pipeline.copy(field, mask)?.with(field, |number, _| {
                let ids = make(number);
                of_mask = Some(ids.mask());
                Ok(Arc::new(ids))
            })?;
            Ok(match of_mask {
                Some(of_mask) => pipeline.with(mask, |_, _| Ok(Arc::new(of_mask)))?,
                None => pipeline,
            })
        })?;
        Ok(NativeDataset { pipeline })
    }

    fn copy(&self, py: Python<'_>, field: &str, to: &str) -> PyResult<NativeDataset> {
        let pipeline = call(py, || Ok(self.pipeline.copy(field, to)?))?;
        Ok(NativeDataset { pipeline })
    }

    fn keep(&self, py: Python<'_>, fields: Vec<String>) -> PyResult<NativeDataset> {
        let pipeline = call(py, || Ok(self.pipeline.keep(&fields)?))?;
        Ok(NativeDataset { pipeline })
    }

    fn rename(&self, py: Python<'_>, field: &str, to: &str) -> PyResult<NativeDataset> {
        let pipeline = call(py, || Ok(self.pipeline.rename(field, to)?))?;
        Ok(NativeDataset { pipeline })
    }
}

fn wrong(op: &'static str, expected: &str, found: &str) -> OpError {
    OpError::WrongKind {
        op,
        expected: expected.to_owned(),
        found: found.to_owned(),
    }
}

/// A type by its name.
pub(super) struct UnknownType(String);

pub(super) fn dtype_of(name: &str) -> Result<DType, UnknownType> {
    DType::from_name(name).ok_or_else(|| UnknownType(name.to_owned()))
}

impl From<UnknownType> for Failure {
    fn from(UnknownType(found): UnknownType) -> Failure {
        Failure::Input {
            message: format!("unknown dtype {found:?}"),
            hints: vec![format!(
                "valid dtypes are {}",
                DType::ALL.map(DType::name).join(", ")
            )],
        }
    }
}

/// How long Ctrl-C waits to be heard.
const PATIENCE: Duration = Duration::from_millis(50);

/// Between two reports of how far the opening is.
const BETWEEN_REPORTS: Duration = Duration::from_millis(500);

/// Opens in a thread of its own: some files are looked through for minutes, and Ctrl-C must be heard meanwhile. What was
/// begun then goes on in the background, and nobody takes its result.
fn opened<S: Source + 'static>(
    py: Python<'_>,
    open: impl FnOnce() -> Result<S, SourceError> + Send + 'static,
) -> PyResult<NativeDataset> {
    opened_meanwhile(py, open, || Ok(()))
}

/// The same for what is looked through from end to end. `report` is called with the files that are done, all files, and
/// the same of bytes.
fn looked_through<S: Source + 'static>(
    py: Python<'_>,
    opening: Opening,
    report: &Bound<'_, PyAny>,
    open: impl FnOnce(&Opening) -> Result<S, SourceError> + Send + 'static,
) -> PyResult<NativeDataset> {
    let opening = Arc::new(opening);
    let shared = Arc::clone(&opening);
    let mut last = Instant::now();
    opened_meanwhile(
        py,
        move || open(&shared),
        || {
            if last.elapsed() < BETWEEN_REPORTS {
                return Ok(());
            }
            last = Instant::now();
            let passed = opening.progress.snapshot();
            let files = (passed.n_files_done, passed.n_files);
            let bytes = (passed.bytes_done.get(), passed.bytes.get());
            report.call1((files.0, files.1, bytes.0, bytes.1))?;
            Ok(())
        },
    )
}

fn opened_meanwhile<S: Source + 'static>(
    py: Python<'_>,
    open: impl FnOnce() -> Result<S, SourceError> + Send + 'static,
    mut meanwhile: impl FnMut() -> PyResult<()>,
) -> PyResult<NativeDataset> {
    quiet_decoder_panics();
    let (done, opening) = mpsc::channel();
    let opening = Mutex::new(opening);
    let work = move || drop(done.send(catch_unwind(AssertUnwindSafe(open))));
    let thread = std::thread::Builder::new().name("brimful-open".into());
    call(py, || thread.spawn(work).map_err(no_thread))?;
    loop {
        let waited = call(py, || {
            let opening = opening.lock().unwrap_or_else(PoisonError::into_inner);
            match opening.recv_timeout(PATIENCE) {
                Ok(Ok(source)) => Ok(Some(Pipeline::new(Arc::new(source?)))),
                Ok(Err(panic)) => resume_unwind(panic),
                Err(RecvTimeoutError::Timeout) => Ok(None),
                Err(RecvTimeoutError::Disconnected) => unreachable!("it sends before it ends"),
            }
        })?;
        if let Some(pipeline) = waited {
            return Ok(NativeDataset { pipeline });
        }
        py.check_signals()?;
        meanwhile()?;
    }
}

/// Keeps panics that the loader turns into errors out of the user's output. Every dataset is opened before it is read,
/// so once is enough.
fn quiet_decoder_panics() {
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
    let wanted: Vec<DatasetRequest> = fields
        .unwrap_or_default()
        .into_iter()
        .map(|(name, dataset)| DatasetRequest {
            name,
            dataset,
            axis: 0,
        })
        .collect();
    opened(py, move || Hdf5::open(&path, &wanted, headroom.map(Bytes)))
}

#[pyfunction]
#[pyo3(signature = (paths, columns, headroom))]
pub(crate) fn open_arrow(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    columns: Option<Vec<String>>,
    headroom: Option<u64>,
) -> PyResult<NativeDataset> {
    opened(py, move || {
        ArrowFile::open(&paths, columns.as_deref(), headroom.map(Bytes))
    })
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
    opened(py, move || {
        let headroom = headroom.map(Bytes);
        Parquet::open(&paths, columns.as_deref(), Bytes(cache), headroom)
    })
}

#[pyfunction]
#[pyo3(signature = (files, headroom))]
pub(crate) fn open_npy(
    py: Python<'_>,
    files: Vec<(String, PathBuf)>,
    headroom: Option<u64>,
) -> PyResult<NativeDataset> {
    opened(py, move || Npy::open(&files, headroom.map(Bytes)))
}

#[pyfunction]
#[pyo3(signature = (field, path, shape, dtype, headroom))]
pub(crate) fn open_raw(
    py: Python<'_>,
    field: String,
    path: PathBuf,
    shape: Vec<usize>,
    dtype: &str,
    headroom: Option<u64>,
) -> PyResult<NativeDataset> {
    let dtype = call(py, || Ok(dtype_of(dtype)?))?;
    opened(py, move || {
        Npy::raw(&field, &path, dtype, &shape, headroom.map(Bytes))
    })
}

#[pyfunction]
#[pyo3(signature = (path, length, dtype, as_int64, documents, headroom))]
pub(crate) fn open_tokens(
    py: Python<'_>,
    path: PathBuf,
    length: usize,
    dtype: Option<&str>,
    as_int64: bool,
    documents: bool,
    headroom: Option<u64>,
) -> PyResult<NativeDataset> {
    let dtype = match dtype {
        Some(dtype) => Some(call(py, || Ok(dtype_of(dtype)?))?),
        // Where there are documents, they say it.
        None => (!documents).then_some(DType::U16),
    };
    let is_npy = remote::shown(&path)
        .extension()
        .is_some_and(|extension| extension == "npy");
    let form = TokenForm {
        stored: dtype.filter(|_| !is_npy),
        block: length,
        as_i64: as_int64,
    };
    let headroom = headroom.map(Bytes);
    opened(py, move || {
        if documents {
            Tokens::open_with_documents(&path, form, headroom)
        } else {
            Tokens::open(&path, form, headroom)
        }
    })
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
    let opening = opening(headroom, indexes);
    looked_through(py, opening, report, move |opening| {
        Lines::open(&paths, json, opening)
    })
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
    let has_split = split.is_some();
    let options = FolderOptions {
        extensions,
        labels: match split {
            Some(split) => Labels::ClassesWithSplit(split),
            None if labels => Labels::Classes,
            None => Labels::None,
        },
        headroom: headroom.map(Bytes),
        ..FolderOptions::default()
    };
    let dataset = opened(py, move || Folder::open(&root, &options))?;
    // Files of a split have labels; they may not be wanted.
    if has_split && !labels {
        let names = dataset
            .pipeline
            .fields()
            .into_iter()
            .map(|field| field.name);
        let kept: Vec<String> = names.filter(|name| name != "label").collect();
        return dataset.keep(py, kept);
    }
    Ok(dataset)
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
    let fields: Vec<TarField> = extensions
        .iter()
        .map(|extension| TarField::named(extension))
        .collect();
    let opening = opening(headroom, indexes);
    looked_through(py, opening, report, move |opening| {
        Tars::open(&paths, &fields, opening)
    })
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
