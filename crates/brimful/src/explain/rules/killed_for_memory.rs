//! Host memory ran out, and the kernel or another OOM killer killed a process.

use crate::explain::rules::Rule;
use crate::explain::rules::telling::{
    host_detail, host_proofs, host_remedies, limit_proof, notebook_remedies, proof, quoted,
    settles_a_kill,
};
use crate::explain::signs::{Signs, is_kill_without_the_kernel};
use crate::explain::text::Rank;
use crate::explain::{Cause, Confidence, Detail, Evidence, EvidenceSource, Proof, Verdict};

pub(super) const RULE: Rule = Rule {
    id: "killed_for_memory",
    about: "The kernel counted an OOM kill in the cgroup of this job, or logged one of its processes as the victim; or it \
            counted one outside the job's cgroup and a process of this job was killed; or a scheduler, an orchestrator, \
            systemd-oomd, earlyoom or Ray reports the kill.",
    check,
};

/// An out-of-memory kill, and its evidence.
#[derive(Debug)]
pub(super) struct Kill {
    pub(super) confidence: Confidence,
    pub(super) detail: Detail,
    pub(super) proofs: Vec<Proof>,
}

/// Finds the strongest evidence of an out-of-memory kill.
pub(super) fn kill(signs: &Signs<'_>) -> Option<Kill> {
    let mut proofs = Vec::new();
    let mut found = None;
    if let Some(kills) = signs.own_kills() {
        let times = if kills == 1 {
            "1 process".to_owned()
        } else {
            format!("{kills} processes")
        };
        proofs.push(proof(
            EvidenceSource::Kernel,
            format!("the kernel OOM killer killed {times} of this job (oom_kill)"),
        ));
        found = Some((Confidence::Proved, Detail::Kernel));
    }
    if let Some(victim) = signs.our_victim() {
        proofs.push(proof(
            EvidenceSource::KernelLog,
            format!("the kernel OOM killer killed process {victim} of this job"),
        ));
        found = found.or(Some((Confidence::Proved, Detail::Kernel)));
    }
    if found.is_none()
        && let Some(around) = signs.kernel.and_then(|kernel| kernel.oom_kills_around)
        && around > 0
        && !signs.kernel_did_not_kill()
        && (signs.somebody_was_killed() || signs.series.was_nearly_full() == Some(true))
    {
        let times = if around == 1 {
            "1 OOM kill".to_owned()
        } else {
            format!("{around} OOM kills")
        };
        let what = if signs.somebody_was_killed() {
            "a process of this job was killed"
        } else {
            "the job was close to the brim"
        };
        proofs.push(proof(
            EvidenceSource::Kernel,
            format!("the kernel counted {times} outside the cgroup of this job, and {what}"),
        ));
        found = Some((Confidence::Likely, Detail::Kernel));
    }
    if found.is_none()
        && let Some(leading) = signs.leading()
        && leading.sign.rank == Rank::Killer
        && matches!(
            leading.sign.cause,
            Cause::HostOomKill | Cause::DataloaderWorkerKilledOom
        )
    {
        proofs.push(quoted(&leading));
        let is_counted = leading.sign.facts.is_count || has_count(signs);
        let confidence = if is_counted {
            Confidence::Proved
        } else {
            Confidence::Likely
        };
        found = Some((confidence, leading.sign.detail));
    }
    let (confidence, detail) = found?;
    Some(Kill {
        confidence,
        detail,
        proofs,
    })
}

/// Whether the text has the kernel's own line about a kill, or a scheduler's count.
fn has_count(signs: &Signs<'_>) -> bool {
    signs.text.signs.iter().any(|sign| sign.facts.is_count)
}

