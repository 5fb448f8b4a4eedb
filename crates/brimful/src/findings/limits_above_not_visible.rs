//! Groups above the visible ones may hold a lower limit.

use crate::findings::{Rule, Severity, Told};
use crate::machine::{HiddenAncestors, LimitSetter, Machine, PlatformName};

pub(super) const RULE: Rule = Rule {
    id: "limits_above_not_visible",
    severity: Severity::Note,
    about: "The process's own control group, or the groups above it, cannot be seen from here, and no limit can be \
            seen either: the true brim may be lower than shown. So it is on Colab, and in a Slurm container that \
            sees only its last, unlimited group.",
    check,
};

fn check(machine: &Machine) -> Option<Told> {
    let cgroups = machine.host.cgroups.known()?;
    let brim = machine.host.brim();
    // A visible limit on a container's own group is the usual case, and then what lies above rarely matters.
    if !matches!(brim.known()?.set_by, LimitSetter::PhysicalMemory) {
        return None;
    }
    let evidence = match cgroups.hidden {
        HiddenAncestors::OwnGroup => {
            "the kernel names a control group for this process that lies outside of /sys/fs/cgroup"
        }
        HiddenAncestors::Unknown => {
            "the topmost control group visible here is not the root of the hierarchy, and sets no limit"
        }
        HiddenAncestors::None | HiddenAncestors::Limit(_) | HiddenAncestors::Unlimited => {
            return None;
        }
    };
    Some(Told {
        summary: "a lower memory limit may be in force than can be seen from here".into(),
        evidence: vec![evidence.into()],
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
    use crate::fact::Fact;
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
    fn a_visible_limit_settles_it() {
        check_quiet(ID, hidden(HiddenAncestors::Unknown, Some(8)));
        check_quiet(ID, hidden(HiddenAncestors::Unlimited, None));
    }
}
