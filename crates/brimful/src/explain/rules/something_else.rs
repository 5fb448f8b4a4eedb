//! The cause is not memory.

use crate::explain::rules::Rule;
use crate::explain::rules::telling::{proof, quoted, remedy};
use crate::explain::signs::Signs;
use crate::explain::text::Rank;
use crate::explain::{Cause, Confidence, Detail, Evidence, EvidenceSource, Verdict};
use crate::record::Outcome;

pub(super) const RULE: Rule = Rule {
    id: "something_else",
    about: "An error that is not about memory: a crash, a device-side assertion, a collective that timed \
            out, a full disk, a hardware failure, a time limit, or any other exception.",
    check,
};

fn check(evidence: &Evidence, signs: &Signs<'_>) -> Option<Verdict> {
    let leading = signs.leading_to(Cause::NotMemory);
    let code = evidence.end.as_ref().and_then(|end| match end.outcome {
        Outcome::Failed { code } => Some(code),
        _ => None,
    });
    let by_signal = match signs.signal {
        // The exit code of `timeout`.
        None if code == Some(124) && leading.is_none() => Some((
            Detail::TimeLimit,
            "the run reached its time limit: exit code 124",
        )),
        Some(11) => Some((Detail::Segfault, "the process crashed: segmentation fault")),
        Some(4 | 8) => Some((Detail::Crash, "the process crashed in native code")),
        Some(6) => Some((Detail::Aborted, "the process aborted (SIGABRT)")),
        Some(1 | 2 | 15) => Some((
            Detail::Terminated,
            "the process was terminated by a signal from outside",
        )),
        _ => None,
    };
    // An error that names its cause is stronger evidence than the signal that followed.
    let names_memory = signs
        .leading()
        .is_some_and(|leading| leading.sign.cause.is_memory() && leading.sign.rank <= Rank::Hinted);
    if names_memory || (leading.is_none() && by_signal.is_none()) {
        return None;
    }
    let mut proofs = Vec::new();
    match (signs.signal, code) {
        (Some(signal), _) => proofs.push(proof(
            EvidenceSource::WaitStatus,
            format!("killed by signal {signal}"),
        )),
        (None, Some(code)) => {
            proofs.push(proof(
                EvidenceSource::WaitStatus,
                format!("exit code {code}"),
            ));
        }
        (None, None) => {}
    }
    let (detail, summary) = match (&leading, by_signal) {
        (Some(leading), by_signal) => {
            proofs.push(quoted(leading));
            match by_signal {
                Some((detail, words)) if leading.sign.rank > Rank::Signaled => {
                    (detail, words.to_owned())
                }
                _ => (
                    leading.sign.detail,
                    in_words(leading.sign.detail, &leading.quote()),
                ),
            }
        }
        (None, Some((detail, words))) => (detail, words.to_owned()),
        (None, None) => return None,
    };
    // The exception that ended the process, or the signal; words in a log prove nothing.
    // Who aborts does so for any reason.
    let is_plain = !signs.was_raised(Cause::NotMemory)
        && (by_signal.is_none() || matches!(signs.signal, None | Some(6)));
    Some(Verdict {
        cause: Cause::NotMemory,
        confidence: if is_plain {
            Confidence::Likely
        } else {
            Confidence::Proved
        },
        detail,
        summary,
        evidence: proofs,
        remedies: remedies(detail).into_iter().map(remedy).collect(),
        would_settle: if detail == Detail::DiskFull {
            vec!["`df -h . /tmp /dev/shm`: which of them is full".into()]
        } else {
            Vec::new()
        },
    })
}

fn in_words(detail: Detail, quote: &str) -> String {
    let words = match detail {
        Detail::IllegalAccess => {
            "a CUDA kernel accessed an invalid address; this is a bug, not a lack of memory"
        }
        Detail::DeviceAssert => {
            "a device-side assertion failed, usually because an index or a label is out of range"
        }
        Detail::NcclTimeout => "a collective timed out waiting for another process",
        Detail::NcclError => "a collective failed; see the warning from NCCL",
        Detail::ConnectionLost => "the connection to another process was lost",
        Detail::Segfault => "the process crashed: segmentation fault",
        Detail::Crash => "the process crashed in native code",
        Detail::Aborted => "the process aborted",
        Detail::HeapCorruption => {
            "native code corrupted the heap; this is a bug, not a lack of memory"
        }
        Detail::DiskFull => "a disk is full",
        Detail::Hardware => "the hardware failed",
        Detail::ProcessLimit => {
            "the limit on processes or threads was reached; memory did not run out"
        }
        Detail::TimeLimit => "the run reached its time limit",
        Detail::Preempted => "the job was preempted",
        Detail::Cancelled => "the job was cancelled",
        Detail::Terminated => "the process was terminated from outside (SIGTERM)",
        Detail::StoppedByUser => "the run was interrupted from the keyboard",
        Detail::Timeout => "the DataLoader waited too long for a batch",
        Detail::KernelNeedsTooMuch => {
            "a CUDA kernel needs more shared memory than the GPU has; GPU memory did not run out"
        }
        Detail::NotStarted => "the command was not found",
        Detail::NoScript => "the script does not exist",
        Detail::BuildFailed => "an extension could not be built",
        Detail::Arguments => "the script does not accept these arguments",
        Detail::NoMainGuard => {
            "a process was started while the main script was still being imported"
        }
        Detail::ForkedCuda => "a forked process used CUDA after its parent had initialized it",
        Detail::PersistentWorkers => "`persistent_workers` is set, but there are no workers",
        Detail::PrefetchFactor => "`prefetch_factor` is set, but there are no workers",
        Detail::Warning => "the text contains only a warning about memory, not a failure",
        Detail::StaticTls => {
            "a library was loaded too late to allocate its thread-local storage; memory did not run out"
        }
        Detail::MissingModule => {
            return format!("a Python module is not installed: {quote}");
        }
        _ => return format!("an error that is not about memory: {quote}"),
    };
    words.to_owned()
}

