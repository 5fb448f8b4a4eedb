//! Which isolation from the user's files a rehearsal can expect.

use std::fmt;

use crate::fact::{Fact, Gap};

/// What the kernel allows this process to isolate a script with.
///
/// Nothing is tried: a probe makes no namespace. What [`IsolationSupport::expected`] makes of the facts is therefore an
/// expectation. A rehearsal proves its isolation with a file of its own, and reports which one it used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IsolationSupport {
    pub kernel: Fact<KernelVersion>,
    /// Whether the kernel has the overlay file system, or a module for it that is loaded on demand.
    pub overlay_filesystem: Fact<bool>,
    /// Whether `CAP_SYS_ADMIN` is effective: then mounting needs no user namespace.
    pub cap_sys_admin: Fact<bool>,
    pub user_namespaces: UserNamespaces,
    /// The AppArmor profile of this process; `Known(None)` where AppArmor is not in use.
    pub apparmor_profile: Fact<Option<AppArmorProfile>>,
    /// Whether a seccomp filter is in force, as in most containers. Its rules cannot be read.
    pub seccomp_filter: Fact<bool>,
    /// Where a rehearsal stores what the script writes.
    pub scratch: Fact<ScratchFilesystem>,
    pub landlock: Fact<Landlock>,
}

/// What decides whether a process without privileges may create a user namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserNamespaces {
    /// Whether the kernel was built with them.
    pub supported: Fact<bool>,
    /// `user.max_user_namespaces`.
    pub max: Fact<u64>,
    /// `kernel.unprivileged_userns_clone`; true in kernels without this setting.
    pub unprivileged: Fact<bool>,
    /// `kernel.apparmor_restrict_unprivileged_userns`; false in kernels without this setting.
    pub restricted_by_apparmor: Fact<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelVersion {
    pub major: u32,
    pub minor: u32,
}

/// The profile by which AppArmor confines this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppArmorProfile {
    /// Such as `docker-default`, or `unconfined` for a process without a profile.
    pub name: String,
    pub enforced: bool,
}

/// The directory below which scratch lies, and the file system it is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScratchFilesystem {
    pub directory: String,
    /// As in the mount table: `ext4`, `overlay`, `nfs4`.
    pub kind: String,
}

/// What the kernel answers when it is asked for the version of Landlock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Landlock {
    Abi(u32),
    /// The kernel does not know the system call, or a seccomp filter pretends so.
    Unknown,
    /// Built in, but not among the security modules that were started.
    Disabled,
    Refused,
}

/// The isolation that a rehearsal will probably use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpectedIsolation {
    /// Overlay file systems in a mount namespace.
    Overlay(MountPrivilege),
    /// Landlock and redirected writes, because overlays are not expected to work.
    Redirect { obstacles: Vec<OverlayObstacle> },
    /// Neither: a rehearsal refuses to start the script.
    None {
        obstacles: Vec<OverlayObstacle>,
        landlock: Landlock,
    },
}

/// What allows the mounts of an overlay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountPrivilege {
    Capability,
    UserNamespace,
}

/// Why overlays are not expected to work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OverlayObstacle {
    KernelTooOld(KernelVersion),
    NoOverlayFilesystem,
    NoUserNamespaces,
    MaxUserNamespacesZero,
    UnprivilegedUserNamespacesOff,
    SeccompFilter,
    AppArmorRestriction,
    AppArmorProfile(String),
    Scratch(ScratchFilesystem),
}

/// `mount_setattr`, by which lower layers are made read-only, came with 5.12; overlays in user namespaces with 5.11.
const OVERLAY_SINCE: KernelVersion = KernelVersion {
    major: 5,
    minor: 12,
};

/// File systems that cannot hold the upper layer of an overlay: names are looked up again on a server or in user space,
/// or extended attributes and whiteouts are missing.
const NO_UPPER_LAYER: [&str; 15] = [
    "9p", "afs", "beegfs", "ceph", "cifs", "ecryptfs", "exfat", "fuse", "gpfs", "lustre", "nfs",
    "nfs4", "overlay", "smb3", "vfat",
];

