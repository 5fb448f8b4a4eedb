//! Errors, and how they are summed up.

use std::collections::BTreeMap;

use serde::Serialize;

/// Relative errors of a group of rows: 0.02 is 2 % too much.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Errors {
    pub rows: usize,
    pub models: usize,
    pub median: f64,
    pub p90: f64,
    pub worst: f64,
    /// The same, after the median of each model's rows was taken.
    pub median_by_model: f64,
    pub p90_by_model: f64,
    /// Median of the error with its sign.
    pub bias: f64,
    pub over: Side,
    pub under: Side,
}

/// Rows on one side of the truth.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Side {
    pub share: f64,
    pub median: f64,
    pub p90: f64,
    pub worst: f64,
    pub share_over_five_percent: f64,
}

/// The value below which a share of the sorted values lies.
pub(super) fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    if sorted.is_empty() {
        return 0.0;
    }
    let position = share * (sorted.len() - 1) as f64;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a position in a list"
    )]
    let (low, high) = (position.floor() as usize, position.ceil() as usize);
    sorted[low] + (sorted[high] - sorted[low]) * (position - position.floor())
}

/// Sums up signed relative errors, each with the model it belongs to. `None` without rows.
pub(super) fn errors<'a>(rows: impl Iterator<Item = (&'a str, f64)>) -> Option<Errors> {
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        return None;
    }
    let signed: Vec<f64> = rows.iter().map(|(_, error)| *error).collect();
    let sizes: Vec<f64> = signed.iter().map(|error| error.abs()).collect();
    let mut by_model: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (model, error) in &rows {
        by_model.entry(model).or_default().push(error.abs());
    }
    let models: Vec<f64> = by_model
        .values()
        .map(|errors| quantile(errors, 0.5))
        .collect();
    let side = |keep: &dyn Fn(f64) -> bool| {
        let kept: Vec<f64> = signed
            .iter()
            .copied()
            .filter(|error| keep(*error))
            .map(f64::abs)
            .collect();
        Side {
            share: kept.len() as f64 / rows.len() as f64,
            median: quantile(&kept, 0.5),
            p90: quantile(&kept, 0.9),
            worst: quantile(&kept, 1.0),
            share_over_five_percent: kept.iter().filter(|error| **error > 0.05).count() as f64
                / rows.len() as f64,
        }
    };
    Some(Errors {
        rows: rows.len(),
        models: models.len(),
        median: quantile(&sizes, 0.5),
        p90: quantile(&sizes, 0.9),
        worst: quantile(&sizes, 1.0),
        median_by_model: quantile(&models, 0.5),
        p90_by_model: quantile(&models, 0.9),
        bias: quantile(&signed, 0.5),
        over: side(&|error| error > 0.0),
        under: side(&|error| error < 0.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_are_counted_apart() {
        let found =
            errors([("a", 0.02), ("a", 0.04), ("b", -0.10), ("c", 0.0)].into_iter()).unwrap();
        assert_eq!((found.rows, found.models), (4, 3));
        assert!((found.median - 0.03).abs() < 1e-9);
        assert!((found.under.share - 0.25).abs() < 1e-9);
        assert!((found.over.share - 0.5).abs() < 1e-9);
        assert!((found.median_by_model - 0.03).abs() < 1e-9);
        assert!((found.worst - 0.10).abs() < 1e-9);
    }

    #[test]
    fn nothing_to_sum_up() {
        assert!(errors(std::iter::empty()).is_none());
    }
}
