//! What holds for every job, room and rehearsal.

use proptest::prelude::*;

use crate::explain::{Cause, Confidence, Detail, Verdict};
use crate::job::{Job, Settings, Value, knobs};
use crate::plan::candidate::{Candidate, candidate, order};
use crate::plan::candidates::Space;
use crate::plan::revise::{ReviseInput, revise_with};
use crate::plan::search::{WORTH, best_at, max_rehearsals, next_step_with};
use crate::plan::testing::{Model, all_shapes, any_job, any_model, any_room, drive};
use crate::plan::view::View;
use crate::plan::{
    LearntRun, Observed, Plan, PlanLimits, Revision, Shape, Step, next_step, revise, wanted,
};
use crate::units::Bytes;

pub(crate) fn verdict(cause: Cause) -> Verdict {
    Verdict {
        cause,
        confidence: Confidence::Proved,
        detail: Detail::Unspecified,
        summary: String::new(),
        evidence: Vec::new(),
        remedies: Vec::new(),
        would_settle: Vec::new(),
    }
}

fn any_cause() -> impl Strategy<Value = Cause> {
    prop::sample::select(Cause::ALL.to_vec())
}

fn any_observed() -> impl Strategy<Value = Observed> {
    let bytes = || prop::option::of((0..20_000_000_000_u64).prop_map(Bytes));
    (
        (bytes(), bytes(), bytes(), bytes(), bytes(), bytes()),
        prop::option::of(any::<bool>()),
        0..1000_u64,
        prop_oneof![0.0..1000.0, Just(f64::NAN)],
    )
        .prop_map(|(bytes, evaluating, steps, seconds)| Observed {
            host_used: bytes.0,
            host_limit: bytes.1,
            main_private: bytes.2,
            worker_private_max: bytes.3,
            shm_used: bytes.4,
            gpu_reserved: bytes.5,
            evaluating,
            steps,
            timed_steps: steps,
            timed_seconds: seconds,
            ..Observed::default()
        })
}

/// The best over all combinations, without a search.
fn brute_force(model: &Model, job: &Job, room: &PlanLimits, shapes: &[Shape]) -> Option<Candidate> {
    let view = View::new(model, job, room, shapes);
    view.known()
        .filter_map(|(spot, _)| best_at(&view, spot))
        .min_by(order)
}

fn effective_batch_is_kept(job: &Job, world: u64, settings: &Settings) -> bool {
    let Some(micro) = settings.count(knobs::MICRO_BATCH) else {
        return true;
    };
    let accumulation = settings.count(knobs::ACCUMULATION).unwrap_or(0);
    Some(micro * accumulation * world) == job.effective_batch
}

fn is_accepted_by_dataloader(settings: &Settings) -> bool {
    settings.count(knobs::WORKERS) != Some(0)
        || settings.flag(knobs::PERSISTENT_WORKERS) != Some(true)
}

fn is_well_formed(job: &Job, model: &Model, settings: &Settings) -> bool {
    let named = |name: &String| {
        job.knob(name).is_some()
            || (name == knobs::ACCUMULATION && job.knob(knobs::MICRO_BATCH).is_some())
    };
    effective_batch_is_kept(job, model.world, settings)
        && is_accepted_by_dataloader(settings)
        && settings.0.keys().all(named)
        && job
            .knobs
            .iter()
            .all(|knob| settings.get(&knob.name).is_some())
}

fn plan_of(step: Step) -> Option<Box<Plan>> {
    match step {
        Step::Done(plan) => Some(plan),
        _ => None,
    }
}

/// The room with more of everything.
fn larger(room: &PlanLimits, by: (u64, u64, u64)) -> PlanLimits {
    let more = |limit: Option<Bytes>, by: u64| limit.map(|limit| Bytes(limit.get() + by));
    PlanLimits {
        host: more(room.host, by.0),
        shm: more(room.shm, by.1),
        gpus: room
            .gpus
            .iter()
            .map(|(name, limit)| (name.clone(), Bytes(limit.get() + by.2)))
            .collect(),
        cpus: room.cpus,
        ranks: room.ranks,
    }
}

