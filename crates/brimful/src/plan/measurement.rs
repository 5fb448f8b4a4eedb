//! What a run measured on its GPU, and what later predictions take from it.

use serde::{Deserialize, Serialize};

use crate::cards::{self, Card};
use crate::plan::Observed;
use crate::plan::learnt::release;
use crate::predict::MeasuredContext;
use crate::record::{Attempt, GpuModel, HookLine};
use crate::units::Bytes;
use crate::watch::{Gauge, GpuSample, Sample};

/// What a run measured on its only GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuMeasurement {
    /// Milliseconds since 1970, at its start.
    pub at_unix_ms: u64,
    /// A digest of its directory and command: runs of one job have the same.
    pub job: String,
    /// The product name, as the driver prints it.
    pub gpu: String,
    /// What the driver says the GPU has, and what was in use before the run.
    #[serde(rename = "total_bytes")]
    pub total: Bytes,
    #[serde(rename = "used_before_bytes")]
    pub used_before: Bytes,
    /// The most that was in use, by everybody.
    #[serde(rename = "peak_used_bytes")]
    pub peak_used: Bytes,
    /// The peaks of PyTorch's allocator.
    #[serde(rename = "peak_allocated_bytes")]
    pub peak_allocated: Bytes,
    #[serde(rename = "peak_reserved_bytes")]
    pub peak_reserved: Bytes,
    /// What the process held outside the allocator.
    #[serde(rename = "context_bytes")]
    pub context: Bytes,
    pub steps: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps_per_second: Option<f64>,
    /// Nothing where the driver did not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    pub torch: String,
    /// The CUDA that torch was built for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cuda: Option<String>,
}

/// The driver is asked once a second, and the hook writes its values twice a second: a sample in which the allocator has
/// held the same for this long belongs together.
const SETTLED_MS: u64 = 1500;
/// No context is smaller, and none is larger: something else was measured then.
const MIN_CONTEXT: Bytes = Bytes::from_mib(16);
const MAX_CONTEXT: Bytes = Bytes::from_gib(4);
/// Where others hold more than this share of the GPU before a run, their use may change while it lasts.
const MAX_SHARE_OF_OTHERS: f64 = 0.1;
/// The newest runs on a GPU that a median is taken of.
const MAX_RUNS: usize = 9;

impl GpuMeasurement {
    /// What the record of an attempt shows of its GPU.
    ///
    /// Nothing where several processes or GPUs were used, where the driver was not asked before the start, or where no
    /// moment was seen at which the driver's and the allocator's values belong together.
    pub fn of(attempt: &Attempt, job: &str) -> Option<GpuMeasurement> {
        let samples = &attempt.samples;
        let pid = only_process(samples)?;
        let gauge = samples.iter().rev().find_map(|s| gauge_of(s, pid))?;
        let on = only_gpu(attempt, gauge.peak_reserved)?;
        let (total, used_before) = (on.total?, on.used?);
        if used_before.share_of(total) > MAX_SHARE_OF_OTHERS {
            return None;
        }
        let (torch, cuda) = attempt.hook.iter().find_map(|line| match line {
            HookLine::Torch {
                pid: of,
                version,
                cuda,
                ..
            } if *of == pid => Some((version.clone(), cuda.clone())),
            _ => None,
        })?;
        let seen = Observed::of(attempt);
        Some(GpuMeasurement {
            at_unix_ms: attempt.start.started_at_unix_ms,
            job: job.to_owned(),
            gpu: on.name.clone(),
            total,
            used_before,
            peak_used: peak_used(attempt, on.index),
            peak_allocated: gauge.peak_allocated,
            peak_reserved: gauge.peak_reserved,
            context: context(samples, pid, on.index, used_before)?,
            steps: seen.steps,
            steps_per_second: seen.steps_per_second(),
            driver: attempt.start.driver.clone(),
            torch,
            cuda,
        })
    }

    fn is_on(&self, card: &Card) -> bool {
        cards::by_product(&self.gpu, Some(self.total)).is_some_and(|found| found.id == card.id)
    }
}

/// The process that used a GPU, where it was one.
fn only_process(samples: &[Sample]) -> Option<u32> {
    let gauges = samples.iter().flat_map(|sample| &sample.gauges);
    let mut pids = gauges
        .filter(|gauge| gauge.device.is_some() && gauge.peak_reserved > Bytes::ZERO)
        .map(|gauge| gauge.pid);
    let first = pids.next()?;
    pids.all(|pid| pid == first).then_some(first)
}

