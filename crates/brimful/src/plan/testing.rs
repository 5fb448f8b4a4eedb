//! Jobs made of straight lines, which answer for rehearsals.

use proptest::prelude::*;

use crate::job::{Choices, Job, Knob, Settings, Value, knobs};
use crate::plan::candidates::{CandidateIndex, RehearsalPoint, Space};
use crate::plan::search::next_step_with;
use crate::plan::view::Needs;
use crate::plan::{GpuNeed, LearntRun, Pace, PlanLimits, Shape, Step};
use crate::predict::host::{HostFacts, HostNeed, HostTerm, HostTermId, Pipeline, StartMethod};
use crate::units::Bytes;

pub(crate) const MB: u64 = 1_000_000;

/// A training whose bytes and seconds are straight lines.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) on_cpu: bool,
    pub(crate) world: u64,
    /// On the card, or on the host for a job on processors.
    pub(crate) base: u64,
    pub(crate) per_sample: u64,
    /// Of `per_sample`, left with checkpointing, in percent.
    pub(crate) kept: u64,
    pub(crate) evaluation_per_sample: u64,
    pub(crate) program: u64,
    pub(crate) dataset: u64,
    pub(crate) per_worker: u64,
    pub(crate) sample_bytes: u64,
    pub(crate) step_seconds: f64,
    pub(crate) sample_seconds: f64,
    pub(crate) handover_seconds: f64,
    /// Of the GPU for one sample, by the model of its speed; 0 where that knows nothing.
    pub(crate) gpu_sample_seconds: f64,
}

impl Default for Model {
    fn default() -> Model {
        Model {
            on_cpu: false,
            world: 1,
            base: 2_000 * MB,
            per_sample: 100 * MB,
            kept: 30,
            evaluation_per_sample: 20 * MB,
            program: 1_000 * MB,
            dataset: 4_000 * MB,
            per_worker: 500 * MB,
            sample_bytes: MB,
            step_seconds: 0.02,
            sample_seconds: 0.002,
            handover_seconds: 0.001,
            gpu_sample_seconds: 0.0,
        }
    }
}

impl Model {
    /// What science asks for, in percent of the wanted.
    fn science(settings: &Settings) -> u64 {
        let resolution = settings.count("resolution").unwrap_or(32) * 100 / 32;
        let model = match settings.text("model") {
            Some("small") => 60,
            Some("tiny") => 30,
            _ => 100,
        };
        resolution * model / 100
    }

    fn training(&self, settings: &Settings) -> u64 {
        let kept = if settings.flag(knobs::ACTIVATION_CHECKPOINTING) == Some(true) {
            self.kept
        } else {
            100
        };
        let micro = settings.count(knobs::MICRO_BATCH).unwrap_or(8);
        self.base + micro * self.per_sample * kept / 100 * Model::science(settings) / 100
    }

    fn evaluation(&self, settings: &Settings) -> u64 {
        let size = settings.count(knobs::EVAL_BATCH).unwrap_or(8);
        self.base + size * self.evaluation_per_sample * Model::science(settings) / 100
    }

    /// What a rehearsal would find.
    pub(crate) fn rehearse(&self, settings: &Settings, room: &PlanLimits) -> Shape {
        let bytes = self.training(settings).max(self.evaluation(settings));
        let limit = room.gpus.iter().map(|(_, limit)| limit.get()).min();
        let need = |allocator: &str, saved: u64| {
            let likely = bytes - bytes / 100 * saved;
            let safe = likely + likely / 10;
            GpuNeed {
                allocator: allocator.to_owned(),
                likely: Bytes(likely),
                safe: Bytes(safe),
                fits: limit.is_none_or(|limit| safe <= limit),
                evaluation: Some(Bytes(
                    self.evaluation(settings) - self.evaluation(settings) / 100 * saved,
                )),
            }
        };
        let micro = settings.count(knobs::MICRO_BATCH).unwrap_or(8);
        let recomputed = if settings.flag(knobs::ACTIVATION_CHECKPOINTING) == Some(true) {
            4.0 / 3.0
        } else {
            1.0
        };
        let share = if self.on_cpu {
            0.1 + 0.1 * micro as f64
        } else {
            1.0
        };
        Shape {
            settings: settings.clone(),
            gpu: if self.on_cpu {
                Vec::new()
            } else {
                vec![need("", 0), need("expandable_segments:True", 5)]
            },
            host: HostFacts {
                workers: settings.count(knobs::WORKERS).unwrap_or(2),
                prefetch: settings.count(knobs::PREFETCH).unwrap_or(2),
                micro_batch: micro,
                ..HostFacts::default()
            },
            pace: Pace {
                step_seconds: self.step_seconds * share * recomputed,
                sample_seconds: self.sample_seconds,
                handover_seconds: self.handover_seconds,
                gpu_seconds: if self.on_cpu {
                    0.0
                } else {
                    // A step has a part that does not grow with the batch.
                    self.gpu_sample_seconds * (0.5 + micro as f64) * recomputed
                },
                on_cpu: self.on_cpu,
            },
            world_size: self.world,
            failed: None,
            rehearsed_at_unix_ms: 0,
            torch: String::new(),
        }
    }
}

