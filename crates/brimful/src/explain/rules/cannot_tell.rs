//! The evidence is not conclusive.

use crate::explain::rules::Rule;
use crate::explain::rules::telling::{host_proofs, proof, quoted, remedy, settles_a_kill};
use crate::explain::signs::Signs;
use crate::explain::{Cause, Confidence, Detail, Evidence, EvidenceSource, Verdict};
use crate::record::Outcome;

pub(super) const RULE: Rule = Rule {
    id: "cannot_tell",
    about: "Several causes print the same message: a worker that disappeared, a bus error without a sample of shared memory, \
            a library that failed to initialize, or only a launcher's summary.",
    check,
};

fn check(evidence: &Evidence, signs: &Signs<'_>) -> Option<Verdict> {
    let leading = signs.leading();
    let outcome = evidence.end.as_ref().map(|end| &end.outcome);
    if leading.is_none() && outcome.is_none() {
        return signs.text.has_own_lines().then(only_own_lines);
    }
    let mut proofs = Vec::new();
    let how = match outcome {
        Some(Outcome::Failed { code }) => Some(format!("exit code {code}")),
        Some(Outcome::Killed { signal }) => Some(format!("signal {signal}")),
        _ => None,
    };
    if let Some(how) = &how {
        proofs.push(proof(EvidenceSource::WaitStatus, how.clone()));
    }
    if let Some(leading) = &leading {
        proofs.push(quoted(leading));
    }
    proofs.extend(host_proofs(signs));
    let told = leading.map_or(Detail::NoEvidence, |leading| leading.sign.detail);
    let detail = if signs.signal == Some(7) {
        Detail::BusError
    } else {
        told
    };
    let (summary, settles) = known_ambiguity(detail).unwrap_or_else(|| {
        let summary = how.map_or_else(
            || "no evidence of a cause was found".to_owned(),
            |how| format!("the run ended with {how}; no evidence of a cause was found"),
        );
        let settles = match outcome {
            Some(Outcome::Failed { code }) if *code < 128 => settles_an_exit(*code),
            _ => settles_a_kill(),
        };
        (summary, settles)
    });
    Some(Verdict {
        cause: Cause::Ambiguous,
        confidence: Confidence::CannotTell,
        detail,
        summary,
        evidence: proofs,
        remedies: if detail == Detail::UnknownWords {
            vec![
                remedy(
                    "If the GPU ran out: use a smaller micro-batch with gradient accumulation, or activation checkpointing",
                ),
                remedy(
                    "If the host ran out: use fewer DataLoader workers, or request more memory for the job",
                ),
            ]
        } else {
            Vec::new()
        },
        would_settle: settles,
    })
}

/// The summary of what several causes print, and what would settle it.
fn known_ambiguity(detail: Detail) -> Option<(String, Vec<String>)> {
    Some(match detail {
        Detail::WorkerVanished => (
            "a worker process exited without a message: it was killed because memory ran out, had no shared memory left, or crashed".to_owned(),
            with("a run with `num_workers=0`, which shows the traceback of an error in the worker"),
        ),
        Detail::BusError => (
            "bus error: /dev/shm was full, or a memory-mapped data file was truncated".to_owned(),
            vec![
                "`df -h /dev/shm` while the job runs".into(),
                "the sizes of memory-mapped files (lmdb, npy, safetensors), compared with the expected sizes".into(),
                "another run with `brimful run`, which samples /dev/shm".into(),
            ],
        ),
        Detail::LibrarySetupFailed | Detail::LibraryAllocation => (
            "a CUDA library failed to initialize: too little GPU memory, or incompatible versions".to_owned(),
            vec![
                "`nvidia-smi` at that moment, to see how much GPU memory is free".into(),
                "a run with half the batch size: if it works, GPU memory was the cause".into(),
                "a run on the CPU, where an index out of range raises a clear error".into(),
            ],
        ),
        Detail::Notebook => (
            "the notebook kernel restarted for an unknown reason; running out of memory is one of several possibilities".to_owned(),
            vec![
                "the memory use that the notebook shows (Colab: Resources) while the cell runs again".into(),
                "the cell as a script: `!brimful run -- python train.py` counts OOM kills and samples memory".into(),
                "the log of the Jupyter server or of the session (Colab: Runtime, View runtime logs)".into(),
            ],
        ),
        Detail::UnknownWords => (
            "the text mentions low memory, but no error shows that memory ran out, or whether on the host or on a GPU".to_owned(),
            vec![
                "the surrounding lines: an exception with sizes shows which memory ran out".into(),
                "for the GPU: `nvidia-smi` while the job runs".into(),
                "for the host: `dmesg -T | grep -i 'killed process'`, or `oom_kill` in `memory.events` of the cgroup".into(),
                "another run with `brimful run`, which monitors both".into(),
            ],
        ),
        Detail::Aborted => (
            "the process aborted (SIGABRT) without a visible reason: a failed assertion, a lost peer or a failed native allocation".to_owned(),
            vec![
                "the preceding lines: native code usually prints why it aborts".into(),
                "a run with `python -X faulthandler`, which prints the stack of each thread".into(),
            ],
        ),
        Detail::NcclHidesIt => (
            "NCCL reports a CUDA error without its reason; a full GPU is one possible cause".to_owned(),
            vec![
                "a run with `NCCL_DEBUG=WARN`, which prints the CUDA error".into(),
                "`nvidia-smi` on every node: whether a GPU is full or used by another process".into(),
            ],
        ),
        Detail::LimitTouched => (
            "the step reached its memory limit at some point, through page cache or processes; nothing shows that a process was killed".to_owned(),
            vec!["`sacct -j JOB --format=State,ExitCode,MaxRSS`".into()],
        ),
        Detail::FailedElsewhere => (
            "the text contains only the launcher's summary; another process printed the first error".to_owned(),
            vec![
                "the log of the rank that failed first".into(),
                "`torchrun --log-dir logs --redirects 3`, or `@record` on the main function".into(),
            ],
        ),
        _ => return None,
    })
}

