//! brimful was killed together with the run.

use crate::explain::rules::Rule;
use crate::explain::rules::telling::{
    host_detail, host_proofs, host_remedies, limit_proof, proof, settles_a_kill,
};
use crate::explain::signs::Signs;
use crate::explain::text::Rank;
use crate::explain::{Cause, Confidence, Detail, Evidence, EvidenceSource, Verdict};
use crate::watch::Urgency;

pub(super) const RULE: Rule = Rule {
    id: "everything_killed",
    about: "The run record is incomplete: brimful was killed too, or the machine went down. If almost no headroom was left at \
            the last sample, the kernel OOM killer likely killed the whole cgroup, as on Kubernetes with cgroup v2.",
    check,
};

fn check(evidence: &Evidence, signs: &Signs<'_>) -> Option<Verdict> {
    if !evidence.supervisor_died || evidence.end.is_some() {
        return None;
    }
    let mut proofs = vec![proof(
        EvidenceSource::WaitStatus,
        "the run record is incomplete: brimful itself was killed, or the machine went down",
    )];
    let critical = evidence
        .alarms
        .iter()
        .rfind(|alarm| alarm.urgency == Urgency::Critical);
    if let Some(alarm) = critical {
        proofs.push(proof(
            EvidenceSource::Samples,
            format!("last alarm: {}", alarm.message),
        ));
    }
    proofs.extend(limit_proof(evidence));
    proofs.extend(host_proofs(signs));
    if signs.series.was_nearly_full() == Some(true) {
        let words = signs.series.host_in_words().unwrap_or_default();
        return Some(Verdict {
            cause: Cause::HostOomKill,
            confidence: Confidence::Likely,
            detail: host_detail(signs, Detail::EverythingKilled),
            summary: format!(
                "every process in the cgroup was likely killed because host memory ran out: {words}"
            ),
            evidence: proofs,
            remedies: host_remedies(evidence, signs),
            would_settle: settles_a_kill(),
        });
    }
    // An error that was printed before is stronger evidence than the missing end.
    if signs
        .leading()
        .is_some_and(|leading| leading.sign.rank <= Rank::Hinted)
    {
        return None;
    }
    let seen = signs.series.host_in_words().map_or_else(
        || "no sample of host memory was recorded".to_owned(),
        |words| format!("host memory: {words}"),
    );
    Some(Verdict {
        cause: Cause::Ambiguous,
        confidence: Confidence::CannotTell,
        detail: Detail::EverythingKilled,
        summary: format!(
            "brimful and the run ended at the same time for an unknown reason; {seen}"
        ),
        evidence: proofs,
        remedies: Vec::new(),
        would_settle: {
            let mut settles = settles_a_kill();
            settles.insert(
                0,
                "whether the machine rebooted: `last -x reboot`, `uptime`".into(),
            );
            settles
        },
    })
}

#[cfg(test)]
mod tests {
    use crate::explain::rules::testing::{check, with_used};
    use crate::explain::{Cause, Evidence};

    fn died() -> Evidence {
        Evidence {
            supervisor_died: true,
            ..Evidence::default()
        }
    }

    #[test]
    fn a_full_group_was_killed_together() {
        check(
            &with_used(died(), 32, 32),
            Cause::HostOomKill,
            "",
            "every process in the cgroup",
        );
    }

    #[test]
    fn with_room_left_nobody_can_say() {
        let verdict = check(
            &with_used(died(), 4, 32),
            Cause::Ambiguous,
            "everything_killed",
            "4 GiB of 32 GiB",
        );
        assert!(!verdict.would_settle.is_empty());
        check(&died(), Cause::Ambiguous, "everything_killed", "no sample");
    }
}
