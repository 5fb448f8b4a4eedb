//! What holds for every job: which values a knob may have, and which places a command.

use std::collections::BTreeSet;

use brimful_allocsim::settings::AllocatorSettings;
use brimful_allocsim::version::TorchVersion;

use crate::job::error::Mistake;
use crate::job::template::Template;
use crate::job::value::Value;
use crate::job::{Choices, ConfigOverrides, Job, knobs};
use crate::suggest::closest_owned;

pub(super) const EFFECTIVE_BATCH: &str = "a whole number from 1 to 1000000000";

/// Samples of one optimizer step, if it can be that many.
pub(super) fn effective_batch(number: i64) -> Option<u64> {
    u64::try_from(number)
        .ok()
        .filter(|count| (1..=1_000_000_000).contains(count))
}

/// Checks what a knob may be set to.
pub(super) fn knob(name: &str, choices: Choices) -> Result<Choices, Mistake> {
    if name == knobs::ACCUMULATION {
        return Err(Mistake::AccumulationIsDerived);
    }
    let Choices::Listed(values) = &choices else {
        if knobs::SAME_SCIENCE.contains(&name) {
            return Ok(choices);
        }
        return Err(Mistake::AutoUnknown {
            knob: name.to_owned(),
            close: closest_owned(name, knobs::SAME_SCIENCE),
        });
    };
    for (idx, value) in values.iter().enumerate() {
        if values[..idx].contains(value) {
            return Err(Mistake::Duplicate {
                key: name.to_owned(),
                value: value.to_string(),
            });
        }
        check(name, value)?;
    }
    Ok(choices)
}

/// Whether a knob that brimful knows may have the value.
fn check(name: &str, value: &Value) -> Result<(), Mistake> {
    let number = |range: std::ops::RangeInclusive<i64>| match value {
        Value::Whole(number) => range.contains(number),
        _ => false,
    };
    let (is_right, expected) = match name {
        knobs::MICRO_BATCH | knobs::EVAL_BATCH => (
            number(1..=1_000_000_000),
            "\"auto\" or whole numbers from 1 to 1000000000",
        ),
        knobs::WORKERS => (number(0..=4096), "\"auto\" or whole numbers from 0 to 4096"),
        knobs::PREFETCH => (number(1..=4096), "\"auto\" or whole numbers from 1 to 4096"),
        knobs::PIN_MEMORY | knobs::PERSISTENT_WORKERS => {
            (matches!(value, Value::Flag(_)), "\"auto\", true or false")
        }
        knobs::START_METHOD => (
            matches!(value, Value::Text(text) if matches!(text.as_str(), "fork" | "forkserver" | "spawn")),
            "\"auto\", \"fork\", \"forkserver\" or \"spawn\"",
        ),
        knobs::ALLOCATOR => match value {
            Value::Text(text) => return allocator(text),
            _ => (false, "a string in PYTORCH_CUDA_ALLOC_CONF syntax"),
        },
        _ => (true, ""),
    };
    if is_right {
        return Ok(());
    }
    Err(Mistake::WrongType {
        key: name.to_owned(),
        expected,
        found: match value {
            Value::Text(text) => format!("\"{text}\""),
            other => other.to_string(),
        },
    })
}

fn allocator(text: &str) -> Result<(), Mistake> {
    match AllocatorSettings::parse(text, TorchVersion::NEWEST_CHECKED) {
        Ok(_) => Ok(()),
        Err(error) => Err(Mistake::Allocator {
            text: text.to_owned(),
            problem: error.to_string(),
        }),
    }
}

