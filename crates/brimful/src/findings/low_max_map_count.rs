//! Too few memory mappings for one process.

use crate::findings::{Diagnosis, Rule, Severity};
use crate::machine::Machine;

pub(super) const RULE: Rule = Rule {
    id: "low_max_map_count",
    severity: Severity::Note,
    about: "`vm.max_map_count` is below the kernel default of 65530. Each memory-mapped file and each tensor in shared memory \
            uses one mapping; beyond the limit, mmap fails with \"Cannot allocate memory\".",
    check,
};

const DEFAULT: u64 = 65_530;

fn check(machine: &Machine) -> Option<Diagnosis> {
    let count = *machine.process_limits.max_map_count.known()?;
    (count < DEFAULT).then(|| Diagnosis {
        summary: format!("mapping more than {count} files fails with \"Cannot allocate memory\""),
        evidence: vec![format!(
            "vm.max_map_count is {count}; the kernel default is {DEFAULT}"
        )],
        remedies: vec!["`sysctl vm.max_map_count=1048576` (needs root)".into()],
    })
}

#[cfg(test)]
mod tests {
    use crate::fact::Fact;
    use crate::findings::testing::{check, check_quiet};

    #[test]
    fn only_below_the_default() {
        check(
            "low_max_map_count",
            |m| m.process_limits.max_map_count = Fact::Known(32_768),
            "32768",
        );
        check_quiet("low_max_map_count", |m| {
            m.process_limits.max_map_count = Fact::Known(65_530);
        });
    }
}
