//! Images of any size to one size.

use super::layout::{Layout, check_length, dtype_of, malformed, wrong_spec};
use super::{Op, OpError, Out, SampleKey, Scratch};
use crate::array::{DType, FieldSpec};
use crate::kernels;
use crate::kernels::filter::{Axis, Filter};
use crate::value::Value;

/// The longest side of images whose size is not known beforehand: it bounds the memory that a thread takes.
const MAX_RAGGED_LEN: usize = 16_384;

/// The most channels of those.
const MAX_CHANNELS: usize = 4;

/// Antialiased, as PIL's `resize` and torch's `interpolate(antialias=True)`: bytes differ by one at the most.
#[derive(Debug)]
pub struct Resize {
    height: usize,
    width: usize,
    filter: Filter,
    layout: Layout,
    channels: usize,
    /// The weights, where all images are of one size.
    known: Option<(Axis, Axis)>,
}

impl Resize {
    const NAME: &'static str = "resize";

    /// For what comes in; of ragged images of three sides, `channels` is the one that is not height or width.
    pub fn new(
        (height, width): (usize, usize),
        filter: Filter,
        layout: Layout,
        channels: usize,
        input: &FieldSpec,
    ) -> Result<Resize, OpError> {
        let sides = 1..=Axis::MAX_LEN;
        if !sides.contains(&height) || !sides.contains(&width) {
            return Err(OpError::WrongKind {
                op: Resize::NAME,
                expected: format!("a size of 1 to {} pixels a side", Axis::MAX_LEN),
                found: format!("{height} x {width}"),
            });
        }
        let mut resize = Resize {
            height,
            width,
            filter,
            layout,
            channels,
            known: None,
        };
        resize.output_spec(input)?;
        if let FieldSpec::Array(form) = input {
            resize.known = layout.sides(form.shape()).and_then(|sides| {
                Some((
                    Axis::new(filter, sides.height, height)?,
                    Axis::new(filter, sides.width, width)?,
                ))
            });
        }
        Ok(resize)
    }

    /// The weights for images of that size: those that are known, or others that are made in `rows` and `columns`.
    fn axes<'a>(
        &'a self,
        (height, width): (usize, usize),
        rows: &'a mut Axis,
        columns: &'a mut Axis,
    ) -> Option<(&'a Axis, &'a Axis)> {
        match &self.known {
            Some((rows, columns)) if (rows.from(), columns.from()) == (height, width) => {
                Some((rows, columns))
            }
            _ => {
                let is_short = height.max(width) <= MAX_RAGGED_LEN;
                let is_set = is_short
                    && rows.set(self.filter, height, self.height)
                    && columns.set(self.filter, width, self.width);
                is_set.then_some((rows, columns))
            }
        }
    }
}

impl Op for Resize {
    fn name(&self) -> &'static str {
        Resize::NAME
    }

    fn output_spec(&self, input: &FieldSpec) -> Result<FieldSpec, OpError> {
        let expected = "uint8 or float32";
        let dtype = dtype_of(Resize::NAME, input, self.layout.expected())?;
        if !matches!(dtype, DType::U8 | DType::F32) {
            return Err(wrong_spec(Resize::NAME, expected, input));
        }
        if let FieldSpec::Array(form) = input
            && let Some(sides) = self.layout.sides(form.shape())
            && sides.height.max(sides.width) > Axis::MAX_LEN
        {
            let expected = format!("sides of at most {}", Axis::MAX_LEN);
            return Err(wrong_spec(Resize::NAME, expected, input));
        }
        let size = (self.height, self.width);
        self.layout
            .sized_spec(Resize::NAME, input, size, self.channels)
    }

    fn scratch_bytes(&self, input: &FieldSpec) -> u64 {
        let (sides, dtype, is_known) = match input {
            FieldSpec::Array(form) => {
                let Some(sides) = self.layout.sides(form.shape()) else {
                    return 0;
                };
                let size = (sides.height, sides.width, sides.channels);
                (size, form.dtype(), true)
            }
            FieldSpec::Ragged { dtype, .. } => {
                let channels = match self.layout {
                    Layout::Planes => 1,
                    Layout::Interleaved => MAX_CHANNELS,
                };
                ((MAX_RAGGED_LEN, MAX_RAGGED_LEN, channels), *dtype, false)
            }
            FieldSpec::Encoded(_) => return 0,
        };
        let (height, width, channels) = sides;
        let room = kernels::resize::room_bytes(
            self.filter,
            dtype == DType::F32,
            (height, width * channels),
            (self.height, self.width * channels),
        );
        let weights = if is_known {
            0
        } else {
            Axis::bytes_for(self.filter, height, self.height)
                + Axis::bytes_for(self.filter, width, self.width)
        };
        room + weights
    }

    fn apply(
        &self,
        _key: SampleKey,
        input: &Value,
        mut out: Out<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), OpError> {
        check_length(Resize::NAME, input)?;
        let expected = || malformed(Resize::NAME, self.layout.expected(), input);
        let sides = self.layout.sides(&input.shape).ok_or_else(expected)?;
        let shape = self
            .layout
            .with_size(&input.shape, (self.height, self.width))
            .ok_or_else(expected)?;
        let Scratch {
            floats,
            more_floats,
            words,
            more_words,
            rows,
            columns,
            ..
        } = scratch;
        let size = (sides.height, sides.width);
        let (rows, columns) = self.axes(size, rows, columns).ok_or_else(|| {
            let expected = format!("images of at most {MAX_RAGGED_LEN} pixels a side");
            malformed(Resize::NAME, expected, input)
        })?;
        if self.known.is_none() && sides.channels > MAX_CHANNELS {
            let expected = format!("images of at most {MAX_CHANNELS} channels");
            return Err(malformed(Resize::NAME, expected, input));
        }
        let resize = kernels::resize::Resize {
            rows,
            columns,
            channels: sides.channels,
        };
        let from = input.bytes();
        match input.dtype {
            DType::U8 => {
                let to = out.array(Resize::NAME, DType::U8, shape.as_slice())?;
                resize.bytes(from, to, [words, more_words]);
            }
            DType::F32 => {
                let to = out.array(Resize::NAME, DType::F32, shape.as_slice())?;
                resize.floats(from, to, [floats, more_floats]);
            }
            _ => return Err(malformed(Resize::NAME, "uint8 or float32", input)),
        }
        Ok(())
    }
}
