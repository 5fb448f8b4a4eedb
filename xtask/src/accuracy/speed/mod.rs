//! Predicted speeds against measured ones, and the parameters that come from them.

mod captures;
mod fit;
mod gpus;
mod page;
mod rows;
mod scores;

use std::fmt::Write as _;

use anyhow::Result;
use brimful::speed::Parameters;

use super::Options;
use super::score::quantile;
use captures::{Seen, captured, is_fitted, is_for_development, with_families_left_out};
use fit::residuals;
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
        .filter(|s| s.row.set == Set::NeuSightKernels || is_for_development(&s.row.model))
        .collect();
    let fitted: Vec<_> = seen
        .iter()
        .filter(|s| is_fitted(s.row.set))
        .map(Seen::observation)
        .collect();
    let parameters = fit::fit(&fitted);
    let left_out: Vec<f64> = with_families_left_out(&seen)
        .into_iter()
        .map(|(_, ratio)| 1.0 / ratio)
        .collect();
    let other_gpus: Vec<f64> = seen
        .iter()
        .filter(|s| s.row.set == Set::NeuSight)
        .map(|s| {
            let seen = s.observation_on(gpus::rates_by_data_sheet(s.row.gpu));
            (-residuals(&[seen], &parameters)[0]).exp()
        })
        .collect();
    let range = |values: &[f64]| {
        [
            rounded(quantile(values, 0.1)),
            rounded(quantile(values, 0.9)),
        ]
    };
    let known = range(&left_out);
    let by_sheet = range(&other_gpus);
    // A model that was not fitted, on a GPU that was not measured: both may be off.
    let by_sheet = [
        rounded(by_sheet[0].min(known[0]) * 0.9),
        rounded(by_sheet[1].max(known[1]) * 1.1),
    ];
    let count = |sets: &[Set]| seen.iter().filter(|s| sets.contains(&s.row.set)).count();
    let made_by = format!(
        "cargo xtask fit; {} trainings, {} inferences, {} fp32 kernels; {}",
        count(&[Set::TimmNchw, Set::TimmNhwc]),
        count(&[Set::Inference]),
        count(&[Set::NeuSightKernels]),
        captured.versions
    );
    let text = source_of(&parameters, &made_by, known, by_sheet);
    std::fs::write(crate::shell::root().join(PARAMETERS), &text)?;
    println!("{text}");
    Ok(())
}

/// The parameters as a file of the library, which reads no files.
fn source_of(
    parameters: &Parameters,
    made_by: &str,
    known: [f64; 2],
    by_sheet: [f64; 2],
) -> String {
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
                 measured_gpu: {known:?},\n        \
                 data_sheet_gpu: {by_sheet:?},\n    \
             }},\n\
         }};\n"
    )
}

fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
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
