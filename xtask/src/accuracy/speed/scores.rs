//! How far predicted speeds are from measured ones, by table.

use std::collections::BTreeMap;

use brimful::speed::{Kernels, Parameters};
use serde::Serialize;

use super::super::score::{Errors, errors, quantile};
use super::captures::{Captured, Seen, is_fitted, is_for_development, with_families_left_out};
use super::gpus;
use super::rows::Set;

/// All scores.
#[derive(Debug, Serialize)]
pub(super) struct Scores {
    pub(super) versions: String,
    pub(super) left_out: usize,
    pub(super) tables: Vec<Score>,
    pub(super) baselines: Vec<Score>,
    /// Errors by family, the worst first.
    pub(super) families: Vec<(String, usize, f64)>,
    /// Errors by the class of operator that takes most of the predicted time.
    pub(super) classes: Vec<ClassScore>,
    pub(super) pairs: [(&'static str, Pairs); 2],
    /// NVIDIA's examples: GPU, training and error.
    pub(super) examples: Vec<(String, String, f64)>,
}

/// One line of a table.
#[derive(Debug, Serialize)]
pub(super) struct Score {
    pub(super) title: String,
    pub(super) errors: Errors,
    pub(super) within_twice: f64,
}

/// Rows of one set in which one class of operator takes more of the predicted time than any other.
#[derive(Debug, Serialize)]
pub(super) struct ClassScore {
    pub(super) class: &'static str,
    pub(super) set: &'static str,
    pub(super) errors: Errors,
}

/// Pairs of GPUs on which the same training was measured.
#[derive(Debug, Default, Serialize)]
pub(super) struct Pairs {
    pub(super) right: usize,
    pub(super) all: usize,
}

/// Lambda's names of the examples that are rebuilt.
const LAMBDA: [(&str, &str); 3] = [
    ("ssd", "SSD300"),
    ("ncf", "NCF"),
    ("transformerxlbase", "Transformer-XL"),
];

fn score(title: impl Into<String>, ratios: &[(&Seen, f64)]) -> Option<Score> {
    // Of samples per second: a time that is too long is a rate that is too low.
    let found = errors(
        ratios
            .iter()
            .map(|(seen, ratio)| (seen.row.model.as_str(), 1.0 / ratio - 1.0)),
    )?;
    let near = ratios
        .iter()
        .filter(|(_, r)| (0.5..2.0).contains(r))
        .count();
    Some(Score {
        title: title.into(),
        errors: found,
        within_twice: near as f64 / ratios.len() as f64,
    })
}

pub(super) fn of(captured: &Captured) -> Scores {
    let p = Parameters::fitted();
    let seen = &captured.seen;
    let of_set = |set: Set| -> Vec<(&Seen, f64)> {
        let of = seen.iter().filter(move |s| s.row.set == set);
        of.map(|s| (s, s.ratio(&p))).collect()
    };
    let mut tables = Vec::new();
    let (launches, of_images): (Vec<_>, Vec<_>) = with_families_left_out(seen)
        .into_iter()
        .partition(|(s, _)| s.row.set == Set::LitGpt);
    for set in [Set::TimmNchw, Set::TimmNhwc] {
        let (dev, test): (Vec<_>, Vec<_>) = of_set(set)
            .into_iter()
            .partition(|(s, _)| is_for_development(&s.row.model));
        tables.extend(score(format!("{}, models of the fit", set.title()), &dev));
        tables.extend(score(format!("{}, other models", set.title()), &test));
        let out: Vec<_> = of_images
            .iter()
            .filter(|(s, _)| s.row.set == set)
            .copied()
            .collect();
        tables.extend(score(format!("{}, family left out", set.title()), &out));
    }
    tables.extend(score(
        "NeuSight end to end, fp32, GPUs with a factor",
        &of_set(Set::NeuSight),
    ));
    for set in [Set::Nvidia, Set::Inference, Set::InferenceElsewhere] {
        tables.extend(score(set.title(), &of_set(set)));
    }
    let lambda = of_set(Set::Lambda);
    for (model, name) in LAMBDA {
        let of: Vec<_> = lambda
            .iter()
            .filter(|(s, _)| s.row.model == model)
            .copied()
            .collect();
        tables.extend(score(format!("{}, {name}", Set::Lambda.title()), &of));
    }
    tables.extend(score(
        format!("{}, model left out", Set::LitGpt.title()),
        &launches,
    ));
    let by_sheet: Vec<_> = seen
        .iter()
        .filter(|s| s.row.set == Set::NeuSight)
        .map(|s| (s, s.ratio_on(gpus::rates_by_data_sheet(s.row.gpu), &p)))
        .collect();
    tables.extend(score(
        "NeuSight end to end, GPUs by data sheet alone",
        &by_sheet,
    ));
    tables.extend(score(
        "scaled from one run: another layout, same GPU",
        &scaled(&of_set(Set::TimmNchw), &of_set(Set::TimmNhwc)),
    ));
    tables.extend(score(
        "scaled from one run: another GPU, by data sheet",
        &scaled_to_other_gpus(&by_sheet),
    ));
    tables.extend(score(
        "scaled from one run: another GPU and batch, Lambda",
        &scaled_to_other_gpus(&lambda),
    ));
    tables.extend(score(
        "NeuSight single kernels, fp32",
        &of_set(Set::NeuSightKernels),
    ));
    Scores {
        versions: captured.versions.clone(),
        left_out: captured.left_out,
        tables,
        baselines: baselines(seen),
        families: families(&of_images),
        classes: classes(
            of_images.iter().chain(&launches).copied().chain(
                seen.iter()
                    .filter(|s| !is_fitted(s.row.set) || s.row.set == Set::NeuSightKernels)
                    .map(|s| (s, s.ratio(&p))),
            ),
        ),
        pairs: [Set::NeuSight, Set::Lambda].map(|set| (set.title(), pairs(&of_set(set)))),
        examples: of_set(Set::Nvidia)
            .iter()
            .map(|(s, ratio)| (s.row.gpu.to_owned(), s.row.label.clone(), 1.0 / ratio - 1.0))
            .collect(),
    }
}

/// Each model's error with one layout, after it was measured with the other.
fn scaled<'a>(measured: &[(&'a Seen, f64)], wanted: &[(&'a Seen, f64)]) -> Vec<(&'a Seen, f64)> {
    let known: BTreeMap<&str, f64> = measured
        .iter()
        .map(|(s, ratio)| (s.row.model.as_str(), *ratio))
        .collect();
    wanted
        .iter()
        .filter_map(|(s, ratio)| Some((*s, ratio / known.get(s.row.model.as_str())?)))
        .collect()
}

/// Each training on the other GPUs, after it was measured on the first.
fn scaled_to_other_gpus<'a>(rows: &[(&'a Seen, f64)]) -> Vec<(&'a Seen, f64)> {
    let mut first: BTreeMap<&str, (&str, f64)> = BTreeMap::new();
    let mut found = Vec::new();
    for (s, ratio) in rows {
        let (gpu, known) = first.entry(s.row.training()).or_insert((s.row.gpu, *ratio));
        if *gpu != s.row.gpu {
            found.push((*s, ratio / *known));
        }
    }
    found
}

