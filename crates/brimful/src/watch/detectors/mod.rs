//! Detectors of memory problems, one file each.
//!
//! A detector is a function of the state so far and the latest sample. It returns an output as long as the problem lasts;
//! [`Watch::observe`](crate::watch::Watch::observe) raises an alarm once, again when it gets worse, and again when it
//! returns after a minute without it. To avoid flicker at a threshold, a detector whose alarm is active
//! ([`WatchState::standing`](crate::watch::state::WatchState::standing)) clears it only at a lower value than the one that raised it.
//!
//! To add one, copy the nearest file and add it to [`CATALOGUE`].

mod allocator_thrash;
mod below_reserve;
mod detector;
mod other_process_on_gpu;
mod shm_nearly_full;
mod stalled_by_memory_pressure;
mod steady_leak;
pub(crate) mod time_to_brim;
mod worker_copies_growing;

pub use detector::Detector;

/// Every detector, in the order readers should meet them: host, shared memory, workers, GPU.
pub const CATALOGUE: &[Detector] = &[
    time_to_brim::DETECTOR,
    below_reserve::DETECTOR,
    steady_leak::DETECTOR,
    stalled_by_memory_pressure::DETECTOR,
    shm_nearly_full::DETECTOR,
    worker_copies_growing::DETECTOR,
    allocator_thrash::DETECTOR,
    other_process_on_gpu::DETECTOR,
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ids_are_unique_words_and_every_detector_says_what_it_is_about() {
        let ids: BTreeSet<&str> = CATALOGUE.iter().map(|detector| detector.id).collect();
        assert_eq!(ids.len(), CATALOGUE.len());
        for detector in CATALOGUE {
            assert!(
                detector
                    .id
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b == b'_')
            );
            assert!(detector.about.ends_with('.'), "{}", detector.id);
        }
    }
}
