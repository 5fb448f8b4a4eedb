//! One file per format.

pub mod npy;

mod problem;
#[cfg(test)]
mod testing;

pub use npy::Npy;
