//! The bytes that tasks share.

use std::sync::{Condvar, Mutex, PoisonError};

use brimful::units::Bytes;

use crate::error::PrepareError;

/// Bytes that tasks of one process may hold together.
#[derive(Debug)]
pub(crate) struct TaskBudget {
    all: u64,
    free: Mutex<u64>,
    freed: Condvar,
}

/// Bytes that one task may hold, until it is dropped.
#[derive(Debug)]
pub(crate) struct Share<'a> {
    budget: &'a TaskBudget,
    bytes: u64,
}

impl TaskBudget {
    pub(crate) fn new(memory: Bytes) -> TaskBudget {
        TaskBudget {
            all: memory.get(),
            free: Mutex::new(memory.get()),
            freed: Condvar::new(),
        }
    }

    pub(crate) fn all(&self) -> Bytes {
        Bytes(self.all)
    }

    /// Takes the bytes if they are free now.
    pub(crate) fn try_take(&self, bytes: u64) -> Option<Share<'_>> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        *free = free.checked_sub(bytes)?;
        Some(Share {
            budget: self,
            bytes,
        })
    }

    /// Waits until the bytes are free. A waiting task holds nothing, so there is no deadlock.
    pub(crate) fn take(&self, bytes: u64, what: &str) -> Result<Share<'_>, PrepareError> {
        if bytes > self.all {
            return Err(PrepareError::TooLittleMemory {
                what: what.to_owned(),
                needed: Bytes(bytes),
                memory: self.all(),
            });
        }
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        while *free < bytes {
            free = self
                .freed
                .wait(free)
                .unwrap_or_else(PoisonError::into_inner);
        }
        *free -= bytes;
        Ok(Share {
            budget: self,
            bytes,
        })
    }
}

impl Share<'_> {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        *self
            .budget
            .free
            .lock()
            .unwrap_or_else(PoisonError::into_inner) += self.bytes;
        self.budget.freed.notify_all();
    }
}
