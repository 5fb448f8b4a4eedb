//! The kernel does not overcommit memory.

use crate::findings::{Diagnosis, Rule, Severity};
use crate::machine::{Machine, OvercommitMode};

pub(super) const RULE: Rule = Rule {
    id: "strict_overcommit",
    severity: Severity::Risk,
    about: "`vm.overcommit_memory` is 2: allocated memory counts against the commit limit even if it is unused. Forked \
            DataLoader workers and CUDA's large reservations then fail with \"Cannot allocate memory\" although most \
            memory is free, especially without swap.",
    check,
};

fn check(machine: &Machine) -> Option<Diagnosis> {
    let overcommit = machine.host.overcommit.known()?;
    if overcommit.mode != OvercommitMode::Never {
        return None;
    }
    let mut evidence = vec!["vm.overcommit_memory is 2".to_owned()];
    if let (Some(limit), Some(committed)) = (overcommit.commit_limit, overcommit.committed) {
        evidence.push(format!(
            "{committed} of the commit limit of {limit} is in use"
        ));
    }
    if let Some(swap) = machine.host.swap.known()
        && swap.total.0 == 0
    {
        evidence.push("there is no swap".into());
    }
    Some(Diagnosis {
        summary: "forked workers and CUDA may fail to allocate although memory is free".into(),
        evidence,
        remedies: vec![
            "`sysctl vm.overcommit_memory=0` (needs root)".into(),
            "use fewer workers, started with `multiprocessing_context=\"forkserver\"`".into(),
        ],
    })
}

#[cfg(test)]
mod tests {
    use crate::fact::Fact;
    use crate::findings::testing::check;
    use crate::machine::{Overcommit, OvercommitMode, Swap};
    use crate::units::Bytes;

    #[test]
    fn strict_accounting_without_swap() {
        check(
            "strict_overcommit",
            |m| {
                m.host.swap = Fact::Known(Swap {
                    total: Bytes::ZERO,
                    free: Bytes::ZERO,
                });
                m.host.overcommit = Fact::Known(Overcommit {
                    mode: OvercommitMode::Never,
                    commit_limit: Some(Bytes::from_gib(32)),
                    committed: Some(Bytes::from_gib(20)),
                });
            },
            "no swap",
        );
    }
}
