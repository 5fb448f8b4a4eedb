//! One map task: the samples of a split to a run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use brimful::units::Bytes;
use brimful_load::pack::DocumentEncoder;
use brimful_load::pipeline::SampleError;
use brimful_load::sources::Lines;
use brimful_load::{Opening, Pipeline, SampleMaker};

use crate::blocks::BlockBuilder;
use crate::budget::{Share, TaskBudget};
use crate::error::PrepareError;
use crate::inputs::Split;
use crate::keep::Keep;
use crate::packing;
use crate::preparation::Preparation;
use crate::recipe::OnSampleError;
use crate::records::{key_of, sample_key};
use crate::run_file::{RunFooter, RunWriter, WRITE_BUFFER};

/// Fewest bytes of records that wait to be ordered.
const FEWEST_WAITING: u64 = 1 << 20;
/// Tokens take at most this many times the bytes of their text, unless it is very unusual.
const GROWTH: u64 = 2;

/// What one process gives to its tasks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskLimits<'a> {
    pub(crate) budget: &'a TaskBudget,
    /// Tasks at once.
    pub(crate) threads: u64,
    pub(crate) is_stopped: &'a AtomicBool,
}

/// What a task works on, open.
enum Opened {
    Documents(DocumentEncoder),
    Samples(Box<SampleMaker>),
}

impl Opened {
    fn max_bytes(&self) -> u64 {
        match self {
            Opened::Documents(encoder) => encoder.max_bytes(),
            Opened::Samples(maker) => maker.max_bytes(),
        }
    }
}

/// Runs a map task, unless its run is there.
pub(crate) fn map_task(
    preparation: &Preparation,
    task: u64,
    limits: TaskLimits<'_>,
) -> Result<RunFooter, PrepareError> {
    if let Some(run) = preparation.finished_run(task) {
        return Ok(run.footer);
    }
    let split = preparation.split(task)?;
    preparation.check_split_unchanged(split)?;
    let (opened, share) = open(preparation, split, limits)?;
    let OpenSplit {
        samples, mut keep, ..
    } = opened;
    let waiting = share.waiting;
    let mut run = preparation.new_run(task, waiting)?;
    let seed = preparation.recipe().seed;
    let on_error = preparation.recipe().on_error;
    let (tail, starts) = match opened.opened {
        Opened::Documents(encoder) => {
            let form = preparation.packer().map(packing::Packer::form);
            let mut builder = BlockBuilder::new(form.unwrap_or_default(), seed, task);
            packing::pack(
                &encoder,
                samples,
                &mut keep,
                on_error,
                &mut builder,
                &mut run,
                limits.is_stopped,
            )?;
            builder.into_tail()
        }
        Opened::Samples(mut maker) => {
            let sizes = preparation.field_bytes();
            for index in samples {
                if limits.is_stopped.load(Ordering::Relaxed) {
                    return Err(PrepareError::Stopped);
                }
                if !keep.takes(index, on_error, run.footer())? {
                    continue;
                }
                let key = key_of(seed, task, index);
                let made = run.add(key, |record| {
                    let mut slots = slots_of(record, sizes);
                    let made = maker.make(sample_key(seed, task, index), &mut slots);
                    made.map_err(NotMade::Sample)
                });
                match made {
                    Ok(()) => {}
                    Err(NotMade::Sample(error)) if on_error == OnSampleError::Skip => {
                        run.footer().skipped.add(&error);
                    }
                    Err(NotMade::Sample(error)) => return Err(error.into()),
                    Err(NotMade::RunFile(error)) => return Err(error),
                }
            }
            (Vec::new(), Vec::new())
        }
    };
    // What was read while it changed is no run.
    preparation.check_split_unchanged(split)?;
    run.finish(&tail, starts)
}

/// Why a sample is not in a run.
enum NotMade {
    Sample(SampleError),
    RunFile(PrepareError),
}

impl From<PrepareError> for NotMade {
    fn from(error: PrepareError) -> NotMade {
        NotMade::RunFile(error)
    }
}

/// A record cut into its fields.
pub(crate) fn slots_of<'a>(mut record: &'a mut [u8], sizes: &[usize]) -> Vec<&'a mut [u8]> {
    let mut slots = Vec::with_capacity(sizes.len());
    for &size in sizes {
        let (slot, rest) = record.split_at_mut(size.min(record.len()));
        slots.push(slot);
        record = rest;
    }
    slots
}

/// Bytes of a task besides the records that wait.
fn fixed_bytes(preparation: &Preparation, opened: &Opened) -> u64 {
    let builder = preparation
        .packer()
        .map_or(0, |packer| BlockBuilder::max_bytes(packer.form()));
    opened
        .max_bytes()
        .saturating_add(builder)
        .saturating_add(WRITE_BUFFER as u64)
        .saturating_add(preparation.work().upload_bytes())
}

