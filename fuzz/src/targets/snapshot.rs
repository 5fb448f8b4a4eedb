//! A memory snapshot or a trace of anyone's making: read within bounds and replayed, or refused with a
//! message fit to show.
//!
//! The input is read as it is, and as changes of values in a snapshot that is whole.

use std::sync::LazyLock;

use arbitrary::Unstructured;
use brimful_allocsim::agreement::agreement;
use brimful_allocsim::from_snapshot::EmptyCacheCalls;
use brimful_allocsim::pickle;
use brimful_allocsim::replay::{Setup, replay};
use brimful_allocsim::settings::AllocatorSettings;
use brimful_allocsim::snapshot::{self, Snapshot, TableIndex, TraceAction};
use brimful_allocsim::trace::Trace;
use brimful_allocsim::version::TorchVersion;
use serde_json::Value;

use crate::document;

/// Longer traces only repeat what shorter ones do.
const MAX_EVENTS: usize = 20_000;

static WHOLE: LazyLock<Value> = LazyLock::new(|| {
    let whole = document::template(document::SNAPSHOT);
    let snapshot = snapshot::read(&document::pickled(&whole)).expect("the template is whole");
    assert!(!snapshot.segments.is_empty() && !snapshot.traces.is_empty());
    whole
});

/// Runs one input.
pub(crate) fn run_input(data: &[u8]) {
    check(data);
    if let Ok(changed) = document::changed(&WHOLE, &mut Unstructured::new(data)) {
        check(&document::pickled(&changed));
    }
}

fn check(data: &[u8]) {
    pickles(data);
    match snapshot::read(data) {
        Ok(snapshot) => {
            check_snapshot(&snapshot, data.len());
            let trace = Trace::from_snapshot(&snapshot, 0, EmptyCacheCalls::Infer);
            assert_eq!(trace.check(), Ok(()), "what a snapshot becomes is in order");
            let read_again = Trace::from_bytes(&trace.to_bytes()).expect("a trace's own bytes");
            assert_eq!(read_again, trace);
            replays(&trace);
        }
        Err(error) => shown(&error.to_string(), error.hint()),
    }
    if let Ok(trace) = Trace::from_bytes(data) {
        let read_again = Trace::from_bytes(&trace.to_bytes()).expect("a trace's own bytes");
        assert_eq!(read_again, trace);
        replays(&trace);
    }
}

fn pickles(data: &[u8]) {
    // Limits below the usual ones, so that the refusals are reached too.
    let tight = pickle::Limits {
        max_built_bytes: 512,
        max_depth: 3,
        max_memo_entries: 8,
    };
    for limits in [tight, pickle::limits_for(data.len())] {
        match pickle::read(data, &limits) {
            Ok(document) => {
                let _ = format!("{document:?}");
            }
            Err(error) => shown(&error.to_string(), error.hint()),
        }
        match pickle::read_around_objects(data, &limits) {
            Ok(document) => {
                let _ = format!("{document:?}");
                let n_kept = document.persistent_ids().count() + document.states().count();
                assert!(n_kept <= data.len(), "each takes an instruction");
            }
            Err(error) => shown(&error.to_string(), error.hint()),
        }
    }
}

fn check_snapshot(snapshot: &Snapshot, n_bytes: usize) {
    let n_frames = snapshot.frames.len();
    let in_table = |frame: Option<TableIndex>| frame.is_none_or(|idx| idx.get() < n_frames);
    let mut n_records = snapshot.segments.len();
    for segment in &snapshot.segments {
        n_records += segment.blocks.len();
        for block in &segment.blocks {
            assert!(
                in_table(block.frame),
                "a block points to a frame that exists"
            );
            assert!(
                block.address.checked_add(block.size).is_some(),
                "a block ends in memory"
            );
        }
    }
    for entry in snapshot.traces.iter().flatten() {
        n_records += 1;
        assert!(
            in_table(entry.frame),
            "an event points to a frame that exists"
        );
        if let TraceAction::Other(idx) = entry.action {
            assert!(
                usize::from(idx) < snapshot.other_actions.len(),
                "a name that exists"
            );
        }
    }
    assert!(
        n_records <= 1024 + n_bytes / 16,
        "no more records than bytes allow"
    );
}

/// Plain and with every setting that changes how segments are made, cut or given back; with room and without.
fn replays(trace: &Trace) {
    if trace.events.len() > MAX_EVENTS {
        return;
    }
    let version = TorchVersion::NEWEST_CHECKED;
    for (conf, capacity) in [
        ("", 1 << 40),
        ("", 64 << 20),
        ("expandable_segments:True", 1 << 40),
        ("expandable_segments:True,max_split_size_mb:64", 256 << 20),
        ("max_split_size_mb:21,roundup_power2_divisions:4", 256 << 20),
        (
            "garbage_collection_threshold:0.3,per_process_memory_fraction:0.5",
            256 << 20,
        ),
        ("large_segment_size_mb:11", 1 << 40),
    ] {
        let settings = AllocatorSettings::parse(conf, version).expect("valid settings");
        let outcome = replay(
            trace,
            &Setup {
                capacity,
                held: 0,
                settings,
                version,
            },
        );
        let peaks = outcome.statistics;
        assert!(
            peaks.allocated.peak <= peaks.reserved.peak,
            "allocated memory is reserved"
        );
        assert!(
            peaks.requested.peak <= peaks.active.peak,
            "what was asked for lies in blocks"
        );
        assert!(peaks.reserved.peak <= capacity, "no more than the card has");
    }
    let _ = agreement(trace, &AllocatorSettings::default(), version);
}

fn shown(message: &str, hint: &str) {
    assert!(!hint.is_empty(), "a refusal says what to do");
    assert!(message.len() < 2000, "a message, not a page");
    assert!(
        !message.chars().any(char::is_control),
        "no escape of the file's reaches the terminal"
    );
}
