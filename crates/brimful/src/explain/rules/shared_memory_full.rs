//! `/dev/shm` was full.

use crate::explain::rules::Rule;
use crate::explain::rules::telling::{proof, quoted, remedy, remedy_with};
use crate::explain::signs::Signs;
use crate::explain::text::Rank;
use crate::explain::{Cause, Confidence, Detail, Evidence, Remedy, Source, Verdict};
use crate::units::Bytes;
use crate::watch::SharedMemorySample;

pub(super) const RULE: Rule = Rule {
    id: "shared_memory_full",
    about: "A bus error, or an error about space, together with a /dev/shm that was sampled full or is as small as \
            containers make it; or a message that names shared memory.",
    check,
};

/// What Docker and Kubernetes give unless told otherwise.
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
            Source::WaitStatus,
            format!("ended by signal {signal}"),
        ));
    }
    if let Some(shm) = shm {
        proofs.push(proof(
            Source::Samples,
            format!(
                "/dev/shm: {} of {} used at the fullest sample",
                shm.used, shm.total
            ),
        ));
    }
    if let Some(leading) = &leading {
        proofs.push(quoted(leading));
    }
    let summary = match shm {
        Some(shm) if is_full => format!("/dev/shm was full: {} of {} used", shm.used, shm.total),
        // It fills and empties faster than it is looked at.
        Some(shm) => format!("/dev/shm ran full: {} are too little", shm.total),
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
        summary: format!("{summary}; DataLoader workers and NCCL hand data over through it"),
        evidence: proofs,
        remedies: remedies(shm),
        would_settle: if is_full {
            Vec::new()
        } else {
            vec![
                "`df -h /dev/shm` while it runs".into(),
                "with num_workers=0: if the bus error stays, a memory-mapped data file is shorter than it was".into(),
            ]
        },
    })
}

fn is_nearly_full(shm: SharedMemorySample) -> bool {
    shm.used.share_of(shm.total) >= 0.9
}

fn remedies(shm: Option<SharedMemorySample>) -> Vec<Remedy> {
    let size = "Give /dev/shm more room: `docker run --shm-size=8g` (or `--ipc=host`), on Kubernetes an `emptyDir` with \
                `medium: Memory` on /dev/shm";
    let mut remedies = vec![remedy(
        "Remove what dead jobs left there: `ls -l /dev/shm`, files named `torch_*`, `nccl-*`, `psm_*`",
    )];
    remedies.push(match shm {
        Some(shm) => remedy_with(size, format!("now {}", shm.total)),
        None => remedy(size),
    });
    remedies.push(remedy(
        "Hand over less at once: fewer workers, a smaller `prefetch_factor`, smaller batches",
    ));
    remedies.push(remedy(
        "`num_workers=0`, at the price of loading in the training process",
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