/// What a map task may hold.
struct MapShare<'a> {
    /// Bytes of records that wait to be ordered.
    waiting: u64,
    _share: Share<'a>,
}

/// A split, open.
struct OpenSplit {
    opened: Opened,
    samples: std::ops::Range<u64>,
    keep: Keep,
    /// Bytes of the starts of its lines.
    index_bytes: u64,
}

/// Opens a split and takes the bytes that it needs.
fn open<'a>(
    preparation: &Preparation,
    split: &Split,
    limits: TaskLimits<'a>,
) -> Result<(OpenSplit, MapShare<'a>), PrepareError> {
    let found = open_split(preparation, split, limits)?;
    let fixed = fixed_bytes(preparation, &found.opened).saturating_add(found.index_bytes);
    let record = RunWriter::bytes_per_record(preparation.record_bytes());
    let fewest = FEWEST_WAITING.max(record);
    // More than the split can have are not needed.
    let most = match split {
        Split::Bytes { start, end, .. } => (GROWTH * (end - start)).saturating_add(record),
        Split::Samples { start, end } if preparation.packer().is_none() => {
            (end - start).saturating_mul(record)
        }
        Split::Samples { .. } => GROWTH * preparation.recipe().split.get(),
    };
    let fair = limits.budget.all().get() / limits.threads.max(1);
    let waiting = fair.saturating_sub(fixed).min(most).max(fewest);
    let needed = fixed.saturating_add(waiting);
    if let Some(share) = limits.budget.try_take(needed) {
        let share = MapShare {
            waiting,
            _share: share,
        };
        return Ok((found, share));
    }
    // Who waits holds nothing.
    let what = format!("one sample of {split}");
    drop(found);
    let share = limits.budget.take(needed, &what)?;
    let found = open_split(preparation, split, limits)?;
    let share = MapShare {
        waiting,
        _share: share,
    };
    Ok((found, share))
}

fn open_split(
    preparation: &Preparation,
    split: &Split,
    limits: TaskLimits<'_>,
) -> Result<OpenSplit, PrepareError> {
    let kept = preparation.kept()?;
    let (pipeline, samples, lines) = match split {
        Split::Bytes { path, start, end } => {
            let room = Bytes(limits.budget.all().get() / (2 * limits.threads.max(1)));
            let json = preparation.recipe().source.json.clone();
            let opening = Opening::default();
            let lines = Lines::open_range(path, *start..*end, json, room, &opening)?;
            let lines = Arc::new(lines);
            let opened = Pipeline::new(Arc::<Lines>::clone(&lines));
            let pipeline = preparation.recipe().expression().applied(opened)?;
            let samples = 0..pipeline.source().len();
            (pipeline, samples, Some(lines))
        }
        Split::Samples { start, end } => (preparation.pipeline()?, *start..*end, None),
    };
    let opened = match preparation.packer() {
        Some(packer) => Opened::Documents(packer.encoder(&pipeline)?),
        None => Opened::Samples(Box::new(SampleMaker::new(pipeline))),
    };
    Ok(OpenSplit {
        opened,
        samples,
        index_bytes: lines.as_ref().map_or(0, |lines| lines.index_bytes()),
        keep: Keep::new(kept, lines),
    })
}

/// The task behind the last split: the tails of all splits, in their order, as blocks of their own.
pub(crate) fn tails_task(preparation: &Preparation) -> Result<RunFooter, PrepareError> {
    let task = preparation.map_tasks();
    if let Some(run) = preparation.finished_run(task) {
        return Ok(run.footer);
    }
    let mut run = preparation.new_run(task, FEWEST_WAITING)?;
    let Some(packer) = preparation.packer() else {
        return run.finish(&[], Vec::new());
    };
    let form = packer.form();
    let mut builder = BlockBuilder::new(form, preparation.recipe().seed, task);
    let mut bytes = Vec::new();
    for split in 0..task {
        let of_split = preparation.run(split)?;
        of_split.file()?.tail(&mut bytes)?;
        // What was before the tail is elsewhere, so a document begins with it in any case.
        let starts = of_split.footer.tail.starts.iter().map(|at| *at as usize);
        let mut cuts: Vec<usize> = std::iter::once(0).chain(starts).collect();
        cuts.dedup();
        cuts.push(bytes.len() / form.token_bytes);
        for cut in cuts.windows(2) {
            let tokens = bytes.get(cut[0] * form.token_bytes..cut[1] * form.token_bytes);
            let Some(tokens) = tokens.filter(|tokens| !tokens.is_empty()) else {
                continue;
            };
            builder.begin_document();
            builder.push(tokens, &mut run)?;
        }
    }
    // What is left now fills no block at all.
    let (left, starts) = builder.into_tail();
    run.finish(&left, starts)
}
