//! Evidence for tests, in one place.

use crate::explain::{Cause, Evidence, Verdict, explain};
use crate::record::{AttemptLine, EndLine, KernelCounts, Outcome, Peaks};
use crate::units::Bytes;
use crate::watch::{HostSample, ProcessSample, Role, Sample, SharedMemorySample};

/// Explains, and holds the verdict against a cause, a detail (any, if empty) and a part of the summary.
pub(super) fn check(evidence: &Evidence, cause: Cause, detail: &str, summary: &str) -> Verdict {
    let verdict = explain(evidence);
    assert_eq!(verdict.cause, cause, "{verdict:#?}");
    assert!(
        detail.is_empty() || verdict.detail.id() == detail,
        "{verdict:#?}"
    );
    assert!(verdict.summary.contains(summary), "{verdict:#?}");
    verdict
}

pub(super) fn check_text(text: &str, cause: Cause) -> Verdict {
    let verdict = explain(&Evidence {
        text: text.into(),
        ..Evidence::default()
    });
    assert_eq!(verdict.cause, cause, "{text}\n{verdict:#?}");
    verdict
}

/// An attempt that ended so; the kernel could not be asked, and nothing was sampled.
pub(super) fn ended(outcome: Outcome) -> Evidence {
    Evidence {
        attempt: Some(AttemptLine {
            number: 1,
            pid: 40,
            ..AttemptLine::default()
        }),
        end: Some(EndLine {
            at_ms: 100_000,
            outcome,
            kernel: KernelCounts::default(),
            peaks: Peaks::default(),
            last: None,
            n_left_behind: 0,
            orphans: Vec::new(),
            own_cost: crate::record::OwnCost::default(),
        }),
        ..Evidence::default()
    }
}

pub(super) fn with_kills(mut evidence: Evidence, kills: Option<u64>) -> Evidence {
    if let Some(end) = &mut evidence.end {
        end.kernel.oom_kills = kills;
    }
    evidence
}

/// One sample of host memory, in GiB.
pub(super) fn with_used(mut evidence: Evidence, used: u64, limit: u64) -> Evidence {
    evidence.samples.push(Sample {
        at_ms: 90_000,
        host: Some(HostSample {
            used: Bytes::from_gib(used),
            limit: Bytes::from_gib(limit),
            headroom: Bytes::from_gib(limit - used),
            swapped: None,
        }),
        ..Sample::default()
    });
    evidence
}

/// One sample of shared memory, in MiB.
pub(super) fn with_shm(mut evidence: Evidence, used: u64, total: u64) -> Evidence {
    evidence.samples.push(Sample {
        at_ms: 90_000,
        shm: Some(SharedMemorySample {
            used: Bytes::from_mib(used),
            total: Bytes::from_mib(total),
        }),
        ..Sample::default()
    });
    evidence
}

/// Workers of 10 GiB each, in a group of 32 GiB that is full.
pub(super) fn with_workers(evidence: Evidence, pids: &[u32]) -> Evidence {
    let mut evidence = with_used(evidence, 32, 32);
    if let Some(sample) = evidence.samples.last_mut() {
        sample.processes = pids
            .iter()
            .zip(0_u32..)
            .map(|(pid, worker)| ProcessSample {
                pid: *pid,
                role: Role::Worker { loader: 0, worker },
                name: "python".into(),
                private: Bytes::from_gib(10),
                shared: Bytes::ZERO,
                swapped: Bytes::ZERO,
            })
            .collect();
    }
    evidence
}