/// What is not worth a rehearsal; on processors, how the time of a step shrinks with the micro-batch is a guess as long as
/// only one was rehearsed, and so is what checkpointing saves.
fn tolerance(model: &Model) -> f64 {
    WORTH * if model.on_cpu { 1.1 } else { 1.0 } + 1e-6
}

const MORE: std::ops::Range<u64> = 0..20_000_000_000;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_plan_stays_below_every_brim_and_keeps_the_batch(job in any_job(), room in any_room(), model in any_model()) {
        let (step, _) = drive(&model, &job, &room, &[]);
        match step {
            Step::Done(plan) => {
                for brim in &plan.brims {
                    prop_assert!(brim.safe <= brim.limit, "{brim:?}");
                }
                prop_assert!(is_well_formed(&job, &model, &plan.settings), "{:?}", plan.settings);
                prop_assert!(plan.throughput.samples_per_second.is_finite());
                let knobs = usize::from(room.host.is_some()) + usize::from(room.shm.is_some());
                let cards = if model.on_cpu { 0 } else { room.gpus.len() };
                prop_assert_eq!(plan.brims.len(), knobs + cards);
            }
            Step::Impossible(impossible) => {
                prop_assert!(!impossible.help.is_empty());
                let over = impossible.brims.iter().any(|brim| brim.safe > brim.limit);
                prop_assert!(over || impossible.brims.is_empty(), "{impossible:?}");
            }
            Step::Rehearse(_) => prop_assert!(false),
        }
    }

    #[test]
    fn rungs_go_down_and_never_repeat(job in any_job(), room in any_room(), model in any_model()) {
        let (step, _) = drive(&model, &job, &room, &[]);
        let Some(plan) = plan_of(step) else { return Ok(()) };
        prop_assert!(plan.rungs.len() <= 12);
        let mut seen = vec![plan.settings.clone()];
        let mut above = plan.brims.clone();
        for rung in &plan.rungs {
            prop_assert!(!seen.contains(&rung.settings));
            prop_assert!(is_well_formed(&job, &model, &rung.settings), "{:?}", rung.settings);
            prop_assert!(!rung.changed.is_empty());
            // Only where all limits are known are all bytes shown.
            let shown = !above.is_empty() && above.len() == rung.brims.len() && room.host.is_some() && room.shm.is_some();
            let lower = above.iter().zip(&rung.brims).any(|(above, below)| below.safe < above.safe);
            prop_assert!(!shown || lower, "{above:?} {rung:?}");
            seen.push(rung.settings.clone());
            above.clone_from(&rung.brims);
        }
    }

    #[test]
    fn the_search_finds_what_brute_force_finds(job in any_job(), room in any_room(), model in any_model()) {
        let all = all_shapes(&model, &job, &room);
        let best = brute_force(&model, &job, &room, &all);
        let (step, shapes) = drive(&model, &job, &room, &[]);
        let ranks = Shape { world_size: model.world, ..Shape::default() };
        let space = Space::new(&job, &room, &[ranks]);
        let per_page = max_rehearsals(space.micros.len(), space.checkpoints.len()) + 1;
        prop_assert!(shapes.len() <= 1 + per_page * space.n_levels() * space.compiles.len());
        let view = View::new(&model, &job, &room, &all);
        match (plan_of(step), best) {
            (Some(plan), Some(best)) => {
                let place = view.space.place_of(&plan.settings).expect("planned settings are combinations");
                let found = candidate(&view, place).expect("all is rehearsed");
                let science = |found: &Candidate| (found.place.spot.level, found.place.spot.compile);
                prop_assert_eq!(science(&found), science(&best));
                let ratio = best.throughput.samples_per_second / found.throughput.samples_per_second;
                // What evaluation takes of the host is not known apart.
                let apart = !model.on_cpu || job.knob(knobs::EVAL_BATCH).is_none();
                prop_assert!(!apart || ratio <= tolerance(&model), "{} times faster: {:?}", ratio, view.space.settings(best.place));
            }
            (None, None) => {}
            (plan, best) => prop_assert!(false, "{plan:?} against {best:?}"),
        }
    }

    #[test]
    fn with_all_rehearsed_nothing_more_is(job in any_job(), room in any_room(), model in any_model()) {
        let all = all_shapes(&model, &job, &room);
        let best = brute_force(&model, &job, &room, &all);
        let step = next_step_with(&model, &job, &room, &all, &[]);
        let view = View::new(&model, &job, &room, &all);
        match (step, best) {
            (Step::Done(plan), Some(best)) => prop_assert_eq!(plan.settings, view.space.settings(best.place)),
            (Step::Impossible(_), None) => {}
            (step, best) => prop_assert!(all.is_empty(), "{step:?} against {best:?}"),
        }
    }

    #[test]
    fn more_memory_never_gives_a_worse_plan(
        job in any_job(), room in any_room(), model in any_model(), by in (MORE, MORE, MORE),
    ) {
        let large = larger(&room, by);
        let (small_shapes, large_shapes) = (all_shapes(&model, &job, &room), all_shapes(&model, &job, &large));
        // With all rehearsed, exactly.
        let less = brute_force(&model, &job, &room, &small_shapes);
        let more = brute_force(&model, &job, &large, &large_shapes);
        if let Some(less) = &less {
            let more = more.expect("what fits a small room fits a large one");
            prop_assert!(order(&more, less).is_le());
        }
        // By the search, up to what is not worth a rehearsal.
        let (less, more) = (drive(&model, &job, &room, &[]).0, drive(&model, &job, &large, &[]).0);
        if let Some(less) = plan_of(less) {
            let more = plan_of(more).expect("what fits a small room fits a large one");
            let view = View::new(&model, &job, &large, &large_shapes);
            let place = |plan: &Plan| view.space.place_of(&plan.settings).expect("a combination");
            let (less, more) = (place(&less), place(&more));
            prop_assert!((more.spot.level, more.spot.compile) <= (less.spot.level, less.spot.compile));
            if (more.spot.level, more.spot.compile) == (less.spot.level, less.spot.compile) {
                let rate = |place| view.throughput(place).samples_per_second;
                let apart = !model.on_cpu || job.knob(knobs::EVAL_BATCH).is_none();
                prop_assert!(!apart || rate(more) * tolerance(&model) >= rate(less));
            }
        }
    }

    #[test]
    fn what_died_is_not_planned_again(
        job in any_job(), room in any_room(), model in any_model(), cause in any_cause(), mut observed in any_observed(),
    ) {
        let Some(plan) = plan_of(drive(&model, &job, &room, &[]).0) else { return Ok(()) };
        observed.host_limit = room.host;
        let died = LearntRun { settings: plan.settings.clone(), cause: Some(cause), observed, ..LearntRun::default() };
        let workers = plan.settings.count(knobs::WORKERS).is_some();
        let told = cause.is_memory() && cause != Cause::CudaOomOtherProcess
            && (cause != Cause::FdOrShmLimit || workers)
            // A job on processors does not die on a card.
            && !(model.on_cpu && matches!(cause, Cause::CudaOomExhausted | Cause::CudaOomFragmented));
        if let Some(again) = plan_of(drive(&model, &job, &room, &[died]).0) && told {
            prop_assert_ne!(again.settings, plan.settings);
        }
    }

    #[test]
    fn revising_ends_and_never_repeats(
        job in any_job(), room in any_room(), model in any_model(),
        deaths in prop::collection::vec((any_cause(), any_observed()), 1..6), with_shapes: bool,
    ) {
        let shapes = if with_shapes { drive(&model, &job, &room, &[]).1 } else { Vec::new() };
        let known = ReviseInput { job: &job, room: &room, shapes: &shapes, learnt: &[] };
        let space = Space::new(&job, &room, &shapes);
        if space.is_empty() {
            return Ok(());
        }
        let world = space.world;
        let n_settings = space.n_levels() * space.micros.len() * space.compiles.len() * space.checkpoints.len()
            * space.evals.len() * space.pipes.len() * space.allocators.len();
        let mut tried = vec![wanted(&job, &room)];
        for turn in 0..=n_settings {
            let (cause, observed) = &deaths[turn % deaths.len()];
            match revise_with(&model, &known, &tried, &verdict(*cause), observed) {
                Revision::GiveUp { why } => {
                    prop_assert!(why.ends_with('.') && why.len() > 20);
                    return Ok(());
                }
                Revision::Next { settings, changed, why } => {
                    prop_assert!(!tried.contains(&settings), "{settings:?}");
                    prop_assert!(why.ends_with('.'), "{why}");
                    prop_assert!(effective_batch_is_kept(&job, world, &settings));
                    prop_assert!(is_accepted_by_dataloader(&settings));
                    prop_assert!(!changed.is_empty());
                    let last = tried.last().expect("one was tried");
                    // Ranks were guessed before the first rehearsal.
                    let regular = space.place_of(last).is_some_and(|place| space.settings(place) == *last);
                    for change in &changed {
                        prop_assert!(!regular || concerns(*cause, observed, &change.knob), "{cause:?} {change:?}");
                    }
                    tried.push(settings);
                }
            }
        }
        prop_assert!(false, "no end of it");
    }
}

