//! A preparation: a recipe and its inputs as they were when it began, and the tasks that this gives.

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use brimful::units::Bytes;
use brimful_load::expression::OpExpression;
use brimful_load::sources::Lines;
use brimful_load::{DType, Opening, Pipeline, TensorSpec};
use serde::{Deserialize, Serialize};

use crate::budget::TaskBudget;
use crate::digest::digest_of;
use crate::error::PrepareError;
use crate::inputs::{self, Input, Split, SplitRule};
use crate::keep::{KeepFile, KeepSet};
use crate::manifest::{Manifest, ManifestField, Parts, ShardEntry, ShardFormat};
use crate::packing::Packer;
use crate::recipe::Recipe;
use crate::run_file::{RunFile, RunFooter, RunWriter};
use crate::skipped::SkippedSamples;
use crate::work::{AttemptFile, WorkDir};

/// Longest description of a preparation that is read.
const MAX_LEN: u64 = 1 << 30;
const VERSION: u32 = 1;
/// More tasks than anybody has.
const MAX_TASKS: u64 = 1 << 27;
/// Reasons of skipped samples that are kept of all runs.
const MAX_REASONS: usize = 1000;

/// A field of a record.
#[derive(Clone, Debug)]
pub(crate) struct RecordField {
    pub(crate) name: String,
    pub(crate) form: TensorSpec,
}

/// What `preparation.json` has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Begun {
    version: u32,
    recipe_digest: String,
    /// Of every sample.
    fields: Vec<ManifestField>,
    recipe: Recipe,
    inputs: Vec<Input>,
    /// Tokenizers, and what names the samples that are kept.
    other_inputs: Vec<Input>,
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
    pipeline: Mutex<Option<Pipeline>>,
    keep: Option<KeepFile>,
    /// Read with the first map task.
    kept: Mutex<Option<Arc<KeepSet>>>,
}

/// What this process has opened for the last task.
static LAST: Mutex<Option<Arc<Preparation>>> = Mutex::new(None);

impl Preparation {
    /// Begins in a directory, or continues what was begun there. Another recipe and changed inputs are refused.
    pub fn begin(recipe: &Recipe, out: &Path) -> Result<Preparation, PrepareError> {
        let work = WorkDir::of(out)?;
        let mut recipe = recipe.clone();
        recipe.check()?;
        inputs::expand_patterns(&mut recipe.source)?;
        let (begun, opened) = match Begun::read(&work)? {
            Some(begun) if begun.recipe != recipe => {
                return Err(PrepareError::OtherRecipe {
                    path: out.to_owned(),
                });
            }
            Some(begun) => {
                begun.check_unchanged()?;
                (begun, None)
            }
            None => Begun::new(recipe)?,
        };
        inputs::check_outside(out, &begun.inputs)?;
        Preparation::of(work, begun, opened)
    }

    /// Opens what was begun in a directory, to run a task of it.
    pub fn open(out: &Path) -> Result<Preparation, PrepareError> {
        let work = WorkDir::of(out)?;
        match Begun::read(&work)? {
            Some(begun) => Preparation::of(work, begun, None),
            None => Err(PrepareError::Unreadable {
                path: work.preparation(),
                cause: std::io::ErrorKind::NotFound.into(),
            }),
        }
    }

    /// Forgets what [`Preparation::open_again`] has opened: after an error it may not be what the files hold.
    pub fn forget_last() {
        *LAST.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The same; the last one that this process has opened if it is still that, with its tokenizer.
    pub fn open_again(out: &Path) -> Result<Arc<Preparation>, PrepareError> {
        let found = Preparation::open(out)?;
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some(last) if last.work.out() == out && last.begun == found.begun => {
                Ok(Arc::clone(last))
            }
            _ => Ok(Arc::clone(last.insert(Arc::new(found)))),
        }
    }