/// The GPU whose use has risen by at least what the process had reserved, where it was one.
fn only_gpu(attempt: &Attempt, reserved: Bytes) -> Option<&GpuModel> {
    // A process that was there before brimful may have held anything before.
    if attempt.start.is_attached() {
        return None;
    }
    let mut risen = attempt.start.gpus.iter().filter(|gpu| {
        let peak = peak_used(attempt, gpu.index);
        gpu.used
            .is_some_and(|before| peak.saturating_sub(before) >= reserved)
    });
    let first = risen.next()?;
    risen.next().is_none().then_some(first)
}

/// The most that was in use on a GPU during an attempt, by everybody.
pub fn peak_used(attempt: &Attempt, index: u32) -> Bytes {
    let sampled = attempt.samples.iter().filter_map(|s| gpu_of(s, index));
    let sampled = sampled.map(|gpu| gpu.used);
    let peaks = attempt.end.iter().flat_map(|end| &end.peaks.gpu_used);
    let at_end = peaks
        .filter(|(of, _)| *of == index)
        .map(|(_, bytes)| *bytes);
    sampled.chain(at_end).max().unwrap_or_default()
}

fn gpu_of(sample: &Sample, index: u32) -> Option<&GpuSample> {
    sample.gpus.iter().find(|gpu| gpu.index == index)
}

/// What the job's processes held of a GPU, where the sample stands for one moment.
fn own_use(sample: &Sample, index: u32, used_before: Bytes) -> Option<Bytes> {
    let gpu = gpu_of(sample, index)?;
    let is_steady = sample.lowest_gpu_used(index) == Some(gpu.used);
    let risen = gpu.used.saturating_sub(used_before);
    is_steady.then(|| gpu.ours.unwrap_or(risen))
}

fn gauge_of(sample: &Sample, pid: u32) -> Option<&Gauge> {
    sample.gauges.iter().find(|gauge| gauge.pid == pid)
}

/// The median of what the driver counted beside the allocator, over the settled samples.
fn context(samples: &[Sample], pid: u32, index: u32, used_before: Bytes) -> Option<Bytes> {
    let mut found = Vec::new();
    let mut since: Option<(Bytes, u64)> = None;
    for (at, sample) in samples.iter().enumerate() {
        let Some(reserved) = gauge_of(sample, pid).map(|gauge| gauge.reserved) else {
            continue;
        };
        let start_ms = match since {
            Some((before, start_ms)) if before == reserved => start_ms,
            _ => sample.at_ms,
        };
        since = Some((reserved, start_ms));
        let next = samples[at + 1..].iter().find_map(|s| gauge_of(s, pid));
        let stays = next.is_none_or(|next| next.reserved == reserved);
        if reserved == Bytes::ZERO || !stays || sample.at_ms < start_ms + SETTLED_MS {
            continue;
        }
        // After its end a process holds nothing, and its gauge still says what it held.
        let own = own_use(sample, index, used_before).filter(|own| *own >= reserved);
        found.extend(own.map(|own| own.saturating_sub(reserved)));
    }
    plausible_median(found)
}

fn plausible_median(mut contexts: Vec<Bytes>) -> Option<Bytes> {
    contexts.sort_unstable();
    let median = contexts.get(contexts.len() / 2).copied()?;
    (MIN_CONTEXT..=MAX_CONTEXT)
        .contains(&median)
        .then_some(median)
}

/// What a GPU held for a job while its processes waited with all of their memory, and the part of it that was not
/// theirs by their own account.
///
/// `reserved` is the sum of what their allocators held; the times are those of the record.
pub fn held_context(
    attempt: &Attempt,
    index: u32,
    used_before: Bytes,
    reserved: Bytes,
    held_ms: std::ops::RangeInclusive<u64>,
) -> Option<Bytes> {
    let samples = attempt.samples.iter();
    let samples = samples.filter(|sample| held_ms.contains(&sample.at_ms));
    let own = samples.filter_map(|sample| own_use(sample, index, used_before));
    let beside = own
        .filter(|own| *own >= reserved)
        .map(|own| own.saturating_sub(reserved));
    plausible_median(beside.collect())
}

