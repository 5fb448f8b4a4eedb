//! Which input columns, and with which weights, make an output column when a side is resized.

use std::ops::Range;

/// Bits after the point of a weight in whole numbers: weights of the bicubic filter can be a little above one.
pub(super) const WEIGHT_BITS: u32 = 14;

/// How a resize weighs neighbors. Both as PIL and as `torch.nn.functional.interpolate(antialias=True)` have them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Filter {
    /// A triangle.
    #[default]
    Bilinear,
    /// Keys' cubic with a = -0.5.
    Bicubic,
}

impl Filter {
    /// As users call it.
    pub const fn name(self) -> &'static str {
        match self {
            Filter::Bilinear => "bilinear",
            Filter::Bicubic => "bicubic",
        }
    }

    pub fn from_name(name: &str) -> Option<Filter> {
        [Filter::Bilinear, Filter::Bicubic]
            .into_iter()
            .find(|filter| filter.name() == name)
    }

    /// How far it reaches to either side, in columns of the coarser of input and output.
    const fn reach(self) -> f64 {
        match self {
            Filter::Bilinear => 1.0,
            Filter::Bicubic => 2.0,
        }
    }

    fn weight(self, distance: f64) -> f64 {
        const A: f64 = -0.5;
        let x = distance.abs();
        match self {
            Filter::Bilinear => (1.0 - x).max(0.0),
            Filter::Bicubic if x < 1.0 => ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0,
            Filter::Bicubic if x < 2.0 => (((x - 5.0) * x + 8.0) * x - 4.0) * A,
            Filter::Bicubic => 0.0,
        }
    }
}

/// The weights of one side, from `from` columns (or rows) to `to`.
#[derive(Clone, Debug, Default)]
pub struct Axis {
    filter: Filter,
    from: usize,
    to: usize,
    max_taps: usize,
    spans: Vec<Span>,
    /// The weights, as each kind of arithmetic takes them.
    floats: Vec<f32>,
    words: Vec<i16>,
}

/// What one output column is made of.
#[derive(Clone, Copy, Debug)]
struct Span {
    /// The first input column.
    first: u32,
    /// Where its weights begin.
    at: u32,
    taps: u32,
}

impl Axis {
    /// The longest side that is resized: the longest that a JPEG can have. It bounds the weights' memory.
    pub const MAX_LEN: usize = 65_535;

    /// Nothing where a side is zero or longer than [`Axis::MAX_LEN`].
    pub fn new(filter: Filter, from: usize, to: usize) -> Option<Axis> {
        let mut axis = Axis::default();
        axis.set(filter, from, to).then_some(axis)
    }

    /// Computes the weights unless they are there already, with the memory that it has. False where a side is zero or
    /// longer than [`Axis::MAX_LEN`].
    pub fn set(&mut self, filter: Filter, from: usize, to: usize) -> bool {
        if !(1..=Axis::MAX_LEN).contains(&from) || !(1..=Axis::MAX_LEN).contains(&to) {
            return false;
        }
        if !self.is_for(filter, from, to) {
            (self.filter, self.from, self.to) = (filter, from, to);
            self.fill();
        }
        true
    }

    pub fn is_for(&self, filter: Filter, from: usize, to: usize) -> bool {
        (self.filter, self.from, self.to) == (filter, from, to)
    }

    pub fn from(&self) -> usize {
        self.from
    }

    pub fn to(&self) -> usize {
        self.to
    }

    pub fn filter(&self) -> Filter {
        self.filter
    }

    /// The largest number of input columns that make one output column.
    pub fn max_taps(&self) -> usize {
        self.max_taps
    }

    pub fn held_bytes(&self) -> usize {
        self.spans.capacity() * size_of::<Span>()
            + self.floats.capacity() * 4
            + self.words.capacity() * 2
    }

    /// At the most, for such sides.
    pub fn bytes_for(filter: Filter, from: usize, to: usize) -> u64 {
        let (from, to) = (from as u64, to as u64);
        let reach = match filter {
            Filter::Bilinear => 1,
            Filter::Bicubic => 2,
        };
        // An output column has at most `2 * reach * max(1, from / to) + 2` taps. Vectors may have grown to twice that.
        let taps = 2 * reach * (from + to) + 2 * to;
        2 * (taps * 6 + to * size_of::<Span>() as u64)
    }

    pub(super) fn floats(&self) -> &[f32] {
        &self.floats
    }

    /// The same with [`WEIGHT_BITS`] bits after the point.
    pub(super) fn words(&self) -> &[i16] {
        &self.words
    }

    /// The first input column of output column `at`, and where its weights are.
    #[inline]
    pub(super) fn span(&self, at: usize) -> (usize, Range<usize>) {
        let Span { first, at, taps } = self.spans[at];
        (first as usize, at as usize..(at + taps) as usize)
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "sides are at most 65,535, taps follow from them, weights are small"
    )]
    fn fill(&mut self) {
        self.spans.clear();
        self.floats.clear();
        self.words.clear();
        self.max_taps = 0;
        let scale = self.from as f64 / self.to as f64;
        // Downwards the filter is as wide as an output column, so that every input column counts.
        let width = scale.max(1.0);
        let reach = self.filter.reach() * width;
        for at in 0..self.to {
            let center = (at as f64 + 0.5) * scale;
            let first = (center - reach + 0.5).max(0.0) as usize;
            let end = ((center + reach + 0.5) as usize).clamp(first + 1, self.from);
            let first = first.min(end - 1);
            let weight = |column: usize| self.filter.weight((column as f64 - center + 0.5) / width);
            let total: f64 = (first..end).map(weight).sum();
            let start = self.floats.len();
            // What rounding a weight takes away goes to the next one: all together stay one.
            let (mut sum, mut words) = (0.0, 0_i64);
            for column in first..end {
                let weight = weight(column) / total;
                self.floats.push(weight as f32);
                sum += weight;
                let word = (sum * f64::from(1 << WEIGHT_BITS)).round() as i64 - words;
                words += word;
                self.words.push(word as i16);
            }
            self.max_taps = self.max_taps.max(end - first);
            self.spans.push(Span {
                first: first as u32,
                at: start as u32,
                taps: (end - first) as u32,
            });
        }
    }
}
