//! The files that a dataset is made from, listed once, and how they are cut into tasks.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use brimful_load::expression::{OpExpression, PathList, SourceExpression};
use brimful_load::remote::Bucket;
use brimful_load::{Opening, Pipeline, Reader, remote};
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

use crate::error::PrepareError;
use crate::keep::KeepFile;
use crate::recipe::Recipe;

/// A file, as it was when the preparation began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Input {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    /// Seconds and billionths, when it was changed last; a digest of all files for a directory.
    pub(crate) version: String,
}

/// What tasks are cut from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SplitRule {
    /// Ranges of this many bytes of each file.
    Bytes(u64),
    /// Ranges of this many samples of all.
    Samples { of: u64, each: u64 },
}

/// The part of one map task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Split {
    Bytes { path: PathBuf, start: u64, end: u64 },
    Samples { start: u64, end: u64 },
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Split::Bytes { path, start, end } => {
                write!(f, "{}, bytes {start} to {end}", path.display())
            }
            Split::Samples { start, end } => write!(f, "the samples {start} to {end}"),
        }
    }
}

impl SplitRule {
    /// How many map tasks there are.
    pub(crate) fn tasks(&self, inputs: &[Input]) -> u64 {
        let of = |all: u64, each: u64| all.div_ceil(each.max(1));
        match *self {
            SplitRule::Bytes(each) => inputs.iter().fold(0, |tasks, input| {
                u64::saturating_add(tasks, of(input.bytes, each))
            }),
            SplitRule::Samples { of: all, each } => of(all, each),
        }
    }

    /// The map tasks, in order.
    pub(crate) fn splits(&self, inputs: &[Input]) -> Vec<Split> {
        match *self {
            SplitRule::Bytes(each) => inputs
                .iter()
                .flat_map(|input| {
                    starts(input.bytes, each).map(move |start| Split::Bytes {
                        path: input.path.clone(),
                        start,
                        end: start.saturating_add(each).min(input.bytes),
                    })
                })
                .collect(),
            SplitRule::Samples { of, each } => starts(of, each)
                .map(|start| Split::Samples {
                    start,
                    end: start.saturating_add(each).min(of),
                })
                .collect(),
        }
    }
}

fn starts(all: u64, each: u64) -> impl Iterator<Item = u64> {
    let each = each.max(1);
    (0..all.div_ceil(each)).map(move |at| at * each)
}

/// Puts the files that patterns stand for in their place, in the order of their names.
pub(crate) fn expand_patterns(source: &mut SourceExpression) -> Result<(), PrepareError> {
    let lists = [
        &mut source.lines,
        &mut source.tar,
        &mut source.arrow,
        &mut source.parquet,
        &mut source.tokens,
    ];
    for list in lists.into_iter().flatten() {
        let mut found = Vec::new();
        for path in list.paths() {
            found.extend(files_of(path)?);
        }
        *list = PathList::Several(found);
    }
    Ok(())
}

fn files_of(path: &Path) -> Result<Vec<PathBuf>, PrepareError> {
    let text = path.to_string_lossy();
    let is_remote = remote::is_remote(path);
    // A name with such characters can be the name of a file. A web server cannot be asked for others.
    let is_there = || match Bucket::of(path) {
        Ok(bucket) => bucket.len_of(path).is_ok_and(|len| len.is_some()),
        Err(_) => is_remote || path.exists(),
    };
    if !text.contains(['*', '?', '[']) || is_there() {
        return Ok(vec![path.to_owned()]);
    }
    let no_match = |found: String| PrepareError::Setting {
        name: "source",
        expected: format!("files that match {text}"),
        found,
    };
    if is_remote {
        let files = objects_of(path, &text)?;
        return if files.is_empty() {
            Err(no_match("none".to_owned()))
        } else {
            Ok(files)
        };
    }
    let paths = glob::glob(&text).map_err(|error| no_match(error.to_string()))?;
    let mut files = Vec::new();
    // Sorted by name, which is what glob gives.
    for found in paths {
        let found = found.map_err(|error| PrepareError::Unreadable {
            path: error.path().to_owned(),
            cause: error.into(),
        })?;
        if found.is_file() {
            files.push(found);
        }
    }
    if files.is_empty() {
        return Err(no_match("none".to_owned()));
    }
    Ok(files)
}

