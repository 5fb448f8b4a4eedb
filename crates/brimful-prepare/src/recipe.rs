//! What is made of which data: a recipe.

use std::fmt;
use std::path::{Component, Path, PathBuf};

use brimful::units::Bytes;
use brimful_load::expression::{Expression, OpExpression, SourceExpression};
use brimful_load::remote;
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::digest::digest_of;
use crate::error::PrepareError;

/// Bytes of the input of one task, or of its output if that is known before.
const SPLIT: Bytes = Bytes::from_mib(32);
const SHARD: Bytes = Bytes::from_mib(64);
/// Object stores take 10,000 parts of 8 MiB.
const MAX_SHARD: Bytes = Bytes::from_gib(64);
/// Longest recipe that is read.
const MAX_LEN: u64 = 1 << 20;
/// Most tokens of a block.
const MAX_BLOCK: usize = 1 << 24;

/// A recipe: sources, ops, and how shards are made. What it is made from and this decide the result, and nothing else.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    pub source: SourceExpression,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ops: Vec<OpExpression>,
    /// Tokens of a sample, where documents are packed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<usize>,
    #[serde(default)]
    pub seed: u64,
    #[serde(default = "usual_shard", deserialize_with = "size")]
    pub shard: Bytes,
    #[serde(default = "usual_split", deserialize_with = "size")]
    pub split: Bytes,
    #[serde(default)]
    pub on_error: OnSampleError,
    /// A Parquet file that names the samples that are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<PathBuf>,
}

/// What happens to a sample that cannot be read or transformed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnSampleError {
    #[default]
    Raise,
    /// It is left out and counted.
    Skip,
}

fn usual_shard() -> Bytes {
    SHARD
}

fn usual_split() -> Bytes {
    SPLIT
}

/// A number of bytes, or text such as `16MiB`.
fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
    struct Size;

    impl Visitor<'_> for Size {
        type Value = Bytes;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a size such as \"64MiB\"")
        }

        fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<Bytes, E> {
            Ok(Bytes(bytes))
        }

        fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<Bytes, E> {
            let found = de::Unexpected::Signed(bytes);
            u64::try_from(bytes)
                .map(Bytes)
                .map_err(|_| E::invalid_value(found, &self))
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Bytes, E> {
            text.parse()
                .map_err(|_| E::invalid_value(de::Unexpected::Str(text), &self))
        }
    }

    deserializer.deserialize_any(Size)
}

/// The same directory without `x/..`, so that a recipe means the same from wherever it is named. Where a link stands
/// before the `..`, that is another directory, and the path stays as it is.
fn without_steps_back(folder: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in folder.components() {
        if part == Component::ParentDir {
            clean.pop();
        } else {
            clean.push(part);
        }
    }
    let is_same = clean == folder
        || folder
            .canonicalize()
            .is_ok_and(|real| clean.canonicalize().is_ok_and(|other| other == real));
    if is_same { clean } else { folder.to_owned() }
}

/// How documents are packed into blocks of tokens.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PackingOp {
    pub(crate) op: OpExpression,
    pub(crate) tokenizer: PathBuf,
    pub(crate) block: usize,
}

impl Recipe {
    /// The usual settings for a dataset.
    pub fn of(expression: Expression) -> Recipe {
        Recipe {
            source: expression.source,
            ops: expression.ops,
            block: None,
            seed: 0,
            shard: SHARD,
            split: SPLIT,
            on_error: OnSampleError::Raise,
            keep: None,
        }
    }

    /// Reads a recipe. Its relative paths are relative to its own directory.
    pub fn read(path: &Path) -> Result<Recipe, PrepareError> {
        let unreadable = |cause| PrepareError::Unreadable {
            path: path.to_owned(),
            cause,
        };
        let mut bytes = Vec::new();
        let file = brimful_private::open_named(path).map_err(unreadable)?;
        std::io::Read::read_to_end(&mut std::io::Read::take(file, MAX_LEN), &mut bytes)
            .map_err(unreadable)?;
        let text = String::from_utf8_lossy(&bytes);
        let mut recipe: Recipe = toml::from_str(&text).map_err(|cause| PrepareError::Recipe {
            path: path.to_owned(),
            cause: Box::new(cause),
        })?;
        let folder = path.parent().unwrap_or(Path::new(""));
        recipe.make_absolute(folder)?;
        recipe.check()?;
        Ok(recipe)
    }

