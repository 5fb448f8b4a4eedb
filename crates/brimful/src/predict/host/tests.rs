//! The laws of the host's need, and cases that were measured.

use proptest::prelude::*;

use super::*;

const MB: u64 = 1_000_000;

fn mb(count: u64) -> Bytes {
    Bytes(count * MB)
}

/// Two arrays of 430 MB together, rehearsed with one forked worker; on the processors.
fn arrays() -> HostFacts {
    HostFacts {
        workers: 1,
        prefetch: 2,
        micro_batch: 16,
        imports: mb(294),
        build_peak: mb(806),
        main_at_start: mb(806),
        training_kept: mb(22),
        training_peak: mb(7),
        batch: Bytes(786_432),
        batch_shm: Bytes(786_432),
        batch_pinned: Bytes(1_310_720),
        making: mb(80),
        passing: mb(8),
        dataset: DatasetFacts {
            samples: 200,
            buffers: mb(430),
            arrays: mb(430),
            protocol: 4,
            ..DatasetFacts::default()
        },
        worker: Some(WorkerFacts {
            private: mb(16),
            all: mb(807),
            start_peak: mb(807),
            copied: mb(7),
            samples: 64,
        }),
        ..HostFacts::default()
    }
}

fn pipeline(workers: u64, start_method: StartMethod) -> Pipeline {
    Pipeline {
        workers,
        prefetch: 2,
        micro_batch: 16,
        start_method,
        pin_memory: false,
        persistent_workers: false,
    }
}

/// Within so many parts of a hundred of the measured peak, and the safe value above it.
fn check(facts: &HostFacts, pipeline: &Pipeline, measured: Bytes, percent: f64) {
    let need = host_need(facts, pipeline);
    let error = need.likely.get() as f64 / measured.get() as f64 - 1.0;
    assert!(
        error.abs() * 100.0 <= percent,
        "{pipeline:?}: {} instead of {measured}, {:.1} %: {need:?}",
        need.likely,
        error * 100.0
    );
    assert!(
        need.safe >= measured,
        "safe {} below {measured}: {need:?}",
        need.safe
    );
}

#[test]
fn forked_workers_share_arrays_and_fresh_ones_are_sent_them() {
    check(&arrays(), &pipeline(0, StartMethod::Fork), mb(904), 5.0);
    check(&arrays(), &pipeline(1, StartMethod::Fork), mb(951), 5.0);
    check(&arrays(), &pipeline(4, StartMethod::Fork), mb(1174), 12.0);
    check(&arrays(), &pipeline(1, StartMethod::Spawn), mb(1980), 5.0);
    check(&arrays(), &pipeline(4, StartMethod::Spawn), mb(4152), 5.0);
    check(
        &arrays(),
        &pipeline(4, StartMethod::Forkserver),
        mb(4158),
        5.0,
    );
}

#[test]
fn objects_are_copied_by_every_forked_worker() {
    let mut facts = arrays();
    facts.dataset = DatasetFacts {
        samples: 20_000,
        objects: mb(400),
        fresh_objects: mb(420),
        pickled: mb(30),
        protocol: 4,
        ..DatasetFacts::default()
    };
    facts.worker = None;
    let need = |workers| host_need(&facts, &pipeline(workers, StartMethod::Fork));
    let more = need(4).likely.saturating_sub(need(1).likely);
    assert!(more >= mb(3 * 400), "{more}");
    let reason = need(4)
        .terms
        .into_iter()
        .find(|term| term.id == HostTermId::WorkerCopies)
        .and_then(|term| term.reason);
    assert!(reason.is_some_and(|reason| reason.contains("reference counts")));
}

#[test]
fn tensors_move_to_shared_memory_once() {
    let mut facts = arrays();
    facts.dataset = DatasetFacts {
        samples: 2000,
        buffers: mb(262),
        tensors: mb(262),
        heap_tensors: mb(262),
        protocol: 4,
        ..DatasetFacts::default()
    };
    let need = |workers| host_need(&facts, &pipeline(workers, StartMethod::Spawn));
    assert!(need(4).shm_likely >= mb(262));
    assert!(need(4).shm_likely < mb(2 * 262));
    assert_eq!(need(0).shm_safe, Bytes::ZERO);
}

#[test]
fn a_saving_may_be_the_fullest_moment() {
    let mut facts = arrays();
    let before = host_need(&facts, &pipeline(1, StartMethod::Fork));
    facts.checkpoint = Some(mb(5000));
    let need = host_need(&facts, &pipeline(1, StartMethod::Fork));
    assert!(need.likely >= before.likely.saturating_add(mb(4900)));
    assert!(
        need.terms
            .iter()
            .any(|term| term.id == HostTermId::Checkpoint)
    );
}

