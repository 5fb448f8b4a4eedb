//! Missing facts become `null`, and their reasons a list.

use brimful::fact::Fact;
use schemars::JsonSchema;
use serde::Serialize;

/// A value that is unknown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Gap {
    /// The path of the `null` in this document, such as `host.brim.limit_bytes`.
    pub path: String,
    /// Why it is unknown.
    pub reason: String,
}

/// Collects the reasons while a document is made.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    found: Vec<Gap>,
}

impl Gaps {
    /// The value, or `None` with its reason noted under `path`.
    pub(super) fn take<T, U>(
        &mut self,
        path: &str,
        fact: &Fact<T>,
        convert: impl FnOnce(&T) -> U,
    ) -> Option<U> {
        match fact {
            Fact::Known(value) => Some(convert(value)),
            Fact::Missing(gap) => {
                self.found.push(Gap {
                    path: path.into(),
                    reason: gap.to_string(),
                });
                None
            }
        }
    }

    pub(super) fn into_found(self) -> Vec<Gap> {
        self.found
    }
}
