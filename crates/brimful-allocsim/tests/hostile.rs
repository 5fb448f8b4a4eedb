//! Snapshots and traces that no process of PyTorch wrote: made into a trace and replayed without a panic.

use brimful_allocsim::agreement::agreement;
use brimful_allocsim::allocator::{FoundSegment, PoolId};
use brimful_allocsim::from_snapshot::EmptyCacheCalls;
use brimful_allocsim::replay::{Outcome, Setup, replay};
use brimful_allocsim::settings::AllocatorSettings;
use brimful_allocsim::snapshot::{
    Block, BlockState, PoolKind, Segment, Snapshot, TableIndex, TraceAction, TraceEntry,
};
use brimful_allocsim::trace::{Allocation, Event, InitialSegment, RecordedSegment, Trace};
use brimful_allocsim::version::TorchVersion;
use proptest::prelude::*;

const MIB: u64 = 1 << 20;
const VERSION: TorchVersion = TorchVersion::NEWEST_CHECKED;

const CONFS: [&str; 6] = [
    "",
    "expandable_segments:True",
    "expandable_segments:True,max_split_size_mb:21",
    "max_split_size_mb:21,roundup_power2_divisions:4",
    "garbage_collection_threshold:0.3,per_process_memory_fraction:0.5",
    "large_segment_size_mb:11,roundup_power2_divisions:8",
];

fn play(trace: &Trace, conf: &str, capacity: u64) -> Outcome {
    let settings = AllocatorSettings::parse(conf, VERSION).expect("valid settings");
    let setup = Setup {
        capacity,
        held: 0,
        settings,
        version: VERSION,
    };
    replay(trace, &setup)
}

fn play_everywhere(trace: &Trace) {
    assert_eq!(trace.check(), Ok(()));
    assert_eq!(Trace::from_bytes(&trace.to_bytes()).as_ref(), Ok(trace));
    for conf in CONFS {
        for capacity in [0, 64 * MIB, 1 << 40, u64::MAX] {
            let peaks = play(trace, conf, capacity).statistics;
            assert!(peaks.allocated.peak <= peaks.reserved.peak, "{conf}");
            assert!(peaks.requested.peak <= peaks.active.peak, "{conf}");
            assert!(peaks.reserved.peak <= capacity, "{conf}");
        }
        let settings = AllocatorSettings::parse(conf, VERSION).expect("valid settings");
        let _ = agreement(trace, &settings, VERSION);
    }
}

/// Sizes of every regime, and those at which arithmetic ends.
fn size() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 1..4096_u64,
        4 => (1..512_u64).prop_map(|n| n * 512),
        4 => (1..64_u64).prop_map(|n| n * MIB),
        1 => Just(0),
        1 => prop::sample::select(vec![1 << 49, (1 << 50) + 1, 1 << 62, u64::MAX - 1, u64::MAX]),
    ]
}

/// Few addresses, so that things meet; some at which addresses end.
fn address() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => (0..24_u64).prop_map(|n| 0x7f00_0000_0000 + n * MIB),
        1 => (0..4_u64).prop_map(|n| n * 512),
        1 => Just(u64::MAX - 2 * MIB),
        1 => Just(u64::MAX),
    ]
}

/// Pools that events name.
const PRIVATE_POOLS: [(u64, u64); 4] = [(0, 0), (0, 1), (1, 0), (1, 1)];

fn entry() -> impl Strategy<Value = TraceEntry> {
    let actions = vec![
        TraceAction::Alloc,
        TraceAction::Alloc,
        TraceAction::FreeRequested,
        TraceAction::FreeRequested,
        TraceAction::FreeCompleted,
        TraceAction::SegmentAlloc,
        TraceAction::SegmentFree,
        TraceAction::SegmentUnmap,
        TraceAction::OutOfMemory,
        TraceAction::Snapshot,
    ];
    (
        prop::sample::select(actions),
        address(),
        size(),
        0..2_u64,
        prop::option::of(0..PRIVATE_POOLS.len()),
    )
        .prop_map(|(action, address, size, stream, pool)| TraceEntry {
            action,
            address,
            size,
            stream,
            device_free: None,
            private_pool: pool.and_then(TableIndex::new),
            frame: None,
        })
}

