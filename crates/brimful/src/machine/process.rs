//! Limits that the kernel keeps for each process.

use crate::fact::Fact;

/// A soft limit; unlimited is a value, not a missing one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rlimit {
    Finite(u64),
    Unlimited,
}

/// The soft limits that stop training runs, and the kernel's cap on mappings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessLimits {
    /// Bytes of address space (`ulimit -v`).
    pub address_space: Fact<Rlimit>,
    /// Bytes of private writable memory (`ulimit -d`).
    pub data: Fact<Rlimit>,
    /// Bytes that may be locked in memory (`ulimit -l`).
    pub locked_memory: Fact<Rlimit>,
    /// Open files (`ulimit -n`).
    pub open_files: Fact<Rlimit>,
    /// Memory mappings of one process (`vm.max_map_count`).
    pub max_map_count: Fact<u64>,
}

impl Rlimit {
    pub fn finite(self) -> Option<u64> {
        match self {
            Rlimit::Finite(value) => Some(value),
            Rlimit::Unlimited => None,
        }
    }
}
