//! What makes a prediction weaker, said plainly.

use brimful_allocsim::version::{Tie, TorchVersion};

use super::Workload;
use super::story::Story;
use crate::cards;
use crate::units::Bytes;

/// A reason to trust the figures less.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caveat {
    pub id: &'static str,
    pub text: String,
}

/// Where a card has no memory of its own, it is full earlier than its total says.
pub(super) fn memory_of_the_host(card: &str) -> Option<Caveat> {
    cards::shares_host_memory(card).then(|| Caveat {
        id: "shared_with_host",
        text: format!(
            "{card} has no memory of its own but shares the host's: what the script needs of host memory, and what other programs hold, comes on top"
        ),
    })
}

/// All that apply, the heaviest first.
pub fn caveats(workload: &Workload, story: &Story) -> Vec<Caveat> {
    let mut found = Vec::new();
    let mut add = |id, text: String| found.push(Caveat { id, text });
    if workload.fake_tensors {
        add(
            "fake_tensor_fallback",
            "torch has no CUDA, so this is the weaker figure: tensors without values stood in for those of the card, PyTorch's rules for choosing kernels were followed from the outside, and the scratch memory of cuDNN and of some kernels is not seen. The CUDA build of torch, which needs no GPU, gives the exact one".into(),
        );
    }
    if workload.uncompiled {
        add(
            "uncompiled",
            "torch.compile has no CUDA to compile for here: what it would have compiled ran as it is".into(),
        );
    }
    if workload.steps == 0 {
        add(
            "no_step",
            "no optimizer step was seen: gradients and optimizer state may be missing".into(),
        );
    } else if workload.steps < 2 {
        add(
            "one_step",
            "only one optimizer step was made; later steps often need more".into(),
        );
    } else if workload.ended_early {
        add(
            "ended_early",
            format!("the script ended by itself after {} steps", workload.steps),
        );
    }
    if !workload.idle_optimizers.is_empty() {
        add(
            "optimizer_without_steps",
            format!(
                "not every optimizer stepped within the rehearsal, so memory may be missing: {}",
                workload.idle_optimizers.join("; ")
            ),
        );
    }
    if workload.steps_by_script {
        add(
            "steps_by_script",
            "the script changes its parameters without an optimizer: steps were counted where gradients are new".into(),
        );
    }
    if workload.full_generation {
        add(
            "full_generation",
            "generate() made as many tokens as it was allowed to, which is the most memory it can take".into(),
        );
    }
    if workload.managed > Bytes::ZERO {
        add(
            "managed_memory",
            format!(
                "{} of managed memory, such as the state of a paged optimizer, are not in these figures: the driver keeps them on the GPU while there is room and moves them to host memory otherwise",
                workload.managed
            ),
        );
    }
    if workload.reserved_rises {
        add(
            "reserved_rises",
            format!(
                "the memory that PyTorch holds still rose after {} steps, so a longer run needs more: batches differ in shape, or memory fragments. expandable_segments:True often helps",
                workload.steps
            ),
        );
    }
    if workload.died {
        add(
            "died",
            "the script ended with an error after these steps; `--output FILE` keeps what it said"
                .into(),
        );
    }
    if workload.caught_ooms > 0 {
        add(
            "caught_oom",
            format!(
                "memory ran out {} times on this card and the training went on: with a convolution plan that needs less scratch memory, or by the script's own means",
                workload.caught_ooms
            ),
        );
    }
    if workload.evaluated {
        add(
            "short_evaluation",
            "only the first batches of the evaluation were rehearsed: what a script collects on the card over all of them comes on top".into(),
        );
    }
    if workload.unknown_shapes.count > 0 {
        add(
            "value_dependent_shape",
            format!(
                "{} on values that only the model can compute ({}). brimful takes everything to be selected, which is the most it can need: this is an upper bound",
                shapes(workload.unknown_shapes.count),
                workload.unknown_shapes.places
            ),
        );
    }
    if workload.assumed_shapes.count > 0 {
        add(
            "assumed_values",
            format!(
                "{} on assumed values ({}): choices, such as those of experts, are taken to be balanced. A real run can need more",
                shapes(workload.assumed_shapes.count),
                workload.assumed_shapes.places
            ),
        );
    }
    if workload.assumed_numbers.count > 0 {
        add(
            "value_read",
            format!(
                "the script reads whole numbers that only the model can compute ({} times: {}). Sizes that it makes from them are assumed",
                workload.assumed_numbers.count, workload.assumed_numbers.places
            ),
        );
    }
    if workload.cudnn_guessed && !workload.fake_tensors {
        add(
            "cudnn_workspaces_unknown",
            "cuDNN's workspaces are not known: no cuDNN of version 9.8 or newer was found beside torch (one behind a wrapper script is not); reserved memory of convolutional networks is 11 % higher in the median, up to 38 %".into(),
        );
    }
    if workload.cudnn_benchmark {
        add(
            "autotuned_kernels",
            "torch.backends.cudnn.benchmark chooses kernels by timing them: the workspaces on a card may differ from these".into(),
        );
    }
    if workload.autotuned {
        add(
            "autotuned_kernels",
            "torch.compile chooses kernels by timing them, which a phantom cannot".into(),
        );
    }
    if !workload.unknown_calls.is_empty() {
        add(
            "unknown_call",
            format!(
                "the phantom does not know {}; it answered \"done\"",
                workload.unknown_calls.join(", ")
            ),
        );
    }
    if !workload.guesses.is_empty() {
        add(
            "guessed_size",
            format!(
                "sizes by rule of thumb, not by NVIDIA's libraries: {}",
                workload.guesses.join(", ")
            ),
        );
    }
    if workload.world_size > 1 {
        add(
            "nccl_estimated",
            "NCCL's buffers are an estimate from public reports (0.5 to 1.6 GB for each communicator)".into(),
        );
    }
    if let Some(growth) = growth(workload, story) {
        add(
            "still_growing",
            format!(
                "memory was still growing between the last two steps, by {growth} bytes: a longer rehearsal (--steps) tells more"
            ),
        );
    }
    let version: Result<TorchVersion, _> = workload.trace.torch.parse();
    match version {
        Ok(version) if version > TorchVersion::NEWEST_CHECKED => add(
            "new_torch",
            format!(
                "torch {version} is newer than the newest release that was checked ({})",
                TorchVersion::NEWEST_CHECKED
            ),
        ),
        Ok(version) if version.tie() == Tie::LowestAddress => add(
            "address_order",
            format!(
                "torch {version} prefers low addresses, which the driver chooses: reserved memory varies by about 1 %"
            ),
        ),
        _ => {}
    }
    if let Some(problem) = workload.problems.first() {
        add(
            "hook_problem",
            format!("the rehearsal met a problem, figures may be incomplete: {problem}"),
        );
    }
    found
}

fn shapes(count: u64) -> String {
    match count {
        1 => "1 shape depends".to_owned(),
        count => format!("{count} shapes depend"),
    }
}

/// Bytes that the end of the last step holds above the end of the step before, if any.
fn growth(workload: &Workload, story: &Story) -> Option<u64> {
    let [.., before, last] = story.step_ends.as_slice() else {
        return None;
    };
    if story.step_ends.len() < 3 {
        // Optimizer state appears in the first step.
        return None;
    }
    let live_at = |event: usize| -> u64 {
        workload
            .trace
            .allocations
            .iter()
            .zip(story.births.iter().zip(&story.deaths))
            .filter(|(_, (birth, death))| {
                birth.is_some_and(|birth| birth.event <= event)
                    && death.is_none_or(|death| death.event > event)
            })
            .map(|(allocation, _)| allocation.requested)
            .sum()
    };
    let (before, last) = (live_at(*before), live_at(*last));
    // A few counters are no growth.
    last.checked_sub(before).filter(|growth| *growth > 1 << 20)
}
