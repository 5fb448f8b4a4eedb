//! The manifest: what a prepared dataset consists of.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::digest::digest_of;
use crate::error::PrepareError;
use crate::inputs::Input;
use crate::recipe::Recipe;
use crate::skipped::SkippedSamples;
use crate::work::WorkDir;

const VERSION: u32 = 1;
const MAX_LEN: u64 = 1 << 30;

/// How shards are to be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShardFormat {
    /// With `brimful.data.tokens`.
    Tokens,
    /// With `brimful.data.arrow`.
    Arrow,
}

/// The text of the manifest in a directory or below a prefix; nothing where there is none.
pub fn read_manifest(out: &Path) -> Result<Option<String>, PrepareError> {
    let work = WorkDir::of(out)?;
    let found = work.read_whole(&work.manifest(), MAX_LEN)?;
    Ok(found.map(|text| String::from_utf8_lossy(&text).into_owned()))
}

/// Bytes of the named files of a dataset; nothing for those that are missing.
pub fn file_sizes(out: &Path, names: &[String]) -> Result<Vec<Option<u64>>, PrepareError> {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    WorkDir::of(out)?.sizes(&names)
}

/// A field of every sample.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestField {
    pub name: String,
    pub dtype: String,
    pub shape: Vec<usize>,
}

/// One shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardEntry {
    pub file: String,
    pub samples: u64,
    pub bytes: u64,
    /// Of its bytes: 32 hexadecimal digits of XXH3.
    pub digest: String,
}

/// A prepared dataset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    pub version: u32,
    /// Of all shards.
    pub digest: String,
    pub format: ShardFormat,
    pub fields: Vec<ManifestField>,
    pub samples: u64,
    /// Documents that were packed.
    pub documents: u64,
    pub tokens: u64,
    /// At the end, where they fill no block.
    pub dropped_tokens: u64,
    /// Samples that are not among those to be kept.
    #[serde(default)]
    pub left_out: u64,
    pub skipped: SkippedSamples,
    pub shards: Vec<ShardEntry>,
    pub recipe_digest: String,
    pub recipe: Recipe,
    inputs: Vec<Input>,
    /// Tokenizers, and what names the samples that are kept.
    other_inputs: Vec<Input>,
}

/// What a manifest is made from.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) format: ShardFormat,
    pub(crate) fields: Vec<ManifestField>,
    pub(crate) documents: u64,
    pub(crate) tokens: u64,
    pub(crate) dropped_tokens: u64,
    pub(crate) left_out: u64,
    pub(crate) skipped: SkippedSamples,
    pub(crate) shards: Vec<ShardEntry>,
    pub(crate) recipe: Recipe,
    pub(crate) recipe_digest: String,
    pub(crate) inputs: Vec<Input>,
    pub(crate) other_inputs: Vec<Input>,
}

impl Manifest {
    pub(crate) fn new(parts: Parts) -> Manifest {
        let mut text = format!("{:?} {:?}", parts.format, parts.fields);
        for shard in &parts.shards {
            text.push_str(&shard.digest);
        }
        Manifest {
            version: VERSION,
            digest: digest_of(text.as_bytes()),
            format: parts.format,
            fields: parts.fields,
            samples: parts.shards.iter().map(|shard| shard.samples).sum(),
            documents: parts.documents,
            tokens: parts.tokens,
            dropped_tokens: parts.dropped_tokens,
            left_out: parts.left_out,
            skipped: parts.skipped,
            shards: parts.shards,
            recipe_digest: parts.recipe_digest,
            recipe: parts.recipe,
            inputs: parts.inputs,
            other_inputs: parts.other_inputs,
        }
    }

    /// Reads the manifest of a directory; nothing where there is none.
    pub(crate) fn read(work: &WorkDir) -> Result<Option<Manifest>, PrepareError> {
        let damaged = |found: String| PrepareError::Damaged {
            path: work.manifest(),
            expected: "the manifest of a prepared dataset".to_owned(),
            found,
        };
        let Some(text) = work.read_whole(&work.manifest(), MAX_LEN)? else {
            return Ok(None);
        };
        let found: Manifest =
            serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        if found.version != VERSION {
            return Err(damaged(format!("version {}", found.version)));
        }
        Ok(Some(found))
    }

    pub(crate) fn write(&self, work: &WorkDir) -> Result<(), PrepareError> {
        let text = serde_json::to_vec_pretty(self).unwrap_or_default();
        work.write_whole(&work.manifest(), &text)
    }

    pub(crate) fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    pub(crate) fn other_inputs(&self) -> &[Input] {
        &self.other_inputs
    }
}
