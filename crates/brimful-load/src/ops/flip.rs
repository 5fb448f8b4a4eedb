//! Left and right exchanged, at random.

use super::layout::{Layout, check_length, dtype_of, malformed, wrong_spec};
use super::{Op, OpError, Out, SampleKey, Scratch};
use crate::array::FieldSpec;
use crate::kernels::flip::flip_rows;
use crate::value::Value;

/// A horizontal flip of so many of all samples; all images of one sample alike.
#[derive(Debug)]
pub struct Flip {
    number: u64,
    probability: f64,
    layout: Layout,
}

impl Flip {
    const NAME: &'static str = "flip";

    /// `number` is its place in the pipeline.
    pub fn new(number: u64, probability: f64, layout: Layout) -> Flip {
        Flip {
            number,
            probability,
            layout,
        }
    }
}

impl Op for Flip {
    fn name(&self) -> &'static str {
        Flip::NAME
    }

    fn output_spec(&self, input: &FieldSpec) -> Result<FieldSpec, OpError> {
        if !(0.0..=1.0).contains(&self.probability) {
            return Err(OpError::WrongKind {
                op: Flip::NAME,
                expected: "a probability of 0 to 1".to_owned(),
                found: self.probability.to_string(),
            });
        }
        dtype_of(Flip::NAME, input, self.layout.expected())?;
        let fits = match input {
            FieldSpec::Array(form) => self.layout.sides(form.shape()).is_some(),
            FieldSpec::Ragged { rank, .. } => self.layout.fits(*rank),
            FieldSpec::Encoded(_) => false,
        };
        if fits {
            Ok(input.clone())
        } else {
            Err(wrong_spec(Flip::NAME, self.layout.expected(), input))
        }
    }

    fn scratch_bytes(&self, _input: &FieldSpec) -> u64 {
        0
    }

    fn apply(
        &self,
        key: SampleKey,
        input: &Value,
        mut out: Out<'_>,
        _scratch: &mut Scratch,
    ) -> Result<(), OpError> {
        check_length(Flip::NAME, input)?;
        let sides = self
            .layout
            .sides(&input.shape)
            .ok_or_else(|| malformed(Flip::NAME, self.layout.expected(), input))?;
        let to = out.array(Flip::NAME, input.dtype, &input.shape)?;
        // Below one, so a probability of 1 is always and one of 0 is never.
        if key.uniform(self.number, 0) < self.probability {
            let pixel = input.dtype.size() * sides.channels;
            flip_rows(sides.width, pixel, input.bytes(), to);
        } else {
            to.copy_from_slice(input.bytes());
        }
        Ok(())
    }
}
