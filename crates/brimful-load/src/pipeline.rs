//! What happens to each sample: fields of a source, each through its ops, into the slots of a batch.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use crate::array::{Encoding, Field, FieldSpec, TensorSpec};
use crate::buffer::PAGE;
use crate::error::{OpError, ReadError};
use crate::ops::{Layout, Op, Out, SampleKey, Scratch};
use crate::order::Order;
use crate::source::Source;
use crate::sources::{Numbered, Part};
use crate::value::Value;
use brimful_mapping::Guard;

/// A source and what is done with its fields. Cheap to clone; every change gives a new one.
#[derive(Clone, Debug)]
pub struct Pipeline {
    source: Arc<dyn Source>,
    lanes: Vec<Lane>,
    n_ops: u64,
}

/// One field on its way.
#[derive(Clone, Debug)]
struct Lane {
    name: String,
    /// Its place among the fields of the source.
    field: usize,
    ops: Vec<Arc<dyn Op>>,
    /// What goes into the first op, into the second, …, and what comes out in the end.
    specs: Vec<FieldSpec>,
}

impl Lane {
    fn spec(&self) -> &FieldSpec {
        self.specs.last().expect("a lane begins with a spec")
    }

    fn layout(&self) -> Layout {
        let layout = Layout::default();
        self.ops.iter().fold(layout, |layout, op| op.layout(layout))
    }
}

/// A pipeline cannot be put together.
#[derive(Debug, thiserror::Error)]
pub enum PipelineError {
    #[error("no field {wanted:?}; available fields are {}", known.join(", "))]
    NoSuchField { wanted: String, known: Vec<String> },
    #[error("field {field:?}")]
    Op {
        field: String,
        #[source]
        cause: OpError,
    },
    #[error(
        "cannot batch field {field:?}: it is {spec}, but every sample must have the same dtype and shape"
    )]
    NotBatchable { field: String, spec: FieldSpec },
    #[error("a field named {name:?} already exists")]
    TakenName { name: String },
    #[error("no fields are left")]
    NoField,
}

/// One sample failed.
#[derive(Debug, thiserror::Error)]
#[error("{place}{}", match field { Some(field) => format!(", field {field:?}"), None => String::new() })]
pub struct SampleError {
    /// The file and the place in it.
    pub place: String,
    pub index: u64,
    pub field: Option<String>,
    #[source]
    pub cause: Box<SampleCause>,
}

#[derive(Debug, thiserror::Error)]
pub enum SampleCause {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Op(#[from] OpError),
    /// A mistake of ours.
    #[error("internal error: {0}")]
    Panic(String),
}

/// What one thread reads into, kept from sample to sample.
#[derive(Debug, Default)]
pub(crate) struct ReadScratch {
    values: Vec<Value>,
    /// Nanoseconds of each stage since they were last taken; see [`Pipeline::stages`].
    stage_ns: Vec<u64>,
}

/// What the ops of one sample need besides, kept from sample to sample. Threads that wait for a store most of their time
/// share a few.
#[derive(Debug, Default)]
pub(crate) struct OpScratch {
    between: [Value; 2],
    scratch: Scratch,
}

/// How far a sample is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Read {
    /// It is in its slots.
    IntoSlots,
    /// Its ops are to be run, in [`Pipeline::make`].
    IntoScratch,
}

impl ReadScratch {
    /// Hands over the time of each stage, and begins to count anew.
    pub(crate) fn take_stages(&mut self, mut each: impl FnMut(usize, u64)) {
        for (stage, ns) in self.stage_ns.iter_mut().enumerate() {
            each(stage, std::mem::take(ns));
        }
    }

    pub(crate) fn held_bytes(&self) -> usize {
        held_bytes(&self.values)
    }

    /// An error if something else was read of the values than their files hold; of all of each file, where the sample has
    /// failed, since the error may come of bytes that the value no longer has.
    fn check(&self, has_failed: bool) -> io::Result<()> {
        self.values.iter().try_for_each(|value| {
            if has_failed {
                value.piece.check_all()
            } else {
                value.piece.check()
            }
        })
    }
}

impl OpScratch {
    pub(crate) fn held_bytes(&self) -> usize {
        held_bytes(&self.between) + self.scratch.held_bytes()
    }
}

fn held_bytes(values: &[Value]) -> usize {
    values.iter().map(|value| value.piece.held_bytes()).sum()
}

