//! A SIGKILL that the kernel's OOM killer did not send.

use crate::explain::rules::Rule;
use crate::explain::rules::telling::{
    host_detail, host_proofs, host_remedies, proof, quoted, remedy,
};
use crate::explain::signs::Signs;
use crate::explain::{Cause, Confidence, Detail, Evidence, Source, Verdict};

pub(super) const RULE: Rule = Rule {
    id: "killed_by_someone",
    about: "A process of the job was ended by SIGKILL, and the kernel counted no kill for memory in the job's group. \
            With next to no headroom a program that acts before the kernel is likely; else somebody sent it.",
    check,
};

fn check(evidence: &Evidence, signs: &Signs<'_>) -> Option<Verdict> {
    if !signs.kernel_did_not_kill() {
        return None;
    }
    let leading = signs.leading();
    let told = leading.filter(|leading| {
        leading.sign.detail == Detail::Sigkill
            || leading.sign.cause == Cause::DataloaderWorkerKilledOom
    });
    if signs.signal != Some(9) && told.is_none() {
        return None;
    }
    let mut proofs = vec![proof(
        Source::Kernel,
        "the kernel counted no kill for want of memory in the job's group (oom_kill 0)",
    )];
    if signs.signal == Some(9) {
        proofs.push(proof(Source::WaitStatus, "ended by SIGKILL"));
    }
    if let Some(told) = &told {
        proofs.push(quoted(told));
    }
    proofs.extend(host_proofs(signs));
    if signs.series.was_nearly_full() == Some(true) {
        let words = signs.series.host_in_words().unwrap_or_default();
        let cause = match signs.victim_is_worker() {
            Some(_) if signs.signal != Some(9) => Cause::DataloaderWorkerKilledOom,
            _ => Cause::HostOomKill,
        };
        return Some(Verdict {
            cause,
            confidence: Confidence::Likely,
            detail: host_detail(signs, Detail::UserspaceKiller),
            summary: format!(
                "it was killed with next to no memory left ({words}), though not by the kernel: systemd-oomd, earlyoom or a scheduler acts before it"
            ),
            evidence: proofs,
            remedies: host_remedies(evidence, signs),
            would_settle: vec![
                "`journalctl -u systemd-oomd -u earlyoom`, at the time of its end".into(),
                "the scheduler's log of the job".into(),
            ],
        });
    }
    Some(Verdict {
        cause: Cause::NotMemory,
        // earlyoom and its like kill with a tenth of the memory left.
        confidence: if signs.series.was_far_from_full() {
            Confidence::Proved
        } else {
            Confidence::Likely
        },
        detail: Detail::KilledBySomeone,
        summary: "somebody killed it: it ended by SIGKILL, and the kernel counted no kill for want of memory".into(),
        evidence: proofs,
        remedies: vec![remedy("Ask who sends SIGKILL here: a person, a scheduler at its time limit, a watchdog, a launcher ending its ranks")],
        would_settle: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use crate::explain::Cause;
    use crate::explain::rules::testing::{check, ended, with_kills, with_used};
    use crate::record::Outcome;

    #[test]
    fn no_count_no_blame() {
        let evidence = with_used(
            with_kills(ended(Outcome::Killed { signal: 9 }), Some(0)),
            8,
            32,
        );
        check(&evidence, Cause::NotMemory, "killed_by_someone", "no kill");
    }

    #[test]
    fn a_killer_before_the_kernel_leaves_no_count() {
        let evidence = with_used(
            with_kills(ended(Outcome::Killed { signal: 9 }), Some(0)),
            32,
            32,
        );
        check(&evidence, Cause::HostOomKill, "", "next to no memory left");
    }

    #[test]
    fn the_dataloaders_word_is_no_proof_against_the_counter() {
        let mut evidence = with_used(
            with_kills(ended(Outcome::Failed { code: 1 }), Some(0)),
            8,
            32,
        );
        evidence.text =
            "RuntimeError: DataLoader worker (pid 71) is killed by signal: Killed.".into();
        check(&evidence, Cause::NotMemory, "killed_by_someone", "no kill");
    }
}
