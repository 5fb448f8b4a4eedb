//! Parent cgroups that are not visible may set a lower limit.

use crate::fact::Fact;
use crate::findings::{Diagnosis, Rule, Severity};
use crate::machine::{HiddenAncestors, LimitSetter, Machine, PlatformName, SubjectKind};

pub(super) const RULE: Rule = Rule {
    id: "limits_above_not_visible",
    severity: Severity::Note,
    about: "The cgroup of this process, or one of its parents, is not visible, and no visible cgroup sets a limit: \
            the real brim may be lower than shown. This happens on Colab, and in a Slurm container that \
            sees only its innermost, unlimited cgroup.",
    check,
};

fn check(machine: &Machine) -> Option<Diagnosis> {
    // What a profile does not hold was not looked for.
    let is_live = machine.subject.kind == SubjectKind::ThisMachine;
    // A visible limit on the container's own cgroup is the usual case; limits of its parents then rarely matter.
    let lowest = machine.host.lowest_limit()?;
    if !matches!(lowest.set_by, LimitSetter::PhysicalMemory) {
        return None;
    }
    let evidence = match &machine.host.cgroups {
        Fact::Missing(gap) if is_live => format!("the cgroups cannot be read: {gap}"),
        Fact::Missing(_) => return None,
        Fact::Known(cgroups) => {
            let unreadable = cgroups.levels.iter().find_map(|level| level.max.gap());
            match (cgroups.hidden, unreadable) {
                (HiddenAncestors::OwnGroup, _) => {
                    "this process is in a cgroup that is not visible under /sys/fs/cgroup".into()
                }
                (_, Some(gap)) if is_live => {
                    format!("the limit of a cgroup cannot be read: {gap}")
                }
                (HiddenAncestors::Unknown, _) => {
                    "the topmost visible cgroup is not the root of the hierarchy, \
                                                  and no visible cgroup sets a limit"
                        .into()
                }
                _ => return None,
            }
        }
    };
    Some(Diagnosis {
        summary: "the real memory limit may be lower than shown".into(),
        evidence: vec![evidence],
        remedies: remedies(machine),
    })
}

fn remedies(machine: &Machine) -> Vec<String> {
    let mut remedies = vec!["leave 10 % of the headroom unused".into()];
    // Nobody can look at a hosted notebook from outside.
    let hosted = [PlatformName::Colab, PlatformName::Kaggle];
    if !hosted.into_iter().any(|name| machine.platform.is(name)) {
        remedies.push(
            "check the limit from outside with `docker inspect`, `kubectl describe pod` or `scontrol show job`"
                .into(),
        );
    }
    remedies
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::testing::{check, check_quiet, group};
    use crate::machine::Cgroups;

    const ID: &str = "limits_above_not_visible";

    fn hidden(hidden: HiddenAncestors, max_gib: Option<u64>) -> impl FnOnce(&mut Machine) {
        move |machine| {
            machine.host.cgroups = Fact::Known(Cgroups {
                levels: vec![group("/", max_gib)],
                hidden,
            });
        }
    }

    #[test]
    fn hidden_groups_without_a_visible_limit() {
        check(ID, hidden(HiddenAncestors::Unknown, None), "topmost");
        check(
            ID,
            hidden(HiddenAncestors::OwnGroup, None),
            "not visible under /sys/fs/cgroup",
        );
    }

    #[test]
    fn unreadable_groups_are_not_taken_for_no_limit() {
        check(
            ID,
            |m| m.host.cgroups = Fact::unavailable("no hierarchy is mounted"),
            "no hierarchy",
        );
        let mut level = group("/a", None);
        level.max = Fact::unavailable("permission denied");
        check(
            ID,
            |m| crate::findings::testing::set_groups(m, vec![level]),
            "permission denied",
        );
    }

    #[test]
    fn a_visible_limit_settles_it() {
        check_quiet(ID, hidden(HiddenAncestors::Unknown, Some(8)));
        check_quiet(ID, hidden(HiddenAncestors::NoneLower, None));
    }
}