/// Checks the parts of a command and returns the places that are in them.
pub(super) fn places(
    parts: &[String],
    known: &BTreeSet<&str>,
) -> Result<BTreeSet<String>, Mistake> {
    let mut found = BTreeSet::new();
    for part in parts {
        let template = Template::parse(part).map_err(|problem| Mistake::Braces {
            part: part.clone(),
            problem,
        })?;
        for place in template.places() {
            if place == CHECKPOINT && !known.contains(CHECKPOINT) {
                return Err(Mistake::CheckpointInCommand);
            }
            if !known.contains(place) {
                return Err(Mistake::UnknownPlaceholder {
                    name: place.to_owned(),
                    close: closest_owned(place, known.iter().copied()),
                    known: known.iter().map(|&name| name.to_owned()).collect(),
                });
            }
            found.insert(place.to_owned());
        }
    }
    Ok(found)
}

/// Checks that the command names a config file, and returns the places that are in its values.
pub(super) fn config(
    job: &Job,
    file: &ConfigOverrides,
    known: &BTreeSet<&str>,
) -> Result<BTreeSet<String>, Mistake> {
    let words = job.command.iter().chain(&job.extra);
    let is_named = words
        .filter_map(|word| Template::parse(word).ok()?.literal())
        .any(|word| names_file(&word, &file.path).is_some());
    if !is_named {
        return Err(Mistake::ConfigNotInCommand {
            path: file.path.clone(),
        });
    }
    let templates: Vec<String> = file.templates().map(str::to_owned).collect();
    places(&templates, known)
}

/// What stands before a file's path in a word: nothing, or an option and `=`. Nothing at all for another word.
pub(super) fn names_file<'a>(word: &'a str, path: &str) -> Option<&'a str> {
    let before = word.strip_suffix(path)?;
    (before.is_empty() || before.ends_with('=')).then_some(before)
}

/// The place of `resume`.
pub(super) const CHECKPOINT: &str = "checkpoint";
/// A place for scripts that find the accumulation by themselves.
pub(super) const EFFECTIVE_BATCH_PLACE: &str = "effective_batch";

/// The effective batch can be kept by every micro-batch.
pub(super) fn batches(job: &Job, placed: &BTreeSet<String>) -> Result<(), Mistake> {
    let Some(knob) = job.knob(knobs::MICRO_BATCH) else {
        return Ok(());
    };
    let Some(effective_batch) = job.effective_batch else {
        return match &knob.choices {
            Choices::Listed(values) if values.len() == 1 => Ok(()),
            _ => Err(Mistake::NoEffectiveBatch),
        };
    };
    let usable = job.micro_batches(1);
    if usable.is_empty() {
        return Err(Mistake::NotADivisor {
            effective_batch,
            found: match &knob.choices {
                Choices::Listed(values) => values.iter().map(ToString::to_string).collect(),
                Choices::Auto => Vec::new(),
            },
        });
    }
    let never_accumulates = usable.iter().all(|&batch| batch == effective_batch);
    let placed = placed.contains(knobs::ACCUMULATION) || placed.contains(EFFECTIVE_BATCH_PLACE);
    if !placed && !never_accumulates {
        return Err(Mistake::NoAccumulationPlaceholder);
    }
    Ok(())
}

/// What is to be given up are knobs of the job that change the result.
pub(super) fn sacrifice(job: &Job) -> Result<(), Mistake> {
    for (idx, name) in job.sacrifice.iter().enumerate() {
        if knobs::SAME_SCIENCE.contains(&name.as_str()) {
            return Err(Mistake::NotASacrifice { knob: name.clone() });
        }
        if job.knob(name).is_none() {
            let known: Vec<&str> = job.other_science().map(|knob| knob.name.as_str()).collect();
            return Err(Mistake::Unknown {
                what: "knob",
                found: name.clone(),
                table: "`sacrifice`".into(),
                close: closest_owned(name, known.iter().copied()),
                known: known.into_iter().map(str::to_owned).collect(),
            });
        }
        if job.sacrifice[..idx].contains(name) {
            return Err(Mistake::Duplicate {
                key: "sacrifice".into(),
                value: name.clone(),
            });
        }
    }
    Ok(())
}
