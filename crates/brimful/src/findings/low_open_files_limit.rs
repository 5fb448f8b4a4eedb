//! Too few open files for workers that pass tensors.

use crate::findings::{Diagnosis, Rule, Severity};
use crate::machine::Machine;

pub(super) const RULE: Rule = Rule {
    id: "low_open_files_limit",
    severity: Severity::Note,
    about: "RLIMIT_NOFILE is below 4096. With the default sharing strategy, every tensor in a DataLoader \
            queue holds a file open; the run dies with \"Too many open files\" or \"received 0 items of ancdata\".",
    check,
};

const ENOUGH: u64 = 4096;

fn check(machine: &Machine) -> Option<Diagnosis> {
    let limit = machine.process_limits.open_files.known()?.finite()?;
    (limit < ENOUGH).then(|| Diagnosis {
        summary: format!("DataLoader workers may run out of file descriptors: the limit is {limit}"),
        evidence: vec![format!("RLIMIT_NOFILE (`ulimit -n`) is {limit}")],
        remedies: vec![
            "run `ulimit -n $(ulimit -Hn)` before the job, to raise it to the hard limit".into(),
            "call `torch.multiprocessing.set_sharing_strategy(\"file_system\")`; segments of killed workers then \
             remain in /dev/shm"
                .into(),
        ],
    })
}

#[cfg(test)]
mod tests {
    use crate::fact::Fact;
    use crate::findings::testing::{check, check_quiet};
    use crate::machine::Rlimit;

    #[test]
    fn the_usual_default_is_low() {
        check(
            "low_open_files_limit",
            |m| m.process_limits.open_files = Fact::Known(Rlimit::Finite(1024)),
            "1024",
        );
        check_quiet("low_open_files_limit", |m| {
            m.process_limits.open_files = Fact::Known(Rlimit::Unlimited);
        });
    }
}