fn check(evidence: &Evidence, signs: &Signs<'_>) -> Option<Verdict> {
    let Kill {
        confidence,
        detail,
        mut proofs,
    } = kill(signs)?;
    let cause = match signs.leading_to(Cause::DataloaderWorkerKilledOom) {
        Some(leading) if leading.sign.rank == Rank::Killer => Cause::DataloaderWorkerKilledOom,
        _ => Cause::HostOomKill,
    };
    if let Some(signal) = signs.signal {
        proofs.push(proof(
            EvidenceSource::WaitStatus,
            format!("killed by signal {signal}"),
        ));
    }
    let who = match signs.killed_rank() {
        Some(rank) => format!("rank {rank} was killed"),
        None => "the process was killed".to_owned(),
    };
    let by = match detail {
        Detail::SystemdOomd => " by systemd-oomd",
        Detail::Earlyoom => " by earlyoom",
        Detail::Nohang => " by nohang",
        Detail::RayMemoryMonitor => " by Ray's memory monitor",
        Detail::DaskMemoryLimit => " by dask at its memory limit",
        Detail::SchedulerLimit | Detail::Slurm => " at the memory limit of the job",
        Detail::ContainerLimit | Detail::GroupLimit => " at the memory limit of its cgroup",
        Detail::Notebook => " by the notebook platform",
        Detail::Evicted => " by Kubernetes, because the node was low on memory",
        _ => " by the kernel",
    };
    let figures = match (signs.series.peak_used, signs.series.limit()) {
        (Some(peak), Some(limit)) => format!(": peak {peak} of {limit}"),
        _ => String::new(),
    };
    let summary = format!("{who}{by} because host memory ran out{figures}");
    proofs.extend(limit_proof(evidence));
    proofs.extend(host_proofs(signs));
    let otherwise = if is_kill_without_the_kernel(detail) || signs.own_kills().is_none() {
        detail
    } else {
        Detail::Kernel
    };
    Some(Verdict {
        cause,
        confidence,
        detail: host_detail(signs, otherwise),
        summary,
        evidence: proofs,
        remedies: if detail == Detail::Notebook {
            notebook_remedies()
        } else {
            host_remedies(evidence, signs)
        },
        would_settle: if confidence == Confidence::Proved {
            Vec::new()
        } else {
            settles_a_kill()
        },
    })
}

#[cfg(test)]
mod tests {
    use crate::explain::rules::testing::{check, check_text, ended, with_kills, with_used};
    use crate::explain::{Cause, Confidence};
    use crate::record::Outcome;

    #[test]
    fn the_kernel_counted_it() {
        let evidence = with_used(
            with_kills(ended(Outcome::Killed { signal: 9 }), Some(1)),
            31,
            32,
        );
        let verdict = check(&evidence, Cause::HostOomKill, "", "31 GiB of 32 GiB");
        assert_eq!(verdict.confidence, Confidence::Proved);
    }

    #[test]
    fn the_rank_is_named() {
        let mut evidence = with_kills(ended(Outcome::Failed { code: 1 }), Some(1));
        evidence.text = "failed (exitcode: -9) local_rank: 3 (pid: 41) of binary: python3".into();
        check(&evidence, Cause::HostOomKill, "", "rank 3");
    }

    #[test]
    fn kills_around_prove_nothing_alone() {
        let mut evidence = ended(Outcome::Killed { signal: 9 });
        evidence.end.as_mut().unwrap().kernel.oom_kills_around = Some(2);
        let verdict = check(&evidence, Cause::HostOomKill, "", "host memory");
        assert_eq!(verdict.confidence, Confidence::Likely);
        evidence.end.as_mut().unwrap().kernel.log =
            vec!["Out of memory: Killed process 7 (python) total-vm:8kB, anon-rss:7kB".into()];
        evidence.attempt.as_mut().unwrap().pid = 7;
        let verdict = check(&evidence, Cause::HostOomKill, "", "host memory");
        assert_eq!(verdict.confidence, Confidence::Proved);
    }

    #[test]
    fn killers_say_it_in_their_words() {
        for text in [
            "slurmstepd: error: Detected 3 oom-kill event(s) in StepId=7.batch. Some of your processes may have been killed",
            "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed.",
            "slurmstepd: error: Job 7 exceeded memory limit (9000000 > 8000000), being killed",
            "srun: error: n1: tasks 0,2-3: Out Of Memory",
            "    reason: OOMKilled\n    exitCode: 137",
            "The node was low on resource: memory. Container main was using 7Gi, which exceeds its request of 1Gi.",
            "python invoked oom-killer: gfp_mask=0x100cca, order=0",
            "Task was killed due to the node running low on memory.",
            "(raylet) 2 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed due to other reasons",
            "Your session crashed after using all available RAM.",
            "sending SIGTERM to process 7 uid 1000 \"python\": oom_score 900, VmRSS 7000 MiB, badness 900",
            "train.service: A process of this unit has been killed by the OOM killer.",
            "=>> PBS: job killed: mem 9000kb exceeded limit 8000kb",
            "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.",
        ] {
            check_text(text, Cause::HostOomKill);
        }
    }

    #[test]
    fn what_only_looks_like_a_kill() {
        check_text(
            "\"State\": { \"OOMKilled\": false, \"ExitCode\": 137 }",
            Cause::Ambiguous,
        );
        check_text(
            "0 Workers (tasks / actors) killed due to memory pressure (OOM), 1 Workers crashed",
            Cause::Ambiguous,
        );
        check_text(
            "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***",
            Cause::NotMemory,
        );
    }
}
