//! Another type of element.

use super::layout::{check_length, dtype_of, wrong_spec};
use super::{Op, OpError, Out, SampleKey, Scratch};
use crate::array::{DType, FieldSpec, TensorSpec};
use crate::kernels;
use crate::value::Value;

/// Every element as another type; [`kernels::cast::cast`] says what becomes of those that do not fit.
#[derive(Debug)]
pub struct Cast {
    dtype: DType,
}

impl Cast {
    const NAME: &'static str = "cast";

    pub fn new(dtype: DType) -> Cast {
        Cast { dtype }
    }
}

impl Op for Cast {
    fn name(&self) -> &'static str {
        Cast::NAME
    }

    fn output_spec(&self, input: &FieldSpec) -> Result<FieldSpec, OpError> {
        dtype_of(Cast::NAME, input, "an array")?;
        match input {
            FieldSpec::Array(form) => TensorSpec::new(self.dtype, form.shape())
                .map(FieldSpec::Array)
                .ok_or_else(|| {
                    let expected = format!("an array that fits into memory as {}", self.dtype);
                    wrong_spec(Cast::NAME, expected, input)
                }),
            FieldSpec::Ragged { rank, .. } => Ok(FieldSpec::Ragged {
                dtype: self.dtype,
                rank: *rank,
            }),
            FieldSpec::Encoded(_) => Err(wrong_spec(Cast::NAME, "an array", input)),
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
        check_length(Cast::NAME, input)?;
        let to = out.array(Cast::NAME, self.dtype, &input.shape)?;
        kernels::cast::cast(input.dtype, self.dtype, input.bytes(), to);
        Ok(())
    }
}
