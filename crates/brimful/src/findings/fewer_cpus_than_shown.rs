//! `os.cpu_count()` shows more processors than the run gets.

use crate::findings::{Rule, Severity, Told};
use crate::machine::{CpuLimiter, Machine};

pub(super) const RULE: Rule = Rule {
    id: "fewer_cpus_than_shown",
    severity: Severity::Note,
    about: "Affinity, a cpuset or a quota leaves fewer processors than `os.cpu_count()` shows. Workers and threads \
            sized by that number compete for the few, each holding its own memory.",
    check,
};

fn check(machine: &Machine) -> Option<Told> {
    let online = *machine.cpus.online.known()?;
    let usable = machine.cpus.usable();
    let (usable, limiter) = *usable.known()?;
    if limiter == CpuLimiter::Machine || usable >= f64::from(online) {
        return None;
    }
    let by = match limiter {
        CpuLimiter::Machine => return None,
        CpuLimiter::Affinity => "the affinity mask",
        CpuLimiter::Cpuset => "the cpuset of the control group",
        CpuLimiter::Quota => "the CPU quota of the control group",
    };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a small positive number of processors"
    )]
    let workers = usable.floor().max(1.0) as u64;
    let usable = (usable * 100.0).round() / 100.0;
    Some(Told {
        summary: format!("os.cpu_count() shows {online} processors, but {usable} can be used"),
        evidence: vec![format!("{by} allows {usable} of {online}")],
        remedies: vec![format!(
            "`num_workers={workers}` at most, and `OMP_NUM_THREADS={workers}`"
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
            "num_workers=4",
        );
        check_quiet("fewer_cpus_than_shown", |m| {
            m.cpus.quota = Fact::Known(Some(32.0));
        });
    }
}
