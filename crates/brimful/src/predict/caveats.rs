//! Caveats: reasons why a prediction is less accurate.

use brimful_allocsim::version::{Tie, TorchVersion};

use super::story::Story;
use super::{AssumedCase, Workload};
use crate::cards;
use crate::units::Bytes;

/// What makes a prediction less accurate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaveatKind {
    FakeTensorFallback,
    Uncompiled,
    MoreGpusThanAsked,
    NoStep,
    OneStep,
    EndedEarly,
    OptimizerWithoutSteps,
    StepsByScript,
    FullGeneration,
    ManagedMemory,
    ReservedRises,
    Died,
    RanOut,
    CaughtOom,
    ShortEvaluation,
    ValueDependentShape,
    AssumedValues,
    ValueRead,
    CudnnWorkspacesUnknown,
    AutotunedKernels,
    UnknownCall,
    GuessedSize,
    NcclEstimated,
    StillGrowing,
    NewTorch,
    AddressOrder,
    HookProblem,
    SharedWithHost,
}

impl CaveatKind {
    /// The stable ID, as in documents.
    pub const fn id(self) -> &'static str {
        match self {
            CaveatKind::FakeTensorFallback => "fake_tensor_fallback",
            CaveatKind::Uncompiled => "uncompiled",
            CaveatKind::MoreGpusThanAsked => "more_gpus_than_asked",
            CaveatKind::NoStep => "no_step",
            CaveatKind::OneStep => "one_step",
            CaveatKind::EndedEarly => "ended_early",
            CaveatKind::OptimizerWithoutSteps => "optimizer_without_steps",
            CaveatKind::StepsByScript => "steps_by_script",
            CaveatKind::FullGeneration => "full_generation",
            CaveatKind::ManagedMemory => "managed_memory",
            CaveatKind::ReservedRises => "reserved_rises",
            CaveatKind::Died => "died",
            CaveatKind::RanOut => "ran_out",
            CaveatKind::CaughtOom => "caught_oom",
            CaveatKind::ShortEvaluation => "short_evaluation",
            CaveatKind::ValueDependentShape => "value_dependent_shape",
            CaveatKind::AssumedValues => "assumed_values",
            CaveatKind::ValueRead => "value_read",
            CaveatKind::CudnnWorkspacesUnknown => "cudnn_workspaces_unknown",
            CaveatKind::AutotunedKernels => "autotuned_kernels",
            CaveatKind::UnknownCall => "unknown_call",
            CaveatKind::GuessedSize => "guessed_size",
            CaveatKind::NcclEstimated => "nccl_estimated",
            CaveatKind::StillGrowing => "still_growing",
            CaveatKind::NewTorch => "new_torch",
            CaveatKind::AddressOrder => "address_order",
            CaveatKind::HookProblem => "hook_problem",
            CaveatKind::SharedWithHost => "shared_with_host",
        }
    }
}

/// A reason to trust the prediction less.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caveat {
    pub kind: CaveatKind,
    pub text: String,
}

/// A GPU without its own memory runs out before its total is reached.
pub(super) fn memory_of_the_host(card: &str) -> Option<Caveat> {
    cards::shares_host_memory(card).then(|| Caveat {
        kind: CaveatKind::SharedWithHost,
        text: format!(
            "{card} shares its memory with the host: host memory of the script and of other programs comes on top"
        ),
    })
}

/// The caveats of one prediction, in the order in which they matter.
struct Found(Vec<Caveat>);

impl Found {
    fn add(&mut self, kind: CaveatKind, text: impl Into<String>) {
        let text = text.into();
        self.0.push(Caveat { kind, text });
    }
}

/// All that apply, the most important first.
pub fn caveats(workload: &Workload, story: &Story) -> Vec<Caveat> {
    let mut found = Found(Vec::new());
    about_torch(workload, &mut found);
    about_gpus(workload, &mut found);
    about_steps(workload, &mut found);
    about_memory(workload, &mut found);
    about_values(workload, &mut found);
    about_libraries(workload, &mut found);
    about_the_rehearsal(workload, story, &mut found);
    found.0
}