impl Pipeline {
    pub fn new(source: Arc<dyn Source>) -> Pipeline {
        let lanes = source
            .fields()
            .iter()
            .enumerate()
            .map(|(place, field)| Lane {
                name: field.name.clone(),
                field: place,
                ops: Vec::new(),
                specs: vec![field.spec.clone()],
            })
            .collect();
        Pipeline {
            source,
            lanes,
            n_ops: 0,
        }
    }

    pub fn source(&self) -> &Arc<dyn Source> {
        &self.source
    }

    /// The fields as they come out.
    pub fn fields(&self) -> Vec<Field> {
        self.lanes
            .iter()
            .map(|lane| Field {
                name: lane.name.clone(),
                spec: lane.spec().clone(),
            })
            .collect()
    }

    /// Puts an op at the end of a field. `make` is given the number of the op, for its draws, and what comes in.
    pub fn with(
        &self,
        field: &str,
        make: impl FnOnce(u64, &FieldSpec) -> Result<Arc<dyn Op>, OpError>,
    ) -> Result<Pipeline, PipelineError> {
        let mut changed = self.clone();
        changed.add(field, self.n_ops, make)?;
        changed.n_ops += 1;
        Ok(changed)
    }

    /// The same for several fields, whose ops draw alike: an image and its mask are flipped together.
    pub fn with_alike(
        &self,
        fields: &[String],
        make: impl Fn(&str, u64, &FieldSpec) -> Result<Arc<dyn Op>, OpError>,
    ) -> Result<Pipeline, PipelineError> {
        let mut changed = self.clone();
        for field in fields {
            changed.add(field, self.n_ops, |number, spec| make(field, number, spec))?;
        }
        changed.n_ops += 1;
        Ok(changed)
    }

    fn add(
        &mut self,
        field: &str,
        number: u64,
        make: impl FnOnce(u64, &FieldSpec) -> Result<Arc<dyn Op>, OpError>,
    ) -> Result<(), PipelineError> {
        let at = self.place(field)?;
        let failed = |cause| PipelineError::Op {
            field: field.to_owned(),
            cause,
        };
        let lane = &mut self.lanes[at];
        let op = make(number, lane.spec()).map_err(failed)?;
        let spec = op.output_spec(lane.spec()).map_err(failed)?;
        lane.specs.push(spec);
        lane.ops.push(op);
        Ok(())
    }

    /// The samples at these positions; with a seed, of an order that is shuffled by it.
    pub fn part(&self, positions: Range<u64>, seed: Option<u64>) -> Pipeline {
        let len = self.source.len();
        let order = match seed {
            Some(seed) => Order::shuffled(len, seed, 0),
            None => Order::in_turn(len),
        };
        let mut changed = self.clone();
        changed.source = Arc::new(Part::new(Arc::clone(&self.source), order, positions));
        changed
    }

    /// With a field that has the number of each sample.
    pub fn numbered(&self, name: &str) -> Result<Pipeline, PipelineError> {
        if self.lanes.iter().any(|lane| lane.name == name) {
            return Err(PipelineError::TakenName {
                name: name.to_owned(),
            });
        }
        let mut changed = self.clone();
        changed.source = Arc::new(Numbered::new(Arc::clone(&self.source), name));
        let (place, field) = changed
            .source
            .fields()
            .iter()
            .enumerate()
            .next_back()
            .expect("its own field");
        changed.lanes.push(Lane {
            name: name.to_owned(),
            field: place,
            ops: Vec::new(),
            specs: vec![field.spec.clone()],
        });
        Ok(changed)
    }

    /// How the images of a field lie in memory after its ops.
    pub fn layout(&self, field: &str) -> Result<Layout, PipelineError> {
        Ok(self.lanes[self.place(field)?].layout())
    }

    /// Keeps these fields only, in this order.
    pub fn keep(&self, names: &[String]) -> Result<Pipeline, PipelineError> {
        let mut changed = self.clone();
        changed.lanes = names
            .iter()
            .map(|name| Ok(self.lanes[self.place(name)?].clone()))
            .collect::<Result<_, PipelineError>>()?;
        Ok(changed)
    }

    pub fn rename(&self, from: &str, to: &str) -> Result<Pipeline, PipelineError> {
        let at = self.place(from)?;
        if from != to && self.lanes.iter().any(|lane| lane.name == to) {
            return Err(PipelineError::TakenName {
                name: to.to_owned(),
            });
        }
        let mut changed = self.clone();
        to.clone_into(&mut changed.lanes[at].name);
        Ok(changed)
    }

