use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use brimful::units::Bytes;
use proptest::prelude::*;

use crate::array::{DType, Field, FieldSpec, TensorSpec};
use crate::error::{OpError, ReadError};
use crate::loader::{Batch, Loader, LoaderError, LoaderSettings, Next, OnError};
use crate::ops::{Op, Out, SampleKey, Scratch};
use crate::pipeline::Pipeline;
use crate::reading::{Access, Choice};
use crate::source::Source;
use crate::value::Value;

/// Samples that are their own index.
#[derive(Debug)]
struct Counting {
    len: u64,
    fields: Vec<Field>,
    /// Samples that cannot be read.
    broken: Vec<u64>,
    panics_at: Option<u64>,
    n_read: Arc<AtomicUsize>,
    choice: Choice,
}

impl Counting {
    fn new(len: u64) -> Counting {
        let form = TensorSpec::new(DType::U64, [2]).unwrap();
        Counting {
            len,
            fields: vec![
                Field {
                    name: "index".to_owned(),
                    spec: FieldSpec::Array(form.clone()),
                },
                Field {
                    name: "other".to_owned(),
                    spec: FieldSpec::Array(form),
                },
            ],
            broken: Vec::new(),
            panics_at: None,
            n_read: Arc::default(),
            choice: Choice {
                access: Access::Read,
                reason: "a test".to_owned(),
            },
        }
    }
}

impl Source for Counting {
    fn len(&self) -> u64 {
        self.len
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn max_sample_bytes(&self) -> u64 {
        32
    }

    fn read(&self, index: u64, values: &mut [Value]) -> Result<(), ReadError> {
        assert_ne!(Some(index), self.panics_at, "as asked");
        self.n_read.fetch_add(1, Ordering::SeqCst);
        if self.broken.contains(&index) {
            return Err(ReadError::Malformed {
                expected: "a sample".to_owned(),
                found: "nothing".to_owned(),
            });
        }
        for (value, sign) in values.iter_mut().zip([0, 7]) {
            let bytes = value.set_array(DType::U64, &[2], 16);
            bytes[..8].copy_from_slice(&index.to_le_bytes());
            bytes[8..].copy_from_slice(&(index ^ sign).to_le_bytes());
        }
        Ok(())
    }

    fn place(&self, index: u64) -> String {
        format!("counting, sample {index}")
    }

    fn choice(&self) -> &Choice {
        &self.choice
    }
}

/// Adds what the key draws.
#[derive(Debug)]
struct Drawing(u64);

impl Op for Drawing {
    fn name(&self) -> &'static str {
        "drawing"
    }

    fn output_spec(&self, input: &FieldSpec) -> Result<FieldSpec, OpError> {
        Ok(input.clone())
    }

    fn scratch_bytes(&self, _: &FieldSpec) -> u64 {
        0
    }

    fn apply(
        &self,
        key: SampleKey,
        input: &Value,
        mut out: Out<'_>,
        _: &mut Scratch,
    ) -> Result<(), OpError> {
        let bytes = out.array("drawing", DType::U64, &[2])?;
        bytes.copy_from_slice(input.bytes());
        bytes[8..].copy_from_slice(&key.draw(self.0, 0).to_le_bytes());
        Ok(())
    }
}

fn settings() -> LoaderSettings {
    LoaderSettings {
        batch_size: 8,
        shuffle_seed: Some(3),
        seed: 3,
        memory: Bytes::from_mib(1),
        threads: Some(3),
        prefetch: 3,
        rank: 0,
        world_size: 1,
        drop_last: false,
        on_error: OnError::Raise,
    }
}

fn loader(source: Counting, settings: LoaderSettings) -> Loader {
    Loader::new(Pipeline::new(Arc::new(source)), settings).unwrap()
}

fn numbers(batch: &Batch) -> Vec<u64> {
    let words: Vec<u64> = batch.fields[0]
        .memory
        .bytes()
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
        .collect();
    let count = usize::try_from(batch.samples).unwrap();
    words
        .chunks_exact(2)
        .take(count)
        .map(|pair| pair[0])
        .collect()
}

