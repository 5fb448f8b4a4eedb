//! Snapshots put together from pickle instructions: as torch writes them, and damaged ones.

use super::*;

// Pickles are programs that can be put together: each of these leaves one value on the stack.

fn int(value: i64) -> Vec<u8> {
    [&b"\x8a\x08"[..], &value.to_le_bytes()].concat()
}

fn text(text: &str) -> Vec<u8> {
    let len = u32::try_from(text.len()).unwrap();
    [b"X", &len.to_le_bytes()[..], text.as_bytes()].concat()
}

fn list(items: &[Vec<u8>]) -> Vec<u8> {
    [b"](", items.concat().as_slice(), b"e"].concat()
}

fn pair(first: i64, second: i64) -> Vec<u8> {
    [int(first), int(second), b"\x86".to_vec()].concat()
}

fn dict(entries: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let entries: Vec<Vec<u8>> = entries
        .iter()
        .map(|(key, value)| [text(key), value.clone()].concat())
        .collect();
    [b"}(", entries.concat().as_slice(), b"u"].concat()
}

/// A dict of `entries`, with those of `changes` set after them.
fn changed(entries: &[(&str, Vec<u8>)], changes: &[(&str, Vec<u8>)]) -> Vec<u8> {
    dict(&[entries, changes].concat())
}

fn read_program(program: &[u8]) -> Result<Snapshot, SnapshotError> {
    read(&[program, b"."].concat())
}

fn block(changes: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let entries = [
        ("address", int(4096)),
        ("size", int(512)),
        ("requested_size", int(500)),
        ("state", text("active_allocated")),
        ("frames", list(&[])),
    ];
    changed(&entries, changes)
}

fn segment(changes: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let entries = [
        ("device", int(0)),
        ("address", int(4096)),
        ("total_size", int(2_097_152)),
        ("stream", int(0)),
        ("segment_type", text("small")),
        ("segment_pool_id", pair(0, 0)),
        ("is_expandable", b"\x89".to_vec()),
        ("blocks", list(&[block(&[])])),
    ];
    changed(&entries, changes)
}

fn event(changes: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let entries = [
        ("action", text("alloc")),
        ("addr", int(4096)),
        ("size", int(512)),
        ("stream", int(0)),
        ("time_us", int(17)),
    ];
    changed(&entries, changes)
}

fn snapshot(segments: &[Vec<u8>], events: &[Vec<u8>]) -> Vec<u8> {
    dict(&[
        ("segments", list(segments)),
        ("device_traces", list(&[list(events)])),
    ])
}

fn frame(file: &str, line: i64, name: &str) -> Vec<u8> {
    dict(&[
        ("name", text(name)),
        ("filename", text(file)),
        ("line", int(line)),
    ])
}

fn check_error(program: &[u8], expected: &str) {
    let error = read_program(program).unwrap_err();
    assert_eq!(error.to_string(), expected);
    assert!(!error.hint().is_empty());
}

fn check_segment_error(changes: &[(&str, Vec<u8>)], expected: &str) {
    check_error(&snapshot(&[segment(&[]), segment(changes)], &[]), expected);
}

fn check_event_error(changes: &[(&str, Vec<u8>)], expected: &str) {
    check_error(&snapshot(&[], &[event(&[]), event(changes)]), expected);
}

#[test]
fn segments_blocks_and_events() {
    let program = snapshot(
        &[segment(&[
            ("device", int(3)),
            ("segment_type", text("large")),
            ("segment_pool_id", pair(0, 2)),
            ("is_expandable", b"\x88".to_vec()),
            ("stream", int(94_137)),
            ("a field of tomorrow", b"N".to_vec()),
        ])],
        &[
            event(&[("pool_id", pair(1, 0))]),
            event(&[("action", text("annotate"))]),
        ],
    );
    let snapshot = read_program(&program).unwrap();
    assert_eq!(
        snapshot.segments,
        [Segment {
            device: 3,
            address: 4096,
            total_size: 2_097_152,
            stream: 94_137,
            pool: PoolKind::Large,
            private_pool: (0, 2),
            expandable: true,
            blocks: vec![Block {
                address: 4096,
                size: 512,
                requested_size: 500,
                state: BlockState::ActiveAllocated,
                frame: None,
            }],
        }]
    );
    let alloc = TraceEntry {
        action: TraceAction::Alloc,
        address: 4096,
        size: 512,
        stream: 0,
        device_free: None,
        private_pool: TableIndex::new(0),
        frame: None,
    };
    let annotate = TraceEntry {
        action: TraceAction::Other(0),
        private_pool: None,
        ..alloc
    };
    assert_eq!(snapshot.traces, [[alloc, annotate]]);
    assert_eq!(snapshot.private_pools, [(1, 0)]);
    assert_eq!(snapshot.other_actions, ["annotate"]);
    assert_eq!(snapshot.settings, None);
}

