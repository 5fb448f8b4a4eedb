//! It did not die.

use crate::explain::rules::Rule;
use crate::explain::rules::telling::proof;
use crate::explain::signs::Signs;
use crate::explain::{Cause, Confidence, Evidence, Source, Verdict};
use crate::record::Outcome;

pub(super) const RULE: Rule = Rule {
    id: "finished",
    about: "The training ended with exit code 0.",
    check,
};

fn check(evidence: &Evidence, signs: &Signs<'_>) -> Option<Verdict> {
    let end = evidence.end.as_ref()?;
    if end.outcome != Outcome::Finished {
        return None;
    }
    let mut proofs = vec![proof(Source::WaitStatus, "exit code 0")];
    let mut summary = String::from("it finished");
    if let Some(kills) = signs.own_kills() {
        summary
            .push_str(", although the kernel killed processes of it for want of memory on the way");
        proofs.push(proof(
            Source::Kernel,
            format!("the kernel counted {kills} kills in the job's group"),
        ));
    }
    Some(Verdict {
        cause: Cause::NotMemory,
        confidence: Confidence::Proved,
        detail: "finished".into(),
        summary,
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
    fn exit_code_zero_is_no_death() {
        let mut evidence = ended(Outcome::Finished);
        evidence.text =
            "CUDA out of memory. Tried to allocate 1.00 GiB, retrying with half the batch\ndone"
                .into();
        check(&evidence, Cause::NotMemory, "finished", "it finished");
    }
}
