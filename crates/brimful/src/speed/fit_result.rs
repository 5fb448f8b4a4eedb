//! What a fit gives: values of parameters, and how far off predictions with them were.

/// What a fit gives.
#[derive(Clone, Debug, PartialEq)]
pub struct FittedParameters {
    /// The command that made them, and from which rows.
    pub made_by: &'static str,
    /// Which models they were made from.
    pub split: &'static str,
    pub values: &'static [(&'static str, f64)],
    /// How far predictions were off, by class of GPU.
    pub errors: Spreads,
}

/// Half widths of the ranges.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spreads {
    /// Measured time divided by predicted time: its tenth and ninetieth percentile on the GPU of the fit, for models
    /// that the parameters were not fitted on.
    pub fitted_gpu: [f64; 2],
    /// The same on other GPUs, with the rates that were measured on them.
    pub measured_gpu: [f64; 2],
    /// The same on GPUs that are known by their data sheets alone.
    pub data_sheet_gpu: [f64; 2],
    /// The same where the host's calls take longer than the GPU.
    pub launch_bound: [f64; 2],
}
