//! What was seen so far.

use crate::units::rounded;
use std::collections::BTreeMap;

use crate::watch::alarm::{Alarm, DetectorOutput, Urgency};
use crate::watch::danger::{self, Danger};
use crate::watch::gpus::GpuHistory;
use crate::watch::host::HostHistory;
use crate::watch::pressure::PressureHistory;
use crate::watch::progress::Progress;
use crate::watch::retries::Retries;
use crate::watch::sample::Sample;
use crate::watch::series::{Fall, Point};
use crate::watch::stalls::Stalls;
use crate::watch::trend::Trend;
use crate::watch::workers::Workers;

/// An alarm that was not repeated for so long is over. Shorter, and what flickers around a threshold would be said
/// again and again.
const OVER_AFTER_MS: u64 = 60_000;
/// Clocks that step back by less are taken to stand still, by more to have begun anew.
const STEP_BACK_MS: u64 = 10_000;
/// Figures of the host that are older say nothing of now.
const STALE_MS: u64 = 5_000;
/// A rise seen for a minute carries a claim about the next three; one of less than ten seconds about nothing. Loading,
/// and caches that fill at first, rise for half a minute and flatten: such a rise carries half as far as it was seen.
const REACH: f64 = 3.0;
const REACH_OF_START: f64 = 0.5;
const LEAST_SPAN_S: f64 = 10.0;
const STEADY_SPAN_S: f64 = 30.0;
/// Where steps are not counted, a training has begun after this.
const START_MS: u64 = 300_000;

/// What the detectors remember of the samples so far, bounded in size however long the run.
#[derive(Clone, Debug, Default)]
pub struct WatchState {
    latest: Option<Sample>,
    /// The newest time seen; it never goes back by a little.
    now_ms: u64,
    pub(crate) host: HostHistory,
    pub(crate) progress: Progress,
    pub(crate) workers: Workers,
    pub(crate) stalls: Stalls,
    pub(crate) gpus: GpuHistory,
    pub(crate) retries: Retries,
    standing: BTreeMap<&'static str, Standing>,
    pressure: PressureHistory,
    /// As of the latest sample.
    danger: Option<Danger>,
}

/// An alarm that was said and is not over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The worst that was said.
    pub urgency: Urgency,
    pub since_ms: u64,
    /// When it was last told at all, and last as bad as that.
    last_ms: u64,
    last_worst_ms: u64,
}

/// When the brim is reached if all goes on as it does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Forecast {
    pub left_ms: u64,
    /// Bytes per second by which headroom falls.
    pub rate: f64,
    /// The job was closer to the brim before and came back.
    pub is_known_ground: bool,
}

impl WatchState {
    pub fn latest(&self) -> Option<&Sample> {
        self.latest.as_ref()
    }

    /// Milliseconds until the brim is reached at the present rate, where there is a rise to speak of.
    pub fn time_to_brim_ms(&self) -> Option<u64> {
        self.forecast().map(|forecast| forecast.left_ms)
    }

    /// Bytes per second that the job's host memory grows by at present; negative where it falls.
    ///
    /// The robust slope of the last minute's peaks; in a burst that of the last half second.
    pub fn host_rate(&self) -> Option<f64> {
        self.fresh_headroom()?;
        let burst = self.host.burst();
        if self.danger().is_some()
            && let Some(burst) = burst.filter(|burst| burst.growth > 0.0)
        {
            return Some(burst.growth);
        }
        let trend = self.host.fine.growth(0).map(|trend| trend.slope);
        trend.or_else(|| burst.map(|burst| burst.growth))
    }

    /// Optimizer steps per second over the last minute.
    pub fn steps_per_second(&self) -> Option<f64> {
        self.host.fine.step_rate()
    }

    /// The alarm of a detector that was said and is not over.
    pub fn standing(&self, detector: &str) -> Option<&Standing> {
        self.standing.get(detector)
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.now_ms
    }

    pub(crate) fn pressure(&self) -> &PressureHistory {
        &self.pressure
    }

    pub(super) fn pressure_mut(&mut self) -> &mut PressureHistory {
        &mut self.pressure
    }

    /// A rise that calls for acting now.
    pub(crate) fn danger(&self) -> Option<Danger> {
        self.danger
    }

    /// A rise of the job itself that calls for acting now.
    pub(crate) fn own_danger(&self) -> Option<Danger> {
        self.danger.filter(|danger| danger.is_own)
    }

    /// Whether the last part of a rise goes on: what has just ended is still in the slope.
    fn still_falls(&self, trend: &Trend) -> bool {
        let recent_s = (trend.span / 8.0).clamp(4.0, 50.0);
        let fell = self.host.fall_since(rounded(recent_s * 1e3));
        fell.is_none_or(|fell| fell >= 0.25 * trend.slope * recent_s)
    }

