//! The caching allocator is turned off.

use crate::allocator::NO_CACHING;
use crate::findings::{Diagnosis, Rule, Severity};
use crate::machine::Machine;

pub(super) const RULE: Rule = Rule {
    id: "caching_allocator_off",
    severity: Severity::Note,
    about: "`PYTORCH_NO_CUDA_MEMORY_CACHING` is set: every allocation is a driver call that synchronizes the GPU. It is \
            meant for memory checkers; if left on, training is many times slower.",
    check,
};

fn check(machine: &Machine) -> Option<Diagnosis> {
    let variable = machine.allocator_variables.iter().find(|variable| {
        variable.name == NO_CACHING && !matches!(variable.value.as_str(), "" | "0")
    })?;
    Some(Diagnosis {
        summary: "the CUDA caching allocator is off: training is many times slower".into(),
        evidence: vec![format!("{NO_CACHING}={}", variable.value)],
        remedies: vec![format!("`unset {NO_CACHING}`")],
    })
}

#[cfg(test)]
mod tests {
    use crate::allocator::{NO_CACHING, variables};
    use crate::findings::testing::check;

    #[test]
    fn a_forgotten_switch() {
        check(
            "caching_allocator_off",
            |m| m.allocator_variables = variables([(NO_CACHING, "1")], None),
            "unset",
        );
    }
}