fn only_own_lines() -> Verdict {
    Verdict {
        detail: Detail::OwnLines,
        summary:
            "the text contains only brimful's own output, which does not show why the run ended"
                .into(),
        would_settle: vec![
            "the record of the run: `brimful explain RUN` (`brimful runs` lists all runs)".into(),
            "the output of the training script".into(),
        ],
        ..Verdict::cannot_tell()
    }
}

/// A process that exited by itself was not killed: its output shows more than the kernel log.
fn settles_an_exit(code: i32) -> Vec<String> {
    let mut settles = vec!["its output before the exit, on the terminal or in a log".to_owned()];
    match code {
        2 => settles.insert(
            0,
            "the path of the script and its arguments: Python and argparse exit with 2 if either is wrong".to_owned(),
        ),
        126 => settles.insert(0, "whether the command is executable (`ls -l`)".to_owned()),
        127 => settles.insert(0, "whether the command exists (`command -v`)".to_owned()),
        _ => {}
    }
    settles
}

fn with(first: &str) -> Vec<String> {
    let mut settles = settles_a_kill();
    settles.insert(0, first.into());
    settles
}

#[cfg(test)]
mod tests {
    use crate::explain::Cause;
    use crate::explain::rules::testing::{check, check_text, ended};
    use crate::record::Outcome;

    #[test]
    fn a_code_alone_says_nothing() {
        check(
            &ended(Outcome::Failed { code: 1 }),
            Cause::Ambiguous,
            "no_evidence",
            "exit code 1",
        );
    }

    #[test]
    fn who_ended_by_himself_is_not_sent_to_the_kernels_log() {
        let verdict = check(
            &ended(Outcome::Failed { code: 2 }),
            Cause::Ambiguous,
            "no_evidence",
            "exit code 2",
        );
        let settles = verdict.would_settle.join("\n");
        assert!(
            settles.contains("script") && !settles.contains("dmesg"),
            "{settles}"
        );
    }

    #[test]
    fn several_causes_print_the_same() {
        for text in [
            "RuntimeError: DataLoader worker (pid(s) 1, 2) exited unexpectedly",
            "Bus error (core dumped)",
            "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
            "concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated abruptly",
            "subprocess.CalledProcessError: Command '['python', 'train.py']' returned non-zero exit status 1.",
            "The kernel appears to have died. It will restart automatically.",
            "[INFO] [launch.py:319:sigkill_handler] Killing subprocess 7",
            "RuntimeError: One or more background workers are no longer alive. Exiting.",
        ] {
            let verdict = check_text(text, Cause::Ambiguous);
            assert!(!verdict.would_settle.is_empty(), "{text}");
        }
    }
}
