//! The segments of a replayed allocator, reduced to what a report draws.

use std::cmp::Reverse;

use brimful_allocsim::allocator::SegmentView;
use brimful_allocsim::replay::{Outcome, Setup, segments_at};
use brimful_allocsim::trace::Trace;
use brimful_report::json::{LayoutBlock, LayoutSegment, MemoryLayout};

const MAX_SEGMENTS: usize = 64;
const MAX_BLOCKS: usize = 256;

/// The segments where a request failed, or where most was reserved.
pub(crate) fn layout(trace: &Trace, setup: &Setup, outcome: &Outcome) -> MemoryLayout {
    let event = match &outcome.oom {
        Some(oom) => oom.event.unwrap_or(0),
        None => outcome.peak_reserved_at,
    };
    reduced(segments_at(trace, setup, event))
}

fn reduced(mut segments: Vec<SegmentView>) -> MemoryLayout {
    segments.sort_by_key(|segment| (Reverse(segment.size), segment.address));
    let mut layout = MemoryLayout::default();
    for (idx, segment) in segments.iter().enumerate() {
        layout.reserved_bytes = layout.reserved_bytes.saturating_add(segment.size);
        for (size, used) in &segment.blocks {
            if *used {
                layout.used_bytes = layout.used_bytes.saturating_add(*size);
            } else {
                layout.largest_free_bytes = layout.largest_free_bytes.max(*size);
            }
        }
        if idx < MAX_SEGMENTS {
            layout.segments.push(LayoutSegment {
                blocks: blocks(segment),
            });
        } else {
            layout.other_segments += 1;
            layout.other_bytes = layout.other_bytes.saturating_add(segment.size);
        }
    }
    layout
}

/// At most so many blocks: the smallest neighbors are merged until they fit.
fn blocks(segment: &SegmentView) -> Vec<LayoutBlock> {
    let mut blocks: Vec<LayoutBlock> = segment
        .blocks
        .iter()
        .map(|(bytes, used)| LayoutBlock {
            bytes: *bytes,
            used_bytes: if *used { *bytes } else { 0 },
        })
        .collect();
    // Each round merges what is smaller than a part of the segment, and the part grows.
    let mut least = segment.size / MAX_BLOCKS as u64;
    while blocks.len() > MAX_BLOCKS {
        blocks = merged(&blocks, least);
        least = least.saturating_mul(2).max(1);
    }
    blocks
}

fn merged(blocks: &[LayoutBlock], least: u64) -> Vec<LayoutBlock> {
    let mut out: Vec<LayoutBlock> = Vec::new();
    for block in blocks {
        match out.last_mut() {
            Some(before) if before.bytes < least && block.bytes < least => {
                before.bytes += block.bytes;
                before.used_bytes += block.used_bytes;
            }
            _ => out.push(*block),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(blocks: Vec<(u64, bool)>) -> SegmentView {
        SegmentView {
            address: 0,
            size: blocks.iter().map(|(size, _)| size).sum(),
            stream: 0,
            small: false,
            blocks,
        }
    }

    #[test]
    fn a_small_layout_is_kept_as_it_is() {
        let layout = reduced(vec![
            segment(vec![(4, true), (8, false)]),
            segment(vec![(20, false)]),
        ]);
        assert_eq!((layout.reserved_bytes, layout.used_bytes), (32, 4));
        assert_eq!(layout.largest_free_bytes, 20);
        let free = LayoutBlock {
            bytes: 20,
            used_bytes: 0,
        };
        assert_eq!(layout.segments[0].blocks, [free]);
        assert_eq!(layout.segments[1].blocks.len(), 2);
    }

    #[test]
    fn a_large_layout_is_bounded_and_loses_no_bytes() {
        let many: Vec<(u64, bool)> = (0..100_000)
            .map(|idx| (512 + idx % 7 * 512, idx % 3 == 0))
            .collect();
        let mut segments: Vec<SegmentView> =
            (0..500).map(|_| segment(vec![(2 << 20, true)])).collect();
        segments.push(segment(many.clone()));
        let layout = reduced(segments);
        assert_eq!(layout.segments.len(), MAX_SEGMENTS);
        assert_eq!(layout.other_segments, 501 - MAX_SEGMENTS as u64);
        assert!(
            layout
                .segments
                .iter()
                .all(|segment| segment.blocks.len() <= MAX_BLOCKS)
        );
        let first = &layout.segments[0].blocks;
        assert_eq!(
            first.iter().map(|b| b.bytes).sum::<u64>(),
            many.iter().map(|b| b.0).sum::<u64>()
        );
        assert!(first.iter().all(|block| block.used_bytes <= block.bytes));
    }
}
