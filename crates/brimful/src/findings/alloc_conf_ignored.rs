//! An allocator setting that this torch does not read.

use crate::allocator::{CUDA, NO_CACHING};
use crate::findings::{Diagnosis, Rule, Severity};
use crate::machine::{Accelerator, Machine};

pub(super) const RULE: Rule = Rule {
    id: "alloc_conf_ignored",
    severity: Severity::Risk,
    about: "An allocator variable is set that the installed torch does not read. `PYTORCH_ALLOC_CONF` is silently ignored \
            before torch 2.10 (pytorch#183387). Later releases read only the first of several variables, \
            even if it is empty.",
    check,
};

fn check(machine: &Machine) -> Option<Diagnosis> {
    let torch = machine.python.known()?.torch.known()?;
    // A CPU-only build has no such allocator; that is another finding.
    if torch.accelerator.known() == Some(&Accelerator::None) {
        return None;
    }
    let ignored = machine
        .allocator_variables
        .iter()
        .find(|variable| variable.read_by_torch.known() == Some(&false))?;
    let winner = machine.allocator_variables.iter().find(|variable| {
        variable.name != NO_CACHING && variable.read_by_torch.known() == Some(&true)
    });
    // The same value under both names is how people serve old and new releases at once.
    if winner.is_some_and(|winner| winner.value == ignored.value) {
        return None;
    }
    let why = match winner {
        Some(winner) => format!("{} is also set, and takes precedence", winner.name),
        None => format!("torch {} reads only {CUDA}", torch.version_text),
    };
    Some(Diagnosis {
        summary: format!(
            "{} has no effect: torch {} does not read it",
            ignored.name, torch.version_text
        ),
        evidence: vec![format!("{}={}", ignored.name, ignored.value), why],
        remedies: vec![
            match winner {
                Some(winner) => format!("set the same value in {}, or unset {0}", winner.name),
                None => format!("set {CUDA} instead; every release up to 2.15 reads it"),
            },
            "check with `torch.cuda.memory._snapshot()[\"allocator_settings\"]`".into(),
        ],
    })
}

#[cfg(test)]
mod tests {
    use crate::allocator::{CUDA, GENERIC, variables};
    use crate::findings::testing::{check, check_quiet, torch};
    use crate::machine::{Machine, TorchVersion};

    const ID: &str = "alloc_conf_ignored";

    fn set(pairs: &[(&'static str, &'static str)]) -> impl FnOnce(&mut Machine) {
        let torch = torch(TorchVersion::new(2, 9, 1), (12, 8));
        let found = variables(pairs.iter().copied(), Some(&torch));
        move |machine| machine.allocator_variables = found
    }

    #[test]
    fn the_new_name_with_an_old_torch() {
        check(ID, set(&[(GENERIC, "backend:native")]), "does not read it");
        check(
            ID,
            set(&[(CUDA, ""), (GENERIC, "backend:native")]),
            "takes precedence",
        );
        check_quiet(ID, set(&[(CUDA, "backend:native")]));
        check_quiet(
            ID,
            set(&[(CUDA, "backend:native"), (GENERIC, "backend:native")]),
        );
    }
}
