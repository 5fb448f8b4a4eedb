//! Which sides of an array are an image's height, width and channels.

use super::OpError;
use crate::array::{DType, FieldSpec, TensorSpec};
use crate::value::Value;

/// Most sides of an array that ops work on.
pub(super) const MAX_DIMENSIONS: usize = crate::kernels::permute::MAX_DIMENSIONS;

/// How images lie in an array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Layout {
    /// `[…, height, width]`: one plane after the other, as torch has them.
    #[default]
    Planes,
    /// `[…, height, width, channels]`: as decoded images are.
    Interleaved,
}

/// The sides of an array of images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ImageShape {
    /// All sides before the height.
    pub(super) images: usize,
    pub(super) height: usize,
    pub(super) width: usize,
    /// Side by side; 1 for planes.
    pub(super) channels: usize,
}

/// A shape on the stack: none is allocated for each sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct InlineShape {
    sides: [usize; MAX_DIMENSIONS],
    rank: usize,
}

impl InlineShape {
    /// Nothing where there are more than [`MAX_DIMENSIONS`].
    pub(super) fn new(shape: &[usize]) -> Option<InlineShape> {
        let mut sides = [0; MAX_DIMENSIONS];
        sides.get_mut(..shape.len())?.copy_from_slice(shape);
        Some(InlineShape {
            sides,
            rank: shape.len(),
        })
    }

    pub(super) fn as_slice(&self) -> &[usize] {
        &self.sides[..self.rank]
    }

    pub(super) fn as_mut_slice(&mut self) -> &mut [usize] {
        &mut self.sides[..self.rank]
    }
}

impl Layout {
    pub const fn name(self) -> &'static str {
        match self {
            Layout::Planes => "planes",
            Layout::Interleaved => "interleaved",
        }
    }

    pub fn from_name(name: &str) -> Option<Layout> {
        [Layout::Planes, Layout::Interleaved]
            .into_iter()
            .find(|layout| layout.name() == name)
    }

    /// The sides of the image itself, at the end of a shape.
    const fn own_sides(self) -> usize {
        match self {
            Layout::Planes => 2,
            Layout::Interleaved => 3,
        }
    }

    /// What [`Layout::sides`] takes, in words.
    pub(super) const fn expected(self) -> &'static str {
        match self {
            Layout::Planes => "an array [..., height, width] of 2 to 8 sides, none of them zero",
            Layout::Interleaved => {
                "an array [..., height, width, channels] of 3 to 8 sides, none of them zero"
            }
        }
    }

    /// Nothing where the shape is not one of images, or a side is zero.
    pub(super) fn sides(self, shape: &[usize]) -> Option<ImageShape> {
        if shape.len() > MAX_DIMENSIONS || shape.contains(&0) {
            return None;
        }
        let (before, own) = shape.split_at_checked(shape.len().checked_sub(self.own_sides())?)?;
        let images = before
            .iter()
            .try_fold(1_usize, |images, &side| images.checked_mul(side))?;
        Some(ImageShape {
            images,
            height: own[0],
            width: own[1],
            channels: own.get(2).copied().unwrap_or(1),
        })
    }

    /// The same shape with another height and width.
    pub(super) fn with_size(
        self,
        shape: &[usize],
        (height, width): (usize, usize),
    ) -> Option<InlineShape> {
        let mut shape = InlineShape::new(shape)?;
        let start = shape.rank.checked_sub(self.own_sides())?;
        shape.sides[start..start + 2].copy_from_slice(&[height, width]);
        Some(shape)
    }

    /// Whether arrays of so many sides are images.
    pub(super) fn fits(self, rank: usize) -> bool {
        (self.own_sides()..=MAX_DIMENSIONS).contains(&rank)
    }

    /// What an op makes that gives all images one size: of ragged images of three sides, `third` is the one that is not
    /// height or width.
    pub(super) fn sized_spec(
        self,
        op: &'static str,
        input: &FieldSpec,
        (height, width): (usize, usize),
        third: usize,
    ) -> Result<FieldSpec, OpError> {
        let dtype = dtype_of(op, input, self.expected())?;
        let shape = match input {
            FieldSpec::Array(form) => self
                .sides(form.shape())
                .and_then(|_| self.with_size(form.shape(), (height, width)))
                .map(|shape| shape.as_slice().to_vec()),
            FieldSpec::Ragged { rank: 2, .. } if self == Layout::Planes => {
                Some(vec![height, width])
            }
            FieldSpec::Ragged { rank: 3, .. } => Some(match self {
                Layout::Planes => vec![third, height, width],
                Layout::Interleaved => vec![height, width, third],
            }),
            FieldSpec::Ragged { .. } | FieldSpec::Encoded(_) => None,
        };
        shape
            .and_then(|shape| TensorSpec::new(dtype, shape))
            .map(FieldSpec::Array)
            .ok_or_else(|| wrong_spec(op, self.expected(), input))
    }
}

pub(super) fn wrong_spec(
    op: &'static str,
    expected: impl Into<String>,
    found: &FieldSpec,
) -> OpError {
    OpError::WrongKind {
        op,
        expected: expected.into(),
        found: found.to_string(),
    }
}

pub(super) fn malformed(op: &'static str, expected: impl Into<String>, found: &Value) -> OpError {
    OpError::Malformed {
        op,
        expected: expected.into(),
        found: format!("{} {:?}", found.dtype, found.shape),
    }
}

/// The type of an array's elements, or the error that it is none.
pub(super) fn dtype_of(
    op: &'static str,
    input: &FieldSpec,
    expected: &'static str,
) -> Result<DType, OpError> {
    match input {
        FieldSpec::Array(form) => Ok(form.dtype()),
        FieldSpec::Ragged { dtype, .. } => Ok(*dtype),
        FieldSpec::Encoded(_) => Err(wrong_spec(op, expected, input)),
    }
}

/// An error unless a value has as many bytes as its shape says.
pub(super) fn check_length(op: &'static str, input: &Value) -> Result<(), OpError> {
    let bytes = input
        .shape
        .iter()
        .try_fold(input.dtype.size(), |bytes, &side| bytes.checked_mul(side));
    let found = input.bytes().len();
    if bytes == Some(found) {
        Ok(())
    } else {
        Err(OpError::Malformed {
            op,
            expected: format!("the bytes of {} {:?}", input.dtype, input.shape),
            found: format!("{found} bytes"),
        })
    }
}
