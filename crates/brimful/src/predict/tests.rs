//! Predictions of small workloads whose figures can be told by hand.

use brimful_allocsim::settings::AllocatorSettings;
use brimful_allocsim::trace::{Allocation, Trace};
use proptest::prelude::*;

use super::story::Story;
use super::{
    AssumedCase, CaveatKind, FitVerdict, Footprint, Kind, NamedTensor, Phase, Target, Workload,
    caveats, footprint,
};
use crate::machine::ComputeCapability;
use crate::units::Bytes;

const MIB: u64 = 1 << 20;

/// A training loop in which every kind of memory appears: `steps` steps with activations of `batch` MiB.
fn workload(steps: u32, batch: u64) -> Workload {
    let mut trace = Trace {
        torch: "2.13.0".into(),
        ..Trace::default()
    };
    let mut address = 0x1000_0000;
    let mut alloc = |trace: &mut Trace, mib: u64| {
        address += 1 << 34;
        let number = trace.add(Allocation {
            address,
            requested: mib * MIB,
            ..Allocation::default()
        });
        trace
            .events
            .push(brimful_allocsim::trace::Event::Alloc(number));
        number
    };
    let weights = alloc(&mut trace, 100);
    let mut state = None;
    for step in 1..=steps {
        trace.mark("phase:forward");
        let input = alloc(&mut trace, 5);
        trace.mark("module:layer (Linear)");
        let scratch = alloc(&mut trace, 3);
        let activation = alloc(&mut trace, batch);
        trace.free(scratch);
        trace.mark("module:");
        let loss = alloc(&mut trace, 1);
        trace.mark("phase:backward");
        let gradient = alloc(&mut trace, 100);
        trace.free(activation);
        trace.free(loss);
        trace.mark("phase:optimizer");
        state.get_or_insert_with(|| alloc(&mut trace, 200));
        trace.mark("phase:forward");
        trace.mark(&format!("step:{step}"));
        if step == steps {
            trace.mark("tensors:");
        }
        trace.free(gradient);
        trace.free(input);
    }
    let named = NamedTensor {
        address: trace.allocations[weights as usize].address,
        kind: Kind::Weights,
        name: "layer.weight".into(),
    };
    Workload {
        trace,
        tensors: vec![named],
        steps,
        world_size: 1,
        ..Workload::default()
    }
}

fn target(total: Bytes) -> Target {
    Target {
        name: "a card".into(),
        total,
        multiprocessors: 40,
        compute_capability: Some(ComputeCapability::new(7, 5)),
        settings: AllocatorSettings::default(),
        measured_context: None,
    }
}

fn likely(footprint: &Footprint, id: &str) -> u64 {
    footprint
        .terms
        .iter()
        .find(|term| term.id == id)
        .map_or(0, |term| term.likely.get() / MIB)
}

#[test]
fn every_kind_of_memory_is_told_by_its_life() {
    let found = footprint(&workload(3, 400), &target(Bytes::from_gib(16)));
    let expected = [
        ("weights", 100),
        ("gradients", 100),
        ("optimizer_state", 200),
        ("activations", 401),
        ("temporaries", 0),
        ("other", 5),
    ];
    for (id, mib) in expected {
        assert_eq!(likely(&found, id), mib, "{id}: {:#?}", found.terms);
    }
    assert_eq!(found.peak_allocated, Bytes::from_mib(806));
    assert_eq!(found.peak_phase, Phase::Backward);
    let sum: u64 = found.terms.iter().map(|term| term.likely.get()).sum();
    assert_eq!(sum, found.device.likely.get(), "the budget adds up");
    assert!(found.device.safe > found.device.likely);
    assert_eq!(found.largest[0].made_by, "layer (Linear)");
    assert!(
        found
            .largest
            .iter()
            .any(|largest| largest.made_by == "layer.weight")
    );
}