fn families(left_out: &[(&Seen, f64)]) -> Vec<(String, usize, f64)> {
    let mut by: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (s, ratio) in left_out {
        let layout = if s.row.set == Set::TimmNhwc {
            "NHWC"
        } else {
            "NCHW"
        };
        by.entry(format!("{}, {layout}", s.row.family))
            .or_default()
            .push(1.0 / ratio - 1.0);
    }
    let mut found: Vec<(String, usize, f64)> = by
        .into_iter()
        .map(|(family, errors)| (family, errors.len(), quantile(&errors, 0.5)))
        .collect();
    found.sort_by(|a, b| b.2.abs().total_cmp(&a.2.abs()));
    found
}

/// Fewer rows say nothing about a class.
const ROWS_OF_CLASS: usize = 5;

fn classes<'a>(rows: impl Iterator<Item = (&'a Seen, f64)>) -> Vec<ClassScore> {
    let p = Parameters::fitted();
    let mut by: BTreeMap<(&str, Set), Vec<f64>> = BTreeMap::new();
    for (s, ratio) in rows {
        let class = match s.row.set {
            Set::NeuSightKernels => class_of_kernel(&s.row.model),
            _ => largest_class(s, &p),
        };
        by.entry((class, s.row.set))
            .or_default()
            .push(1.0 / ratio - 1.0);
    }
    by.into_iter()
        .filter(|(_, found)| found.len() >= ROWS_OF_CLASS)
        .filter_map(|((class, set), found)| {
            Some(ClassScore {
                errors: errors(found.into_iter().map(|error| (class, error)))?,
                class,
                set: set.title(),
            })
        })
        .collect()
}

