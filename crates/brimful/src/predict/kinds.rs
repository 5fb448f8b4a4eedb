//! What an allocation is for, told from its life.

use std::collections::BTreeMap;

use brimful_allocsim::trace::Trace;

use super::kind::Kind;
use super::story::{Phase, Story, When};
use super::{NamedTensor, Workload};

/// Memory that a library takes for good is at least this large; smaller keepsakes are the script's.
const SMALLEST_WORKSPACE: u64 = 1 << 20;

/// The kind of every allocation, and the names of those that have one.
pub(crate) fn kinds(workload: &Workload, story: &Story) -> (Vec<Kind>, BTreeMap<u32, String>) {
    let named = named(workload, story);
    let trace = &workload.trace;
    let kinds = (0..)
        .zip(&trace.allocations)
        .map(|(number, allocation)| {
            if let Some(tensor) = named.get(&number) {
                return tensor.kind;
            }
            let birth = story.births[number as usize];
            birth.map_or(Kind::Other, |birth| {
                by_life(
                    birth,
                    story.deaths[number as usize],
                    allocation.requested,
                    story,
                    named.is_empty(),
                )
            })
        })
        .collect();
    (
        kinds,
        named
            .into_iter()
            .map(|(number, tensor)| (number, tensor.name.clone()))
            .collect(),
    )
}

fn by_life(birth: When, death: Option<When>, size: u64, story: &Story, nameless: bool) -> Kind {
    let same_chapter = death.is_some_and(|death| death.chapter == birth.chapter);
    match birth.phase {
        Phase::Setup if same_chapter => Kind::Temporaries,
        Phase::Setup if nameless && death.is_none() => Kind::Weights,
        Phase::Setup | Phase::Save => Kind::Other,
        Phase::Optimizer if death.is_some_and(|death| death.phase == Phase::Optimizer) => {
            Kind::Temporaries
        }
        Phase::Optimizer => Kind::OptimizerState,
        Phase::Backward => {
            let end = death.map_or(usize::MAX, |death| death.event);
            let next = story
                .optimizer_starts
                .partition_point(|start| *start < birth.event);
            let outlives = story
                .optimizer_starts
                .get(next)
                .is_some_and(|start| *start < end);
            // Kept to the end: a gradient that is only set to zero, or a library's own.
            let kept_by_library =
                death.is_none() && size >= SMALLEST_WORKSPACE && is_library_size(size);
            match outlives {
                true if kept_by_library => Kind::Workspaces,
                true => Kind::Gradients,
                false => Kind::Temporaries,
            }
        }
        Phase::Forward => match death {
            None if size >= SMALLEST_WORKSPACE && is_library_size(size) => Kind::Workspaces,
            // The last step's activations: nothing of the script runs after it.
            None if birth.module.is_some() => Kind::Activations,
            None => Kind::Other,
            Some(_) if same_chapter => Kind::Temporaries,
            // Not made by a module: the batch.
            Some(_) if birth.module.is_none() && !birth.model_called => Kind::Other,
            Some(_) => Kind::Activations,
        },
        Phase::Evaluation => Kind::Temporaries,
    }
}

/// The sizes that PyTorch asks for as cuBLAS workspaces: 8,519,680 bytes, 32 MiB on Hopper and later, 8 MiB with some
/// settings. A tensor may have such a size too; it is then told from its name.
fn is_library_size(size: u64) -> bool {
    [8_519_680, 32 << 20, 8 << 20, 4 << 20, 1 << 20].contains(&size)
}

/// The allocations that hold named tensors at the moment when the names were noted.
fn named<'a>(workload: &'a Workload, story: &Story) -> BTreeMap<u32, &'a NamedTensor> {
    let Some(noted) = story.names_noted else {
        return BTreeMap::new();
    };
    let by_address = alive_by_address(&workload.trace, story, noted);
    let mut named = BTreeMap::new();
    for tensor in &workload.tensors {
        let holder = by_address.range(..=tensor.address).next_back();
        let Some((address, &number)) = holder else {
            continue;
        };
        let size = workload.trace.allocations[number as usize].requested;
        if tensor.address - address < size.max(1) {
            named.entry(number).or_insert(tensor);
        }
    }
    named
}

fn alive_by_address(trace: &Trace, story: &Story, at: usize) -> BTreeMap<u64, u32> {
    (0..)
        .zip(&trace.allocations)
        .filter(|(number, _)| {
            let index = *number as usize;
            story.births[index].is_some_and(|birth| birth.event <= at)
                && story.deaths[index].is_none_or(|death| death.event > at)
        })
        .map(|(number, allocation)| (allocation.address, number))
        .collect()
}
