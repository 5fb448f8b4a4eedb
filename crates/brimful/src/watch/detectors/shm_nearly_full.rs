//! `/dev/shm` fills up.

use crate::watch::alarm::{DetectorOutput, Urgency};
use crate::watch::detectors::Detector;
use crate::watch::sample::Sample;
use crate::watch::state::WatchState;
use crate::watch::words::size;

pub(super) const DETECTOR: Detector = Detector {
    id: "shm_nearly_full",
    about: "/dev/shm is 90 % full (warning) or 98 % (critical). DataLoader workers use it to pass batches; \
            if it is full, a worker crashes with a bus error that does not mention memory.",
    check,
};

const WARNING: f64 = 0.90;
const CRITICAL: f64 = 0.98;
/// It is over below this.
const OVER: f64 = 0.80;

fn check(state: &WatchState, sample: &Sample) -> Option<DetectorOutput> {
    let shm = sample.shm?;
    let share = shm.used.share_of(shm.total);
    let least = if state.standing(DETECTOR.id).is_some() {
        OVER
    } else {
        WARNING
    };
    (share >= least).then(|| DetectorOutput {
        urgency: if share >= CRITICAL {
            Urgency::Critical
        } else {
            Urgency::Warning
        },
        message: format!(
            "/dev/shm is {:.0} % full, {} of {} left: workers crash with a bus error when it is full",
            (share * 100.0).min(100.0).floor(),
            size(shm.total.saturating_sub(shm.used).get()),
            size(shm.total.get())
        ),
    })
}

#[cfg(test)]
mod tests {
    use crate::units::Bytes;
    use crate::watch::alarm::Urgency;
    use crate::watch::sample::{Sample, SharedMemorySample};
    use crate::watch::testing::{check_alarms, check_quiet};

    const ID: &str = "shm_nearly_full";

    fn series(used_mib: &[u64], total_mib: u64) -> Vec<Sample> {
        (0..)
            .zip(used_mib)
            .map(|(second, used)| Sample {
                at_ms: second * 1000,
                shm: Some(SharedMemorySample {
                    used: Bytes::from_mib(*used),
                    total: Bytes::from_mib(total_mib),
                }),
                ..Sample::default()
            })
            .collect()
    }

    #[test]
    fn it_is_said_and_said_again_when_it_gets_worse() {
        check_alarms(
            ID,
            &series(&[10, 58, 50, 58, 63, 58, 63], 64),
            &[
                (
                    Urgency::Warning,
                    "/dev/shm is 90 % full, 6 MiB of 64 MiB left: workers crash with a bus error when it is full",
                ),
                (
                    Urgency::Critical,
                    "/dev/shm is 98 % full, 1 MiB of 64 MiB left: workers crash with a bus error when it is full",
                ),
            ],
        );
    }

    #[test]
    fn room_is_silence() {
        check_quiet(ID, &series(&[10, 50, 57], 64));
        check_quiet(ID, &series(&[0, 5], 0));
    }
}
