//! The CUDA caching allocator repeatedly frees its cache and retries.

use crate::watch::alarm::{DetectorOutput, Urgency};
use crate::watch::detectors::Detector;
use crate::watch::sample::Sample;
use crate::watch::state::WatchState;

pub(super) const DETECTOR: Detector = Detector {
    id: "allocator_thrash",
    about: "PyTorch's allocator failed to allocate, synchronized the GPU, freed its cache and retried, at several samples \
            within a minute (note), or twenty times (warning). Each retry takes milliseconds to seconds, and a slightly \
            larger batch fails with an out-of-memory error.",
    check,
};

/// Once or twice may be a batch of another shape or the first evaluation.
const LEAST_RETRIES: u64 = 3;
const LEAST_RISES: usize = 2;
const WARNING: u64 = 20;

fn check(state: &WatchState, _sample: &Sample) -> Option<DetectorOutput> {
    let thrash = state.retries.worst()?;
    let is_standing = state.standing(DETECTOR.id).is_some();
    let is_enough = thrash.n_retries >= LEAST_RETRIES && thrash.n_rises >= LEAST_RISES;
    let is_going_on = is_standing && thrash.n_retries > 0;
    if !is_enough && !is_going_on {
        return None;
    }
    let device = match thrash.device {
        Some(device) => format!("GPU {device} of process {}", thrash.pid),
        None => format!("the GPU of process {}", thrash.pid),
    };
    Some(DetectorOutput {
        urgency: if thrash.n_retries >= WARNING {
            Urgency::Warning
        } else {
            Urgency::Note
        },
        message: format!(
            "{device} is almost full: PyTorch freed its cache and retried {} times in the last minute",
            thrash.n_retries
        ),
    })
}

#[cfg(test)]
mod tests {
    use crate::watch::alarm::Urgency;
    use crate::watch::sample::{Gauge, Sample};
    use crate::watch::testing::{check_alarms, check_quiet};

    const ID: &str = "allocator_thrash";

    fn series(retries: impl Fn(u64) -> u64) -> Vec<Sample> {
        (0..600)
            .map(|second| Sample {
                at_ms: second * 1000,
                gauges: vec![Gauge {
                    pid: 4711,
                    device: Some(0),
                    retries: retries(second),
                    ..Gauge::default()
                }],
                ..Sample::default()
            })
            .collect()
    }

    #[test]
    fn retries_that_come_again_are_said_once() {
        check_alarms(
            ID,
            &series(|s| 7 + s / 10),
            &[(
                Urgency::Note,
                "GPU 0 of process 4711 is almost full: PyTorch freed its cache and retried 3 times in the last minute",
            )],
        );
    }

    #[test]
    fn many_are_worse() {
        let said = check_alarms(ID, &series(|s| s), &[]);
        assert_eq!(said.last().unwrap().urgency, Urgency::Warning);
    }

    #[test]
    fn what_was_before_and_what_came_once_is_nothing() {
        check_quiet(ID, &series(|_| 50));
        check_quiet(ID, &series(|s| if s < 300 { 0 } else { 5 }));
    }
}
