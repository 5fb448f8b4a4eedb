//! Predictions against measurements of real GPUs: `cargo xtask accuracy --truth DIR`.
//!
//! DIR holds tables of measured training runs, and in `verify/` what users of `brimful verify` have measured. Each row's script is rebuilt (`benches/accuracy/`), runs on the phantom
//! as the card it was measured on, and the allocator's counters are set beside the measurement. What was chosen by
//! looking at data (a script's unknown details, the context of a software stack) was chosen on one half of the models,
//! by a hash of the name; the other half is what is reported.

mod findings;
mod oom_messages;
mod options;
mod report;
mod score;
mod sets;
mod snapshots;
mod speed;
mod table;
mod text;
mod verified;
mod workers;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result, bail};
use brimful::machine::ComputeCapability;
use brimful::predict::{LoadedLibraries, Outside, Target, Workload, context, footprint};
use brimful::units::Bytes;
use brimful_allocsim::settings::AllocatorSettings;
use brimful_allocsim::trace::Trace;
use brimful_allocsim::version::TorchVersion;
use brimful_rehearse::stage::Stage;

pub(crate) use oom_messages::run as run_contexts;
pub(crate) use options::Options;
pub(crate) use speed::{run as run_speed, write_parameters};

use findings::{Findings, Group, OutOfMemory, Safe};
use score::{Errors, errors, quantile};
use sets::{LeftOut, Role, Row, Sets, Truth, WITH_CONTEXT};
use snapshots::Snapshots;
use text::{hash, plain};
use workers::{Answer, Workers};

/// Where the host's part of the page begins.
const HOST_PART: &str = "\n\n## Host memory\n";

/// Models from which a stack's context is taken: the smallest of the calibration half, never scored.
const CONTEXT_MODELS: usize = 5;
/// A sample of so many rows per set is worth a page.
const PAGE_SAMPLE: usize = 100;
/// More convolutions than this that look at more than one place make a model convolutional. A vision transformer has
/// one to four, to cut the image into patches; hybrids count as convolutional.
const FEW_CONVOLUTIONS: u64 = 8;

/// A row with its prediction.
struct Scored {
    row: Row,
    group: &'static str,
    answer: Answer,
    predicted: f64,
    safe: f64,
    /// Taken for the context of its stack.
    for_context: bool,
}

impl Scored {
    fn error(&self) -> f64 {
        self.predicted / self.row.measured - 1.0
    }

    fn says_out_of_memory(&self) -> bool {
        self.answer.oom || self.predicted > self.row.card as f64
    }

    fn counts(&self, role: Role) -> bool {
        self.row.role == role && !self.for_context && !self.answer.oom
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if !options.truth.is_dir() {
        bail!(
            "expected a directory of ground truth, found nothing at {}",
            options.truth.display()
        );
    }
    let truth = options.truth.canonicalize()?;
    if verified::is_alone(&truth) {
        return print_verified(options, &truth);
    }
    let library = crate::differential::phantom(options.phantom.clone())?;
    let stage = Stage::new(&library).context("the phantom cannot be staged")?;
    let versions = versions(&options.python, &stage)?;
    let library_hash = hash(&String::from_utf8_lossy(&std::fs::read(&library)?));
    let Sets {
        rows,
        mut left_out,
        mut absent,
    } = Sets::read(&truth)?;
    let (rows, for_context) = chosen(rows, options.sample);
    let mut workers = Workers::new(
        &options.python,
        &stage,
        &format!("{versions} {library_hash}"),
    )?;
    let jobs: Vec<_> = rows.iter().map(|row| row.job.clone()).collect();
    let answers = workers.answers(&jobs)?;
    let seconds =
        answers.iter().map(|answer| answer.seconds).sum::<f64>() / answers.len().max(1) as f64;
    let contexts = contexts(&rows, &for_context, &answers);
    let scored = scored(rows, &for_context, answers, &contexts, &mut left_out);
    let verified = verified::read(&truth, &mut absent);
    let snapshots = Snapshots::read(&truth, options, &stage, &mut absent, &mut left_out);
    if scored.is_empty() && snapshots.replays.is_none() {
        bail!(
            "expected measurements in {}, found none that can be compared\n{}",
            truth.display(),
            absent.join("\n")
        );
    }
    let findings = Findings {
        versions,
        sample: options.sample,
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a byte count"
        )]
        contexts_mib: contexts
            .known
            .iter()
            .map(|(set, bytes)| (*set, bytes.max(0.0) as u64 >> 20))
            .collect(),
        context_scores: oom_messages::scores(&truth)?,
        replays: snapshots.replays,
        rebuilt: snapshots.rebuilt,
        groups: groups(&scored),
        verified,
        left_out: left_out
            .into_iter()
            .map(|((set, reason), count)| (set.to_owned(), reason, count))
            .collect(),
        absent,
        assumed_contexts: contexts.assumed,
        seconds_per_row: seconds,
    };
    let page = report::page(&findings);
    if options.json {
        println!("{}", serde_json::to_string_pretty(&findings)?);
    } else {
        println!("{page}");
    }
    // A small sample is for a look only.
    if options.sample.is_none_or(|sample| sample >= PAGE_SAMPLE) {
        let path = crate::shell::root().join("docs/accuracy.md");
        // The host's part is of `benches/host_accuracy.py` and stays.
        let before = std::fs::read_to_string(&path).unwrap_or_default();
        let host = before
            .find(HOST_PART)
            .map_or("", |start| before.get(start..).unwrap_or_default());
        std::fs::write(path, format!("{}{host}", page.trim_end_matches('\n')))?;
    }
    Ok(())
}