    /// Gives a field a second time under another name, as it is now.
    pub fn copy(&self, from: &str, to: &str) -> Result<Pipeline, PipelineError> {
        let at = self.place(from)?;
        if self.lanes.iter().any(|lane| lane.name == to) {
            return Err(PipelineError::TakenName {
                name: to.to_owned(),
            });
        }
        let mut changed = self.clone();
        let lane = Lane {
            name: to.to_owned(),
            ..self.lanes[at].clone()
        };
        changed.lanes.insert(at + 1, lane);
        Ok(changed)
    }

    /// The place among the fields of the source of a field that is text still.
    pub(crate) fn text_field(&self, name: &str, op: &'static str) -> Result<usize, PipelineError> {
        let lane = &self.lanes[self.place(name)?];
        match lane.spec() {
            FieldSpec::Encoded(Encoding::Text | Encoding::Unknown) if lane.ops.is_empty() => {
                Ok(lane.field)
            }
            spec => Err(PipelineError::Op {
                field: name.to_owned(),
                cause: OpError::WrongKind {
                    op,
                    expected: "text".to_owned(),
                    found: spec.to_string(),
                },
            }),
        }
    }

    fn place(&self, name: &str) -> Result<usize, PipelineError> {
        self.lanes
            .iter()
            .position(|lane| lane.name == name)
            .ok_or_else(|| PipelineError::NoSuchField {
                wanted: name.to_owned(),
                known: self.lanes.iter().map(|lane| lane.name.clone()).collect(),
            })
    }

    /// The form of each field in a batch, without its first side.
    pub fn forms(&self) -> Result<Vec<TensorSpec>, PipelineError> {
        if self.lanes.is_empty() {
            return Err(PipelineError::NoField);
        }
        self.lanes
            .iter()
            .map(|lane| match lane.spec() {
                FieldSpec::Array(form) => Ok(form.clone()),
                spec => Err(PipelineError::NotBatchable {
                    field: lane.name.clone(),
                    spec: spec.clone(),
                }),
            })
            .collect()
    }

    /// What takes time, in order: reading, then each op of each field. Nothing where samples are read straight into the
    /// batch: then reading is all of the work, and to look at the clock for each sample would be most of it.
    pub fn stages(&self) -> Vec<String> {
        if self.is_as_read() {
            return Vec::new();
        }
        let ops = self.lanes.iter().flat_map(|lane| {
            let of_lane = |op: &Arc<dyn Op>| format!("{} {}", op.name(), lane.name);
            lane.ops.iter().map(of_lane)
        });
        std::iter::once("read".to_owned()).chain(ops).collect()
    }

    /// Whether the fields come out as the source has them.
    fn is_as_read(&self) -> bool {
        let mut lanes = self.lanes.iter().enumerate();
        self.lanes.len() == self.source.fields().len()
            && lanes.all(|(at, lane)| lane.ops.is_empty() && lane.field == at)
    }

    /// Bytes that one thread holds at the most of what it has read.
    pub fn bytes_to_read(&self) -> u64 {
        self.source.max_sample_bytes()
    }

    /// Bytes that the ops of one sample need at the most besides.
    pub fn bytes_to_make(&self) -> u64 {
        let largest = self.source.max_sample_bytes();
        // The two values that take turns between ops, and the scratch of ops of each name.
        let mut between = [0_u64; 2];
        let mut scratch = BTreeMap::<&str, u64>::new();
        for lane in &self.lanes {
            let mut bytes = largest;
            for (at, (op, spec)) in lane.ops.iter().zip(&lane.specs).enumerate() {
                let room = op.reservation(spec, bytes);
                bytes = room.result;
                let own = scratch.entry(op.name()).or_default();
                *own = room.scratch.max(*own);
                // The last one writes to the batch.
                if at + 1 < lane.ops.len() {
                    let held = bytes.checked_next_multiple_of(PAGE as u64);
                    between[at % 2] = between[at % 2].max(held.unwrap_or(u64::MAX));
                }
            }
        }
        scratch
            .into_values()
            .chain(between)
            .fold(0, u64::saturating_add)
    }

