//! A host memory allocation failed.

use crate::explain::rules::Rule;
use crate::explain::rules::telling::{host_proofs, host_remedies, proof, quoted, remedy};
use crate::explain::signs::Signs;
use crate::explain::{Cause, Confidence, Detail, Evidence, EvidenceSource, Verdict};

pub(super) const RULE: Rule = Rule {
    id: "host_allocation_refused",
    about: "`MemoryError`, `std::bad_alloc`, ENOMEM or a pinned buffer: an allocation in the process failed. If an address \
            space limit is set (`ulimit -v`), the verdict names it.",
    check,
};

fn check(evidence: &Evidence, signs: &Signs<'_>) -> Option<Verdict> {
    if signs.killed_with_memory_full() {
        return None;
    }
    let leading = signs.leading_to(Cause::HostAllocFailed)?;
    let limit = evidence
        .attempt
        .as_ref()
        .and_then(|attempt| attempt.address_space_limit);
    let mut proofs = vec![quoted(&leading)];
    if let Some(limit) = limit {
        proofs.push(proof(
            EvidenceSource::WaitStatus,
            format!("the address space limit (RLIMIT_AS) is {limit}"),
        ));
    }
    proofs.extend(host_proofs(signs));
    let asked = leading.sign.facts.asked.map_or_else(
        || "an allocation of host memory".to_owned(),
        |asked| format!("an allocation of {asked} of host memory"),
    );
    let told = leading.sign.detail;
    let detail = if limit.is_some() && told == Detail::Refused {
        Detail::AddressSpaceLimit
    } else {
        told
    };
    let was_left = signs.series.last_host.map(|host| host.headroom);
    let asks_for_more = leading.sign.facts.asked > was_left && was_left.is_some();
    // Then less use of memory, or more of it, is no remedy.
    let is_mostly_free = !asks_for_more
        && detail == Detail::Refused
        && (signs.series.last_host).is_some_and(|host| host.headroom.get() > host.limit.get() / 2);
    let is_proved = detail != Detail::UnknownWords
        && (signs.was_raised(Cause::HostAllocFailed) || limit.is_some() || asks_for_more);
    let summary = match detail {
        Detail::PinnedMemory => "an allocation of pinned host memory failed; GPU memory is not the cause".to_owned(),
        Detail::Fork => "fork failed: the kernel could not commit memory for a copy of the parent process".to_owned(),
        Detail::CommitLimit => "an allocation failed: the Windows paging file is too small for the memory that all processes have committed".to_owned(),
        Detail::AddressSpaceLimit => format!("{asked} failed: the address space limit is {}", limit.unwrap_or_default()),
        Detail::LockedMemoryLimit => "locking memory failed: the locked memory limit (`ulimit -l`) is too low".to_owned(),
        Detail::JavaHeap => "the Java heap is too small".to_owned(),
        _ => match signs.series.last_host {
            Some(host) => format!("{asked} failed, with {} of {} left", host.headroom, host.limit),
            None => format!("{asked} failed"),
        },
    };
    let mut remedies = Vec::new();
    match detail {
        Detail::PinnedMemory => {
            remedies.push(remedy("Set `pin_memory=False`, or use smaller pinned buffers; PyTorch rounds each up to a power of two"));
            remedies.push(remedy("Raise the locked memory limit: `ulimit -l unlimited`, or in Docker `--ulimit memlock=-1`"));
        }
        Detail::AddressSpaceLimit => remedies.push(remedy("Remove the address space limit: `ulimit -v unlimited`; CUDA alone maps far more than it uses")),
        Detail::LockedMemoryLimit => remedies.push(remedy("Run `ulimit -l unlimited`, or in Docker pass `--ulimit memlock=-1`")),
        Detail::CommitLimit => remedies.push(remedy("Enlarge the paging file, or use fewer workers: each loads the CUDA libraries again")),
        Detail::Fork => remedies.push(remedy("Start the workers before you load large data, or allow overcommit with `vm.overcommit_memory=1`")),
        _ if is_mostly_free => remedies.push(remedy("Look for one very large allocation, and for an address space limit that the script or its launcher sets (`ulimit -v`, `resource.setrlimit`): most of the memory was free")),
        _ => {}
    }
    if !is_mostly_free {
        remedies.extend(host_remedies(evidence, signs));
    }
    Some(Verdict {
        cause: Cause::HostAllocFailed,
        confidence: if is_proved {
            Confidence::Proved
        } else {
            Confidence::Likely
        },
        detail,
        summary,
        evidence: proofs,
        remedies,
        would_settle: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use crate::explain::Cause;
    use crate::explain::rules::testing::{check, check_text, ended};
    use crate::record::{HookLine, Outcome};
    use crate::units::Bytes;
    use crate::watch::{HostSample, Sample};

    #[test]
    fn the_limit_on_address_space_is_named() {
        let mut evidence = ended(Outcome::Failed { code: 1 });
        evidence.attempt.as_mut().unwrap().address_space_limit = Some(Bytes::from_gib(8));
        evidence.hook.push(HookLine::Exception {
            at_ms: 1,
            pid: 7,
            type_name: "MemoryError".into(),
            message: "Unable to allocate 2.00 GiB for an array".into(),
        });
        check(
            &evidence,
            Cause::HostAllocFailed,
            "address_space_limit",
            "8 GiB",
        );
    }

    #[test]
    fn programs_say_it_in_their_words() {
        for text in [
            "MemoryError",
            "numpy.core._exceptions.MemoryError: Unable to allocate 4.00 GiB for an array with shape (7,) and data type float32",
            "RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 8000 bytes. Error code 12 (Cannot allocate memory)",
            "RuntimeError: DefaultCPUAllocator: not enough memory: you tried to allocate 8000 bytes.",
            "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\nAborted (core dumped)",
            "pyarrow.lib.ArrowMemoryError: malloc of size 8000 failed",
            "memory allocation of 8000 bytes failed",
            "bash: fork: Cannot allocate memory",
            "OSError: [WinError 1455] Die Auslagerungsdatei ist zu klein",
            "cv2.error: OpenCV(4.9) alloc.cpp:73: error: (-4:Insufficient memory) Failed to allocate 8000 bytes in function 'OutOfMemoryError'",
            "OOM when allocating tensor with shape[8,8] and type float on /job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu",
        ] {
            check_text(text, Cause::HostAllocFailed);
        }
    }

    #[test]
    fn a_pinned_buffer_is_host_memory() {
        let text = "    return data.pin_memory()\nRuntimeError: CUDA error: out of memory";
        let verdict = check_text(text, Cause::HostAllocFailed);
        assert_eq!(verdict.detail.id(), "pinned_memory");
    }

    #[test]
    fn a_library_without_room_for_its_thread_data_is_no_want_of_memory() {
        check_text(
            "ImportError: libgomp.so.1: cannot allocate memory in static TLS block",
            Cause::NotMemory,
        );
    }

    #[test]
    fn more_memory_is_no_remedy_where_most_of_it_was_free() {
        let of = |headroom_gib: u64| {
            let mut evidence = ended(Outcome::Failed { code: 1 });
            evidence.text = "MemoryError".into();
            evidence.samples = vec![Sample {
                at_ms: 1000,
                host: Some(HostSample {
                    used: Bytes::from_gib(1),
                    limit: Bytes::from_gib(24),
                    headroom: Bytes::from_gib(headroom_gib),
                    swapped: None,
                }),
                ..Sample::default()
            }];
            check(&evidence, Cause::HostAllocFailed, "refused", "failed").remedies
        };
        let free = of(20);
        assert_eq!(free.len(), 1);
        assert!(free[0].text.contains("most of the memory was free"));
        assert!(of(1).iter().all(|found| !found.text.contains("was free")));
    }
}
