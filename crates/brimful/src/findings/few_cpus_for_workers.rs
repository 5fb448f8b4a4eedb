//! So few CPUs that more workers only use more memory.

use crate::findings::{Diagnosis, Rule, Severity};
use crate::machine::{CpuLimiter, Machine};

pub(super) const RULE: Rule = Rule {
    id: "few_cpus_for_workers",
    severity: Severity::Note,
    about: "The machine has at most two CPUs. More DataLoader workers than CPUs rarely load faster, and each worker \
            needs memory for its own Python process, its copies of the dataset's objects and two batches in shared memory.",
    check,
};

fn check(machine: &Machine) -> Option<Diagnosis> {
    let usable = machine.cpus.usable();
    let (usable, limiter) = *usable.known()?;
    // Where a limit holds the number down, `fewer_cpus_than_shown` has said it already.
    (usable <= 2.0 && limiter == CpuLimiter::Machine).then(|| Diagnosis {
        summary: format!(
            "more than {usable} DataLoader workers use more memory and rarely load faster (usable CPUs: {usable})"
        ),
        evidence: vec![format!("CPUs online: {usable}")],
        remedies: vec![format!(
            "set `num_workers` to at most {usable}, unless a slow disk or network limits loading"
        )],
    })
}

#[cfg(test)]
mod tests {
    use crate::fact::Fact;
    use crate::findings::testing::{check, check_quiet};

    #[test]
    fn the_free_notebooks_have_two() {
        check(
            "few_cpus_for_workers",
            |m| m.cpus.online = Fact::Known(2),
            "usable CPUs: 2",
        );
        check_quiet("few_cpus_for_workers", |m| m.cpus.online = Fact::Known(4));
    }
}