    fn of(
        work: WorkDir,
        begun: Begun,
        opened: Option<Pipeline>,
    ) -> Result<Preparation, PrepareError> {
        let fields = begun.record_fields().ok_or_else(|| PrepareError::Damaged {
            path: work.preparation(),
            expected: "fields of known dtypes".to_owned(),
            found: "others".to_owned(),
        })?;
        let packer = match (begun.recipe.packing()?, fields.first()) {
            (Some(op), Some(tokens)) => Some(Packer::of(op, tokens.form.dtype())),
            _ => None,
        };
        let record_bytes = match &packer {
            Some(packer) => packer.form().record_bytes(),
            None => fields.iter().map(|field| field.form.bytes()).sum(),
        };
        if record_bytes == 0 {
            return Err(PrepareError::Setting {
                name: "ops",
                expected: "samples of at least one byte".to_owned(),
                found: "none".to_owned(),
            });
        }
        let keep = begun.recipe.keep.as_deref();
        let keep = keep.map(KeepFile::open).transpose()?;
        Ok(Preparation {
            splits: begun.rule.splits(&begun.inputs),
            field_bytes: fields.iter().map(|field| field.form.bytes()).collect(),
            work,
            begun,
            packer,
            fields,
            record_bytes,
            pipeline: Mutex::new(opened),
            keep,
            kept: Mutex::new(None),
        })
    }

    /// The dataset, if it is whole.
    pub fn finished(&self) -> Result<Option<Manifest>, PrepareError> {
        let Some(manifest) = Manifest::read(&self.work)? else {
            return Ok(None);
        };
        if manifest.recipe_digest != self.begun.recipe_digest {
            return Err(PrepareError::OtherRecipe {
                path: self.work.out().to_owned(),
            });
        }
        inputs::check_same(self.inputs(), manifest.inputs())?;
        inputs::check_same(&self.begun.other_inputs, manifest.other_inputs())?;
        let names: Vec<&str> = manifest.shards.iter().map(|shard| &*shard.file).collect();
        for (shard, found) in manifest.shards.iter().zip(self.work.sizes(&names)?) {
            if found != Some(shard.bytes) {
                return Err(PrepareError::Damaged {
                    path: self.work.out().join(&shard.file),
                    expected: format!("{} bytes, as the manifest says", shard.bytes),
                    found: found.map_or("none".to_owned(), |found| found.to_string()),
                });
            }
        }
        Ok(Some(manifest))
    }

    /// Makes the directories, keeps other processes out until the file is dropped, and writes down what is prepared.
    pub(crate) fn lock(&self) -> Result<Option<File>, PrepareError> {
        self.work.create()?;
        let lock = self.work.lock()?;
        // Somebody else may have begun before the lock was ours.
        match Begun::read(&self.work)? {
            Some(begun) if begun != self.begun => Err(PrepareError::OtherRecipe {
                path: self.work.out().to_owned(),
            }),
            Some(_) => Ok(lock),
            None => {
                let text = serde_json::to_vec(&self.begun).unwrap_or_default();
                self.work.write_whole(&self.work.preparation(), &text)?;
                Ok(lock)
            }
        }
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
        let mut opened = self.pipeline.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(opened) = &*opened {
            return Ok(opened.clone());
        }
        let found = inputs::open_all(&self.begun.recipe)?;
        Ok(opened.insert(found).clone())
    }

    /// Which samples are kept; nothing for all.
    pub(crate) fn kept(&self) -> Result<Option<Arc<KeepSet>>, PrepareError> {
        let Some(file) = &self.keep else {
            return Ok(None);
        };
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = &*kept {
            return Ok(Some(Arc::clone(kept)));
        }
        Ok(Some(Arc::clone(kept.insert(Arc::new(file.read()?)))))
    }

    /// The budget of tasks, without what they share.
    pub(crate) fn budget(&self, memory: Bytes) -> Result<TaskBudget, PrepareError> {
        let shared = self.keep.as_ref().map_or(0, KeepFile::held_bytes);
        if shared > memory.get() / 2 {
            return Err(PrepareError::TooLittleMemory {
                what: "the list of samples that are kept".to_owned(),
                needed: Bytes(shared.saturating_mul(2)),
                memory,
            });
        }
        Ok(TaskBudget::new(Bytes(memory.get() - shared)))
    }