#[test]
fn every_action_torch_writes() {
    let actions = [
        ("alloc", TraceAction::Alloc),
        ("free_requested", TraceAction::FreeRequested),
        ("free_completed", TraceAction::FreeCompleted),
        ("segment_alloc", TraceAction::SegmentAlloc),
        ("segment_free", TraceAction::SegmentFree),
        ("segment_map", TraceAction::SegmentMap),
        ("segment_unmap", TraceAction::SegmentUnmap),
        ("snapshot", TraceAction::Snapshot),
        ("oom", TraceAction::OutOfMemory),
    ];
    for (name, action) in actions {
        let program = snapshot(&[], &[event(&[("action", text(name))])]);
        assert_eq!(read_program(&program).unwrap().traces[0][0].action, action);
    }
}

#[test]
fn an_oom_has_free_bytes_and_no_address() {
    let oom = dict(&[
        ("action", text("oom")),
        ("device_free", int(12_345)),
        ("size", int(1 << 40)),
        ("stream", int(0)),
    ]);
    let snapshot = read_program(&snapshot(&[], &[oom])).unwrap();
    let entry = snapshot.traces[0][0];
    assert_eq!(entry.action, TraceAction::OutOfMemory);
    assert_eq!((entry.address, entry.size), (0, 1 << 40));
    let failure = snapshot.last_failure(0).unwrap();
    assert_eq!(failure.device_free, Some(12_345));
    assert_eq!(failure.size, 1 << 40);
}

#[test]
fn devices_without_events_are_devices() {
    let traces = list(&vec![list(&[]); 8]);
    let program = dict(&[("segments", list(&[])), ("device_traces", traces)]);
    assert_eq!(read_program(&program).unwrap().traces.len(), 8);
}

#[test]
fn a_bare_list_of_segments_is_a_snapshot() {
    let snapshot = read_program(&list(&[segment(&[]), segment(&[])])).unwrap();
    assert_eq!(snapshot.segments.len(), 2);
    assert!(snapshot.traces.is_empty());
}

#[test]
fn old_blocks_have_no_address_and_keep_their_size_in_a_history() {
    let newest = dict(&[
        ("addr", int(8192)),
        ("real_size", int(300)),
        ("frames", list(&[frame("/home/u/train.py", 17, "step")])),
    ]);
    let old = dict(&[
        ("device", int(0)),
        ("address", int(8192)),
        ("total_size", int(2048)),
        ("segment_type", text("small")),
        (
            "blocks",
            list(&[
                dict(&[
                    ("size", int(512)),
                    ("state", text("active_allocated")),
                    ("history", list(&[newest])),
                ]),
                dict(&[("size", int(1024)), ("state", text("active_awaiting_free"))]),
                dict(&[("size", int(512)), ("state", text("inactive"))]),
            ]),
        ),
    ]);
    let snapshot = read_program(&snapshot(&[old], &[])).unwrap();
    let segment = &snapshot.segments[0];
    assert_eq!((segment.stream, segment.private_pool), (0, (0, 0)));
    let blocks: Vec<(u64, u64, BlockState)> = segment
        .blocks
        .iter()
        .map(|block| (block.address, block.requested_size, block.state))
        .collect();
    assert_eq!(
        blocks,
        [
            (8192, 300, BlockState::ActiveAllocated),
            (8704, 1024, BlockState::ActiveAwaitingFree),
            (9728, 512, BlockState::Inactive),
        ]
    );
    assert_eq!(segment.blocks[0].frame, TableIndex::new(0));
    assert_eq!(snapshot.torch_hint, Some("2.0 or older"));
}

#[test]
fn addresses_use_all_64_bits() {
    // As Python writes 2**64 - 2**20, and as a cast to signed leaves it.
    let unsigned = b"\x8a\x09\x00\x00\xf0\xff\xff\xff\xff\xff\x00".to_vec();
    for address in [unsigned, int(-(1 << 20))] {
        let program = snapshot(&[], &[event(&[("addr", address)])]);
        let snapshot = read_program(&program).unwrap();
        assert_eq!(snapshot.traces[0][0].address, u64::MAX - (1 << 20) + 1);
    }
}