#[test]
fn a_card_that_is_too_small_says_what_is_missing() {
    let workload = workload(3, 4000);
    let needs = footprint(&workload, &target(Bytes::from_gib(64)));
    assert_eq!(needs.verdict, FitVerdict::Fits);
    let small = footprint(&workload, &target(Bytes::from_gib(3)));
    assert_eq!(small.verdict, FitVerdict::DoesNotFit);
    assert!(small.headroom < -(1 << 30), "{}", small.headroom);
    assert_eq!(
        small.peak_reserved, needs.peak_reserved,
        "the figures are those of a card without end"
    );
    let between = Bytes(needs.device.likely.get() + 16 * MIB);
    assert_eq!(
        footprint(&workload, &target(between)).verdict,
        FitVerdict::Tight
    );
}

#[test]
fn weak_figures_say_so() {
    let ids = |workload: &Workload| -> Vec<&'static str> {
        caveats(workload, &Story::of(&workload.trace))
            .iter()
            .map(|caveat| caveat.kind.id())
            .collect()
    };
    assert!(ids(&workload(3, 10)).is_empty());
    assert_eq!(ids(&workload(1, 10)), ["one_step"]);
    let mut more = workload(3, 10);
    more.added_gpus = 1;
    assert_eq!(ids(&more), ["more_gpus_than_asked"]);
    let mut weak = workload(3, 10);
    weak.unknown_shapes.count = 2;
    weak.assumed_shapes.count = 1;
    weak.assumed_numbers.count = 1;
    weak.cudnn_guessed = true;
    weak.trace.torch = "2.9.1".into();
    assert_eq!(
        ids(&weak),
        [
            "value_dependent_shape",
            "assumed_values",
            "value_read",
            "cudnn_workspaces_unknown",
            "address_order"
        ]
    );
}

#[test]
fn without_cuda_the_figure_is_called_weaker_and_its_margin_is_wider() {
    let exact = workload(3, 400);
    let mut weak = exact.clone();
    weak.fake_tensors = true;
    let mut convolutions = weak.clone();
    convolutions.cudnn_guessed = true;
    let on_card = |workload| footprint(workload, &target(Bytes::from_gib(16)));
    let spare = |found: &Footprint| found.device.safe.get() - found.device.likely.get();
    let [exact, weak, convolutions] = [&exact, &weak, &convolutions].map(on_card);
    assert_eq!(exact.device.likely, weak.device.likely);
    assert!(spare(&exact) < spare(&weak));
    assert!(spare(&weak) < spare(&convolutions));
    let ids = |found: &Footprint| -> Vec<&'static str> {
        found
            .caveats
            .iter()
            .map(|caveat| caveat.kind.id())
            .collect()
    };
    assert!(ids(&exact).is_empty());
    assert_eq!(ids(&weak), ["fake_tensor_fallback"]);
    assert_eq!(
        ids(&convolutions),
        ["fake_tensor_fallback"],
        "cuDNN is not asked for twice"
    );
}

#[test]
fn a_leak_is_noticed() {
    let mut leaking = workload(3, 10);
    let steps: Vec<usize> = Story::of(&leaking.trace).step_ends;
    for (kept, at) in steps.iter().enumerate() {
        let number = leaking.trace.add(Allocation {
            requested: 7 * MIB,
            ..Allocation::default()
        });
        leaking
            .trace
            .events
            .insert(at + kept - 1, brimful_allocsim::trace::Event::Alloc(number));
    }
    let found = caveats(&leaking, &Story::of(&leaking.trace));
    assert_eq!(found[0].kind, CaveatKind::StillGrowing);
}

proptest! {
    #[test]
    fn more_memory_is_never_worse(batch in 1_u64..3000, gib in 1_u64..40, more in 0_u64..20) {
        let workload = workload(3, batch);
        let order = |verdict| match verdict {
            FitVerdict::Fits => 0,
            FitVerdict::Tight => 1,
            FitVerdict::DoesNotFit => 2,
        };
        let small = footprint(&workload, &target(Bytes::from_gib(gib)));
        let large = footprint(&workload, &target(Bytes::from_gib(gib + more)));
        prop_assert!(order(large.verdict) <= order(small.verdict));
        prop_assert_eq!(small.verdict == FitVerdict::Fits, small.headroom >= 0);
    }
}

