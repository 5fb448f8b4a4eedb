//! It did not die.

use std::fmt::Write as _;

use crate::explain::rules::Rule;
use crate::explain::rules::telling::proof;
use crate::explain::signs::Signs;
use crate::explain::{Cause, Confidence, Detail, Evidence, Source, Verdict};
use crate::record::{EndLine, Outcome};
use crate::units::Bytes;

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
    for (what, peak, limit) in peaks(evidence, end) {
        let share = 100.0 * peak.share_of(limit);
        let _ = write!(summary, "; {what} at most {peak} of {limit} ({share:.0} %)");
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
            Source::Samples,
            format!("{alarms}: memory did not run out"),
        ));
    }
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
        detail: Detail::Finished,
        summary,
        evidence: proofs,
        remedies: Vec::new(),
        would_settle: Vec::new(),
    })
}

/// How close it came: what was used at most, and of how much.
fn peaks(evidence: &Evidence, end: &EndLine) -> Vec<(String, Bytes, Bytes)> {
    let limit = evidence.attempt.as_ref().and_then(|attempt| attempt.limit);
    let host = end.peaks.host_used.zip(limit);
    let host = host.map(|(peak, limit)| ("host memory".to_owned(), peak, limit));
    let sampled = end.last.iter().flat_map(|sample| &sample.gpus);
    let gpus = sampled.filter_map(|gpu| {
        let mut peaks = end.peaks.gpu_used.iter();
        let (_, peak) = peaks.find(|(index, _)| *index == gpu.index)?;
        Some((format!("GPU {}", gpu.index), *peak, gpu.total))
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
        check(&evidence, Cause::NotMemory, "finished", "it finished");
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
            "it finished; host memory at most 3 GiB of 4 GiB (75 %)",
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
