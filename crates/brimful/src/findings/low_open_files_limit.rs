//! Too few open files for workers that pass tensors.

use crate::findings::{Rule, Severity, Told};
use crate::machine::Machine;

pub(super) const RULE: Rule = Rule {
    id: "low_open_files_limit",
    severity: Severity::Note,
    about: "RLIMIT_NOFILE is below 4096. With the default sharing strategy every tensor that waits in a DataLoader \
            queue holds an open file; the run dies with \"Too many open files\" or \"received 0 items of ancdata\".",
    check,
};

const ENOUGH: u64 = 4096;

fn check(machine: &Machine) -> Option<Told> {
    let limit = machine.process_limits.open_files.known()?.finite()?;
    (limit < ENOUGH).then(|| Told {
        summary: format!("DataLoader workers may run out of open files: {limit} are allowed"),
        evidence: vec![format!("RLIMIT_NOFILE (`ulimit -n`) is {limit}")],
        remedies: vec![
            "`ulimit -n $(ulimit -Hn)` before the run: as many as the hard limit allows".into(),
            "`torch.multiprocessing.set_sharing_strategy(\"file_system\")`; segments of killed workers then stay \
             in /dev/shm"
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
