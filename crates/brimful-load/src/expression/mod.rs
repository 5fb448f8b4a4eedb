//! Datasets as values: which source, and what is done with its fields.
//!
//! A [`Pipeline`] holds open files and belongs to one process. An expression can be written down (in a recipe, in the
//! manifest of a prepared dataset), compared, and opened again elsewhere.

mod error;
mod op;
mod source;
mod table;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use error::ExpressionError;
pub use op::{NormalizeExpression, OpExpression, Sides};
pub use source::{PathList, SourceExpression};

use crate::opening::Opening;
use crate::pipeline::Pipeline;

/// A source and what is done with its fields, in this order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expression {
    pub source: SourceExpression,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ops: Vec<OpExpression>,
}

impl Expression {
    /// Opens the source and puts the ops together.
    pub fn open(&self, opening: &Opening) -> Result<Pipeline, ExpressionError> {
        self.applied(self.source.open(opening)?)
    }

    /// The same with a source that is open.
    pub fn applied(&self, opened: Pipeline) -> Result<Pipeline, ExpressionError> {
        let mut ops = self.ops.iter();
        ops.try_fold(opened, |pipeline, op| op.apply(&pipeline))
    }
}