fn remedies(detail: Detail) -> Vec<&'static str> {
    match detail {
        Detail::IllegalAccess | Detail::DeviceAssert => {
            vec!["Run once with `CUDA_LAUNCH_BLOCKING=1` to get a traceback at the failing kernel"]
        }
        Detail::NcclTimeout | Detail::NcclError => vec![
            "Find the earliest error in the logs of the other ranks: if one rank dies, all others wait for it",
            "Run with `NCCL_DEBUG=WARN`",
        ],
        Detail::Segfault | Detail::Crash | Detail::Aborted | Detail::HeapCorruption => {
            vec!["Run with `python -X faulthandler` to print the stack of each thread"]
        }
        Detail::DiskFull => {
            vec!["Free disk space, write checkpoints to another disk, or keep fewer of them"]
        }
        Detail::Hardware => {
            vec![
                "Report it to the administrator of the machine, and do not use the GPU until it is checked",
            ]
        }
        Detail::ProcessLimit => vec![
            "Use fewer workers and threads (`OMP_NUM_THREADS`), or raise `pids.max` of the cgroup and `ulimit -u`",
        ],
        Detail::TimeLimit | Detail::Preempted => vec![
            "Save a checkpoint before the time limit (Slurm: `--signal=TERM@300`) and resume from it",
        ],
        Detail::NoScript => vec!["Check the path of the script and the working directory"],
        Detail::MissingModule => vec![
            "Install it in that Python (`python -m pip install …`), or start the script with the Python of the right environment",
        ],
        Detail::Arguments => vec!["Check the arguments with `--help` of the script"],
        Detail::NoMainGuard => vec![
            "Put the code that starts the training under `if __name__ == \"__main__\":`, because spawned workers import the script",
        ],
        Detail::ForkedCuda => vec![
            "Start workers with `multiprocessing_context=\"spawn\"`, or initialize CUDA only after they have started",
        ],
        Detail::PersistentWorkers => {
            vec!["Set `persistent_workers=num_workers > 0`"]
        }
        Detail::PrefetchFactor => {
            vec!["Set `prefetch_factor=None` if `num_workers=0`"]
        }
        Detail::KernelNeedsTooMuch => {
            vec!["Use smaller blocks or fewer stages in the kernel configuration"]
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use crate::explain::Cause;
    use crate::explain::rules::testing::{check, check_text, ended};
    use crate::record::{HookLine, Outcome};

    #[test]
    fn an_exception_that_is_not_about_memory() {
        let mut evidence = ended(Outcome::Failed { code: 1 });
        evidence.hook.push(HookLine::Exception {
            at_ms: 1,
            pid: 7,
            type_name: "KeyError".into(),
            message: "'pixel_values'".into(),
        });
        check(&evidence, Cause::NotMemory, "exception", "pixel_values");
    }

    #[test]
    fn a_crash_is_told_by_its_signal() {
        check(
            &ended(Outcome::Killed { signal: 11 }),
            Cause::NotMemory,
            "segfault",
            "segmentation fault",
        );
        check(
            &ended(Outcome::Killed { signal: 15 }),
            Cause::NotMemory,
            "terminated",
            "terminated by a signal",
        );
    }

    #[test]
    fn words_of_memory_that_are_not_about_too_little_of_it() {
        for text in [
            "torch.AcceleratorError: CUDA error 700: an illegal memory access was encountered",
            "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 9, Hardware limit: 8",
            "double free or corruption (!prev)\nAborted (core dumped)",
            "[ERROR] [launch.py:321:sigkill_handler] python exits with return code = -11",
            "RuntimeError: can't start new thread",
            "ImportError: libcudart.so.9.0: cannot open shared object file: No such file or directory",
            "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=BROADCAST) ran for 600001 milliseconds",
            "NVRM: Xid (PCI:0000:01:00): 48, pid=7, Double Bit ECC Error",
            "ValueError: too many values to unpack (expected 2)",
            "KeyboardInterrupt",
            "Memory access fault by GPU node-1 (Agent handle: 0x1) on address 0x2. Reason: Page not present",
            "[rank0]: AssertionError",
        ] {
            check_text(text, Cause::NotMemory);
        }
    }

    #[test]
    fn the_root_comes_first_whatever_the_launcher_says_after_it() {
        let text = "Traceback (most recent call last):\n  File \"train.py\", line 7, in <module>\nKeyError: 'label'\n\
                    torch.distributed.elastic.multiprocessing.errors.ChildFailedError: train.py FAILED\n  exitcode  : 1 (pid: 7)";
        check_text(text, Cause::NotMemory);
    }
}
