//! Parameters from measurements: damped Gauss-Newton on logarithms, with priors and with outliers weighed less.

use brimful::speed::{GpuRates, Kernels, Parameter, Parameters};

/// One measurement for the fit.
#[derive(Clone, Debug)]
pub(super) struct Observation<'a> {
    pub(super) kernels: &'a Kernels,
    pub(super) gpu: GpuRates,
    /// Calls of the host; none for single kernels.
    pub(super) calls: f64,
    /// Measured.
    pub(super) seconds: f64,
    pub(super) weight: f64,
}

/// One standard deviation of a measured time that the model can explain.
const NOISE: f64 = 0.1;
/// Beyond this an error counts linearly.
const OUTLIER: f64 = 0.1;
/// Of a parameter's logarithm, for its derivative.
const DIFFERENCE: f64 = 1e-3;
const ROUNDS: usize = 25;

/// The parameters that explain the observations best.
pub(super) fn fit(observations: &[Observation<'_>]) -> Parameters {
    let mut best = Parameters::priors();
    let mut cost = cost_of(&residuals(observations, &best), observations, &best);
    let mut damping = 1e-2;
    for _ in 0..ROUNDS {
        let step = step(observations, &best, damping);
        let mut next = best.clone();
        for (parameter, change) in Parameter::ALL.iter().zip(&step) {
            let value = next.get(*parameter) * change.clamp(-0.7, 0.7).exp();
            next.set(*parameter, value);
        }
        let next_cost = cost_of(&residuals(observations, &next), observations, &next);
        if next_cost < cost {
            let gain = cost - next_cost;
            best = next;
            cost = next_cost;
            damping /= 3.0;
            if gain < 1e-4 * cost {
                break;
            }
        } else {
            damping *= 5.0;
            if damping > 1e4 {
                break;
            }
        }
    }
    best
}

/// Logarithms of predicted over measured.
pub(super) fn residuals(observations: &[Observation<'_>], p: &Parameters) -> Vec<f64> {
    observations
        .iter()
        .map(|seen| {
            let calling = seen.calls * p.get(Parameter::HostCall) * 1e-6;
            let predicted = seen.kernels.seconds(&seen.gpu, p).total().max(calling);
            (predicted / seen.seconds).ln()
        })
        .collect()
}

fn cost_of(residuals: &[f64], observations: &[Observation<'_>], p: &Parameters) -> f64 {
    let of_row = |(r, seen): (&f64, &Observation<'_>)| {
        let size = r.abs();
        let cost = if size < OUTLIER {
            0.5 * size * size
        } else {
            OUTLIER * (size - 0.5 * OUTLIER)
        };
        seen.weight * cost / (NOISE * NOISE)
    };
    let rows: f64 = residuals.iter().zip(observations).map(of_row).sum();
    let priors: f64 = Parameter::ALL
        .iter()
        .map(|parameter| 0.5 * from_prior(p, *parameter).powi(2))
        .sum();
    rows + priors
}

/// Standard deviations away from the prior.
fn from_prior(p: &Parameters, parameter: Parameter) -> f64 {
    (p.get(parameter) / parameter.prior()).ln() / parameter.prior_spread()
}

fn step(observations: &[Observation<'_>], p: &Parameters, damping: f64) -> Vec<f64> {
    let here = residuals(observations, p);
    let weights: Vec<f64> = here
        .iter()
        .zip(observations)
        .map(|(r, seen)| seen.weight * (OUTLIER / r.abs().max(OUTLIER)) / (NOISE * NOISE))
        .collect();
    let columns: Vec<Vec<f64>> = std::thread::scope(|scope| {
        let halves = Parameter::ALL.chunks(Parameter::ALL.len().div_ceil(2));
        let running: Vec<_> = halves
            .map(|parameters| {
                let here = &here;
                scope.spawn(move || {
                    parameters
                        .iter()
                        .map(|parameter| {
                            let mut moved = p.clone();
                            moved.set(*parameter, p.get(*parameter) * DIFFERENCE.exp());
                            let there = residuals(observations, &moved);
                            there
                                .iter()
                                .zip(here)
                                .map(|(b, a)| (b - a) / DIFFERENCE)
                                .collect::<Vec<f64>>()
                        })
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        running
            .into_iter()
            .flat_map(|thread| thread.join().expect("derivatives do not panic"))
            .collect()
    });
    let n = columns.len();
    let mut matrix = vec![vec![0.0; n]; n];
    let mut right = vec![0.0; n];
    for i in 0..n {
        for j in 0..=i {
            let sum: f64 = (0..here.len())
                .map(|row| weights[row] * columns[i][row] * columns[j][row])
                .sum();
            matrix[i][j] = sum;
            matrix[j][i] = sum;
        }
        right[i] = -(0..here.len())
            .map(|row| weights[row] * columns[i][row] * here[row])
            .sum::<f64>();
    }
    for (i, parameter) in Parameter::ALL.iter().enumerate() {
        let spread = parameter.prior_spread();
        matrix[i][i] += 1.0 / (spread * spread);
        right[i] -= from_prior(p, *parameter) / spread;
        matrix[i][i] *= 1.0 + damping;
    }
    solve(matrix, right)
}

/// Gaussian elimination; the matrix is positive definite.
fn solve(mut matrix: Vec<Vec<f64>>, mut right: Vec<f64>) -> Vec<f64> {
    let n = right.len();
    for i in 0..n {
        let (above, below) = matrix.split_at_mut(i + 1);
        let pivot = &above[i];
        for (offset, row) in below.iter_mut().enumerate() {
            let factor = row[i] / pivot[i];
            for (value, own) in row.iter_mut().zip(pivot).skip(i) {
                *value -= factor * own;
            }
            right[i + 1 + offset] -= factor * right[i];
        }
    }
    for i in (0..n).rev() {
        let known: f64 = (i + 1..n).map(|j| matrix[i][j] * right[j]).sum();
        right[i] = (right[i] - known) / matrix[i][i];
    }
    right
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equations_are_solved() {
        let found = solve(vec![vec![2.0, 1.0], vec![1.0, 3.0]], vec![5.0, 10.0]);
        assert!((found[0] - 1.0).abs() < 1e-12 && (found[1] - 3.0).abs() < 1e-12);
    }
}
