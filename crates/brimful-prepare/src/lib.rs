//! Datasets to shuffled shards, once, inside a byte budget that is handed in.
//!
//! ```text
//!  inputs ──▶ splits ──▶ map task ──▶ run, ordered by key ─┐
//!                        map task ──▶ run, ordered by key ─┼─▶ shard task ──▶ shard ─┐
//!                        map task ──▶ run, ordered by key ─┘   (a range of keys)     ├─▶ manifest
//!                                                          └─▶ shard task ──▶ shard ─┘
//! ```
//!
//! Every sample has a key: a hash of the seed, its split and its number there. Ordered by keys, the samples are shuffled,
//! and nobody has to count them first. A task reads files and writes one file under its final name, or nothing; so tasks
//! can run anywhere, in any order and more than once. What comes out depends on the recipe and the inputs alone.
//!
//! Read first: [`Recipe`], then [`Preparation`], then [`Manifest`].

#![cfg_attr(
    test,
    expect(clippy::disallowed_methods, reason = "tests make files of all kinds")
)]

mod blocks;
mod budget;
mod coordinator;
mod digest;
mod error;
mod inputs;
mod keep;
mod local;
mod manifest;
mod map;
mod packing;
mod picture;
mod preparation;
mod preview;
mod recipe;
mod records;
mod run_file;
mod shard;
mod shard_arrow;
mod shard_tokens;
mod shard_writer;
mod skipped;
mod tasks;
#[cfg(test)]
mod tests;
mod work;

pub use coordinator::{Coordinator, CoordinatorState};
pub use error::PrepareError;
pub use local::{LocalSettings, PhaseName, PrepareProgress, Prepared, Preparing};
pub use manifest::{Manifest, ManifestField, ShardEntry, ShardFormat, file_sizes, read_manifest};
pub use preparation::Preparation;
pub use recipe::{OnSampleError, Recipe};
pub use skipped::SkippedSamples;
pub use tasks::{Estimate, Trial};
