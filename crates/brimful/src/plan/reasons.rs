//! Why these settings were chosen and not better ones, in sentences.

use crate::job::knobs;
use crate::plan::candidate::{Candidate, candidate, died_of, order};
use crate::plan::candidates::{CandidateIndex, RehearsalPoint, wanted};
use crate::plan::fit::{self, Miss};
use crate::plan::lessons::Lack;
use crate::plan::moves::changes;
use crate::plan::view::View;
use crate::plan::{RateSource, Reason, ReasonKind};
use crate::predict::host::HostTermId;
use crate::units::Bytes;

/// Copies in workers that are worth a remedy.
const MIN_COPIES: Bytes = Bytes::from_mib(256);

/// Why `best` and not better ones.
pub(crate) fn reasons(view: &View<'_>, best: &Candidate) -> Vec<Reason> {
    let mut reasons = Vec::new();
    reasons.extend(kept(view, best));
    reasons.extend(checkpointing(view, best));
    reasons.extend(sacrificed(view, best));
    reasons.extend(refused(view, best));
    reasons.extend(one_copy_for_all(view, Some(best.place)));
    reasons.extend(gives_back(view, best));
    reasons.extend(view.lessons.reasons.iter().cloned());
    reasons.extend(failed(view, best.place.spot.level));
    reasons.extend(unknown_limits(view, best.taken.gpu.is_some()));
    reasons.extend(estimated(best));
    reasons.extend(unused(view));
    reasons
}

pub(crate) fn reason(kind: ReasonKind, text: String) -> Reason {
    Reason {
        kind,
        text,
        ..Reason::default()
    }
}

/// The remedy for workers that each hold the dataset, by what they would hold as wanted.
///
/// Only where that matters: fewer workers are planned than were wanted, or nothing fits.
pub(crate) fn one_copy_for_all(view: &View<'_>, planned: Option<CandidateIndex>) -> Option<Reason> {
    let settings = wanted(view.space.job, view.room);
    let workers = settings.count(knobs::WORKERS).filter(|count| *count > 0)?;
    let planned = planned.and_then(|place| view.space.settings(place).count(knobs::WORKERS));
    if planned.is_some_and(|planned| planned >= workers) {
        return None;
    }
    let place = view.space.place_of(&settings)?;
    let (host, _) = view.need(place)?;
    let copies = host
        .terms
        .iter()
        .find(|term| term.id == HostTermId::WorkerCopies)?;
    (copies.safe >= MIN_COPIES).then(|| {
        reason(
            ReasonKind::Remedy,
            format!(
                "{workers} workers would hold {} of dataset copies: use brimful.share(data) to keep one copy for all of them, or brimful.data to load without workers (docs/guides/share.md)",
                copies.safe
            ),
        )
    })
}

/// How the effective batch is made.
fn kept(view: &View<'_>, best: &Candidate) -> Option<Reason> {
    let settings = view.space.settings(best.place);
    let micro = settings.count(knobs::MICRO_BATCH)?;
    let accumulation = settings.count(knobs::ACCUMULATION)?;
    let effective = view.space.effective?;
    let ranks = match view.space.world {
        0 | 1 => String::new(),
        world => format!(" on each of {world} ranks"),
    };
    Some(reason(
        ReasonKind::Chosen,
        format!(
            "the effective batch size stays {effective}: {} of {micro}{ranks} per optimizer step",
            if accumulation == 1 {
                "one micro-batch".to_owned()
            } else {
                format!("{accumulation} micro-batches")
            }
        ),
    ))
}

/// What of the science was given up, and what stood in the way of keeping it.
fn sacrificed(view: &View<'_>, best: &Candidate) -> Vec<Reason> {
    let given_up = view.space.given_up(best.place.spot.level);
    if given_up.is_empty() {
        return Vec::new();
    }
    let closest = closest(view, |spot| spot.level < best.place.spot.level);
    given_up
        .into_iter()
        .map(|(knob, wanted, taken)| {
            let (why, miss) = match &closest {
                Some((near, Some(miss))) => {
                    let needs = needs_more(view, miss, near);
                    let near = difference(view, near, best);
                    let why = format!("without it, the closest settings ({near}) need {needs}");
                    (why, Some(miss))
                }
                Some((near, None)) => {
                    let near = difference(view, near, best);
                    let why = format!(
                        "without it, the closest settings ({near}) failed in an earlier run"
                    );
                    (why, None)
                }
                None => ("no settings without it could be rehearsed".to_owned(), None),
            };
            Reason {
                kind: ReasonKind::Sacrificed,
                text: format!("{knob} is {taken} instead of {wanted}: {why}"),
                brim: miss.map(|miss| miss.brim.name(view.room)),
                missing: miss.map(|miss| Bytes(miss.missing())),
            }
        })
        .collect()
}

