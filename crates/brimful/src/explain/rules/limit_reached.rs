//! A limit on open files, mappings or shared-memory objects.

use crate::explain::rules::Rule;
use crate::explain::rules::telling::{proof, quoted, remedy, remedy_with};
use crate::explain::signs::Signs;
use crate::explain::{Cause, Confidence, Detail, Evidence, EvidenceSource, Verdict};

pub(super) const RULE: Rule = Rule {
    id: "limit_reached",
    about: "Too many open files, mappings or shared-memory objects: each tensor that a worker returns needs one.",
    check,
};

fn check(evidence: &Evidence, signs: &Signs<'_>) -> Option<Verdict> {
    if signs.killed_with_memory_full() {
        return None;
    }
    let leading = signs.leading_to(Cause::FdOrShmLimit)?;
    let limit = evidence
        .attempt
        .as_ref()
        .and_then(|attempt| attempt.open_files_limit);
    let mut proofs = vec![quoted(&leading)];
    let detail = leading.sign.detail;
    let (summary, remedies) = match detail {
        Detail::Mappings => (
            "the process reached its limit on memory mappings (vm.max_map_count); memory itself did not run out".to_owned(),
            vec![
                remedy("Return fewer, larger tensors from workers: each shared tensor is a separate mapping"),
                remedy("Run `sysctl -w vm.max_map_count=1048576` (needs root)"),
            ],
        ),
        Detail::InotifyWatches => (
            "the system reached its limit on watched files (inotify)".to_owned(),
            vec![remedy("Run `sysctl -w fs.inotify.max_user_watches=524288` (needs root)")],
        ),
        Detail::SystemVObjects => (
            "the system reached its limit on System V shared memory or semaphores".to_owned(),
            vec![remedy("Remove leftovers of dead jobs with `ipcs` and `ipcrm`; raise `kernel.sem` and `kernel.shmmni`")],
        ),
        _ => {
            if let Some(limit) = limit {
                proofs.push(proof(EvidenceSource::WaitStatus, format!("the open file limit of the job is {limit}")));
            }
            let figure = limit.map(|limit| format!(" of {limit}")).unwrap_or_default();
            let raise = "Run `ulimit -n 65536` before the job, or in Docker pass `--ulimit nofile=65536`";
            (
                format!("a process reached its open file limit{figure}; every tensor that a worker returns holds a file open"),
                vec![
                    match limit {
                        Some(limit) => remedy_with(raise, format!("currently {limit}")),
                        None => remedy(raise),
                    },
                    remedy("Call `torch.multiprocessing.set_sharing_strategy('file_system')`, which keeps no file open per tensor"),
                    remedy("Do not keep tensors from workers: copy what you collect over many batches"),
                ],
            )
        }
    };
    Some(Verdict {
        cause: Cause::FdOrShmLimit,
        confidence: if signs.was_raised(Cause::FdOrShmLimit) {
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
    use crate::record::Outcome;

    #[test]
    fn the_limit_is_named() {
        let mut evidence = ended(Outcome::Failed { code: 1 });
        evidence.attempt.as_mut().unwrap().open_files_limit = Some(1024);
        evidence.text = "OSError: [Errno 24] Too many open files: '/data/7.jpg'".into();
        check(&evidence, Cause::FdOrShmLimit, "open_files", "1024");
    }

    #[test]
    fn programs_say_it_in_their_words() {
        for text in [
            "RuntimeError: received 2 items of ancdata, expected 3",
            "RuntimeError: unable to open shared memory object </torch_9_8> in read-write mode",
            "RuntimeError: unable to mmap 128 bytes from file </torch_9_8_7>: Cannot allocate memory (12)",
            "OSError: [Errno 23] Too many open files in system",
            "RuntimeError: unable to open file </torch_9_8> in read-only mode: Too many open files (24)",
        ] {
            check_text(text, Cause::FdOrShmLimit);
        }
    }

    #[test]
    fn a_large_mapping_is_a_want_of_memory() {
        check_text(
            "RuntimeError: unable to mmap 90000000000 bytes from file <model.bin>: Cannot allocate memory (12)",
            Cause::HostAllocFailed,
        );
    }
}
