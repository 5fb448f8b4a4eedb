//! Properties of the model, and rates that are known from elsewhere.

use proptest::prelude::*;

use super::*;
use crate::cards;

fn op(name: &str, dtype: &str, shapes: &[&[u64]]) -> CapturedOp {
    let bytes = if dtype == "float32" { 4 } else { 2 };
    let elements: u64 = shapes
        .iter()
        .map(|shape| shape.iter().product::<u64>())
        .sum();
    CapturedOp {
        op: format!("aten::{name}"),
        dtype: dtype.to_owned(),
        read_bytes: elements * bytes,
        written_bytes: elements * bytes / 2,
        shapes: shapes.iter().map(|shape| shape.to_vec()).collect(),
        tensors: shapes.len() as u64,
        count: 1,
        ..CapturedOp::default()
    }
}

fn step(ops: Vec<CapturedOp>) -> CapturedStep {
    CapturedStep {
        ops,
        batches: 1,
        convolution_tf32: true,
        ..CapturedStep::default()
    }
}

fn seconds(step: &CapturedStep, gpu: &str) -> SecondsByPart {
    StepTime::of(step, cards::find(gpu).unwrap())
        .unwrap()
        .gpu_seconds
}

#[test]
fn fitted_values_are_of_parameters() {
    let known: Vec<&str> = Parameter::ALL.iter().map(|p| p.name()).collect();
    for (name, value) in FITTED.values {
        assert!(known.contains(name), "{name} is no parameter");
        assert!(value.is_finite() && *value > 0.0, "{name}");
    }
    for spread in [FITTED.errors.measured_gpu, FITTED.errors.data_sheet_gpu] {
        assert!(spread[0] < 1.0 && spread[1] > 1.0, "{spread:?}");
    }
    assert!(FITTED.values.len() > 40 && !FITTED.split.is_empty());
}

#[test]
fn a_large_product_runs_near_the_measured_rate() {
    let size = 8192_u64;
    let flops = 2.0 * (size as f64).powi(3);
    for (gpu, dtype, rate) in [
        ("l4", "float32", 11.1e12),
        ("t4", "float32", 4.4e12),
        ("h100", "float32", 52.3e12),
        ("rtx-3090", "float16", 76.7e12),
        ("a100-40gb", "bfloat16", 265e12),
        ("t4", "float16", 42e12),
    ] {
        let product = step(vec![op("mm", dtype, &[&[size, size], &[size, size]])]);
        let reached = flops / seconds(&product, gpu).matmul;
        let share = reached / rate;
        assert!((0.7..1.3).contains(&share), "{gpu} {dtype}: {share:.2}");
    }
}

#[test]
fn parts_are_what_their_operators_are() {
    let convolution = CapturedOp {
        stride: vec![1, 1],
        groups: 1,
        output: vec![32, 64, 56, 56],
        ..op(
            "convolution",
            "float16",
            &[&[32, 64, 56, 56], &[64, 64, 3, 3]],
        )
    };
    let attention = CapturedOp {
        flops: 1 << 34,
        ..op(
            "_scaled_dot_product_flash_attention",
            "bfloat16",
            &[&[8, 16, 1024, 64]],
        )
    };
    let update = CapturedOp {
        phase: OpPhase::Optimizer,
        tensors: 300,
        ..op("_foreach_add_", "float32", &[&[1 << 24]])
    };
    let all = step(vec![
        convolution,
        attention,
        update,
        op("mm", "float16", &[&[512, 512], &[512, 512]]),
        op("gelu", "float16", &[&[1 << 22]]),
    ]);
    let parts = seconds(&all, "a100-40gb");
    for (name, part) in [
        ("matmul", parts.matmul),
        ("convolution", parts.convolution),
        ("attention", parts.attention),
        ("memory_bound", parts.memory_bound),
        ("optimizer", parts.optimizer),
        ("launches", parts.launches),
    ] {
        assert!(part > 0.0, "no time for {name}");
    }
}

#[test]
fn the_gradient_of_the_input_is_not_computed_where_nobody_asks() {
    let backward = |mask: [bool; 3]| {
        let op = CapturedOp {
            stride: vec![2, 2],
            groups: 1,
            output_mask: mask.to_vec(),
            ..op(
                "convolution_backward",
                "float16",
                &[&[32, 64, 112, 112], &[32, 3, 224, 224], &[64, 3, 7, 7]],
            )
        };
        seconds(&step(vec![op]), "rtx-3090").convolution
    };
    assert!(backward([false, true, false]) < backward([true, true, false]));
}