/// The next better settings and the best of all at this level, where they do not fit.
fn refused(view: &View<'_>, best: &Candidate) -> Vec<Reason> {
    let spot = best.place.spot;
    let mut better: Vec<Candidate> = Vec::new();
    let mut add = |found: Candidate| {
        if found.throughput.samples_per_second > best.throughput.samples_per_second {
            better.push(found);
        }
    };
    for checkpoint in 0..view.space.checkpoints.len() {
        for micro in 0..view.space.micros.len() {
            let spot = RehearsalPoint {
                checkpoint,
                micro,
                ..spot
            };
            view.places(spot)
                .filter_map(|place| candidate(view, place))
                .for_each(&mut add);
        }
    }
    let next = better.iter().max_by(|a, b| order(a, b)).copied();
    let top = better.iter().min_by(|a, b| order(a, b)).copied();
    let top = top.filter(|top| next.is_none_or(|next| next.place != top.place));
    next.into_iter()
        .chain(top)
        .map(|found| refusal(view, &found, best))
        .collect()
}

fn refusal(view: &View<'_>, found: &Candidate, best: &Candidate) -> Reason {
    let words = difference(view, found, best);
    if let Some(miss) = fit::worst_miss(view.room, &found.taken) {
        return Reason {
            kind: ReasonKind::Refused,
            text: format!(
                "{words} would be {}, but needs {}",
                faster(found, best),
                needs_more(view, &miss, found)
            ),
            brim: Some(miss.brim.name(view.room)),
            missing: Some(Bytes(miss.missing())),
        };
    }
    if let Some(death) = died_of(view, found) {
        let what = match death.lack {
            Lack::Host => "host memory",
            Lack::Shm => "/dev/shm",
            Lack::Card | Lack::CardInOnePiece => "GPU memory",
            Lack::Handles => "open files or mappings",
        };
        let text = format!(
            "{words} would be {}, but an earlier run that needed no more memory ran out of {what}",
            faster(found, best)
        );
        return reason(ReasonKind::Died, text);
    }
    // It should fit, was not rehearsed, and did not promise enough.
    let text =
        format!("{words} might be slightly faster; the expected gain was too small to rehearse it");
    reason(ReasonKind::NotRehearsed, text)
}

/// How much faster, where more than an order is known.
fn faster(found: &Candidate, best: &Candidate) -> String {
    let is_figure = |candidate: &Candidate| candidate.throughput.from != RateSource::Estimated;
    let gain = percent_more(found, best);
    if is_figure(found) && is_figure(best) && gain >= 1.0 {
        format!("about {gain:.0} % faster")
    } else {
        "faster".to_owned()
    }
}

fn percent_more(found: &Candidate, best: &Candidate) -> f64 {
    let rate = |candidate: &Candidate| candidate.throughput.samples_per_second;
    100.0 * (rate(found) / rate(best) - 1.0)
}

/// What activation checkpointing saves, and what it costs.
fn checkpointing(view: &View<'_>, best: &Candidate) -> Option<Reason> {
    let spot = best.place.spot;
    if !view.space.recomputes(spot.checkpoint) || best.throughput.from == RateSource::Estimated {
        return None;
    }
    let without = (0..view.space.checkpoints.len()).find(|other| !view.space.recomputes(*other))?;
    let place = CandidateIndex {
        spot: RehearsalPoint {
            checkpoint: without,
            ..spot
        },
        ..best.place
    };
    let other = candidate(view, place)?;
    let saved = other.taken.gpu?.safe.checked_sub(best.taken.gpu?.safe)?;
    let cost = percent_more(&other, best);
    (saved > 0 && cost >= 1.0).then(|| {
        let text = format!(
            "activation checkpointing saves {} of GPU memory; without it, steps would be about {cost:.0} % faster",
            Bytes(saved)
        );
        reason(ReasonKind::Chosen, text)
    })
}

