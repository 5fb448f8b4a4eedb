//! A CUDA memory snapshot, replayed: what the allocator held when it ran out, and what other settings would have done.

use brimful_allocsim::from_snapshot::EmptyCacheCalls;
use brimful_allocsim::replay::{Setup, replay};
use brimful_allocsim::settings::AllocatorSettings;
use brimful_allocsim::snapshot::{self, BlockState, Snapshot, SnapshotError, TraceAction};
use brimful_allocsim::trace::{Event, Trace};
use brimful_allocsim::version::TorchVersion;

use crate::explain::evidence::{SnapshotAnswer, SnapshotReplay};
use crate::units::Bytes;

/// Settings worth trying, in the order in which people should.
const OTHER_SETTINGS: [&str; 3] = [
    "expandable_segments:True",
    "max_split_size_mb:128",
    "roundup_power2_divisions:8",
];

/// The file is not a memory snapshot of PyTorch's.
#[derive(Debug, thiserror::Error)]
#[error("not a CUDA memory snapshot: {0}")]
pub struct SnapshotUnreadable(#[from] SnapshotError);

impl SnapshotUnreadable {
    pub fn hint(&self) -> &'static str {
        self.0.hint()
    }
}

/// Reads a snapshot and replays it. Nothing in the file is run.
pub fn replay_snapshot(bytes: &[u8]) -> Result<SnapshotReplay, SnapshotUnreadable> {
    let snapshot = snapshot::read(bytes)?;
    let device = device_that_ran_out(&snapshot);
    let mut told = held(&snapshot, device);
    if let Some(failure) = snapshot.last_failure(device) {
        told.asked = Some(Bytes(failure.size));
        told.device_free = failure.device_free.map(Bytes);
    }
    let mut trace = Trace::from_snapshot(&snapshot, device, EmptyCacheCalls::Infer);
    snapshot
        .alloc_conf()
        .unwrap_or_default()
        .clone_into(&mut trace.settings);
    told.has_history = trace
        .events
        .iter()
        .any(|event| matches!(event, Event::Alloc(_)))
        && trace.check().is_ok();
    if let (true, Some(free)) = (told.has_history, told.device_free) {
        told.answers = answers(&trace, told.reserved.saturating_add(free));
    }
    Ok(told)
}

/// What the allocator could hold on this card when it ran out is what it held and what was free. The same history under
/// each other setting, in that room.
fn answers(trace: &Trace, room: Bytes) -> Vec<SnapshotAnswer> {
    let version = trace.torch.parse().unwrap_or(TorchVersion::NEWEST_CHECKED);
    let mut answers: Vec<SnapshotAnswer> = OTHER_SETTINGS
        .iter()
        .filter(|conf| **conf != trace.settings)
        .filter_map(|conf| {
            let setup = Setup {
                capacity: room.get(),
                held: 0,
                settings: AllocatorSettings::parse(conf, version).ok()?,
                version,
            };
            let outcome = replay(trace, &setup);
            let peak_reserved = Bytes(outcome.statistics.reserved.peak);
            Some(SnapshotAnswer {
                alloc_conf: (*conf).to_owned(),
                fits: outcome.oom.is_none(),
                peak_reserved,
                to_spare: room.saturating_sub(peak_reserved),
            })
        })
        .collect();
    // Stable: among those that fit, the order in which people should try.
    answers.sort_by_key(|answer| !answer.fits);
    answers
}

/// The device whose history has a failure last, else the one that holds the most.
fn device_that_ran_out(snapshot: &Snapshot) -> u32 {
    let failed = snapshot.traces.iter().position(|trace| {
        trace
            .iter()
            .any(|entry| entry.action == TraceAction::OutOfMemory)
    });
    if let Some(device) = failed {
        return u32::try_from(device).unwrap_or(0);
    }
    let mut held: std::collections::BTreeMap<u32, u64> = std::collections::BTreeMap::new();
    for segment in &snapshot.segments {
        let sum = held.entry(segment.device).or_default();
        *sum = sum.saturating_add(segment.total_size);
    }
    held.into_iter()
        .max_by_key(|(_, bytes)| *bytes)
        .map_or(0, |(device, _)| device)
}

/// What the device's segments hold.
fn held(snapshot: &Snapshot, device: u32) -> SnapshotReplay {
    let mut told = SnapshotReplay::default();
    for segment in &snapshot.segments {
        if segment.device != device {
            continue;
        }
        told.reserved = told.reserved.saturating_add(Bytes(segment.total_size));
        for block in &segment.blocks {
            let size = Bytes(block.size);
            if block.state == BlockState::Inactive {
                told.free_in_segments = told.free_in_segments.saturating_add(size);
                told.largest_free_block = told.largest_free_block.max(size);
            } else {
                told.allocated = told.allocated.saturating_add(size);
            }
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_snapshot_is_refused() {
        assert!(replay_snapshot(b"").is_err());
        assert!(replay_snapshot(b"not a pickle").is_err());
    }
}
