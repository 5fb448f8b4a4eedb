//! So few processors that more workers only cost memory.

use crate::findings::{Rule, Severity, Told};
use crate::machine::{CpuLimiter, Machine};

pub(super) const RULE: Rule = Rule {
    id: "few_cpus_for_workers",
    severity: Severity::Note,
    about: "The machine has two processors or fewer. More DataLoader workers than that seldom load faster, and each \
            holds its own Python, its own copies of the dataset's objects and two batches in shared memory.",
    check,
};

fn check(machine: &Machine) -> Option<Told> {
    let usable = machine.cpus.usable();
    let (usable, limiter) = *usable.known()?;
    // Where a limit holds the number down, `fewer_cpus_than_shown` has said it already.
    (usable <= 2.0 && limiter == CpuLimiter::Machine).then(|| Told {
        summary: format!(
            "more than {usable} DataLoader workers cost memory and seldom gain speed: there are {usable} processors"
        ),
        evidence: vec![format!("{usable} processors are online")],
        remedies: vec![format!(
            "`num_workers={usable}` at most, unless loading waits for a slow disk or network"
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
            "2 processors",
        );
        check_quiet("few_cpus_for_workers", |m| m.cpus.online = Fact::Known(4));
    }
}
