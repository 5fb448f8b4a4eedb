//! Another process uses memory of a GPU of this job.

use crate::watch::alarm::{DetectorOutput, Urgency};
use crate::watch::detectors::Detector;
use crate::watch::gpus::Intrusion;
use crate::watch::sample::{GpuSample, Sample};
use crate::watch::state::WatchState;
use crate::watch::words::size;

pub(super) const DETECTOR: Detector = Detector {
    id: "other_process_on_gpu",
    about: "A process outside this job started to use a GPU of the job, or its memory use there grew by at least 256 MiB. A \
            warning if less than 10 % of the GPU memory is left. `brimful probe` lists processes that were there before.",
    check,
};

/// A bare CUDA context takes 200 to 500 MiB.
const LEAST: u64 = 256 << 20;
const LITTLE_LEFT: f64 = 0.1;

fn check(state: &WatchState, sample: &Sample) -> Option<DetectorOutput> {
    sample
        .gpus
        .iter()
        .filter(|gpu| gpu.ours.is_some())
        .filter_map(|gpu| told(gpu, state.gpus.intrusion(gpu, LEAST)?))
        .max_by_key(|told| told.urgency)
}

fn told(gpu: &GpuSample, intrusion: Intrusion) -> Option<DetectorOutput> {
    let left = gpu.total.saturating_sub(gpu.used);
    let index = gpu.index;
    let what = match intrusion {
        Intrusion::Entered {
            pid,
            holds: Some(holds),
        } => format!(
            "another process started to use GPU {index}: PID {pid} holds {}",
            size(holds)
        ),
        Intrusion::Entered { pid, holds: None } => {
            format!("another process started to use GPU {index}: PID {pid}")
        }
        Intrusion::Grew { pid, by, holds } => format!(
            "another process uses more memory on GPU {index}: PID {pid} holds {} (+{})",
            size(holds),
            size(by)
        ),
        Intrusion::Unnamed { by } => {
            format!("other processes took {} of GPU {index}", size(by))
        }
    };
    // Inside of a share of a GPU the driver may count what lies outside of it too.
    let adds_up = gpu.total.get() > 0 && gpu.used <= gpu.total;
    adds_up.then(|| DetectorOutput {
        urgency: if left.share_of(gpu.total) < LITTLE_LEFT {
            Urgency::Warning
        } else {
            Urgency::Note
        },
        message: format!(
            "{what}; {} of {} left",
            size(left.get()),
            size(gpu.total.get())
        ),
    })
}

#[cfg(test)]
mod tests {
    use crate::units::Bytes;
    use crate::watch::alarm::Urgency;
    use crate::watch::sample::{GpuSample, Sample};
    use crate::watch::testing::{check_alarms, check_quiet};

    const ID: &str = "other_process_on_gpu";

    /// A card of 16 GiB of which the job has 10; others in MiB by the second.
    fn series(others: impl Fn(u64) -> Vec<(u32, Option<u64>)>) -> Vec<Sample> {
        (0..60)
            .map(|second| {
                let others: Vec<(u32, Option<Bytes>)> = others(second)
                    .into_iter()
                    .map(|(pid, mib)| (pid, mib.map(Bytes::from_mib)))
                    .collect();
                let held: u64 = others
                    .iter()
                    .filter_map(|(_, held)| Some(held.as_ref()?.get()))
                    .sum();
                Sample {
                    at_ms: second * 1000,
                    gpus: vec![GpuSample {
                        index: 0,
                        used: Bytes::from_gib(10).saturating_add(Bytes(held)),
                        total: Bytes::from_gib(16),
                        ours: Some(Bytes::from_gib(10)),
                        others,
                        ..GpuSample::default()
                    }],
                    ..Sample::default()
                }
            })
            .collect()
    }

    #[test]
    fn who_comes_is_named() {
        check_alarms(
            ID,
            &series(|s| {
                if s < 30 {
                    vec![]
                } else {
                    vec![(99, Some(2048))]
                }
            }),
            &[(
                Urgency::Note,
                "another process started to use GPU 0: PID 99 holds 2 GiB; 4 GiB of 16 GiB left",
            )],
        );
    }

    #[test]
    fn who_grows_is_named_and_little_left_is_a_warning() {
        check_alarms(
            ID,
            &series(|s| vec![(99, Some(if s < 30 { 1024 } else { 5120 }))]),
            &[(
                Urgency::Warning,
                "another process uses more memory on GPU 0: PID 99 holds 5 GiB (+4 GiB); 1 GiB of 16 GiB left",
            )],
        );
    }

    #[test]
    fn who_was_there_before_is_no_news() {
        check_quiet(ID, &series(|_| vec![(99, Some(4096)), (98, None)]));
        check_quiet(ID, &series(|_| vec![]));
    }

    #[test]
    fn who_is_unknown_is_nobody_else() {
        let unknown = |from: usize| {
            let mut series = series(|_| vec![(99, Some(4096))]);
            for sample in &mut series[from..] {
                let gpu = &mut sample.gpus[0];
                gpu.ours = None;
                gpu.unknown = std::mem::take(&mut gpu.others);
                gpu.unknown.push((98, Some(Bytes::from_gib(10))));
            }
            series
        };
        check_quiet(ID, &unknown(0));
        check_quiet(ID, &unknown(30));
        // At one look the numbers could not be matched: nobody has come.
        let mut once = unknown(0);
        once.truncate(1);
        once.extend(series(|_| vec![(99, Some(4096))]).split_off(1));
        check_quiet(ID, &once);
    }

    #[test]
    fn a_gpu_that_the_job_does_not_use_is_no_concern() {
        let mut series = series(|s| {
            if s < 30 {
                vec![]
            } else {
                vec![(99, Some(2048))]
            }
        });
        for sample in &mut series {
            sample.gpus[0].ours = None;
        }
        check_quiet(ID, &series);
    }

    #[test]
    fn more_in_use_than_there_is_proves_nothing() {
        let mut series = series(|s| {
            if s < 30 {
                vec![]
            } else {
                vec![(99, Some(2048))]
            }
        });
        for sample in &mut series {
            sample.gpus[0].total = Bytes::from_gib(8);
        }
        check_quiet(ID, &series);
    }

    #[test]
    fn a_driver_that_names_nobody_still_shows_what_is_gone() {
        let mut series = series(|_| vec![]);
        for sample in &mut series[20..] {
            sample.gpus[0].used = Bytes::from_gib(13);
        }
        check_alarms(
            ID,
            &series,
            &[(
                Urgency::Note,
                "other processes took 3 GiB of GPU 0; 3 GiB of 16 GiB left",
            )],
        );
    }
}
