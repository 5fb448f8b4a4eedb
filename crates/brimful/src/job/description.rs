//! A job as its user describes it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::job::config::ConfigOverrides;
use crate::job::knob::{Choices, Knob, Science, knobs};
use crate::job::value::Value;

/// A job as its user describes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// The command line, with places for knobs: `{workers}`.
    pub command: Vec<String>,
    /// Patterns of the files or directories that hold checkpoints, below the job's directory.
    pub checkpoints: Vec<String>,
    /// What is added to the command to go on from `{checkpoint}`; empty where the script finds it by itself.
    pub resume: Vec<String>,
    /// Arguments that are added at the end, by a mode.
    pub extra: Vec<String>,
    /// Other places of the command, such as a mode's `max_steps`.
    pub values: BTreeMap<String, Value>,
    /// Samples per optimizer step, over all ranks and accumulated micro-batches; never changed.
    pub effective_batch: Option<u64>,
    /// In the user's order.
    pub knobs: Vec<Knob>,
    /// Knobs of other science in the order in which they may be given up.
    pub sacrifice: Vec<String>,
    /// YAML or JSON files that the command names, with the values that their copies get.
    pub config: Vec<ConfigOverrides>,
}

impl Job {
    pub fn knob(&self, name: &str) -> Option<&Knob> {
        self.knobs.iter().find(|knob| knob.name == name)
    }

    /// Knobs that change the result.
    pub fn other_science(&self) -> impl Iterator<Item = &Knob> {
        self.knobs
            .iter()
            .filter(|knob| knob.science() == Science::Other)
    }

    /// Micro-batches that keep the effective batch, best first: with `world_size` ranks, each makes a whole number of
    /// them per step. Largest first where they are not listed; as listed where nothing has to be kept.
    pub fn micro_batches(&self, world_size: u64) -> Vec<u64> {
        let Some(knob) = self.knob(knobs::MICRO_BATCH) else {
            return Vec::new();
        };
        let fits = |batch: u64| match (self.effective_batch, batch.checked_mul(world_size.max(1))) {
            (Some(effective), Some(all)) => all > 0 && effective.is_multiple_of(all),
            (None, _) => true,
            (_, None) => false,
        };
        match (&knob.choices, self.effective_batch) {
            (Choices::Listed(values), _) => values
                .iter()
                .filter_map(Value::count)
                .filter(|batch| fits(*batch))
                .collect(),
            (Choices::Auto, None) => Vec::new(),
            (Choices::Auto, Some(effective)) => {
                let mut found: Vec<u64> = divisors(effective)
                    .into_iter()
                    .filter(|batch| fits(*batch))
                    .collect();
                found.reverse();
                found
            }
        }
    }
}

/// All divisors, smallest first.
fn divisors(number: u64) -> Vec<u64> {
    let small: Vec<u64> = (1..=number)
        .take_while(|divisor: &u64| divisor.saturating_mul(*divisor) <= number)
        .filter(|divisor| number.is_multiple_of(*divisor))
        .collect();
    let mut all = small.clone();
    all.extend(
        small
            .iter()
            .rev()
            .map(|divisor| number / divisor)
            .filter(|divisor| divisor.saturating_mul(*divisor) > number),
    );
    all
}
