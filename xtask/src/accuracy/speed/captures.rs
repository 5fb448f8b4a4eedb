//! The captured steps of the measured trainings.

use anyhow::{Context, Result};
use brimful::speed::{CapturedStep, GpuRates, Kernels, Parameters};
use brimful_rehearse::stage::Stage;

use super::super::Options;
use super::super::text::hash;
use super::super::workers::Workers;
use super::fit::{self, Observation, residuals};
use super::gpus;
use super::rows::{self, Set, SpeedRow, Work};

/// Number of folds in which families are left out of a fit.
const FOLDS: u64 = 5;
/// What one kernel weighs beside a whole training.
const KERNEL_WEIGHT: f64 = 0.02;
/// What an inference weighs: speeds of training are what the model is for.
const INFERENCE_WEIGHT: f64 = 0.3;

/// A row with what it computes.
pub(super) struct Seen {
    pub(super) row: SpeedRow,
    pub(super) kernels: Kernels,
    pub(super) step: CapturedStep,
}

impl Seen {
    pub(super) fn observation(&self) -> Observation<'_> {
        self.observation_on(gpus::rates(self.row.gpu))
    }

    fn observation_on(&self, gpu: GpuRates) -> Observation<'_> {
        Observation {
            kernels: &self.kernels,
            gpu,
            calls: match self.row.set {
                Set::NeuSightKernels => 0.0,
                _ => self.step.calls() as f64,
            },
            seconds: self.row.seconds,
            weight: match self.row.set {
                Set::NeuSightKernels => KERNEL_WEIGHT,
                Set::Inference => INFERENCE_WEIGHT,
                _ => 1.0,
            },
        }
    }

    /// Predicted time over measured time.
    pub(super) fn ratio(&self, p: &Parameters) -> f64 {
        self.ratio_on(gpus::rates(self.row.gpu), p)
    }

    /// The same with other rates of the GPU.
    pub(super) fn ratio_on(&self, gpu: GpuRates, p: &Parameters) -> f64 {
        residuals(&[self.observation_on(gpu)], p)[0].exp()
    }
}

/// What came of reading a directory.
pub(super) struct Captured {
    pub(super) seen: Vec<Seen>,
    /// Rows whose model could not be built, with the reason.
    pub(super) left_out: usize,
    pub(super) versions: String,
}

pub(super) fn captured(options: &Options) -> Result<Captured> {
    let library = crate::differential::phantom(options.phantom.clone())?;
    let stage = Stage::new(&library).context("the phantom cannot be staged")?;
    let versions = super::super::versions(&options.python, &stage)?;
    let mut rows = rows::read(&options.truth.canonicalize()?)?;
    if let Some(sample) = options.sample {
        rows.sort_by_key(|row| (row.set, hash(&row.label)));
        let mut taken = 0;
        let mut set = None;
        rows.retain(|row| {
            taken = if set == Some(row.set) { taken + 1 } else { 0 };
            set = Some(row.set);
            taken < sample
        });
    }
    let hook = include_str!("../../../../crates/brimful-rehearse/src/hook/brimful_ops.py");
    let mut workers = Workers::new(
        &options.python,
        &stage,
        &format!("{versions} {hook} captured"),
    )?;
    let jobs: Vec<_> = rows
        .iter()
        .filter_map(|row| match &row.work {
            Work::Job(job) => Some(job.clone()),
            Work::Kernel(_) => None,
        })
        .collect();
    let mut answers = workers.answers(&jobs)?.into_iter();
    let mut seen = Vec::new();
    let mut left_out = 0;
    for row in rows {
        let step = match &row.work {
            Work::Kernel(step) => Some((**step).clone()),
            Work::Job(_) => answers.next().and_then(|answer| answer.step),
        };
        let Some(step) = step.filter(|step| !step.ops.is_empty()) else {
            left_out += 1;
            continue;
        };
        seen.push(Seen {
            kernels: Kernels::of(&step),
            row,
            step,
        });
    }
    Ok(Captured {
        seen,
        left_out,
        versions,
    })
}

pub(super) fn is_fitted(set: Set) -> bool {
    matches!(
        set,
        Set::TimmNchw | Set::TimmNhwc | Set::Inference | Set::LitGpt | Set::NeuSightKernels
    )
}

/// Whether parameters may be fitted to a model: one half of them, by a hash of the name. The other half is for tests.
pub(super) fn is_for_development(model: &str) -> bool {
    rows::sha256(&model.to_lowercase()).is_some_and(|digest| digest[31] % 2 == 0)
}

/// Predictions for models whose whole family was left out of the fit, one list for each fold.
pub(super) fn with_families_left_out(seen: &[Seen]) -> Vec<(&Seen, f64)> {
    let mut found = Vec::new();
    for fold in 0..FOLDS {
        let is_out =
            |row: &SpeedRow| row.set != Set::NeuSightKernels && hash(&row.family) % FOLDS == fold;
        let kept: Vec<_> = seen
            .iter()
            .filter(|s| is_fitted(s.row.set) && !is_out(&s.row))
            .map(Seen::observation)
            .collect();
        let p = fit::fit(&kept);
        let tested = seen.iter().filter(|s| {
            matches!(s.row.set, Set::TimmNchw | Set::TimmNhwc | Set::LitGpt) && is_out(&s.row)
        });
        found.extend(tested.map(|s| (s, s.ratio(&p))));
    }
    found
}