fn segment() -> impl Strategy<Value = Segment> {
    let states = vec![
        BlockState::Inactive,
        BlockState::ActiveAllocated,
        BlockState::ActiveAwaitingFree,
    ];
    let block = (size(), size(), prop::sample::select(states), any::<bool>());
    (
        address(),
        size(),
        prop::sample::select(vec![PoolKind::Small, PoolKind::Large]),
        0..2_u64,
        prop::bool::weighted(0.1),
        prop::collection::vec(block, 0..5),
    )
        .prop_map(|(address, total_size, pool, stream, expandable, parts)| {
            let mut next = address;
            let mut blocks = Vec::new();
            for (size, requested_size, state, honest) in parts {
                let Some(end) = next.checked_add(size) else {
                    break;
                };
                blocks.push(Block {
                    address: next,
                    size,
                    requested_size: if honest { size } else { requested_size },
                    state,
                    frame: None,
                });
                next = end;
            }
            Segment {
                device: 0,
                address,
                total_size: total_size.min(u64::MAX - address),
                stream,
                pool,
                private_pool: (0, stream),
                expandable,
                blocks,
            }
        })
}

proptest! {
    #[test]
    fn any_snapshot_becomes_a_trace_that_plays(
        segments in prop::collection::vec(segment(), 0..6),
        entries in prop::collection::vec(entry(), 0..60),
    ) {
        let snapshot = Snapshot {
            segments,
            traces: vec![entries],
            private_pools: PRIVATE_POOLS.to_vec(),
            ..Snapshot::default()
        };
        for calls in [EmptyCacheCalls::Infer, EmptyCacheCalls::LeaveOut] {
            play_everywhere(&Trace::from_snapshot(&snapshot, 0, calls));
        }
    }

    #[test]
    fn any_trace_in_order_plays(
        requests in prop::collection::vec((size(), 0..3_u64, 0..3_u32, 0..8_u8, any::<prop::sample::Index>()), 1..80),
    ) {
        let mut trace = Trace::default();
        let mut live = Vec::new();
        for (requested, stream, pool, what, which) in requests {
            let pool = PoolId(pool);
            let event = match what {
                0..=2 => {
                    let number = trace.add(Allocation { requested, stream, pool, ..Allocation::default() });
                    live.push(number);
                    Event::Alloc(number)
                }
                3 if !live.is_empty() => {
                    Event::Free(live.swap_remove(which.index(live.len())))
                }
                4 if !live.is_empty() => {
                    let number = live.swap_remove(which.index(live.len()));
                    trace.events.push(Event::FreeRequested(number));
                    Event::FreeCompleted(number)
                }
                5 => Event::BeginCapture(pool),
                6 => Event::EndCapture(pool),
                7 => Event::ReleasePool(pool),
                _ => Event::EmptyCache,
            };
            trace.events.push(event);
        }
        play_everywhere(&trace);
    }
}

/// A trace that begins with one segment in which `live` of `(offset, block, requested)` are in use.
fn found(size: u64, live: &[(u64, u64, u64)]) -> Trace {
    let mut trace = Trace::default();
    let segment = FoundSegment {
        address: 0x7f00_0000_0000,
        size,
        stream: 0,
        small: false,
        pool: PoolId::DEFAULT,
    };
    let live = live
        .iter()
        .map(|&(offset, block, requested)| {
            trace.add(Allocation {
                address: segment.address + offset,
                requested,
                block,
                ..Allocation::default()
            })
        })
        .collect();
    trace.initial.push(InitialSegment { segment, live });
    trace
}

#[test]
fn blocks_asked_for_beyond_all_sizes_end_the_replay() {
    for block in [0, 2 * MIB] {
        let outcome = play(&found(20 * MIB, &[(0, block, u64::MAX)]), "", 1 << 40);
        let oom = outcome.oom.expect("no card has that much");
        assert_eq!((oom.event, oom.error.requested), (None, u64::MAX));
    }
}

#[test]
fn a_segment_without_bytes_is_no_segment() {
    let mut trace = found(0, &[]);
    trace.events.push(Event::EmptyCache);
    let statistics = play(&trace, "", 1 << 40).statistics;
    assert_eq!((statistics.reserved.peak, statistics.device_frees), (0, 0));
}