/// A buffer that grows by 16 MiB with each of 60 steps: the old one is freed after the new one was made.
fn growing() -> Workload {
    let mut trace = Trace {
        torch: "2.13.0".into(),
        ..Trace::default()
    };
    let mut old = None;
    for step in 1..=60_u64 {
        trace.mark("phase:forward");
        let number = trace.add(Allocation {
            address: step << 34,
            requested: step * 16 * MIB,
            ..Allocation::default()
        });
        trace
            .events
            .push(brimful_allocsim::trace::Event::Alloc(number));
        if let Some(old) = old.replace(number) {
            trace.free(old);
        }
        trace.mark(&format!("step:{step}"));
    }
    Workload {
        trace,
        steps: 60,
        world_size: 1,
        ..Workload::default()
    }
}

#[test]
fn where_much_is_unused_expandable_segments_are_tried() {
    let found = footprint(&growing(), &target(Bytes::from_gib(6)));
    let alternative = found.alternative.as_ref().expect("fragmentation");
    assert_eq!(alternative.settings, "expandable_segments:True");
    assert!(alternative.peak_reserved < Bytes(found.peak_reserved.get() / 2));
    assert!(alternative.fits);
    let mut with_it = target(Bytes::from_gib(6));
    with_it.settings.expandable_segments = true;
    let found = footprint(&growing(), &with_it);
    assert_eq!((found.alternative, found.verdict), (None, FitVerdict::Fits));
    assert_eq!(
        footprint(&workload(3, 400), &target(Bytes::from_gib(16))).alternative,
        None
    );
}

#[test]
fn an_upper_bound_is_no_reason_to_say_that_it_does_not_fit() {
    let small = target(Bytes::from_mib(900));
    let mut bound = workload(3, 400);
    assert_eq!(footprint(&bound, &small).verdict, FitVerdict::DoesNotFit);
    bound.unknown_shapes.count = 1;
    let found = footprint(&bound, &small);
    assert_eq!(found.verdict, FitVerdict::Tight);
    assert!(found.headroom < 0);
}

#[test]
fn a_card_without_memory_of_its_own_says_so() {
    let ids = |name: &str| -> Vec<&'static str> {
        let mut target = target(Bytes::from_gib(16));
        target.name = name.into();
        let found = footprint(&workload(3, 10), &target);
        found
            .caveats
            .iter()
            .map(|caveat| caveat.kind.id())
            .collect()
    };
    assert_eq!(ids("NVIDIA GB10"), ["shared_with_host"]);
    assert!(ids("Tesla T4").is_empty());
}

#[test]
fn a_range_fits_only_if_its_worst_case_does() {
    let of = |batch: u64, assumed: AssumedCase, total: Bytes| {
        let mut workload = workload(3, batch);
        workload.assumed = assumed;
        workload.assumed_shapes.count = 1;
        footprint(&workload, &target(total))
    };
    let range = |total: Bytes| {
        of(100, AssumedCase::Balanced, total).with_worst_case(&of(400, AssumedCase::Worst, total))
    };
    let roomy = range(Bytes::from_gib(16));
    assert_eq!(roomy.verdict, FitVerdict::Fits);
    let worst = roomy.worst_case.expect("a range");
    assert!(worst.safe > roomy.device.safe);
    assert_eq!(
        roomy.headroom,
        i64::try_from(Bytes::from_gib(16).get() - worst.safe.get()).unwrap()
    );
    let between = Bytes(u64::midpoint(roomy.device.safe.get(), worst.likely.get()));
    assert_eq!(range(between).verdict, FitVerdict::Tight);
    let small = Bytes(roomy.device.likely.get() - Bytes::from_mib(60).get());
    assert_eq!(range(small).verdict, FitVerdict::DoesNotFit);
}

#[test]
fn cases_that_need_the_same_memory_say_so() {
    let mut workload = workload(3, 100);
    workload.assumed = AssumedCase::Balanced;
    workload.unknown_shapes.count = 2;
    let same = footprint(&workload, &target(Bytes::from_gib(16)));
    let range = same.clone().with_worst_case(&same);
    assert_eq!(range.verdict, FitVerdict::Fits);
    assert_eq!(range.worst_case, Some(range.device));
    assert!(
        range.caveats[0]
            .text
            .ends_with("select all. Both need the same memory")
    );
}
