//! A part of each image, of one size.

use super::layout::{Layout, check_length, malformed, wrong_spec};
use super::{Op, OpError, Out, SampleKey, Scratch};
use crate::array::FieldSpec;
use crate::value::Value;

/// Where a crop is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CropAnchor {
    /// As far from the left as from the right, and so with top and bottom; half a pixel goes to the left and the top.
    Center,
    /// With so many pixels above it and to its left.
    At { top: usize, left: usize },
    /// Anywhere, each place as often.
    Random,
}

/// A rectangle of each image.
#[derive(Debug)]
pub struct Crop {
    number: u64,
    height: usize,
    width: usize,
    place: CropAnchor,
    layout: Layout,
    channels: usize,
}

impl Crop {
    const NAME: &'static str = "crop";

    /// `number` is its place in the pipeline; of ragged images of three sides, `channels` is the one that is not height
    /// or width.
    pub fn new(
        number: u64,
        (height, width): (usize, usize),
        place: CropAnchor,
        layout: Layout,
        channels: usize,
    ) -> Crop {
        Crop {
            number,
            height,
            width,
            place,
            layout,
            channels,
        }
    }

    fn expected(&self) -> String {
        let (top, left) = match self.place {
            CropAnchor::At { top, left } => (top, left),
            CropAnchor::Center | CropAnchor::Random => (0, 0),
        };
        format!(
            "images of at least {} x {} pixels",
            top.saturating_add(self.height),
            left.saturating_add(self.width)
        )
    }

    /// The first row and column; nothing where the image is too small.
    fn corner(&self, key: SampleKey, height: usize, width: usize) -> Option<(usize, usize)> {
        let (below, right) = (
            height.checked_sub(self.height)?,
            width.checked_sub(self.width)?,
        );
        match self.place {
            CropAnchor::Center => Some((below / 2, right / 2)),
            CropAnchor::At { top, left } => (top <= below && left <= right).then_some((top, left)),
            CropAnchor::Random => Some((
                below_or_at(key.draw(self.number, 0), below),
                below_or_at(key.draw(self.number, 1), right),
            )),
        }
    }
}

/// A number of `0..=most`, each as often, from 64 random bits.
fn below_or_at(bits: u64, most: usize) -> usize {
    let wide = u128::from(bits) * (most as u128 + 1);
    usize::try_from(wide >> 64).expect("below a number of usize")
}

impl Op for Crop {
    fn name(&self) -> &'static str {
        Crop::NAME
    }

    fn output_spec(&self, input: &FieldSpec) -> Result<FieldSpec, OpError> {
        if self.height == 0 || self.width == 0 {
            return Err(OpError::WrongKind {
                op: Crop::NAME,
                expected: "a size of at least one pixel".to_owned(),
                found: format!("{} x {}", self.height, self.width),
            });
        }
        if let FieldSpec::Array(form) = input
            && let Some(sides) = self.layout.sides(form.shape())
        {
            let any = SampleKey {
                seed: 0,
                epoch: 0,
                index: 0,
            };
            if self.corner(any, sides.height, sides.width).is_none() {
                return Err(wrong_spec(Crop::NAME, self.expected(), input));
            }
        }
        let size = (self.height, self.width);
        self.layout
            .sized_spec(Crop::NAME, input, size, self.channels)
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
        check_length(Crop::NAME, input)?;
        let expected = || malformed(Crop::NAME, self.layout.expected(), input);
        let sides = self.layout.sides(&input.shape).ok_or_else(expected)?;
        let shape = self
            .layout
            .with_size(&input.shape, (self.height, self.width))
            .ok_or_else(expected)?;
        let (top, left) = self
            .corner(key, sides.height, sides.width)
            .ok_or_else(|| malformed(Crop::NAME, self.expected(), input))?;
        let to = out.array(Crop::NAME, input.dtype, shape.as_slice())?;
        let pixel = input.dtype.size() * sides.channels;
        let row_from = sides.width * pixel;
        let row_to = self.width * pixel;
        if row_to == 0 || self.height == 0 {
            return Ok(());
        }
        let images = input.bytes().chunks_exact(sides.height * row_from);
        for (from, to) in images.zip(to.chunks_exact_mut(self.height * row_to)) {
            let rows = from.chunks_exact(row_from).skip(top);
            for (from, to) in rows.zip(to.chunks_exact_mut(row_to)) {
                to.copy_from_slice(&from[left * pixel..left * pixel + row_to]);
            }
        }
        Ok(())
    }
}
