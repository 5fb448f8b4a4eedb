//! What happens to each sample: fields of a source, each through its ops, into the slots of a batch.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use crate::array::{Encoding, Field, Form, Kind};
use crate::error::{OpError, ReadError};
use crate::ops::{Op, Out, SampleKey, Scratch};
use crate::order::Order;
use crate::source::Source;
use crate::sources::{Numbered, Part};
use crate::value::Value;

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
    kinds: Vec<Kind>,
}

impl Lane {
    fn kind(&self) -> &Kind {
        self.kinds.last().expect("a lane begins with a kind")
    }
}

/// A pipeline cannot be put together.
#[derive(Debug, thiserror::Error)]
pub enum PipelineError {
    #[error("there is no field {wanted:?}; there are {}", known.join(", "))]
    NoSuchField { wanted: String, known: Vec<String> },
    #[error("field {field:?}")]
    Op {
        field: String,
        #[source]
        cause: OpError,
    },
    #[error("field {field:?} is {kind}, and a batch can only be made of arrays of one form")]
    NotOneForm { field: String, kind: Kind },
    #[error("there is already a field {name:?}")]
    TakenName { name: String },
    #[error("no field is left")]
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

/// The memory of one thread, kept from sample to sample.
#[derive(Debug, Default)]
pub(crate) struct Hands {
    values: Vec<Value>,
    between: [Value; 2],
    scratch: Scratch,
    /// Nanoseconds of each stage since they were last taken; see [`Pipeline::stages`].
    stage_ns: Vec<u64>,
}

impl Hands {
    /// Hands over the time of each stage, and begins to count anew.
    pub(crate) fn take_stages(&mut self, mut each: impl FnMut(usize, u64)) {
        for (stage, ns) in self.stage_ns.iter_mut().enumerate() {
            each(stage, std::mem::take(ns));
        }
    }

    pub(crate) fn held_bytes(&self) -> usize {
        let values = self.values.iter().chain(&self.between);
        values.map(|value| value.piece.held_bytes()).sum::<usize>() + self.scratch.held_bytes()
    }
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
                kinds: vec![field.kind.clone()],
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
                kind: lane.kind().clone(),
            })
            .collect()
    }

    /// Puts an op at the end of a field. `make` is given the number of the op, for its draws, and what comes in.
    pub fn with(
        &self,
        field: &str,
        make: impl FnOnce(u64, &Kind) -> Result<Arc<dyn Op>, OpError>,
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
        make: impl Fn(&str, u64, &Kind) -> Result<Arc<dyn Op>, OpError>,
    ) -> Result<Pipeline, PipelineError> {
        let mut changed = self.clone();
        for field in fields {
            changed.add(field, self.n_ops, |number, kind| make(field, number, kind))?;
        }
        changed.n_ops += 1;
        Ok(changed)
    }

    fn add(
        &mut self,
        field: &str,
        number: u64,
        make: impl FnOnce(u64, &Kind) -> Result<Arc<dyn Op>, OpError>,
    ) -> Result<(), PipelineError> {
        let at = self.place(field)?;
        let failed = |cause| PipelineError::Op {
            field: field.to_owned(),
            cause,
        };
        let lane = &mut self.lanes[at];
        let op = make(number, lane.kind()).map_err(failed)?;
        let kind = op.kind(lane.kind()).map_err(failed)?;
        lane.kinds.push(kind);
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
            kinds: vec![field.kind.clone()],
        });
        Ok(changed)
    }

    /// The names of the ops of a field, in order.
    pub fn ops(&self, field: &str) -> Result<Vec<&'static str>, PipelineError> {
        let lane = &self.lanes[self.place(field)?];
        Ok(lane.ops.iter().map(|op| op.name()).collect())
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
        match lane.kind() {
            Kind::Encoded(Encoding::Text | Encoding::Unknown) if lane.ops.is_empty() => {
                Ok(lane.field)
            }
            kind => Err(PipelineError::Op {
                field: name.to_owned(),
                cause: OpError::WrongKind {
                    op,
                    expected: "text".to_owned(),
                    found: kind.to_string(),
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
    pub fn forms(&self) -> Result<Vec<Form>, PipelineError> {
        if self.lanes.is_empty() {
            return Err(PipelineError::NoField);
        }
        self.lanes
            .iter()
            .map(|lane| match lane.kind() {
                Kind::Array(form) => Ok(form.clone()),
                kind => Err(PipelineError::NotOneForm {
                    field: lane.name.clone(),
                    kind: kind.clone(),
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

    /// Bytes that one thread holds at the most while it makes a sample; where a form is not known, as far as it is.
    pub fn bytes_per_thread(&self) -> u64 {
        let mut between = 0_u64;
        let mut scratch = 0_u64;
        for lane in &self.lanes {
            for (op, kinds) in lane.ops.iter().zip(lane.kinds.windows(2)) {
                scratch = scratch.max(op.scratch_bytes(&kinds[0]));
                if let Kind::Array(form) = &kinds[1] {
                    between = between.max(form.bytes() as u64);
                }
            }
        }
        let two = if self.lanes.iter().any(|lane| lane.ops.len() > 1) {
            2
        } else {
            0
        };
        self.source
            .largest_sample()
            .saturating_add(between.saturating_mul(two))
            .saturating_add(scratch)
    }

    /// Makes one sample in its slots, one for each field.
    pub(crate) fn fill(
        &self,
        key: SampleKey,
        slots: &mut [&mut [u8]],
        hands: &mut Hands,
    ) -> Result<(), SampleError> {
        let source = &*self.source;
        let failed = |field: Option<&str>, cause: SampleCause| SampleError {
            place: source.place(key.index),
            index: key.index,
            field: field.map(str::to_owned),
            cause: Box::new(cause),
        };
        hands
            .values
            .resize_with(source.fields().len(), Value::default);
        if self.is_as_read() {
            return source
                .read_into(key.index, slots, &mut hands.values)
                .map_err(|error| failed(None, error.into()));
        }
        let mut clock = Clock::start(hands, self.n_stages());
        source
            .read(key.index, &mut hands.values)
            .map_err(|error| failed(None, error.into()))?;
        clock.next(&mut hands.stage_ns);
        for (lane, slot) in self.lanes.iter().zip(slots) {
            lane.run(key, slot, hands, &mut clock)
                .map_err(|cause| failed(Some(&lane.name), cause))?;
        }
        Ok(())
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
    fn start(hands: &mut Hands, n_stages: usize) -> Clock {
        hands.stage_ns.resize(n_stages, 0);
        Clock {
            stage: 0,
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
        hands: &mut Hands,
        clock: &mut Clock,
    ) -> Result<(), SampleCause> {
        let Hands {
            values,
            between: [one, other],
            scratch,
            stage_ns,
        } = hands;
        let first = &values[self.field];
        let Some((last, before)) = self.ops.split_last() else {
            return copied(first, slot).map_err(SampleCause::from);
        };
        // The ops before the last write to two values in turns.
        let (mut from, mut to) = (one, other);
        let mut is_first = true;
        for op in before {
            let input = if is_first { first } else { &*from };
            op.apply(key, input, Out::Value(to), scratch)?;
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
