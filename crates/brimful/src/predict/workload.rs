//! What a rehearsal brings: the trace of one process and what is known about it.

use brimful_allocsim::trace::Trace;

use crate::predict::kind::Kind;
use crate::units::Bytes;

/// What one process of the training did on its GPU, and what is known about it.
#[derive(Clone, Debug, Default)]
pub struct Workload {
    /// Marks in it are `phase:…`, `module:…`, `step:…` and `tensors:`.
    pub trace: Trace,
    /// Addresses of tensors at the mark `tensors:`.
    pub tensors: Vec<NamedTensor>,
    /// Optimizer steps that were made.
    pub steps: u32,
    pub world_size: u32,
    /// Ranks of each communicator.
    pub communicators: Vec<u32>,
    /// Convolutions and other cuDNN calls were planned with the real heuristics of the installed cuDNN.
    pub cudnn_heuristics: bool,
    /// Convolutions were planned without knowing cuDNN's workspaces.
    pub cudnn_guessed: bool,
    /// The script ended before the asked steps.
    pub ended_early: bool,
    /// The script ended with an error after its first steps.
    pub died: bool,
    /// The GPU's memory ran out, and the script crashed or was stopped when it was rehearsed with more room.
    pub ran_out: bool,
    /// Optimizers that the script created and that made no step, or too few of them: their state may be missing.
    pub idle_optimizers: Vec<String>,
    /// The script changes its parameters without an optimizer.
    pub steps_by_script: bool,
    /// Text was generated, up to the greatest length that was allowed.
    pub full_generation: bool,
    /// Managed memory, as of paged optimizers: in no other figure.
    pub managed: Bytes,
    /// PyTorch still took more memory from the driver when the rehearsal ended.
    pub reserved_rises: bool,
    /// Requests that failed, and that the script or PyTorch went on after.
    pub caught_ooms: u64,
    /// An evaluation was rehearsed.
    pub evaluated: bool,
    pub compiled: bool,
    pub cudnn_benchmark: bool,
    /// What was assumed of the values that only the model could compute.
    pub assumed: AssumedCase,
    /// Shapes made from unknown values, as of `nonzero` and boolean masks.
    pub unknown_shapes: Occurrences,
    /// Shapes made from assumed values, as of a choice of experts.
    pub assumed_shapes: Occurrences,
    /// Whole numbers that the script read and only the model could compute.
    pub assumed_numbers: Occurrences,
    pub autotuned: bool,
    /// Torch has no CUDA: shapes without values stood in for the card's tensors, and no library was asked.
    pub fake_tensors: bool,
    /// `torch.compile` was asked for, and what it would have compiled ran as it is.
    pub uncompiled: bool,
    /// GPUs that the script chose, beyond those of the rehearsed machine.
    pub added_gpus: u32,
    /// Calls that the phantom does not know.
    pub unknown_calls: Vec<String>,
    /// Sizes that the phantom had to guess, such as `rnn`.
    pub guesses: Vec<String>,
    /// Hooks that failed; the figures by module may be incomplete.
    pub problems: Vec<String>,
}

/// What a rehearsal assumes of values that only the model could compute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AssumedCase {
    /// Choices are balanced, masks select everything: the only rehearsal.
    #[default]
    Usual,
    /// Choices are balanced, masks select half of their elements. There is a rehearsal of the worst case too.
    Balanced,
    /// Nearly all choices are the same, masks select everything.
    Worst,
}

/// How often something happened, and where in the script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Occurrences {
    pub count: u64,
    /// A few of the places, such as `nonzero, train.py:41`.
    pub places: String,
}

/// A tensor that has a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedTensor {
    pub address: u64,
    pub kind: Kind,
    pub name: String,
}
