//! What PyTorch tells of its allocator: the file of `torch.cuda.memory._dump_snapshot`.
//!
//! Reads the pickled dict of `torch.cuda.memory._snapshot()`, or the bare list of segments of
//! `torch.cuda.memory_snapshot()`, as torch 2.0 to 2.15 write them. Fields that are not used here
//! are not looked at; fields that older versions lack get the value that version implied, which is
//! written beside each. Nothing in the file is run, see [`crate::pickle`].

mod contents;
mod entries;
mod error;
mod fields;
mod frames;
mod reader;
mod settings;
#[cfg(test)]
mod tests;

pub use contents::{
    Block, BlockState, FailedAllocation, Frame, PoolKind, Segment, Snapshot, TableIndex,
    TraceAction, TraceEntry,
};
pub use error::SnapshotError;

use crate::pickle;
use entries::TraceEntries;

/// Reads a snapshot from the bytes of its file.
pub fn read(bytes: &[u8]) -> Result<Snapshot, SnapshotError> {
    let mut entries = TraceEntries::new(reader::max_records(bytes.len()));
    let document = pickle::read_taking(bytes, &pickle::limits_for(bytes.len()), &mut entries)?;
    reader::snapshot_of(&document, bytes.len(), entries)
}