impl IsolationSupport {
    /// The isolation that a rehearsal will probably use; missing where a fact that decides it is.
    pub fn expected(&self) -> Fact<ExpectedIsolation> {
        let obstacles = self.overlay_obstacles();
        if obstacles.is_empty() {
            if let Some(gap) = self.overlay_gap() {
                return Fact::Missing(gap.clone());
            }
            let privilege = match self.cap_sys_admin {
                Fact::Known(true) => MountPrivilege::Capability,
                _ => MountPrivilege::UserNamespace,
            };
            return Fact::Known(ExpectedIsolation::Overlay(privilege));
        }
        self.landlock.as_ref().map(|landlock| match landlock {
            Landlock::Abi(_) => ExpectedIsolation::Redirect { obstacles },
            landlock => ExpectedIsolation::None {
                obstacles,
                landlock: *landlock,
            },
        })
    }

    /// Every obstacle that is known, since all of them would have to be removed.
    fn overlay_obstacles(&self) -> Vec<OverlayObstacle> {
        let mut obstacles = Vec::new();
        if let Fact::Known(kernel) = self.kernel
            && kernel < OVERLAY_SINCE
        {
            obstacles.push(OverlayObstacle::KernelTooOld(kernel));
        }
        if self.overlay_filesystem == Fact::Known(false) {
            obstacles.push(OverlayObstacle::NoOverlayFilesystem);
        }
        if self.cap_sys_admin == Fact::Known(false) {
            self.namespace_obstacles(&mut obstacles);
        }
        if let Fact::Known(Some(profile)) = &self.apparmor_profile
            && profile.enforced
        {
            // The profiles of container engines deny mounts, and few others allow them.
            obstacles.push(OverlayObstacle::AppArmorProfile(profile.name.clone()));
        }
        if let Fact::Known(scratch) = &self.scratch
            && !scratch.can_hold_upper_layer()
        {
            obstacles.push(OverlayObstacle::Scratch(scratch.clone()));
        }
        obstacles
    }

    fn namespace_obstacles(&self, obstacles: &mut Vec<OverlayObstacle>) {
        let namespaces = &self.user_namespaces;
        if namespaces.supported == Fact::Known(false) {
            obstacles.push(OverlayObstacle::NoUserNamespaces);
        }
        if namespaces.max == Fact::Known(0) {
            obstacles.push(OverlayObstacle::MaxUserNamespacesZero);
        }
        if namespaces.unprivileged == Fact::Known(false) {
            obstacles.push(OverlayObstacle::UnprivilegedUserNamespacesOff);
        }
        // Docker and Kubernetes refuse namespaces to processes without CAP_SYS_ADMIN; what another filter does is not
        // known, and the weaker isolation is the safer promise.
        if self.seccomp_filter == Fact::Known(true) {
            obstacles.push(OverlayObstacle::SeccompFilter);
        }
        // A program with a profile of its own, even one that confines nothing, was probably given the right to them.
        if namespaces.restricted_by_apparmor == Fact::Known(true)
            && let Fact::Known(Some(profile)) = &self.apparmor_profile
            && profile.name == AppArmorProfile::UNCONFINED
        {
            obstacles.push(OverlayObstacle::AppArmorRestriction);
        }
    }

    /// The first fact that is missing and could hide an obstacle.
    fn overlay_gap(&self) -> Option<&Gap> {
        let always = [
            self.cap_sys_admin.gap(),
            self.kernel.gap(),
            self.overlay_filesystem.gap(),
            self.apparmor_profile.gap(),
            self.scratch.gap(),
        ];
        let namespaces = &self.user_namespaces;
        let without_capability = [
            namespaces.supported.gap(),
            namespaces.max.gap(),
            namespaces.unprivileged.gap(),
            namespaces.restricted_by_apparmor.gap(),
            self.seccomp_filter.gap(),
        ];
        let first = always.into_iter().flatten().next();
        if self.cap_sys_admin == Fact::Known(true) {
            first
        } else {
            first.or_else(|| without_capability.into_iter().flatten().next())
        }
    }
}

impl AppArmorProfile {
    /// The name of no profile.
    pub const UNCONFINED: &'static str = "unconfined";
}

impl ScratchFilesystem {
    fn can_hold_upper_layer(&self) -> bool {
        let kind = self.kind.as_str();
        !NO_UPPER_LAYER.contains(&kind) && !kind.starts_with("fuse.")
    }
}

impl ExpectedIsolation {
    /// One word for programs, as in the predictions' `isolation`; `none` where a rehearsal refuses.
    pub fn name(&self) -> &'static str {
        match self {
            ExpectedIsolation::Overlay(_) => "overlay",
            ExpectedIsolation::Redirect { .. } => "redirect",
            ExpectedIsolation::None { .. } => "none",
        }
    }

    /// Why, with every known obstacle.
    pub fn reason(&self) -> String {
        match self {
            ExpectedIsolation::Overlay(privilege) => privilege.to_string(),
            ExpectedIsolation::Redirect { obstacles } => join(obstacles),
            ExpectedIsolation::None {
                obstacles,
                landlock,
            } => format!("{}; {landlock}", join(obstacles)),
        }
    }
}

