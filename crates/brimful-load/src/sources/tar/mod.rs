//! WebDataset: tar archives in which the members of a sample follow each other and share their name up to the first dot.

mod members;
mod shards;

pub use shards::{TarField, Tars};