/// Measurements of users alone, which need no script to be rebuilt. No page is written.
fn print_verified(options: &Options, truth: &Path) -> Result<()> {
    let mut absent = Vec::new();
    let verified = verified::read(truth, &mut absent);
    for problem in &absent {
        writeln!(std::io::stderr(), "{problem}")?;
    }
    let verified = verified.context("expected a file of `brimful verify`, found none")?;
    if options.json {
        println!("{}", serde_json::to_string_pretty(&verified)?);
    } else {
        println!("{}", verified.section().trim());
    }
    Ok(())
}

/// The versions that decide the answers; an error if something is missing.
fn versions(python: &Path, stage: &Stage) -> Result<String> {
    let script = "import importlib.metadata as m\n\
        names = ['torch', 'timm', 'transformers', 'torchvision', 'pyarrow']\n\
        found = {d.metadata['Name'].lower(): d.version for d in m.distributions() if d.metadata['Name']}\n\
        missing = [n for n in names if n not in found]\n\
        assert not missing, 'missing packages: ' + ', '.join(missing)\n\
        cudnn = [f'cuDNN {v}' for n, v in found.items() if n.startswith('nvidia-cudnn')]\n\
        print(', '.join([f'{n} {found[n]}' for n in names[:4]] + (cudnn or ['no cuDNN'])))";
    let mut command = crate::shell::program(python, &["-c", script]);
    stage.apply(&mut command);
    let output = crate::shell::read(&mut command).context(
        "expected a Python with torch, timm, transformers, torchvision and pyarrow; name one with `--python`",
    )?;
    Ok(output.trim().to_owned())
}

/// The rows to run, and for each whether it is one for the context of its stack.
fn chosen(mut rows: Vec<Row>, sample: Option<usize>) -> (Vec<Row>, Vec<bool>) {
    rows.sort_by_key(|row| hash(&format!("{} {}", row.set, row.label)));
    let mut for_context = vec![false; rows.len()];
    for (set, _) in WITH_CONTEXT {
        let mut candidates: Vec<usize> = (0..rows.len())
            .filter(|at| {
                let row = &rows[*at];
                row.set == set && row.role == Role::Scored && row.is_for_calibration()
            })
            .collect();
        candidates.sort_by_key(|at| (rows[*at].size, rows[*at].label.clone()));
        let mut models: Vec<&str> = Vec::new();
        let mut smallest = Vec::new();
        for at in candidates {
            if models.len() < CONTEXT_MODELS && !models.contains(&rows[at].model.as_str()) {
                models.push(&rows[at].model);
                smallest.push(at);
            }
        }
        // The smallest of a few may be large, and then tell more of their own error than of the context.
        if smallest.len() == CONTEXT_MODELS {
            for at in smallest {
                for_context[at] = true;
            }
        }
    }
    let mut taken: BTreeMap<&str, usize> = BTreeMap::new();
    let keep: Vec<bool> = rows
        .iter()
        .zip(&for_context)
        .map(|(row, for_context)| {
            // timm's rows are two groups.
            let most = sample.map_or(usize::MAX, |sample| {
                if row.set == "timm" {
                    2 * sample
                } else {
                    sample
                }
            });
            let count = taken.entry(row.set).or_default();
            let keep = *count < most;
            *count += usize::from(keep && !for_context);
            keep || *for_context
        })
        .collect();
    let kept = rows
        .into_iter()
        .zip(for_context)
        .zip(keep)
        .filter(|(_, keep)| *keep)
        .map(|(row, _)| row);
    kept.unzip()
}

