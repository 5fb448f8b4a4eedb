//! Which of several checkpoints is the furthest.

use std::path::PathBuf;
use std::time::SystemTime;

/// What the choice rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rank {
    /// The step that the checkpoint itself holds.
    pub(super) step: Option<u64>,
    pub(super) modified: SystemTime,
    /// Decides between checkpoints that were written at the same moment.
    pub(super) epoch: Option<u64>,
    /// The step in its name decides where the epoch does not.
    pub(super) named_step: Option<u64>,
    pub(super) path: PathBuf,
}

/// The index of the best of `ranks`.
///
/// Among checkpoints with a step the highest wins, whenever it was written. One without a step cannot be compared with
/// them by step. It wins if it was written after all of them, and loses to all of them otherwise: to compare each pair
/// by modification time instead would go round in circles (no step at 2 o'clock beats step 40 at 1 o'clock, which beats
/// step 30 at 3 o'clock, which beats no step at 2 o'clock).
pub(super) fn best(ranks: &[Rank]) -> Option<usize> {
    let newest_with_step = ranks
        .iter()
        .filter(|rank| rank.step.is_some())
        .map(|rank| rank.modified)
        .max();
    let class = |rank: &Rank| match (rank.step, newest_with_step) {
        (None, Some(newest)) if rank.modified <= newest => 0,
        (Some(_), _) => 1,
        (None, _) => 2,
    };
    let key = |rank: &Rank| {
        (
            class(rank),
            rank.step,
            rank.modified,
            rank.epoch,
            rank.named_step,
        )
    };
    (0..ranks.len()).max_by(|a, b| {
        let (a, b) = (&ranks[*a], &ranks[*b]);
        key(a).cmp(&key(b)).then_with(|| a.path.cmp(&b.path))
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn rank(name: &str, step: Option<u64>, minute: u64) -> Rank {
        Rank {
            step,
            modified: SystemTime::UNIX_EPOCH + Duration::from_mins(minute),
            epoch: None,
            named_step: None,
            path: name.into(),
        }
    }

    /// The names in the order in which they would be chosen.
    fn order(mut ranks: Vec<Rank>) -> String {
        let mut names = Vec::new();
        while let Some(idx) = best(&ranks) {
            names.push(ranks.swap_remove(idx).path.display().to_string());
        }
        names.join(" ")
    }

    #[test]
    fn the_step_inside_wins_over_the_time() {
        let ranks = vec![rank("old", Some(40), 1), rank("new", Some(2), 9)];
        assert_eq!(order(ranks), "old new");
    }

    #[test]
    fn without_steps_the_time_decides() {
        let ranks = vec![rank("a", None, 1), rank("b", None, 3), rank("c", None, 2)];
        assert_eq!(order(ranks), "b c a");
    }

    #[test]
    fn one_without_a_step_wins_only_if_it_is_newer_than_all_with_one() {
        let stepped = [rank("40", Some(40), 1), rank("30", Some(30), 3)];
        let with = |other: Rank| order(stepped.iter().cloned().chain([other]).collect());
        assert_eq!(with(rank("none", None, 4)), "none 40 30");
        assert_eq!(with(rank("none", None, 2)), "40 30 none");
        assert_eq!(with(rank("none", None, 3)), "40 30 none");
        assert_eq!(with(rank("none", None, 0)), "40 30 none");
    }

    #[test]
    fn ties_are_broken_by_time_epoch_name_and_path() {
        let ranks = vec![rank("early", Some(5), 1), rank("late", Some(5), 2)];
        assert_eq!(order(ranks), "late early");
        let mut second = rank("second", None, 1);
        second.epoch = Some(2);
        let mut first = rank("third", None, 1);
        first.epoch = Some(1);
        assert_eq!(order(vec![first, second]), "second third");
        let mut named = rank("a-7", None, 1);
        named.named_step = Some(7);
        assert_eq!(order(vec![rank("b", None, 1), named]), "a-7 b");
        assert_eq!(order(vec![rank("a", None, 1), rank("b", None, 1)]), "b a");
    }

    /// A choice that depended on the order in which a directory is listed would differ from start to start.
    #[test]
    fn the_choice_does_not_depend_on_the_order_of_what_is_found() {
        let steps = [None, Some(1), Some(2)];
        let all: Vec<Rank> = (0..3)
            .flat_map(|minute| steps.map(|step| (step, minute)))
            .map(|(step, minute)| rank(&format!("{step:?}-{minute}"), step, minute))
            .collect();
        for a in 0..all.len() {
            for b in 0..all.len() {
                for c in 0..all.len() {
                    if a == b || b == c || a == c {
                        continue;
                    }
                    let chosen = |of: [usize; 3]| {
                        let ranks = of.map(|idx| all[idx].clone());
                        ranks[best(&ranks).unwrap()].clone()
                    };
                    let first = chosen([a, b, c]);
                    assert_eq!(first, chosen([c, a, b]));
                    assert_eq!(first, chosen([c, b, a]));
                    // No other with a higher step is left behind, unless the chosen one has none.
                    let highest = [a, b, c].iter().filter_map(|idx| all[*idx].step).max();
                    assert!(first.step.is_none() || first.step == highest);
                }
            }
        }
    }

    #[test]
    fn nothing_is_the_best_of_nothing() {
        assert_eq!(best(&[]), None);
    }
}
