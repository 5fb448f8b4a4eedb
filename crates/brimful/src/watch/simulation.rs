//! Plays curves of memory against the watch, at the intervals that it asks for itself, and shows when it acts.

use crate::watch::action::{Action, OnPressure, WatchRules};
use crate::watch::alarm::Alarm;
use crate::watch::interval::next_interval;
use crate::watch::next_action::next_action;
use crate::watch::observe::Watch;
use crate::watch::testing::{GB, KB, MB, Noise, host_sample};

/// What happened to a job.
#[derive(Debug, Default)]
struct Played {
    /// Kind, time in ms and headroom of every action.
    acts: Vec<(Kind, u64, u64)>,
    alarms: Vec<Alarm>,
    /// When the kernel would have killed.
    killed_by_kernel_ms: Option<u64>,
    n_samples: u64,
    end_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Checkpoint,
    Stop,
    Kill,
}

/// A job in a container of `limit` whose use is a function of the time in ms.
struct Job<F> {
    limit: u64,
    used: F,
    /// It ends so long after it was asked to.
    ends_after_ms: u64,
    /// The first sample comes so late: how the samples lie to the curve.
    phase_ms: u64,
    /// The supervisor comes later than it wanted to.
    late_ms: u64,
    /// What a checkpoint takes while it is written.
    checkpoint: u64,
}

/// From the signal to the first byte, the rise of memory, and the rest of the write.
const CHECKPOINT_MS: [u64; 3] = [100, 100, 200];

impl<F: Fn(u64) -> u64> Job<F> {
    fn new(limit: u64, used: F) -> Job<F> {
        Job {
            limit,
            used,
            ends_after_ms: u64::MAX,
            phase_ms: 0,
            late_ms: 0,
            checkpoint: 0,
        }
    }

    /// Memory at a moment, with the checkpoint that was asked for at another.
    fn used_at(&self, ms: u64, asked_ms: Option<u64>) -> u64 {
        let [until_rise, rise, write] = CHECKPOINT_MS;
        let writing = asked_ms
            .and_then(|asked_ms| ms.checked_sub(asked_ms + until_rise))
            .filter(|ms| *ms < rise + write)
            .map_or(0, |ms| self.checkpoint * ms.min(rise) / rise);
        (self.used)(ms) + writing
    }

    fn play(&self, on_pressure: OnPressure, until_ms: u64) -> Played {
        let rules = WatchRules {
            on_pressure,
            grace_ms: 30_000,
            stop_grace_ms: 10_000,
        };
        self.play_by(&rules, until_ms)
    }

    fn play_by(&self, rules: &WatchRules, until_ms: u64) -> Played {
        let mut watch = Watch::default();
        let mut played = Played::default();
        let mut at_ms = self.phase_ms;
        let mut ends_ms = u64::MAX;
        let mut checked_ms = 0;
        let mut asked_ms = None;
        while at_ms < until_ms.min(ends_ms) {
            // The kernel kills between two looks as well.
            if let Some(ms) =
                (checked_ms..=at_ms).find(|ms| self.used_at(*ms, asked_ms) >= self.limit)
            {
                played.killed_by_kernel_ms = Some(ms);
                break;
            }
            checked_ms = at_ms;
            let used = self.used_at(at_ms, asked_ms);
            let headroom = self.limit.saturating_sub(used);
            played.n_samples += 1;
            played
                .alarms
                .extend(watch.observe(&host_sample(at_ms, used, self.limit)));
            let action = next_action(rules, watch.state());
            let kind = match &action {
                Action::KeepWatching => None,
                Action::AskForCheckpoint { .. } => {
                    asked_ms = Some(at_ms);
                    Some(Kind::Checkpoint)
                }
                Action::AskToStop { .. } => {
                    ends_ms = at_ms.saturating_add(self.ends_after_ms);
                    Some(Kind::Stop)
                }
                Action::Kill { .. } => {
                    // Some milliseconds until the last thread is gone.
                    ends_ms = at_ms + 10;
                    Some(Kind::Kill)
                }
            };
            if let Some(kind) = kind {
                watch.acted(&action, at_ms);
                played.acts.push((kind, at_ms, headroom));
            }
            let wait = next_interval(watch.state());
            at_ms += u64::try_from(wait.as_millis()).unwrap() + self.late_ms;
        }
        played.end_ms = at_ms;
        played
    }
}

impl Played {
    fn kinds(&self) -> Vec<Kind> {
        self.acts.iter().map(|(kind, _, _)| *kind).collect()
    }

    fn of(&self, kind: Kind) -> Option<(u64, u64)> {
        self.acts
            .iter()
            .find(|(found, _, _)| *found == kind)
            .map(|(_, at_ms, headroom)| (*at_ms, *headroom))
    }
}