/// How settings differ from the chosen ones: "workers 4, prefetch 2".
fn difference(view: &View<'_>, found: &Candidate, best: &Candidate) -> String {
    let (from, to) = (
        view.space.settings(best.place),
        view.space.settings(found.place),
    );
    let words: Vec<String> = changes(&from, &to)
        .into_iter()
        .filter(|change| change.knob != knobs::ACCUMULATION)
        .map(|change| match change.to.to_string() {
            text if text.is_empty() => format!("no {}", change.knob),
            text => format!("{} {text}", change.knob),
        })
        .collect();
    words.join(", ")
}

fn needs_more(view: &View<'_>, miss: &Miss, found: &Candidate) -> String {
    let about = if view.is_known(found.place.spot) {
        ""
    } else {
        "about "
    };
    format!(
        "{about}{} of {}, {} more than available",
        Bytes(miss.safe),
        miss.brim.words(view.room),
        Bytes(miss.missing()),
    )
}

/// Of the rehearsed settings, those that miss least, with the limit that they miss most.
pub(crate) fn closest(
    view: &View<'_>,
    among: impl Fn(RehearsalPoint) -> bool,
) -> Option<(Candidate, Option<Miss>)> {
    let mut closest: Option<(Candidate, Option<Miss>)> = None;
    let share = |miss: &Option<Miss>| miss.map_or(0.0, |miss| miss.share());
    for (spot, _) in view.known().filter(|(spot, _)| among(*spot)) {
        for found in view.places(spot).filter_map(|place| candidate(view, place)) {
            let miss = fit::worst_miss(view.room, &found.taken);
            let nearer = closest.as_ref().is_none_or(|(near, least)| {
                let shares = share(&miss).total_cmp(&share(least));
                shares.then_with(|| order(&found, near)).is_lt()
            });
            if nearer {
                closest = Some((found, miss));
            }
        }
    }
    closest
}

fn gives_back(view: &View<'_>, best: &Candidate) -> Option<Reason> {
    let limit = fit::card_limit(view.room)?;
    let gpu = best.taken.gpu.filter(|gpu| gpu.safe > limit)?;
    Some(reason(
        ReasonKind::GivesBack,
        format!(
            "on a larger GPU it would reserve {}; a replay on this GPU fits, because PyTorch frees cached memory when it runs out",
            Bytes(gpu.safe)
        ),
    ))
}

/// Rehearsals that came to nothing.
pub(crate) fn failed(view: &View<'_>, level: usize) -> Vec<Reason> {
    let told = view.failed().filter(|(spot, _)| spot.level <= level);
    told.take(3)
        .map(|(spot, why)| {
            let micro = match view.space.micros[spot.micro] {
                Some(micro) => format!(" with micro_batch {micro}"),
                None => String::new(),
            };
            let why: String = why.chars().take(200).collect();
            reason(
                ReasonKind::Failed,
                format!("the rehearsal{micro} failed: {why}"),
            )
        })
        .collect()
}

pub(crate) fn unknown_limits(view: &View<'_>, on_card: bool) -> Vec<Reason> {
    let mut unknown = Vec::new();
    let mut add = |known: bool, what: &str| {
        if !known {
            let text = format!(
                "the limit of {what} is unknown, so no settings were rejected because of it"
            );
            unknown.push(reason(ReasonKind::UnknownLimit, text));
        }
    };
    add(view.room.host.is_some(), "host memory");
    add(view.room.shm.is_some(), "/dev/shm");
    add(!on_card || !view.room.gpus.is_empty(), "GPU memory");
    unknown
}

fn estimated(best: &Candidate) -> Option<Reason> {
    if best.throughput.from == RateSource::Measured {
        return None;
    }
    let text = if best.throughput.from == RateSource::Calculated {
        "samples per second are calculated from the operators of one step, not measured: they may be a third off, \
         and more if the CPU limits the speed"
    } else if best.taken.gpu.is_some() {
        "samples per second are an estimate that only ranks settings: the speed of the GPU is unknown before a run"
    } else {
        "samples per second are estimated from the rehearsal"
    };
    Some(reason(ReasonKind::Estimated, text.to_owned()))
}

pub(crate) fn unused(view: &View<'_>) -> Vec<Reason> {
    let told = view.space.unused.iter().take(5);
    told.map(|(_, text)| reason(ReasonKind::Unused, text.clone()))
        .collect()
}
