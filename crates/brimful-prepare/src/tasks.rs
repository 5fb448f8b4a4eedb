//! Single tasks, for whoever places them.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use brimful::preview::Preview;
use brimful::units::Bytes;
use serde::Serialize;

use crate::budget::TaskBudget;
use crate::error::PrepareError;
use crate::map::{self, TaskLimits};
use crate::preparation::Preparation;
use crate::shard;
use crate::work;

/// What a preparation will take, as far as its first samples tell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Estimate {
    pub map_tasks: u64,
    pub samples: u64,
    pub shards: u64,
    pub input_bytes: u64,
    /// Of runs, which are removed at the end.
    pub run_bytes: u64,
    pub shard_bytes: u64,
    /// Nothing for an object store.
    pub free_bytes: Option<u64>,
    /// Of one CPU.
    pub cpu_seconds: f64,
}

impl Estimate {
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// What a trial has shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    pub estimate: Estimate,
    /// Samples of the first split, in their order among themselves.
    pub preview: Preview,
}

impl Preparation {
    /// How many shard tasks there are; nothing before all runs are there.
    pub fn shard_tasks(&self) -> Result<Option<u64>, PrepareError> {
        if self
            .work()
            .len_of(&self.work().run(self.map_tasks()))?
            .is_none()
        {
            return Ok(None);
        }
        self.shards(&self.runs()?).map(Some)
    }

    /// Runs one map task. The one behind the last makes blocks of what all others have left over.
    pub fn run_map_task(&self, task: u64, memory: Bytes) -> Result<(), PrepareError> {
        if task == self.map_tasks() {
            return map::tails_task(self).map(drop);
        }
        let is_stopped = AtomicBool::new(false);
        let limits = TaskLimits {
            budget: &self.budget(memory)?,
            threads: 1,
            is_stopped: &is_stopped,
        };
        map::map_task(self, task, limits).map(drop)
    }

    /// Runs one shard task, when all runs are there.
    pub fn run_shard_task(&self, shard: u64, memory: Bytes) -> Result<(), PrepareError> {
        // This process may have run map tasks before.
        self.close_pipeline();
        let runs = self.runs()?;
        let of = self.shards(&runs)?;
        if shard >= of {
            return Err(PrepareError::Setting {
                name: "task",
                expected: format!("below {of}"),
                found: shard.to_string(),
            });
        }
        let is_stopped = AtomicBool::new(false);
        let limits = TaskLimits {
            budget: &TaskBudget::new(memory),
            threads: 1,
            is_stopped: &is_stopped,
        };
        shard::shard_task(self, &runs, shard, of, limits).map(drop)
    }

    /// What all of it will take and, if `with_preview` is set, what samples look like, from the first split. Nothing is
    /// kept.
    pub fn estimate(&self, memory: Bytes, with_preview: bool) -> Result<Trial, PrepareError> {
        let scratch = work::scratch()?;
        let trial = self.elsewhere(scratch.path())?;
        let input_bytes: u64 = (0..self.map_tasks())
            .map(|task| self.split_bytes(task))
            .sum();
        let began = Instant::now();
        if self.map_tasks() > 0 {
            trial.run_map_task(0, memory)?;
        }
        let seconds = began.elapsed().as_secs_f64();
        let (records, preview) = if self.map_tasks() > 0 {
            let run = trial.run(0)?;
            let preview = if with_preview {
                trial.preview_run(&run)?
            } else {
                Preview::default()
            };
            (run.footer.records(), preview)
        } else {
            (0, Preview::default())
        };
        let first = self.split_bytes(0).max(1);
        let scale = input_bytes as f64 / first as f64;
        let samples = brimful::units::rounded(records as f64 * scale);
        let estimate = Estimate {
            map_tasks: self.map_tasks(),
            samples,
            shards: self.shards_of(samples),
            input_bytes,
            run_bytes: samples.saturating_mul(self.record_bytes() as u64 + 8),
            shard_bytes: samples.saturating_mul(self.sample_bytes()),
            free_bytes: (!self.work().is_remote()).then(|| free_bytes(self.work().out())),
            cpu_seconds: seconds * scale,
        };
        Ok(Trial { estimate, preview })
    }
}

/// Bytes that are free on the disk of a directory, which may not be there yet.
fn free_bytes(path: &Path) -> u64 {
    let above = path.ancestors().find(|path| path.exists());
    let here = above.unwrap_or(Path::new("."));
    rustix::fs::statvfs(here).map_or(0, |found| found.f_bavail.saturating_mul(found.f_frsize))
}
