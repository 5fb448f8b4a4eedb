//! The sides of an array in another order.

use super::layout::{MOST_SIDES, Shape, check_length, dtype_of, malformed, wrong_kind};
use super::{Op, OpError, Out, SampleKey, Scratch};
use crate::array::{Form, Kind};
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
        if is_whole && order.len() <= MOST_SIDES {
            Ok(Transpose {
                order: order.to_vec(),
            })
        } else {
            Err(OpError::WrongKind {
                op: Transpose::NAME,
                expected: format!("each of the sides 0, 1, 2 and so on once, at most {MOST_SIDES}"),
                found: format!("{order:?}"),
            })
        }
    }

    fn expected(&self) -> String {
        format!("an array of {} sides", self.order.len())
    }

    fn shape(&self, shape: &[usize]) -> Option<Shape> {
        if shape.len() != self.order.len() {
            return None;
        }
        let mut permuted = Shape::new(shape)?;
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

    fn kind(&self, input: &Kind) -> Result<Kind, OpError> {
        let wrong = || wrong_kind(Transpose::NAME, self.expected(), input);
        dtype_of(Transpose::NAME, input, "an array")?;
        match input {
            Kind::Array(form) => self
                .shape(form.shape())
                .and_then(|shape| Form::new(form.dtype(), shape.as_slice()))
                .map(Kind::Array)
                .ok_or_else(wrong),
            Kind::Ragged { rank, .. } if *rank == self.order.len() => Ok(input.clone()),
            Kind::Ragged { .. } | Kind::Encoded(_) => Err(wrong()),
        }
    }

    fn scratch_bytes(&self, _input: &Kind) -> u64 {
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
