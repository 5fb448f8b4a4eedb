//! Usage at a moment.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// Usage at a moment, as far as it could be read. What could not be read is absent, never zero.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Milliseconds since the attempt began.
    pub at_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostSample>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shm: Option<SharedMemorySample>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stall: Option<Stall>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuSample>,
    /// Taken seldom: reading what is shared costs the kernel a walk over every page.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<ProcessSample>,
    /// What the hook inside each training process says of itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gauges: Vec<Gauge>,
    /// The lowest values, where this sample stands for several: all other values are the highest then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lowest: Option<Lowest>,
}

/// The lowest values of several samples that were merged into one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lowest {
    #[serde(rename = "host_used_bytes", skip_serializing_if = "Option::is_none")]
    pub host_used: Option<Bytes>,
    #[serde(rename = "shm_used_bytes", skip_serializing_if = "Option::is_none")]
    pub shm_used: Option<Bytes>,
    /// By GPU, as the driver counts.
    #[serde(rename = "gpu_used_bytes", skip_serializing_if = "Vec::is_empty")]
    pub gpu_used: Vec<(u32, Bytes)>,
}

impl Sample {
    /// The lowest host memory use that this sample stands for.
    pub fn lowest_host_used(&self) -> Option<Bytes> {
        let used = self.host.map(|host| host.used);
        let merged = self.lowest.as_ref().and_then(|lowest| lowest.host_used);
        least(used, merged)
    }

    /// The lowest use of `/dev/shm` that this sample stands for.
    pub fn lowest_shm_used(&self) -> Option<Bytes> {
        let used = self.shm.map(|shm| shm.used);
        let merged = self.lowest.as_ref().and_then(|lowest| lowest.shm_used);
        least(used, merged)
    }

    /// The lowest use of a GPU that this sample stands for.
    pub fn lowest_gpu_used(&self, index: u32) -> Option<Bytes> {
        let gpu = self.gpus.iter().find(|gpu| gpu.index == index);
        let merged = self.lowest.as_ref().and_then(|lowest| {
            let found = lowest.gpu_used.iter().find(|(of, _)| *of == index)?;
            Some(found.1)
        });
        least(gpu.map(|gpu| gpu.used), merged)
    }
}

/// The lower of two values, of which either may be unknown.
fn least(a: Option<Bytes>, b: Option<Bytes>) -> Option<Bytes> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Host memory against the brim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostSample {
    /// What the job holds and the kernel cannot take back: anonymous and shared memory, kernel memory.
    #[serde(rename = "used_bytes")]
    pub used: Bytes,
    /// The brim, and what is left to it for everybody inside of that limit.
    #[serde(rename = "limit_bytes")]
    pub limit: Bytes,
    #[serde(rename = "headroom_bytes")]
    pub headroom: Bytes,
    /// Swapped out by the job, where it is counted.
    #[serde(
        rename = "swapped_bytes",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub swapped: Option<Bytes>,
}

/// From here on there is pressure: a tenth of the limit is left, or this where that is less.
const PRESSURE_FROM: u64 = 4 << 30;
/// And here it is full: a share of that.
const PRESSURE_FULL: f64 = 0.3;

impl HostSample {
    /// How short memory is, from 0 (not at all) to 1 (very), for those that can do with less and give back.
    ///
    /// It depends on what is left alone, not on whether use rises: a prefetch that shrinks at 90 % costs little, and comes
    /// back by itself.
    pub fn pressure(&self) -> f64 {
        let from = (self.limit.get() / 10).min(PRESSURE_FROM) as f64;
        if from == 0.0 {
            return 0.0;
        }
        let left = self.headroom.get() as f64 / from;
        ((1.0 - left) / (1.0 - PRESSURE_FULL)).clamp(0.0, 1.0)
    }
}

/// `/dev/shm`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedMemorySample {
    #[serde(rename = "used_bytes")]
    pub used: Bytes,
    #[serde(rename = "total_bytes")]
    pub total: Bytes,
}

/// Share of the time since the last sample, in percent, in which tasks waited for memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stall {
    /// At least one task waited.
    pub some_percent: f64,
    /// All tasks waited.
    pub full_percent: f64,
}

/// One card.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuSample {
    /// As the driver counts.
    pub index: u32,
    #[serde(rename = "used_bytes")]
    pub used: Bytes,
    #[serde(rename = "total_bytes")]
    pub total: Bytes,
    /// Held by processes of this job, where the driver says it of all that it lists.
    #[serde(
        rename = "ours_bytes",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub ours: Option<Bytes>,
    /// Processes that are surely not of this job: their ids and what they hold, where the driver says it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<(u32, Option<Bytes>)>,
    /// Processes of which it is not known whether they are of this job: in a container the driver may number them as the
    /// host does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<(u32, Option<Bytes>)>,
}

/// One process of the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessSample {
    pub pid: u32,
    pub role: Role,
    /// The program's name, at most 15 bytes as the kernel keeps it.
    pub name: String,
    /// Nobody else maps these pages; they come back when the process ends.
    #[serde(rename = "private_bytes")]
    pub private: Bytes,
    /// Others map them too.
    #[serde(rename = "shared_bytes")]
    pub shared: Bytes,
    #[serde(rename = "swapped_bytes")]
    pub swapped: Bytes,
}

/// What a process is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Role {
    /// The process that was started.
    Main,
    /// One of several training processes, as its launcher numbers them on this machine.
    Rank {
        rank: u32,
    },
    /// A worker of a DataLoader: `loader` counts the loaders of its parent in the order of their making, `worker` from 0.
    Worker {
        loader: u32,
        worker: u32,
    },
    Other,
}

/// What the hook inside a training process says of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gauge {
    pub pid: u32,
    /// Optimizer steps so far.
    pub steps: u64,
    /// Epochs so far: iterators made of the loader with the most batches.
    pub epochs: u64,
    /// CUDA's allocator, where there is one. Device by the process's own numbering.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<u32>,
    #[serde(rename = "allocated_bytes", default)]
    pub allocated: Bytes,
    #[serde(rename = "reserved_bytes", default)]
    pub reserved: Bytes,
    #[serde(rename = "peak_allocated_bytes", default)]
    pub peak_allocated: Bytes,
    #[serde(rename = "peak_reserved_bytes", default)]
    pub peak_reserved: Bytes,
    /// Times the allocator gave everything back and tried again.
    #[serde(default)]
    pub retries: u64,
    #[serde(default)]
    pub ooms: u64,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Role::Main => f.write_str("main"),
            Role::Rank { rank } => write!(f, "rank {rank}"),
            Role::Worker { loader: 0, worker } => write!(f, "DataLoader worker {worker}"),
            Role::Worker { loader, worker } => {
                write!(f, "DataLoader worker {worker} of loader {loader}")
            }
            Role::Other => f.write_str("other"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_rises_over_the_last_tenth_of_the_limit() {
        let of = |limit, headroom| {
            let sample = HostSample {
                limit: Bytes::from_gib(limit),
                headroom: Bytes(headroom),
                ..HostSample::default()
            };
            format!("{:.2}", sample.pressure())
        };
        let mib = 1 << 20;
        assert_eq!(of(10, 5 << 30), "0.00");
        assert_eq!(of(10, 1 << 30), "0.00");
        assert_eq!(of(10, 665 * mib), "0.50");
        assert_eq!(of(10, 300 * mib), "1.00");
        assert_eq!(of(10, 0), "1.00");
        assert_eq!(of(1000, 5 << 30), "0.00", "a large machine has enough left");
        assert_eq!(of(0, 0), "0.00");
    }
}
