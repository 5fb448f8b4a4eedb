//! What is measured of a running attempt: its samples, their peaks, and what the hook reports.

use std::time::{Duration, Instant};

use brimful::record::{HookLine, KernelCounts, Peaks};
use brimful::watch::{Alarm, Sample, Watch};

use crate::contain::Containment;
use crate::hook::Staged;
use crate::sampler::Sampler;

const HOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Takes samples of an attempt and gives them to the detectors.
pub(crate) struct Watcher {
    pub(crate) sampler: Sampler,
    pub(crate) watch: Watch,
    hook: Option<Staged>,
    hook_read_at: Instant,
    pub(crate) peaks: Peaks,
    pub(crate) last: Option<Sample>,
    pub(crate) n_samples: u64,
    /// False after a bug of ours: the training continues unwatched.
    pub(crate) is_active: bool,
}

impl Watcher {
    pub(crate) fn new(sampler: Sampler, hook: Option<Staged>, started: Instant) -> Watcher {
        Watcher {
            sampler,
            watch: Watch::default(),
            hook,
            hook_read_at: started,
            peaks: Peaks::default(),
            last: None,
            n_samples: 0,
            is_active: true,
        }
    }

    /// What the hook has written, if it is time to look.
    pub(crate) fn hook_lines_if_due(&mut self) -> Vec<HookLine> {
        if self.hook_read_at.elapsed() < HOOK_INTERVAL {
            return Vec::new();
        }
        self.hook_read_at = Instant::now();
        self.hook_lines()
    }

    fn hook_lines(&mut self) -> Vec<HookLine> {
        self.hook.as_mut().map_or_else(Vec::new, Staged::new_lines)
    }

    /// What the hook and torchelastic have written until the end.
    pub(crate) fn last_hook_lines(&mut self, at_ms: u64) -> Vec<HookLine> {
        let mut lines = self.hook_lines();
        lines.extend(self.hook.as_ref().and_then(|hook| hook.error_file(at_ms)));
        lines
    }

    /// Adds a sample of a job that has not ended, and says what the detectors make of it.
    pub(crate) fn observe(&mut self, sample: &Sample) -> Vec<Alarm> {
        self.n_samples += 1;
        self.peaks.include(sample);
        let alarms = self.watch.observe(sample);
        if !alarms.is_empty() {
            // The processes at this moment are what an explanation will want.
            self.sampler.look_closely();
        }
        alarms
    }

    pub(crate) fn at_ms(&self) -> u64 {
        self.sampler.at_ms()
    }

    /// What the kernel has counted for the job.
    pub(crate) fn kernel_counts(&mut self, contained: &Containment) -> KernelCounts {
        self.sampler.kernel_counts(contained)
    }

    /// Removes the hook's files.
    pub(crate) fn remove_hook(&mut self) {
        if let Some(hook) = self.hook.take() {
            hook.remove();
        }
    }
}
