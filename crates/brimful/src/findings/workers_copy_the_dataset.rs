//! Python 3.14 starts workers with forkserver, which copies the dataset.

use crate::findings::{Diagnosis, Rule, Severity};
use crate::machine::{Machine, PythonVersion};

pub(super) const RULE: Rule = Rule {
    id: "workers_copy_the_dataset",
    severity: Severity::Note,
    about: "Python 3.14 and later start worker processes with forkserver on Linux. The dataset is pickled into every \
            DataLoader worker, so each worker holds its own copy of a dataset in memory. With fork, they shared its \
            arrays.",
    check,
};

const FIRST: PythonVersion = PythonVersion::new(3, 14);

fn check(machine: &Machine) -> Option<Diagnosis> {
    let python = machine.python.known()?;
    let version = *python.version.known()?;
    (version >= FIRST).then(|| Diagnosis {
        summary: format!(
            "each DataLoader worker gets its own copy of a dataset held in memory (Python {version})"
        ),
        evidence: vec![format!(
            "{} is Python {version}; since {FIRST}, workers start with forkserver",
            python.executable
        )],
        remedies: vec![
            "keep large arrays in memory-mapped files".into(),
            "use `DataLoader(multiprocessing_context=\"fork\")`, if CUDA is not initialized before the workers start".into(),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fact::Fact;
    use crate::findings::testing::check;

    #[test]
    fn the_new_default_start_method() {
        check(
            "workers_copy_the_dataset",
            |m| {
                let Fact::Known(python) = &mut m.python else {
                    return;
                };
                python.version = Fact::Known(PythonVersion::new(3, 14));
            },
            "forkserver",
        );
    }
}