/// The context of an A100.
fn context_of_a100(cudnn: bool) -> Outside {
    let loaded = LoadedLibraries {
        torch: TorchVersion::NEWEST_CHECKED,
        cudnn,
    };
    context(108, Some(ComputeCapability::new(8, 0)), loaded)
}

/// The margin that the product adds to reserved memory, asked from it by a run that reserves a known amount.
fn margin(cudnn: bool, benchmark: bool) -> f64 {
    let mut trace = Trace::default();
    trace.alloc(10 << 30, 0);
    let workload = Workload {
        trace,
        cudnn_heuristics: cudnn,
        cudnn_benchmark: cudnn && benchmark,
        steps: 1,
        ..Workload::default()
    };
    let target = Target {
        name: "any".to_owned(),
        total: Bytes(1 << 40),
        multiprocessors: 108,
        compute_capability: Some(ComputeCapability::new(8, 0)),
        settings: AllocatorSettings::default(),
        measured_context: None,
    };
    let found = footprint(&workload, &target);
    let outside = context_of_a100(cudnn).safe;
    let spare = found
        .device
        .safe
        .get()
        .saturating_sub(found.peak_reserved.get() + outside.get());
    spare as f64 / found.peak_reserved.get() as f64
}

/// What a process holds outside of the allocator, for each set that needs it.
struct Contexts {
    known: BTreeMap<&'static str, f64>,
    assumed: Vec<&'static str>,
}

/// The context of each stack is taken from its five small models.
fn contexts(rows: &[Row], for_context: &[bool], answers: &[Answer]) -> Contexts {
    let mut found = Contexts {
        known: BTreeMap::new(),
        assumed: Vec::new(),
    };
    for (set, assumed) in WITH_CONTEXT {
        let of_set = || {
            rows.iter()
                .zip(answers)
                .zip(for_context)
                .filter(move |((row, _), _)| row.set == set)
        };
        let differences: Vec<f64> = of_set()
            .filter(|((_, answer), for_context)| {
                **for_context && answer.skip.is_none() && !answer.oom
            })
            .map(|((row, answer), _)| row.measured - answer.reserved_bytes as f64)
            .collect();
        if !differences.is_empty() {
            found.known.insert(set, quantile(&differences, 0.5));
        } else if of_set().next().is_some() {
            found.known.insert(set, assumed as f64);
            found.assumed.push(set);
        }
    }
    found
}

/// Answers as predictions.
fn scored(
    rows: Vec<Row>,
    for_context: &[bool],
    answers: Vec<Answer>,
    contexts: &Contexts,
    left_out: &mut LeftOut,
) -> Vec<Scored> {
    // How much these stacks load is measured, with and without cuDNN.
    let slack = context_of_a100(false);
    let slack = (slack.safe.get() - slack.likely.get()) as f64;
    let margins = [
        margin(false, false),
        margin(true, false),
        margin(true, true),
    ];
    let mut scored = Vec::new();
    for ((row, answer), for_context) in rows.into_iter().zip(answers).zip(for_context) {
        let group = match row.set {
            "timm" if answer.kernels_over_one > FEW_CONVOLUTIONS => "timm cnn",
            "timm" => "timm transformer",
            other => other,
        };
        let mut leave_out = |reason: String| *left_out.entry((row.set, reason)).or_default() += 1;
        if let Some(reason) = &answer.skip {
            leave_out(plain(reason));
            continue;
        }
        // Such a figure cannot come from the program that the source describes.
        if row.role == Role::Scored && row.measured < answer.least_bytes as f64 {
            leave_out("below the size of the weights and optimizer states".to_owned());
            continue;
        }
        let margin = match (answer.kernels_over_one > 0, row.benchmark) {
            (false, _) => margins[0],
            (true, false) => margins[1],
            (true, true) => margins[2],
        };
        let outside = contexts.known.get(row.set).copied().unwrap_or(0.0);
        let reserved = answer.reserved_bytes as f64;
        let (predicted, safe) = match row.truth {
            Truth::Device | Truth::Growth => (
                reserved + outside,
                reserved * (1.0 + margin) + outside + slack,
            ),
            Truth::AllocatedNow => (answer.allocated_now_bytes as f64, f64::MAX),
            Truth::AllocatedPeak => (answer.allocated_bytes as f64, f64::MAX),
        };
        scored.push(Scored {
            row,
            group,
            answer,
            predicted,
            safe,
            for_context: *for_context,
        });
    }
    scored
}

