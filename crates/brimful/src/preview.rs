//! The first samples of a dataset, as people look at them.

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
    /// The values that are black and white; nothing where they are those of the array's type.
    pub range: Option<(f64, f64)>,
}
