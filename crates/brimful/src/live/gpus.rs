//! One GPU, from what the driver and the processes of the job report of it.

use crate::units::Bytes;
use crate::watch::{Gauge, GpuSample};

/// GPUs that are shown.
pub(crate) const MAX_GPUS: usize = 16;

/// One GPU at the latest sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveGpu {
    /// As the driver counts.
    pub index: u32,
    pub used: Bytes,
    pub total: Bytes,
    /// Held by processes that are not of this job, where the driver reports it.
    pub others: Option<Bytes>,
    /// What PyTorch's allocators in the job's processes hold of it, where that is known.
    pub allocator: Option<AllocatorUse>,
}

/// PyTorch's caching allocators of one GPU, together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocatorUse {
    pub allocated: Bytes,
    /// Allocated, and cached for later.
    pub reserved: Bytes,
    pub retries: u64,
}

/// The GPUs of a sample. `gauges` are those of the same sample.
pub(crate) fn live_gpus(samples: &[GpuSample], gauges: &[Gauge]) -> Vec<LiveGpu> {
    let allocators = |index: u32| {
        let of_gpu = gauges.iter().filter(|gauge| gauge.device == Some(index));
        of_gpu.fold(None, |sum: Option<AllocatorUse>, gauge| {
            let sum = sum.unwrap_or_default();
            Some(AllocatorUse {
                allocated: sum.allocated.saturating_add(gauge.allocated),
                reserved: sum.reserved.saturating_add(gauge.reserved),
                retries: sum.retries.saturating_add(gauge.retries),
            })
        })
    };
    let mut gpus: Vec<LiveGpu> = samples
        .iter()
        .take(MAX_GPUS)
        .map(|sample| LiveGpu {
            index: sample.index,
            used: sample.used,
            total: sample.total,
            others: sample.ours.map(|ours| sample.used.saturating_sub(ours)),
            allocator: allocators(sample.index),
        })
        .collect();
    // A process counts the devices that it sees, the driver all of them. Where they differ, allocators would be shown
    // at the wrong GPU; a GPU that holds less than its allocators gives that away. With one GPU there is one answer.
    if let [gpu] = gpus.as_mut_slice()
        && let Some(device) = gauges.iter().find_map(|gauge| gauge.device)
        && gauges
            .iter()
            .all(|gauge| gauge.device.is_none_or(|other| other == device))
    {
        gpu.allocator = allocators(device);
    }
    let fits = |gpu: &LiveGpu| gpu.allocator.is_none_or(|held| held.reserved <= gpu.used);
    if !gpus.iter().all(fits) {
        for gpu in &mut gpus {
            gpu.allocator = None;
        }
    }
    gpus
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(index: u32, used: u64) -> GpuSample {
        GpuSample {
            index,
            used: Bytes(used),
            total: Bytes(100),
            ..GpuSample::default()
        }
    }

    fn gauge(pid: u32, device: u32, reserved: u64) -> Gauge {
        Gauge {
            pid,
            device: Some(device),
            allocated: Bytes(reserved / 2),
            reserved: Bytes(reserved),
            ..Gauge::default()
        }
    }

    fn reserved(gpus: &[GpuSample], gauges: &[Gauge]) -> Vec<Option<u64>> {
        live_gpus(gpus, gauges)
            .iter()
            .map(|gpu| gpu.allocator.map(|held| held.reserved.get()))
            .collect()
    }

    #[test]
    fn allocators_of_all_processes_are_added_up() {
        assert_eq!(
            reserved(
                &[gpu(0, 50), gpu(1, 50)],
                &[gauge(1, 0, 20), gauge(2, 0, 10), gauge(3, 1, 5)]
            ),
            [Some(30), Some(5)]
        );
    }

    #[test]
    fn the_only_gpu_belongs_to_the_only_device() {
        assert_eq!(reserved(&[gpu(3, 50)], &[gauge(1, 0, 20)]), [Some(20)]);
    }

    #[test]
    fn devices_that_are_numbered_otherwise_are_not_shown_at_the_wrong_gpu() {
        assert_eq!(
            reserved(&[gpu(0, 1), gpu(1, 50)], &[gauge(1, 0, 20)]),
            [None, None]
        );
    }
}
