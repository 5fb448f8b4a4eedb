//! Packing of documents into one file of tokens.

#![expect(
    clippy::needless_pass_by_value,
    reason = "what Python hands over is ours"
)]

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use brimful::units::Bytes;
use brimful_load::pack::{PackError, PackSettings, Packing};
use brimful_load::text::Tokenizer;
use pyo3::prelude::*;

use crate::border::{Failure, call};
use crate::data::dataset::{NativeDataset, dtype_of, hints_of};
use crate::data::with_causes;

/// How long a wait goes on before Python looks at its signals.
const A_MOMENT: Duration = Duration::from_millis(50);

#[pyclass(frozen, name = "Packing", module = "brimful._native")]
#[derive(Debug)]
pub(crate) struct NativePacking {
    packing: Mutex<Option<Packing>>,
    total: u64,
}

#[pymethods]
impl NativePacking {
    #[new]
    #[pyo3(signature = (dataset, field, tokenizer, path, *, dtype, end_id, special_tokens, threads, memory))]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    fn new(
        py: Python<'_>,
        dataset: &NativeDataset,
        field: String,
        tokenizer: PathBuf,
        path: PathBuf,
        dtype: Option<&str>,
        end_id: Option<u32>,
        special_tokens: bool,
        threads: Option<usize>,
        memory: u64,
    ) -> PyResult<NativePacking> {
        let pipeline = dataset.pipeline().clone();
        let packing = call(py, || {
            let settings = PackSettings {
                field,
                stored: dtype.map(dtype_of).transpose()?,
                end_id,
                special_tokens,
                threads,
                memory: Bytes(memory),
            };
            let tokenizer = Arc::new(Tokenizer::open(&tokenizer)?);
            Ok(Packing::start(&pipeline, tokenizer, &path, &settings)?)
        })?;
        Ok(NativePacking {
            total: packing.total(),
            packing: Mutex::new(Some(packing)),
        })
    }

    /// Samples of the dataset.
    #[getter]
    fn total(&self) -> u64 {
        self.total
    }

    /// Samples that are written.
    #[getter]
    fn done(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.lock().as_ref().map_or(self.total, Packing::done))
    }

    /// Documents, tokens and their dtype; None after a short wait if packing is not finished.
    fn wait(&self, py: Python<'_>) -> PyResult<Option<(u64, u64, &'static str)>> {
        let packed = call(py, || match self.lock().as_mut() {
            Some(packing) => Ok(packing.wait(A_MOMENT)?),
            None => Ok(None),
        })?;
        Ok(packed.map(|packed| (packed.documents, packed.tokens, packed.stored.name())))
    }

    /// Ends the threads; what is not whole is removed.
    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.lock().take()));
    }
}

impl NativePacking {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Packing>> {
        self.packing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<PackError> for Failure {
    fn from(error: PackError) -> Failure {
        let message = with_causes(&error);
        let hints = match &error {
            PackError::Pipeline(error) => hints_of(error),
            PackError::TooLittleMemory { needed, .. } => {
                vec![format!("set `memory` to at least {needed}")]
            }
            _ => Vec::new(),
        };
        match error {
            PackError::Busy { .. } | PackError::Unwritable { .. } => {
                Failure::Machine { message, hints }
            }
            _ => Failure::Input { message, hints },
        }
    }
}
