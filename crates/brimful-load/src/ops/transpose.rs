//! The sides of an array in another order.

use super::layout::{
    InlineShape, Layout, MAX_DIMENSIONS, check_length, dtype_of, malformed, wrong_spec,
};
use super::{Op, OpError, Out, SampleKey, Scratch};
use crate::array::{FieldSpec, TensorSpec};
use crate::kernels::permute::permute;
use crate::value::Value;

/// As NumPy's `transpose` and torch's `permute`: side `at` of the output is side `order[at]` of the input.
///
/// `[2, 0, 1]` makes planes of a decoded image; `[0, 2, 1]` turns planes on their side.
#[derive(Debug)]
pub struct Transpose {
    order: Vec<usize>,
}

impl Transpose {
    const NAME: &'static str = "transpose";

    /// An error unless each of the sides `0..order.len()` is there once.
    pub fn new(order: &[usize]) -> Result<Transpose, OpError> {
        let is_whole = (0..order.len()).all(|side| order.contains(&side));
        if is_whole && order.len() <= MAX_DIMENSIONS {
            Ok(Transpose {
                order: order.to_vec(),
            })
        } else {
            Err(OpError::WrongKind {
                op: Transpose::NAME,
                expected: format!(
                    "each of the sides 0, 1, 2 and so on once, at most {MAX_DIMENSIONS}"
                ),
                found: format!("{order:?}"),
            })
        }
    }

    fn expected(&self) -> String {
        format!("an array of {} sides", self.order.len())
    }

    fn shape(&self, shape: &[usize]) -> Option<InlineShape> {
        if shape.len() != self.order.len() {
            return None;
        }
        let mut permuted = InlineShape::new(shape)?;
        for (to, &from) in permuted.as_mut_slice().iter_mut().zip(&self.order) {
            *to = shape[from];
        }
        Some(permuted)
    }
}

impl Op for Transpose {
    fn name(&self) -> &'static str {
        Transpose::NAME
    }

    /// Who transposes an image puts its channels first, as torch has them.
    fn layout(&self, _input: Layout) -> Layout {
        Layout::Planes
    }

    fn output_spec(&self, input: &FieldSpec) -> Result<FieldSpec, OpError> {
        let wrong = || wrong_spec(Transpose::NAME, self.expected(), input);
        dtype_of(Transpose::NAME, input, "an array")?;
        match input {
            FieldSpec::Array(form) => self
                .shape(form.shape())
                .and_then(|shape| TensorSpec::new(form.dtype(), shape.as_slice()))
                .map(FieldSpec::Array)
                .ok_or_else(wrong),
            FieldSpec::Ragged { rank, .. } if *rank == self.order.len() => Ok(input.clone()),
            FieldSpec::Ragged { .. } | FieldSpec::Encoded(_) => Err(wrong()),
        }
    }

    fn scratch_bytes(&self, _input: &FieldSpec) -> u64 {
        0
    }

    fn apply(
        &self,
        _key: SampleKey,
        input: &Value,
        mut out: Out<'_>,
        _scratch: &mut Scratch,
    ) -> Result<(), OpError> {
        check_length(Transpose::NAME, input)?;
        let shape = self
            .shape(&input.shape)
            .ok_or_else(|| malformed(Transpose::NAME, self.expected(), input))?;
        let to = out.array(Transpose::NAME, input.dtype, shape.as_slice())?;
        let size = input.dtype.size();
        permute(&input.shape, &self.order, size, input.bytes(), to);
        Ok(())
    }
}
