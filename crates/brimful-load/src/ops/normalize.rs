//! Values around zero, as models expect them.

use super::layout::{Layout, check_length, dtype_of, malformed, wrong_spec};
use super::{Op, OpError, Out, SampleKey, Scratch};
use crate::array::{DType, FieldSpec, TensorSpec};
use crate::kernels::normalize::{Line, normalize_bytes, normalize_floats};
use crate::value::Value;

/// `(value * scale - mean) / std` of each channel, as float32: torchvision's `ToTensor` and `Normalize` in one.
#[derive(Debug)]
pub struct Normalize {
    lines: Vec<Line>,
    byte_lines: Vec<Line>,
    layout: Layout,
}

impl Normalize {
    const NAME: &'static str = "normalize";

    /// Means and deviations are of the scaled values: one for each channel, or one for all. Where no scale is given,
    /// bytes are divided by 255, and floats stay.
    ///
    /// Channels are the third side from the end of planes, the last one of interleaved images.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "rounded to what is computed with"
    )]
    pub fn new(
        mean: &[f32],
        std: &[f32],
        scale: Option<f32>,
        layout: Layout,
    ) -> Result<Normalize, OpError> {
        let is_sound = !mean.is_empty()
            && mean.len() == std.len()
            && mean.iter().all(|mean| mean.is_finite())
            && std.iter().all(|std| std.is_normal() && *std > 0.0)
            && scale.is_none_or(f32::is_finite);
        if !is_sound {
            return Err(OpError::WrongKind {
                op: Normalize::NAME,
                expected: "as many means as deviations, all finite, deviations above zero"
                    .to_owned(),
                found: format!("means {mean:?}, deviations {std:?}, scale {scale:?}"),
            });
        }
        let lines = |scale: f64| {
            let line = |(&mean, &std): (&f32, &f32)| Line {
                factor: (scale / f64::from(std)) as f32,
                offset: (-f64::from(mean) / f64::from(std)) as f32,
            };
            mean.iter().zip(std).map(line).collect()
        };
        Ok(Normalize {
            lines: lines(scale.map_or(1.0, f64::from)),
            byte_lines: lines(scale.map_or(1.0 / 255.0, f64::from)),
            layout,
        })
    }

    fn expected(&self) -> String {
        let channels = self.lines.len();
        match self.layout {
            _ if channels == 1 => "uint8 or float32".to_owned(),
            Layout::Planes => {
                format!("uint8 or float32 [..., {channels}, height, width] of at most 8 sides")
            }
            Layout::Interleaved => format!("uint8 or float32 [..., {channels}] of at most 8 sides"),
        }
    }

    /// How many values of one channel follow each other; nothing where the channels are not those of the shape.
    fn run(&self, shape: &[usize]) -> Option<usize> {
        if self.lines.len() == 1 {
            return Some(1);
        }
        let behind = match self.layout {
            Layout::Planes => 2,
            Layout::Interleaved => 0,
        };
        let at = shape.len().checked_sub(behind + 1)?;
        (shape[at] == self.lines.len()).then(|| shape[at + 1..].iter().product())
    }
}

impl Op for Normalize {
    fn name(&self) -> &'static str {
        Normalize::NAME
    }

    fn output_spec(&self, input: &FieldSpec) -> Result<FieldSpec, OpError> {
        let wrong = || wrong_spec(Normalize::NAME, self.expected(), input);
        let dtype = dtype_of(Normalize::NAME, input, "uint8 or float32")?;
        if !matches!(dtype, DType::U8 | DType::F32) {
            return Err(wrong());
        }
        match input {
            FieldSpec::Array(form) => {
                self.run(form.shape()).ok_or_else(wrong)?;
                let form = TensorSpec::new(DType::F32, form.shape()).ok_or_else(wrong)?;
                Ok(FieldSpec::Array(form))
            }
            FieldSpec::Ragged { rank, .. } => Ok(FieldSpec::Ragged {
                dtype: DType::F32,
                rank: *rank,
            }),
            FieldSpec::Encoded(_) => Err(wrong()),
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
        check_length(Normalize::NAME, input)?;
        let wrong = || malformed(Normalize::NAME, self.expected(), input);
        let run = self.run(&input.shape).ok_or_else(wrong)?;
        if !matches!(input.dtype, DType::U8 | DType::F32) {
            return Err(wrong());
        }
        let to = out.array(Normalize::NAME, DType::F32, &input.shape)?;
        if input.dtype == DType::U8 {
            normalize_bytes(&self.byte_lines, run, input.bytes(), to);
        } else {
            normalize_floats(&self.lines, run, input.bytes(), to);
        }
        Ok(())
    }
}