    /// Reads one sample: into its slots, one for each field, where nothing else is to be done with it.
    pub(crate) fn read(
        &self,
        key: SampleKey,
        slots: &mut [&mut [u8]],
        read_scratch: &mut ReadScratch,
    ) -> Result<Read, SampleError> {
        let source = &*self.source;
        let failed = |error: ReadError| self.failed(key, None, error.into());
        read_scratch
            .values
            .resize_with(source.fields().len(), Value::default);
        if self.is_as_read() {
            let read = source.read_into(key.index, slots, &mut read_scratch.values);
            return read.map(|()| Read::IntoSlots).map_err(failed);
        }
        read_scratch.stage_ns.resize(self.n_stages(), 0);
        let mut clock = Clock::at_stage(0);
        let read = source.read(key.index, &mut read_scratch.values);
        clock.next(&mut read_scratch.stage_ns);
        read.map(|()| Read::IntoScratch).map_err(failed)
    }

    /// Makes the sample that was read, in its slots.
    pub(crate) fn make(
        &self,
        key: SampleKey,
        slots: &mut [&mut [u8]],
        read_scratch: &mut ReadScratch,
        op_scratch: &mut OpScratch,
    ) -> Result<(), SampleError> {
        let mut clock = Clock::at_stage(1);
        for (lane, slot) in self.lanes.iter().zip(slots) {
            lane.run(key, slot, read_scratch, op_scratch, &mut clock)
                .map_err(|cause| self.failed(key, Some(&lane.name), cause))?;
        }
        Ok(())
    }

    /// What came of a sample, or the error of a file that was truncated meanwhile. The sample was read and made inside the
    /// guard.
    pub(crate) fn checked(
        &self,
        key: SampleKey,
        made: Result<(), SampleError>,
        read_scratch: &ReadScratch,
        guard: &Guard,
    ) -> Result<(), SampleError> {
        if let Err(error) = read_scratch.check(made.is_err()) {
            let error = ReadError::from(error);
            return Err(self.failed(key, None, error.into()));
        }
        if made.is_ok() && guard.has_faulted() {
            let error = ReadError::Malformed {
                expected: "all bytes of the file".to_owned(),
                found: "a file that was truncated while it was in use".to_owned(),
            };
            return Err(self.failed(key, None, error.into()));
        }
        made
    }

    fn failed(&self, key: SampleKey, field: Option<&str>, cause: SampleCause) -> SampleError {
        SampleError {
            place: self.source.place(key.index),
            index: key.index,
            field: field.map(str::to_owned),
            cause: Box::new(cause),
        }
    }

    fn n_stages(&self) -> usize {
        1 + self.lanes.iter().map(|lane| lane.ops.len()).sum::<usize>()
    }
}

/// Gives the time since the last look to the stage that has just ended.
struct Clock {
    stage: usize,
    looked: Instant,
}

impl Clock {
    fn at_stage(stage: usize) -> Clock {
        Clock {
            stage,
            looked: Instant::now(),
        }
    }

    fn next(&mut self, stage_ns: &mut [u64]) {
        let now = Instant::now();
        let took = now.duration_since(self.looked).as_nanos();
        stage_ns[self.stage] += u64::try_from(took).unwrap_or(u64::MAX);
        self.stage += 1;
        self.looked = now;
    }
}

impl Lane {
    fn run(
        &self,
        key: SampleKey,
        slot: &mut [u8],
        read_scratch: &mut ReadScratch,
        op_scratch: &mut OpScratch,
        clock: &mut Clock,
    ) -> Result<(), SampleCause> {
        let ReadScratch { values, stage_ns } = read_scratch;
        let OpScratch {
            between: [one, other],
            scratch,
        } = op_scratch;
        let first = &values[self.field];
        let Some((last, before)) = self.ops.split_last() else {
            return copied(first, slot).map_err(SampleCause::from);
        };
        // The ops before the last write to two values in turns.
        let (mut from, mut to) = (one, other);
        let mut is_first = true;
        for (op, spec) in before.iter().zip(&self.specs[1..]) {
            let input = if is_first { first } else { &*from };
            let out = match spec {
                FieldSpec::Array(form) => Out::Spec(to, form),
                FieldSpec::Ragged { .. } | FieldSpec::Encoded(_) => Out::Value(to),
            };
            op.apply(key, input, out, scratch)?;
            clock.next(stage_ns);
            std::mem::swap(&mut from, &mut to);
            is_first = false;
        }
        let input = if is_first { first } else { &*from };
        last.apply(key, input, Out::Slot(slot), scratch)?;
        clock.next(stage_ns);
        Ok(())
    }
}