/// What earlier runs measured, for a prediction of one job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measurements {
    /// Oldest first.
    pub runs: Vec<GpuMeasurement>,
    /// The job's digest.
    pub job: String,
    /// The driver of this machine; nothing where there is none, such as on a cluster's login node.
    pub driver: Option<String>,
}

impl Measurements {
    /// The context on a GPU model, from runs with the same release of torch and of the driver: that of the last run of
    /// the same job, else the median of all.
    pub fn context(&self, card: &Card, torch: &str) -> Option<MeasuredContext> {
        let torch = release(torch);
        let is_like = |run: &&GpuMeasurement| {
            run.is_on(card)
                && release(&run.torch) == torch
                && is_same_driver(run.driver.as_deref(), self.driver.as_deref())
        };
        let like: Vec<&GpuMeasurement> = self.runs.iter().filter(is_like).collect();
        let of_job = like.iter().rev().find(|run| run.job == self.job);
        let newest = &like[like.len().saturating_sub(MAX_RUNS)..];
        let mut contexts: Vec<Bytes> = newest.iter().map(|run| run.context).collect();
        contexts.sort_unstable();
        let last = newest.last()?;
        Some(MeasuredContext {
            context: match of_job {
                Some(run) => run.context,
                None => contexts[contexts.len() / 2],
            },
            n_runs: of_job.map_or(contexts.len(), |_| 1),
            same_job: of_job.is_some(),
            torch,
            driver: of_job.unwrap_or(last).driver.clone(),
        })
    }
}

