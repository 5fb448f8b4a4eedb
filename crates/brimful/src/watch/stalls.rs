//! Waiting for memory in the last ten seconds.

use std::collections::VecDeque;

use crate::watch::sample::{Sample, Stall};

const WINDOW_MS: u64 = 10_000;
const MOST: usize = 64;

/// What was said of waiting, newest last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stalls {
    looks: VecDeque<StallReading>,
}

#[derive(Clone, Copy, Debug)]
struct StallReading {
    at_ms: u64,
    /// How long it speaks for.
    span_ms: u64,
    stall: Stall,
}

/// Shares of the time of several looks, in percent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MeanStall {
    pub some_percent: f64,
    pub full_percent: f64,
    pub span_ms: u64,
}

impl Stalls {
    pub(crate) fn take(&mut self, sample: &Sample, now_ms: u64) {
        let Some(stall) = sample.stall else {
            return;
        };
        let span_ms = self
            .looks
            .back()
            .map_or(0, |last| now_ms.saturating_sub(last.at_ms).min(WINDOW_MS));
        self.looks.push_back(StallReading {
            at_ms: now_ms,
            span_ms,
            stall: Stall {
                some_percent: percent(stall.some_percent),
                full_percent: percent(stall.full_percent),
            },
        });
        while self.looks.len() > MOST
            || self
                .looks
                .front()
                .is_some_and(|oldest| now_ms.saturating_sub(oldest.at_ms) > WINDOW_MS)
        {
            self.looks.pop_front();
        }
    }

    /// The mean over at least three looks and three seconds: a single collection or load may stall a moment.
    pub(crate) fn mean(&self) -> Option<MeanStall> {
        let span_ms: u64 = self.looks.iter().map(|look| look.span_ms).sum();
        if self.looks.len() < 3 || span_ms < 3_000 {
            return None;
        }
        let mean = |value: fn(&Stall) -> f64| {
            let weighed = |look: &StallReading| value(&look.stall) * look.span_ms as f64;
            self.looks.iter().map(weighed).sum::<f64>() / span_ms as f64
        };
        Some(MeanStall {
            some_percent: mean(|stall| stall.some_percent),
            full_percent: mean(|stall| stall.full_percent),
            span_ms,
        })
    }

    #[cfg(test)]
    pub(crate) fn n_held(&self) -> usize {
        self.looks.len()
    }
}

/// A share between 0 and 100, whatever was read.
fn percent(value: f64) -> f64 {
    if value.is_nan() {
        0.0
    } else {
        value.clamp(0.0, 100.0)
    }
}
