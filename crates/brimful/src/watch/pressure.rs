//! What was done about a rise, and when the rise is over.

use crate::watch::action::{Action, StopReason};
use crate::watch::danger::Danger;
use crate::watch::host::HostHistory;

/// A rise that has not threatened for so long is over, though memory did not come down: a dataset was loaded.
const CALM_MS: u64 = 60_000;
/// A sawtooth that touches the brim shall not spend its time writing checkpoints: the second may come after ten
/// seconds, each further one after twice as long, up to ten minutes.
const SPACING_MS: u64 = 10_000;
const WIDEST_SPACING_MS: u64 = 600_000;

/// What was done so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct PressureHistory {
    stage: Stage,
    /// For the present rise.
    asked: Option<CheckpointRequest>,
    n_asked: u32,
    calm_since_ms: Option<u64>,
}

/// How far the end has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stage {
    #[default]
    Watching,
    AskedToStop {
        at_ms: u64,
        reason: StopReason,
    },
    Killed,
}

/// A checkpoint was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CheckpointRequest {
    pub at_ms: u64,
    /// What was left at that moment, of both.
    pub time_left_ms: u64,
    pub headroom: u64,
}

impl PressureHistory {
    pub(crate) fn stage(&self) -> &Stage {
        &self.stage
    }

    pub(crate) fn asked(&self) -> Option<&CheckpointRequest> {
        self.asked.as_ref()
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.stage != Stage::Watching
    }

    /// `headroom` and `danger` are those of the latest sample.
    pub(crate) fn acted(
        &mut self,
        action: &Action,
        at_ms: u64,
        headroom: u64,
        danger: Option<&Danger>,
    ) {
        match action {
            Action::KeepWatching => {}
            Action::AskForCheckpoint { .. } => {
                self.asked = Some(CheckpointRequest {
                    at_ms,
                    time_left_ms: danger.map_or(0, |danger| danger.time_left_ms),
                    headroom,
                });
                self.n_asked = self.n_asked.saturating_add(1);
            }
            Action::AskToStop { reason } => {
                if self.stage == Stage::Watching {
                    self.stage = Stage::AskedToStop {
                        at_ms,
                        reason: reason.clone(),
                    };
                }
            }
            Action::Kill { .. } => self.stage = Stage::Killed,
        }
    }

    /// Forgets the request once its rise is over, so that the next rise is asked for anew.
    pub(crate) fn observe(&mut self, host: &HostHistory, now_ms: u64, in_danger: bool) {
        if in_danger {
            self.calm_since_ms = None;
        } else {
            self.calm_since_ms.get_or_insert(now_ms);
        }
        let (Some(asked), Some(point)) = (self.asked, host.last()) else {
            return;
        };
        // "Well below": by a tenth of the limit, or by a quarter of what was used where that is less.
        let used = host.limit().saturating_sub(asked.headroom);
        let well_below = (host.limit() / 10).min(used / 4);
        let fell_back = point.headroom > asked.headroom.saturating_add(well_below);
        let is_calm = self
            .calm_since_ms
            .is_some_and(|since| now_ms.saturating_sub(since) >= CALM_MS);
        let spacing_ms = SPACING_MS
            .saturating_mul(1 << self.n_asked.saturating_sub(1).min(10))
            .min(WIDEST_SPACING_MS);
        let is_spaced = now_ms.saturating_sub(asked.at_ms) >= spacing_ms;
        if !in_danger && (fell_back || is_calm) && is_spaced {
            self.asked = None;
        }
    }
}