/// Whether a verdict may change a knob.
fn concerns(cause: Cause, observed: &Observed, knob: &str) -> bool {
    let evaluating = observed.evaluating == Some(true);
    let science = !knobs::SAME_SCIENCE.contains(&knob);
    let data = [
        knobs::WORKERS,
        knobs::PREFETCH,
        knobs::PIN_MEMORY,
        knobs::PERSISTENT_WORKERS,
        knobs::START_METHOD,
    ];
    let state = [
        knobs::MICRO_BATCH,
        knobs::ACCUMULATION,
        knobs::ACTIVATION_CHECKPOINTING,
    ];
    match cause {
        Cause::CudaOomExhausted if evaluating => knob == knobs::EVAL_BATCH,
        Cause::CudaOomFragmented if evaluating => {
            knob == knobs::EVAL_BATCH || knob == knobs::ALLOCATOR
        }
        Cause::CudaOomFragmented => knob == knobs::ALLOCATOR || state.contains(&knob) || science,
        Cause::CudaOomExhausted => state.contains(&knob) || science,
        Cause::CudaOomOtherProcess => state.contains(&knob),
        Cause::ShmExhausted | Cause::FdOrShmLimit => data.contains(&knob),
        Cause::HostOomKill | Cause::DataloaderWorkerKilledOom | Cause::HostAllocFailed => {
            data.contains(&knob)
                || state.contains(&knob)
                || science
                || (evaluating && knob == knobs::EVAL_BATCH)
        }
        Cause::NotMemory | Cause::Ambiguous => false,
    }
}

