//! The planner on jobs that people have.

use std::cell::Cell;

use crate::explain::{Cause, Confidence};
use crate::job::{Job, Settings, Value, knobs};
use crate::plan::properties::verdict;
use crate::plan::revise::{ReviseInput, revise_with};
use crate::plan::search::next_step_with;
use crate::plan::testing::{MB, Model, auto, drive, knob, room, usual_job, whole};
use crate::plan::view::Needs;
use crate::plan::{
    LearntRun, MeasuredOn, Observed, Plan, PlanLimits, RateSource, ReasonKind, Revision, Shape,
    Step, next_step, revise, wanted,
};
use crate::predict::host::{HostNeed, Pipeline};
use crate::units::Bytes;

fn planned(
    model: &Model,
    job: &Job,
    room: &PlanLimits,
    learnt: &[LearntRun],
) -> (Plan, Vec<Shape>) {
    match drive(model, job, room, learnt) {
        (Step::Done(plan), shapes) => (*plan, shapes),
        (other, _) => panic!("{other:?}"),
    }
}

fn count(settings: &Settings, knob: &str) -> u64 {
    settings.count(knob).expect("a number")
}

fn next(revision: Revision) -> (Settings, String) {
    match revision {
        Revision::Next { settings, why, .. } => (settings, why),
        Revision::GiveUp { why } => panic!("{why}"),
    }
}

#[test]
fn the_wanted_settings_are_rehearsed_first_with_one_worker() {
    let step = next_step(&usual_job(), &room(64_000, 16_000), &[], &[]);
    let Step::Rehearse(settings) = step else {
        panic!("{step:?}")
    };
    assert_eq!(count(&settings, knobs::MICRO_BATCH), 128);
    assert_eq!(count(&settings, knobs::ACCUMULATION), 1);
    assert_eq!(count(&settings, knobs::WORKERS), 1);
    assert_eq!(settings.flag(knobs::ACTIVATION_CHECKPOINTING), Some(false));
}

#[test]
fn what_fits_at_once_takes_one_rehearsal() {
    let (plan, shapes) = planned(&Model::default(), &usual_job(), &room(64_000, 40_000), &[]);
    assert_eq!(shapes.len(), 1);
    assert_eq!(count(&plan.settings, knobs::MICRO_BATCH), 128);
    assert_eq!(plan.effective_batch, Some(128));
}

#[test]
fn a_card_too_small_makes_smaller_micro_batches_and_no_sacrifice() {
    let (plan, shapes) = planned(&Model::default(), &usual_job(), &room(64_000, 16_000), &[]);
    assert!(shapes.len() <= 5, "{} rehearsals", shapes.len());
    assert_eq!(count(&plan.settings, "resolution"), 32);
    let micro = count(&plan.settings, knobs::MICRO_BATCH);
    assert_eq!(micro * count(&plan.settings, knobs::ACCUMULATION), 128);
    let refused = plan
        .reasons
        .iter()
        .find(|reason| reason.kind == ReasonKind::Refused);
    let refused = refused.expect("a larger one is refused");
    assert_eq!(refused.brim.as_deref(), Some("gpu"));
    assert!(refused.missing.is_some_and(|bytes| bytes > Bytes::ZERO));
    assert!(!plan.rungs.is_empty());
}

#[test]
fn science_is_given_up_in_the_order_of_sacrifice() {
    // The dataset alone is nothing; one sample at full resolution is too much for the card.
    let model = Model {
        base: 100 * MB,
        per_sample: 4_000 * MB,
        kept: 100,
        ..Model::default()
    };
    let (plan, _) = planned(&model, &usual_job(), &room(64_000, 3_500), &[]);
    assert_eq!(count(&plan.settings, "resolution"), 24);
    assert_eq!(plan.settings.text("model"), Some("full"));
    let told = plan
        .reasons
        .iter()
        .find(|reason| reason.kind == ReasonKind::Sacrificed);
    assert!(
        told.expect("it is said")
            .text
            .starts_with("resolution is 24 instead of 32")
    );
    // 16 full needs 2000, 32 small 2400: resolution goes through all its values before the model is touched.
    let (plan, _) = planned(&model, &usual_job(), &room(64_000, 2_800), &[]);
    assert_eq!(count(&plan.settings, "resolution"), 16);
    assert_eq!(plan.settings.text("model"), Some("full"));
}

