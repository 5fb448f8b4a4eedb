//! Who holds the GPU beside the job, as far as samples prove it.

use std::collections::BTreeMap;

use crate::explain::rules::telling::proof;
use crate::explain::text::CudaMessage;
use crate::explain::{Evidence, EvidenceSource, Proof};
use crate::units::Bytes;
use crate::watch::{GpuSample, Sample};

/// What was seen this shortly before the end belongs to it.
pub(super) const RECENT_MS: u64 = 60_000;

/// What other processes hold of a GPU of the job.
#[derive(Debug)]
pub(super) struct Others {
    /// Whichever GPU was full, they hold more than half of it.
    pub is_most: bool,
    pub proof: Proof,
}

/// Other processes on the GPUs of the job, at the last sample shortly before the end that lists any.
pub(super) fn others_by_sample(evidence: &Evidence) -> Option<Others> {
    let sample = last_sample(evidence, |sample| {
        sample.gpus.iter().any(|gpu| !gpu.others.is_empty())
    })?;
    let held_by_others = |gpu: &GpuSample| {
        let held = gpu.others.iter().filter_map(|(_, held)| *held);
        held.fold(Bytes::ZERO, Bytes::saturating_add)
    };
    let (used, unused): (Vec<&GpuSample>, Vec<&GpuSample>) =
        sample.gpus.iter().partition(|gpu| gpu.ours.is_some());
    let gpus = if used.is_empty() { unused } else { used };
    let gpu =
        (gpus.iter().filter(|gpu| !gpu.others.is_empty())).max_by_key(|gpu| held_by_others(gpu))?;
    let held = held_by_others(gpu);
    Some(Others {
        is_most: gpus.iter().all(|gpu| {
            let held = held_by_others(gpu);
            held <= gpu.total && held.share_of(gpu.total) > 0.5
        }),
        proof: proof(
            EvidenceSource::Samples,
            format!(
                "other processes on GPU {} ({}) hold {held} of {}",
                gpu.index,
                listed(&gpu.others),
                gpu.total
            ),
        ),
    })
}

/// Processes that may be of the job or not.
pub(super) fn unknown_by_sample(evidence: &Evidence) -> Option<Proof> {
    let sample = last_sample(evidence, |sample| {
        sample.gpus.iter().any(|gpu| !gpu.unknown.is_empty())
    })?;
    let gpu = sample.gpus.iter().find(|gpu| !gpu.unknown.is_empty())?;
    Some(proof(
        EvidenceSource::Samples,
        format!(
            "the driver lists processes on GPU {} ({}) that are unknown here, as in a container: they may be of this job \
             or not",
            gpu.index,
            listed(&gpu.unknown)
        ),
    ))
}

/// Whether the job itself holds more than half of a GPU that may be the one that was full, by its allocators or by the
/// driver's account: then nobody else is to blame.
pub(super) fn job_holds_most(evidence: &Evidence, message: Option<&CudaMessage>) -> bool {
    let gauges = last_sample(evidence, |sample| !sample.gauges.is_empty())
        .map(|sample| sample.gauges.as_slice())
        .unwrap_or_default();
    let pids: Vec<u32> = gauges.iter().map(|gauge| gauge.pid).collect();
    if message.is_some_and(|message| message.names_others_that_hold_most(&pids)) {
        return false;
    }
    let gpus = last_sample(evidence, |sample| !sample.gpus.is_empty())
        .map(|sample| sample.gpus.as_slice())
        .unwrap_or_default();
    // The driver may count a whole GPU of which the job has a share.
    let printed = message.and_then(|message| message.total);
    let by_driver = |gpu: &GpuSample| {
        let total = printed.unwrap_or(gpu.total);
        gpu.ours.is_some_and(|ours| ours.share_of(total) > 0.5)
    };
    let total = printed
        .or_else(|| gpus.iter().map(|gpu| gpu.total).min())
        .unwrap_or_default();
    let device = message.and_then(|message| message.device);
    let mut by_device: BTreeMap<u32, (Bytes, Bytes)> = BTreeMap::new();
    for gauge in gauges {
        let Some(of) = gauge
            .device
            .filter(|of| device.is_none_or(|device| device == *of))
        else {
            continue;
        };
        let (sum, largest) = by_device.entry(of).or_default();
        *sum = sum.saturating_add(gauge.reserved);
        *largest = gauge.reserved.max(*largest);
    }
    gpus.iter().any(by_driver)
        || by_device.into_values().any(|(sum, largest)| {
            // Each process numbers the GPUs that it sees: more than a GPU has is of several with one number.
            let held = if sum <= total { sum } else { largest };
            held.share_of(total) > 0.5
        })
}

fn listed(processes: &[(u32, Option<Bytes>)]) -> String {
    let pids: Vec<String> = processes
        .iter()
        .take(8)
        .map(|(pid, _)| pid.to_string())
        .collect();
    format!("PID {}", pids.join(", "))
}

/// The last sample of such a kind; older ones say nothing of the end.
fn last_sample(evidence: &Evidence, is_such: impl Fn(&Sample) -> bool) -> Option<&Sample> {
    let end = evidence.end.as_ref();
    let last = end.and_then(|end| end.last.as_ref());
    let is_recent =
        |sample: &Sample| end.is_none_or(|end| end.at_ms.saturating_sub(sample.at_ms) <= RECENT_MS);
    (evidence.samples.iter().chain(last)).rfind(|sample| is_recent(sample) && is_such(sample))
}
