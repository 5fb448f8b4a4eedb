//! What is asked of a plan.

use std::path::PathBuf;
use std::time::Duration;

use brimful::cards::Card;
use brimful::job::Job;
use brimful::plan::{LearntRun, Measurements, PlanLimits};

use crate::planning::cache::Cache;
use crate::protection::Protection;

/// What is to be planned.
#[derive(Clone, Debug)]
pub struct PlanQuestion {
    pub job: Job,
    pub room: PlanLimits,
    /// The room is that of this machine.
    pub here: bool,
    /// The GPU model of the machine and how many GPUs the job may use; `None` for a job on CPUs.
    pub card: Option<(&'static Card, usize)>,
    pub learnt: Vec<LearntRun>,
    /// What earlier runs measured on GPUs.
    pub measured: Measurements,
    /// Where rehearsals are kept; nothing to keep none.
    pub cache: Option<Cache>,
    /// Rehearse again what is in the cache.
    pub fresh: bool,
    pub steps: u32,
    pub time_limit: Duration,
    pub phantom: PathBuf,
    pub brimful_version: String,
    pub protection: Protection,
}
