//! Nothing fits: what misses least, and what would help.

use crate::job::{Choices, Science, knobs};
use crate::plan::candidates::wanted;
use crate::plan::fit::{self, Brim, Miss};
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
            help: vec![
                "Change the values of the knobs so that at least one of each can be used.".into(),
            ],
            ..Impossible::default()
        };
    }
    reasons.extend(failed(view, usize::MAX));
    let Some((near, _)) = closest(view, |_| true) else {
        return Impossible {
            settings: wanted(view.space.job, view.room),
            effective_batch: view.space.effective,
            reasons,
            help: vec![
                "Run the command once by hand and mend what stops it, then plan again.".into(),
            ],
            ..Impossible::default()
        };
    };
    let misses: Vec<Miss> = fit::misses(view.room, &near.taken).collect();
    reasons.extend(misses.iter().map(|miss| Reason {
        kind: ReasonKind::Refused,
        text: format!(
            "the least that was found needs {} of {}, {} more than there is",
            Bytes(miss.safe),
            miss.brim.words(view.room),
            Bytes(miss.missing())
        ),
        brim: Some(miss.brim.name(view.room)),
        missing: Some(Bytes(miss.missing())),
    }));
    if misses.is_empty() {
        let text = "by prediction it fits, but an earlier run that needed no more died of memory";
        reasons.push(reason(ReasonKind::Died, text.to_owned()));
    }
    reasons.extend(view.lessons.reasons.iter().cloned());
    reasons.extend(unknown_limits(view, near.taken.gpu.is_some()));
    let copies =
        one_copy_for_all(view, None).filter(|_| misses.iter().any(|miss| miss.brim == Brim::Host));
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
    }
}

fn help(view: &View<'_>, misses: &[Miss]) -> Vec<String> {
    let job = view.space.job;
    let lacks = |name: &str| job.knob(name).is_none();
    let mut help: Vec<String> = Vec::new();
    let host = misses.iter().any(|miss| miss.brim == Brim::Host);
    let card = misses.iter().any(|miss| matches!(miss.brim, Brim::Gpu(_)));
    let on_cpu = view.on_cpu() == Some(true);
    for miss in misses {
        help.push(format!(
            "Find {} more of {}: {} in all would do for the least of these settings.",
            Bytes(miss.missing()),
            miss.brim.words(view.room),
            Bytes(miss.safe)
        ));
    }
    let mut knob = |missing: bool, name: &str, what: &str| {
        if missing && lacks(name) {
            help.push(format!(
                "Add {name} to [knobs] and to the command, so that {what}."
            ));
        }
    };
    let shm = misses.iter().any(|miss| miss.brim == Brim::Shm);
    knob(host || shm, knobs::WORKERS, "fewer workers can be used");
    knob(
        card || (host && on_cpu),
        knobs::MICRO_BATCH,
        "smaller micro-batches can be accumulated",
    );
    knob(
        card || (host && on_cpu),
        knobs::ACTIVATION_CHECKPOINTING,
        "activations can be computed again instead of kept",
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
            "Name in `sacrifice` what may be given up: {} have other values, but stay at the first.",
            kept.join(", ")
        ));
    } else if !misses.is_empty() {
        help.push(
            "List smaller values of something that changes the result (resolution, model, examples) and name it in `sacrifice`."
                .to_owned(),
        );
    }
    help
}