/// NeuSight's names of its kernels.
fn class_of_kernel(kind: &str) -> &'static str {
    match kind {
        "linear" => "matrix products",
        "bmm" => "matrix products, batched",
        "softmax" => "softmax",
        "ln" => "layer norms",
        _ => "elementwise",
    }
}

fn largest_class(s: &Seen, p: &Parameters) -> &'static str {
    let time = Kernels::of(&s.step).seconds(&gpus::rates(s.row.gpu), p);
    [
        ("matrix products", time.matmul),
        ("convolutions", time.convolution),
        ("attention", time.attention),
        ("limited by memory bandwidth", time.memory_bound),
        ("optimizer", time.optimizer),
        ("launches", time.launches),
    ]
    .into_iter()
    .max_by(|a, b| a.1.total_cmp(&b.1))
    .map_or("", |(class, _)| class)
}

fn pairs(rows: &[(&Seen, f64)]) -> Pairs {
    let mut pairs = Pairs::default();
    for (at, (a, ratio_a)) in rows.iter().enumerate() {
        for (b, ratio_b) in &rows[..at] {
            if a.row.training() == b.row.training() && a.row.gpu != b.row.gpu {
                let (one, other) = (a.row.seconds_per_sample(), b.row.seconds_per_sample());
                let predicted = (one * ratio_a).total_cmp(&(other * ratio_b));
                pairs.all += 1;
                pairs.right += usize::from(predicted == one.total_cmp(&other));
            }
        }
    }
    pairs
}

/// What simpler rules give: one constant that is fitted to all rows of the timm tables.
fn baselines(seen: &[Seen]) -> Vec<Score> {
    let rows: Vec<&Seen> = seen
        .iter()
        .filter(|s| matches!(s.row.set, Set::TimmNchw | Set::TimmNhwc))
        .collect();
    let priors = Parameters::priors();
    let rule = |title: &str, time: &dyn Fn(&Seen) -> f64| {
        let raw: Vec<f64> = rows.iter().map(|s| time(s) / s.row.seconds).collect();
        let middle = quantile(&raw, 0.5);
        let ratios: Vec<_> = rows
            .iter()
            .zip(&raw)
            .map(|(s, r)| (*s, r / middle))
            .collect();
        score(title, &ratios)
    };
    let roofline = |s: &Seen| {
        let gpu = gpus::rates(s.row.gpu);
        (s.step.flops() / gpu.half).max(s.step.bytes() / gpu.bandwidth)
    };
    [
        rule("constant per operation", &|s| s.step.flops().max(1.0)),
        rule("constant per byte", &|s| s.step.bytes()),
        rule("roofline times a constant", &roofline),
        rule("this model without a fit", &|s| {
            Kernels::of(&s.step)
                .seconds(&gpus::rates(s.row.gpu), &priors)
                .total()
        }),
    ]
    .into_iter()
    .flatten()
    .collect()
}