/// `from` until `start_ms`, then a rise of so many bytes per ms, up to `most`.
fn burst(from: u64, start_ms: u64, bytes_per_ms: u64, most: u64) -> impl Fn(u64) -> u64 {
    move |ms| (from + ms.saturating_sub(start_ms) * bytes_per_ms).min(most)
}

/// A burst of so many bytes per ms in a container, at every phase of the sampling; the least headroom and the least
/// time that a checkpoint had.
fn check_burst(limit: u64, from: u64, bytes_per_ms: u64, late_ms: u64) -> (u64, u64) {
    let mut least = (u64::MAX, u64::MAX);
    for phase_ms in (0..1000).step_by(29) {
        let mut job = Job::new(limit, burst(from, 20_000, bytes_per_ms, u64::MAX));
        job.phase_ms = phase_ms;
        job.late_ms = late_ms;
        let played = job.play(OnPressure::Checkpoint, 120_000);
        let (at_ms, headroom) = played.of(Kind::Checkpoint).unwrap();
        let killed_ms = played.killed_by_kernel_ms.unwrap();
        least = (least.0.min(headroom), least.1.min(killed_ms - at_ms));
        assert_eq!(
            played.kinds(),
            [Kind::Checkpoint],
            "once per rise: {played:?}"
        );
    }
    least
}

#[test]
fn a_burst_of_1_gb_per_second_in_2_gb_leaves_time_and_room_for_a_checkpoint() {
    // 150 ms until the trainer begins to write and 300 ms to write 200 MB, all the while 1 GB/s come in.
    let (headroom, time_ms) = check_burst(2 * GB, 300 * MB, MB, 0);
    println!("2 GB, 1 GB/s: headroom {} MB, {time_ms} ms", headroom / MB);
    assert!(headroom >= 650 * MB, "{headroom}");
    assert!(time_ms >= 650, "{time_ms}");
}

#[test]
fn other_bursts() {
    for (limit, from, bytes_per_ms, late_ms, least_headroom, least_ms) in [
        // The supervisor is late by 30 ms each time.
        (2 * GB, 300 * MB, MB, 30, 620 * MB, 620),
        // Half full when it begins.
        (2 * GB, GB, MB, 0, 600 * MB, 600),
        (2 * GB, 300 * MB, 200 * KB, 0, 250 * MB, 1000),
        (2 * GB, 300 * MB, 2 * MB, 0, 700 * MB, 350),
        (16 * GB, 8 * GB, MB, 0, 900 * MB, 900),
        (16 * GB, 8 * GB, 4 * MB, 0, 2 * GB, 500),
        (512 * MB, 100 * MB, 100 * KB, 0, 90 * MB, 900),
    ] {
        let (headroom, time_ms) = check_burst(limit, from, bytes_per_ms, late_ms);
        println!(
            "{} MB from {} MB, {} MB/s, late {late_ms} ms: headroom {} MB, {time_ms} ms",
            limit / MB,
            from / MB,
            bytes_per_ms * 1000 / MB,
            headroom / MB
        );
        assert!(
            headroom >= least_headroom && time_ms >= least_ms,
            "{limit} {bytes_per_ms}: {headroom} {time_ms}"
        );
    }
}

#[test]
fn a_checkpoint_of_200_mb_is_written_while_the_burst_goes_on() {
    for from in (300 * MB..1_100 * MB).step_by(100_000_000) {
        for phase_ms in (0..1000).step_by(29) {
            for on_pressure in [OnPressure::Checkpoint, OnPressure::Stop] {
                let mut job = Job::new(2 * GB, burst(from, 8_000, MB, u64::MAX));
                job.phase_ms = phase_ms;
                job.checkpoint = 200 * MB;
                let played = job.play(on_pressure, 120_000);
                let (asked_ms, _) = played.of(Kind::Checkpoint).unwrap();
                let end_ms = played.killed_by_kernel_ms.unwrap_or(played.end_ms);
                let written_ms = asked_ms + CHECKPOINT_MS.iter().sum::<u64>();
                assert!(end_ms >= written_ms, "from {from}: {played:?}");
                if on_pressure == OnPressure::Stop {
                    assert_eq!(played.killed_by_kernel_ms, None, "from {from}: {played:?}");
                }
            }
        }
    }
}

#[test]
fn writing_the_checkpoint_does_not_end_the_job() {
    // A leak that stops when it was checkpointed: what the checkpoint takes must not look like the end.
    for (limit, most, checkpoint) in [
        (13 * GB, 12_620 * MB, 180 * MB),
        (2 * GB, 1_805 * MB, 90 * MB),
    ] {
        let mut job = Job::new(limit, burst(limit - 900 * MB, 0, 12 * KB, most));
        job.checkpoint = checkpoint;
        let played = job.play(OnPressure::Stop, 5 * MINUTES);
        assert_eq!(played.kinds(), [Kind::Checkpoint], "{:?}", played.acts);
        assert_eq!(played.killed_by_kernel_ms, None);
    }
}