fn join(obstacles: &[OverlayObstacle]) -> String {
    let words: Vec<String> = obstacles.iter().map(ToString::to_string).collect();
    words.join("; ")
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl fmt::Display for MountPrivilege {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MountPrivilege::Capability => "this process can mount file systems (CAP_SYS_ADMIN)",
            MountPrivilege::UserNamespace => "user namespaces are allowed",
        })
    }
}

impl fmt::Display for OverlayObstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OverlayObstacle::KernelTooOld(kernel) => {
                write!(
                    f,
                    "overlays require Linux {OVERLAY_SINCE}, but this is {kernel}"
                )
            }
            OverlayObstacle::NoOverlayFilesystem => {
                f.write_str("the kernel does not support overlayfs")
            }
            OverlayObstacle::NoUserNamespaces => {
                f.write_str("the kernel does not support user namespaces")
            }
            OverlayObstacle::MaxUserNamespacesZero => f.write_str("user.max_user_namespaces is 0"),
            OverlayObstacle::UnprivilegedUserNamespacesOff => {
                f.write_str("kernel.unprivileged_userns_clone is 0")
            }
            OverlayObstacle::SeccompFilter => f.write_str("a seccomp filter may block namespaces"),
            OverlayObstacle::AppArmorRestriction => {
                f.write_str("AppArmor restricts user namespaces")
            }
            OverlayObstacle::AppArmorProfile(name) => {
                write!(f, "AppArmor enforces the profile {name}")
            }
            OverlayObstacle::Scratch(scratch) => write!(
                f,
                "{} is on {}, which does not support overlays",
                scratch.directory, scratch.kind
            ),
        }
    }
}

