//! `/dev/shm` was full.

use crate::explain::rules::Rule;
use crate::explain::rules::telling::{proof, quoted, remedy, remedy_with};
use crate::explain::signs::Signs;
use crate::explain::text::Rank;
use crate::explain::{Cause, Confidence, Detail, Evidence, EvidenceSource, Remedy, Verdict};
use crate::units::Bytes;
use crate::watch::SharedMemorySample;

pub(super) const RULE: Rule = Rule {
    id: "shared_memory_full",
    about: "A bus error, or an error about disk space, while /dev/shm was full at a sample or has the small default size of \
            containers; or a message that mentions shared memory.",
    check,
};

/// The default of Docker and Kubernetes.
const CONTAINER_DEFAULT: Bytes = Bytes::from_mib(64);

fn check(_evidence: &Evidence, signs: &Signs<'_>) -> Option<Verdict> {
    let leading = signs.leading();
    let is_bus_error = signs.signal == Some(7)
        || leading.is_some_and(|leading| leading.sign.detail == Detail::BusError);
    let is_told = leading.is_some_and(|leading| leading.sign.cause == Cause::ShmExhausted);
    let is_space = leading.is_some_and(|leading| leading.sign.detail == Detail::DiskFull);
    if !is_bus_error && !is_told && !is_space {
        return None;
    }
    // An error that names something else outranks the way the process ended.
    if !is_told && !is_space && leading.is_some_and(|leading| leading.sign.rank <= Rank::Hinted) {
        return None;
    }
    let shm = signs.series.shm;
    let is_full = shm.is_some_and(is_nearly_full);
    let is_small = shm.is_some_and(|shm| shm.total <= CONTAINER_DEFAULT);
    if !is_told && !is_full && !is_small {
        return None;
    }
    let mut proofs = Vec::new();
    if let Some(signal) = signs.signal {
        proofs.push(proof(
            EvidenceSource::WaitStatus,
            format!("killed by signal {signal}"),
        ));
    }
    if let Some(shm) = shm {
        proofs.push(proof(
            EvidenceSource::Samples,
            format!("/dev/shm: peak {} of {}", shm.used, shm.total),
        ));
    }
    if let Some(leading) = &leading {
        proofs.push(quoted(leading));
    }
    let summary = match shm {
        Some(shm) if is_full => format!("/dev/shm was full: {} of {} used", shm.used, shm.total),
        // It can fill and empty between two samples.
        Some(shm) => format!("/dev/shm filled up: {} is too small", shm.total),
        None => "/dev/shm was full".to_owned(),
    };
    let confidence = if is_full {
        Confidence::Proved
    } else {
        Confidence::Likely
    };
    Some(Verdict {
        cause: Cause::ShmExhausted,
        confidence,
        detail: leading.map_or(Detail::BusError, |leading| {
            if is_space {
                Detail::Full
            } else {
                leading.sign.detail
            }
        }),
        summary: format!("{summary}; DataLoader workers and NCCL use it to pass data"),
        evidence: proofs,
        remedies: remedies(shm),
        would_settle: if is_full {
            Vec::new()
        } else {
            vec![
                "`df -h /dev/shm` while the job runs".into(),
                "a run with `num_workers=0`: if the bus error remains, a memory-mapped data file was truncated".into(),
            ]
        },
    })
}

fn is_nearly_full(shm: SharedMemorySample) -> bool {
    shm.used.share_of(shm.total) >= 0.9
}

fn remedies(shm: Option<SharedMemorySample>) -> Vec<Remedy> {
    let size = "Enlarge /dev/shm: `docker run --shm-size=8g` (or `--ipc=host`); on Kubernetes, mount an `emptyDir` with \
                `medium: Memory` on /dev/shm";
    let mut remedies = vec![remedy(
        "Remove files that dead jobs left there (`ls -l /dev/shm`): `torch_*`, `nccl-*`, `psm_*`",
    )];
    remedies.push(match shm {
        Some(shm) => remedy_with(size, format!("currently {}", shm.total)),
        None => remedy(size),
    });
    remedies.push(remedy(
        "Prefetch less: use fewer workers, a smaller `prefetch_factor` or smaller batches",
    ));
    remedies.push(remedy(
        "Set `num_workers=0` to load data in the training process instead",
    ));
    remedies
}

#[cfg(test)]
mod tests {
    use crate::explain::rules::testing::{check, check_text, ended, with_shm};
    use crate::explain::{Cause, Confidence};
    use crate::record::Outcome;

    #[test]
    fn a_bus_error_with_a_full_shm_is_proved() {
        let evidence = with_shm(ended(Outcome::Killed { signal: 7 }), 63, 64);
        let verdict = check(
            &evidence,
            Cause::ShmExhausted,
            "bus_error",
            "63 MiB of 64 MiB",
        );
        assert_eq!(verdict.confidence, Confidence::Proved);
    }

    #[test]
    fn a_bus_error_with_an_empty_shm_is_something_else() {
        let evidence = with_shm(ended(Outcome::Killed { signal: 7 }), 1, 64_000);
        check(&evidence, Cause::Ambiguous, "bus_error", "");
    }

    #[test]
    fn no_space_left_is_shm_when_that_is_full() {
        let mut evidence = with_shm(ended(Outcome::Failed { code: 1 }), 64, 64);
        evidence.text = "OSError: [Errno 28] No space left on device".into();
        check(&evidence, Cause::ShmExhausted, "full", "64 MiB of 64 MiB");
    }

    #[test]
    fn programs_name_it() {
        for text in [
            "RuntimeError: DataLoader worker (pid 4) is killed by signal: Bus error.",
            "RuntimeError: unable to write to file </torch_4_7_0>: No space left on device (28)",
            "RuntimeError: unable to allocate shared memory(shm) for file </torch_4_7_0>: No space left on device (28)",
            "NCCL WARN Error: failed to extend /dev/shm/nccl-abc to 9637892 bytes",
            "  File \"multiprocessing/synchronize.py\", line 57, in __init__\nOSError: [Errno 28] No space left on device",
            "[n1:1] Caught signal 7 (Bus error: nonexistent physical address)\n 2 ncclGroupEnd()",
        ] {
            check_text(text, Cause::ShmExhausted);
        }
    }

    #[test]
    fn a_disk_is_not_shared_memory() {
        check_text(
            "  torch.save(state, path)\nOSError: [Errno 28] No space left on device",
            Cause::NotMemory,
        );
        check_text(
            "[E] pcieport 0000:00:1c.0: PCIe Bus Error: severity=Corrected",
            Cause::NotMemory,
        );
    }
}
