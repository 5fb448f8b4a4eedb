//! A preparation: a recipe and its inputs as they were when it began, and the tasks that this gives.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use brimful::units::Bytes;
use brimful_load::sources::Lines;
use brimful_load::{Opening, Pipeline, TensorSpec};
use serde::{Deserialize, Serialize};

use crate::error::PrepareError;
use crate::inputs::{self, Input, Split, SplitRule};
use crate::manifest::{Manifest, ManifestField, Parts, ShardEntry, ShardFormat};
use crate::packing::Packer;
use crate::recipe::Recipe;
use crate::run_file::{RunFile, RunFooter};
use crate::skipped::SkippedSamples;
use crate::work::{self, WorkDir};

/// Longest description of a preparation that is read.
const MAX_LEN: u64 = 1 << 30;

/// A field of a record.
#[derive(Clone, Debug)]
pub(crate) struct RecordField {
    pub(crate) name: String,
    pub(crate) form: TensorSpec,
}

/// What `preparation.json` has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Begun {
    recipe_digest: String,
    recipe: Recipe,
    inputs: Vec<Input>,
    tokenizers: Vec<Input>,
    rule: SplitRule,
}

/// A recipe that is being prepared in a directory. Tasks of it can be run by any process that reaches the files.
#[derive(Debug)]
pub struct Preparation {
    work: WorkDir,
    begun: Begun,
    splits: Vec<Split>,
    packer: Option<Packer>,
    fields: Vec<RecordField>,
    field_bytes: Vec<usize>,
    record_bytes: usize,
    /// All samples, where tasks are cut by their numbers.
    pipeline: OnceLock<Pipeline>,
}

impl Preparation {
    /// Begins in a directory, or goes on with what was begun there. Another recipe and changed inputs are refused.
    pub fn begin(recipe: &Recipe, out: &Path) -> Result<Preparation, PrepareError> {
        let work = WorkDir::of(out);
        let mut recipe = recipe.clone();
        recipe.check()?;
        inputs::expand_patterns(&mut recipe.source)?;
        let begun = match Begun::read(&work)? {
            Some(begun) if begun.recipe_digest != recipe.digest() => {
                return Err(PrepareError::OtherRecipe {
                    path: out.to_owned(),
                });
            }
            Some(begun) => {
                begun.check_unchanged()?;
                begun
            }
            None => Begun::new(recipe)?,
        };
        Preparation::of(work, begun)
    }

    /// Opens what was begun in a directory, to run a task of it.
    pub fn open(out: &Path) -> Result<Preparation, PrepareError> {
        let work = WorkDir::of(out);
        match Begun::read(&work)? {
            Some(begun) => Preparation::of(work, begun),
            None => Err(PrepareError::Unreadable {
                path: work.preparation(),
                cause: std::io::ErrorKind::NotFound.into(),
            }),
        }
    }

    fn of(work: WorkDir, begun: Begun) -> Result<Preparation, PrepareError> {
        let packer = begun.recipe.packing()?.map(Packer::open).transpose()?;
        let pipeline = OnceLock::new();
        let (fields, record_bytes) = if let Some(packer) = &packer {
            let form = packer.form();
            let field = TensorSpec::new(packer.stored, [form.block]).map(|form| RecordField {
                name: "tokens".to_owned(),
                form,
            });
            (field.into_iter().collect(), form.record_bytes())
        } else {
            let opened = match begun.rule {
                SplitRule::Bytes(_) => first_lines(&begun)?,
                SplitRule::Samples { .. } => {
                    let opened = inputs::open_all(&begun.recipe)?;
                    pipeline.get_or_init(|| opened.clone());
                    opened
                }
            };
            let names = opened.fields().into_iter().map(|field| field.name);
            let forms = opened.forms()?;
            let fields: Vec<RecordField> = names
                .zip(forms)
                .map(|(name, form)| RecordField { name, form })
                .collect();
            let bytes = fields.iter().map(|field| field.form.bytes()).sum();
            (fields, bytes)
        };
        if record_bytes == 0 {
            return Err(PrepareError::Setting {
                name: "ops",
                expected: "samples of at least one byte".to_owned(),
                found: "none".to_owned(),
            });
        }
        Ok(Preparation {
            splits: begun.rule.splits(&begun.inputs),
            field_bytes: fields.iter().map(|field| field.form.bytes()).collect(),
            work,
            begun,
            packer,
            fields,
            record_bytes,
            pipeline,
        })
    }

