//! Predicted speeds against measured ones, and the parameters that come from them.

mod captures;
mod fit;
mod gpus;
mod page;
mod rows;
mod scores;

use std::fmt::Write as _;

use anyhow::Result;
use brimful::speed::{GpuRates, Parameters, Spreads};

use super::Options;
use super::score::quantile;
use captures::{Seen, captured, is_fitted, is_for_development, with_families_left_out};
use rows::Set;

const PARAMETERS: &str = "crates/brimful/src/speed/fitted.rs";
/// Where the part of the speed begins, on the page of the accuracy.
const SPEED_PART: &str = "\n\n## Speed\n";

/// Writes the parameters that explain the measurements best.
pub(crate) fn write_parameters(options: &Options) -> Result<()> {
    let captured = captured(options)?;
    let seen: Vec<Seen> = captured
        .seen
        .into_iter()
        .filter(|s| is_never_fitted(s.row.set) || is_for_development(&s.row.model))
        .collect();
    let fitted: Vec<_> = seen
        .iter()
        .filter(|s| is_fitted(s.row.set))
        .map(Seen::observation)
        .collect();
    let parameters = fit::fit(&fitted);
    let spreads = spreads(&seen, &parameters);
    let count = |sets: &[Set]| seen.iter().filter(|s| sets.contains(&s.row.set)).count();
    let made_by = format!(
        "cargo xtask fit; {} trainings, {} inferences, {} launch-bound runs, {} fp32 kernels; {}",
        count(&[Set::TimmNchw, Set::TimmNhwc]),
        count(&[Set::Inference]),
        count(&[Set::LitGpt]),
        count(&[Set::NeuSightKernels]),
        captured.versions
    );
    let text = source_of(&parameters, &made_by, &spreads);
    std::fs::write(crate::shell::root().join(PARAMETERS), &text)?;
    println!("{text}");
    Ok(())
}

/// Rows of these sets only widen ranges, and kernels have no names.
fn is_never_fitted(set: Set) -> bool {
    matches!(set, Set::NeuSightKernels | Set::Nvidia | Set::Lambda)
}

/// Lambda's runs of Transformer-XL were 1.4 to 2 times slower than NVIDIA's own on the same GPUs, and BERT with 512
/// tokens skipped work. They do not decide the ranges.
fn is_doubtful(s: &Seen) -> bool {
    (s.row.set == Set::Lambda && s.row.model == "transformerxlbase")
        || s.row.label.contains(" of 512 tokens")
}

/// Calls of the host were measured on one server. A fast desktop takes half of the time.
const FASTER_HOST: f64 = 0.5;

/// How far predictions are off, on rows that were not in the fit.
fn spreads(seen: &[Seen], p: &Parameters) -> Spreads {
    let range = |values: &[f64]| {
        [
            rounded(quantile(values, 0.1)),
            rounded(quantile(values, 0.9)),
        ]
    };
    let (launches, fitted): (Vec<_>, Vec<_>) = with_families_left_out(seen)
        .into_iter()
        .partition(|(s, _)| s.row.set == Set::LitGpt);
    let inverse = |rows: &[(&Seen, f64)]| {
        rows.iter()
            .map(|(_, ratio)| 1.0 / ratio)
            .collect::<Vec<_>>()
    };
    let launches = range(&inverse(&launches));
    let fitted_gpu = range(&inverse(&fitted));
    let elsewhere = |rates: fn(&str) -> GpuRates| {
        let trainings = [Set::NeuSight, Set::Nvidia, Set::Lambda];
        let rows = seen.iter().filter(|s| {
            trainings.contains(&s.row.set) && !is_doubtful(s) && s.row.gpu != gpus::FITTED
        });
        range(
            &rows
                .map(|s| 1.0 / s.ratio_on(rates(s.row.gpu), p))
                .collect::<Vec<_>>(),
        )
    };
    let measured_gpu = elsewhere(gpus::rates);
    let by_sheet = elsewhere(gpus::rates_by_data_sheet);
    Spreads {
        fitted_gpu,
        measured_gpu,
        // Never narrower than with measurements.
        data_sheet_gpu: [
            by_sheet[0].min(measured_gpu[0]),
            by_sheet[1].max(measured_gpu[1]),
        ],
        launch_bound: [rounded(launches[0] * FASTER_HOST), launches[1]],
    }
}

/// The parameters as a file of the library, which reads no files.
fn source_of(parameters: &Parameters, made_by: &str, spreads: &Spreads) -> String {
    let mut values = String::new();
    for (name, value) in parameters.by_name() {
        let _ = writeln!(values, "        ({name:?}, {:?}),", rounded(value));
    }
    format!(
        "//! The parameters that were fitted to measured speeds. Written by `cargo xtask fit`.\n\n\
         use crate::speed::fit_result::{{FittedParameters, Spreads}};\n\n\
         #[rustfmt::skip]\n\
         pub const FITTED: FittedParameters = FittedParameters {{\n    \
             made_by: {made_by:?},\n    \
             split: \"models whose name in lower case has an even SHA-256\",\n    \
             values: &[\n{values}    ],\n    \
             errors: Spreads {{\n        \
                 fitted_gpu: {:?},\n        \
                 measured_gpu: {:?},\n        \
                 data_sheet_gpu: {:?},\n        \
                 launch_bound: {:?},\n    \
             }},\n\
         }};\n",
        spreads.fitted_gpu, spreads.measured_gpu, spreads.data_sheet_gpu, spreads.launch_bound
    )
}

/// With as many digits as make it unlike a constant of mathematics, which Clippy would take it for.
fn rounded(value: f64) -> f64 {
    (value * 1e5).round() / 1e5
}

/// Scores the shipped parameters.
pub(crate) fn run(options: &Options) -> Result<()> {
    let captured = captured(options)?;
    let scores = scores::of(&captured);
    if options.json {
        println!("{}", serde_json::to_string_pretty(&scores)?);
        return Ok(());
    }
    let part = page::part(&scores);
    println!("{part}");
    if options.sample.is_none() {
        let path = crate::shell::root().join("docs/accuracy.md");
        let before = std::fs::read_to_string(&path).unwrap_or_default();
        let others = before.split(SPEED_PART).next().unwrap_or_default();
        std::fs::write(path, format!("{}{SPEED_PART}{part}", others.trim_end()))?;
    }
    Ok(())
}
