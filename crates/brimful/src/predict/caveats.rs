//! Caveats: reasons why a prediction is less accurate.

use brimful_allocsim::version::{Tie, TorchVersion};

use super::Workload;
use super::story::Story;
use crate::cards;
use crate::units::Bytes;

/// A reason to trust the prediction less.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caveat {
    pub id: &'static str,
    pub text: String,
}

/// A GPU without its own memory runs out before its total is reached.
pub(super) fn memory_of_the_host(card: &str) -> Option<Caveat> {
    cards::shares_host_memory(card).then(|| Caveat {
        id: "shared_with_host",
        text: format!(
            "{card} shares its memory with the host: host memory of the script and of other programs comes on top"
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
            "this torch has no CUDA, so the estimate is less accurate: brimful used fake tensors and approximated PyTorch's choice of kernels, without the workspaces of cuDNN and of some kernels. Use a CUDA build of torch for exact predictions; it needs no GPU".into(),
        );
    }
    if workload.uncompiled {
        add(
            "uncompiled",
            "torch.compile needs CUDA, which this torch does not have: the code ran uncompiled"
                .into(),
        );
    }
    if workload.steps == 0 {
        add(
            "no_step",
            "no optimizer step was observed: gradients and optimizer state may be missing".into(),
        );
    } else if workload.steps < 2 {
        add(
            "one_step",
            "only one optimizer step was rehearsed; later steps often need more memory".into(),
        );
    } else if workload.ended_early {
        add(
            "ended_early",
            format!("the script exited after {} steps", workload.steps),
        );
    }
    if !workload.idle_optimizers.is_empty() {
        add(
            "optimizer_without_steps",
            format!(
                "some optimizers made no step during the rehearsal, so memory may be missing: {}",
                workload.idle_optimizers.join("; ")
            ),
        );
    }
    if workload.steps_by_script {
        add(
            "steps_by_script",
            "the script updates its parameters without an optimizer: steps were counted from new gradients".into(),
        );
    }
    if workload.full_generation {
        add(
            "full_generation",
            "generate() produced the maximum number of tokens, which needs the most memory".into(),
        );
    }
    if workload.managed > Bytes::ZERO {
        add(
            "managed_memory",
            format!(
                "{} of managed memory, such as the state of a paged optimizer, is not included: the driver keeps it on the GPU if it fits, and moves it to host memory otherwise",
                workload.managed
            ),
        );
    }
    if workload.reserved_rises {
        add(
            "reserved_rises",
            format!(
                "reserved memory was still growing after {} steps, so a longer run needs more: batches differ in shape, or memory is fragmented. expandable_segments:True often helps",
                workload.steps
            ),
        );
    }
    if workload.died {
        add(
            "died",
            "the script failed after these steps; use `--output FILE` to save its output".into(),
        );
    }
    if workload.caught_ooms > 0 {
        add(
            "caught_oom",
            format!(
                "GPU memory ran out {} times and the run continued: with a convolution algorithm that needs a smaller workspace, or because the script handled the error",
                workload.caught_ooms
            ),
        );
    }
    if workload.evaluated {
        add(
            "short_evaluation",
            "only the first batches of the evaluation were rehearsed: outputs that the script collects on the GPU over all batches come on top".into(),
        );
    }
    if workload.unknown_shapes.count > 0 {
        add(
            "value_dependent_shape",
            format!(
                "{} on values that only a real model computes ({}). brimful assumes the largest shape, so this is an upper bound",
                shapes(workload.unknown_shapes.count),
                workload.unknown_shapes.places
            ),
        );
    }
    if workload.assumed_shapes.count > 0 {
        add(
            "assumed_values",
            format!(
                "{} on assumed values ({}): choices, for example of experts, are assumed to be balanced. A real run can need more",
                shapes(workload.assumed_shapes.count),
                workload.assumed_shapes.places
            ),
        );
    }
    if workload.assumed_numbers.count > 0 {
        add(
            "value_read",
            format!(
                "the script reads integers that only a real model computes ({} times: {}). Sizes derived from them are assumptions",
                workload.assumed_numbers.count, workload.assumed_numbers.places
            ),
        );
    }
    if workload.cudnn_guessed && !workload.fake_tensors {
        add(
            "cudnn_workspaces_unknown",
            "the workspaces of cuDNN are unknown: no cuDNN 9.8 or later was found next to torch (a wrapper script can hide it); reserved memory of convolutional networks is 11 % higher in the median, up to 38 %".into(),
        );
    }
    if workload.cudnn_benchmark {
        add(
            "autotuned_kernels",
            "torch.backends.cudnn.benchmark chooses kernels by timing them: the workspaces on a real GPU may differ".into(),
        );
    }
    if workload.autotuned {
        add(
            "autotuned_kernels",
            "torch.compile chooses kernels by timing them, which is not possible on the phantom GPU".into(),
        );
    }
    if !workload.unknown_calls.is_empty() {
        add(
            "unknown_call",
            format!(
                "the phantom GPU does not implement {}, and reported success",
                workload.unknown_calls.join(", ")
            ),
        );
    }
    if !workload.guesses.is_empty() {
        add(
            "guessed_size",
            format!(
                "some sizes are rules of thumb, not values from the NVIDIA libraries: {}",
                workload.guesses.join(", ")
            ),
        );
    }
    if workload.world_size > 1 {
        add(
            "nccl_estimated",
            "the size of the NCCL buffers is estimated from public reports (0.5 to 1.6 GB per communicator)".into(),
        );
    }
    if let Some(growth) = growth(workload, story).map(Bytes) {
        add(
            "still_growing",
            format!(
                "memory was still growing between the last two steps, by {growth}: use a longer rehearsal (--steps)"
            ),
        );
    }
    let version: Result<TorchVersion, _> = workload.trace.torch.parse();
    match version {
        Ok(version) if version > TorchVersion::NEWEST_CHECKED => add(
            "new_torch",
            format!(
                "torch {version} is newer than the latest tested release ({})",
                TorchVersion::NEWEST_CHECKED
            ),
        ),
        Ok(version) if version.tie() == Tie::LowestAddress => add(
            "address_order",
            format!(
                "torch {version} prefers low addresses, which the driver assigns: reserved memory varies by about 1 %"
            ),
        ),
        _ => {}
    }
    if let Some(problem) = workload.problems.first() {
        add(
            "hook_problem",
            format!("the rehearsal had a problem, so values may be incomplete: {problem}"),
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
