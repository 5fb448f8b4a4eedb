//! So few processors that more workers only cost memory.

use crate::findings::{Rule, Severity, Told};
use crate::machine::Machine;

pub(super) const RULE: Rule = Rule {
    id: "few_cpus_for_workers",
    severity: Severity::Note,
    about: "Two processors or fewer can be used. More DataLoader workers than that load no faster, and each holds \
            its own Python, its own copies of the dataset's objects and two batches in shared memory.",
    check,
};

fn check(machine: &Machine) -> Option<Told> {
    let usable = machine.cpus.usable();
    let (usable, _) = *usable.known()?;
    (usable <= 2.0).then(|| Told {
        summary: format!(
            "beyond {usable} DataLoader workers only memory grows: {usable} processors can be used"
        ),
        evidence: vec![format!("{usable} processors can run at the same time")],
        remedies: vec![
            "`num_workers=2` at most; one more worker is one more copy, not more speed".into(),
        ],
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