fn groups(scored: &[Scored]) -> Vec<Group> {
    let mut names: Vec<&'static str> = scored.iter().map(|one| one.group).collect();
    names.sort_unstable();
    names.dedup();
    names
        .into_iter()
        .map(|name| {
            group(
                name,
                &scored
                    .iter()
                    .filter(|one| one.group == name)
                    .collect::<Vec<_>>(),
            )
        })
        .collect()
}

fn group(name: &'static str, rows: &[&Scored]) -> Group {
    let test = |one: &&&Scored| !one.row.is_for_calibration();
    let good = || rows.iter().filter(|one| one.counts(Role::Scored));
    let summed = |rows: &mut dyn Iterator<Item = &&Scored>| {
        errors(rows.map(|one| (one.row.model.as_str(), one.error())))
    };
    let mut others: BTreeMap<&'static str, [Option<Errors>; 2]> = BTreeMap::new();
    for (other, _) in rows.iter().flat_map(|one| &one.row.others) {
        let estimates = |test_only: bool| {
            let rows = good().filter(|one| !test_only || test(one));
            errors(rows.filter_map(|one| {
                let (_, estimate) = one.row.others.iter().find(|(name, _)| name == other)?;
                Some((one.row.model.as_str(), estimate / one.row.measured - 1.0))
            }))
        };
        others
            .entry(other)
            .or_insert_with(|| [estimates(true), estimates(false)]);
    }
    let mut worst: Vec<(String, f64)> = good()
        .map(|one| (one.row.label.clone(), one.error()))
        .collect();
    worst.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()));
    worst.truncate(6);
    Group {
        name,
        test_half: summed(&mut good().filter(test)),
        all: summed(&mut good()),
        with_odd: summed(
            &mut rows
                .iter()
                .filter(|one| one.counts(Role::Scored) || one.counts(Role::Odd)),
        ),
        others,
        safe: safe(rows),
        out_of_memory: out_of_memory(rows),
        worst,
    }
}

fn safe(rows: &[&Scored]) -> Option<Safe> {
    let good = |calibration: bool| {
        rows.iter().filter(move |one| {
            one.counts(Role::Scored)
                && matches!(one.row.truth, Truth::Device | Truth::Growth)
                && one.row.is_for_calibration() == calibration
        })
    };
    let above: Vec<f64> = good(false)
        .map(|one| one.safe / one.row.measured - 1.0)
        .collect();
    let shares = |one: &&&Scored| {
        // The part of the slack that belongs to the context is kept.
        let reserved = one.answer.reserved_bytes as f64;
        (one.row.measured - one.predicted - (one.safe - one.predicted - reserved * margin_of(one)))
            / reserved
    };
    let needed: Vec<f64> = good(true).map(|one| shares(&one)).collect();
    Some(Safe {
        rows: above.len(),
        exceeded: above.iter().filter(|above| **above < 0.0).count() as f64
            / above.len().max(1) as f64,
        median_above: quantile(&above, 0.5),
        margin: good(false).map(|one| margin_of(one)).next()?,
        margin_needed_in_calibration_half: quantile(&needed, 0.97),
    })
}

fn margin_of(one: &Scored) -> f64 {
    margin(one.answer.kernels_over_one > 0, one.row.benchmark)
}

fn out_of_memory(rows: &[&Scored]) -> OutOfMemory {
    let mut found = OutOfMemory::default();
    for one in rows {
        let said = usize::from(one.says_out_of_memory());
        match one.row.role {
            Role::DiedByRecord => {
                found.died_by_record += 1;
                found.died_by_record_foretold += said;
            }
            Role::DiedByInference => {
                found.died_by_inference += 1;
                found.died_by_inference_foretold += said;
            }
            Role::Scored | Role::Odd => {
                found.ran += 1;
                found.ran_but_called_impossible += said;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_halves_are_halves() {
        let names = (0..1000).map(|number| format!("model_{number}"));
        let calibration = names.filter(|name| hash(name).is_multiple_of(2)).count();
        assert!((450..550).contains(&calibration), "{calibration}");
    }

    #[test]
    fn reasons_of_one_kind_are_one() {
        assert_eq!(
            plain("ValueError: expected more than 1 value, got 20"),
            "ValueError: expected more than N value"
        );
        assert_eq!(plain("not in this torchvision"), "not in this torchvision");
    }

    #[test]
    fn the_margin_is_the_products() {
        let (plain, heuristics, benchmark) = (
            margin(false, false),
            margin(true, false),
            margin(true, true),
        );
        assert!(
            plain > 0.0 && plain < heuristics && heuristics <= benchmark,
            "{plain} {heuristics} {benchmark}"
        );
    }
}