#[test]
fn nothing_is_given_up_that_is_not_named() {
    let job = Job {
        sacrifice: Vec::new(),
        ..usual_job()
    };
    let (step, shapes) = drive(&Model::default(), &job, &room(64_000, 1_500), &[]);
    let Step::Impossible(impossible) = step else {
        panic!("{step:?}")
    };
    assert!(shapes.len() <= 3, "{} rehearsals", shapes.len());
    assert_eq!(count(&impossible.settings, knobs::MICRO_BATCH), 1);
    let gpu = impossible
        .reasons
        .iter()
        .find(|reason| reason.brim.is_some());
    assert_eq!(gpu.expect("it is said").brim.as_deref(), Some("gpu"));
    assert!(
        impossible
            .help
            .iter()
            .any(|help| help.contains("sacrifice"))
    );
}

#[test]
fn a_host_too_small_makes_fewer_workers() {
    let model = Model {
        sample_seconds: 0.05,
        ..Model::default()
    };
    let (rich, _) = planned(&model, &usual_job(), &room(64_000, 40_000), &[]);
    let (poor, _) = planned(&model, &usual_job(), &room(7_500, 40_000), &[]);
    assert_eq!(count(&rich.settings, knobs::WORKERS), 4);
    assert!(count(&poor.settings, knobs::WORKERS) < 4);
    let refused = poor
        .reasons
        .iter()
        .find(|reason| reason.kind == ReasonKind::Refused);
    assert_eq!(refused.expect("it is said").brim.as_deref(), Some("host"));
}

#[test]
fn copies_in_workers_have_a_remedy() {
    let model = Model {
        sample_seconds: 0.05,
        ..Model::default()
    };
    let mut job = usual_job();
    job.knobs.retain(|knob| knob.name != knobs::START_METHOD);
    job.knobs
        .push(knob(knobs::START_METHOD, &[Value::Text("spawn".into())]));
    let remedy = |host| {
        let (plan, _) = planned(&model, &job, &room(host, 40_000), &[]);
        let found = plan
            .reasons
            .iter()
            .find(|reason| reason.kind == ReasonKind::Remedy);
        found.map(|reason| reason.text.clone())
    };
    let text = remedy(12_000).expect("gigabytes in copies");
    assert!(
        text.contains("4 workers would hold") && text.contains("brimful.share"),
        "{text}"
    );
    assert_eq!(remedy(640_000), None, "as many workers as wanted");
}

#[test]
fn what_was_measured_stands_in_for_the_estimate() {
    let (job, room) = (usual_job(), room(64_000, 40_000));
    let (plan, _) = planned(&Model::default(), &job, &room, &[]);
    assert_eq!(plan.throughput.from, RateSource::Estimated);
    let run = LearntRun {
        settings: plan.settings.clone(),
        observed: Observed {
            steps: 101,
            timed_steps: 100,
            timed_seconds: 50.0,
            host_used: Some(Bytes(1)),
            ..Observed::default()
        },
        measured_on: Some(MeasuredOn::of(&room, &[])),
        ..LearntRun::default()
    };
    for measured_on in [None, Some(MeasuredOn::default())] {
        let elsewhere = LearntRun {
            measured_on,
            ..run.clone()
        };
        let (again, _) = planned(&Model::default(), &job, &room, &[elsewhere]);
        assert_eq!(
            again.throughput, plan.throughput,
            "on CPUs, or nobody knows where"
        );
    }
    let (again, _) = planned(&Model::default(), &job, &room, &[run]);
    assert_eq!(again.settings, plan.settings);
    assert_eq!(again.throughput.from, RateSource::Measured);
    assert!((again.throughput.samples_per_second - 256.0).abs() < 1e-9);
}

