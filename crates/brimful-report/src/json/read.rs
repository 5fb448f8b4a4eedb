//! Documents that were saved to a file, read back.

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::json::{CompareDocument, PlanDocument, PredictDocument, ReplayDocument, SCHEMA_VERSION};

/// More than any document of ours.
const MAX_BYTES: usize = 16 << 20;

/// A document that a report can be made of.
#[derive(Clone, Debug, PartialEq)]
pub enum SavedDocument {
    Predict(Box<PredictDocument>),
    Plan(Box<PlanDocument>),
    Replay(Box<ReplayDocument>),
    Compare(Box<CompareDocument>),
}

/// The file is not one of our documents.
#[derive(Debug, thiserror::Error)]
pub enum DocumentUnreadable {
    #[error("expected less than 16 MiB, found {found} bytes")]
    TooLarge { found: usize },
    #[error("not JSON")]
    NotJson(#[source] serde_json::Error),
    #[error("expected the JSON of `brimful predict`, `compare`, `plan` or `replay`")]
    Unknown,
    #[error(
        "expected schema version {SCHEMA_VERSION}, found {found}: written by another version of brimful"
    )]
    Version { found: u32 },
    #[error("not a complete document of `brimful {command}`")]
    Incomplete {
        command: &'static str,
        #[source]
        source: serde_json::Error,
    },
}

/// The fields that distinguish documents.
#[derive(Debug, Deserialize)]
struct Fields {
    schema_version: Option<u32>,
    gpus: Option<IgnoredAny>,
    rungs: Option<IgnoredAny>,
    results: Option<IgnoredAny>,
    length: Option<IgnoredAny>,
}

impl SavedDocument {
    /// Reads a document of `brimful predict --json`, `compare --json`, `plan --json` or `replay --json`.
    pub fn read(bytes: &[u8]) -> Result<SavedDocument, DocumentUnreadable> {
        if bytes.len() > MAX_BYTES {
            return Err(DocumentUnreadable::TooLarge { found: bytes.len() });
        }
        let fields: Fields = serde_json::from_slice(bytes).map_err(DocumentUnreadable::NotJson)?;
        let version = fields.schema_version.ok_or(DocumentUnreadable::Unknown)?;
        if version != SCHEMA_VERSION {
            return Err(DocumentUnreadable::Version { found: version });
        }
        let incomplete = |command| move |source| DocumentUnreadable::Incomplete { command, source };
        if fields.rungs.is_some() {
            let document = serde_json::from_slice(bytes).map_err(incomplete("plan"))?;
            Ok(SavedDocument::Plan(Box::new(document)))
        } else if fields.results.is_some() {
            let document = serde_json::from_slice(bytes).map_err(incomplete("replay"))?;
            Ok(SavedDocument::Replay(Box::new(document)))
        } else if fields.length.is_some() {
            let document = serde_json::from_slice(bytes).map_err(incomplete("compare"))?;
            Ok(SavedDocument::Compare(Box::new(document)))
        } else if fields.gpus.is_some() {
            let document = serde_json::from_slice(bytes).map_err(incomplete("predict"))?;
            Ok(SavedDocument::Predict(Box::new(document)))
        } else {
            Err(DocumentUnreadable::Unknown)
        }
    }
}
