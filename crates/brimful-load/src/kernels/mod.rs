//! Loops over plain slices, vectorized for the processor that they run on.

mod decimal;
mod off;
mod surface;
mod voxels;

pub use off::{MeshLimit, OffError, parse_off};
pub use voxels::{Occupied, Placement, for_each_occupied, turn};
