//! The values that each knob may take, in the order in which they are preferred.

use std::collections::BTreeSet;

use crate::job::{Choices, Job, Knob, Science, Value, knobs};
use crate::plan::pipe::{Pipe, accumulation};
use crate::plan::{PlanLimits, Shape};
use crate::predict::host::StartMethod;

/// More processes than this never fed a training faster in our measurements, and each costs memory.
const MAX_WORKERS: u64 = 8;
/// Values of one knob that are looked at, at most.
const MAX_VALUES: usize = 64;

pub(crate) fn first_count(knob: &Knob) -> Option<u64> {
    match &knob.choices {
        Choices::Auto => None,
        Choices::Listed(values) => values.first().and_then(count_of).filter(|n| *n > 0),
    }
}

fn count_of(value: &Value) -> Option<u64> {
    match value {
        Value::Whole(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}

/// From a rehearsal; before the first one as the command tells, else a rank for each card where that divides the batch.
pub(crate) fn world_size(room: &PlanLimits, shapes: &[Shape], effective: Option<u64>) -> u64 {
    let rehearsed = shapes
        .iter()
        .filter(|shape| shape.world_size > 0)
        .max_by_key(|shape| shape.rehearsed_at_unix_ms);
    if let Some(shape) = rehearsed {
        return shape.world_size;
    }
    if let Some(ranks) = room.ranks {
        return ranks.max(1);
    }
    let cards = u64::try_from(room.gpus.len()).unwrap_or(1).max(1);
    if effective.is_some_and(|batch| batch.is_multiple_of(cards)) {
        cards
    } else {
        1
    }
}

/// Divisors of the batch of one rank, largest first; or those that the user listed.
pub(crate) fn micro_batches(
    job: &Job,
    effective: Option<u64>,
    world: u64,
    unused: &mut Vec<(String, String)>,
) -> Vec<Option<u64>> {
    let Some(knob) = job.knob(knobs::MICRO_BATCH) else {
        return vec![None];
    };
    let Some(effective) = effective else {
        let text = "micro_batch is \"auto\", but [keep] does not set effective_batch";
        unused.push((knobs::MICRO_BATCH.to_owned(), text.to_owned()));
        return Vec::new();
    };
    let mut micros: Vec<u64> = match &knob.choices {
        Choices::Auto => divisors(effective / world.max(1)),
        Choices::Listed(values) => values
            .iter()
            .take(MAX_VALUES)
            .filter_map(|value| {
                let fits = count_of(value)
                    .filter(|micro| accumulation(Some(effective), *micro, world).is_some());
                if fits.is_none() {
                    let ranks = if world > 1 {
                        format!(" on each of {world} ranks")
                    } else {
                        String::new()
                    };
                    let text = format!(
                        "micro_batch {value} is not used: it does not divide the effective batch size of {effective}{ranks}"
                    );
                    unused.push((knobs::MICRO_BATCH.to_owned(), text));
                }
                fits
            })
            .collect(),
    };
    if !effective.is_multiple_of(world.max(1)) {
        let text =
            format!("an effective batch size of {effective} cannot be split over {world} ranks");
        unused.push((knobs::MICRO_BATCH.to_owned(), text));
        micros.clear();
    }
    if let Some(Choices::Listed(allowed)) = job.knob(knobs::ACCUMULATION).map(|knob| &knob.choices)
    {
        let allowed: BTreeSet<u64> = allowed.iter().filter_map(count_of).collect();
        micros.retain(|micro| {
            accumulation(Some(effective), *micro, world).is_some_and(|n| allowed.contains(&n))
        });
    }
    micros.sort_unstable_by(|a, b| b.cmp(a));
    micros.dedup();
    micros.truncate(MAX_VALUES);
    micros.into_iter().map(Some).collect()
}

/// Largest first; bounded for numbers that nobody trains with.
fn divisors(number: u64) -> Vec<u64> {
    let mut found = BTreeSet::new();
    let mut small = 1_u64;
    while small <= 1 << 16 && small.saturating_mul(small) <= number {
        if number.is_multiple_of(small) {
            found.insert(small);
            found.insert(number / small);
        }
        small += 1;
    }
    found.into_iter().rev().collect()
}

/// Powers of two down from the batch of one rank; or those that the user listed, in that order.
pub(crate) fn eval_batches(
    job: &Job,
    effective: Option<u64>,
    world: u64,
    unused: &mut Vec<(String, String)>,
) -> Vec<Option<u64>> {
    let Some(knob) = job.knob(knobs::EVAL_BATCH) else {
        return vec![None];
    };
    let sizes: Vec<u64> = match &knob.choices {
        Choices::Auto => {
            let most = effective.map_or(64, |batch| (batch / world.max(1)).max(1));
            let powers = (0..u64::BITS)
                .rev()
                .map(|bit| 1_u64 << bit)
                .filter(|power| *power < most);
            std::iter::once(most).chain(powers).collect()
        }
        Choices::Listed(values) => {
            for value in values
                .iter()
                .filter(|value| count_of(value).is_none_or(|n| n == 0))
            {
                let text = format!("eval_batch {value} is not used: it is not a number of samples");
                unused.push((knobs::EVAL_BATCH.to_owned(), text));
            }
            values
                .iter()
                .filter_map(count_of)
                .filter(|n| *n > 0)
                .take(MAX_VALUES)
                .collect()
        }
    };
    let mut found: Vec<Option<u64>> = Vec::new();
    for size in sizes.into_iter().map(Some) {
        if !found.contains(&size) {
            found.push(size);
        }
    }
    found
}

/// Knobs of other science: those that may be given up, in their order, and those that stay.
#[expect(clippy::type_complexity, reason = "two lists of names with values")]
pub(crate) fn science(job: &Job) -> (Vec<(&str, Vec<&Value>)>, Vec<(&str, &Value)>) {
    let values = |knob: &'_ Knob| knob.science() == Science::Other;
    let mut sacrifice: Vec<(&str, Vec<&Value>)> = Vec::new();
    for name in &job.sacrifice {
        if let Some(knob) = job.knob(name).filter(|knob| values(knob))
            && !sacrifice.iter().any(|(known, _)| *known == knob.name)
        {
            sacrifice.push((&knob.name, listed(knob)));
        }
    }
    sacrifice.retain(|(_, values)| !values.is_empty());
    let stays = |knob: &&Knob| {
        // Of knobs with one name, the first counts.
        let first = job
            .knob(&knob.name)
            .is_some_and(|first| std::ptr::eq(first, *knob));
        first && values(knob) && !sacrifice.iter().any(|(name, _)| *name == knob.name)
    };
    let fixed = job
        .knobs
        .iter()
        .filter(stays)
        .filter_map(|knob| Some((knob.name.as_str(), *listed(knob).first()?)))
        .collect();
    (sacrifice, fixed)
}

/// The listed values, each once, without those that equal nothing.
fn listed(knob: &Knob) -> Vec<&Value> {
    let Choices::Listed(values) = &knob.choices else {
        return Vec::new();
    };
    let mut found: Vec<&Value> = Vec::new();
    for value in values.iter().take(MAX_VALUES) {
        let is_number = !matches!(value, Value::Number(number) if number.is_nan());
        if is_number && !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

/// The values of a knob that may hold any, each once.
pub(crate) fn values_or(job: &Job, name: &str, auto: &[Value]) -> Vec<Option<Value>> {
    let Some(knob) = job.knob(name) else {
        return vec![None];
    };
    let values = listed(knob);
    if values.is_empty() {
        return auto.iter().cloned().map(Some).collect();
    }
    values.into_iter().cloned().map(Some).collect()
}

/// The values of a knob that are understood, each once; `[None]` where it is no knob.
fn understood<T: PartialEq>(
    job: &Job,
    name: &str,
    auto: Vec<T>,
    read: impl Fn(&Value) -> Option<T>,
    unused: &mut Vec<(String, String)>,
) -> Vec<Option<T>> {
    let Some(knob) = job.knob(name) else {
        return vec![None];
    };
    let Choices::Listed(values) = &knob.choices else {
        return auto.into_iter().map(Some).collect();
    };
    let mut found: Vec<Option<T>> = Vec::new();
    for value in values.iter().take(MAX_VALUES) {
        match read(value) {
            None => unused.push((
                name.to_owned(),
                format!("{name} {value} is not used: it is not a valid value of this knob"),
            )),
            some => {
                if !found.contains(&some) {
                    found.push(some);
                }
            }
        }
    }
    found
}

fn flag_of(value: &Value) -> Option<bool> {
    match value {
        Value::Flag(flag) => Some(*flag),
        _ => None,
    }
}

/// Every way to hand data over that a DataLoader accepts. Without workers there is nothing to fetch ahead, to keep
/// alive or to start, so these knobs have one value there: `persistent_workers` false, the others their first.
pub(crate) fn pipes(job: &Job, room: &PlanLimits, unused: &mut Vec<(String, String)>) -> Vec<Pipe> {
    let cpus = if room.cpus.is_finite() {
        room.cpus.clamp(1.0, 1024.0)
    } else {
        1.0
    };
    let most = (0..=MAX_WORKERS)
        .rev()
        .find(|n| *n as f64 <= cpus)
        .unwrap_or(0);
    let workers = understood(
        job,
        knobs::WORKERS,
        (0..=most).rev().collect(),
        count_of,
        unused,
    );
    let positive = |value: &Value| count_of(value).filter(|n| *n > 0);
    let prefetch = understood(job, knobs::PREFETCH, vec![2, 1, 4], positive, unused);
    let on_card = !room.gpus.is_empty();
    let pins = if on_card {
        vec![true, false]
    } else {
        vec![false]
    };
    let pins = understood(job, knobs::PIN_MEMORY, pins, flag_of, unused);
    let persistent = understood(
        job,
        knobs::PERSISTENT_WORKERS,
        vec![true, false],
        flag_of,
        unused,
    );
    let methods = vec![
        StartMethod::Fork,
        StartMethod::Forkserver,
        StartMethod::Spawn,
    ];
    let method = |value: &Value| match value {
        Value::Text(name) => StartMethod::from_name(name),
        _ => None,
    };
    let methods = understood(job, knobs::START_METHOD, methods, method, unused);
    let mut pipes: Vec<Pipe> = Vec::new();
    for &workers in &workers {
        for &prefetch in &prefetch {
            for &pin_memory in &pins {
                for &persistent in &persistent {
                    for &start_method in &methods {
                        let pipe = Pipe {
                            workers,
                            prefetch,
                            pin_memory,
                            persistent,
                            start_method,
                        };
                        pipes.push(pipe);
                    }
                }
            }
        }
    }
    let first = pipes.first().cloned().unwrap_or_default();
    let mut seen_without: Vec<Option<bool>> = Vec::new();
    pipes.retain_mut(|pipe| {
        if pipe.workers != Some(0) {
            return true;
        }
        pipe.prefetch = first.prefetch;
        pipe.persistent = pipe.persistent.map(|_| false);
        pipe.start_method = first.start_method;
        let new = !seen_without.contains(&pipe.pin_memory);
        if new {
            seen_without.push(pipe.pin_memory);
        }
        new
    });
    pipes
}

pub(crate) fn allocators(job: &Job, unused: &mut Vec<(String, String)>) -> Vec<Option<String>> {
    let auto = vec![String::new(), "expandable_segments:True".to_owned()];
    let text = |value: &Value| match value {
        Value::Text(text) => Some(text.clone()),
        _ => None,
    };
    understood(job, knobs::ALLOCATOR, auto, text, unused)
}