impl Needs for Model {
    fn host(&self, shape: &Shape, pipeline: &Pipeline) -> HostNeed {
        let mut model = if self.on_cpu {
            let mut settings = shape.settings.clone();
            settings.set(knobs::MICRO_BATCH, pipeline.micro_batch);
            self.training(&settings)
        } else {
            0
        };
        if self.on_cpu {
            model = model.max(self.evaluation(&shape.settings));
        }
        let copied = match pipeline.start_method {
            StartMethod::Fork => 0,
            StartMethod::Forkserver | StartMethod::Spawn => self.dataset,
        };
        let batch = pipeline.micro_batch * self.sample_bytes;
        let shm = pipeline.workers * pipeline.prefetch * batch;
        let pinned = if pipeline.pin_memory { 2 * batch } else { 0 };
        let kept = if pipeline.persistent_workers {
            pipeline.workers * self.per_worker / 2
        } else {
            0
        };
        let likely = self.program
            + self.dataset
            + model
            + pipeline.workers * (self.per_worker + copied)
            + kept
            + shm
            + pinned
            + batch;
        HostNeed {
            likely: Bytes(likely),
            safe: Bytes(likely + likely / 10),
            shm_likely: Bytes(shm),
            shm_safe: Bytes(shm + shm / 10),
            terms: vec![HostTerm {
                id: HostTermId::WorkerCopies,
                likely: Bytes(pipeline.workers * copied),
                safe: Bytes(pipeline.workers * copied),
                reason: None,
            }],
        }
    }
}

/// Rehearses until there is a plan, or none.
pub(crate) fn drive(
    model: &Model,
    job: &Job,
    room: &PlanLimits,
    learnt: &[LearntRun],
) -> (Step, Vec<Shape>) {
    let mut shapes: Vec<Shape> = Vec::new();
    loop {
        assert!(shapes.len() < 1000, "no end of rehearsals");
        match next_step_with(model, job, room, &shapes, learnt) {
            Step::Rehearse(settings) => {
                assert!(
                    shapes.iter().all(|shape| shape.settings != settings),
                    "rehearsed twice: {settings:?}"
                );
                shapes.push(model.rehearse(&settings, room));
            }
            done => return (done, shapes),
        }
    }
}

/// Every rehearsal there is.
pub(crate) fn all_shapes(model: &Model, job: &Job, room: &PlanLimits) -> Vec<Shape> {
    let ranks = Shape {
        world_size: model.world,
        ..Shape::default()
    };
    let space = Space::new(job, room, &[ranks]);
    let mut shapes = Vec::new();
    for level in 0..space.n_levels() {
        for compile in 0..space.compiles.len() {
            for checkpoint in 0..space.checkpoints.len() {
                for eval in 0..space.evals.len() {
                    for micro in 0..space.micros.len() {
                        let spot = RehearsalPoint {
                            level,
                            compile,
                            checkpoint,
                            eval,
                            micro,
                        };
                        let settings = space.settings(CandidateIndex {
                            spot,
                            pipe: space.rehearsed_pipe(),
                            allocator: 0,
                        });
                        shapes.push(model.rehearse(&settings, room));
                    }
                }
            }
        }
    }
    shapes
}

pub(crate) fn knob(name: &str, values: &[Value]) -> Knob {
    Knob {
        name: name.to_owned(),
        choices: Choices::Listed(values.to_vec()),
    }
}

pub(crate) fn auto(name: &str) -> Knob {
    Knob {
        name: name.to_owned(),
        choices: Choices::Auto,
    }
}

pub(crate) fn whole(values: &[i64]) -> Vec<Value> {
    values.iter().map(|value| Value::Whole(*value)).collect()
}

/// The job of the design: everything free, resolution and model to give up.
pub(crate) fn usual_job() -> Job {
    Job {
        effective_batch: Some(128),
        knobs: vec![
            auto(knobs::MICRO_BATCH),
            auto(knobs::WORKERS),
            knob(
                knobs::ACTIVATION_CHECKPOINTING,
                &[false.into(), true.into()],
            ),
            knob("resolution", &whole(&[32, 24, 16])),
            knob("model", &["full".into(), "small".into(), "tiny".into()]),
        ],
        sacrifice: vec!["resolution".to_owned(), "model".to_owned()],
        ..Job::default()
    }
}

