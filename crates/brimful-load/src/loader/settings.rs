//! How batches are made.

use brimful::units::Bytes;

use crate::loader::error::LoaderError;

/// What happens to a sample that cannot be read or transformed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// The epoch ends with its error.
    #[default]
    Raise,
    /// It is left out of its batch, and counted.
    Skip,
}

/// How batches are made.
#[derive(Clone, Debug)]
pub struct LoaderSettings {
    pub batch_size: u64,
    /// Nothing for the order of the source.
    pub shuffle_seed: Option<u64>,
    /// Of random ops.
    pub seed: u64,
    /// All that it may hold: what threads read and make, and batches that were not handed out yet.
    pub memory: Bytes,
    /// `None` for the number that keeps the CPUs busy.
    pub threads: Option<usize>,
    /// Maximum number of batches made ahead, if the memory allows.
    pub prefetch: u64,
    pub rank: u64,
    pub world_size: u64,
    pub drop_last: bool,
    pub on_error: OnError,
}

impl LoaderSettings {
    pub(super) fn check(&self) -> Result<(), LoaderError> {
        let wrong = |name, expected: &str, found: u64| {
            Err(LoaderError::Setting {
                name,
                expected: expected.to_owned(),
                found: found.to_string(),
            })
        };
        if self.batch_size == 0 {
            return wrong("batch_size", "at least 1", 0);
        }
        if self.threads == Some(0) {
            return wrong("threads", "at least 1", 0);
        }
        if self.world_size == 0 {
            return wrong("world_size", "at least 1", 0);
        }
        if self.rank >= self.world_size {
            let expected = format!("below the world size {}", self.world_size);
            return wrong("rank", &expected, self.rank);
        }
        Ok(())
    }
}
