//! Groups above the visible ones may hold a lower limit.

use crate::fact::Fact;
use crate::findings::{Rule, Severity, Told};
use crate::machine::{HiddenAncestors, LimitSetter, Machine, PlatformName, SubjectKind};

pub(super) const RULE: Rule = Rule {
    id: "limits_above_not_visible",
    severity: Severity::Note,
    about: "The process's own control group, or the groups above it, cannot be seen from here, and no limit can be \
            seen either: the true brim may be lower than shown. So it is on Colab, and in a Slurm container that \
            sees only its last, unlimited group.",
    check,
};

fn check(machine: &Machine) -> Option<Told> {
    // What a profile does not hold was not looked for.
    let is_live = machine.subject.kind == SubjectKind::ThisMachine;
    // A visible limit on a container's own group is the usual case, and then what lies above rarely matters.
    let lowest = machine.host.lowest_limit()?;
    if !matches!(lowest.set_by, LimitSetter::PhysicalMemory) {
        return None;
    }
    let evidence = match &machine.host.cgroups {
        Fact::Missing(gap) if is_live => format!("the control groups cannot be read: {gap}"),
        Fact::Missing(_) => return None,
        Fact::Known(cgroups) => {
            let unreadable = cgroups.levels.iter().find_map(|level| level.max.gap());
            match (cgroups.hidden, unreadable) {
                (HiddenAncestors::OwnGroup, _) => {
                    "the kernel names a control group for this process that lies \
                                                   outside of what is mounted at /sys/fs/cgroup"
                        .into()
                }
                (_, Some(gap)) if is_live => {
                    format!("the limit of a control group cannot be read: {gap}")
                }
                (HiddenAncestors::Unknown, _) => {
                    "the topmost control group visible here is not the root of the \
                                                  hierarchy, and no visible group sets a limit"
                        .into()
                }
                _ => return None,
            }
        }
    };
    Some(Told {
        summary: "a lower memory limit may be in force than can be seen from here".into(),
        evidence: vec![evidence],
        remedies: remedies(machine),
    })
}

fn remedies(machine: &Machine) -> Vec<String> {
    let mut remedies = vec!["leave a tenth of the shown headroom unused".into()];
    // Nobody can look at a hosted notebook from outside.
    let hosted = [PlatformName::Colab, PlatformName::Kaggle];
    if !hosted.into_iter().any(|name| machine.platform.is(name)) {
        remedies.push(
            "look from outside: `docker inspect`, `kubectl describe pod`, `scontrol show job`"
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
        check(ID, hidden(HiddenAncestors::OwnGroup, None), "outside");
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
