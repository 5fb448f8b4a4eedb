//! From what the hook wrote to the value that predictions are made of.

use brimful::cards::Card;
use brimful::predict::{AssumedCase, Kind, NamedTensor, Occurrences, Workload};
use brimful::units::Bytes;

use crate::Rehearsed;
use crate::facts::{EndReason, Facts, TensorKind};

/// Caveats of the hook.
const UNKNOWN_SHAPES: &str = "value-dependent-shape";
const ASSUMED_SHAPES: &str = "assumed_values";

/// The workload of one process; `steps` is what was asked for.
pub fn workload(process: &Rehearsed, steps: u32) -> Workload {
    let facts = &process.facts;
    let phantom = facts.phantom.clone().unwrap_or_default();
    let uses_cudnn = phantom.cudnn_plans > 0 || facts.convolutions > 0;
    let heuristics = uses_cudnn && phantom.cudnn.starts_with("deviceless");
    Workload {
        trace: process.trace.clone(),
        tensors: facts.tensors.iter().filter_map(named).collect(),
        steps: facts.steps,
        world_size: facts.world_size,
        communicators: phantom
            .nccl_communicators
            .iter()
            .flat_map(|group| std::iter::repeat_n(group.ranks, group.count.min(64) as usize))
            .collect(),
        cudnn_heuristics: heuristics,
        cudnn_guessed: uses_cudnn && !heuristics,
        died: process.died,
        ran_out: process.ran_out,
        idle_optimizers: texts(facts, "optimizer_without_steps"),
        full_generation: count(facts, "full_generation") > 0,
        steps_by_script: count(facts, "steps_by_script") > 0,
        managed: Bytes(phantom.managed_bytes),
        reserved_rises: count(facts, "reserved_rises") > 0,
        caught_ooms: facts.ooms,
        evaluated: facts.evaluated > 0,
        ended_early: facts.reason == EndReason::End && facts.steps < steps,
        compiled: facts.compiled,
        cudnn_benchmark: facts.cudnn_benchmark && uses_cudnn,
        assumed: AssumedCase::Usual,
        unknown_shapes: occurrences(facts, UNKNOWN_SHAPES),
        assumed_shapes: occurrences(facts, ASSUMED_SHAPES),
        assumed_numbers: occurrences(facts, "value_read"),
        autotuned: count(facts, "autotune") > 0,
        fake_tensors: facts.fake_tensors,
        uncompiled: count(facts, "uncompiled") > 0,
        added_gpus: phantom.added_devices,
        unknown_calls: phantom.unknown_entry_points,
        guesses: phantom.guesses,
        problems: facts.problems.clone(),
    }
}

/// Which other cases the memory of a process may depend on.
pub(crate) struct OtherCases {
    /// Masks may select less.
    pub(crate) balanced: bool,
    /// Choices may be unbalanced.
    pub(crate) worst: bool,
}

/// The other cases of these processes; none where there are no values at all.
pub(crate) fn other_cases<'a>(processes: impl Iterator<Item = &'a Rehearsed>) -> OtherCases {
    let mut others = OtherCases {
        balanced: false,
        worst: false,
    };
    for process in processes.filter(|process| !process.facts.fake_tensors) {
        others.balanced |= count(&process.facts, UNKNOWN_SHAPES) > 0;
        others.worst |= count(&process.facts, ASSUMED_SHAPES) > 0;
    }
    others
}

fn count(facts: &Facts, caveat: &str) -> u64 {
    facts.caveats.get(caveat).map_or(0, |(count, _)| *count)
}

fn occurrences(facts: &Facts, caveat: &str) -> Occurrences {
    let (count, places) = facts.caveats.get(caveat).cloned().unwrap_or_default();
    Occurrences { count, places }
}

fn texts(facts: &Facts, caveat: &str) -> Vec<String> {
    let found = facts.caveats.get(caveat);
    found.map(|(_, text)| text.clone()).into_iter().collect()
}

fn named((address, kind, name): &(u64, TensorKind, String)) -> Option<NamedTensor> {
    let kind = match kind {
        TensorKind::Weight | TensorKind::Buffer => Kind::Weights,
        TensorKind::Gradient => Kind::Gradients,
        TensorKind::State => Kind::OptimizerState,
        TensorKind::Other => return None,
    };
    Some(NamedTensor {
        address: *address,
        kind,
        name: name.clone(),
    })
}

/// Bytes that no rehearsal reaches, so that it never runs out.
const ENDLESS: u64 = 1 << 40;

/// The description of `count` such cards for the phantom, with room for so many bytes or without end.
pub fn phantom_devices(card: &Card, count: usize, room: Option<u64>) -> String {
    let generation = card
        .compute_capability
        .map_or_else(|| "8.0".to_owned(), |capability| capability.to_string());
    let one = format!(
        "name={},memory={},total={},room={},held=0,cc={generation},multiprocessors={}",
        card.name.replace([',', ';', '='], " "),
        card.torch_visible.value.get(),
        card.total.value.get(),
        room.unwrap_or(ENDLESS),
        card.multiprocessors.value,
    );
    vec![one; count.max(1)].join(";")
}