/// The major version decides how large a context is. One that is not known does not differ.
fn is_same_driver(a: Option<&str>, b: Option<&str>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a.split('.').next() == b.split('.').next(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::AttemptLine;

    const MIB: u64 = 1 << 20;

    fn sample(at_ms: u64, used_mib: u64, reserved_mib: u64) -> Sample {
        Sample {
            at_ms,
            gpus: vec![GpuSample {
                index: 0,
                used: Bytes(used_mib * MIB),
                total: Bytes::from_gib(15),
                ..GpuSample::default()
            }],
            gauges: vec![Gauge {
                pid: 7,
                steps: at_ms / 100,
                device: Some(0),
                reserved: Bytes(reserved_mib * MIB),
                peak_reserved: Bytes(reserved_mib * MIB),
                peak_allocated: Bytes(reserved_mib * MIB / 2),
                ..Gauge::default()
            }],
            ..Sample::default()
        }
    }

    fn attempt(samples: Vec<Sample>) -> Attempt {
        Attempt {
            start: AttemptLine {
                gpus: vec![GpuModel {
                    index: 0,
                    name: "Tesla T4".into(),
                    total: Some(Bytes::from_gib(15)),
                    used: Some(Bytes::from_mib(100)),
                }],
                driver: Some("535.104.05".into()),
                ..AttemptLine::default()
            },
            hook: vec![HookLine::Torch {
                at_ms: 0,
                pid: 7,
                version: "2.13.0+cu130".into(),
                cuda: Some("13.0".into()),
            }],
            samples,
            ..Attempt::default()
        }
    }

    /// A context of 300 MiB beside 100 MiB of others; while memory rises the values do not belong together.
    fn steady() -> Vec<Sample> {
        vec![
            sample(0, 100, 0),
            sample(1000, 900, 1000),
            sample(2000, 1900, 2000),
            sample(3000, 2400, 2000),
            sample(4000, 2400, 2000),
            sample(5000, 2401, 2000),
            // It has ended.
            sample(6000, 100, 2000),
        ]
    }

    #[test]
    fn the_context_is_what_the_driver_counts_beside_the_allocator() {
        let found = GpuMeasurement::of(&attempt(steady()), "job").expect("one process");
        assert_eq!(found.context, Bytes::from_mib(301));
        assert_eq!(
            (found.used_before, found.peak_used, found.peak_reserved),
            (
                Bytes::from_mib(100),
                Bytes::from_mib(2401),
                Bytes::from_mib(2000)
            )
        );
        assert_eq!(
            (found.torch.as_str(), found.job.as_str()),
            ("2.13.0+cu130", "job")
        );
        let text = serde_json::to_string(&found).expect("JSON");
        let back: GpuMeasurement = serde_json::from_str(&text).expect("the same");
        assert_eq!(back, found);
    }

    #[test]
    fn what_the_driver_counts_for_the_job_comes_before_the_rise() {
        let mut samples = steady();
        for sample in &mut samples {
            sample.gpus[0].ours = Some(Bytes::from_mib(2250));
        }
        let found = GpuMeasurement::of(&attempt(samples), "").expect("one process");
        assert_eq!(found.context, Bytes::from_mib(250));
    }

    fn refused(change: impl Fn(&mut Attempt)) {
        let mut attempt = attempt(steady());
        change(&mut attempt);
        assert_eq!(GpuMeasurement::of(&attempt, ""), None);
    }

    #[test]
    fn what_is_held_at_the_end_is_measured_in_that_time() {
        let attempt = attempt(steady());
        let held = |reserved_mib, times| {
            let reserved = Bytes::from_mib(reserved_mib);
            held_context(&attempt, 0, Bytes::from_mib(100), reserved, times)
        };
        assert_eq!(held(2000, 3500..=5500), Some(Bytes::from_mib(301)));
        assert_eq!(held(2000, 6000..=9000), None);
        assert_eq!(held(2400, 3500..=5500), None);
    }

    #[test]
    fn what_cannot_be_attributed_is_not_measured() {
        refused(|attempt| attempt.start.gpus[0].used = None);
        refused(|attempt| attempt.start.gpus[0].used = Some(Bytes::from_gib(2)));
        refused(|attempt| attempt.start.containment = "attached".into());
        refused(|attempt| attempt.hook.clear());
        refused(|attempt| attempt.samples.truncate(3));
        refused(|attempt| {
            let mut other = attempt.samples[4].gauges[0].clone();
            other.pid = 8;
            attempt.samples[4].gauges.push(other);
        });
        refused(|attempt| {
            for sample in &mut attempt.samples {
                sample.gpus[0].used = Bytes::from_mib(400);
            }
        });
        refused(|attempt| {
            let second = GpuModel {
                index: 1,
                ..attempt.start.gpus[0].clone()
            };
            attempt.start.gpus.push(second);
            for sample in &mut attempt.samples {
                let second = GpuSample {
                    index: 1,
                    ..sample.gpus[0].clone()
                };
                sample.gpus.push(second);
            }
        });
    }

    fn run(job: &str, context_mib: u64) -> GpuMeasurement {
        GpuMeasurement {
            job: job.into(),
            gpu: "Tesla T4".into(),
            total: Bytes::from_mib(15360),
            context: Bytes::from_mib(context_mib),
            torch: "2.13.0+cu130".into(),
            driver: Some("535.104.05".into()),
            ..GpuMeasurement::default()
        }
    }

    fn context(runs: Vec<GpuMeasurement>, driver: Option<&str>, torch: &str) -> Option<String> {
        let measured = Measurements {
            runs,
            job: "mine".into(),
            driver: driver.map(str::to_owned),
        };
        let card = cards::find("t4").expect("a GPU of the catalogue");
        measured.context(card, torch).map(|found| found.to_string())
    }

    #[test]
    fn the_last_run_of_the_same_job_counts_before_the_median() {
        let others = vec![run("a", 200), run("b", 900), run("c", 300)];
        let with = "with torch 2.13 and driver 535.104.05";
        assert_eq!(
            context(others.clone(), Some("535.1"), "2.13.1").as_deref(),
            Some(format!("300 MiB, measured by 3 earlier runs (median) {with}").as_str())
        );
        let mut all = vec![run("mine", 350), run("mine", 310)];
        all.extend(others);
        assert_eq!(
            context(all, None, "2.13.1").as_deref(),
            Some(format!("310 MiB, measured by the last run of this job {with}").as_str())
        );
    }

    #[test]
    fn runs_on_another_gpu_or_with_other_releases_do_not_count() {
        assert_eq!(context(vec![], None, "2.13.0"), None);
        assert_eq!(context(vec![run("a", 300)], Some("580.1"), "2.13.0"), None);
        assert_eq!(context(vec![run("a", 300)], Some("535.1"), "2.12.0"), None);
        let l4 = GpuMeasurement {
            gpu: "NVIDIA L4".into(),
            total: Bytes::from_mib(23034),
            ..run("a", 300)
        };
        assert_eq!(context(vec![l4], Some("535.1"), "2.13.0"), None);
    }
}
