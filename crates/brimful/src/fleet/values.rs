//! Quantiles in bounded memory.

/// Values that are kept: exact up to here, a sample of all beyond it.
const MAX_VALUES: usize = 1_000_000;

/// Numbers of which quantiles are wanted.
#[derive(Clone, Debug, Default)]
pub(super) struct Values {
    kept: Vec<f64>,
    n_seen: u64,
    random: u64,
}

impl Values {
    /// Takes a number; what is not a number is not counted.
    pub(super) fn add(&mut self, value: f64) {
        if !value.is_finite() {
            return;
        }
        self.n_seen += 1;
        if self.kept.len() < MAX_VALUES {
            self.kept.push(value);
            return;
        }
        // Each of all values is kept with the same probability.
        self.random = next_random(self.random);
        let at = usize::try_from(self.random % self.n_seen).unwrap_or(usize::MAX);
        if let Some(kept) = self.kept.get_mut(at) {
            *kept = value;
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.n_seen
    }

    /// The value that a share of all values does not exceed, as `quantile_disc` of SQL has it.
    pub(super) fn quantile(&self, share: f64) -> Option<f64> {
        let mut sorted = self.kept.clone();
        sorted.sort_by(f64::total_cmp);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a length that fits"
        )]
        let rank = (share * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.saturating_sub(1)).copied()
    }
}

/// `SplitMix64`: the same samples in every program.
fn next_random(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_there() {
        let mut values = Values::default();
        assert_eq!(values.quantile(0.5), None);
        for value in [4.0, 1.0, f64::NAN, 3.0, 2.0] {
            values.add(value);
        }
        assert_eq!(values.count(), 4);
        assert_eq!(values.quantile(0.0), Some(1.0));
        assert_eq!(values.quantile(0.5), Some(2.0));
        assert_eq!(values.quantile(0.9), Some(4.0));
        assert_eq!(values.quantile(1.0), Some(4.0));
    }

    #[test]
    fn more_than_the_maximum_is_a_sample_of_all() {
        let mut values = Values::default();
        let n_values = MAX_VALUES * 3;
        for value in 0..n_values {
            values.add(value as f64);
        }
        assert_eq!(values.kept.len(), MAX_VALUES);
        let median = values.quantile(0.5).unwrap() / n_values as f64;
        assert!((median - 0.5).abs() < 0.01, "{median}");
    }
}