#[test]
fn the_frame_shown_is_the_innermost_of_the_user() {
    let torch = "/opt/v/lib/python3.11/site-packages/torch/nn/modules/linear.py";
    let cpp = frame("??", 0, "torch::unwind::unwind()");
    let inner = [
        cpp.clone(),
        frame(torch, 125, "forward"),
        frame("/usr/lib/python3.11/contextlib.py", 81, "inner"),
        frame("/tmp/torchinductor_u/ab/cab.py", 7, "call"),
    ];
    let user = [
        &inner[..],
        &[
            frame("/home/u/train.py", 17, "step"),
            frame("/home/u/train.py", 40, "main"),
        ],
    ]
    .concat();
    let package = [
        frame(torch, 125, "forward"),
        frame("C:\\v\\site-packages\\transformers\\m.py", 9, "attend"),
    ];
    let frames = |frames: &[Vec<u8>]| event(&[("frames", list(frames))]);
    let program = snapshot(
        &[],
        &[
            frames(&user),
            frames(&inner),
            frames(&[cpp]),
            frames(&[]),
            frames(&user),
            frames(&package),
            event(&[("frames", b"N".to_vec())]),
            frames(&[b"N".to_vec(), b"}".to_vec()]),
        ],
    );
    let snapshot = read_program(&program).unwrap();
    let shown: Vec<Option<usize>> = snapshot.traces[0]
        .iter()
        .map(|entry| entry.frame.map(TableIndex::get))
        .collect();
    assert_eq!(
        shown,
        [Some(0), Some(1), None, None, Some(0), Some(2), None, None]
    );
    let kept: Vec<(&str, u32, &str)> = snapshot
        .frames
        .iter()
        .map(|frame| (&*frame.file, frame.line, &*frame.name))
        .collect();
    assert_eq!(
        kept,
        [
            ("/home/u/train.py", 17, "step"),
            (torch, 125, "forward"),
            ("C:\\v\\site-packages\\transformers\\m.py", 9, "attend"),
        ]
    );
}

#[test]
fn settings_are_text() {
    let program = dict(&[
        ("segments", list(&[])),
        (
            "allocator_settings",
            dict(&[
                ("PYTORCH_CUDA_ALLOC_CONF", text("expandable_segments:True")),
                ("max_split_size", int(-1)),
                ("garbage_collection_threshold", b"F0.8\n".to_vec()),
                ("expandable_segments", b"\x88".to_vec()),
                (
                    "roundup_power2_divisions",
                    dict(&[("1", int(0)), ("2", int(4))]),
                ),
                ("max_round_threshold", int(0)),
                ("unknown", b"N".to_vec()),
            ]),
        ),
    ]);
    let snapshot = read_program(&program).unwrap();
    let settings = snapshot.settings.unwrap();
    let settings: Vec<(&str, &str)> = settings
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    assert_eq!(
        settings,
        [
            ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),
            ("max_split_size", "-1"),
            ("garbage_collection_threshold", "0.8"),
            ("expandable_segments", "True"),
            ("roundup_power2_divisions.1", "0"),
            ("roundup_power2_divisions.2", "4"),
            ("max_round_threshold", "0"),
        ]
    );
    assert_eq!(snapshot.torch_hint, Some("newer than 2.9"));
}

#[test]
fn a_wrong_field_is_named_with_its_path() {
    check_event_error(
        &[("size", text("512"))],
        "device_traces[0][1].size: expected a number of bytes, found a string",
    );
    check_event_error(
        &[("size", int(-1))],
        "device_traces[0][1].size: expected a number of bytes, found a negative integer",
    );
    check_event_error(
        &[("addr", b"N".to_vec())],
        "device_traces[0][1].addr: expected an integer, found None",
    );
    check_event_error(
        &[("action", int(1))],
        "device_traces[0][1].action: expected the name of an action, found an integer",
    );
    check_event_error(
        &[("pool_id", list(&[int(1)]))],
        "device_traces[0][1].pool_id: expected a pair of integers, found another number of items",
    );
    check_segment_error(
        &[("device", int(-1))],
        "segments[1].device: expected the index of a device, found a negative integer",
    );
    check_segment_error(
        &[("segment_type", text("huge"))],
        "segments[1].segment_type: expected `small` or `large`, found another text",
    );
    check_segment_error(
        &[("is_expandable", int(1))],
        "segments[1].is_expandable: expected a boolean, found an integer",
    );
    check_segment_error(
        &[("total_size", int(i64::MAX)), ("address", int(-1))],
        "segments[1].total_size: expected a size that ends within 64 bits of addresses, found a larger one",
    );
    check_segment_error(
        &[(
            "blocks",
            list(&[block(&[]), block(&[("state", text("x"))])]),
        )],
        "segments[1].blocks[1].state: expected one of `inactive`, `active_allocated`, `active_pending_free`, found another text",
    );
    check_segment_error(
        &[("blocks", list(&[int(1)]))],
        "segments[1].blocks[0]: expected a dict, found an integer",
    );
    check_segment_error(
        &[("blocks", list(&[block(&[("address", int(-1))])]))],
        "segments[1].blocks[0].size: expected a size that ends within 64 bits of addresses, found a larger one",
    );
    check_error(&list(&[int(1)]), "[0]: expected a dict, found an integer");
}

