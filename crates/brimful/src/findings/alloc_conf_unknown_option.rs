//! An allocator option that this torch rejects.

use crate::allocator::{NEWEST_KNOWN, NO_CACHING, OPTIONS, options};
use crate::findings::{Diagnosis, Rule, Severity};
use crate::machine::Machine;
use crate::suggest::closest;

pub(super) const RULE: Rule = Rule {
    id: "alloc_conf_unknown_option",
    severity: Severity::Fatal,
    about: "An allocator variable contains an option that the installed torch does not know. torch raises an error \
            at the first GPU allocation.",
    check,
};

fn check(machine: &Machine) -> Option<Diagnosis> {
    let torch = machine.python.known()?.torch.known()?;
    if torch.version > NEWEST_KNOWN {
        return None;
    }
    for variable in &machine.allocator_variables {
        if variable.name == NO_CACHING || variable.read_by_torch.known() != Some(&true) {
            continue;
        }
        for option in options(&variable.value) {
            let since = OPTIONS
                .iter()
                .find(|(known, _)| *known == option.key)
                .map(|(_, since)| *since);
            let remedy = match since {
                Some(None) => continue,
                Some(Some(since)) if torch.version >= since => continue,
                Some(Some(since)) => format!(
                    "remove `{}`; it requires torch {since} or later",
                    option.key
                ),
                None => {
                    let close = closest(&option.key, OPTIONS.iter().map(|(known, _)| *known));
                    match close.first() {
                        Some(close) => format!("did you mean `{close}`?"),
                        None => format!(
                            "valid options are {}",
                            OPTIONS
                                .iter()
                                .map(|(known, _)| *known)
                                .collect::<Vec<_>>()
                                .join(", ")
                        ),
                    }
                }
            };
            return Some(Diagnosis {
                summary: format!(
                    "torch {} rejects the allocator option `{}`",
                    torch.version_text, option.key
                ),
                evidence: vec![format!("{}={}", variable.name, variable.value)],
                remedies: vec![remedy],
            });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use crate::allocator::{CUDA, variables};
    use crate::findings::testing::{check, check_quiet, torch};
    use crate::machine::{Machine, TorchVersion};

    const ID: &str = "alloc_conf_unknown_option";

    fn set(value: &'static str) -> impl FnOnce(&mut Machine) {
        let torch = torch(TorchVersion::new(2, 9, 1), (12, 8));
        move |machine| machine.allocator_variables = variables([(CUDA, value)], Some(&torch))
    }

    #[test]
    fn misspelt_and_too_new() {
        check(
            ID,
            set("expandable_segment:True"),
            "did you mean `expandable_segments`?",
        );
        check(ID, set("large_segment_size_mb:64"), "requires torch 2.11.0");
        check_quiet(ID, set("expandable_segments:True,max_split_size_mb:128"));
        check_quiet(ID, set("pinned_max_cached_size_mb:512"));
    }
}
