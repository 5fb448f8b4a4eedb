//! Not memory.

use crate::explain::rules::Rule;
use crate::explain::rules::telling::{proof, quoted, remedy};
use crate::explain::signs::Signs;
use crate::explain::text::Rank;
use crate::explain::{Cause, Confidence, Detail, Evidence, Source, Verdict};
use crate::record::Outcome;

pub(super) const RULE: Rule = Rule {
    id: "something_else",
    about: "An error that has nothing to do with too little memory: a crash, a kernel's assertion, a collective that timed \
            out, a full disk, hardware, a time limit, any other exception.",
    check,
};

fn check(evidence: &Evidence, signs: &Signs<'_>) -> Option<Verdict> {
    let leading = signs.leading_to(Cause::NotMemory);
    let code = evidence.end.as_ref().and_then(|end| match end.outcome {
        Outcome::Failed { code } => Some(code),
        _ => None,
    });
    let by_signal = match signs.signal {
        // What `timeout` ends with.
        None if code == Some(124) && leading.is_none() => {
            Some((Detail::TimeLimit, "its time was up: exit code 124"))
        }
        Some(11) => Some((Detail::Segfault, "it crashed: segmentation fault")),
        Some(4 | 8) => Some((Detail::Crash, "it crashed in native code")),
        Some(6) => Some((Detail::Aborted, "it aborted itself (SIGABRT)")),
        Some(1 | 2 | 15) => Some((Detail::Terminated, "it was asked to end from outside")),
        _ => None,
    };
    // What names its cause tells more than the signal that followed.
    let names_memory = signs
        .leading()
        .is_some_and(|leading| leading.sign.cause.is_memory() && leading.sign.rank <= Rank::Hinted);
    if names_memory || (leading.is_none() && by_signal.is_none()) {
        return None;
    }
    let mut proofs = Vec::new();
    match (signs.signal, code) {
        (Some(signal), _) => proofs.push(proof(
            Source::WaitStatus,
            format!("ended by signal {signal}"),
        )),
        (None, Some(code)) => {
            proofs.push(proof(Source::WaitStatus, format!("exit code {code}")));
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
            "a kernel on the card touched an address that is not its own; that is a bug, not too little memory"
        }
        Detail::DeviceAssert => {
            "an assertion failed on the card, most often an index or a label out of range"
        }
        Detail::NcclTimeout => "a collective waited in vain for another process",
        Detail::NcclError => "a collective failed; NCCL's own warning says more",
        Detail::ConnectionLost => "the connection to another process was lost",
        Detail::Segfault => "it crashed: segmentation fault",
        Detail::Crash => "it crashed in native code",
        Detail::Aborted => "it aborted itself",
        Detail::HeapCorruption => {
            "native code damaged the heap; that is a bug, not too little memory"
        }
        Detail::DiskFull => "a disk is full",
        Detail::Hardware => "the hardware failed",
        Detail::ProcessLimit => "no more processes or threads may be started; memory is not short",
        Detail::TimeLimit => "its time was up",
        Detail::Preempted => "it was preempted",
        Detail::Cancelled => "it was cancelled",
        Detail::Terminated => "it was asked to end from outside (SIGTERM)",
        Detail::StoppedByUser => "it was interrupted from the keyboard",
        Detail::Timeout => "the DataLoader waited too long for a batch",
        Detail::KernelNeedsTooMuch => {
            "a kernel needs more of the card's on-chip memory than there is; the card's own memory is not short"
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
            "a library was loaded too late for its thread data; memory is not short"
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
            vec!["Run once with `CUDA_LAUNCH_BLOCKING=1`: the traceback then names the kernel"]
        }
        Detail::NcclTimeout | Detail::NcclError => vec![
            "Look at the other ranks' logs for the first error in time: one that died makes all others wait",
            "Run with `NCCL_DEBUG=WARN`",
        ],
        Detail::Segfault | Detail::Crash | Detail::Aborted | Detail::HeapCorruption => {
            vec!["Run with `python -X faulthandler`: it prints where each thread was"]
        }
        Detail::DiskFull => vec!["Make room, or write checkpoints elsewhere; keep fewer of them"],
        Detail::Hardware => {
            vec!["Tell the owner of the machine; take the card out of use until it is checked"]
        }
        Detail::ProcessLimit => vec![
            "Use fewer workers and threads (`OMP_NUM_THREADS`), or raise `pids.max` of the group and `ulimit -u`",
        ],
        Detail::TimeLimit | Detail::Preempted => vec![
            "Save checkpoints before the end (Slurm: `--signal=TERM@300`) and resume from them",
        ],
        Detail::NoScript => vec!["Check the path of the script and the working directory"],
        Detail::MissingModule => vec![
            "Install it in that Python (`python -m pip install …`), or start the script with the Python of the right environment",
        ],
        Detail::Arguments => vec!["Compare with `--help` of the script"],
        Detail::NoMainGuard => vec![
            "Put what starts the training below `if __name__ == \"__main__\":`, as spawned workers import the script",
        ],
        Detail::ForkedCuda => vec![
            "Start workers with `multiprocessing_context=\"spawn\"`, or touch CUDA only after they were started",
        ],
        Detail::PersistentWorkers => {
            vec!["`persistent_workers=num_workers > 0`: with no worker there is nothing to keep"]
        }
        Detail::PrefetchFactor => {
            vec!["`prefetch_factor=None` where `num_workers=0`: there is nobody to prefetch"]
        }
        Detail::KernelNeedsTooMuch => {
            vec!["Smaller blocks or fewer stages in the kernel's configuration"]
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
            "asked to end",
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