/// About the build of torch.
fn about_torch(workload: &Workload, found: &mut Found) {
    if workload.fake_tensors {
        found.add(
            CaveatKind::FakeTensorFallback,
            "this torch has no CUDA, so the estimate is less accurate: brimful used fake tensors and approximated PyTorch's choice of kernels, without the workspaces of cuDNN and of some kernels. Use a CUDA build of torch for exact predictions; it needs no GPU",
        );
    }
    if workload.uncompiled {
        found.add(
            CaveatKind::Uncompiled,
            "torch.compile needs CUDA, which this torch does not have: the code ran uncompiled",
        );
    }
}

/// About the GPUs that the script sees.
fn about_gpus(workload: &Workload, found: &mut Found) {
    let added = workload.added_gpus;
    if added > 0 {
        let (gpus, numbers) = match added {
            1 => ("GPU", "this number"),
            _ => ("GPUs", "these numbers"),
        };
        found.add(
            CaveatKind::MoreGpusThanAsked,
            format!(
                "the script chooses {added} {gpus} that the rehearsed machine does not have (CUDA_VISIBLE_DEVICES): brimful added the same model under {numbers}. To rehearse a machine with more GPUs, use for example `--gpu \"4x t4\"`"
            ),
        );
    }
}

/// About the steps that were rehearsed.
fn about_steps(workload: &Workload, found: &mut Found) {
    if workload.steps == 0 {
        found.add(
            CaveatKind::NoStep,
            "no optimizer step was observed: gradients and optimizer state may be missing",
        );
    } else if workload.steps < 2 {
        found.add(
            CaveatKind::OneStep,
            "only one optimizer step was rehearsed; later steps often need more memory",
        );
    } else if workload.ended_early {
        found.add(
            CaveatKind::EndedEarly,
            format!("the script exited after {} steps", workload.steps),
        );
    }
    if !workload.idle_optimizers.is_empty() {
        found.add(
            CaveatKind::OptimizerWithoutSteps,
            format!(
                "some optimizers made no step during the rehearsal, so memory may be missing: {}",
                workload.idle_optimizers.join("; ")
            ),
        );
    }
    if workload.steps_by_script {
        found.add(
            CaveatKind::StepsByScript,
            "the script updates its parameters without an optimizer: steps were counted from new gradients",
        );
    }
    if workload.full_generation {
        found.add(
            CaveatKind::FullGeneration,
            "generate() produced the maximum number of tokens, which needs the most memory",
        );
    }
}

/// About memory that the script took besides, and what it did without enough.
fn about_memory(workload: &Workload, found: &mut Found) {
    if workload.managed > Bytes::ZERO {
        found.add(
            CaveatKind::ManagedMemory,
            format!(
                "{} of managed memory, such as the state of a paged optimizer, is not included: the driver keeps it on the GPU if it fits, and moves it to host memory otherwise",
                workload.managed
            ),
        );
    }
    if workload.reserved_rises {
        found.add(
            CaveatKind::ReservedRises,
            format!(
                "reserved memory was still growing after {} steps, so a longer run needs more: batches differ in shape, or memory is fragmented. expandable_segments:True often helps",
                workload.steps
            ),
        );
    }
    if workload.ran_out {
        found.add(
            CaveatKind::RanOut,
            "these values are a lower bound: they end where GPU memory ran out, because the script did not complete its steps when it was rehearsed again with more",
        );
    } else if workload.died {
        found.add(
            CaveatKind::Died,
            "the script failed after these steps; use `--output FILE` to save its output",
        );
    }
    if workload.caught_ooms > 0 && !workload.ran_out {
        found.add(
            CaveatKind::CaughtOom,
            format!(
                "GPU memory ran out {} times and the run continued: with a convolution algorithm that needs a smaller workspace, or because the script handled the error",
                workload.caught_ooms
            ),
        );
    }
    if workload.evaluated {
        found.add(
            CaveatKind::ShortEvaluation,
            "only the first batches of the evaluation were rehearsed: outputs that the script collects on the GPU over all batches come on top",
        );
    }
}

