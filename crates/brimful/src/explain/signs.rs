//! Everything the rules look at, read once.

use crate::explain::series::Series;
use crate::explain::text::{Rank, Sign, TextSigns};
use crate::explain::{Cause, Detail, Evidence, EvidenceSource};
use crate::record::{HookLine, KernelCounts, Outcome};
use crate::watch::Role;

/// Evidence, read.
#[derive(Clone, Debug)]
pub(in crate::explain) struct Signs<'a> {
    /// What was printed.
    pub(in crate::explain) text: TextSigns,
    /// Exceptions that the hook saw, as if printed.
    pub(in crate::explain) exceptions: TextSigns,
    pub(in crate::explain) series: Series,
    pub(in crate::explain) kernel: Option<&'a KernelCounts>,
    /// Processes that the kernel's log names as killed.
    pub(in crate::explain) victims: Vec<u32>,
    /// Workers of DataLoaders.
    pub(in crate::explain) worker_pids: Vec<u32>,
    our_pids: Vec<u32>,
    /// The signal that ended the main process, or a child of a shell that passes it on as 128 and the signal.
    pub(in crate::explain) signal: Option<i32>,
    /// The main process ended with an exit code other than 0.
    failed: bool,
}

/// The sign to believe, and where it stands.
#[derive(Clone, Copy, Debug)]
pub(in crate::explain) struct Leading<'a> {
    pub(in crate::explain) source: EvidenceSource,
    pub(in crate::explain) sign: &'a Sign,
    text: &'a TextSigns,
}

impl Leading<'_> {
    /// The line that says it.
    pub(in crate::explain) fn quote(&self) -> String {
        self.text.quote(self.sign)
    }
}

impl<'a> Signs<'a> {
    pub(in crate::explain) fn of(evidence: &'a Evidence) -> Signs<'a> {
        let kernel = evidence.end.as_ref().map(|end| &end.kernel);
        let log = TextSigns::of(
            &kernel
                .map(|kernel| kernel.log.join("\n"))
                .unwrap_or_default(),
        );
        let mut signs = Signs {
            text: TextSigns::of(&evidence.text),
            exceptions: TextSigns::of(&exceptions(evidence)),
            series: Series::of(evidence),
            kernel,
            victims: log
                .signs
                .iter()
                .filter(|sign| sign.cause == Cause::HostOomKill)
                .flat_map(|sign| sign.facts.pids.iter().copied())
                .collect(),
            worker_pids: worker_pids(evidence),
            our_pids: our_pids(evidence),
            signal: evidence
                .end
                .as_ref()
                .and_then(|end| signal_of(&end.outcome)),
            failed: evidence
                .end
                .as_ref()
                .is_some_and(|end| matches!(end.outcome, Outcome::Failed { .. })),
        };
        for sign in &signs.text.signs {
            if sign.cause == Cause::DataloaderWorkerKilledOom
                || sign.detail == Detail::WorkerVanished
            {
                signs.worker_pids.extend(&sign.facts.pids);
            }
            if sign.rank > Rank::Killer {
                signs.our_pids.extend(&sign.facts.pids);
            }
        }
        signs.our_pids.extend(&signs.worker_pids);
        signs
    }

    /// The sign to believe: an exception that the hook saw, or what was printed, whichever decides more.
    ///
    /// Where the kernel counted and found no kill, nobody's word for one is believed, except that of programs that
    /// kill without the kernel's counting it.
    pub(in crate::explain) fn leading(&self) -> Option<Leading<'_>> {
        let is_believed = |sign: &Sign| {
            !(self.kernel_did_not_kill()
                && matches!(
                    sign.cause,
                    Cause::HostOomKill | Cause::DataloaderWorkerKilledOom
                )
                && !is_kill_without_the_kernel(sign.detail)
                && sign.rank == Rank::Killer)
        };
        [
            (EvidenceSource::Hook, &self.exceptions),
            (EvidenceSource::Output, &self.text),
        ]
        .into_iter()
        .filter_map(|(source, text)| {
            // Where the exception that ended it is known, words that only sound like memory were about something else.
            let is_only_words = |sign: &Sign| {
                source == EvidenceSource::Output
                    && sign.rank == Rank::Hinted
                    && !self.exceptions.signs.is_empty()
            };
            let sign = text
                .signs
                .iter()
                .find(|sign| is_believed(sign) && !is_only_words(sign))?;
            Some(Leading { source, sign, text })
        })
        // Of two that say as much, what was printed has the traceback around it.
        .min_by_key(|leading| (leading.sign.rank, leading.source == EvidenceSource::Hook))
    }

    /// Whether the exception that ended a process names this cause: words in a log may be somebody else's, these are not.
    pub(in crate::explain) fn was_raised(&self, cause: Cause) -> bool {
        let first = self.exceptions.signs.first();
        first.is_some_and(|sign| sign.cause == cause && sign.rank <= Rank::Named)
    }