#[test]
fn a_peak_above_the_prediction_raises_it() {
    let (job, room) = (usual_job(), room(64_000, 40_000));
    let (plan, _) = planned(&Model::default(), &job, &room, &[]);
    let likely = plan.brims[0].likely.get();
    let run = LearntRun {
        settings: plan.settings.clone(),
        observed: Observed {
            host_used: Some(Bytes(likely * 3 / 2)),
            ..Observed::default()
        },
        ..LearntRun::default()
    };
    let (again, _) = planned(&Model::default(), &job, &room, &[run]);
    let raised = again.brims[0].likely.get() as f64;
    assert!((raised / likely as f64 - 1.5).abs() < 0.01);
    assert!(
        again
            .reasons
            .iter()
            .any(|reason| reason.kind == ReasonKind::Learnt)
    );
}

fn loader_job() -> Job {
    Job {
        effective_batch: Some(32),
        knobs: vec![
            auto(knobs::MICRO_BATCH),
            knob(knobs::WORKERS, &whole(&[8, 6, 4, 3, 2, 1, 0])),
            auto(knobs::PREFETCH),
            auto(knobs::ALLOCATOR),
            knob(knobs::EVAL_BATCH, &whole(&[64, 32, 16])),
        ],
        ..Job::default()
    }
}

fn after(tried: &[Settings], cause: Cause, observed: &Observed) -> Revision {
    let room = room(12_000, 16_000);
    revise(
        &loader_job(),
        &room,
        &[],
        &[],
        tried,
        &verdict(cause),
        observed,
    )
}

#[test]
fn a_killed_worker_lowers_the_workers_and_nothing_else() {
    let first = wanted(&loader_job(), &room(12_000, 16_000));
    assert_eq!(count(&first, knobs::WORKERS), 8);
    let (half, why) = next(after(
        std::slice::from_ref(&first),
        Cause::DataloaderWorkerKilledOom,
        &Observed::default(),
    ));
    assert_eq!(half, first.with(knobs::WORKERS, 4_u64));
    assert_eq!(
        why,
        "A DataLoader worker was killed because host memory ran out, so workers changes from 8 to 4."
    );
    // (4000 + w * 1100) * 1.1 <= 12000 MB.
    let seen = Observed {
        main_private: Some(Bytes(4_000 * MB)),
        worker_private_max: Some(Bytes(1_100 * MB)),
        ..Observed::default()
    };
    let (six, _) = next(after(&[first], Cause::HostOomKill, &seen));
    assert_eq!(count(&six, knobs::WORKERS), 6);
}

#[test]
fn a_card_in_pieces_changes_the_allocator_first() {
    let first = wanted(&loader_job(), &room(12_000, 16_000));
    let seen = Observed::default();
    let (second, _) = next(after(
        std::slice::from_ref(&first),
        Cause::CudaOomFragmented,
        &seen,
    ));
    assert_eq!(
        second,
        first.with(knobs::ALLOCATOR, "expandable_segments:True")
    );
    let (third, why) = next(after(
        &[first, second.clone()],
        Cause::CudaOomFragmented,
        &seen,
    ));
    assert_eq!(count(&third, knobs::MICRO_BATCH), 16);
    assert_eq!(count(&third, knobs::ACCUMULATION), 2);
    assert_eq!(third.get(knobs::ALLOCATOR), second.get(knobs::ALLOCATOR));
    assert!(why.ends_with("the effective batch size stays 32."), "{why}");
}

#[test]
fn an_evaluation_that_does_not_fit_changes_evaluation_only() {
    let first = wanted(&loader_job(), &room(12_000, 16_000));
    let seen = Observed {
        evaluating: Some(true),
        ..Observed::default()
    };
    let (second, _) = next(after(
        std::slice::from_ref(&first),
        Cause::CudaOomExhausted,
        &seen,
    ));
    assert_eq!(second, first.with(knobs::EVAL_BATCH, 32_u64));
    let smallest = first.with(knobs::EVAL_BATCH, 16_u64);
    let end = after(&[first, second, smallest], Cause::CudaOomExhausted, &seen);
    assert!(matches!(end, Revision::GiveUp { .. }));
}

