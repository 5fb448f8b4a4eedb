//! What holds for every run, however odd its samples.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::units::Bytes;
use crate::watch::action::{Action, OnPressure, WatchRules};
use crate::watch::alarm::{Alarm, Urgency};
use crate::watch::danger::trigger_headroom;
use crate::watch::interval::next_interval;
use crate::watch::next_action::next_action;
use crate::watch::observe::Watch;
use crate::watch::sample::{
    Gauge, GpuSample, HostSample, ProcessSample, Role, Sample, SharedMemorySample, Stall,
};
use crate::watch::testing::{GB, MB, Noise, host_sample, slow_series, with_progress};

/// Points, buckets, epochs, workers, cards, counters: more is never held.
const MAX_HELD: usize = 10_000;

fn any_bytes() -> impl Strategy<Value = Bytes> {
    prop_oneof![Just(0), Just(u64::MAX), 0..20 * GB, any::<u64>()].prop_map(Bytes)
}

fn any_time() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..100_000_u64,
        0..100_000_000_u64,
        Just(u64::MAX),
        any::<u64>()
    ]
}

fn any_percent() -> impl Strategy<Value = f64> {
    prop_oneof![0.0..100.0, Just(f64::NAN), Just(f64::INFINITY), Just(-1.0)]
}

fn any_host() -> impl Strategy<Value = HostSample> {
    (any_bytes(), any_bytes(), any_bytes()).prop_map(|(used, limit, headroom)| HostSample {
        used,
        limit,
        headroom,
        swapped: None,
    })
}

fn any_gpu() -> impl Strategy<Value = GpuSample> {
    let processes = || prop::collection::vec((0..5_u32, prop::option::of(any_bytes())), 0..4);
    (
        0..3_u32,
        any_bytes(),
        any_bytes(),
        prop::option::of(any_bytes()),
        processes(),
        processes(),
    )
        .prop_map(|(index, used, total, ours, others, unknown)| GpuSample {
            index,
            used,
            total,
            ours,
            others,
            unknown,
        })
}

fn any_process() -> impl Strategy<Value = ProcessSample> {
    (0..6_u32, any_bytes(), any_bytes()).prop_map(|(worker, private, shared)| ProcessSample {
        pid: worker,
        role: Role::Worker { loader: 0, worker },
        name: String::new(),
        private,
        shared,
        swapped: Bytes::ZERO,
    })
}

fn any_gauge() -> impl Strategy<Value = Gauge> {
    (
        0..3_u32,
        any::<u64>(),
        prop_oneof![0..9_u64, any::<u64>()],
        any::<u64>(),
    )
        .prop_map(|(pid, steps, epochs, retries)| Gauge {
            pid,
            steps,
            epochs,
            retries,
            ..Gauge::default()
        })
}

fn any_sample() -> impl Strategy<Value = Sample> {
    (
        any_time(),
        prop::option::of(any_host()),
        prop::option::of((any_bytes(), any_bytes())),
        prop::option::of((any_percent(), any_percent())),
        prop::collection::vec(any_gpu(), 0..2),
        prop::collection::vec(any_process(), 0..4),
        prop::collection::vec(any_gauge(), 0..2),
    )
        .prop_map(
            |(at_ms, host, shm, stall, gpus, processes, gauges)| Sample {
                at_ms,
                host,
                shm: shm.map(|(used, total)| SharedMemorySample { used, total }),
                stall: stall.map(|(some_percent, full_percent)| Stall {
                    some_percent,
                    full_percent,
                }),
                gpus,
                processes,
                gauges,
                lowest: None,
            },
        )
}

fn any_rules() -> impl Strategy<Value = WatchRules> {
    let on_pressure = prop_oneof![
        Just(OnPressure::Warn),
        Just(OnPressure::Checkpoint),
        Just(OnPressure::Stop)
    ];
    let ms = || prop_oneof![Just(0), 0..60_000_u64, Just(u64::MAX)];
    (on_pressure, ms(), ms()).prop_map(|(on_pressure, grace_ms, stop_grace_ms)| WatchRules {
        on_pressure,
        grace_ms,
        stop_grace_ms,
    })
}

/// How hard an action is.
fn severity(action: &Action) -> u8 {
    match action {
        Action::KeepWatching => 0,
        Action::AskForCheckpoint { .. } => 1,
        Action::AskToStop { .. } => 2,
        Action::Kill { .. } => 3,
    }
}

fn is_one_line(message: &str) -> bool {
    message.chars().count() <= 130 && !message.contains(['\n', '\r']) && !message.contains("NaN")
}