    /// The leading sign, if it is of this cause.
    pub(in crate::explain) fn leading_to(&self, cause: Cause) -> Option<Leading<'_>> {
        self.leading().filter(|leading| leading.sign.cause == cause)
    }

    /// Kills that the kernel counted in the job's own group, if any.
    pub(in crate::explain) fn own_kills(&self) -> Option<u64> {
        let kernel = self.kernel?;
        let kills = kernel
            .oom_kills
            .unwrap_or(0)
            .max(kernel.oom_group_kills.unwrap_or(0));
        (kills > 0).then_some(kills)
    }

    /// The kernel counted in the job's own group, or around it, and counted none.
    pub(in crate::explain) fn kernel_did_not_kill(&self) -> bool {
        self.kernel.is_some_and(|kernel| {
            kernel.oom_kills.or(kernel.oom_kills_around) == Some(0)
                && kernel.oom_group_kills.unwrap_or(0) == 0
        }) && self.our_victim().is_none()
    }

    /// Whether the main process went on to fail by itself while the kernel killed in a job that has workers, and no rank
    /// is named: then the victim was one of them.
    fn a_worker_must_have_been_killed(&self) -> bool {
        self.signal.is_none()
            && self.failed
            && !self.worker_pids.is_empty()
            && self.killed_rank().is_none()
    }

    /// A process of this job that the kernel's log names.
    pub(in crate::explain) fn our_victim(&self) -> Option<u32> {
        self.victims
            .iter()
            .copied()
            .find(|pid| self.our_pids.contains(pid))
    }

    /// Whether a process of the job was ended by SIGKILL, by its status or in a launcher's words.
    pub(in crate::explain) fn somebody_was_killed(&self) -> bool {
        self.signal == Some(9)
            || self.text.signs.iter().any(|sign| {
                sign.detail == Detail::Sigkill
                    || sign.detail == Detail::WorkerVanished
                    || sign.cause == Cause::DataloaderWorkerKilledOom
            })
    }

    /// Killed, with host memory next to full at the last sample: that outranks whatever was printed.
    pub(in crate::explain) fn killed_with_memory_full(&self) -> bool {
        self.signal == Some(9) && self.series.was_nearly_full() == Some(true)
    }

    /// Whether the victim was a worker: by the kernel's log, or by the DataLoader's words while the main process was
    /// not killed itself.
    pub(in crate::explain) fn victim_is_worker(&self) -> Option<u32> {
        if let Some(victim) = self.our_victim() {
            return self.worker_pids.contains(&victim).then_some(victim);
        }
        if self.signal == Some(9) {
            return None;
        }
        let told = self.text.signs.iter().find(|sign| {
            sign.cause == Cause::DataloaderWorkerKilledOom
                || (sign.detail == Detail::WorkerVanished && !sign.facts.pids.is_empty())
        });
        match told {
            Some(told) => Some(told.facts.pids.first().copied().unwrap_or_default()),
            None => self.a_worker_must_have_been_killed().then_some(0),
        }
    }

    /// The rank that a launcher names with SIGKILL.
    pub(in crate::explain) fn killed_rank(&self) -> Option<u32> {
        self.text
            .signs
            .iter()
            .filter(|sign| sign.detail == Detail::Sigkill)
            .find_map(|sign| sign.facts.process_rank)
    }
}

/// earlyoom and its like, which send signals of their own.
pub(in crate::explain) fn is_kill_without_the_kernel(detail: Detail) -> bool {
    matches!(
        detail,
        Detail::Earlyoom
            | Detail::Nohang
            | Detail::SystemdOomd
            | Detail::RayMemoryMonitor
            | Detail::DaskMemoryLimit
            | Detail::SchedulerLimit
            | Detail::Evicted
    )
}

fn signal_of(outcome: &Outcome) -> Option<i32> {
    match outcome {
        Outcome::Killed { signal } => Some(*signal),
        Outcome::Failed { code } if (129..=192).contains(code) => Some(code - 128),
        _ => None,
    }
}

/// As Python would have printed them.
fn exceptions(evidence: &Evidence) -> String {
    let mut text = String::new();
    for line in &evidence.hook {
        if let HookLine::Exception {
            type_name, message, ..
        } = line
        {
            if !type_name.is_empty() {
                text.push_str(type_name);
                text.push_str(": ");
            }
            text.push_str(message);
            text.push('\n');
        }
    }
    text
}

fn worker_pids(evidence: &Evidence) -> Vec<u32> {
    let from_loaders = evidence
        .loaders
        .iter()
        .flat_map(|loader| loader.worker_pids.iter().copied());
    let last = evidence.end.as_ref().and_then(|end| end.last.as_ref());
    let from_samples = evidence
        .samples
        .iter()
        .chain(last)
        .flat_map(|sample| &sample.processes)
        .filter(|process| matches!(process.role, Role::Worker { .. }))
        .map(|process| process.pid);
    from_loaders.chain(from_samples).collect()
}

fn our_pids(evidence: &Evidence) -> Vec<u32> {
    let last = evidence.end.as_ref().and_then(|end| end.last.as_ref());
    let mut pids: Vec<u32> = evidence
        .samples
        .iter()
        .chain(last)
        .flat_map(|sample| &sample.processes)
        .map(|process| process.pid)
        .collect();
    pids.extend(evidence.attempt.iter().map(|attempt| attempt.pid));
    pids.extend(evidence.loaders.iter().map(|loader| loader.pid));
    pids.extend(
        evidence
            .end
            .iter()
            .flat_map(|end| end.orphans.iter().map(|(pid, _)| *pid)),
    );
    pids
}
