//! The kernel's own log about a kill, and the programs that act before it.

use crate::explain::Cause;
use crate::explain::text::clean::Reading;
use crate::explain::text::phrases::{Hit, Phrase, ask, means};
use crate::explain::text::sign::{Rank, Sign};
use crate::explain::text::size::{integer_at_start, size_at_start};

use Cause::HostOomKill;
use Rank::Killer;

pub(super) const PHRASES: &[Phrase] = &[
    ask("nohang[", nohang),
    means(
        "Memory cgroup out of memory",
        Killer,
        HostOomKill,
        "group_limit",
    ),
    means(
        "Cgroup memory limit exceeded",
        Killer,
        HostOomKill,
        "group_limit",
    ),
    means(
        "memory limit exceeded: Kill",
        Killer,
        HostOomKill,
        "group_limit",
    ),
    means("invoked oom-killer", Killer, HostOomKill, "kernel"),
    means("oom-kill:constraint=", Killer, HostOomKill, "kernel"),
    means("oom_reaper: reaped process", Killer, HostOomKill, "kernel"),
    means("Out of memory: Kill", Killer, HostOomKill, "machine_full"),
    means(
        "Out of memory and no killable processes",
        Killer,
        HostOomKill,
        "machine_full",
    ),
    means(
        "killed as a result of limit of",
        Killer,
        HostOomKill,
        "group_limit",
    ),
    means("oom_kill_process", Killer, HostOomKill, "kernel"),
    means(
        "mem_cgroup_out_of_memory",
        Killer,
        HostOomKill,
        "group_limit",
    ),
    means(
        "total_vm rss pgtables_bytes swapents oom_score_adj",
        Killer,
        HostOomKill,
        "kernel",
    ),
    means(
        "killing largest compressed process",
        Killer,
        HostOomKill,
        "machine_full",
    ),
    means("memorystatus: killing", Killer, HostOomKill, "machine_full"),
    ask("Killed process", killed_process),
    ask("memory: usage", usage_and_limit),
    // systemd.
    means("killed by the OOM killer", Killer, HostOomKill, "kernel"),
    means(
        "Failed with result 'oom-kill'",
        Killer,
        HostOomKill,
        "kernel",
    ),
    means("result=oom-kill", Killer, HostOomKill, "kernel"),
    means(
        "OOM killer killed some processes in this unit",
        Killer,
        HostOomKill,
        "kernel",
    ),
    means("systemd-oomd killed", Killer, HostOomKill, "systemd_oomd"),
    means(
        "oomd attempting to kill",
        Killer,
        HostOomKill,
        "systemd_oomd",
    ),
    means(
        "due to memory pressure for",
        Killer,
        HostOomKill,
        "systemd_oomd",
    ),
    means("due to memory used (", Killer, HostOomKill, "systemd_oomd"),
    means("due to swap used (", Killer, HostOomKill, "systemd_oomd"),
    // earlyoom and nohang.
    means(
        "low memory! at or below SIGTERM limits",
        Killer,
        HostOomKill,
        "earlyoom",
    ),
    means(
        "low memory! at or below SIGKILL limits",
        Killer,
        HostOomKill,
        "earlyoom",
    ),
    ask("VmRSS", earlyoom),
    means(
        "Implementing a corrective action",
        Killer,
        HostOomKill,
        "nohang",
    ),
    means(
        "corrective action: Sending SIG",
        Killer,
        HostOomKill,
        "nohang",
    ),
];

/// `nohang[100]: … sending SIGTERM to python pid 77`
fn nohang(reading: &Reading, hit: Hit) -> Option<Sign> {
    let after = reading.after(hit.end, 200);
    (after.contains("sendingsigterm") || after.contains("sendingsigkill"))
        .then(|| hit.sign(Killer, HostOomKill, "nohang"))
}

/// `Killed process 71 (python) total-vm:…`; other programs say these words without a number.
fn killed_process(reading: &Reading, hit: Hit) -> Option<Sign> {
    let after = reading.after(hit.end, 160);
    let pid = u32::try_from(integer_at_start(after)?).ok()?;
    let is_kernel = after.contains("total-vm") || after.contains("anon-rss");
    if !is_kernel {
        return None;
    }
    let mut sign = hit.sign(Killer, HostOomKill, "kernel");
    sign.facts.pids = vec![pid];
    sign.facts.is_count = true;
    Some(sign)
}

/// `memory: usage 1048576kB, limit 1048576kB, failcnt 141`: part of a report of a kill in a group.
fn usage_and_limit(reading: &Reading, hit: Hit) -> Option<Sign> {
    let after = reading.after(hit.end, 120);
    let usage = size_at_start(after)?;
    let limit = size_at_start(&after[after.find("limit")? + "limit".len()..])?;
    (usage.share_of(limit) >= 0.98).then(|| {
        let mut sign = hit.sign(Killer, HostOomKill, "group_limit");
        sign.facts.asked = Some(limit);
        sign
    })
}

/// `sending SIGTERM to process 71 uid 0 "python": badness 800, VmRSS 7000 MiB`.
fn earlyoom(reading: &Reading, hit: Hit) -> Option<Sign> {
    let before = reading.before(hit.at, 160);
    let kills = ["sendingsigterm", "sendingsigkill", "killingprocess"]
        .iter()
        .any(|words| before.contains(words));
    kills.then(|| hit.sign(Killer, HostOomKill, "earlyoom"))
}
