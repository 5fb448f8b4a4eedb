//! The caching allocator is turned off.

use crate::allocator::NO_CACHING;
use crate::findings::{Rule, Severity, Told};
use crate::machine::Machine;

pub(super) const RULE: Rule = Rule {
    id: "caching_allocator_off",
    severity: Severity::Note,
    about: "`PYTORCH_NO_CUDA_MEMORY_CACHING` is set: every tensor is a call to the driver that stops the GPU. Meant \
            for memory checkers; a forgotten one makes training many times slower.",
    check,
};

fn check(machine: &Machine) -> Option<Told> {
    let variable = machine.allocator_variables.iter().find(|variable| {
        variable.name == NO_CACHING && !matches!(variable.value.as_str(), "" | "0")
    })?;
    Some(Told {
        summary: "every allocation on the GPU goes to the driver: training is many times slower"
            .into(),
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