/// About sizes that depend on values.
fn about_values(workload: &Workload, found: &mut Found) {
    if workload.unknown_shapes.count > 0 {
        found.add(
            CaveatKind::ValueDependentShape,
            format!(
                "{} on values that only a real model computes ({}). {}",
                shapes(workload.unknown_shapes.count),
                workload.unknown_shapes.places,
                match workload.assumed {
                    AssumedCase::Usual | AssumedCase::Worst =>
                        "brimful assumes the largest shape, so this is an upper bound",
                    AssumedCase::Balanced =>
                        "The likely value assumes that masks select half of their elements, the worst case that they select all",
                }
            ),
        );
    }
    if workload.assumed_shapes.count > 0 {
        found.add(
            CaveatKind::AssumedValues,
            format!(
                "{} on assumed values ({}). {}",
                shapes(workload.assumed_shapes.count),
                workload.assumed_shapes.places,
                match workload.assumed {
                    AssumedCase::Usual =>
                        "Choices, for example of experts, are assumed to be balanced. A real run can need more",
                    AssumedCase::Balanced =>
                        "The likely value assumes that choices, for example of experts, are balanced, the worst case that nearly all are the same",
                    AssumedCase::Worst =>
                        "Nearly all choices, for example of experts, are assumed to be the same",
                }
            ),
        );
    }
    if workload.assumed_numbers.count > 0 {
        found.add(
            CaveatKind::ValueRead,
            format!(
                "the script reads integers that only a real model computes ({} times: {}). Sizes derived from them are assumptions",
                workload.assumed_numbers.count, workload.assumed_numbers.places
            ),
        );
    }
}

/// About NVIDIA's libraries.
fn about_libraries(workload: &Workload, found: &mut Found) {
    if workload.cudnn_guessed && !workload.fake_tensors {
        found.add(
            CaveatKind::CudnnWorkspacesUnknown,
            "the workspaces of cuDNN are unknown: no cuDNN 9.8 or later was found next to torch (a wrapper script can hide it); reserved memory of convolutional networks is 11 % higher in the median, up to 38 %",
        );
    }
    if workload.cudnn_benchmark {
        found.add(
            CaveatKind::AutotunedKernels,
            "torch.backends.cudnn.benchmark chooses kernels by timing them: the workspaces on a real GPU may differ",
        );
    }
    if workload.autotuned {
        found.add(
            CaveatKind::AutotunedKernels,
            "torch.compile chooses kernels by timing them, which is not possible on the phantom GPU",
        );
    }
    if !workload.unknown_calls.is_empty() {
        found.add(
            CaveatKind::UnknownCall,
            format!(
                "the phantom GPU does not implement {}, and reported success",
                workload.unknown_calls.join(", ")
            ),
        );
    }
    if !workload.guesses.is_empty() {
        found.add(
            CaveatKind::GuessedSize,
            format!(
                "some sizes are rules of thumb, not values from the NVIDIA libraries: {}",
                workload.guesses.join(", ")
            ),
        );
    }
    if workload.world_size > 1 || !workload.communicators.is_empty() {
        found.add(
            CaveatKind::NcclEstimated,
            "the memory of NCCL is estimated from measurements of other machines; a rank that also uses GPU 0 (without `torch.cuda.set_device`) takes 0.2 to 0.6 GiB more there",
        );
    }
}

/// About the rehearsal itself.
fn about_the_rehearsal(workload: &Workload, story: &Story, found: &mut Found) {
    if let Some(growth) = growth(workload, story).map(Bytes) {
        found.add(
            CaveatKind::StillGrowing,
            format!(
                "memory was still growing between the last two steps, by {growth}: use a longer rehearsal (--steps)"
            ),
        );
    }
    let version: Result<TorchVersion, _> = workload.trace.torch.parse();
    match version {
        Ok(version) if version > TorchVersion::NEWEST_CHECKED => found.add(
            CaveatKind::NewTorch,
            format!(
                "torch {version} is newer than the latest tested release ({})",
                TorchVersion::NEWEST_CHECKED
            ),
        ),
        Ok(version) if version.tie() == Tie::LowestAddress => found.add(
            CaveatKind::AddressOrder,
            format!(
                "torch {version} prefers low addresses, which the driver assigns: reserved memory varies by about 1 %"
            ),
        ),
        _ => {}
    }
    if let Some(problem) = workload.problems.first() {
        found.add(
            CaveatKind::HookProblem,
            format!("the rehearsal had a problem, so values may be incomplete: {problem}"),
        );
    }
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
