//! The kill that takes everything in the container, and whoever watches.

use crate::findings::{Rule, Severity, Told};
use crate::machine::{Machine, group_name};

pub(super) const RULE: Rule = Rule {
    id: "group_kill_takes_supervisor",
    severity: Severity::Risk,
    about: "`memory.oom.group` is 1: when one process goes over, the kernel kills every process of the group at \
            once, launchers and supervisors included. Kubernetes sets it on cgroup v2 since 1.28. Nothing inside is \
            left to write a last word.",
    check,
};

fn check(machine: &Machine) -> Option<Told> {
    let group = machine.host.killed_together()?;
    Some(Told {
        summary: "one process over the limit kills every process of the group, supervisors included".into(),
        evidence: vec![format!(
            "memory.oom.group is 1 in {}",
            group_name(group.version, &group.path)
        )],
        remedies: vec![
            "write checkpoints and logs to storage that outlives the container".into(),
            "Kubernetes 1.32 and later: `singleProcessOOMKill: true` in the kubelet's configuration".into(),
        ],
    })
}

#[cfg(test)]
mod tests {
    use crate::fact::Fact;
    use crate::findings::testing::{check, check_quiet, group, set_groups};

    const ID: &str = "group_kill_takes_supervisor";

    #[test]
    fn an_ancestor_is_enough() {
        let mut parent = group("/kubepods.slice", Some(16));
        parent.oom_group = Fact::Known(true);
        check(
            ID,
            |m| set_groups(m, vec![group("/kubepods.slice/a", None), parent]),
            "Kubernetes",
        );
        check_quiet(ID, |m| set_groups(m, vec![group("/a", Some(8))]));
    }
}