/// The objects that a pattern stands for.
fn objects_of(path: &Path, text: &str) -> Result<Vec<PathBuf>, PrepareError> {
    let wrong = |expected: &str, found: String| PrepareError::Setting {
        name: "source",
        expected: expected.to_owned(),
        found,
    };
    let pattern = glob::Pattern::new(text);
    let pattern = pattern.map_err(|error| wrong("a pattern", format!("{text}: {error}")))?;
    // All names from the last folder on that has no pattern.
    let first = text.find(['*', '?', '[']).unwrap_or(text.len());
    let folder = text[..first]
        .rsplit_once('/')
        .map_or("", |(folder, _)| folder);
    let unreadable = |cause| PrepareError::Unreadable {
        path: path.to_owned(),
        cause,
    };
    let options = glob::MatchOptions {
        require_literal_separator: true,
        ..glob::MatchOptions::default()
    };
    let found = Bucket::of(path)
        .and_then(|bucket| bucket.list(Path::new(folder)))
        .map_err(unreadable)?;
    // Without bytes there are no samples, and most such objects stand for a folder.
    let names = found.into_iter().filter(|(_, bytes)| *bytes > 0);
    let names = names.map(|(name, _)| name);
    Ok(names
        .filter(|name| pattern.matches_with(&name.to_string_lossy(), options))
        .collect())
}

/// The files of a source as they are now.
pub(crate) fn list(source: &SourceExpression) -> Result<Vec<Input>, PrepareError> {
    let mut source = source.clone();
    let paths = source.paths_mut();
    // Requests to one store share its connections.
    let remote = paths.iter().find(|path| remote::is_remote(path));
    let _connected = remote.map(|path| Bucket::of(path));
    paths.into_iter().map(|path| input(path)).collect()
}

/// The tokenizers of a recipe, and what names the samples that are kept: others give another dataset.
pub(crate) fn list_other_inputs(recipe: &Recipe) -> Result<Vec<Input>, PrepareError> {
    let paths = recipe.ops.iter().filter_map(|op| op.tokenize.as_deref());
    paths.chain(recipe.keep.as_deref()).map(input).collect()
}

fn input(path: &Path) -> Result<Input, PrepareError> {
    let unreadable = |cause| PrepareError::Unreadable {
        path: path.to_owned(),
        cause,
    };
    if remote::is_remote(path) {
        let object = Reader::open_unread(path).map_err(unreadable)?;
        return Ok(Input {
            path: path.to_owned(),
            bytes: object.len(),
            // Some web servers tell none.
            version: object.version(Duration::ZERO).unwrap_or_default(),
        });
    }
    let metadata = std::fs::metadata(path).map_err(unreadable)?;
    if metadata.is_dir() {
        return directory(path);
    }
    Ok(Input {
        path: path.to_owned(),
        bytes: metadata.len(),
        version: version(&metadata),
    })
}

fn version(metadata: &Metadata) -> String {
    format!("{}.{:09}", metadata.mtime(), metadata.mtime_nsec())
}

/// All files below a directory, as one input.
fn directory(path: &Path) -> Result<Input, PrepareError> {
    let mut hasher = XxHash3_128::new();
    let mut bytes = 0_u64;
    let mut left = vec![path.to_owned()];
    // Links may lead back.
    let mut seen = BTreeSet::new();
    while let Some(folder) = left.pop() {
        let is_new =
            std::fs::metadata(&folder).is_ok_and(|found| seen.insert((found.dev(), found.ino())));
        if !is_new {
            continue;
        }
        let unreadable = |cause| PrepareError::Unreadable {
            path: folder.clone(),
            cause,
        };
        let entries = std::fs::read_dir(&folder).map_err(unreadable)?;
        let mut paths = Vec::new();
        for entry in entries {
            paths.push(entry.map_err(unreadable)?.path());
        }
        paths.sort();
        for path in paths {
            // Links that lead nowhere are no samples either.
            let Ok(metadata) = std::fs::metadata(&path) else {
                continue;
            };
            if metadata.is_dir() {
                left.push(path);
            } else {
                bytes = bytes.saturating_add(metadata.len());
                hasher.write(path.as_os_str().as_encoded_bytes());
                hasher.write(&metadata.len().to_le_bytes());
                hasher.write(version(&metadata).as_bytes());
            }
        }
    }
    Ok(Input {
        path: path.to_owned(),
        bytes,
        version: format!("{:032x}", hasher.finish_128()),
    })
}

