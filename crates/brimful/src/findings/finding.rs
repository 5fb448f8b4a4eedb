//! A finding, and one entry of the catalogue that makes them.

use crate::machine::Machine;

/// A claim about one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub id: &'static str,
    pub severity: Severity,
    /// One sentence: what will happen.
    pub summary: String,
    /// What it rests on.
    pub evidence: Vec<String>,
    /// What to do, cheapest first.
    pub remedies: Vec<String>,
}

/// How much a finding matters, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// A usual training run fails.
    Fatal,
    /// A usual training run may fail, depending on what it does.
    Risk,
    /// Slower, smaller or other than one would think.
    Note,
}

/// One entry of the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    pub id: &'static str,
    pub severity: Severity,
    /// For the reference page: when it fires and why that matters.
    pub about: &'static str,
    pub(super) check: fn(&Machine) -> Option<Diagnosis>,
}

/// What a rule has to say when it fires.
#[derive(Debug)]
pub(super) struct Diagnosis {
    pub(super) summary: String,
    pub(super) evidence: Vec<String>,
    pub(super) remedies: Vec<String>,
}

impl Severity {
    pub fn name(self) -> &'static str {
        match self {
            Severity::Fatal => "fatal",
            Severity::Risk => "risk",
            Severity::Note => "note",
        }
    }
}