    /// The dataset, if it is whole.
    pub fn finished(&self) -> Result<Option<Manifest>, PrepareError> {
        let Some(manifest) = Manifest::read(&self.work.manifest())? else {
            return Ok(None);
        };
        if manifest.recipe_digest != self.begun.recipe_digest {
            return Err(PrepareError::OtherRecipe {
                path: self.work.out().to_owned(),
            });
        }
        inputs::check_same(self.inputs(), manifest.inputs())?;
        inputs::check_same(&self.begun.tokenizers, manifest.tokenizers())?;
        for shard in &manifest.shards {
            let path = self.work.out().join(&shard.file);
            let found = std::fs::metadata(&path).map_or(0, |found| found.len());
            if found != shard.bytes {
                return Err(PrepareError::Damaged {
                    path,
                    expected: format!("{} bytes, as the manifest says", shard.bytes),
                    found: found.to_string(),
                });
            }
        }
        Ok(Some(manifest))
    }

    /// Makes the directories and writes down what is prepared.
    pub(crate) fn write(&self) -> Result<(), PrepareError> {
        self.work.create()?;
        if self.work.preparation().exists() {
            return Ok(());
        }
        let text = serde_json::to_vec(&self.begun).unwrap_or_default();
        work::write_whole(&self.work.preparation(), &text)
    }

    pub(crate) fn work(&self) -> &WorkDir {
        &self.work
    }

    pub(crate) fn recipe(&self) -> &Recipe {
        &self.begun.recipe
    }

    pub(crate) fn inputs(&self) -> &[Input] {
        &self.begun.inputs
    }

    pub(crate) fn packer(&self) -> Option<&Packer> {
        self.packer.as_ref()
    }

    pub(crate) fn fields(&self) -> &[RecordField] {
        &self.fields
    }

    pub(crate) fn field_bytes(&self) -> &[usize] {
        &self.field_bytes
    }

    pub(crate) fn record_bytes(&self) -> usize {
        self.record_bytes
    }

    /// Map tasks, without that of the tails.
    pub fn map_tasks(&self) -> u64 {
        self.splits.len() as u64
    }

    pub(crate) fn split(&self, task: u64) -> Result<&Split, PrepareError> {
        let found = usize::try_from(task)
            .ok()
            .and_then(|task| self.splits.get(task));
        found.ok_or_else(|| PrepareError::Setting {
            name: "task",
            expected: format!("below {}", self.splits.len()),
            found: task.to_string(),
        })
    }

    /// Bytes of the input of a task.
    pub(crate) fn split_bytes(&self, task: u64) -> u64 {
        match self.split(task) {
            Ok(Split::Bytes { start, end, .. }) => end - start,
            Ok(Split::Samples { start, end }) => {
                let all: u64 = self.begun.inputs.iter().map(|input| input.bytes).sum();
                let of = match self.begun.rule {
                    SplitRule::Samples { of, .. } => of.max(1),
                    SplitRule::Bytes(_) => 1,
                };
                let share = u128::from(all) * u128::from(end - start) / u128::from(of);
                u64::try_from(share).unwrap_or(u64::MAX)
            }
            Err(_) => 0,
        }
    }

    /// The inputs for messages.
    pub(crate) fn shown_inputs(&self) -> String {
        match self.begun.inputs.as_slice() {
            [input] => input.path.display().to_string(),
            inputs => format!("{} files", inputs.len()),
        }
    }

    /// All samples of the source.
    pub(crate) fn pipeline(&self) -> Result<Pipeline, PrepareError> {
        if let Some(opened) = self.pipeline.get() {
            return Ok(opened.clone());
        }
        let opened = inputs::open_all(&self.begun.recipe)?;
        Ok(self.pipeline.get_or_init(|| opened).clone())
    }

    /// All runs, in the order of their tasks; that of the tails is the last.
    pub(crate) fn runs(&self) -> Result<Vec<RunFile>, PrepareError> {
        (0..=self.map_tasks())
            .map(|task| RunFile::open(&self.work.run(task), self.record_bytes as u64))
            .collect()
    }