    /// Lets go of the samples, and of what their source keeps.
    pub(crate) fn close_pipeline(&self) {
        *self.pipeline.lock().unwrap_or_else(PoisonError::into_inner) = None;
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Identifies the run of a task: different for other tasks, recipes and inputs.
    pub(crate) fn made_for(&self, task: u64) -> String {
        format!("{} {task}", self.begun.digest())
    }

    /// The run of a task, to be written. Its records may take `memory` bytes while they wait.
    pub(crate) fn new_run(&self, task: u64, memory: u64) -> Result<RunWriter, PrepareError> {
        let (attempt, file) = AttemptFile::create(&self.work, &self.work.run(task))?;
        let made_for = self.made_for(task);
        Ok(RunWriter::new(
            (attempt, file),
            made_for,
            self.record_bytes,
            memory,
        ))
    }

    /// The run of a task, if it is there and whole.
    pub(crate) fn finished_run(&self, task: u64) -> Option<RunFile> {
        self.run(task).ok()
    }

    pub(crate) fn run(&self, task: u64) -> Result<RunFile, PrepareError> {
        let made_for = self.made_for(task);
        RunFile::open(&self.work.run(task), &made_for, self.record_bytes as u64)
    }

    /// All runs, in the order of their tasks; that of the tails is the last.
    pub(crate) fn runs(&self) -> Result<Vec<RunFile>, PrepareError> {
        let mut reasons = 0;
        let mut runs = Vec::new();
        for task in 0..=self.map_tasks() {
            let mut run = self.run(task)?;
            // What nobody will read takes no memory.
            reasons += run.footer.skipped.reasons.len();
            if reasons > MAX_REASONS {
                run.footer.skipped.reasons = Vec::new();
            }
            runs.push(run);
        }
        Ok(runs)
    }

    /// An error where the files of a split, or the tokenizers, are not what they were.
    pub(crate) fn check_split_unchanged(&self, split: &Split) -> Result<(), PrepareError> {
        inputs::check_files(&self.begun.other_inputs)?;
        match split {
            Split::Bytes { path, .. } => {
                let mut inputs = self.begun.inputs.iter();
                let before = inputs.find(|input| input.path == *path);
                inputs::check_files(before.map_or(&[], std::slice::from_ref))
            }
            Split::Samples { .. } => inputs::check_files(&self.begun.inputs),
        }
    }

    /// The same in another directory, to try something.
    pub(crate) fn elsewhere(&self, out: &Path) -> Result<Preparation, PrepareError> {
        let opened = self.pipeline.lock().unwrap_or_else(PoisonError::into_inner);
        let trial = Preparation::of(WorkDir::of(out)?, self.begun.clone(), opened.clone())?;
        trial.work.create()?;
        Ok(trial)
    }

    /// Bytes of a sample in a shard.
    pub(crate) fn sample_bytes(&self) -> u64 {
        self.field_bytes.iter().map(|bytes| *bytes as u64).sum()
    }

    /// The number of shards for a number of samples.
    pub(crate) fn shards_of(&self, samples: u64) -> u64 {
        let bytes = samples.saturating_mul(self.sample_bytes());
        bytes.div_ceil(self.recipe().shard.get().max(1)).max(1)
    }

    /// The number of shards for the samples of all runs; an error if there are no samples.
    pub(crate) fn shards(&self, runs: &[RunFile]) -> Result<u64, PrepareError> {
        let each = runs.iter().map(|run| run.footer.records());
        match each.fold(0, u64::saturating_add) {
            0 => Err(PrepareError::NoSamples {
                inputs: self.shown_inputs(),
            }),
            samples => Ok(self.shards_of(samples)),
        }
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
            fields: self.begun.fields.clone(),
            documents: sum(footers.iter().map(|footer| footer.documents)),
            left_out: sum(footers.iter().map(|footer| footer.left_out)),
            tokens: sum(footers.iter().map(|footer| footer.tokens)),
            dropped_tokens: left / token_bytes,
            skipped,
            shards,
            recipe: self.begun.recipe.clone(),
            recipe_digest: self.begun.recipe_digest.clone(),
            inputs: self.begun.inputs.clone(),
            other_inputs: self.begun.other_inputs.clone(),
        });
        manifest.write(&self.work)?;
        self.work.remove_attempts();
        self.work.remove_work();
        Ok(manifest)
    }
}

fn sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

