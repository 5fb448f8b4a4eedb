//! A cgroup in which the kernel suspends processes instead of killing one.

use crate::findings::{Diagnosis, Rule, Severity};
use crate::machine::{Machine, group_name};

pub(super) const RULE: Rule = Rule {
    id: "kernel_freezes_instead_of_killing",
    severity: Severity::Risk,
    about: "The cgroup v1 that sets the brim has `oom_kill_disable` set to 1: a process that exceeds the limit is not \
            killed but suspended until memory is freed. A training run that reaches the limit hangs forever without a message.",
    check,
};

fn check(machine: &Machine) -> Option<Diagnosis> {
    let group = machine
        .host
        .brim_group()
        .filter(|level| level.oom_kill_disabled.known() == Some(&true))?;
    Some(Diagnosis {
        summary: "a run that exceeds the limit hangs without a message instead of being killed"
            .into(),
        evidence: vec![format!(
            "oom_kill_disable is 1 in memory.oom_control of {}",
            group_name(group.version, &group.path)
        )],
        remedies: vec!["start the container without `--oom-kill-disable`".into()],
    })
}

#[cfg(test)]
mod tests {
    use crate::fact::Fact;
    use crate::findings::testing::{check, check_quiet, group, set_groups};

    const ID: &str = "kernel_freezes_instead_of_killing";

    #[test]
    fn disabled_kills_are_named() {
        let mut level = group("/docker/0123456789ab", Some(8));
        level.oom_kill_disabled = Fact::Known(true);
        check(ID, |m| set_groups(m, vec![level]), "hangs");
        check_quiet(ID, |m| set_groups(m, vec![group("/a", Some(8))]));
    }
}
