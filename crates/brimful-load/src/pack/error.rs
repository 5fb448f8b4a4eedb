//! Why documents cannot be packed.

use std::io;
use std::path::PathBuf;

use brimful::units::Bytes;

use crate::pipeline::{PipelineError, SampleError};

/// Documents cannot be packed.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    #[error("{name} must be {expected}, found {found}")]
    Setting {
        name: &'static str,
        expected: String,
        found: String,
    },
    #[error(
        "memory budget of {memory} is too small: one thread and its longest document need {needed}"
    )]
    TooLittleMemory { needed: Bytes, memory: Bytes },
    #[error("another process is writing {}", path.display())]
    Busy { path: PathBuf },
    #[error("failed to write {}", path.display())]
    Unwritable {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error(transparent)]
    Sample(#[from] SampleError),
}