/// An error where files are not what they were.
pub(crate) fn check_same(now: &[Input], before: &[Input]) -> Result<(), PrepareError> {
    let longer = if now.len() < before.len() {
        before
    } else {
        now
    };
    let differs = (0..longer.len()).find(|at| now.get(*at) != before.get(*at));
    match differs {
        Some(at) => Err(PrepareError::ChangedInput {
            path: longer[at].path.clone(),
        }),
        None => Ok(()),
    }
}

/// An error where a file is not what it was. Directories are looked through at the beginning and at the end only.
pub(crate) fn check_files(before: &[Input]) -> Result<(), PrepareError> {
    for file in before.iter().filter(|input| !input.path.is_dir()) {
        check_same(&[input(&file.path)?], std::slice::from_ref(file))?;
    }
    Ok(())
}

/// Returns an error if a directory is inside an input directory: its files would become inputs.
pub(crate) fn check_outside(out: &Path, inputs: &[Input]) -> Result<(), PrepareError> {
    if remote::is_remote(out) {
        return Ok(());
    }
    let out = std::path::absolute(out).unwrap_or_else(|_| out.to_owned());
    let above = out.ancestors().find(|path| path.exists());
    let real = above.and_then(|above| {
        let rest = out.strip_prefix(above).ok()?;
        Some(above.canonicalize().ok()?.join(rest))
    });
    let out = real.unwrap_or(out);
    let is_above = |input: &&Input| {
        let folder = input.path.canonicalize();
        input.path.is_dir() && folder.is_ok_and(|folder| out.starts_with(folder))
    };
    match inputs.iter().find(is_above) {
        Some(input) => Err(PrepareError::Setting {
            name: "out",
            expected: format!("a directory outside the source {}", input.path.display()),
            found: out.display().to_string(),
        }),
        None => Ok(()),
    }
}

/// How the inputs of a recipe are cut. Lines of text are cut by bytes, so that nobody has to read them first; everything
/// else by samples, whose number the formats tell.
pub(crate) fn rule(
    recipe: &Recipe,
    pipeline: Option<&Pipeline>,
) -> Result<SplitRule, PrepareError> {
    let Some(pipeline) = pipeline else {
        return Ok(SplitRule::Bytes(recipe.split.get()));
    };
    let of = pipeline.source().len();
    let each = if recipe.packing()?.is_some() {
        // As many samples as have about these bytes.
        let bytes: u64 = list(&recipe.source)?.iter().map(|input| input.bytes).sum();
        let sample = (bytes / of.max(1)).max(1);
        recipe.split.get() / sample
    } else {
        let sample: usize = pipeline
            .forms()?
            .iter()
            .map(brimful_load::TensorSpec::bytes)
            .sum();
        recipe.split.get() / (sample as u64).max(1)
    };
    Ok(SplitRule::Samples {
        of,
        each: each.max(1),
    })
}

/// Whether the lines of the source can be cut by bytes: not where samples have numbers.
pub(crate) fn is_cut_by_bytes(recipe: &Recipe, keep: Option<&KeepFile>) -> bool {
    recipe.source.lines.is_some()
        && !recipe.ops.iter().any(OpExpression::is_of_all_samples)
        && !keep.is_some_and(KeepFile::has_numbers)
}

/// All samples of a recipe, before they are packed.
pub(crate) fn open_all(recipe: &Recipe) -> Result<Pipeline, PrepareError> {
    Ok(recipe.expression().open(&Opening::default())?)
}
