//! Nothing fits: what misses least, and what would help.

use crate::job::{Choices, Science, knobs};
use crate::plan::candidates::wanted;
use crate::plan::considered::considered;
use crate::plan::fit::{self, LimitedMemory, Miss};
use crate::plan::reasons::{closest, failed, one_copy_for_all, reason, unknown_limits, unused};
use crate::plan::view::View;
use crate::plan::{Impossible, Need, Reason, ReasonKind};
use crate::units::Bytes;

pub(crate) fn impossible(view: &View<'_>) -> Impossible {
    let mut reasons = unused(view);
    if view.space.is_empty() {
        return Impossible {
            settings: wanted(view.space.job, view.room),
            effective_batch: view.space.effective,
            reasons,
            help: vec!["Change the knobs so that each has at least one valid value.".into()],
            ..Impossible::default()
        };
    }
    reasons.extend(failed(view, usize::MAX));
    let Some((near, _)) = closest(view, |_| true) else {
        return Impossible {
            settings: wanted(view.space.job, view.room),
            effective_batch: view.space.effective,
            reasons,
            help: vec!["Run the command without brimful, fix the error, then plan again.".into()],
            ..Impossible::default()
        };
    };
    let misses: Vec<Miss> = fit::misses(view.room, &near.taken).collect();
    reasons.extend(misses.iter().map(|miss| Reason {
        kind: ReasonKind::Refused,
        text: format!(
            "the smallest settings found need {} of {}, {} more than available",
            Bytes(miss.safe),
            miss.brim.words(view.room),
            Bytes(miss.missing())
        ),
        brim: Some(miss.brim.name(view.room)),
        missing: Some(Bytes(miss.missing())),
    }));
    if misses.is_empty() {
        let text =
            "the prediction fits, but an earlier run that needed no more memory ran out of memory";
        reasons.push(reason(ReasonKind::Died, text.to_owned()));
    }
    reasons.extend(view.lessons.reasons.iter().cloned());
    reasons.extend(unknown_limits(view, near.taken.gpu.is_some()));
    let copies = one_copy_for_all(view, None)
        .filter(|_| misses.iter().any(|miss| miss.brim == LimitedMemory::Host));
    let (host, gpu) = view.need(near.place).unwrap_or_default();
    Impossible {
        settings: view.space.settings(near.place),
        effective_batch: view.space.effective,
        footprint: Need { host, gpu },
        brims: fit::brims(view.room, &near.taken),
        reasons,
        help: help(view, &misses)
            .into_iter()
            .chain(copies.map(|remedy| format!("{}.", remedy.text)))
            .collect(),
        candidates: considered(view, near.place),
    }
}

fn help(view: &View<'_>, misses: &[Miss]) -> Vec<String> {
    let job = view.space.job;
    let lacks = |name: &str| job.knob(name).is_none();
    let mut help: Vec<String> = Vec::new();
    let host = misses.iter().any(|miss| miss.brim == LimitedMemory::Host);
    let card = misses
        .iter()
        .any(|miss| matches!(miss.brim, LimitedMemory::Gpu(_)));
    let on_cpu = view.on_cpu() == Some(true);
    for miss in misses {
        help.push(format!(
            "Provide {} more of {}: the smallest of these settings need {}.",
            Bytes(miss.missing()),
            miss.brim.words(view.room),
            Bytes(miss.safe)
        ));
    }
    let mut knob = |missing: bool, name: &str, what: &str| {
        if missing && lacks(name) {
            help.push(format!("Add {name} to [knobs] and to the command, {what}."));
        }
    };
    let shm = misses.iter().any(|miss| miss.brim == LimitedMemory::Shm);
    knob(host || shm, knobs::WORKERS, "to allow fewer workers");
    knob(
        card || (host && on_cpu),
        knobs::MICRO_BATCH,
        "to allow smaller micro-batches with gradient accumulation",
    );
    knob(
        card || (host && on_cpu),
        knobs::ACTIVATION_CHECKPOINTING,
        "to allow recomputing activations instead of storing them",
    );
    let kept: Vec<&str> = job
        .knobs
        .iter()
        .filter(|knob| knob.science() == Science::Other && !job.sacrifice.contains(&knob.name))
        .filter(|knob| matches!(&knob.choices, Choices::Listed(values) if values.len() > 1))
        .map(|knob| knob.name.as_str())
        .collect();
    if !kept.is_empty() {
        help.push(format!(
            "List knobs that may change the result under `sacrifice`: {} have other values, but only the first is used.",
            kept.join(", ")
        ));
    } else if !misses.is_empty() {
        help.push(
            "Add a knob with smaller values that changes the result (resolution, model, examples), and list it under `sacrifice`."
                .to_owned(),
        );
    }
    help
}
