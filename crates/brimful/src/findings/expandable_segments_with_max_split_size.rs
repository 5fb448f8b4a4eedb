//! Two allocator settings that do not work together.

use crate::findings::{Diagnosis, Rule, Severity};
use crate::machine::Machine;

pub(super) const RULE: Rule = Rule {
    id: "expandable_segments_with_max_split_size",
    severity: Severity::Note,
    about: "`expandable_segments:True` together with `max_split_size_mb`: the second has no effect at best, and older \
            releases can fail with an internal assertion near the limit (pytorch#134338).",
    check,
};

fn check(machine: &Machine) -> Option<Diagnosis> {
    let variable = machine.allocator_variables.iter().find(|variable| {
        variable.option("expandable_segments").as_deref() == Some("True")
            && variable.option("max_split_size_mb").is_some()
            && variable.read_by_torch.known() != Some(&false)
    })?;
    Some(Diagnosis {
        summary:
            "max_split_size_mb has no effect with expandable_segments, and can crash older releases"
                .into(),
        evidence: vec![format!("{}={}", variable.name, variable.value)],
        remedies: vec!["set only `expandable_segments:True`".into()],
    })
}

#[cfg(test)]
mod tests {
    use crate::allocator::{CUDA, variables};
    use crate::findings::testing::{check, check_quiet};

    const ID: &str = "expandable_segments_with_max_split_size";

    #[test]
    fn only_the_two_together() {
        check(
            ID,
            |m| {
                m.allocator_variables = variables(
                    [(CUDA, "expandable_segments:True,max_split_size_mb:128")],
                    None,
                );
            },
            "set only",
        );
        check_quiet(ID, |m| {
            m.allocator_variables = variables([(CUDA, "max_split_size_mb:128")], None);
        });
    }
}