proptest! {
    #[test]
    fn no_samples_panic(
        rules in any_rules(),
        samples in prop::collection::vec(any_sample(), 0..60),
    ) {
        let mut watch = Watch::default();
        for sample in &samples {
            for alarm in watch.observe(sample) {
                prop_assert!(is_one_line(&alarm.message), "{}", alarm.message);
            }
            let action = next_action(&rules, watch.state());
            watch.acted(&action, sample.at_ms);
            let state = watch.state();
            let interval = next_interval(state).as_millis();
            prop_assert!((20..=1000).contains(&interval));
            prop_assert!(state.host_rate().is_none_or(f64::is_finite));
            let _ = state.time_to_brim_ms();
            prop_assert!(state.n_held() < MAX_HELD);
        }
    }

    /// An alarm of the same detector comes again only if it is worse, or after a minute in which it was over.
    #[test]
    fn no_alarm_twice(
        seed: u64,
        levels in prop::collection::vec((1..40_u64, 0..13_u64), 1..12),
    ) {
        let noise = Noise::new(seed);
        let mut watch = Watch::default();
        let mut last: BTreeMap<String, Alarm> = BTreeMap::new();
        let mut second = 0;
        for (seconds, level) in levels {
            for _ in 0..seconds {
                let used = level * GB + noise.below(900 * MB);
                let mut sample = host_sample(second * 3000, used, 13 * GB);
                sample.shm = Some(SharedMemorySample { used: Bytes(used), total: Bytes::from_gib(10) });
                for alarm in watch.observe(&sample) {
                    if let Some(before) = last.get(&alarm.detector) {
                        prop_assert!(
                            alarm.urgency > before.urgency || alarm.at_ms - before.at_ms >= 60_000,
                            "{before:?}\n{alarm:?}"
                        );
                    }
                    last.insert(alarm.detector.clone(), alarm);
                }
                second += 1;
            }
        }
    }

    /// The same rise further from the brim is never answered harder.
    #[test]
    fn more_headroom_is_never_worse(
        end in 0..2 * GB,
        from in 0..2 * GB,
        more in 0..10 * GB,
        grow_limit: bool,
        asked: bool,
        n_samples in 2..60_u64,
        interval_ms in 20..1000_u64,
    ) {
        let rules = WatchRules { on_pressure: OnPressure::Stop, grace_ms: 2_000, stop_grace_ms: 1_000 };
        let limit = 2 * GB;
        let rise = end.saturating_sub(from);
        let play = |more: u64| {
            let mut watch = Watch::default();
            for idx in 0..n_samples {
                let used = from + rise * idx / (n_samples - 1);
                let headroom = limit - used.min(limit) + more;
                let mut sample = host_sample(idx * interval_ms, used, limit);
                if let Some(host) = &mut sample.host {
                    host.headroom = Bytes(headroom);
                    host.limit = Bytes(if grow_limit { limit + more } else { limit });
                }
                watch.observe(&sample);
                if asked && idx == 0 {
                    let reason = crate::watch::StopReason { detector: String::new(), message: String::new() };
                    watch.acted(&Action::AskForCheckpoint { reason }, 0);
                }
            }
            severity(&next_action(&rules, watch.state()))
        };
        prop_assert!(play(more) <= play(0));
    }

    #[test]
    fn steeper_rises_are_answered_earlier(
        rate in 0.0..1e10,
        steeper in 0.0..1e10,
        headroom in 0..100 * GB,
        limit in 0..1000 * GB,
    ) {
        // Up to the looks, which come closer as well.
        let trigger = |rate: f64| trigger_headroom(rate, headroom, limit);
        prop_assert!(trigger(rate) <= trigger(rate + steeper) + headroom as f64 / 4.0);
    }
}

#[test]
fn a_day_is_held_in_little_room() {
    let noise = Noise::new(11);
    let mut watch = Watch::default();
    let series = slow_series(24, 13 * GB, |s| 5 * GB + s * 20_000 + noise.below(400 * MB));
    let mut max_held = 0;
    let mut said = Vec::new();
    for sample in &with_progress(series, 3, 700) {
        said.extend(watch.observe(sample));
        max_held = max_held.max(watch.state().n_held());
    }
    assert!(max_held < 500, "{max_held}");
    // 72 MB/h is a leak of four days; no more than that is said of it.
    assert!(said.len() <= 3, "{said:?}");
    assert!(said.iter().all(|alarm| alarm.urgency < Urgency::Critical));
}
