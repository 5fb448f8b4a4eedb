//! The machine that a request is about: this one or a recorded one, with some of it replaced.

use brimful::machine::Machine;
use brimful::units::Bytes;
use brimful::{cards, profiles};
use brimful_probe::{Environment, PythonHint, Surroundings};
use brimful_rehearse::NO_CARD;

use crate::error::WorkflowError;

/// Which machine to describe.
#[derive(Clone, Debug, Default)]
pub struct MachineRequest {
    /// A recorded machine, such as `colab-t4`; this machine without it.
    pub as_machine: Option<String>,
    /// GPU models in place of the machine's own, such as `2x t4`; `none` has no effect here. Alternatives (with commas)
    /// are refused: one machine has one set of GPUs.
    pub gpu: Option<String>,
    /// In place of the cgroup memory limit.
    pub memory: Option<Bytes>,
    /// The environment variables of this process.
    pub environment: Environment,
    pub python: PythonHint,
}

impl MachineRequest {
    /// Whether it is this machine with its own memory limit.
    pub(crate) fn is_here(&self) -> bool {
        self.as_machine.is_none() && self.memory.is_none()
    }

    /// Whether the job trains on CPUs.
    pub(crate) fn is_without_gpu(&self) -> bool {
        self.gpu.as_deref() == Some(NO_CARD)
    }
}

/// Reads this machine or looks up a recorded one.
pub fn describe_machine(request: MachineRequest) -> Result<Machine, WorkflowError> {
    // Names are checked first: a misspelt GPU is reported before anything is read.
    let gpu = request.gpu.as_deref().filter(|gpu| *gpu != NO_CARD);
    if let Some(list) = gpu.filter(|list| list.contains(',')) {
        return Err(WorkflowError::Alternatives { list: list.into() });
    }
    let cards = gpu.map(cards::find_all).transpose()?;
    let limit = request.memory.map(Bytes::as_memory_limit).transpose()?;
    let mut machine = match &request.as_machine {
        Some(name) => profiles::find(name)?.machine(),
        None => brimful_probe::probe(&Surroundings::live(request.environment, request.python)?),
    };
    if let Some(cards) = cards {
        machine = machine.with_cards(&cards);
    }
    if let Some(limit) = limit {
        machine = machine.with_memory(limit);
    }
    Ok(machine)
}
