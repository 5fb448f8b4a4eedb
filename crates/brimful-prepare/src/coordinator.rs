//! A preparation whose tasks run elsewhere: who places them begins, waits for all, and finishes.

use std::fs::File;
use std::path::Path;

use crate::error::PrepareError;
use crate::manifest::Manifest;
use crate::preparation::Preparation;
use crate::recipe::Recipe;
use crate::shard;

/// A preparation that is begun and locked. Tasks are run with [`Preparation::run_map_task`] and
/// [`Preparation::run_shard_task`] by processes that reach the same files.
#[derive(Debug)]
pub struct Coordinator {
    preparation: Preparation,
    _lock: Option<File>,
}

/// What is found where a preparation begins.
#[derive(Debug)]
pub enum CoordinatorState {
    Finished(Box<Manifest>),
    Locked(Box<Coordinator>),
}

impl Coordinator {
    /// Begins or continues; writes nothing if the dataset is finished or refused.
    pub fn begin(recipe: &Recipe, out: &Path) -> Result<CoordinatorState, PrepareError> {
        Coordinator::locked(Preparation::begin(recipe, out)?)
    }

    /// Continues what was begun in a directory.
    pub fn open(out: &Path) -> Result<CoordinatorState, PrepareError> {
        Coordinator::locked(Preparation::open(out)?)
    }

    fn locked(preparation: Preparation) -> Result<CoordinatorState, PrepareError> {
        if let Some(manifest) = preparation.finished()? {
            return Ok(CoordinatorState::Finished(Box::new(manifest)));
        }
        let lock = preparation.lock()?;
        if let Some(manifest) = preparation.finished()? {
            return Ok(CoordinatorState::Finished(Box::new(manifest)));
        }
        Ok(CoordinatorState::Locked(Box::new(Coordinator {
            preparation,
            _lock: lock,
        })))
    }

    pub fn preparation(&self) -> &Preparation {
        &self.preparation
    }

    /// Map tasks that are to be run, and then that of the tails, which is the last number.
    pub fn missing_map_tasks(&self) -> Vec<u64> {
        let tasks = 0..self.preparation.map_tasks();
        tasks
            .filter(|task| self.preparation.finished_run(*task).is_none())
            .collect()
    }

    /// Shard tasks, when all runs are there.
    pub fn shards(&self) -> Result<u64, PrepareError> {
        self.preparation.shards(&self.preparation.runs()?)
    }

    /// Writes the manifest, when all shards are there.
    pub fn finish(&self) -> Result<Manifest, PrepareError> {
        let runs = self.preparation.runs()?;
        let shards = self.preparation.shards(&runs)?;
        let entries = (0..shards)
            .map(|number| shard::finished_shard(&self.preparation, number, shards))
            .collect::<Result<Vec<_>, _>>()?;
        self.preparation.finish(&runs, entries)
    }
}
