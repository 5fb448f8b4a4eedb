//! A DataLoader worker was killed because memory ran out.

use crate::explain::rules::Rule;
use crate::explain::rules::killed_for_memory::{Kill, kill};
use crate::explain::rules::telling::{
    host_detail, host_proofs, host_remedies, limit_proof, proof, quoted, settles_a_kill,
};
use crate::explain::signs::Signs;
use crate::explain::{Cause, Confidence, Evidence, EvidenceSource, Verdict};

pub(super) const RULE: Rule = Rule {
    id: "worker_killed_for_memory",
    about: "The kernel or another OOM killer counted or logged an out-of-memory kill, and the victim was a DataLoader worker: \
            its PID is in the log, or the DataLoader reports that the worker was killed while the main process continued.",
    check,
};

fn check(evidence: &Evidence, signs: &Signs<'_>) -> Option<Verdict> {
    let worker = signs.victim_is_worker()?;
    let Kill {
        confidence,
        mut proofs,
        detail,
        ..
    } = kill(signs)?;
    if let Some(leading) = signs.text.of_cause(Cause::DataloaderWorkerKilledOom) {
        proofs.push(proof(
            EvidenceSource::Output,
            format!("`{}`", signs.text.quote(leading)),
        ));
    } else if let Some(leading) = signs.leading() {
        proofs.push(quoted(&leading));
    }
    let figures = signs
        .series
        .host_in_words()
        .map(|words| format!(": {words}"))
        .unwrap_or_default();
    proofs.extend(limit_proof(evidence));
    proofs.extend(host_proofs(signs));
    let who = if worker == 0 {
        "a DataLoader worker".to_owned()
    } else {
        format!("DataLoader worker {worker}")
    };
    // The kernel may take a second victim, and then the exit code is that of a kill.
    let main_pid = evidence.attempt.as_ref().map(|attempt| attempt.pid);
    let who = if main_pid.is_some_and(|pid| signs.victims.contains(&pid)) {
        format!("{who}, and then the main process, were")
    } else {
        format!("{who} was")
    };
    Some(Verdict {
        cause: Cause::DataloaderWorkerKilledOom,
        confidence,
        detail: host_detail(signs, detail),
        summary: format!("{who} killed because host memory ran out{figures}"),
        evidence: proofs,
        remedies: host_remedies(evidence, signs),
        would_settle: if confidence == Confidence::Proved {
            Vec::new()
        } else {
            settles_a_kill()
        },
    })
}

#[cfg(test)]
mod tests {
    use crate::explain::rules::testing::{check, ended, with_kills, with_workers};
    use crate::explain::{Cause, Confidence};
    use crate::record::Outcome;

    #[test]
    fn the_log_names_a_worker() {
        let mut evidence = with_kills(ended(Outcome::Failed { code: 1 }), Some(1));
        evidence = with_workers(evidence, &[71, 72]);
        evidence.end.as_mut().unwrap().kernel.log =
            vec!["Memory cgroup out of memory: Killed process 72 (python) total-vm:8000kB, anon-rss:7000kB".into()];
        let verdict = check(&evidence, Cause::DataloaderWorkerKilledOom, "", "worker 72");
        assert_eq!(verdict.confidence, Confidence::Proved);
        assert!(
            verdict
                .remedies
                .iter()
                .any(|remedy| remedy.text.contains("instead of 2")),
            "{verdict:?}"
        );
    }

    #[test]
    fn the_log_names_a_worker_and_then_the_main_process() {
        let mut evidence = with_kills(ended(Outcome::Killed { signal: 9 }), Some(2));
        evidence = with_workers(evidence, &[71, 72]);
        evidence.end.as_mut().unwrap().kernel.log = [72, 40]
            .map(|pid| format!("Memory cgroup out of memory: Killed process {pid} (python) total-vm:8000kB, anon-rss:7000kB"))
            .into();
        check(
            &evidence,
            Cause::DataloaderWorkerKilledOom,
            "",
            "worker 72, and then the main process, were killed because",
        );
    }

    #[test]
    fn the_dataloader_says_it_and_the_kernel_counted_it() {
        let mut evidence = with_kills(ended(Outcome::Failed { code: 1 }), Some(1));
        evidence.text = "RuntimeError: DataLoader worker (pid(s) 901) exited unexpectedly".into();
        check(
            &evidence,
            Cause::DataloaderWorkerKilledOom,
            "",
            "worker 901",
        );
    }

    #[test]
    fn a_main_process_that_was_killed_is_the_victim() {
        let mut evidence = with_kills(ended(Outcome::Killed { signal: 9 }), Some(3));
        evidence.text =
            "RuntimeError: DataLoader worker (pid 901) is killed by signal: Killed.".into();
        check(&evidence, Cause::HostOomKill, "", "host memory ran out");
    }
}
