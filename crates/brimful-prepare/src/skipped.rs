//! Samples that were left out, and why.

use brimful_load::pipeline::SampleError;
use serde::{Deserialize, Serialize};

/// Reasons that are kept; all are counted.
const MAX_REASONS: usize = 100;

/// Samples that were left out because they failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedSamples {
    pub count: u64,
    /// Of the first ones.
    pub reasons: Vec<String>,
}

impl SkippedSamples {
    pub(crate) fn add(&mut self, error: &SampleError) {
        self.count += 1;
        if self.reasons.len() < MAX_REASONS {
            self.reasons.push(format!("{error}: {}", error.cause));
        }
    }

    pub(crate) fn extend(&mut self, other: &SkippedSamples) {
        self.count += other.count;
        let room = MAX_REASONS - self.reasons.len();
        self.reasons
            .extend(other.reasons.iter().take(room).cloned());
    }
}