    /// How far a rise that was seen for `span_s` carries into the future, as a multiple of that time.
    fn reach(&self, span_s: f64) -> f64 {
        // Without a count of steps, by the clock.
        let is_past_start = match self.progress.steps() {
            Some(steps) => steps > 0,
            None => self.now_ms >= START_MS,
        };
        match span_s {
            span_s if span_s < LEAST_SPAN_S => 0.0,
            span_s if is_past_start && span_s >= STEADY_SPAN_S => REACH,
            _ => REACH_OF_START,
        }
    }

    pub(crate) fn pressing(&self) -> Option<Danger> {
        self.fresh_headroom()?;
        let asked = self.pressure.asked().map(|asked| asked.headroom);
        danger::pressing(&self.host, asked)
    }

    /// Bytes left to the brim, if that was seen lately.
    pub(crate) fn fresh_headroom(&self) -> Option<u64> {
        let point = self.host.last()?;
        (self.now_ms.saturating_sub(point.at_ms) <= STALE_MS).then_some(point.headroom)
    }

    /// The steepest present fall of headroom by any look, in bytes per second, 0 at least.
    pub(crate) fn steepest_fall(&self) -> f64 {
        let burst = self
            .host
            .burst()
            .map_or(0.0, |burst| burst.fast.max(burst.short));
        self.host
            .falls()
            .map(|fall| fall.trend.slope)
            .fold(burst.max(0.0), f64::max)
    }

    pub(crate) fn forecast(&self) -> Option<Forecast> {
        let headroom = self.fresh_headroom()?;
        if let Some(danger) = self.own_danger() {
            return Some(Forecast {
                left_ms: danger.time_left_ms,
                rate: danger.rate,
                is_known_ground: false,
            });
        }
        let own_falls = self.host.falls().filter(Fall::is_own);
        own_falls.into_iter().find_map(|Fall { trend, own }| {
            // What a neighbour takes meanwhile, or gives back, is not foretold.
            let rate = trend.slope.min(own);
            let left = headroom as f64 / rate;
            let span_ms = rounded(trend.span * 1e3);
            let is_within_reach = left <= self.reach(trend.span) * trend.span;
            (is_within_reach && self.still_falls(&trend)).then(|| Forecast {
                left_ms: rounded(left * 1e3),
                rate,
                is_known_ground: self
                    .host
                    .known_low(span_ms.saturating_add(1_000))
                    .is_some_and(|low| headroom >= low),
            })
        })
    }

    pub(super) fn take(&mut self, sample: &Sample) {
        if sample.at_ms.saturating_add(STEP_BACK_MS) < self.now_ms {
            *self = WatchState {
                pressure: std::mem::take(&mut self.pressure),
                standing: std::mem::take(&mut self.standing),
                ..WatchState::default()
            };
            self.now_ms = sample.at_ms;
        }
        self.now_ms = self.now_ms.max(sample.at_ms);
        let now_ms = self.now_ms;
        self.progress.take(sample, now_ms);
        if let Some(host) = &sample.host {
            let point = Point {
                at_ms: now_ms,
                used: host.used.get(),
                headroom: host.headroom.get(),
                steps: self.progress.steps(),
            };
            self.host.push(point, host.limit.get());
        }
        self.workers.take(sample, now_ms);
        self.stalls.take(sample, now_ms);
        self.gpus.take(sample);
        self.retries.take(sample, now_ms);
        self.latest = Some(sample.clone());
        self.danger = self
            .fresh_headroom()
            .and_then(|_| danger::danger(&self.host));
        self.pressure
            .observe(&self.host, now_ms, self.danger.is_some());
    }

    /// What is new in what a detector told.
    pub(super) fn say(
        &mut self,
        id: &'static str,
        output: Option<DetectorOutput>,
    ) -> Option<Alarm> {
        let now_ms = self.now_ms;
        let Some(output) = output else {
            if self
                .standing
                .get(id)
                .is_some_and(|standing| now_ms.abs_diff(standing.last_ms) >= OVER_AFTER_MS)
            {
                self.standing.remove(id);
            }
            return None;
        };
        if let Some(standing) = self.standing.get_mut(id) {
            standing.last_ms = now_ms;
            if output.urgency < standing.urgency {
                // The worst of it may be over while the rest goes on; if it comes back, that is said.
                if now_ms.abs_diff(standing.last_worst_ms) >= OVER_AFTER_MS {
                    standing.urgency = output.urgency;
                    standing.last_worst_ms = now_ms;
                }
                return None;
            }
            standing.last_worst_ms = now_ms;
            if output.urgency == standing.urgency {
                return None;
            }
            standing.urgency = output.urgency;
        } else {
            self.standing.insert(
                id,
                Standing {
                    urgency: output.urgency,
                    since_ms: now_ms,
                    last_ms: now_ms,
                    last_worst_ms: now_ms,
                },
            );
        }
        Some(Alarm {
            at_ms: now_ms,
            detector: id.into(),
            urgency: output.urgency,
            message: output.message,
        })
    }

    #[cfg(test)]
    pub(crate) fn n_held(&self) -> usize {
        self.host.n_held()
            + self.progress.n_held()
            + self.workers.n_held()
            + self.stalls.n_held()
            + self.gpus.n_held()
            + self.retries.n_held()
            + self.standing.len()
    }
}
