//! A limit on open files, mappings or shared-memory objects.

use crate::explain::rules::Rule;
use crate::explain::rules::telling::{proof, quoted, remedy, remedy_with};
use crate::explain::signs::Signs;
use crate::explain::{Cause, Confidence, Detail, Evidence, Source, Verdict};

pub(super) const RULE: Rule = Rule {
    id: "limit_reached",
    about: "Too many open files, mappings or shared-memory objects: tensors that workers hand over each need one.",
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
            "the process has as many memory mappings as it may (vm.max_map_count); memory itself is not short".to_owned(),
            vec![
                remedy("Hand over fewer, larger tensors: each shared one is a mapping of its own"),
                remedy("`sysctl -w vm.max_map_count=1048576` (needs root)"),
            ],
        ),
        Detail::InotifyWatches => (
            "the system's limit on watched files is reached".to_owned(),
            vec![remedy("`sysctl -w fs.inotify.max_user_watches=524288` (needs root)")],
        ),
        Detail::SystemVObjects => (
            "the system's limit on System V shared memory or semaphores is reached".to_owned(),
            vec![remedy("Remove what dead jobs left: `ipcs`, `ipcrm`; raise `kernel.sem` and `kernel.shmmni`")],
        ),
        _ => {
            if let Some(limit) = limit {
                proofs.push(proof(Source::WaitStatus, format!("a process of the job may have {limit} open files")));
            }
            let figure = limit.map(|limit| format!(": {limit} are allowed")).unwrap_or_default();
            let raise = "`ulimit -n 65536` before the start, in Docker `--ulimit nofile=65536`";
            (
                format!("a process has as many open files as it may{figure}; every tensor that a worker hands over holds one"),
                vec![
                    match limit {
                        Some(limit) => remedy_with(raise, format!("now {limit}")),
                        None => remedy(raise),
                    },
                    remedy("`torch.multiprocessing.set_sharing_strategy('file_system')`, which keeps no file open per tensor"),
                    remedy("Keep no tensors of a worker: copy what is collected over many batches"),
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
