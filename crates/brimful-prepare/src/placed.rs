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
pub struct Placed {
    preparation: Preparation,
    _lock: File,
}

impl Placed {
    pub fn begin(recipe: &Recipe, out: &Path) -> Result<Placed, PrepareError> {
        let preparation = Preparation::begin(recipe, out)?;
        preparation.write()?;
        let lock = preparation.work().lock()?;
        Ok(Placed {
            preparation,
            _lock: lock,
        })
    }

    pub fn preparation(&self) -> &Preparation {
        &self.preparation
    }

    /// Map tasks that are to be run, and then that of the tails, which is the last number.
    pub fn missing_map_tasks(&self) -> Vec<u64> {
        let tasks = 0..self.preparation.map_tasks();
        tasks
            .filter(|task| !self.preparation.work().run(*task).exists())
            .collect()
    }

    /// Shard tasks, when all runs are there.
    pub fn shards(&self) -> Result<u64, PrepareError> {
        let runs = self.preparation.runs()?;
        let samples = runs.iter().map(|run| run.footer.records()).sum();
        if samples == 0 {
            return Err(PrepareError::NoSamples {
                inputs: self.preparation.shown_inputs(),
            });
        }
        Ok(self.preparation.shards(samples))
    }

    /// Writes the manifest, when all shards are there.
    pub fn finish(&self) -> Result<Manifest, PrepareError> {
        let runs = self.preparation.runs()?;
        let samples = runs.iter().map(|run| run.footer.records()).sum();
        let shards = self.preparation.shards(samples);
        let entries = (0..shards)
            .map(|number| shard::finished_shard(&self.preparation, number))
            .collect::<Result<Vec<_>, _>>()?;
        self.preparation.finish(&runs, entries)
    }
}