impl fmt::Display for Landlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Landlock::Abi(abi) => write!(f, "Landlock ABI {abi}"),
            Landlock::Unknown => {
                f.write_str("the kernel does not support Landlock, or a seccomp filter hides it")
            }
            Landlock::Disabled => f.write_str("Landlock is disabled in this kernel"),
            Landlock::Refused => f.write_str("the kernel denies Landlock to this process"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ordinary user of a current kernel.
    fn user() -> IsolationSupport {
        IsolationSupport {
            kernel: Fact::Known(KernelVersion { major: 6, minor: 8 }),
            overlay_filesystem: Fact::Known(true),
            cap_sys_admin: Fact::Known(false),
            user_namespaces: UserNamespaces {
                supported: Fact::Known(true),
                max: Fact::Known(60_000),
                unprivileged: Fact::Known(true),
                restricted_by_apparmor: Fact::Known(false),
            },
            apparmor_profile: Fact::Known(None),
            seccomp_filter: Fact::Known(false),
            scratch: Fact::Known(scratch("ext4")),
            landlock: Fact::Known(Landlock::Abi(4)),
        }
    }

    fn scratch(kind: &str) -> ScratchFilesystem {
        ScratchFilesystem {
            directory: "/var/tmp".into(),
            kind: kind.into(),
        }
    }

    fn profile(name: &str, enforced: bool) -> Fact<Option<AppArmorProfile>> {
        Fact::Known(Some(AppArmorProfile {
            name: name.into(),
            enforced,
        }))
    }

    fn gap() -> Gap {
        Gap::Unavailable {
            reason: "not looked at".into(),
        }
    }

    /// A machine of which nothing is known.
    fn unknown() -> IsolationSupport {
        IsolationSupport {
            kernel: Fact::Missing(gap()),
            overlay_filesystem: Fact::Missing(gap()),
            cap_sys_admin: Fact::Missing(gap()),
            user_namespaces: UserNamespaces {
                supported: Fact::Missing(gap()),
                max: Fact::Missing(gap()),
                unprivileged: Fact::Missing(gap()),
                restricted_by_apparmor: Fact::Missing(gap()),
            },
            apparmor_profile: Fact::Missing(gap()),
            seccomp_filter: Fact::Missing(gap()),
            scratch: Fact::Missing(gap()),
            landlock: Fact::Missing(gap()),
        }
    }

    /// Changes the ordinary user's machine, and compares name and reason of what is expected.
    fn check(change: impl FnOnce(&mut IsolationSupport), name: &str, reason: &str) {
        let mut support = user();
        change(&mut support);
        match support.expected() {
            Fact::Known(expected) => {
                assert_eq!(
                    (expected.name(), expected.reason().as_str()),
                    (name, reason)
                );
            }
            Fact::Missing(gap) => assert_eq!(("missing", gap.to_string().as_str()), (name, reason)),
        }
    }

    #[test]
    fn an_ordinary_user_gets_overlays() {
        check(|_| {}, "overlay", "user namespaces are allowed");
    }

    #[test]
    fn a_process_that_may_mount_needs_no_user_namespaces() {
        check(
            |support| {
                support.cap_sys_admin = Fact::Known(true);
                support.user_namespaces.max = Fact::Known(0);
                support.seccomp_filter = Fact::Known(true);
            },
            "overlay",
            "this process can mount file systems (CAP_SYS_ADMIN)",
        );
    }

    #[test]
    fn each_obstacle_leads_to_redirection() {
        let old = KernelVersion {
            major: 5,
            minor: 11,
        };
        check(
            |support| support.kernel = Fact::Known(old),
            "redirect",
            "overlays require Linux 5.12, but this is 5.11",
        );
        check(
            |support| support.overlay_filesystem = Fact::Known(false),
            "redirect",
            "the kernel does not support overlayfs",
        );
        check(
            |support| support.user_namespaces.supported = Fact::Known(false),
            "redirect",
            "the kernel does not support user namespaces",
        );
        check(
            |support| support.user_namespaces.max = Fact::Known(0),
            "redirect",
            "user.max_user_namespaces is 0",
        );
        check(
            |support| support.user_namespaces.unprivileged = Fact::Known(false),
            "redirect",
            "kernel.unprivileged_userns_clone is 0",
        );
        check(
            |support| support.seccomp_filter = Fact::Known(true),
            "redirect",
            "a seccomp filter may block namespaces",
        );
        check(
            |support| support.apparmor_profile = profile("docker-default", true),
            "redirect",
            "AppArmor enforces the profile docker-default",
        );
        check(
            |support| support.scratch = Fact::Known(scratch("overlay")),
            "redirect",
            "/var/tmp is on overlay, which does not support overlays",
        );
    }

    #[test]
    fn apparmor_restricts_only_programs_without_a_profile() {
        let restricted = |profile: Fact<Option<AppArmorProfile>>| {
            move |support: &mut IsolationSupport| {
                support.user_namespaces.restricted_by_apparmor = Fact::Known(true);
                support.apparmor_profile = profile;
            }
        };
        check(
            restricted(profile("unconfined", false)),
            "redirect",
            "AppArmor restricts user namespaces",
        );
        check(
            restricted(profile("brimful", false)),
            "overlay",
            "user namespaces are allowed",
        );
    }

    #[test]
    fn network_and_fuse_file_systems_hold_no_overlay() {
        for kind in ["nfs4", "lustre", "fuse.sshfs", "fuse"] {
            check(
                |support| support.scratch = Fact::Known(scratch(kind)),
                "redirect",
                &format!("/var/tmp is on {kind}, which does not support overlays"),
            );
        }
        for kind in ["xfs", "btrfs", "fuseblk-like"] {
            check(
                |support| support.scratch = Fact::Known(scratch(kind)),
                "overlay",
                "user namespaces are allowed",
            );
        }
    }

    #[test]
    fn without_landlock_nothing_is_left() {
        check(
            |support| {
                support.user_namespaces.max = Fact::Known(0);
                support.landlock = Fact::Known(Landlock::Disabled);
            },
            "none",
            "user.max_user_namespaces is 0; Landlock is disabled in this kernel",
        );
    }

    #[test]
    fn a_missing_fact_is_no_permission() {
        check(
            |support| support.seccomp_filter = Fact::Missing(gap()),
            "missing",
            "not looked at",
        );
        check(
            |support| support.cap_sys_admin = Fact::Missing(gap()),
            "missing",
            "not looked at",
        );
        check(
            |support| {
                support.user_namespaces.max = Fact::Known(0);
                support.landlock = Fact::Missing(gap());
            },
            "missing",
            "not looked at",
        );
        check(|support| *support = unknown(), "missing", "not looked at");
    }

    #[test]
    fn an_obstacle_decides_whatever_else_is_missing() {
        check(
            |support| {
                *support = IsolationSupport {
                    overlay_filesystem: Fact::Known(false),
                    landlock: Fact::Known(Landlock::Abi(1)),
                    ..unknown()
                };
            },
            "redirect",
            "the kernel does not support overlayfs",
        );
    }
}
