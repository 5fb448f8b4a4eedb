//! Why batches cannot be made.

use brimful::units::Bytes;

use crate::pipeline::PipelineError;

/// Settings that cannot be.
#[derive(Debug, thiserror::Error)]
pub enum LoaderError {
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    #[error("{name} must be {expected}, found {found}")]
    Setting {
        name: &'static str,
        expected: String,
        found: String,
    },
    /// Said before the first step.
    #[error(
        "memory budget of {memory} is too small: one batch needs {batch} and one thread needs {thread} of scratch \
         memory{}",
        match *kept {
            Bytes::ZERO => String::new(),
            kept => format!(", and the dataset keeps {kept}"),
        }
    )]
    TooLittleMemory {
        batch: Bytes,
        thread: Bytes,
        kept: Bytes,
        needed: Bytes,
        memory: Bytes,
    },
}
