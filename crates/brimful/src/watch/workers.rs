//! The memory of DataLoader workers, from their first look to their last.

use std::collections::BTreeMap;

use crate::watch::sample::{Role, Sample};

const MAX_WORKERS: usize = 512;

/// The workers that are alive, by process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Workers {
    by_pid: BTreeMap<u32, Worker>,
}

/// One worker, then and now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Worker {
    role: Role,
    pub first_ms: u64,
    pub last_ms: u64,
    first_private: u64,
    first_shared: u64,
    last_private: u64,
    pub last_shared: u64,
    pub n_looks: u32,
}

impl Workers {
    pub(crate) fn take(&mut self, sample: &Sample, now_ms: u64) {
        if sample.processes.is_empty() {
            return;
        }
        let mut seen = BTreeMap::new();
        for process in &sample.processes {
            if !matches!(process.role, Role::Worker { .. }) || seen.len() >= MAX_WORKERS {
                continue;
            }
            let (private, shared) = (process.private.get(), process.shared.get());
            let worker = self
                .by_pid
                .get(&process.pid)
                .filter(|worker| worker.role == process.role)
                .map_or(
                    Worker {
                        role: process.role,
                        first_ms: now_ms,
                        last_ms: now_ms,
                        first_private: private,
                        first_shared: shared,
                        last_private: private,
                        last_shared: shared,
                        n_looks: 1,
                    },
                    |worker| Worker {
                        last_ms: now_ms,
                        last_private: private,
                        last_shared: shared,
                        n_looks: worker.n_looks.saturating_add(1),
                        ..*worker
                    },
                );
            seen.insert(process.pid, worker);
        }
        self.by_pid = seen;
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Worker> {
        self.by_pid.values()
    }

    #[cfg(test)]
    pub(crate) fn n_held(&self) -> usize {
        self.by_pid.len()
    }
}

impl Worker {
    /// What it has for itself now and had not at first.
    pub(crate) fn private_rise(&self) -> u64 {
        self.last_private.saturating_sub(self.first_private)
    }

    /// What it shared at first and does not now.
    pub(crate) fn shared_fall(&self) -> u64 {
        self.first_shared.saturating_sub(self.last_shared)
    }
}
