//! What earlier runs change in a plan.
//!
//! - A run that died of memory, under the limit of today or a larger one: its settings, and all that need at least as
//!   much of what it lacked, are not planned again.
//! - A peak above what was predicted as likely: predictions of that kind are multiplied by the ratio, at most by
//!   [`MAX_FACTOR`].
//! - A rate, once a run made `ENOUGH_STEPS` steps on the same kind of machine: it stands in for the estimate at these
//!   settings, and the estimates of other settings are set right by it.

use std::collections::HashMap;

use crate::explain::Cause;
use crate::job::Settings;
use crate::plan::candidates::{CandidateIndex, RehearsalPoint};
use crate::plan::fit::{Demand, GpuSum, HostSum, times};
use crate::plan::{Observed, Reason, ReasonKind};
use crate::units::Bytes;

/// Predictions are not multiplied by more: something else was measured then.
const MAX_FACTOR: f64 = 3.0;

/// What earlier runs change in a plan.
#[derive(Debug)]
pub(crate) struct Lessons {
    /// Factors on bytes.
    pub(crate) host: f64,
    pub(crate) shm: f64,
    pub(crate) gpu: f64,
    pub(crate) deaths: Vec<Death>,
    pub(crate) rates: HashMap<CandidateIndex, f64>,
    /// Measured seconds of the GPU per sample, where no model knows them.
    pub(crate) card_seconds: Option<f64>,
    /// Measured seconds of the GPU against those of the model.
    pub(crate) gpu_pace: Option<f64>,
    /// Measured against estimated seconds on processors.
    pub(crate) pace: f64,
    pub(crate) reasons: Vec<Reason>,
}

/// What was lacking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lack {
    Host,
    Shm,
    Card,
    /// No piece of the card was large enough, under one setting of the allocator.
    CardInOnePiece,
    /// Open files or mappings, which come with workers.
    Handles,
}

/// A run that died of memory.
#[derive(Clone, Debug)]
pub(crate) struct Death {
    pub(crate) lack: Lack,
    pub(crate) settings: Settings,
    pub(crate) spot: Option<RehearsalPoint>,
    /// What it needed of it, by the same reckoning as everything else.
    pub(crate) bytes: Option<u64>,
    pub(crate) evaluating: bool,
}

impl Default for Lessons {
    fn default() -> Lessons {
        Lessons {
            host: 1.0,
            shm: 1.0,
            gpu: 1.0,
            deaths: Vec::new(),
            rates: HashMap::new(),
            card_seconds: None,
            gpu_pace: None,
            pace: 1.0,
            reasons: Vec::new(),
        }
    }
}

impl Lack {
    /// What a cause of death says was lacking; nothing where settings cannot help by what is known.
    pub(crate) fn of(cause: Cause) -> Option<Lack> {
        match cause {
            Cause::HostOomKill | Cause::DataloaderWorkerKilledOom | Cause::HostAllocFailed => {
                Some(Lack::Host)
            }
            Cause::ShmExhausted => Some(Lack::Shm),
            Cause::CudaOomExhausted => Some(Lack::Card),
            Cause::CudaOomFragmented => Some(Lack::CardInOnePiece),
            Cause::FdOrShmLimit => Some(Lack::Handles),
            Cause::CudaOomOtherProcess | Cause::NotMemory | Cause::Ambiguous => None,
        }
    }

    /// The bytes of it that are taken, for comparison.
    pub(crate) fn bytes(self, taken: &Demand) -> Option<u64> {
        match self {
            Lack::Host => Some(taken.host.safe),
            Lack::Shm => Some(taken.host.shm_safe),
            Lack::Card | Lack::CardInOnePiece => taken.gpu.map(|gpu| gpu.safe),
            Lack::Handles => None,
        }
    }
}

impl Lessons {
    /// Raises the factors to what was seen.
    pub(crate) fn raise(&mut self, seen: &Observed, taken: &Demand) {
        let ratio = |seen: Option<Bytes>, likely: u64| match seen {
            Some(seen) if likely > 0 => (seen.get() as f64 / likely as f64).clamp(1.0, MAX_FACTOR),
            _ => 1.0,
        };
        self.host = self.host.max(ratio(seen.host_used, taken.host.likely));
        self.shm = self.shm.max(ratio(seen.shm_used, taken.host.shm_likely));
        if let Some(gpu) = taken.gpu {
            self.gpu = self.gpu.max(ratio(seen.gpu_reserved, gpu.likely));
        }
    }

    pub(crate) fn tell(&mut self) {
        let factors = [
            (self.host, "host memory"),
            (self.shm, "/dev/shm"),
            (self.gpu, "GPU memory"),
        ];
        for (factor, what) in factors {
            if factor > 1.0 + 1e-3 {
                self.reasons.push(Reason {
                    kind: ReasonKind::Learnt,
                    text: format!(
                        "an earlier run used {:.0} % more {what} than predicted, so all predictions are raised by that factor",
                        (factor - 1.0) * 100.0
                    ),
                    ..Reason::default()
                });
            }
        }
    }

    pub(crate) fn applied(&self, taken: Demand) -> Demand {
        let host = taken.host;
        Demand {
            host: HostSum {
                likely: times(host.likely, self.host),
                safe: times(host.safe, self.host),
                shm_likely: times(host.shm_likely, self.shm),
                shm_safe: times(host.shm_safe, self.shm),
            },
            gpu: taken.gpu.map(|gpu| GpuSum {
                likely: times(gpu.likely, self.gpu),
                safe: times(gpu.safe, self.gpu),
                fits: gpu.fits && self.gpu <= 1.0,
            }),
        }
    }

    pub(crate) fn rate(&self, place: CandidateIndex) -> Option<f64> {
        self.rates.get(&place).copied()
    }

    pub(crate) fn cpu_pace(&self, on_cpu: bool) -> f64 {
        if on_cpu { self.pace } else { 1.0 }
    }
}
