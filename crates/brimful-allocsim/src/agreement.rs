//! How well the model agrees with a record: given only where the driver put new segments, does every allocation land
//! at the recorded address?

use crate::allocator::{Allocator, SegmentView};
use crate::device::Recorded;
use crate::replay::Player;
use crate::settings::AllocatorSettings;
use crate::trace::{Event, Trace};
use crate::version::TorchVersion;

/// Figures of a comparison.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Agreement {
    pub allocations: usize,
    /// Allocations that landed at the recorded address.
    pub same_address: usize,
    pub segments: usize,
    /// Recorded segments that the model asked for too: at that moment and with that size.
    pub same_segments: usize,
    /// Segments that the model asked for and the record does not have.
    pub additional_segments: usize,
    pub segment_frees: usize,
    /// Recorded segments given back that the model gave back at that moment too.
    pub same_segment_frees: usize,
    /// The layout at the end.
    pub final_segments: Vec<SegmentView>,
    pub peak_allocated: u64,
    pub peak_reserved: u64,
}

impl Agreement {
    /// Whether the model did what the record shows, without exception.
    pub fn is_exact(&self) -> bool {
        self.same_address == self.allocations
            && self.same_segments == self.segments
            && self.same_segment_frees == self.segment_frees
            && self.additional_segments == 0
    }
}

/// Replays a checked trace on the recorded segments and counts what agrees.
pub fn agreement(trace: &Trace, settings: &AllocatorSettings, version: TorchVersion) -> Agreement {
    let segments = trace.events.iter().filter_map(|event| match event {
        Event::SegmentAlloc(number) => trace.segments.get(*number as usize),
        _ => None,
    });
    let device = Recorded::new(segments.map(|segment| (segment.address, segment.size)));
    let mut player = Player::new(trace, Allocator::new(device, settings.clone(), version));
    let mut result = Agreement::default();
    if player.restore().is_err() {
        return result;
    }
    let mut left = player.allocator.device().left();
    // Frees of the model that the record has yet to show, and the other way round.
    let mut frees_ahead = 0_usize;
    for event in &trace.events {
        let frees = player.allocator.statistics().device_frees;
        match *event {
            Event::SegmentAlloc(_) => {
                result.segments += 1;
                continue;
            }
            Event::SegmentFree(_) => {
                result.segment_frees += 1;
                if frees_ahead > 0 {
                    frees_ahead -= 1;
                    result.same_segment_frees += 1;
                }
                continue;
            }
            _ => {}
        }
        if player.step(*event).is_err() {
            continue;
        }
        frees_ahead +=
            usize::try_from(player.allocator.statistics().device_frees - frees).unwrap_or(0);
        if let Event::Alloc(number) = *event {
            result.allocations += 1;
            let asked = left - player.allocator.device().left();
            left -= asked;
            // The record shows a segment just before the allocation that needed it.
            if result.same_segments + asked <= result.segments {
                result.same_segments += asked;
            }
            let found = player
                .handle(number)
                .map(|handle| player.allocator.address(handle));
            let recorded = trace
                .allocations
                .get(number as usize)
                .map(|allocation| allocation.address);
            result.same_address += usize::from(found == recorded);
        }
    }
    result.additional_segments = player.allocator.device().unexpected.len();
    result.final_segments = player.allocator.segments();
    result.peak_allocated = player.allocator.statistics().allocated.peak;
    result.peak_reserved = player.allocator.statistics().reserved.peak;
    result
}
