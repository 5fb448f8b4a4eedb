//! Putting segments in place that were found in a running process.

use super::{Allocator, FoundSegment, Handle, MAX_SMALL_SIZE, RestoreError};
use crate::device::Device;

impl<D: Device> Allocator<D> {
    /// Puts a segment in place as it was found in a running process: `blocks` are the parts in use, by address, as
    /// `(address, size, requested)`. The handles are in their order. Fails when the device has no room for it, when
    /// a block lies outside of the segment or on its neighbour, or when it is a part of what is never split.
    pub fn restore(
        &mut self,
        segment: &FoundSegment,
        blocks: &[(u64, u64, u64)],
    ) -> Result<Vec<Handle>, RestoreError> {
        let end = segment
            .address
            .checked_add(segment.size)
            .ok_or(RestoreError::Layout)?;
        let mut at = segment.address;
        for &(address, size, requested) in blocks {
            let block_end = address.checked_add(size).ok_or(RestoreError::Layout)?;
            if address < at || block_end > end || size == 0 || requested > size {
                return Err(RestoreError::Layout);
            }
            at = block_end;
        }
        if segment.size == 0 {
            return Err(RestoreError::Layout);
        }
        let whole = blocks.iter().all(|(_, size, _)| *size == segment.size);
        if !whole
            && self
                .settings
                .max_split_size
                .is_some_and(|most| segment.size >= most)
        {
            // What is that large goes back to the device as a whole, wherever it is found.
            return Err(RestoreError::Split);
        }
        if !self.device.adopt(segment.address, segment.size) {
            return Err(RestoreError::NoRoom);
        }
        self.statistics.reserved.add(segment.size);
        let request = if segment.small {
            MAX_SMALL_SIZE
        } else {
            MAX_SMALL_SIZE + 1
        };
        let pool = self.pool_for(segment.pool, request);
        let rest = self.add_segment(pool, segment.stream, segment.address, segment.size);
        let mut handles = Vec::with_capacity(blocks.len());
        for &(address, size, requested) in blocks {
            let gap = address - self.arena.get(rest).address;
            if gap > 0 {
                let front = self.cut(rest, gap);
                self.insert_free(front);
            }
            let used = if self.arena.get(rest).size > size {
                self.cut(rest, size)
            } else {
                rest
            };
            let block = self.arena.get_mut(used);
            block.allocated = true;
            block.requested = requested;
            self.statistics.allocated.add(size);
            self.statistics.active.add(size);
            self.statistics.requested.add(requested);
            handles.push(Handle(used));
            if used == rest {
                return Ok(handles);
            }
        }
        self.insert_free(rest);
        Ok(handles)
    }

    /// [`Self::restore`] where segments of these settings look like the found one, and nothing otherwise: expandable
    /// segments, or a layout that contradicts itself.
    pub(crate) fn restore_if_plain(
        &mut self,
        segment: &FoundSegment,
        blocks: &[(u64, u64, u64)],
    ) -> Option<Vec<Handle>> {
        if self.settings.expandable_segments {
            return None;
        }
        self.restore(segment, blocks).ok()
    }
}