/// Values of any kind where numbers are expected: nothing panics.
fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<bool>().prop_map(Value::Flag),
        any::<i64>().prop_map(Value::Whole),
        Just(Value::Number(f64::NAN)),
        any::<f64>().prop_map(Value::Number),
        "[a-z]{0,4}".prop_map(Value::Text),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn nonsense_is_planned_without_panic(
        names in prop::collection::vec(prop::sample::select(
            knobs::SAME_SCIENCE.iter().copied().chain(["resolution", "model"]).collect::<Vec<_>>()), 0..4),
        values in prop::collection::vec(prop::collection::vec(any_value(), 0..4), 4),
        effective in prop::option::of(any::<u64>()),
        cpus in any::<f64>(), cards in prop::collection::vec(any::<u64>(), 0..3),
        host in prop::option::of(any::<u64>()), model in any_model(), cause in any_cause(), observed in any_observed(),
    ) {
        let job = Job {
            effective_batch: effective,
            knobs: names.iter().zip(&values).map(|(name, values)| crate::plan::testing::knob(name, values)).collect(),
            sacrifice: names.iter().map(|name| (*name).to_owned()).collect(),
            ..Job::default()
        };
        let gpus = cards.into_iter().map(|bytes| (String::new(), Bytes(bytes))).collect();
        let room = PlanLimits { host: host.map(Bytes), shm: None, gpus, cpus, ranks: None };
        let mut shapes: Vec<Shape> = Vec::new();
        for _ in 0..300 {
            let Step::Rehearse(settings) = next_step(&job, &room, &shapes, &[]) else { break };
            shapes.push(Shape { settings, ..model.rehearse(&Settings::default(), &room) });
        }
        prop_assert!(shapes.len() < 300);
        revise(&job, &room, &shapes, &[], &[wanted(&job, &room)], &verdict(cause), &observed);
    }
}
