//! Slurm, PBS, LSF, Grid Engine, HTCondor: a job was ended by its scheduler.

use crate::explain::text::clean::Reading;
use crate::explain::text::phrases::{Hit, Phrase, ask, means};
use crate::explain::text::sign::{Rank, Sign};
use crate::explain::{Cause, Detail};

use Cause::{Ambiguous, HostOomKill, NotMemory};
use Rank::{Killer, Named};

pub(super) const PHRASES: &[Phrase] = &[
    // Slurm counts the kernel's kills in the job's group, in words that change with the release.
    ask("oom-kill event", counted),
    ask("oom_kill event", counted),
    means(
        "killed by the cgroup out-of-memory handler",
        Killer,
        HostOomKill,
        Detail::Slurm,
    ),
    means(
        "step tasks have been OOM Killed",
        Killer,
        HostOomKill,
        Detail::Slurm,
    ),
    means(
        "Exceeded job memory limit",
        Killer,
        HostOomKill,
        Detail::Slurm,
    ),
    ask("Exceeded step memory limit", limit_touched),
    means(
        "memory usage exceeded request_memory",
        Killer,
        HostOomKill,
        Detail::SchedulerLimit,
    ),
    ask("over memory limit", held_for_memory),
    means(
        "exceeded a memory resource limit",
        Killer,
        HostOomKill,
        Detail::SchedulerLimit,
    ),
    means(
        "exceeded memory limit",
        Killer,
        HostOomKill,
        Detail::SchedulerLimit,
    ),
    means(
        "exceeded virtual memory limit",
        Killer,
        HostOomKill,
        Detail::SchedulerLimit,
    ),
    ask(": Out Of Memory", slurm_task),
    ask("OUT_OF_MEMORY", slurm_state),
    means("OUT_OF_ME+", Killer, HostOomKill, Detail::Slurm),
    ask("CANCELLED AT", cancelled),
    means("DUE TO TIME LIMIT", Named, NotMemory, Detail::TimeLimit),
    means("DUE TO JOB TIME LIMIT", Named, NotMemory, Detail::TimeLimit),
    means(
        "DUE TO STEP TIME LIMIT",
        Named,
        NotMemory,
        Detail::TimeLimit,
    ),
    means("DUE TO PREEMPTION", Named, NotMemory, Detail::Preempted),
    means("DUE TO NODE FAILURE", Named, NotMemory, Detail::Hardware),
    means(
        "DUE TO SIGNAL Terminated",
        Named,
        NotMemory,
        Detail::Terminated,
    ),
    means("time limit exhausted", Named, NotMemory, Detail::TimeLimit),
    means("State=TIMEOUT", Named, NotMemory, Detail::TimeLimit),
    means("State: TIMEOUT", Named, NotMemory, Detail::TimeLimit),
    means("State=PREEMPTED", Named, NotMemory, Detail::Preempted),
    means("State: PREEMPTED", Named, NotMemory, Detail::Preempted),
    means("State=NODE_FAIL", Named, NotMemory, Detail::Hardware),
    means("State: NODE_FAIL", Named, NotMemory, Detail::Hardware),
    means(
        "State=CANCELLED",
        Rank::Raised,
        NotMemory,
        Detail::Cancelled,
    ),
    means(
        "State: CANCELLED",
        Rank::Raised,
        NotMemory,
        Detail::Cancelled,
    ),
    // The others.
    ask("PBS: job killed:", pbs),
    ask("job killed:", pbs),
    means("TERM_MEMLIMIT", Killer, HostOomKill, Detail::SchedulerLimit),
    means(
        "job killed after reaching LSF memory usage limit",
        Killer,
        HostOomKill,
        Detail::SchedulerLimit,
    ),
    means("TERM_RUNLIMIT", Named, NotMemory, Detail::TimeLimit),
    means("TERM_PREEMPT", Named, NotMemory, Detail::Preempted),
    means(
        "has gone over memory limit",
        Killer,
        HostOomKill,
        Detail::SchedulerLimit,
    ),
    means(
        "exceeded hard limit \"h_vmem\"",
        Killer,
        HostOomKill,
        Detail::SchedulerLimit,
    ),
    means("Job was preempted", Named, NotMemory, Detail::Preempted),
    means(
        "preempted by the scheduler",
        Named,
        NotMemory,
        Detail::Preempted,
    ),
    means(
        "instance was preempted",
        Named,
        NotMemory,
        Detail::Preempted,
    ),
    means(
        "DeadlineExceeded",
        Rank::Raised,
        NotMemory,
        Detail::TimeLimit,
    ),
];

