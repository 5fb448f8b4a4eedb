//! Chooses what the supervisor does next.

use crate::watch::action::{Action, OnPressure, StopReason, WatchRules};
use crate::watch::danger::{Danger, is_last_moment};
use crate::watch::detectors::time_to_brim;
use crate::watch::pressure::{CheckpointRequest, Stage};
use crate::watch::state::WatchState;

const SHORTEST_WRITE_MS: u64 = 500;
const SHORTEST_END_MS: u64 = 300;

/// Chooses the next step from what was seen; starts nothing, stops nothing, reads no clock.
///
/// The supervisor carries the step out and tells [`Watch::acted`](crate::watch::Watch::acted); the same step is not
/// chosen again for the same rise.
pub fn next_action(rules: &WatchRules, state: &WatchState) -> Action {
    match rules.on_pressure {
        OnPressure::Warn => Action::KeepWatching,
        OnPressure::Checkpoint => checkpoint_or_watch(state),
        OnPressure::Stop => next_step_to_the_end(rules, state),
    }
}

fn checkpoint_or_watch(state: &WatchState) -> Action {
    match state.danger() {
        Some(danger) if state.pressure().asked().is_none() => Action::AskForCheckpoint {
            reason: stop_reason(&danger),
        },
        _ => Action::KeepWatching,
    }
}

fn next_step_to_the_end(rules: &WatchRules, state: &WatchState) -> Action {
    let pressure = state.pressure();
    let now_ms = state.now_ms();
    let pressing = state.pressing();
    let last_moment = pressing.filter(is_last_moment);
    match pressure.stage() {
        Stage::Killed => Action::KeepWatching,
        Stage::AskedToStop { at_ms, reason } => {
            if let Some(danger) = last_moment {
                Action::Kill {
                    reason: stop_reason(&danger),
                }
            } else if now_ms.saturating_sub(*at_ms) >= rules.stop_grace_ms {
                Action::Kill {
                    reason: reason.clone(),
                }
            } else {
                Action::KeepWatching
            }
        }
        Stage::Watching => {
            let (Some(asked), Some(danger)) = (pressure.asked(), pressing) else {
                return checkpoint_or_watch(state);
            };
            let reason = stop_reason(&danger);
            if last_moment.is_some() {
                Action::Kill { reason }
            } else if is_time_to_stop(rules, asked, &danger, now_ms) {
                Action::AskToStop { reason }
            } else {
                Action::KeepWatching
            }
        }
    }
}

/// The grace is over, or what is left to the brim is just enough to end in.
///
/// Of the time that was left when the checkpoint was asked for, the first three fifths are for writing it and the
/// rest for ending, if `stop_grace_ms` is not less. A checkpoint gets half a second in any case, as long as the end
/// can still come in 0.3 s.
fn is_time_to_stop(
    rules: &WatchRules,
    asked: &CheckpointRequest,
    danger: &Danger,
    now_ms: u64,
) -> bool {
    let waited_ms = now_ms.saturating_sub(asked.at_ms);
    if waited_ms >= rules.grace_ms {
        return true;
    }
    let for_ending_ms = rules.stop_grace_ms.min(asked.time_left_ms / 5 * 2);
    let is_short = danger.time_left_ms <= for_ending_ms.max(SHORTEST_END_MS);
    is_short && (waited_ms >= SHORTEST_WRITE_MS || danger.time_left_ms <= SHORTEST_END_MS)
}

fn stop_reason(danger: &Danger) -> StopReason {
    StopReason {
        detector: time_to_brim::DETECTOR.id.into(),
        message: danger.message(),
    }
}
