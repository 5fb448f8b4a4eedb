//! Why a dataset cannot be prepared.

use std::io;
use std::path::PathBuf;

use brimful::units::Bytes;
use brimful_load::SourceError;
use brimful_load::expression::ExpressionError;
use brimful_load::pipeline::{PipelineError, SampleError};

#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    #[error("{}: not a recipe", path.display())]
    Recipe {
        path: PathBuf,
        #[source]
        cause: Box<toml::de::Error>,
    },
    #[error("{name} must be {expected}, found {found}")]
    Setting {
        name: &'static str,
        expected: String,
        found: String,
    },
    #[error(transparent)]
    Expression(#[from] ExpressionError),
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    /// A sample failed, and failures are not skipped.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// A part of a document that failed is already in a file.
    #[error("cannot skip a document of more than {buffered} of tokens")]
    TooLongToSkip {
        buffered: Bytes,
        #[source]
        cause: SampleError,
    },
    #[error("memory budget of {memory} is too small: {what} needs {needed}")]
    TooLittleMemory {
        what: String,
        needed: Bytes,
        memory: Bytes,
    },
    #[error("no samples in {inputs}")]
    NoSamples { inputs: String },
    #[error("{} contains other files; expected a new or empty directory", path.display())]
    NotEmpty { path: PathBuf },
    #[error("{} was prepared, or begun, with another recipe or other files", path.display())]
    OtherRecipe { path: PathBuf },
    #[error("{} has changed since the preparation began", path.display())]
    ChangedInput { path: PathBuf },
    #[error("another process is preparing {}", path.display())]
    Busy { path: PathBuf },
    #[error("failed to read {}", path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("failed to write {}", path.display())]
    Unwritable {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    /// A file of a preparation is not what was written.
    #[error("{}: expected {expected}, found {found}", path.display())]
    Damaged {
        path: PathBuf,
        expected: String,
        found: String,
    },
    #[error("stopped")]
    Stopped,
    /// A mistake of ours.
    #[error("internal error in {task}")]
    Panic { task: String },
}
