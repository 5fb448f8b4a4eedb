//! What a field of a sample looks like.

use std::fmt;

/// The type of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    Bool,
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F16,
    BF16,
    F32,
    F64,
}

impl DType {
    pub const ALL: [DType; 13] = [
        DType::Bool,
        DType::U8,
        DType::I8,
        DType::U16,
        DType::I16,
        DType::U32,
        DType::I32,
        DType::U64,
        DType::I64,
        DType::F16,
        DType::BF16,
        DType::F32,
        DType::F64,
    ];

    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            DType::Bool | DType::U8 | DType::I8 => 1,
            DType::U16 | DType::I16 | DType::F16 | DType::BF16 => 2,
            DType::U32 | DType::I32 | DType::F32 => 4,
            DType::U64 | DType::I64 | DType::F64 => 8,
        }
    }

    /// As NumPy and torch call it.
    pub const fn name(self) -> &'static str {
        match self {
            DType::Bool => "bool",
            DType::U8 => "uint8",
            DType::I8 => "int8",
            DType::U16 => "uint16",
            DType::I16 => "int16",
            DType::U32 => "uint32",
            DType::I32 => "int32",
            DType::U64 => "uint64",
            DType::I64 => "int64",
            DType::F16 => "float16",
            DType::BF16 => "bfloat16",
            DType::F32 => "float32",
            DType::F64 => "float64",
        }
    }

    pub fn from_name(name: &str) -> Option<DType> {
        DType::ALL.into_iter().find(|dtype| dtype.name() == name)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// An element type and a shape whose bytes are known to fit into memory's addresses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorSpec {
    dtype: DType,
    shape: Vec<usize>,
    bytes: usize,
}

impl TensorSpec {
    /// Nothing where the bytes of that shape cannot be counted: shapes come out of files.
    pub fn new(dtype: DType, shape: impl Into<Vec<usize>>) -> Option<TensorSpec> {
        let shape = shape.into();
        let bytes = shape
            .iter()
            .try_fold(dtype.size(), |bytes, &side| bytes.checked_mul(side))
            .filter(|&bytes| isize::try_from(bytes).is_ok())?;
        Some(TensorSpec {
            dtype,
            shape,
            bytes,
        })
    }

    pub fn dtype(&self) -> DType {
        self.dtype
    }

    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn elements(&self) -> usize {
        self.bytes / self.dtype.size()
    }
}

impl fmt::Display for TensorSpec {
    /// `uint8 3x640x480`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.dtype)?;
        for (at, side) in self.shape.iter().enumerate() {
            let between = if at == 0 { ' ' } else { 'x' };
            write!(f, "{between}{side}")?;
        }
        Ok(())
    }
}

/// What bytes hold that still have to be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// A JPEG, PNG or WebP file.
    Image,
    /// An OFF file.
    Mesh,
    /// UTF-8.
    Text,
    /// Nobody said.
    Unknown,
}

/// What is known of a field before any sample is read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FieldSpec {
    /// The same form in all samples: it can be collated.
    Array(TensorSpec),
    /// An array whose shape differs from sample to sample.
    Ragged { dtype: DType, rank: usize },
    /// Bytes to be decoded.
    Encoded(Encoding),
}

impl fmt::Display for FieldSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FieldSpec::Array(form) => form.fmt(f),
            FieldSpec::Ragged { dtype, rank } => write!(f, "{dtype} of {rank} varying dimensions"),
            FieldSpec::Encoded(Encoding::Image) => f.write_str("an image file"),
            FieldSpec::Encoded(Encoding::Mesh) => f.write_str("a mesh file"),
            FieldSpec::Encoded(Encoding::Text) => f.write_str("text"),
            FieldSpec::Encoded(Encoding::Unknown) => f.write_str("bytes"),
        }
    }
}

/// A named part of every sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub name: String,
    pub spec: FieldSpec,
}
