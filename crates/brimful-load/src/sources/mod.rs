//! One file per format.

pub mod hdf5;
