//! What a shard is written by.

use crate::error::PrepareError;
use crate::manifest::ShardEntry;

/// Writes records in order.
pub(crate) trait ShardWriter {
    fn write(&mut self, record: &[u8]) -> Result<(), PrepareError>;

    /// Makes the shard durable and gives it its name.
    fn finish(self: Box<Self>) -> Result<ShardEntry, PrepareError>;
}
