//! Another type of element.

use super::layout::{check_length, dtype_of, wrong_kind};
use super::{Op, OpError, Out, SampleKey, Scratch};
use crate::array::{DType, Form, Kind};
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

    fn kind(&self, input: &Kind) -> Result<Kind, OpError> {
        dtype_of(Cast::NAME, input, "an array")?;
        match input {
            Kind::Array(form) => Form::new(self.dtype, form.shape())
                .map(Kind::Array)
                .ok_or_else(|| {
                    let expected = format!("an array that fits into memory as {}", self.dtype);
                    wrong_kind(Cast::NAME, expected, input)
                }),
            Kind::Ragged { rank, .. } => Ok(Kind::Ragged {
                dtype: self.dtype,
                rank: *rank,
            }),
            Kind::Encoded(_) => Err(wrong_kind(Cast::NAME, "an array", input)),
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
        check_length(Cast::NAME, input)?;
        let to = out.array(Cast::NAME, self.dtype, &input.shape)?;
        kernels::cast::cast(input.dtype, self.dtype, input.bytes(), to);
        Ok(())
    }
}
