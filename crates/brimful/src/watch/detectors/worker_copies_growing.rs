//! DataLoader workers copy shared pages.

use crate::watch::alarm::{DetectorOutput, Urgency};
use crate::watch::detectors::Detector;
use crate::watch::sample::Sample;
use crate::watch::state::WatchState;
use crate::watch::words::size;
use crate::watch::workers::Worker;

pub(super) const DETECTOR: Detector = Detector {
    id: "worker_copies_growing",
    about: "The private memory of most DataLoader workers grows while their shared memory shrinks: forked workers that \
            read Python objects write their reference counts, and the kernel copies page after page. Raised from 64 MiB \
            in total and 8 MiB per worker; a warning if the remaining copies do not fit. Store the data in \
            arrays, or share it with `brimful.share`.",
    check,
};

const LEAST_TOTAL: u64 = 64 << 20;
const LEAST_EACH: u64 = 8 << 20;
/// What shrinks has to explain what grows: else the workers only fill their own buffers.
const LEAST_EXPLAINED: f64 = 0.4;
const LEAST_LOOKS: u32 = 3;
const LEAST_MS: u64 = 10_000;

fn check(state: &WatchState, _sample: &Sample) -> Option<DetectorOutput> {
    let seen = || {
        state.workers.iter().filter(|worker| {
            worker.n_looks >= LEAST_LOOKS
                && worker.last_ms.saturating_sub(worker.first_ms) >= LEAST_MS
        })
    };
    let n_workers = seen().count();
    let copying: Vec<&Worker> = seen()
        .filter(|worker| {
            let rise = worker.private_rise();
            rise >= LEAST_EACH && worker.shared_fall() as f64 >= LEAST_EXPLAINED * rise as f64
        })
        .collect();
    let sum = |value: fn(&Worker) -> u64| {
        copying
            .iter()
            .fold(0_u64, |sum, worker| sum.saturating_add(value(worker)))
    };
    let total = sum(Worker::private_rise);
    if copying.is_empty() || copying.len() * 2 <= n_workers || total < LEAST_TOTAL {
        return None;
    }
    let still_shared = sum(|worker| worker.last_shared);
    let does_not_fit = state
        .fresh_headroom()
        .is_some_and(|headroom| still_shared > headroom);
    let n_copying = copying.len() as u64;
    let who = if n_copying == 1 {
        "a DataLoader worker is copying shared pages".into()
    } else {
        format!("{n_copying} DataLoader workers are copying shared pages")
    };
    Some(DetectorOutput {
        urgency: if does_not_fit {
            Urgency::Warning
        } else {
            Urgency::Note
        },
        message: format!(
            "{who}: +{} each, {} in total, up to {} more expected",
            size(total / n_copying),
            size(total),
            size(still_shared)
        ),
    })
}

#[cfg(test)]
mod tests {
    use crate::units::Bytes;
    use crate::watch::alarm::Urgency;
    use crate::watch::sample::{ProcessSample, Role, Sample};
    use crate::watch::testing::{GB, check_alarms, check_quiet, host_series};

    const ID: &str = "worker_copies_growing";

    /// Four workers, looked at every five seconds; memory in MiB by the number of the look.
    fn series(used: u64, private: impl Fn(u64) -> u64, shared: impl Fn(u64) -> u64) -> Vec<Sample> {
        let mut series = host_series(60, 13 * GB, |_| used);
        for (second, sample) in (0..).zip(&mut series) {
            if second % 5 == 0 {
                sample.processes = (0..4)
                    .map(|worker| ProcessSample {
                        pid: 100 + worker,
                        role: Role::Worker { loader: 0, worker },
                        name: "pt_data_worker".into(),
                        private: Bytes::from_mib(private(second / 5)),
                        shared: Bytes::from_mib(shared(second / 5)),
                        swapped: Bytes::ZERO,
                    })
                    .collect();
            }
        }
        series
    }

    #[test]
    fn copies_on_write_are_told_per_worker_and_in_all() {
        check_alarms(
            ID,
            &series(5 * GB, |k| 50 + 100 * k, |k| 2000 - 100 * k),
            &[(
                Urgency::Note,
                "4 DataLoader workers are copying shared pages: +200 MiB each, 800 MiB in total, up to 7 GiB more expected",
            )],
        );
    }

    #[test]
    fn copies_that_will_not_fit_are_a_warning() {
        let said = check_alarms(
            ID,
            &series(9 * GB, |k| 50 + 100 * k, |k| 2000 - 100 * k),
            &[],
        );
        assert_eq!(said[0].urgency, Urgency::Warning);
    }

    #[test]
    fn buffers_of_the_workers_own_are_no_copies() {
        check_quiet(ID, &series(5 * GB, |k| 50 + 100 * k, |_| 2000));
        check_quiet(ID, &series(5 * GB, |_| 50, |k| 2000 - 100 * k));
    }
}
