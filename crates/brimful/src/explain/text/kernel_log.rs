//! The kernel's own log about a kill, and the programs that act before it.

use crate::explain::text::clean::Reading;
use crate::explain::text::phrases::{Hit, Phrase, ask, means};
use crate::explain::text::sign::{Rank, Sign};
use crate::explain::text::size::{integer_at_start, size_at_start};
use crate::explain::{Cause, Detail};

use Cause::HostOomKill;
use Rank::Killer;

pub(super) const PHRASES: &[Phrase] = &[
    ask("nohang[", nohang),
    means(
        "Memory cgroup out of memory",
        Killer,
        HostOomKill,
        Detail::GroupLimit,
    ),
    means(
        "Cgroup memory limit exceeded",
        Killer,
        HostOomKill,
        Detail::GroupLimit,
    ),
    means(
        "memory limit exceeded: Kill",
        Killer,
        HostOomKill,
        Detail::GroupLimit,
    ),
    means("invoked oom-killer", Killer, HostOomKill, Detail::Kernel),
    means("oom-kill:constraint=", Killer, HostOomKill, Detail::Kernel),
    means(
        "oom_reaper: reaped process",
        Killer,
        HostOomKill,
        Detail::Kernel,
    ),
    means(
        "Out of memory: Kill",
        Killer,
        HostOomKill,
        Detail::MachineFull,
    ),
    means(
        "Out of memory and no killable processes",
        Killer,
        HostOomKill,
        Detail::MachineFull,
    ),
    means(
        "killed as a result of limit of",
        Killer,
        HostOomKill,
        Detail::GroupLimit,
    ),
    means("oom_kill_process", Killer, HostOomKill, Detail::Kernel),
    means(
        "mem_cgroup_out_of_memory",
        Killer,
        HostOomKill,
        Detail::GroupLimit,
    ),
    means(
        "total_vm rss pgtables_bytes swapents oom_score_adj",
        Killer,
        HostOomKill,
        Detail::Kernel,
    ),
    means(
        "killing largest compressed process",
        Killer,
        HostOomKill,
        Detail::MachineFull,
    ),
    means(
        "memorystatus: killing",
        Killer,
        HostOomKill,
        Detail::MachineFull,
    ),
    ask("Killed process", killed_process),
    ask("memory: usage", usage_and_limit),
    // systemd.
    means(
        "killed by the OOM killer",
        Killer,
        HostOomKill,
        Detail::Kernel,
    ),
    means(
        "Failed with result 'oom-kill'",
        Killer,
        HostOomKill,
        Detail::Kernel,
    ),
    means("result=oom-kill", Killer, HostOomKill, Detail::Kernel),
    means(
        "OOM killer killed some processes in this unit",
        Killer,
        HostOomKill,
        Detail::Kernel,
    ),
    means(
        "systemd-oomd killed",
        Killer,
        HostOomKill,
        Detail::SystemdOomd,
    ),
    means(
        "oomd attempting to kill",
        Killer,
        HostOomKill,
        Detail::SystemdOomd,
    ),
    means(
        "due to memory pressure for",
        Killer,
        HostOomKill,
        Detail::SystemdOomd,
    ),
    means(
        "due to memory used (",
        Killer,
        HostOomKill,
        Detail::SystemdOomd,
    ),
    means(
        "due to swap used (",
        Killer,
        HostOomKill,
        Detail::SystemdOomd,
    ),
    // earlyoom and nohang.
    means(
        "low memory! at or below SIGTERM limits",
        Killer,
        HostOomKill,
        Detail::Earlyoom,
    ),
    means(
        "low memory! at or below SIGKILL limits",
        Killer,
        HostOomKill,
        Detail::Earlyoom,
    ),
    ask("VmRSS", earlyoom),
    means(
        "Implementing a corrective action",
        Killer,
        HostOomKill,
        Detail::Nohang,
    ),
    means(
        "corrective action: Sending SIG",
        Killer,
        HostOomKill,
        Detail::Nohang,
    ),
];

/// `nohang[100]: … sending SIGTERM to python pid 77`
fn nohang(reading: &Reading, hit: Hit) -> Option<Sign> {
    let after = reading.after(hit.end, 200);
    (after.contains("sendingsigterm") || after.contains("sendingsigkill"))
        .then(|| hit.sign(Killer, HostOomKill, Detail::Nohang))
}

/// `Killed process 71 (python) total-vm:…`; other programs say these words without a number.
fn killed_process(reading: &Reading, hit: Hit) -> Option<Sign> {
    let after = reading.after(hit.end, 160);
    let pid = u32::try_from(integer_at_start(after)?).ok()?;
    let is_kernel = after.contains("total-vm") || after.contains("anon-rss");
    if !is_kernel {
        return None;
    }
    let mut sign = hit.sign(Killer, HostOomKill, Detail::Kernel);
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
        let mut sign = hit.sign(Killer, HostOomKill, Detail::GroupLimit);
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
    kills.then(|| hit.sign(Killer, HostOomKill, Detail::Earlyoom))
}
