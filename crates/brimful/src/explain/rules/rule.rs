//! One entry of the catalogue of rules.

use crate::explain::signs::Signs;
use crate::explain::{Evidence, Verdict};

/// One entry of the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    pub id: &'static str,
    /// For the reference page: when it fires and why that matters.
    pub about: &'static str,
    pub(super) check: fn(&Evidence, &Signs<'_>) -> Option<Verdict>,
}