#[test]
fn answers_say_what_they_rest_on() {
    let mut captured = step(vec![op("mm", "float16", &[&[4096, 4096], &[4096, 4096]])]);
    let facts = StepFacts {
        micro_batch: 16,
        dataset_samples: 1600,
        ranks: 1,
        loading_rate: Some(1.0),
        scale: None,
    };
    let known = Speed::of(&captured, cards::find("l4").unwrap(), &facts).unwrap();
    let by_sheet = Speed::of(&captured, cards::find("a10").unwrap(), &facts).unwrap();
    assert_eq!(known.basis, SpeedBasis::Model);
    let width = |speed: &Speed| speed.steps_per_second.high / speed.steps_per_second.low;
    assert!(width(&by_sheet) > width(&known));
    assert!(
        by_sheet
            .notes
            .iter()
            .any(|note| note.contains("data sheet"))
    );
    let (rate, epoch) = (
        known.samples_per_second.unwrap(),
        known.epoch_seconds.unwrap(),
    );
    assert!((rate.likely * epoch.likely - 1600.0).abs() < 1e-6);
    assert!(rate.low < rate.likely && rate.likely < rate.high);

    assert!(known.notes.iter().any(|note| note.contains("data loading")));

    captured.batches = 0;
    captured.uncompiled = true;
    captured.launches = 12;
    captured.explained_launches = 10;
    captured.unexplained = vec!["softmax_kernel".to_owned()];
    let scaled = StepFacts {
        scale: Some(2.0),
        ..facts
    };
    let unknown = Speed::of(&captured, cards::find("l4").unwrap(), &scaled).unwrap();
    assert_eq!(unknown.basis, SpeedBasis::Scaled);
    assert!(unknown.samples_per_second.is_none() && unknown.epoch_seconds.is_none());
    assert!(
        unknown
            .notes
            .iter()
            .any(|note| note.contains("softmax_kernel"))
    );
    assert!(
        unknown
            .notes
            .iter()
            .any(|note| note.contains("torch.compile"))
    );
    // Half as fast as the model says, but never slower than launching allows.
    assert!(unknown.steps_per_second.likely <= known.steps_per_second.likely);
}

#[test]
fn a_card_without_rates_has_no_speed() {
    let card = cards::find("rtx-4090-laptop-16gb").unwrap();
    assert!(Speed::of(&step(Vec::new()), card, &StepFacts::default()).is_none());
}

fn any_op() -> impl Strategy<Value = CapturedOp> {
    let names = prop::sample::select(vec![
        "mm",
        "bmm",
        "addmm",
        "convolution",
        "convolution_backward",
        "gelu",
        "native_batch_norm",
        "_foreach_add_",
        "_scaled_dot_product_flash_attention_backward",
        "embedding",
        "zero_",
    ]);
    let shapes = prop::collection::vec(prop::collection::vec(0..5000_u64, 0..6), 0..4);
    (
        names,
        shapes,
        any::<[u64; 4]>(),
        prop::collection::vec(any::<bool>(), 0..4),
    )
        .prop_map(
            |(name, shapes, [read, flops, groups, count], mask)| CapturedOp {
                read_bytes: read,
                written_bytes: read / 2,
                flops,
                groups,
                count,
                stride: vec![groups % 5, 1],
                output: shapes.first().cloned().unwrap_or_default(),
                output_mask: mask,
                shapes,
                ..op(name, "float16", &[])
            },
        )
}

proptest! {
    /// The file of operators may come from anybody.
    #[test]
    fn every_step_has_a_time(ops in prop::collection::vec(any_op(), 0..20)) {
        let captured = step(ops);
        for gpu in ["t4", "rtx-3090", "h100", "p100"] {
            let parts = seconds(&captured, gpu);
            prop_assert!(!parts.total().is_nan() && parts.total() >= 0.0);
        }
        let speed = Speed::of(&captured, cards::find("t4").unwrap(), &StepFacts::default());
        if let Some(speed) = speed {
            prop_assert!(speed.steps_per_second.likely > 0.0);
        }
    }

    #[test]
    fn more_work_takes_no_less_time(rows in 1..4000_u64, columns in 1..4000_u64, depth in 1..4000_u64) {
        let time = |depth: u64| seconds(&step(vec![op("mm", "float16", &[&[rows, depth], &[depth, columns]])]), "l4").total();
        // Splitting a longer sum over idle multiprocessors may win a little.
        prop_assert!(time(depth * 4) >= time(depth) * 0.99);
    }
}
