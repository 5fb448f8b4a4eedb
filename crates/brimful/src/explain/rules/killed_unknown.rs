//! A SIGKILL without a kernel counter.

use crate::explain::rules::Rule;
use crate::explain::rules::telling::{
    host_detail, host_proofs, host_remedies, proof, quoted, settles_a_kill,
};
use crate::explain::signs::Signs;
use crate::explain::text::Rank;
use crate::explain::{Cause, Confidence, Detail, Evidence, EvidenceSource, Verdict};

pub(super) const RULE: Rule = Rule {
    id: "killed_unknown",
    about: "A process was killed by SIGKILL, or received SIGTERM with almost no memory left, and no kernel counter is available. \
            If almost no headroom was left at the last sample, it was likely an out-of-memory kill; also if the DataLoader \
            reports a killed worker. A bare `Killed` is not conclusive.",
    check,
};

fn check(evidence: &Evidence, signs: &Signs<'_>) -> Option<Verdict> {
    let leading = signs.leading();
    let told = leading.filter(|leading| {
        leading.sign.detail == Detail::Sigkill
            || leading.sign.cause == Cause::DataloaderWorkerKilledOom
    });
    let names_its_cause = leading.is_some_and(|leading| leading.sign.rank <= Rank::Hinted);
    let is_killed = signs.signal == Some(9) || told.is_some();
    // earlyoom asks with SIGTERM first.
    let is_asked = signs.signal == Some(15) && signs.series.was_nearly_full() == Some(true);
    if (!is_killed && !is_asked)
        || (names_its_cause && !is_asked && !signs.killed_with_memory_full())
    {
        return None;
    }
    let mut proofs = Vec::new();
    if let Some(signal) = signs.signal {
        proofs.push(proof(
            EvidenceSource::WaitStatus,
            format!("killed by signal {signal}"),
        ));
    }
    if let Some(told) = &told {
        proofs.push(quoted(told));
    }
    proofs.extend(host_proofs(signs));
    let is_worker = signs.signal != Some(9)
        && told.is_some_and(|told| told.sign.cause == Cause::DataloaderWorkerKilledOom);
    let cause = if is_worker {
        Cause::DataloaderWorkerKilledOom
    } else {
        Cause::HostOomKill
    };
    let who = if is_worker {
        "a DataLoader worker"
    } else {
        "the process"
    };
    if signs.series.was_nearly_full() == Some(true) {
        let words = signs.series.host_in_words().unwrap_or_default();
        return Some(Verdict {
            cause,
            confidence: Confidence::Likely,
            detail: host_detail(signs, Detail::NoCounter),
            summary: format!("{who} was likely killed because host memory ran out: {words}"),
            evidence: proofs,
            remedies: host_remedies(evidence, signs),
            would_settle: settles_a_kill(),
        });
    }
    if is_worker && !signs.series.was_far_from_full() {
        return Some(Verdict {
            cause,
            confidence: Confidence::Likely,
            detail: host_detail(signs, Detail::WorkerKilled),
            summary: "a DataLoader worker was killed by SIGKILL, likely because host memory ran out; no kernel counter is available".into(),
            evidence: proofs,
            remedies: host_remedies(evidence, signs),
            would_settle: settles_a_kill(),
        });
    }
    let rank = signs
        .killed_rank()
        .map(|rank| format!(" (rank {rank})"))
        .unwrap_or_default();
    let room = signs
        .series
        .host_in_words()
        .map(|words| format!("; {words}"))
        .unwrap_or_default();
    Some(Verdict {
        cause: Cause::Ambiguous,
        confidence: Confidence::CannotTell,
        detail: Detail::Sigkill,
        summary: format!(
            "the process was killed by SIGKILL{rank}, and the sender is unknown: the kernel OOM killer, a scheduler, or a user{room}"
        ),
        evidence: proofs,
        remedies: Vec::new(),
        would_settle: settles_a_kill(),
    })
}

#[cfg(test)]
mod tests {
    use crate::explain::Cause;
    use crate::explain::rules::testing::{check, check_text, ended, with_used};
    use crate::record::Outcome;

    #[test]
    fn the_samples_decide_where_nobody_counted() {
        let killed = || ended(Outcome::Killed { signal: 9 });
        check(
            &with_used(killed(), 32, 32),
            Cause::HostOomKill,
            "",
            "likely killed",
        );
        check(
            &with_used(killed(), 8, 32),
            Cause::Ambiguous,
            "sigkill",
            "8 GiB of 32 GiB",
        );
        let verdict = check(
            &killed(),
            Cause::Ambiguous,
            "sigkill",
            "the sender is unknown",
        );
        assert!(
            verdict
                .would_settle
                .iter()
                .any(|what| what.contains("dmesg"))
        );
    }

    #[test]
    fn a_bare_killed_decides_nothing() {
        for text in [
            "Killed",
            " 40%|####      | 4/10 [00:01<00:02,  1.00it/s]Killed",
            "run.sh: line 3: 4711 Killed                  python train.py",
            "zsh: killed     python train.py",
            "[1]+  Killed                  python train.py",
            "已杀死",
            "failed (exitcode: -9) local_rank: 0 (pid: 7) of binary: python",
            "exits with return code = -9",
            "torch.multiprocessing.spawn.ProcessExitedException: process 2 terminated with signal SIGKILL",
            "died with <Signals.SIGKILL: 9>.",
            "Process finished with exit code 137 (interrupted by signal 9: SIGKILL)",
            "mpirun noticed that process rank 1 with PID 7 on node n1 exited on signal 9 (Killed).",
            "Child process with PID 7 terminated with code -9. Forcefully terminating all other processes",
            "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   EXIT CODE: 9",
            "[CRITICAL] Worker (pid:7) was sent SIGKILL! Perhaps out of memory?",
            "The exit codes of the workers are {SIGKILL(-9), EXIT(1)}",
        ] {
            check_text(text, Cause::Ambiguous);
        }
    }

    #[test]
    fn a_worker_that_was_killed_is_likely_short_of_memory() {
        check_text(
            "RuntimeError: DataLoader worker (pid 71) is killed by signal: Killed.",
            Cause::DataloaderWorkerKilledOom,
        );
        check_text(
            "DataLoader worker (pid 71) is killed by signal: 已杀死.",
            Cause::DataloaderWorkerKilledOom,
        );
    }
}
