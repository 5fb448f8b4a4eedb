//! The run finished.

use std::fmt::Write as _;

use crate::explain::rules::Rule;
use crate::explain::rules::telling::proof;
use crate::explain::signs::Signs;
use crate::explain::{Cause, Confidence, Detail, Evidence, EvidenceSource, Verdict};
use crate::record::{EndLine, Outcome};
use crate::units::Bytes;

pub(super) const RULE: Rule = Rule {
    id: "finished",
    about: "The run exited with code 0.",
    check,
};

fn check(evidence: &Evidence, signs: &Signs<'_>) -> Option<Verdict> {
    let end = evidence.end.as_ref()?;
    if end.outcome != Outcome::Finished {
        return None;
    }
    let mut proofs = vec![proof(EvidenceSource::WaitStatus, "exit code 0")];
    let mut summary = String::from("the run finished");
    for (what, peak, limit) in peaks(evidence, end) {
        let share = 100.0 * peak.share_of(limit);
        let _ = write!(summary, "; peak {what} {peak} of {limit} ({share:.0} %)");
    }
    let n_alarms = evidence
        .alarms
        .iter()
        .filter(|alarm| alarm.foretells_the_end())
        .count();
    if n_alarms > 0 {
        let alarms = match n_alarms {
            1 => "1 false alarm".to_owned(),
            n => format!("{n} false alarms"),
        };
        proofs.push(proof(
            EvidenceSource::Samples,
            format!("{alarms}: memory did not run out"),
        ));
    }
    if let Some(kills) = signs.own_kills() {
        summary.push_str(", although the kernel OOM killer killed processes of this job");
        proofs.push(proof(
            EvidenceSource::Kernel,
            format!("the kernel counted {kills} OOM kills in the cgroup of this job"),
        ));
    }
    Some(Verdict {
        cause: Cause::NotMemory,
        confidence: Confidence::Proved,
        detail: Detail::Finished,
        summary,
        evidence: proofs,
        remedies: Vec::new(),
        would_settle: Vec::new(),
    })
}

/// Peak use and total of each memory.
fn peaks(evidence: &Evidence, end: &EndLine) -> Vec<(String, Bytes, Bytes)> {
    let limit = evidence.attempt.as_ref().and_then(|attempt| attempt.limit);
    let host = end.peaks.host_used.zip(limit);
    let host = host.map(|(peak, limit)| ("host memory".to_owned(), peak, limit));
    let sampled = end.last.iter().flat_map(|sample| &sample.gpus);
    let gpus = sampled.filter_map(|gpu| {
        let mut peaks = end.peaks.gpu_used.iter();
        let (_, peak) = peaks.find(|(index, _)| *index == gpu.index)?;
        Some((format!("GPU {} memory", gpu.index), *peak, gpu.total))
    });
    host.into_iter().chain(gpus).collect()
}

#[cfg(test)]
mod tests {
    use crate::explain::Cause;
    use crate::explain::rules::testing::{check, ended};
    use crate::record::Outcome;
    use crate::units::Bytes;
    use crate::watch::{Alarm, Urgency};

    #[test]
    fn exit_code_zero_is_no_death() {
        let mut evidence = ended(Outcome::Finished);
        evidence.text =
            "CUDA out of memory. Tried to allocate 1.00 GiB, retrying with half the batch\ndone"
                .into();
        check(&evidence, Cause::NotMemory, "finished", "the run finished");
    }

    #[test]
    fn it_says_how_close_it_came_and_which_alarms_were_wrong() {
        let mut evidence = ended(Outcome::Finished);
        evidence.attempt.as_mut().unwrap().limit = Some(Bytes::from_gib(4));
        evidence.end.as_mut().unwrap().peaks.host_used = Some(Bytes::from_gib(3));
        evidence.alarms.push(Alarm {
            at_ms: 7,
            detector: "time_to_brim".into(),
            urgency: Urgency::Warning,
            message: "host memory reaches its limit".into(),
        });
        let verdict = check(
            &evidence,
            Cause::NotMemory,
            "finished",
            "the run finished; peak host memory 3 GiB of 4 GiB (75 %)",
        );
        let proofs: Vec<&str> = verdict
            .evidence
            .iter()
            .map(|proof| proof.text.as_str())
            .collect();
        assert!(
            proofs.contains(&"1 false alarm: memory did not run out"),
            "{proofs:?}"
        );
    }
}
