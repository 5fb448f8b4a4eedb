//! Rehearsals cannot be isolated from the user's files.

use crate::findings::{Diagnosis, Rule, Severity};
use crate::machine::{ExpectedIsolation, Landlock, Machine, OverlayObstacle};

pub(super) const RULE: Rule = Rule {
    id: "no_isolation_for_rehearsals",
    severity: Severity::Note,
    about: "The kernel allows neither overlays in a mount namespace nor Landlock. `brimful predict`, `plan` and `init` \
            then refuse to start a script, because it could write to your files.",
    check,
};

fn check(machine: &Machine) -> Option<Diagnosis> {
    let expected = machine.isolation.known()?.expected();
    let ExpectedIsolation::None {
        obstacles,
        landlock,
    } = expected.known()?
    else {
        return None;
    };
    Some(Diagnosis {
        summary: "`brimful predict`, `plan` and `init` will probably refuse to start a script: it cannot be isolated \
                  from your files"
            .into(),
        evidence: obstacles
            .iter()
            .map(ToString::to_string)
            .chain([landlock.to_string()])
            .collect(),
        remedies: remedies(obstacles, *landlock),
    })
}

fn remedies(obstacles: &[OverlayObstacle], landlock: Landlock) -> Vec<String> {
    let mut remedies = Vec::new();
    let too_old = obstacles
        .iter()
        .any(|obstacle| matches!(obstacle, OverlayObstacle::KernelTooOld(_)));
    if too_old {
        // No setting helps an overlay there.
        remedies.push("use a machine with Linux 5.13 or later".to_owned());
    } else {
        for remedy in obstacles.iter().filter_map(remedy) {
            if !remedies.contains(&remedy) {
                remedies.push(remedy);
            }
        }
    }
    if landlock == Landlock::Disabled {
        remedies
            .push("add `landlock` to the kernel's boot parameter `lsm=` (needs root)".to_owned());
    }
    remedies.push("pass `--allow-writes`; the script can then write to your files".to_owned());
    remedies
}

fn remedy(obstacle: &OverlayObstacle) -> Option<String> {
    let remedy = match obstacle {
        OverlayObstacle::KernelTooOld(_) | OverlayObstacle::NoUserNamespaces => return None,
        OverlayObstacle::NoOverlayFilesystem => "`modprobe overlay` (needs root)",
        OverlayObstacle::MaxUserNamespacesZero => {
            "`sysctl user.max_user_namespaces=15000` (needs root)"
        }
        OverlayObstacle::UnprivilegedUserNamespacesOff => {
            "`sysctl kernel.unprivileged_userns_clone=1` (needs root)"
        }
        OverlayObstacle::SeccompFilter | OverlayObstacle::AppArmorProfile(_) => {
            "in a container, use `docker run --cap-add SYS_ADMIN --security-opt apparmor=unconfined …`"
        }
        OverlayObstacle::AppArmorRestriction => {
            "give brimful an AppArmor profile with the rule `userns,`, or \
             `sysctl kernel.apparmor_restrict_unprivileged_userns=0` (needs root)"
        }
        OverlayObstacle::Scratch(_) => {
            "set `TMPDIR` to a directory on a local disk; in a container, one on a volume"
        }
    };
    Some(remedy.to_owned())
}

#[cfg(test)]
mod tests {
    use crate::fact::Fact;
    use crate::findings::testing::{check, check_quiet, finding};
    use crate::machine::{AppArmorProfile, IsolationSupport, KernelVersion, Landlock, Machine};

    const ID: &str = "no_isolation_for_rehearsals";

    /// Takes Landlock away, and changes the rest.
    fn without_landlock(change: impl FnOnce(&mut IsolationSupport)) -> impl FnOnce(&mut Machine) {
        |machine| {
            let Fact::Known(support) = &mut machine.isolation else {
                unreachable!("the healthy machine's isolation is known");
            };
            support.landlock = Fact::Known(Landlock::Disabled);
            change(support);
        }
    }

    #[test]
    fn only_where_neither_can_be_had() {
        check_quiet(ID, without_landlock(|_| {}));
        check_quiet(ID, |machine| {
            machine.isolation = Fact::unavailable("not recorded");
        });
        check(
            ID,
            without_landlock(|support| support.user_namespaces.max = Fact::Known(0)),
            "sysctl user.max_user_namespaces=15000",
        );
    }

    #[test]
    fn the_fix_is_that_of_the_obstacle() {
        check(
            ID,
            without_landlock(|support| {
                support.user_namespaces.restricted_by_apparmor = Fact::Known(true);
                support.apparmor_profile = Fact::Known(Some(AppArmorProfile {
                    name: AppArmorProfile::UNCONFINED.into(),
                    enforced: false,
                }));
            }),
            "AppArmor profile with the rule `userns,`",
        );
        check(
            ID,
            without_landlock(|support| support.seccomp_filter = Fact::Known(true)),
            "--cap-add SYS_ADMIN",
        );
        check(
            ID,
            without_landlock(|support| support.seccomp_filter = Fact::Known(true)),
            "boot parameter `lsm=`",
        );
    }

    #[test]
    fn no_setting_is_named_where_the_kernel_is_too_old() {
        let found = finding(
            ID,
            without_landlock(|support| {
                support.kernel = Fact::Known(KernelVersion {
                    major: 4,
                    minor: 18,
                });
                support.user_namespaces.max = Fact::Known(0);
                support.landlock = Fact::Known(Landlock::Unknown);
            }),
        )
        .unwrap();
        assert_eq!(
            found.remedies,
            [
                "use a machine with Linux 5.13 or later",
                "pass `--allow-writes`; the script can then write to your files",
            ]
        );
    }
}
