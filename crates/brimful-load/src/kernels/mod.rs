//! Loops over plain slices, vectorized for the processor that they run on.
//!
//! Nothing here checks what it is given beyond its own loops: the ops do, before they call. Only OFF files are parsed
//! here, and are checked where they are read.

#![expect(
    clippy::inline_always,
    reason = "what is not inlined is not compiled for the processor"
)]

mod arithmetic;
pub mod cast;
mod decimal;
pub mod filter;
pub mod flip;
pub mod normalize;
mod off;
pub mod permute;
pub mod resize;
#[cfg(test)]
mod resize_tests;
mod surface;
mod transpose;
mod voxels;

pub use off::{MeshLimit, OffError, parse_off};
pub use voxels::{Occupied, Placement, for_each_occupied, rotate};