pub(crate) fn room(host_mb: u64, card_mb: u64) -> PlanLimits {
    PlanLimits {
        host: Some(Bytes(host_mb * MB)),
        shm: Some(Bytes(2_000 * MB)),
        gpus: vec![("T4".to_owned(), Bytes(card_mb * MB))],
        cpus: 4.0,
        ranks: None,
    }
}

pub(crate) fn any_model() -> impl Strategy<Value = Model> {
    let bytes = (
        0..6_000_u64,
        1..300_u64,
        10..100_u64,
        1..100_u64,
        0..5_000_u64,
        0..1_500_u64,
        0..20_u64,
    );
    let seconds = (
        0.0005..0.2_f64,
        0.0..0.02_f64,
        0.0..0.005_f64,
        prop_oneof![Just(0.0), 0.0001..0.05_f64],
    );
    (any::<bool>(), 1..3_u64, bytes, seconds).prop_map(|(on_cpu, world, bytes, seconds)| {
        let (base, per_sample, kept, evaluation, dataset, per_worker, sample) = bytes;
        Model {
            on_cpu,
            world,
            base: base * MB,
            per_sample: per_sample * MB,
            kept,
            evaluation_per_sample: evaluation * MB,
            program: 500 * MB,
            dataset: dataset * MB,
            per_worker: per_worker * MB,
            sample_bytes: sample * MB,
            step_seconds: seconds.0,
            sample_seconds: seconds.1,
            handover_seconds: seconds.2,
            gpu_sample_seconds: seconds.3,
        }
    })
}

pub(crate) fn any_room() -> impl Strategy<Value = PlanLimits> {
    let host = prop::option::weighted(0.9, 500..40_000_u64);
    let shm = prop::option::weighted(0.8, 1..4_000_u64);
    (host, shm, 1_000..24_000_u64, 1..3_usize, 1.0..9.0_f64).prop_map(
        |(host, shm, card, cards, cpus)| PlanLimits {
            host: host.map(|mb| Bytes(mb * MB)),
            shm: shm.map(|mb| Bytes(mb * MB)),
            gpus: vec![("T4".to_owned(), Bytes(card * MB)); cards],
            cpus,
            ranks: None,
        },
    )
}

/// Each of the knobs, or not.
pub(crate) fn any_job() -> impl Strategy<Value = Job> {
    let flags = || vec![Value::Flag(false), Value::Flag(true)];
    let maybe = |knob: Knob| prop::option::of(Just(knob));
    let effective = prop::sample::select(vec![1, 2, 6, 8, 12, 32, 48, 64, 128]);
    let micro = prop_oneof![
        3 => Just(Some(auto(knobs::MICRO_BATCH))),
        1 => Just(Some(knob(knobs::MICRO_BATCH, &whole(&[4, 2, 16, 3, 1])))),
        1 => Just(None),
    ];
    let workers = prop_oneof![
        2 => Just(Some(auto(knobs::WORKERS))),
        1 => Just(Some(knob(knobs::WORKERS, &whole(&[4, 0])))),
        1 => Just(Some(knob(knobs::WORKERS, &whole(&[3, 2])))),
        1 => Just(None),
    ];
    let model: Vec<Value> = vec!["full".into(), "small".into()];
    let data = (
        maybe(auto(knobs::PREFETCH)),
        maybe(knob(knobs::PIN_MEMORY, &flags())),
        maybe(auto(knobs::PERSISTENT_WORKERS)),
        maybe(knob(knobs::START_METHOD, &["spawn".into(), "fork".into()])),
    );
    let state = (
        maybe(knob(knobs::ACTIVATION_CHECKPOINTING, &flags())),
        prop::option::weighted(0.3, Just(knob(knobs::COMPILE, &flags()))),
        maybe(auto(knobs::ALLOCATOR)),
        maybe(knob(knobs::EVAL_BATCH, &whole(&[64, 16, 4]))),
    );
    let science = (
        maybe(knob("resolution", &whole(&[32, 16]))),
        maybe(knob("model", &model)),
        prop::sample::subsequence(vec!["resolution".to_owned(), "model".to_owned()], 0..=2),
    );
    (effective, micro, workers, data, state, science).prop_map(
        |(effective, micro, workers, data, state, science)| Job {
            effective_batch: Some(effective),
            knobs: [
                micro, workers, data.0, data.1, data.2, data.3, state.0, state.1, state.2, state.3,
                science.0, science.1,
            ]
            .into_iter()
            .flatten()
            .collect(),
            sacrifice: science.2,
            ..Job::default()
        },
    )
}
