//! The command did not start.

use crate::explain::rules::Rule;
use crate::explain::rules::telling::{proof, remedy};
use crate::explain::signs::Signs;
use crate::explain::{Cause, Confidence, Detail, Evidence, EvidenceSource, Verdict};
use crate::record::Outcome;

pub(super) const RULE: Rule = Rule {
    id: "not_started",
    about: "The command failed to start.",
    check,
};

fn check(evidence: &Evidence, _signs: &Signs<'_>) -> Option<Verdict> {
    let Outcome::NotStarted { error } = &evidence.end.as_ref()?.outcome else {
        return None;
    };
    Some(Verdict {
        cause: Cause::NotMemory,
        confidence: Confidence::Proved,
        detail: Detail::NotStarted,
        summary: format!("the command failed to start: {error}"),
        evidence: vec![proof(EvidenceSource::WaitStatus, error.clone())],
        remedies: vec![remedy("Check the command, its path and its permissions")],
        would_settle: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use crate::explain::Cause;
    use crate::explain::rules::testing::{check, ended};
    use crate::record::Outcome;

    #[test]
    fn a_missing_program_is_no_death() {
        let evidence = ended(Outcome::NotStarted {
            error: "no such file: pyhton".into(),
        });
        check(&evidence, Cause::NotMemory, "not_started", "pyhton");
    }
}
