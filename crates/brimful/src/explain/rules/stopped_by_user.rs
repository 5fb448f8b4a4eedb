//! The user stopped the run.

use crate::explain::rules::Rule;
use crate::explain::rules::telling::proof;
use crate::explain::signs::Signs;
use crate::explain::{Cause, Confidence, Detail, Evidence, EvidenceSource, Verdict};
use crate::record::Outcome;

pub(super) const RULE: Rule = Rule {
    id: "stopped_by_user",
    about: "Ctrl-C, or a signal to brimful that it passed on, for example from a scheduler at the time limit.",
    check,
};

fn check(evidence: &Evidence, signs: &Signs<'_>) -> Option<Verdict> {
    let Outcome::StoppedByUser { signal } = evidence.end.as_ref()?.outcome else {
        return None;
    };
    let name = match signal {
        2 => "Ctrl-C".to_owned(),
        15 => "SIGTERM, sent to brimful".to_owned(),
        other => format!("signal {other}, sent to brimful"),
    };
    let mut proofs = vec![proof(
        EvidenceSource::WaitStatus,
        format!("exited after {name}"),
    )];
    if let Some(kills) = signs.own_kills() {
        proofs.push(proof(
            EvidenceSource::Kernel,
            format!("before that, the kernel counted {kills} OOM kills in the cgroup of this job"),
        ));
    }
    Some(Verdict {
        cause: Cause::NotMemory,
        confidence: Confidence::Proved,
        detail: Detail::StoppedByUser,
        summary: format!("the run was stopped from outside: {name}"),
        evidence: proofs,
        remedies: Vec::new(),
        would_settle: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use crate::explain::Cause;
    use crate::explain::rules::testing::{check, ended};
    use crate::record::Outcome;

    #[test]
    fn ctrl_c_is_the_users_wish() {
        check(
            &ended(Outcome::StoppedByUser { signal: 2 }),
            Cause::NotMemory,
            "stopped_by_user",
            "Ctrl-C",
        );
    }
}