    /// The same in another directory, to try something.
    pub(crate) fn elsewhere(&self, out: &Path) -> Result<Preparation, PrepareError> {
        let trial = Preparation::of(WorkDir::of(out), self.begun.clone())?;
        trial.work.create()?;
        Ok(trial)
    }

    /// Bytes of a sample in a shard.
    pub(crate) fn sample_bytes(&self) -> u64 {
        self.field_bytes.iter().map(|bytes| *bytes as u64).sum()
    }

    /// How many shards the samples of all runs make.
    pub(crate) fn shards(&self, samples: u64) -> u64 {
        let bytes = samples.saturating_mul(self.sample_bytes());
        bytes.div_ceil(self.recipe().shard.get()).max(1)
    }

    /// Writes the manifest of all shards and removes the runs.
    pub(crate) fn finish(
        &self,
        runs: &[RunFile],
        shards: Vec<ShardEntry>,
    ) -> Result<Manifest, PrepareError> {
        // What was read while it changed is not a dataset.
        self.begun.check_unchanged()?;
        let mut skipped = SkippedSamples::default();
        let footers: Vec<&RunFooter> = runs.iter().map(|run| &run.footer).collect();
        for footer in &footers {
            skipped.extend(&footer.skipped);
        }
        let token_bytes = self
            .packer
            .as_ref()
            .map_or(1, |packer| packer.stored.size()) as u64;
        let left = footers.last().map_or(0, |tails| tails.tail.bytes);
        let manifest = Manifest::new(Parts {
            format: match self.packer {
                Some(_) => ShardFormat::Tokens,
                None => ShardFormat::Arrow,
            },
            fields: self
                .fields
                .iter()
                .map(|field| ManifestField {
                    name: field.name.clone(),
                    dtype: field.form.dtype().to_string(),
                    shape: field.form.shape().to_vec(),
                })
                .collect(),
            documents: footers.iter().map(|footer| footer.documents).sum(),
            tokens: footers.iter().map(|footer| footer.tokens).sum(),
            dropped_tokens: left / token_bytes,
            skipped,
            shards,
            recipe: self.begun.recipe.clone(),
            recipe_digest: self.begun.recipe_digest.clone(),
            inputs: self.begun.inputs.clone(),
            tokenizers: self.begun.tokenizers.clone(),
        });
        manifest.write(&self.work.manifest())?;
        self.work.remove_work();
        Ok(manifest)
    }
}

/// A pipeline of no lines, which tells the fields.
fn first_lines(begun: &Begun) -> Result<Pipeline, PrepareError> {
    let Some(input) = begun.inputs.first() else {
        return inputs::open_all(&begun.recipe);
    };
    let json = begun.recipe.source.json.clone();
    let lines = Lines::open_range(&input.path, 0..0, json, Bytes(0), &Opening::default())?;
    let opened = Pipeline::new(Arc::new(lines));
    Ok(begun.recipe.expression().applied(opened)?)
}

impl Begun {
    fn new(recipe: Recipe) -> Result<Begun, PrepareError> {
        let inputs = inputs::list(&recipe.source)?;
        let opened = if inputs::is_cut_by_bytes(&recipe) {
            None
        } else {
            Some(inputs::open_all(&recipe)?)
        };
        let rule = inputs::rule(&recipe, opened.as_ref())?;
        Ok(Begun {
            tokenizers: inputs::list_tokenizers(&recipe)?,
            recipe_digest: recipe.digest(),
            recipe,
            inputs,
            rule,
        })
    }

    /// An error where a file is not what it was.
    fn check_unchanged(&self) -> Result<(), PrepareError> {
        inputs::check_same(&inputs::list(&self.recipe.source)?, &self.inputs)?;
        inputs::check_same(&inputs::list_tokenizers(&self.recipe)?, &self.tokenizers)
    }

    fn read(work: &WorkDir) -> Result<Option<Begun>, PrepareError> {
        let path = work.preparation();
        let Some(text) = work::read_whole(&path, MAX_LEN)? else {
            return Ok(None);
        };
        serde_json::from_slice(&text)
            .map(Some)
            .map_err(|error| PrepareError::Damaged {
                path,
                expected: "a preparation of this version of brimful".to_owned(),
                found: error.to_string(),
            })
    }
}