    /// Makes the paths absolute that are relative to `folder`: tasks may run elsewhere.
    pub fn make_absolute(&mut self, folder: &Path) -> Result<(), PrepareError> {
        let unreadable = |cause| PrepareError::Unreadable {
            path: folder.to_owned(),
            cause,
        };
        let folder = if folder.as_os_str().is_empty() {
            std::env::current_dir().map_err(unreadable)?
        } else {
            std::path::absolute(folder).map_err(unreadable)?
        };
        let folder = without_steps_back(&folder);
        let of_ops = self.ops.iter_mut().filter_map(|op| op.tokenize.as_mut());
        let paths = self.source.paths_mut().into_iter().chain(of_ops);
        for path in paths.chain(&mut self.keep) {
            if remote::is_remote(path) {
                continue;
            }
            let joined = folder.join(&*path);
            let (Some(parent), Some(name)) = (joined.parent(), joined.file_name()) else {
                *path = joined;
                continue;
            };
            *path = without_steps_back(parent).join(name);
        }
        Ok(())
    }

    /// Whether it can be one of a dataset, as far as that is known without its files.
    pub fn check(&self) -> Result<(), PrepareError> {
        self.source.kind()?;
        for op in &self.ops {
            op.kind()?;
        }
        // Recipes are written down as text.
        let mut source = self.source.clone();
        let tokenizers = self.ops.iter().filter_map(|op| op.tokenize.as_ref());
        let mut paths = source.paths_mut().into_iter().map(|path| &*path);
        if let Some(path) = tokenizers
            .chain(&self.keep)
            .chain(&mut paths)
            .find(|path| path.to_str().is_none())
        {
            return Err(PrepareError::Setting {
                name: "source",
                expected: "paths in UTF-8".to_owned(),
                found: path.display().to_string(),
            });
        }
        // Recipes and manifests are read by others.
        let has_secrets = |path: &&PathBuf| remote::shown(path) != path.as_path();
        let mut paths = source.paths_mut().into_iter().map(|path| &*path);
        if let Some(path) = self.keep.iter().chain(&mut paths).find(has_secrets) {
            let is_keep = self.keep.as_ref() == Some(path);
            return Err(PrepareError::Setting {
                name: if is_keep { "keep" } else { "source" },
                expected:
                    "URLs without a user, a password or a query: the manifest would show them"
                        .to_owned(),
                found: remote::shown(path).display().to_string(),
            });
        }
        if self.shard > MAX_SHARD {
            return Err(PrepareError::Setting {
                name: "shard",
                expected: format!("at most {MAX_SHARD}"),
                found: self.shard.to_string(),
            });
        }
        let sizes = [("shard", self.shard), ("split", self.split)];
        for (name, size) in sizes {
            if size < Bytes::from_mib(1) {
                return Err(PrepareError::Setting {
                    name,
                    expected: "at least 1 MiB".to_owned(),
                    found: size.to_string(),
                });
            }
        }
        self.packing().map(drop)
    }

    /// How documents are packed; nothing where samples have a fixed shape.
    pub(crate) fn packing(&self) -> Result<Option<PackingOp>, PrepareError> {
        let packs = |op: &OpExpression| op.tokenize.is_some() && op.length.is_none();
        let found = self.ops.iter().position(packs);
        let wrong = |expected: &str, found: &str| {
            Err(PrepareError::Setting {
                name: "block",
                expected: expected.to_owned(),
                found: found.to_owned(),
            })
        };
        match (found, self.block) {
            (None, None) => Ok(None),
            (None, Some(_)) => wrong(
                "left out, or `tokenize` must be the last op and without a length",
                "a block",
            ),
            (Some(_), None) => wrong(
                "a number of tokens, for `tokenize` without a length",
                "none",
            ),
            (Some(_), Some(block)) if !(1..=MAX_BLOCK).contains(&block) => {
                wrong(&format!("from 1 to {MAX_BLOCK} tokens"), &block.to_string())
            }
            (Some(at), Some(_)) if at + 1 < self.ops.len() => {
                wrong("with `tokenize` as the last op", "an op behind it")
            }
            (Some(at), Some(block)) => {
                let op = self.ops[at].clone();
                Ok(Some(PackingOp {
                    tokenizer: op.tokenize.clone().unwrap_or_default(),
                    op,
                    block,
                }))
            }
        }
    }

    /// The dataset as far as it is not packed.
    pub(crate) fn expression(&self) -> Expression {
        let ops = self.ops.iter();
        Expression {
            source: self.source.clone(),
            ops: ops
                .filter(|op| op.tokenize.is_none() || op.length.is_some())
                .cloned()
                .collect(),
        }
    }

    /// Identifies the recipe.
    pub fn digest(&self) -> String {
        let text = serde_json::to_vec(self).unwrap_or_default();
        digest_of(&text)
    }
}
