//! brimful stopped the run before memory ran out.

use crate::explain::rules::Rule;
use crate::explain::rules::telling::{host_proofs, host_remedies, proof, remedy};
use crate::explain::signs::Signs;
use crate::explain::{Cause, Confidence, Detail, Evidence, EvidenceSource, Verdict};
use crate::record::Outcome;

pub(super) const RULE: Rule = Rule {
    id: "stopped_before_the_kernel",
    about: "A detector of brimful predicted that memory would run out, and brimful stopped the run before the kernel killed it. \
            The cause is the one that the detector watches for.",
    check,
};

fn check(evidence: &Evidence, signs: &Signs<'_>) -> Option<Verdict> {
    let Outcome::StoppedByUs {
        detector, message, ..
    } = &evidence.end.as_ref()?.outcome
    else {
        return None;
    };
    let cause = if detector.contains("shm") || detector.contains("shared") {
        Cause::ShmExhausted
    } else if detector.contains("gpu") || detector.contains("cuda") || detector.contains("card") {
        Cause::CudaOomExhausted
    } else {
        Cause::HostOomKill
    };
    let mut proofs = vec![proof(
        EvidenceSource::WaitStatus,
        format!("brimful stopped the run: {message}"),
    )];
    if let Some(kills) = signs.own_kills() {
        proofs.push(proof(
            EvidenceSource::Kernel,
            format!("meanwhile, the kernel counted {kills} OOM kills in the cgroup of this job"),
        ));
    }
    proofs.extend(host_proofs(signs));
    Some(Verdict {
        cause,
        confidence: Confidence::Likely,
        detail: Detail::StoppedBeforeTheKernel,
        summary: format!("brimful stopped the run before memory ran out: {message}"),
        evidence: proofs,
        remedies: match cause {
            Cause::HostOomKill => host_remedies(evidence, signs),
            Cause::ShmExhausted => vec![remedy("Enlarge /dev/shm: `docker run --shm-size=8g`")],
            _ => vec![remedy(
                "Use a smaller micro-batch, and accumulate gradients to keep the effective batch size",
            )],
        },
        would_settle: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use crate::explain::Cause;
    use crate::explain::rules::testing::{check, ended};
    use crate::record::Outcome;

    #[test]
    fn the_detector_names_the_cause() {
        let stopped = |detector: &str| {
            ended(Outcome::StoppedByUs {
                detector: detector.into(),
                message: "200 MiB left".into(),
                signal: Some(15),
            })
        };
        check(
            &stopped("below_reserve"),
            Cause::HostOomKill,
            "stopped_before_the_kernel",
            "200 MiB left",
        );
        check(
            &stopped("shm_nearly_full"),
            Cause::ShmExhausted,
            "stopped_before_the_kernel",
            "200 MiB left",
        );
    }
}
