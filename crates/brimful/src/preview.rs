//! The first samples of a dataset, as people look at them.

/// Documents of a block that are shown.
pub const MAX_DOCUMENTS: usize = 6;

/// Samples of a preview.
pub const MAX_SAMPLES: usize = 24;

/// A field of every sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreviewField {
    pub name: String,
    pub dtype: String,
    pub shape: Vec<usize>,
}

/// The first samples.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Preview {
    pub fields: Vec<PreviewField>,
    /// One value for each field.
    pub samples: Vec<Vec<PreviewValue>>,
}

/// A field of one sample.
#[derive(Clone, Debug, PartialEq)]
pub enum PreviewValue {
    Picture(Picture),
    /// The beginning of a block of tokens: a part of a document, and the documents that follow.
    Documents {
        texts: Vec<String>,
        /// Tokens of the block that are not among them.
        n_left_out: usize,
    },
    /// Some of its numbers, and what the others are like.
    Numbers(String),
}

/// A small picture of an array.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    pub png: Vec<u8>,
    pub width: u32,
    pub height: u32,
    /// The values that are black and white; `None` if they are the limits of the array's type.
    pub range: Option<(f64, f64)>,
}

/// A number in a few digits.
pub fn short_number(value: f64) -> String {
    if !value.is_finite() || value == 0.0 {
        return format!("{value}");
    }
    match value.abs() {
        size if !(1e-3..1e15).contains(&size) => format!("{value:.3e}"),
        size if size >= 1e4 => format!("{value:.0}"),
        _ => {
            let text = format!("{value:.4}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_few_digits() {
        let values = [
            0.0,
            3.0,
            -1.5,
            0.123_456,
            0.999_98,
            1e-7,
            123_456.7,
            1e300,
            f64::NAN,
        ];
        assert_eq!(
            values.map(short_number),
            [
                "0",
                "3",
                "-1.5",
                "0.1235",
                "1",
                "1.000e-7",
                "123457",
                "1.000e300",
                "NaN"
            ]
        );
    }
}