#[test]
fn shared_memory_costs_prefetch_then_workers() {
    let first = wanted(&loader_job(), &room(12_000, 16_000));
    let seen = Observed::default();
    let mut tried = vec![first];
    let mut seen_values = Vec::new();
    while let Revision::Next { settings, .. } = after(&tried, Cause::ShmExhausted, &seen) {
        let workers = count(&settings, knobs::WORKERS);
        seen_values.push((workers, count(&settings, knobs::PREFETCH)));
        tried.push(settings);
    }
    assert_eq!(seen_values, [(8, 1), (4, 1), (2, 1), (1, 1), (0, 2)]);
}

#[test]
fn what_is_not_known_or_not_memory_changes_nothing() {
    let first = wanted(&loader_job(), &room(12_000, 16_000));
    let seen = Observed::default();
    for cause in [
        Cause::NotMemory,
        Cause::Ambiguous,
        Cause::CudaOomOtherProcess,
    ] {
        let end = after(std::slice::from_ref(&first), cause, &seen);
        assert!(matches!(end, Revision::GiveUp { .. }), "{cause:?}");
    }
    let mut unsure = verdict(Cause::HostOomKill);
    unsure.confidence = Confidence::CannotTell;
    let room = room(12_000, 16_000);
    let end = revise(&loader_job(), &room, &[], &[], &[first], &unsure, &seen);
    assert!(matches!(end, Revision::GiveUp { .. }));
}

#[test]
fn a_full_card_takes_the_fastest_that_should_fit() {
    let (model, job, room) = (Model::default(), usual_job(), room(64_000, 16_000));
    let (plan, shapes) = planned(&model, &job, &room, &[]);
    let known = ReviseInput {
        job: &job,
        room: &room,
        shapes: &shapes,
        learnt: &[],
    };
    let seen = Observed::default();
    let tried = [plan.settings.clone()];
    let (settings, _) = next(revise_with(
        &model,
        &known,
        &tried,
        &verdict(Cause::CudaOomExhausted),
        &seen,
    ));
    assert!(
        count(&settings, knobs::MICRO_BATCH) < count(&plan.settings, knobs::MICRO_BATCH)
            || settings.flag(knobs::ACTIVATION_CHECKPOINTING) == Some(true)
    );
    assert_eq!(settings.get("resolution"), Some(&Value::Whole(32)));
}

/// Counts how often the host's bytes are computed, the one thing here that may be slow.
struct Counting<'a>(&'a Model, Cell<usize>);

impl Needs for Counting<'_> {
    fn host(&self, shape: &Shape, pipeline: &Pipeline) -> HostNeed {
        self.1.set(self.1.get() + 1);
        self.0.host(shape, pipeline)
    }
}

#[test]
fn thousands_of_combinations_ask_for_the_hosts_bytes_once_each() {
    let mut job = usual_job();
    job.effective_batch = Some(720);
    job.knobs.extend([
        auto(knobs::PREFETCH),
        auto(knobs::PIN_MEMORY),
        auto(knobs::PERSISTENT_WORKERS),
        auto(knobs::START_METHOD),
        auto(knobs::ALLOCATOR),
    ]);
    let (model, room) = (Model::default(), room(9_000, 16_000));
    let (_, shapes) = planned(&model, &job, &room, &[]);
    let counting = Counting(&model, Cell::new(0));
    let step = next_step_with(&counting, &job, &room, &shapes, &[]);
    assert!(matches!(step, Step::Done(_)));
    // 30 micro-batches, with and without checkpointing, 146 pipelines.
    assert!(counting.1.get() < 2 * 30 * 150, "{}", counting.1.get());
}
