//! `ulimit -v` limits the address space.

use crate::findings::{Diagnosis, Rule, Severity};
use crate::machine::Machine;
use crate::units::Bytes;

pub(super) const RULE: Rule = Rule {
    id: "address_space_limited",
    severity: Severity::Fatal,
    about: "RLIMIT_AS or RLIMIT_DATA is set. CUDA reserves address space for all of the machine's memory when it \
            starts, and every Python thread reserves 8 MiB of stack, whether it is used or not. The run fails with \
            \"out of memory\" or MemoryError although memory is free.",
    check,
};

fn check(machine: &Machine) -> Option<Diagnosis> {
    let limits = &machine.process_limits;
    let finite = |name: &str, fact: &crate::fact::Fact<crate::machine::Rlimit>| {
        let bytes = Bytes(fact.known()?.finite()?);
        // A cap above what the machine could ever hold is no cap.
        let physical = machine.host.physical.known().copied().unwrap_or(bytes);
        (bytes.0 < physical.0.saturating_mul(4)).then(|| format!("{name} is {bytes}"))
    };
    let evidence: Vec<String> = [
        finite("RLIMIT_AS (`ulimit -v`)", &limits.address_space),
        finite("RLIMIT_DATA (`ulimit -d`)", &limits.data),
    ]
    .into_iter()
    .flatten()
    .collect();
    if evidence.is_empty() {
        return None;
    }
    Some(Diagnosis {
        summary: "allocations fail at the address space limit although memory is free; CUDA may fail to start".into(),
        evidence,
        remedies: vec![
            "run `ulimit -v unlimited; ulimit -d unlimited` in the job script, if the hard limit allows it".into(),
            "limit memory with a cgroup instead (`systemd-run --user --scope -p MemoryMax=16G`)".into(),
        ],
    })
}

#[cfg(test)]
mod tests {
    use crate::fact::Fact;
    use crate::findings::testing::{check, check_quiet};
    use crate::machine::Rlimit;

    const ID: &str = "address_space_limited";

    #[test]
    fn a_cap_below_the_machine() {
        check(
            ID,
            |m| m.process_limits.address_space = Fact::Known(Rlimit::Finite(16 << 30)),
            "16 GiB",
        );
        check_quiet(ID, |m| {
            m.process_limits.data = Fact::Known(Rlimit::Finite(1 << 50));
        });
    }
}