/// Old releases of Slurm say it also where page cache has touched the limit and nothing was killed.
fn limit_touched(reading: &Reading, hit: Hit) -> Option<Sign> {
    let near = reading.around(hit.at, 400, 400);
    let is_killed = [
        "killed",
        "oom",
        "exitcode",
        "cancelled",
        "sigkill",
        "error:",
    ]
    .iter()
    .any(|word| near.contains(word));
    Some(if is_killed {
        hit.sign(Killer, HostOomKill, Detail::Slurm)
    } else {
        hit.sign(Rank::Signaled, Ambiguous, Detail::LimitTouched)
    })
}

/// HTCondor: `Job has gone over memory limit of 2048 megabytes`, `… was held: … over memory limit`.
fn held_for_memory(reading: &Reading, hit: Hit) -> Option<Sign> {
    let near = reading.around(hit.at, 120, 80);
    ["held", "gone", "removed", "evict", "killed", "terminat"]
        .iter()
        .any(|word| near.contains(word))
        .then(|| hit.sign(Killer, HostOomKill, Detail::SchedulerLimit))
}

/// `Detected 1 oom-kill event(s)`: none is none.
fn counted(reading: &Reading, hit: Hit) -> Option<Sign> {
    if reading.before(hit.at, 12).ends_with("detected0") {
        return None;
    }
    let mut sign = hit.sign(Killer, HostOomKill, Detail::Slurm);
    sign.facts.is_count = true;
    Some(sign)
}

/// `srun: error: node1: task 0: Out Of Memory`.
fn slurm_task(reading: &Reading, hit: Hit) -> Option<Sign> {
    let before = reading.before(hit.at, 120);
    let at = before.rfind("task")?;
    before[at..]
        .bytes()
        .skip(4)
        .all(|b| b.is_ascii_digit() || b"s,-[]".contains(&b))
        .then(|| hit.sign(Killer, HostOomKill, Detail::Slurm))
}

/// The state of a job or step; not `CUDA_ERROR_OUT_OF_MEMORY`.
fn slurm_state(reading: &Reading, hit: Hit) -> Option<Sign> {
    let before = reading.before(hit.at, 12);
    let after = reading.after(hit.end, 8);
    let is_part_of_a_name =
        before.ends_with(['_', ':']) && !before.ends_with("state:") || after.starts_with('_');
    let is_as_slurm_writes = reading.lines[reading.line_at(hit.at)].contains("OUT_OF_MEMORY")
        || before.trim_end_matches([':', '=']).ends_with("state");
    (is_as_slurm_writes && !is_part_of_a_name).then(|| hit.sign(Killer, HostOomKill, Detail::Slurm))
}

/// Without a reason: by the user, or because a task failed.
fn cancelled(reading: &Reading, hit: Hit) -> Option<Sign> {
    (!reading.after(hit.end, 60).contains("dueto"))
        .then(|| hit.sign(Rank::Raised, NotMemory, Detail::Cancelled))
}

/// `=>> PBS: job killed: walltime 3612 exceeded limit 3600`.
fn pbs(reading: &Reading, hit: Hit) -> Option<Sign> {
    let after = reading.after(hit.end, 80);
    Some(if after.contains("mem") {
        hit.sign(Killer, HostOomKill, Detail::SchedulerLimit)
    } else if after.contains("walltime") || after.contains("cput") {
        hit.sign(Named, NotMemory, Detail::TimeLimit)
    } else {
        hit.sign(Rank::Raised, Ambiguous, Detail::Sigkill)
    })
}