#[test]
fn what_max_split_size_keeps_whole_is_not_restored_in_parts() {
    // 200 MiB with a block in the middle: the run that was recorded had no such setting.
    let mut trace = found(200 * MIB, &[(50 * MIB, 2 * MIB, 2 * MIB)]);
    assert_eq!(
        play(&trace, "", 1 << 40).statistics.reserved.peak,
        200 * MIB
    );
    // Cached parts of it used to be given back alone here, under the block's feet.
    trace.alloc(250 * MIB, 0);
    trace.free(0);
    trace.events.push(Event::EmptyCache);
    let statistics = play(&trace, "max_split_size_mb:32", 300 * MIB).statistics;
    assert_eq!(statistics.reserved.peak, 270 * MIB);
    assert_eq!(statistics.allocated.current, 250 * MIB);
}

#[test]
fn expandable_segments_are_not_released_in_parts() {
    let mut trace = Trace::default();
    let blocks = [80, 80, 80, 20].map(|size| trace.alloc(size * MIB, 0));
    // The 80 MiB in the middle are unmapped to make room, and their neighbours still know where they were.
    trace.free(blocks[1]);
    let last = trace.alloc(100 * MIB, 0);
    for number in [blocks[0], blocks[2], blocks[3], last] {
        trace.free(number);
    }
    trace.alloc(240 * MIB, 0);
    let conf = "expandable_segments:True,max_split_size_mb:64";
    let statistics = play(&trace, conf, 300 * MIB).statistics;
    assert_eq!(statistics.ooms, 0);
    assert_eq!(statistics.allocated.current, 240 * MIB);
    assert_eq!(statistics.reserved.current, 240 * MIB);
}

#[test]
fn a_recorded_segment_beyond_all_addresses_is_not_used() {
    let mut trace = Trace::default();
    trace.segments.push(RecordedSegment {
        address: u64::MAX - MIB,
        size: 2 * MIB,
    });
    trace.events.push(Event::SegmentAlloc(0));
    trace.alloc(1000, 0);
    let result = agreement(&trace, &AllocatorSettings::default(), VERSION);
    assert_eq!((result.same_segments, result.additional_segments), (0, 1));
}

#[test]
fn a_long_burst_is_looked_at_once() {
    let entry = |action| TraceEntry {
        action,
        address: 4096,
        size: 2 * MIB,
        stream: 0,
        device_free: None,
        private_pool: None,
        frame: None,
    };
    let pair = [
        entry(TraceAction::SegmentFree),
        entry(TraceAction::SegmentUnmap),
    ];
    let snapshot = Snapshot {
        traces: vec![pair.repeat(200_000)],
        ..Snapshot::default()
    };
    let trace = Trace::from_snapshot(&snapshot, 0, EmptyCacheCalls::Infer);
    let calls = trace
        .events
        .iter()
        .filter(|event| **event == Event::EmptyCache);
    assert_eq!(calls.count(), 1);
}

#[test]
fn frames_that_many_events_share_are_looked_at_once() {
    const N_EVENTS: usize = 20_000;
    const N_FRAMES: usize = 100_000;
    // Dicts that are begun before the frames they will refer to.
    let mut program = b"}".repeat(N_EVENTS);
    program.extend(b"}q\x02\x8c\x08filename\x8c\x03a.cs0");
    program.extend(b"]q\x03(");
    program.extend(b"h\x02".repeat(N_FRAMES));
    program.extend(b"e0");
    for (slot, key) in [
        (4, "action"),
        (5, "alloc"),
        (6, "addr"),
        (7, "size"),
        (8, "frames"),
    ] {
        program.extend([0x8c, u8::try_from(key.len()).unwrap()]);
        program.extend(key.as_bytes());
        program.extend([b'q', slot, b'0']);
    }
    program.extend(b"(h\x04h\x05h\x06K\x01h\x07K\x01h\x08h\x03u0".repeat(N_EVENTS));
    program.extend(b"N.");
    let began = std::time::Instant::now();
    assert!(brimful_allocsim::snapshot::read(&program).is_err());
    // Each event with each frame would take minutes.
    assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
}
