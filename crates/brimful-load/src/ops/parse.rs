//! A number that is written as text, such as the label of a sample in a tar file.

use super::layout::wrong_spec;
use super::{Op, OpError, Out, SampleKey, Scratch};
use crate::array::{DType, Encoding, FieldSpec, TensorSpec};
use crate::value::Value;

/// Longer texts are no numbers.
const MAX_LEN: usize = 64;

/// A text with one number in it to that number.
#[derive(Debug)]
pub struct Parse {
    dtype: DType,
}

impl Parse {
    const NAME: &'static str = "cast";

    /// [`DType::I64`], [`DType::F32`] or [`DType::F64`].
    pub fn new(dtype: DType) -> Parse {
        Parse { dtype }
    }
}

impl Op for Parse {
    fn name(&self) -> &'static str {
        Parse::NAME
    }

    fn output_spec(&self, input: &FieldSpec) -> Result<FieldSpec, OpError> {
        if !matches!(
            input,
            FieldSpec::Encoded(Encoding::Text | Encoding::Unknown)
        ) {
            return Err(wrong_spec(Parse::NAME, "text", input));
        }
        let form = TensorSpec::new(self.dtype, []);
        let is_known = matches!(self.dtype, DType::I64 | DType::F32 | DType::F64);
        form.filter(|_| is_known)
            .map(FieldSpec::Array)
            .ok_or_else(|| OpError::WrongKind {
                op: Parse::NAME,
                expected: "int64, float32 or float64 for the number in a text".to_owned(),
                found: self.dtype.to_string(),
            })
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
        let bytes = input.bytes().trim_ascii();
        let text = std::str::from_utf8(bytes)
            .ok()
            .filter(|text| text.len() <= MAX_LEN);
        let wrong = || {
            let shown = &bytes[..bytes.len().min(MAX_LEN)];
            OpError::Malformed {
                op: Parse::NAME,
                expected: format!("a number of {}", self.dtype),
                found: format!("\"{}\"", shown.escape_ascii()),
            }
        };
        let text = text.ok_or_else(wrong)?;
        let to = out.array(Parse::NAME, self.dtype, &[])?;
        match self.dtype {
            DType::F32 => {
                let number: f32 = text.parse().map_err(|_| wrong())?;
                to.copy_from_slice(&number.to_ne_bytes());
            }
            DType::F64 => {
                let number: f64 = text.parse().map_err(|_| wrong())?;
                to.copy_from_slice(&number.to_ne_bytes());
            }
            _ => {
                let number: i64 = text.parse().map_err(|_| wrong())?;
                to.copy_from_slice(&number.to_ne_bytes());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: SampleKey = SampleKey {
        seed: 0,
        epoch: 0,
        index: 0,
    };

    fn parsed(dtype: DType, text: &[u8]) -> Result<Vec<u8>, String> {
        let mut value = Value::default();
        value.piece.own(text.len()).copy_from_slice(text);
        let mut slot = vec![0; dtype.size()];
        Parse::new(dtype)
            .apply(KEY, &value, Out::Slot(&mut slot), &mut Scratch::default())
            .map_err(|error| error.to_string())?;
        Ok(slot)
    }

    #[test]
    fn numbers_are_read_and_other_texts_are_told() {
        assert_eq!(
            parsed(DType::I64, b" 17\n"),
            Ok(17_i64.to_ne_bytes().to_vec())
        );
        assert_eq!(
            parsed(DType::I64, b"-3"),
            Ok((-3_i64).to_ne_bytes().to_vec())
        );
        assert_eq!(
            parsed(DType::F32, b"2.5"),
            Ok(2.5_f32.to_ne_bytes().to_vec())
        );
        let refused = |text: &[u8]| parsed(DType::I64, text).unwrap_err();
        assert_eq!(
            refused(b"cat"),
            "cast expected a number of int64, found \"cat\""
        );
        assert!(refused(b"").ends_with("found \"\""));
        assert!(refused(b"99999999999999999999").contains("expected a number"));
        assert!(refused(&vec![b'1'; 100_000]).len() < 200);
        assert!(refused(&[0xff, 0]).ends_with("found \"\\xff\\x00\""));
    }

    #[test]
    fn only_text_becomes_a_number_of_some_types() {
        let text = FieldSpec::Encoded(Encoding::Text);
        assert!(Parse::new(DType::I64).output_spec(&text).is_ok());
        assert!(Parse::new(DType::U8).output_spec(&text).is_err());
        let image = FieldSpec::Encoded(Encoding::Image);
        assert!(Parse::new(DType::I64).output_spec(&image).is_err());
    }
}
