//! How far the training is, and the peak of each epoch.

use std::collections::VecDeque;

use crate::watch::sample::{Gauge, Sample};
use crate::watch::trend::Trend;

const N_EPOCHS: usize = 64;

/// Progress by the gauge of the process that leads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    /// Process and steps.
    lead: Option<(u32, u64)>,
    current: Option<Epoch>,
    done: VecDeque<Epoch>,
    /// Of the peaks, in bytes per epoch.
    growth: Option<Trend>,
}

/// One pass over the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Epoch {
    /// From 1.
    pub number: u64,
    pub began_ms: u64,
    pub used_peak: u64,
}

impl Progress {
    pub(crate) fn take(&mut self, sample: &Sample, now_ms: u64) {
        // The first process by steps; the smallest id of equals, so that ranks in step do not take turns.
        let Some(gauge) = sample
            .gauges
            .iter()
            .max_by_key(|gauge| (gauge.steps, std::cmp::Reverse(gauge.pid)))
        else {
            return;
        };
        if self.lead.is_some_and(|(_, steps)| gauge.steps < steps) {
            *self = Progress::default();
        }
        self.lead = Some((gauge.pid, gauge.steps));
        self.take_epoch(gauge, sample, now_ms);
    }

    fn take_epoch(&mut self, gauge: &Gauge, sample: &Sample, now_ms: u64) {
        let Some(host) = &sample.host else {
            return;
        };
        let used = host.used.get();
        match &mut self.current {
            Some(epoch) if epoch.number == gauge.epochs => {
                epoch.used_peak = epoch.used_peak.max(used);
            }
            current => {
                let next = Epoch {
                    number: gauge.epochs,
                    began_ms: now_ms,
                    used_peak: used,
                };
                let last = current.replace(next);
                match last {
                    Some(last) if last.number < gauge.epochs => {
                        // Number 0 is the time before the first epoch: imports and loading.
                        if last.number > 0 {
                            self.done.push_back(last);
                        }
                        if self.done.len() > N_EPOCHS {
                            self.done.pop_front();
                        }
                    }
                    _ => self.done.clear(),
                }
                self.growth = growth(&self.done);
            }
        }
    }

    pub(crate) fn steps(&self) -> Option<u64> {
        Some(self.lead?.1)
    }

    /// The number of the present epoch; `None` where nothing counts them.
    pub(crate) fn epoch(&self) -> Option<u64> {
        self.current
            .map(|epoch| epoch.number)
            .filter(|number| *number > 0)
    }

    /// Growth of the peaks in bytes per epoch, without the first.
    pub(crate) fn growth_per_epoch(&self) -> Option<Trend> {
        self.growth
    }

    /// The peak of the last complete epoch.
    pub(crate) fn last_peak(&self) -> Option<u64> {
        Some(self.done.back()?.used_peak)
    }

    /// How long an epoch takes.
    pub(crate) fn epoch_ms(&self) -> Option<u64> {
        let first = self.done.front()?;
        let last = self.done.back()?;
        let n_epochs = last.number - first.number;
        (n_epochs > 0).then(|| last.began_ms.saturating_sub(first.began_ms) / n_epochs)
    }

    pub(crate) fn n_done(&self) -> usize {
        self.done.len()
    }

    #[cfg(test)]
    pub(crate) fn n_held(&self) -> usize {
        self.done.len()
    }
}

/// The first epoch warms up, and fills what is filled once.
fn growth(done: &VecDeque<Epoch>) -> Option<Trend> {
    let points: Vec<(f64, f64)> = done
        .iter()
        .filter(|epoch| epoch.number > 1)
        .map(|epoch| (epoch.number as f64, epoch.used_peak as f64))
        .collect();
    Trend::of(&points)
}
