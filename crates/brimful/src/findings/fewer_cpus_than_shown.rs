//! `os.cpu_count()` returns more CPUs than the run can use.

use crate::findings::{Diagnosis, Rule, Severity};
use crate::machine::{CpuLimiter, Machine};

pub(super) const RULE: Rule = Rule {
    id: "fewer_cpus_than_shown",
    severity: Severity::Note,
    about: "CPU affinity, a cpuset or a CPU quota allows fewer CPUs than `os.cpu_count()` returns. If the number of workers \
            or threads is set from that value, they compete for CPU time, and each uses memory.",
    check,
};

fn check(machine: &Machine) -> Option<Diagnosis> {
    let online = *machine.cpus.online.known()?;
    let usable = machine.cpus.usable();
    let (usable, limiter) = *usable.known()?;
    if limiter == CpuLimiter::Machine || usable >= f64::from(online) {
        return None;
    }
    let by = match limiter {
        CpuLimiter::Machine => return None,
        CpuLimiter::Affinity => "the affinity mask",
        CpuLimiter::Cpuset => "the cgroup cpuset",
        CpuLimiter::Quota => "the cgroup CPU quota",
    };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a small positive number of CPUs"
    )]
    let workers = usable.floor().max(1.0) as u64;
    let usable = (usable * 100.0).round() / 100.0;
    Some(Diagnosis {
        summary: format!("os.cpu_count() returns {online}, but only {usable} CPUs can be used"),
        evidence: vec![format!("{by} allows {usable} of {online} CPUs")],
        remedies: vec![format!(
            "set `num_workers` to at most {workers}, and `OMP_NUM_THREADS={workers}`"
        )],
    })
}

#[cfg(test)]
mod tests {
    use crate::fact::Fact;
    use crate::findings::testing::{check, check_quiet};

    #[test]
    fn a_quota_is_named() {
        check(
            "fewer_cpus_than_shown",
            |m| m.cpus.quota = Fact::Known(Some(2.5)),
            "quota",
        );
        check(
            "fewer_cpus_than_shown",
            |m| m.cpus.affinity = Fact::Known(4),
            "`num_workers` to at most 4",
        );
        check_quiet("fewer_cpus_than_shown", |m| {
            m.cpus.quota = Fact::Known(Some(32.0));
        });
    }
}
