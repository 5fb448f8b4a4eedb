//! A user-space OOM killer, which kills before the kernel does.

use crate::findings::{Diagnosis, Rule, Severity};
use crate::machine::Machine;

pub(super) const RULE: Rule = Rule {
    id: "userspace_killer_running",
    severity: Severity::Note,
    about: "systemd-oomd, earlyoom, nohang or another user-space OOM killer is running. It acts before the kernel, at \
            its own thresholds, often with SIGTERM (exit code 143), and logs to the journal, not to dmesg.",
    check,
};

fn check(machine: &Machine) -> Option<Diagnosis> {
    let killers = machine.host.killers.known()?;
    let first = killers.first()?;
    Some(Diagnosis {
        summary: format!(
            "{} may kill a run before it reaches the brim",
            first.kind.name()
        ),
        evidence: killers
            .iter()
            .map(|killer| {
                let arguments = killer.arguments.join(" ");
                let started_with = if arguments.is_empty() {
                    String::new()
                } else {
                    format!(", started with `{arguments}`")
                };
                format!(
                    "{} runs as process {}{started_with}; by default it acts when {}",
                    killer.kind.name(),
                    killer.pid,
                    killer.kind.acts_when()
                )
            })
            .collect(),
        remedies: vec![format!(
            "if a run dies without a message, check `journalctl -u {}`",
            first.kind.name()
        )],
    })
}

#[cfg(test)]
mod tests {
    use crate::fact::Fact;
    use crate::findings::testing::check;
    use crate::machine::{Killer, KillerKind};

    #[test]
    fn the_killer_and_its_threshold_are_named() {
        let killer = Killer {
            kind: KillerKind::Earlyoom,
            pid: 812,
            arguments: vec!["-m".into(), "5".into()],
        };
        check(
            "userspace_killer_running",
            |m| m.host.killers = Fact::Known(vec![killer]),
            "`-m 5`",
        );
    }
}
