//! Why an expression is not one of a dataset.

use crate::error::{OpError, SourceError};
use crate::pipeline::PipelineError;

/// An expression is not one of a dataset.
#[derive(Debug, thiserror::Error)]
pub enum ExpressionError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    #[error(transparent)]
    Op(#[from] OpError),
    /// A source or an op that is none, or that has what belongs to another.
    #[error("{what} must have {expected}, found {found}")]
    Malformed {
        what: String,
        expected: String,
        found: String,
    },
    #[error("unknown dtype {0:?}")]
    UnknownType(String),
}
