//! The arrays of a record batch, as its schema describes them.

use crate::array::{DType, Encoding};

/// An array of a record batch: its numbers among the nodes and among the buffers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node<T> {
    pub(super) form: T,
    pub(super) number: usize,
    pub(super) buffer: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layer {
    /// A struct of which one child is read.
    Struct,
    /// Elements per sample.
    Fixed(usize),
    /// From one offset to the next.
    Varying(Offsets),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaf {
    Number(DType),
    /// Bytes per element.
    Binary(usize),
    /// Eight to a byte.
    Bits,
    /// From one offset to the next.
    Varying {
        offsets: Offsets,
        encoding: Encoding,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offsets {
    Narrow,
    Wide,
}

impl Offsets {
    pub(super) const fn size(self) -> u64 {
        match self {
            Offsets::Narrow => 4,
            Offsets::Wide => 8,
        }
    }
}