/// The batches of an epoch and where each leaves it.
fn batches(loader: &Loader, epoch: u64, position: u64) -> Vec<(Vec<u64>, u64)> {
    let mut epoch = loader.epoch(epoch, position);
    let mut all = Vec::new();
    loop {
        match epoch.next(Duration::from_secs(20)).unwrap() {
            Next::Batch(batch) => all.push((numbers(&batch), batch.next)),
            Next::NotYet => panic!("nothing for 20 seconds"),
            Next::End => return all,
        }
    }
}

#[test]
fn every_sample_comes_once_and_in_the_same_order_with_any_number_of_threads() {
    let mut orders = Vec::new();
    for threads in [1, 2, 5] {
        let loader = loader(
            Counting::new(1003),
            LoaderSettings {
                threads: Some(threads),
                ..settings()
            },
        );
        let order: Vec<u64> = batches(&loader, 4, 0)
            .into_iter()
            .flat_map(|one| one.0)
            .collect();
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..1003).collect::<Vec<_>>());
        assert_eq!(loader.statistics().samples, 1003);
        assert_eq!(loader.batches(0), 126);
        orders.push(order);
    }
    assert!(orders.windows(2).all(|pair| pair[0] == pair[1]));
    assert_ne!(orders[0], (0..1003).collect::<Vec<_>>());
}

#[test]
fn what_is_drawn_depends_on_the_key_alone() {
    let mut seen: BTreeMap<u64, u64> = BTreeMap::new();
    for threads in [1, 4] {
        let pipeline = Pipeline::new(Arc::new(Counting::new(200)))
            .with("index", |number, _| Ok(Arc::new(Drawing(number))))
            .unwrap();
        let loader = Loader::new(
            pipeline,
            LoaderSettings {
                threads: Some(threads),
                batch_size: if threads == 1 { 8 } else { 13 },
                ..settings()
            },
        )
        .unwrap();
        let mut epoch = loader.epoch(2, 0);
        while let Next::Batch(batch) = epoch.next(Duration::from_secs(20)).unwrap() {
            for pair in batch.fields[0].memory.bytes().chunks_exact(16) {
                let [index, drawn] =
                    [0, 8].map(|at| u64::from_le_bytes(pair[at..at + 8].try_into().unwrap()));
                assert_eq!(*seen.entry(index).or_insert(drawn), drawn);
            }
        }
    }
    assert_eq!(seen.len(), 200);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Stopped anywhere and gone on with another number of threads, ranks and samples per batch.
    #[test]
    fn an_epoch_that_is_resumed_has_every_sample_once(
        len in 1..400_u64,
        worlds in proptest::collection::vec((1..9_u64, 1..20_u64, 1..4_usize), 1..4),
        stop_after in 0..12_usize,
    ) {
        let mut position = 0;
        let mut seen = Vec::new();
        for (at, &(world_size, batch_size, threads)) in worlds.iter().enumerate() {
            let is_last = at + 1 == worlds.len();
            let mut next = position;
            for rank in 0..world_size {
                let loader = loader(
                    Counting::new(len),
                    LoaderSettings { batch_size, threads: Some(threads), rank, world_size, ..settings() },
                );
                let mut all = batches(&loader, 1, position);
                if !is_last {
                    // All ranks stop after the same step, and go on where the first one says: it has a batch in each,
                    // others may have none in the last.
                    all.truncate(stop_after);
                    if rank == 0 {
                        next = all.last().map_or(position, |one| one.1);
                    } else if all.len() == stop_after && stop_after > 0 {
                        prop_assert_eq!(all.last().unwrap().1, next);
                    }
                }
                seen.extend(all.into_iter().flat_map(|one| one.0));
            }
            position = next;
        }
        seen.sort_unstable();
        prop_assert_eq!(seen, (0..len).collect::<Vec<_>>());
    }
}

#[test]
fn a_batch_says_where_the_epoch_goes_on() {
    let loader = loader(Counting::new(100), settings());
    let whole = batches(&loader, 0, 0);
    let (_, next) = whole[4];
    assert_eq!(next, 40);
    assert_eq!(batches(&loader, 0, next), whole[5..]);
}