#[test]
fn a_peak_survived_before_does_not_hide_the_burst_that_kills() {
    // Up to 95 % while loading, then a burst from 40 %.
    let curve = |ms: u64| match ms {
        0..10_000 => 500 * MB + ms * 140 * KB,
        10_000..40_000 => 800 * MB,
        _ => 800 * MB + (ms - 40_000) * MB,
    };
    for phase_ms in (0..1000).step_by(29) {
        let mut job = Job::new(2 * GB, curve);
        job.phase_ms = phase_ms;
        let played = job.play(OnPressure::Stop, 120_000);
        assert_eq!(played.killed_by_kernel_ms, None, "{played:?}");
        assert_eq!(played.kinds().last(), Some(&Kind::Kill), "{played:?}");
    }
}

#[test]
fn a_burst_from_the_first_sample_on_is_seen() {
    let played =
        Job::new(2 * GB, burst(100 * MB, 0, MB, u64::MAX)).play(OnPressure::Checkpoint, 60_000);
    let (_, headroom) = played.of(Kind::Checkpoint).unwrap();
    assert!(headroom >= 600 * MB, "{played:?}");
}

#[test]
fn stop_ends_a_burst_before_the_kernel_does() {
    for (limit, from, bytes_per_ms) in [
        (2 * GB, 300 * MB, MB),
        (2 * GB, GB, MB),
        (2 * GB, 300 * MB, 200 * KB),
        (16 * GB, 8 * GB, MB),
        (16 * GB, 8 * GB, 2 * MB),
        (512 * MB, 100 * MB, 100 * KB),
    ] {
        for phase_ms in (0..1000).step_by(29) {
            let mut job = Job::new(limit, burst(from, 20_000, bytes_per_ms, u64::MAX));
            job.phase_ms = phase_ms;
            let played = job.play(OnPressure::Stop, 120_000);
            assert_eq!(played.killed_by_kernel_ms, None, "{played:?}");
            assert_eq!(
                played.kinds(),
                [Kind::Checkpoint, Kind::Stop, Kind::Kill],
                "{played:?}"
            );
            let (asked_ms, _) = played.of(Kind::Checkpoint).unwrap();
            let (stop_ms, _) = played.of(Kind::Stop).unwrap();
            assert!(stop_ms - asked_ms >= 250, "{played:?}");
            if phase_ms == 0 {
                println!(
                    "{} MB, {} KB/ms: {:?}",
                    limit / MB,
                    bytes_per_ms / KB,
                    played.acts
                );
            }
        }
    }
}

#[test]
fn a_leak_is_checkpointed_and_stopped_with_all_its_grace() {
    let leak = burst(9 * GB, 0, 12 * KB, u64::MAX);
    let mut job = Job::new(13 * GB, leak);
    job.ends_after_ms = 2_000;
    let played = job.play(OnPressure::Stop, 3_600_000);
    println!("13 GB, 12 MB/s: {:?}", played.acts);
    assert_eq!(played.kinds(), [Kind::Checkpoint, Kind::Stop]);
    let (asked_ms, headroom) = played.of(Kind::Checkpoint).unwrap();
    let (stop_ms, _) = played.of(Kind::Stop).unwrap();
    assert!((350 * MB..450 * MB).contains(&headroom), "{headroom}");
    assert!(stop_ms - asked_ms >= 15_000, "{played:?}");
    assert_eq!(played.killed_by_kernel_ms, None);
}

#[test]
fn a_job_that_does_not_end_is_killed_after_its_grace() {
    // Rises until it is asked to stop, then stands still, deaf.
    let rules = WatchRules {
        on_pressure: OnPressure::Stop,
        grace_ms: 5_000,
        stop_grace_ms: 3_000,
    };
    let job = Job::new(13 * GB, burst(9 * GB, 0, 12 * KB, 12_680 * MB));
    let played = job.play_by(&rules, 3_600_000);
    assert_eq!(
        played.kinds(),
        [Kind::Checkpoint, Kind::Stop, Kind::Kill],
        "{played:?}"
    );
    let (stop_ms, _) = played.of(Kind::Stop).unwrap();
    let (kill_ms, _) = played.of(Kind::Kill).unwrap();
    assert!((3_000..3_200).contains(&(kill_ms - stop_ms)), "{played:?}");
}

