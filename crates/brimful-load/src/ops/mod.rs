//! Transforms of one field. One file of this folder is one op.

mod cast;
mod crop;
mod decode;
mod flip;
mod layout;
mod normalize;
mod parse;
mod resize;
#[cfg(test)]
mod tests;
mod tokenize;
mod transpose;
mod voxelize;

use std::fmt;

pub use self::cast::Cast;
pub use self::crop::{Crop, CropAnchor};
pub use self::decode::DecodeImage;
pub use self::flip::Flip;
pub use self::layout::Layout;
pub use self::normalize::Normalize;
pub use self::parse::Parse;
pub use self::resize::Resize;
pub use self::tokenize::{Tokenize, TokenizeOutput};
pub use self::transpose::Transpose;
pub use self::voxelize::Voxelize;
use crate::array::{DType, FieldSpec, TensorSpec};
use crate::error::OpError;
use crate::kernels::filter::Axis;
use crate::random::mixed;
use crate::text::WordCache;
use crate::value::Value;

/// What a random op may depend on, and nothing else: so results do not depend on threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SampleKey {
    pub seed: u64,
    pub epoch: u64,
    pub index: u64,
}

impl SampleKey {
    /// A number for the draw number `draw` of the op number `op` of the pipeline.
    pub fn draw(self, op: u64, draw: u64) -> u64 {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for part in [self.seed, self.epoch, self.index, op, draw] {
            state = mixed(state ^ part.wrapping_mul(0xd6e8_feb8_6659_fd93));
        }
        state
    }

    /// The same in `0.0..1.0`.
    pub fn uniform(self, op: u64, draw: u64) -> f64 {
        (self.draw(op, draw) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Memory of one thread that an op may use while it works, kept from sample to sample.
#[derive(Debug, Default)]
pub struct Scratch {
    pub bytes: Vec<u8>,
    pub floats: Vec<f32>,
    pub more_floats: Vec<f32>,
    pub words: Vec<i16>,
    pub more_words: Vec<i16>,
    pub points: Vec<[f32; 3]>,
    pub triangles: Vec<[u32; 3]>,
    /// The weights of the last resize of images of varying size.
    pub rows: Axis,
    pub columns: Axis,
    /// The tokens of a text, and of which op and which text they are.
    pub ids: Vec<u32>,
    pub encoded: Option<(u64, u64)>,
    pub vocabulary: WordCache,
}

impl Scratch {
    /// Bytes that it holds.
    pub fn held_bytes(&self) -> usize {
        self.bytes.capacity()
            + 4 * (self.floats.capacity() + self.more_floats.capacity())
            + 2 * (self.words.capacity() + self.more_words.capacity())
            + 12 * (self.points.capacity() + self.triangles.capacity())
            + self.rows.held_bytes()
            + self.columns.held_bytes()
            + 4 * self.ids.capacity()
            + self.vocabulary.held_bytes()
    }
}

/// Bytes of memory that an op takes for one sample at the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// While it works. Ops of the same name use the same part of the scratch.
    pub scratch: u64,
    /// For what comes out.
    pub result: u64,
}

/// Where an op writes: the slot of a batch, or a value that the next op reads.
#[derive(Debug)]
pub enum Out<'a> {
    /// Of exactly the form that [`Op::output_spec`] promised.
    Slot(&'a mut [u8]),
    /// The same in a value: a sample of varying sides must not become more than was promised.
    Spec(&'a mut Value, &'a TensorSpec),
    /// Of any form.
    Value(&'a mut Value),
}

impl Out<'_> {
    /// The bytes of an array of that form, to be written. An error where the slot is for another one.
    pub fn array(
        &mut self,
        op: &'static str,
        dtype: DType,
        shape: &[usize],
    ) -> Result<&mut [u8], OpError> {
        let malformed = |expected: String| OpError::Malformed {
            op,
            expected,
            found: format!("{dtype} {shape:?}"),
        };
        let bytes = shape
            .iter()
            .try_fold(dtype.size(), |bytes, &side| bytes.checked_mul(side))
            .ok_or_else(|| malformed("an array that fits into memory".to_owned()))?;
        match self {
            Out::Slot(slot) => {
                let len = slot.len();
                if len == bytes {
                    Ok(slot)
                } else {
                    Err(malformed(format!("{len} bytes")))
                }
            }
            Out::Spec(_, form) if form.bytes() != bytes => Err(malformed(form.to_string())),
            Out::Spec(value, _) | Out::Value(value) => Ok(value.set_array(dtype, shape, bytes)),
        }
    }
}

/// A transform of one field of a sample.
///
/// Made when the pipeline is put together, and checked then: [`Op::output_spec`] says what comes out of what goes in, or why it
/// cannot be. The result is a function of the input and the key.
pub trait Op: fmt::Debug + Send + Sync {
    /// As users call it: `resize`.
    fn name(&self) -> &'static str;

    /// What comes out.
    fn output_spec(&self, input: &FieldSpec) -> Result<FieldSpec, OpError>;

    /// How the images of its output lie in memory, given how those of its input do.
    fn layout(&self, input: Layout) -> Layout {
        input
    }

    /// Bytes of scratch that it takes at the most for such an input; for encoded input what its own limit allows.
    fn scratch_bytes(&self, input: &FieldSpec) -> u64;

    /// What it takes of memory at the most for such an input, of which no sample has more than `bytes` bytes.
    fn reservation(&self, input: &FieldSpec, bytes: u64) -> Reservation {
        let result = match (input, self.output_spec(input)) {
            (_, Ok(FieldSpec::Array(form))) => form.bytes() as u64,
            (FieldSpec::Ragged { dtype: from, .. }, Ok(FieldSpec::Ragged { dtype: to, .. })) => {
                bytes
                    .div_ceil(from.size() as u64)
                    .saturating_mul(to.size() as u64)
            }
            _ => bytes,
        };
        Reservation {
            scratch: self.scratch_bytes(input),
            result,
        }
    }

    fn apply(
        &self,
        key: SampleKey,
        input: &Value,
        out: Out<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), OpError>;
}