#[test]
fn a_broken_sample_ends_the_epoch_with_its_place() {
    let mut source = Counting::new(100);
    source.broken = vec![17, 60];
    let loader = loader(
        source,
        LoaderSettings {
            shuffle_seed: None,
            ..settings()
        },
    );
    let mut epoch = loader.epoch(0, 0);
    for _ in 0..2 {
        assert!(matches!(
            epoch.next(Duration::from_secs(20)),
            Ok(Next::Batch(_))
        ));
    }
    let error = epoch.next(Duration::from_secs(20)).unwrap_err();
    assert_eq!(
        (error.index, error.to_string().as_str()),
        (17, "counting, sample 17")
    );
    assert_eq!(error.cause.to_string(), "expected a sample, found nothing");
    assert!(matches!(epoch.next(Duration::from_secs(20)), Ok(Next::End)));
}

#[test]
fn a_broken_sample_may_be_left_out() {
    let mut source = Counting::new(100);
    source.broken = vec![0, 17, 18, 96, 97, 98, 99];
    let loader = loader(
        source,
        LoaderSettings {
            shuffle_seed: None,
            on_error: OnError::Skip,
            ..settings()
        },
    );
    let all = batches(&loader, 0, 0);
    assert_eq!(all[0].0, [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(all[2].0, [16, 19, 20, 21, 22, 23]);
    assert_eq!(all.iter().map(|one| one.0.len()).sum::<usize>(), 93);
    assert_eq!(loader.statistics().skipped, 7);
}

#[test]
fn a_mistake_of_ours_is_an_error_and_not_a_hang() {
    let mut source = Counting::new(50);
    source.panics_at = Some(20);
    let loader = loader(source, settings());
    let mut epoch = loader.epoch(0, 0);
    let error = loop {
        match epoch.next(Duration::from_secs(20)) {
            Ok(Next::Batch(_)) => {}
            Ok(other) => panic!("{other:?}"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.index, 20);
    assert!(error.cause.to_string().contains("as asked"));
}

#[test]
fn nothing_more_than_the_budget_is_held() {
    let memory = Bytes(3 * 4096 * 2 + 4000);
    let loader = loader(
        Counting::new(10_000),
        LoaderSettings {
            batch_size: 200,
            memory,
            prefetch: 100,
            ..settings()
        },
    );
    assert_eq!(loader.budget().batches, 3);
    let mut epoch = loader.epoch(0, 0);
    while let Next::Batch(_) = epoch.next(Duration::from_secs(20)).unwrap() {
        // A page is the least that a thread can hold of a value; the source says 32 bytes.
        assert!(loader.held() <= memory.saturating_add(Bytes(3 * 2 * 4096)));
    }
}

#[test]
fn under_pressure_one_batch_is_made_ahead() {
    let loader = loader(Counting::new(1000), settings());
    loader.set_pressure(1.0);
    let mut epoch = loader.epoch(0, 0);
    for _ in 0..20 {
        let next = epoch.next(Duration::from_secs(20)).unwrap();
        assert!(matches!(next, Next::Batch(_)));
    }
    drop(epoch);
    assert!(loader.held() <= Bytes(2 * 4096));
}

#[test]
fn leaving_early_ends_the_threads() {
    let loader = loader(Counting::new(1_000_000), settings());
    for _ in 0..50 {
        let mut epoch = loader.epoch(0, 0);
        let _ = epoch.next(Duration::ZERO).unwrap();
    }
    assert_eq!(loader.shared.counters.read_scratch(), 0);
    let budget = loader.budget();
    assert!(
        loader.held().get() <= budget.batches * budget.batch.get(),
        "what was in the making is not counted forever: {}",
        loader.held()
    );
}

#[test]
fn a_batch_outlives_its_loader() {
    let loader = loader(Counting::new(100), settings());
    let mut epoch = loader.epoch(0, 0);
    let Next::Batch(batch) = epoch.next(Duration::from_secs(20)).unwrap() else {
        panic!("a batch");
    };
    drop(epoch);
    drop(loader);
    assert_eq!(numbers(&batch).len(), 8);
}

#[test]
fn what_cannot_be_is_said_before_the_first_step() {
    let make = |settings| Loader::new(Pipeline::new(Arc::new(Counting::new(10))), settings);
    let error = make(LoaderSettings {
        batch_size: 1 << 20,
        ..settings()
    })
    .unwrap_err();
    assert!(matches!(error, LoaderError::TooLittleMemory { .. }));
    assert_eq!(
        error.to_string(),
        "memory budget of 1 MiB is too small: one batch needs 32 MiB and one thread needs 32 B of scratch memory"
    );
    let error = make(LoaderSettings {
        rank: 2,
        world_size: 2,
        ..settings()
    })
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "rank must be below the world size 2, found 2"
    );
    for settings in [
        LoaderSettings {
            batch_size: 0,
            ..settings()
        },
        LoaderSettings {
            threads: Some(0),
            ..settings()
        },
        LoaderSettings {
            world_size: 0,
            ..settings()
        },
        LoaderSettings {
            batch_size: u64::MAX,
            ..settings()
        },
    ] {
        assert!(make(settings).is_err());
    }
}

#[test]
fn an_empty_dataset_has_no_batches() {
    let loader = loader(Counting::new(0), settings());
    assert_eq!(loader.batches(0), 0);
    assert_eq!(batches(&loader, 0, 0), []);
}

/// Needs much memory, knows how many do so at once, and waits until others have read.
#[derive(Debug)]
struct Heavy {
    now: AtomicUsize,
    most: AtomicUsize,
    panics_at: Option<u64>,
    n_read: Arc<AtomicUsize>,
    wanted_read: usize,
}

impl Heavy {
    const BYTES: usize = 300 << 10;
}

impl Op for Heavy {
    fn name(&self) -> &'static str {
        "heavy"
    }

    fn output_spec(&self, input: &FieldSpec) -> Result<FieldSpec, OpError> {
        Ok(input.clone())
    }

    fn scratch_bytes(&self, _: &FieldSpec) -> u64 {
        Heavy::BYTES as u64
    }

    fn apply(
        &self,
        key: SampleKey,
        input: &Value,
        mut out: Out<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), OpError> {
        assert_ne!(Some(key.index), self.panics_at, "as asked");
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        scratch.bytes.resize(Heavy::BYTES, 0);
        let began = Instant::now();
        while self.n_read.load(Ordering::SeqCst) < self.wanted_read {
            assert!(began.elapsed() < Duration::from_secs(20), "nobody reads");
            std::thread::yield_now();
        }
        let bytes = out.array("heavy", DType::U64, &[2])?;
        bytes.copy_from_slice(input.bytes());
        self.now.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }
}

#[test]
fn few_scratch_buffers_serve_many_threads() {
    let source = Counting::new(500);
    let heavy = Arc::new(Heavy {
        now: AtomicUsize::new(0),
        most: AtomicUsize::new(0),
        panics_at: Some(123),
        n_read: Arc::clone(&source.n_read),
        // By all of the threads, though three scratch buffers are taken meanwhile.
        wanted_read: 12,
    });
    let pipeline = Pipeline::new(Arc::new(source))
        .with("index", |_, _| Ok(Arc::clone(&heavy) as Arc<dyn Op>))
        .unwrap();
    let settings = LoaderSettings {
        threads: Some(12),
        shuffle_seed: None,
        on_error: OnError::Skip,
        ..settings()
    };
    let memory = settings.memory;
    let loader = Loader::new(pipeline, settings).unwrap();
    let budget = *loader.budget();
    assert_eq!((budget.threads, budget.op_scratches), (12, 3));
    let mut found = Vec::new();
    let mut epoch = loader.epoch(0, 0);
    while let Next::Batch(batch) = epoch.next(Duration::from_secs(20)).unwrap() {
        found.extend(numbers(&batch));
        // A page is the least that a thread can hold of a value; the source says 32 bytes.
        let pages = Bytes(12 * 2 * 4096);
        assert!(loader.held() <= memory.saturating_add(pages));
    }
    let expected: Vec<u64> = (0..500).filter(|&index| index != 123).collect();
    assert_eq!(found, expected);
    assert_eq!(heavy.most.load(Ordering::SeqCst), 3);
    let statistics = loader.statistics();
    let (last, waited) = statistics.stages.last().unwrap();
    assert_eq!(last, "wait for scratch memory");
    assert!(!waited.is_zero(), "{statistics:?}");
    let of_stages: Duration = statistics.stages.iter().map(|(_, time)| *time).sum();
    assert!(of_stages <= statistics.worked, "{statistics:?}");
    drop(epoch);
    assert_eq!(loader.shared.counters.read_scratch(), 0);

    // Left in the middle, while threads wait.
    for steps in 0..5 {
        let mut epoch = loader.epoch(1, 0);
        for _ in 0..steps {
            epoch.next(Duration::from_secs(20)).unwrap();
        }
    }
    assert_eq!(loader.shared.counters.read_scratch(), 0);
}
