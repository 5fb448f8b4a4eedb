use proptest::prelude::*;

use super::*;

fn all_of(len: u64, seed: u64, epoch: u64) -> Vec<u64> {
    let permutation = Permutation::new(len, seed, epoch);
    (0..len).map(|position| permutation.at(position)).collect()
}

proptest! {
    #[test]
    fn every_sample_comes_exactly_once(len in 0..3000_u64, seed: u64, epoch: u64) {
        let mut all = all_of(len, seed, epoch);
        all.sort_unstable();
        prop_assert_eq!(all, (0..len).collect::<Vec<_>>());
    }

    #[test]
    fn a_step_splits_without_overlap_or_loss(
        len in 0..500_u64, world_size in 1..9_u64, batch_size in 1..40_u64, begin in 0..500_u64, drop_last: bool,
    ) {
        let begin = begin.min(len);
        let ranks: Vec<Split> =
            (0..world_size).map(|rank| Split { rank, world_size, batch_size, drop_last }).collect();
        let mut seen = Vec::new();
        let mut counts = vec![0; ranks.len()];
        let mut position = begin;
        while let Some(next) = ranks[0].step(position, len).map(|step| step.next) {
            for (split, count) in ranks.iter().zip(&mut counts) {
                let step = split.step(position, len).unwrap();
                prop_assert_eq!(step.next, next);
                *count += u64::from(!step.ours.is_empty());
                seen.extend(step.ours);
            }
            position = next;
        }
        let fewest = if batch_size > 1 { world_size } else { u64::MAX };
        if len - begin >= fewest {
            prop_assert!(counts.iter().all(|count| *count == counts[0]), "nobody waits for another: {:?}", counts);
        }
        for (split, count) in ranks.iter().zip(counts) {
            prop_assert_eq!(split.batches(begin, len), count);
        }
        let dropped = if drop_last { (len - begin) % (world_size * batch_size) } else { 0 };
        prop_assert_eq!(seen, (begin..len - dropped).collect::<Vec<_>>());
    }
}

/// The sum of squared deviations, in units of what chance gives: about 0 ± 1 for honest dice.
fn deviation(counts: &[u64]) -> f64 {
    let total: u64 = counts.iter().sum();
    let expected = total as f64 / counts.len() as f64;
    let chi: f64 = counts
        .iter()
        .map(|&count| (count as f64 - expected).powi(2) / expected)
        .sum();
    let freedom = (counts.len() - 1) as f64;
    (chi - freedom) / (2.0 * freedom).sqrt()
}

#[test]
fn each_sample_is_as_likely_at_each_position() {
    for len in [2, 3, 5, 7, 10, 16, 17, 30] {
        for position in [0, len / 2, len - 1] {
            let mut counts = vec![0; usize::try_from(len).unwrap()];
            for seed in 0..20_000 {
                let index = Permutation::new(len, seed, 3).at(position);
                counts[usize::try_from(index).unwrap()] += 1;
            }
            let deviation = deviation(&counts);
            assert!(deviation.abs() < 5.0, "{len} {position}: {deviation}");
        }
    }
}

#[test]
fn each_pair_is_as_likely_to_be_neighbors() {
    let len = 7;
    let mut counts = vec![0; 42];
    for seed in 0..60_000 {
        let permutation = Permutation::new(len, seed, 0);
        let (first, second) = (permutation.at(2), permutation.at(3));
        let place = first * 6 + second - u64::from(second > first);
        counts[usize::try_from(place).unwrap()] += 1;
    }
    let deviation = deviation(&counts);
    assert!(deviation.abs() < 5.0, "{deviation}");
}

const MANY: u64 = 1_000_000_000_000;

#[test]
fn a_sample_of_a_trillion_is_spread_evenly() {
    for (len, seed) in [(MANY, 0), (MANY, 1), (MANY - 1, 7), ((1 << 40) + 1, 2)] {
        let permutation = Permutation::new(len, seed, 0);
        for begin in [0, len / 3, len - 200_000] {
            let mut counts = vec![0; 1000];
            for position in begin..begin + 200_000 {
                let bucket = u128::from(permutation.at(position)) * 1000 / u128::from(len);
                counts[usize::try_from(bucket).unwrap()] += 1;
            }
            let deviation = deviation(&counts);
            assert!(deviation.abs() < 5.0, "{len} {begin}: {deviation}");
        }
    }
}

#[test]
fn the_low_digits_are_spread_evenly() {
    let permutation = Permutation::new(MANY, 5, 1);
    for modulus in [2_u64, 10, 256, 1000, 1 << 10] {
        let mut counts = vec![0; usize::try_from(modulus).unwrap()];
        for position in 0..300_000 {
            counts[usize::try_from(permutation.at(position) % modulus).unwrap()] += 1;
        }
        let deviation = deviation(&counts);
        assert!(deviation.abs() < 5.0, "{modulus}: {deviation}");
    }
}

#[test]
fn neighbors_do_not_follow_each_other() {
    for len in [10_000, 1 << 20, MANY] {
        for seed in 0..4 {
            let permutation = Permutation::new(len, seed, 0);
            let count = 100_000_u64.min(len);
            let middle = len as f64 / 2.0;
            for lag in [1, 2, 16, 1000] {
                let mut sum = 0.0;
                for position in 0..count - lag {
                    let (one, other) = (permutation.at(position), permutation.at(position + lag));
                    sum += (one as f64 - middle) * (other as f64 - middle);
                }
                let samples = (count - lag) as f64;
                let correlation = sum / samples / (len as f64).powi(2) * 12.0;
                assert!(
                    correlation.abs() * samples.sqrt() < 5.0,
                    "{len} {seed} {lag}: {correlation}"
                );
            }
        }
    }
}

#[test]
fn epochs_and_seeds_have_nothing_to_do_with_each_other() {
    let len = 10_000;
    let one = all_of(len, 1, 0);
    for (seed, epoch) in [(1, 1), (2, 0), (0, 1)] {
        let other = all_of(len, seed, epoch);
        let same = one.iter().zip(&other).filter(|(a, b)| a == b).count();
        // One on average.
        assert!(same < 10, "{seed} {epoch}: {same}");
    }
}

#[test]
fn the_order_of_a_seed_stays_what_it_was() {
    // Exact resume rests on it: these figures may only change with the version of the state.
    let order = Order::shuffled(MANY, 42, 7);
    assert_eq!(
        [order.at(0), order.at(1), order.at(MANY - 1)],
        [587_272_193_614, 377_168_076_219, 738_330_430_353]
    );
}
