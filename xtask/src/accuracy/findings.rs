//! What was found, as the page and the JSON show it.

use std::collections::BTreeMap;

use serde::Serialize;

use super::oom_messages::ContextScores;
use super::score::Errors;
use super::snapshots;
use super::verified::Verified;

/// The figures of one group of rows.
#[derive(Debug, Serialize)]
pub(super) struct Group {
    pub(super) name: &'static str,
    /// Scored rows of models that no choice was made on, which are all if there was nothing to choose.
    pub(super) test_half: Option<Errors>,
    /// All scored rows but those of the context.
    pub(super) all: Option<Errors>,
    /// All of them and the odd ones.
    pub(super) with_odd: Option<Errors>,
    /// Other estimates of the rows of the test half, and of all.
    pub(super) others: BTreeMap<&'static str, [Option<Errors>; 2]>,
    pub(super) safe: Option<Safe>,
    pub(super) out_of_memory: OutOfMemory,
    pub(super) worst: Vec<(String, f64)>,
}

/// How the safe value does.
#[derive(Debug, Serialize)]
pub(super) struct Safe {
    pub(super) rows: usize,
    /// Share of the test half whose measurement is above the safe value.
    pub(super) exceeded: f64,
    /// Median distance of the safe value above the measurement.
    pub(super) median_above: f64,
    pub(super) margin: f64,
    /// The margin that 97 of 100 rows of the calibration half need.
    pub(super) margin_needed_in_calibration_half: f64,
}

/// Yes or no.
#[derive(Debug, Default, Serialize)]
pub(super) struct OutOfMemory {
    pub(super) died_by_record: usize,
    pub(super) died_by_record_foretold: usize,
    pub(super) died_by_inference: usize,
    pub(super) died_by_inference_foretold: usize,
    pub(super) ran: usize,
    pub(super) ran_but_called_impossible: usize,
}

/// Everything that was found.
#[derive(Debug, Serialize)]
pub(super) struct Findings {
    pub(super) versions: String,
    pub(super) sample: Option<usize>,
    pub(super) contexts_mib: BTreeMap<&'static str, u64>,
    /// Nothing where the directory has no messages.
    pub(super) context_scores: Option<ContextScores>,
    pub(super) replays: Option<snapshots::Replays>,
    pub(super) rebuilt: Vec<snapshots::Rebuilt>,
    pub(super) groups: Vec<Group>,
    /// What users measured.
    pub(super) verified: Option<Verified>,
    pub(super) left_out: Vec<(String, String, usize)>,
    /// Sets that the directory does not have, or that cannot be read.
    pub(super) absent: Vec<String>,
    /// Sets without enough small models to take the context from.
    pub(super) assumed_contexts: Vec<&'static str>,
    pub(super) seconds_per_row: f64,
}
