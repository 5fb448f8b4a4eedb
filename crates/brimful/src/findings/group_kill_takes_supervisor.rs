//! An out-of-memory kill ends every process in the container, including supervisors.

use crate::findings::{Diagnosis, Rule, Severity};
use crate::machine::{Machine, group_name};

pub(super) const RULE: Rule = Rule {
    id: "group_kill_takes_supervisor",
    severity: Severity::Risk,
    about: "`memory.oom.group` is 1: if one process exceeds the limit, the kernel kills every process in the cgroup at \
            once, including launchers and supervisors. Kubernetes sets it on cgroup v2 since 1.28. No process \
            survives to report the cause.",
    check,
};

fn check(machine: &Machine) -> Option<Diagnosis> {
    let group = machine.host.killed_together()?;
    Some(Diagnosis {
        summary: "an out-of-memory kill ends every process in this cgroup, including supervisors".into(),
        evidence: vec![format!(
            "memory.oom.group is 1 in {}",
            group_name(group.version, &group.path)
        )],
        remedies: vec![
            "write checkpoints and logs to storage that outlives the container".into(),
            "on Kubernetes 1.32 and later, set `singleProcessOOMKill: true` in the kubelet configuration".into(),
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