/// A value as it is, into its slot.
pub(crate) fn copied(value: &Value, slot: &mut [u8]) -> Result<(), ReadError> {
    let bytes = value.bytes();
    if bytes.len() != slot.len() {
        return Err(ReadError::Malformed {
            expected: format!("{} bytes", slot.len()),
            found: format!("{} bytes", bytes.len()),
        });
    }
    slot.copy_from_slice(bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use brimful::units::Bytes;

    use super::*;
    use crate::array::DType;
    use crate::kernels::filter::Filter;
    use crate::loader::{Loader, LoaderSettings, OnError};
    use crate::ops::{Cast, DecodeImage, Resize};
    use crate::sources::{Folder, FolderOptions, Npy};

    fn resized(pipeline: &Pipeline, field: &str, layout: Layout, size: usize) -> Pipeline {
        pipeline
            .with(field, |_, spec| {
                let resize = Resize::new((size, size), Filter::Bilinear, layout, 3, spec)?;
                Ok(Arc::new(resize))
            })
            .unwrap()
    }

    /// Images of a folder, as they are trained with.
    fn images() -> Pipeline {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.png"), vec![0; 500_000]).unwrap();
        let options = FolderOptions {
            extensions: vec!["png".to_owned()],
            ..FolderOptions::default()
        };
        let source = Folder::open(folder.path(), &options).unwrap();
        let decoded = Pipeline::new(Arc::new(source))
            .with("image", |_, _| Ok(Arc::new(DecodeImage::default())))
            .unwrap();
        resized(&decoded, "image", Layout::Interleaved, 224)
            .with("image", |_, _| Ok(Arc::new(Cast::new(DType::F32))))
            .unwrap()
    }

    #[test]
    fn a_loader_of_images_fits_its_usual_memory() {
        let settings = LoaderSettings {
            batch_size: 64,
            shuffle_seed: None,
            seed: 0,
            memory: Bytes::from_mib(512),
            threads: Some(2),
            prefetch: 2,
            rank: 0,
            world_size: 1,
            drop_last: false,
            on_error: OnError::Raise,
        };
        let loader = Loader::new(images(), settings).unwrap();
        let budget = loader.budget();
        assert_eq!((budget.threads, budget.batches), (2, 2), "{budget:?}");
    }

    #[test]
    fn ops_need_the_result_of_each_and_the_scratch_of_each_kind() {
        let pipeline = images();
        let image = 3 * DecodeImage::default().max_pixels;
        let scratch: u64 = pipeline.lanes[0]
            .ops
            .iter()
            .zip(&pipeline.lanes[0].specs)
            .map(|(op, spec)| op.scratch_bytes(spec))
            .sum();
        let resized = (224_u64 * 224 * 3).next_multiple_of(PAGE as u64);
        assert_eq!(pipeline.bytes_to_make(), image + resized + scratch);
        assert_eq!(pipeline.bytes_to_read(), pipeline.source.max_sample_bytes());
    }

    #[test]
    fn a_sample_never_becomes_more_than_was_promised() {
        // An array whose images are not three: were it taken for one of varying sides, it would become a hundred times
        // what the batch has room for.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.npy");
        let header = "{'descr': '|u1', 'fortran_order': False, 'shape': (1, 300, 2, 2)}";
        let mut file = b"\x93NUMPY\x01\0".to_vec();
        file.extend(u16::try_from(header.len()).unwrap().to_le_bytes());
        file.extend(header.as_bytes());
        file.extend([7; 1200]);
        fs::write(&path, file).unwrap();
        let source = Npy::open(&[("x".to_owned(), path)], None).unwrap();
        let mut varying = Pipeline::new(Arc::new(source));
        varying.lanes[0].specs[0] = FieldSpec::Ragged {
            dtype: DType::U8,
            rank: 3,
        };
        let pipeline = resized(&varying, "x", Layout::Planes, 64);
        let pipeline = resized(&pipeline, "x", Layout::Planes, 32);
        let key = SampleKey {
            seed: 0,
            epoch: 0,
            index: 0,
        };
        let (mut read_scratch, mut op_scratch) = (ReadScratch::default(), OpScratch::default());
        let mut slot = vec![0; 3 * 32 * 32];
        let read = pipeline
            .read(key, &mut [&mut slot], &mut read_scratch)
            .unwrap();
        assert_eq!(read, Read::IntoScratch);
        let error = pipeline
            .make(key, &mut [&mut slot], &mut read_scratch, &mut op_scratch)
            .unwrap_err();
        assert_eq!(
            error.cause.to_string(),
            "resize expected uint8 3x64x64, found uint8 [300, 64, 64]"
        );
        assert!(
            op_scratch
                .between
                .iter()
                .all(|value| value.bytes().is_empty())
        );
    }
}