/// A pipeline without lines, which has the fields.
fn first_lines(recipe: &Recipe, inputs: &[Input]) -> Result<Pipeline, PrepareError> {
    let Some(input) = inputs.first() else {
        return inputs::open_all(recipe);
    };
    let json = recipe.source.json.clone();
    let lines = Lines::open_range(&input.path, 0..0, json, Bytes(0), &Opening::default())?;
    let opened = Pipeline::new(Arc::new(lines));
    Ok(recipe.expression().applied(opened)?)
}

impl Begun {
    /// Lists the inputs. The samples are open where that was needed to count them.
    fn new(recipe: Recipe) -> Result<(Begun, Option<Pipeline>), PrepareError> {
        let inputs = inputs::list(&recipe.source)?;
        let keep = recipe.keep.as_deref().map(KeepFile::open).transpose()?;
        let has_ids = keep.as_ref().is_some_and(|keep| !keep.has_numbers());
        let is_numbered = recipe.ops.iter().any(OpExpression::is_of_all_samples);
        if has_ids && (recipe.source.json.is_none() || is_numbered) {
            return Err(PrepareError::Setting {
                name: "keep",
                expected: "a column `index` with the numbers of samples: ids are compared with a field of JSON lines, \
                           before any `split`"
                    .to_owned(),
                found: "another column".to_owned(),
            });
        }
        let opened = if inputs::is_cut_by_bytes(&recipe, keep.as_ref()) {
            None
        } else {
            Some(inputs::open_all(&recipe)?)
        };
        let fields = if let Some(packer) = recipe.packing()?.map(Packer::open).transpose()? {
            vec![ManifestField {
                name: "tokens".to_owned(),
                dtype: packer.stored.to_string(),
                shape: vec![packer.form().block],
            }]
        } else {
            let pipeline = match &opened {
                Some(opened) => opened.clone(),
                None => first_lines(&recipe, &inputs)?,
            };
            let names = pipeline.fields().into_iter().map(|field| field.name);
            let forms = pipeline.forms()?;
            names
                .zip(&forms)
                .map(|(name, form)| ManifestField {
                    name,
                    dtype: form.dtype().to_string(),
                    shape: form.shape().to_vec(),
                })
                .collect()
        };
        let begun = Begun {
            version: VERSION,
            rule: inputs::rule(&recipe, opened.as_ref())?,
            other_inputs: inputs::list_other_inputs(&recipe)?,
            recipe_digest: recipe.digest(),
            fields,
            recipe,
            inputs,
        };
        Ok((begun, opened))
    }

    fn record_fields(&self) -> Option<Vec<RecordField>> {
        let each = self.fields.iter().map(|field| {
            let dtype = DType::from_name(&field.dtype)?;
            Some(RecordField {
                name: field.name.clone(),
                form: TensorSpec::new(dtype, field.shape.clone())?,
            })
        });
        each.collect()
    }

    /// Identifies the preparation.
    fn digest(&self) -> String {
        digest_of(&serde_json::to_vec(self).unwrap_or_default())
    }

    /// An error where a file is not what it was.
    fn check_unchanged(&self) -> Result<(), PrepareError> {
        inputs::check_same(&inputs::list(&self.recipe.source)?, &self.inputs)?;
        inputs::check_same(
            &inputs::list_other_inputs(&self.recipe)?,
            &self.other_inputs,
        )
    }

    fn read(work: &WorkDir) -> Result<Option<Begun>, PrepareError> {
        let path = work.preparation();
        let Some(text) = work.read_whole(&path, MAX_LEN)? else {
            return Ok(None);
        };
        let damaged = |found: String| PrepareError::Damaged {
            path: path.clone(),
            expected: "a preparation of this version of brimful".to_owned(),
            found,
        };
        let begun: Begun =
            serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        if begun.version != VERSION {
            return Err(damaged(format!("version {}", begun.version)));
        }
        if begun.recipe.check().is_err() || begun.recipe.digest() != begun.recipe_digest {
            return Err(damaged("another recipe".to_owned()));
        }
        if begun.rule.tasks(&begun.inputs) > MAX_TASKS {
            return Err(damaged("too many tasks".to_owned()));
        }
        Ok(Some(begun))
    }
}