#[test]
fn workers_of_the_evaluation_live_beside_persistent_ones() {
    let mut facts = arrays();
    facts.evaluation = Some(EvaluationFacts {
        workers: 4,
        prefetch: 2,
        batch_shm: Bytes(786_432),
        ..EvaluationFacts::default()
    });
    let mut asked = pipeline(4, StartMethod::Fork);
    let gone = host_need(&facts, &asked);
    asked.persistent_workers = true;
    let stay = host_need(&facts, &asked);
    assert!(stay.likely > gone.likely);
    assert!(stay.shm_likely > gone.shm_likely);
}

fn any_bytes() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        4 => (0..20_000_000_000_u64).prop_map(Bytes),
        1 => Just(Bytes(u64::MAX)),
        1 => Just(Bytes::ZERO),
    ]
}

fn any_method() -> impl Strategy<Value = StartMethod> {
    prop_oneof![
        Just(StartMethod::Fork),
        Just(StartMethod::Forkserver),
        Just(StartMethod::Spawn)
    ]
}

prop_compose! {
    fn any_dataset()(
        samples in 0..1_000_000_u64,
        bytes in proptest::array::uniform7(any_bytes()),
        protocol in 4..6_u64,
    ) -> DatasetFacts {
        let [buffers, objects, fresh_objects, arrays, tensors, heap_tensors, pickled] = bytes;
        DatasetFacts {
            samples, buffers, objects, fresh_objects, arrays, tensors, heap_tensors, pickled, protocol,
        }
    }
}

prop_compose! {
    fn any_facts()(
        dataset in any_dataset(),
        bytes in proptest::array::uniform13(any_bytes()),
        counts in proptest::array::uniform4(0..200_u64),
        flags in proptest::array::uniform4(any::<bool>()),
        start_method in any_method(),
        worker in proptest::option::of((any_bytes(), any_bytes(), any_bytes(), 0..1000_u64)),
        evaluation in proptest::option::of((any_bytes(), any::<bool>())),
    ) -> HostFacts {
        let [imports, libraries, build_peak, main_at_start, training_kept, training_peak, batch, batch_shm,
            batch_pinned, making, passing, checkpoint, largest_parameter] = bytes;
        HostFacts {
            workers: counts[0], prefetch: counts[1], micro_batch: counts[2], ranks: counts[3] % 9,
            start_method, pin_memory: flags[0], persistent_workers: flags[1], on_gpu: flags[2],
            imports, libraries, build_peak, main_at_start, training_kept, training_peak, batch, batch_shm,
            batch_pinned, making, passing, dataset,
            worker: worker.map(|(private, all, copied, samples)| WorkerFacts {
                private, all, start_peak: all, copied, samples,
            }),
            checkpoint: flags[3].then_some(checkpoint),
            largest_parameter,
            evaluation: evaluation.map(|(batch_shm, beside)| EvaluationFacts {
                workers: 2, prefetch: 2, batch_shm, persistent_workers: false, beside,
            }),
        }
    }
}

prop_compose! {
    fn any_pipeline()(
        counts in (0..70_u64, 0..20_u64, 0..5000_u64),
        start_method in any_method(),
        pin_memory in any::<bool>(),
        persistent_workers in any::<bool>(),
    ) -> Pipeline {
        let (workers, prefetch, micro_batch) = counts;
        Pipeline { workers, prefetch, micro_batch, start_method, pin_memory, persistent_workers }
    }
}

proptest! {
    #[test]
    fn more_of_anything_never_needs_less(facts in any_facts(), pipeline in any_pipeline()) {
        let need = host_need(&facts, &pipeline);
        prop_assert!(need.likely <= need.safe);
        prop_assert!(need.shm_likely <= need.shm_safe);
        prop_assert!(need.shm_safe <= need.safe);
        let more = [
            Pipeline { workers: pipeline.workers + 1, ..pipeline },
            Pipeline { prefetch: pipeline.prefetch + 1, ..pipeline },
            Pipeline { micro_batch: pipeline.micro_batch + 1, ..pipeline },
        ];
        for larger in more {
            let other = host_need(&facts, &larger);
            prop_assert!(other.likely >= need.likely, "{larger:?}");
            prop_assert!(other.safe >= need.safe, "{larger:?}");
            prop_assert!(other.shm_safe >= need.shm_safe, "{larger:?}");
        }
    }

    #[test]
    fn facts_survive_their_json(facts in any_facts()) {
        let text = serde_json::to_string(&facts).unwrap();
        prop_assert_eq!(serde_json::from_str::<HostFacts>(&text).unwrap(), facts);
    }
}