#[test]
fn a_missing_field_is_named_with_its_path() {
    let event = |entries: &[(&str, Vec<u8>)]| snapshot(&[], &[dict(entries)]);
    check_error(
        &event(&[]),
        "device_traces[0][0].action: expected the name of an action, found nothing",
    );
    check_error(
        &event(&[("action", text("alloc")), ("size", int(1))]),
        "device_traces[0][0].addr: expected an address, found nothing",
    );
    check_error(
        &event(&[("action", text("oom"))]),
        "device_traces[0][0].size: expected a number of bytes, found nothing",
    );
    let segment = |entries: &[(&str, Vec<u8>)]| list(&[dict(entries)]);
    check_error(
        &segment(&[]),
        "[0].device: expected the index of a device, found nothing",
    );
    check_error(
        &segment(&[
            ("device", int(0)),
            ("address", int(0)),
            ("total_size", int(0)),
        ]),
        "[0].segment_type: expected `small` or `large`, found nothing",
    );
}

#[test]
fn other_values_are_no_snapshots() {
    check_error(
        b"K\x01",
        "expected a memory snapshot with `segments`, found an integer",
    );
    check_error(
        b"}",
        "expected a memory snapshot with `segments`, found a dict without text keys",
    );
    check_error(
        &dict(&[("model", int(1)), ("opt\x1bim", int(1))]),
        "expected a memory snapshot with `segments`, found a dict with `model`, `opt\\u{1b}im`",
    );
    check_error(
        &dict(&[("segments", int(1))]),
        "segments: expected a list, found an integer",
    );
    check_error(
        &dict(&[("segments", list(&[])), ("device_traces", int(1))]),
        "device_traces: expected a list, found an integer",
    );
    check_error(
        b"cos\nsystem\n",
        "expected plain data, found the class or function `os.system` at byte 0",
    );
}

#[test]
fn one_list_repeated_by_reference_does_not_grow_the_snapshot() {
    // One trace of a thousand events, ten thousand times.
    let events: Vec<Vec<u8>> = vec![event(&[]); 1000];
    let trace = [list(&events), b"q\x07".to_vec()].concat();
    let traces = [
        b"](".to_vec(),
        trace,
        b"h\x07".repeat(10_000),
        b"e".to_vec(),
    ]
    .concat();
    let program = dict(&[("segments", list(&[])), ("device_traces", traces)]);
    let error = read_program(&program).unwrap_err();
    assert!(matches!(error, SnapshotError::TooMany { .. }), "{error}");
}

#[test]
fn the_smallest_honest_events_are_within_the_limit() {
    // Every key and value from the memo, in two bytes each.
    let keys = ["action", "addr", "size", "stream"];
    let mut program = Vec::new();
    for (slot, value) in keys
        .iter()
        .map(|key| text(key))
        .chain([text("alloc"), int(512)])
        .enumerate()
    {
        program.extend(value);
        program.extend([b'q', u8::try_from(slot).unwrap(), b'0']);
    }
    let event = b"}(h\x00h\x04h\x01h\x05h\x02h\x05h\x03h\x05u".to_vec();
    program.extend(snapshot(&[], &vec![event; 10_000]));
    assert_eq!(read_program(&program).unwrap().traces[0].len(), 10_000);
}

#[test]
fn a_damaged_file_is_an_error_or_another_snapshot() {
    let user = list(&[frame("/home/u/train.py", 17, "step")]);
    let whole = [
        snapshot(&[segment(&[])], &[event(&[("frames", user)])]),
        b".".to_vec(),
    ]
    .concat();
    assert!(read(&whole).is_ok());
    for len in 0..whole.len() {
        assert!(read(&whole[..len]).is_err(), "cut after {len}");
    }
    for idx in 0..whole.len() {
        for byte in [
            0, 1, b'(', b'.', b'0', b'2', b']', b'a', b'e', b't', b'u', b'}', 0x7f, 0x80, 0xff,
        ] {
            let mut damaged = whole.clone();
            damaged[idx] = byte;
            // Only that it returns.
            let _ = read(&damaged);
        }
    }
}