#[test]
fn growth_in_lumps_is_stopped_before_the_lump_that_kills() {
    // 100 MB every eight seconds.
    let job = Job::new(13 * GB, |ms| 9 * GB + ms / 8_000 * 100 * MB);
    let played = job.play(OnPressure::Stop, 3_600_000);
    println!("13 GB, lumps of 100 MB: {:?}", played.acts);
    assert_eq!(played.killed_by_kernel_ms, None, "{played:?}");
    assert_eq!(played.kinds()[..2], [Kind::Checkpoint, Kind::Stop]);
}

/// Jobs that live: with `stop` nothing ends them, and so many checkpoints are asked for at most.
fn check_lives(limit: u64, used: impl Fn(u64) -> u64, until_ms: u64, max_checkpoints: usize) {
    let played = Job::new(limit, used).play(OnPressure::Stop, until_ms);
    assert_eq!(played.killed_by_kernel_ms, None);
    let kinds = played.kinds();
    assert!(
        kinds.iter().all(|kind| *kind == Kind::Checkpoint) && kinds.len() <= max_checkpoints,
        "{:?}",
        played.acts
    );
}

const MINUTES: u64 = 60_000;

#[test]
fn full_and_flat_is_left_alone() {
    check_lives(2 * GB, |_| 1_860 * MB, 5 * MINUTES, 0);
    check_lives(2 * GB, |_| 1_990 * MB, 3 * MINUTES, 0);
    check_lives(13 * GB, |_| 12_900 * MB, 3 * MINUTES, 0);
    // Loaded in ten seconds, then flat at 93 %.
    check_lives(
        13 * GB,
        burst(GB, 5_000, 1_100 * KB, 12_090 * MB),
        30 * MINUTES,
        1,
    );
    check_lives(
        2 * GB,
        burst(200 * MB, 5_000, MB, 1_600 * MB),
        30 * MINUTES,
        1,
    );
}

#[test]
fn full_and_noisy_is_left_alone() {
    for seed in 0..5 {
        // Batches of up to 20 MB with 140 MB left, of up to 200 MB with 900 MB left.
        check_lives(
            2 * GB,
            |ms| 1_850 * MB + hashed(seed, ms / 50) % (20 * MB),
            3 * MINUTES,
            1,
        );
        check_lives(
            13 * GB,
            |ms| 12_090 * MB + hashed(seed, ms / 300) % (200 * MB),
            30 * MINUTES,
            1,
        );
    }
}

#[test]
fn a_sawtooth_below_the_brim_is_left_alone() {
    // A collection every ten seconds, 1 GB each, up to 500 MB below the limit.
    check_lives(
        13 * GB,
        |ms| 11_500 * MB + ms % 10_000 * 100 * KB,
        30 * MINUTES,
        1,
    );
    // Every two seconds at 1 GB/s in a small container: a checkpoint now and then is the price.
    check_lives(2 * GB, |ms| 300 * MB + ms % 1_400 * MB, 30 * MINUTES, 8);
    // Teeth of two minutes.
    check_lives(
        13 * GB,
        |ms| 7 * GB + ms % 120_000 * 45 * KB,
        60 * MINUTES,
        1,
    );
}

#[test]
fn a_rise_that_ends_lets_go() {
    // 100 MB/s up to 96 %, for 20 s there, and down again.
    let curve = |ms: u64| match ms {
        0..10_000 => 2 * GB,
        10_000..115_000 => 2 * GB + (ms - 10_000) * 100 * KB,
        115_000..135_000 => 12_500 * MB,
        _ => 3 * GB,
    };
    check_lives(13 * GB, curve, 10 * MINUTES, 1);
}

#[test]
fn the_next_rise_is_asked_for_anew() {
    // Two minutes of leak up to the brim, freed, again.
    let curve = |ms: u64| 9 * GB + ms % 240_000 * 16_300;
    let played = Job::new(13 * GB, curve).play(OnPressure::Checkpoint, 12 * MINUTES);
    assert_eq!(played.kinds(), [Kind::Checkpoint; 3], "{:?}", played.acts);
}

#[test]
fn warn_never_acts() {
    let played =
        Job::new(2 * GB, burst(300 * MB, 5_000, MB, u64::MAX)).play(OnPressure::Warn, 60_000);
    assert_eq!(played.kinds(), []);
    assert!(
        played
            .alarms
            .iter()
            .any(|alarm| alarm.detector == "time_to_brim"),
        "{:?}",
        played.alarms
    );
}

#[test]
fn calm_costs_one_look_a_second() {
    let played = Job::new(64 * GB, |ms| 20 * GB + hashed(1, ms / 500) % (300 * MB))
        .play(OnPressure::Stop, 60 * MINUTES);
    assert!(played.n_samples <= 3_601, "{}", played.n_samples);
}

/// Noise that is a function of its place.
fn hashed(seed: u64, place: u64) -> u64 {
    Noise::new(seed.wrapping_mul(1_000_003).wrapping_add(place)).below(u64::MAX)
}
