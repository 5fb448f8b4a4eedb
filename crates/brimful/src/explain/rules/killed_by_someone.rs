//! A SIGKILL that the kernel OOM killer did not send.

use crate::explain::rules::Rule;
use crate::explain::rules::telling::{
    host_detail, host_proofs, host_remedies, proof, quoted, remedy,
};
use crate::explain::signs::Signs;
use crate::explain::{Cause, Confidence, Detail, Evidence, EvidenceSource, Verdict};

pub(super) const RULE: Rule = Rule {
    id: "killed_by_someone",
    about: "A process of this job received SIGKILL, and the kernel counted no OOM kill in its cgroup. If almost no headroom \
            was left, a user-space OOM killer is likely; otherwise a user or another program sent the signal.",
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
        EvidenceSource::Kernel,
        "the kernel OOM killer killed no process of this job (oom_kill 0)",
    )];
    if signs.signal == Some(9) {
        proofs.push(proof(EvidenceSource::WaitStatus, "killed by SIGKILL"));
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
                "the process was killed with almost no memory left ({words}), but not by the kernel: probably by systemd-oomd, earlyoom or a scheduler"
            ),
            evidence: proofs,
            remedies: host_remedies(evidence, signs),
            would_settle: vec![
                "`journalctl -u systemd-oomd -u earlyoom` at the time of the kill".into(),
                "the scheduler log of this job".into(),
            ],
        });
    }
    Some(Verdict {
        cause: Cause::NotMemory,
        // earlyoom and similar programs kill when 10 % of the memory is left.
        confidence: if signs.series.was_far_from_full() {
            Confidence::Proved
        } else {
            Confidence::Likely
        },
        detail: Detail::KilledBySomeone,
        summary: "not an out-of-memory kill: the process received SIGKILL, but the kernel OOM killer killed no process of this job".into(),
        evidence: proofs,
        remedies: vec![remedy("Find out what sent SIGKILL: a user, a scheduler time limit, a watchdog, or a launcher stopping its ranks")],
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
        check(
            &evidence,
            Cause::NotMemory,
            "killed_by_someone",
            "not an out-of-memory kill",
        );
    }

    #[test]
    fn a_killer_before_the_kernel_leaves_no_count() {
        let evidence = with_used(
            with_kills(ended(Outcome::Killed { signal: 9 }), Some(0)),
            32,
            32,
        );
        check(&evidence, Cause::HostOomKill, "", "almost no memory left");
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
        check(
            &evidence,
            Cause::NotMemory,
            "killed_by_someone",
            "not an out-of-memory kill",
        );
    }
}
