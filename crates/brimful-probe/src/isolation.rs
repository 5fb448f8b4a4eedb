//! What the kernel allows a rehearsal to isolate a script with. Nothing is tried: no namespace is made.

use brimful::env_vars;
use brimful::fact::{Fact, Gap};
use brimful::machine::{
    AppArmorProfile, IsolationSupport, KernelVersion, Landlock, ScratchFilesystem, UserNamespaces,
};

use crate::cgroup::Mounts;
use crate::cgroup::parse::{Mount, strip_path_prefix};
use crate::environment::Environment;
use crate::files::parse::field;
use crate::files::{Files, malformed};

const STATUS: &str = "/proc/self/status";
const RELEASE: &str = "/proc/sys/kernel/osrelease";
const FILESYSTEMS: &str = "/proc/filesystems";
/// The bit of `CAP_SYS_ADMIN` in a set of capabilities.
const CAP_SYS_ADMIN: u32 = 21;
/// A list of modules is seldom longer than 1 MiB.
const MAX_MODULES_BYTES: u64 = 4 << 20;
/// Longer names of profiles, directories and file systems are cut.
const MAX_NAME_CHARS: usize = 60;
const MAX_NAMESPACES: usize = 64;

pub(crate) fn read(
    files: &Files,
    env: &Environment,
    mounts: &Mounts,
    landlock: &Fact<Landlock>,
) -> IsolationSupport {
    let status = files.text(STATUS);
    let release = files.text(RELEASE);
    IsolationSupport {
        kernel: release
            .as_ref()
            .and_then(|text| match kernel_version(text) {
                Some(version) => Fact::Known(version),
                None => Fact::Missing(malformed(RELEASE, text)),
            }),
        overlay_filesystem: overlay_filesystem(files, release.as_ref()),
        cap_sys_admin: status_field(&status, "CapEff", |value| {
            let capabilities = u64::from_str_radix(value, 16).ok()?;
            Some(capabilities >> CAP_SYS_ADMIN & 1 == 1)
        }),
        user_namespaces: UserNamespaces {
            supported: files
                .names("/proc/self/ns", MAX_NAMESPACES)
                .map(|names| names.iter().any(|name| name == "user")),
            max: files.number("/proc/sys/user/max_user_namespaces"),
            unprivileged: setting(
                files,
                &release,
                "/proc/sys/kernel/unprivileged_userns_clone",
                true,
            ),
            restricted_by_apparmor: setting(
                files,
                &release,
                "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
                false,
            ),
        },
        apparmor_profile: release.and_then(|_| apparmor_profile(files)),
        seccomp_filter: status_field(&status, "Seccomp", |value| match value {
            "0" | "1" => Some(false),
            "2" => Some(true),
            _ => None,
        }),
        scratch: mounts
            .mounts
            .as_ref()
            .and_then(|mounts| scratch(files, env, mounts)),
        landlock: landlock.clone(),
    }
}

/// The first two numbers of a release such as `6.8.0-49-generic`.
fn kernel_version(release: &str) -> Option<KernelVersion> {
    let mut numbers = release.trim().split(|c: char| !c.is_ascii_digit());
    Some(KernelVersion {
        major: numbers.next()?.parse().ok()?,
        minor: numbers.next()?.parse().ok()?,
    })
}

fn status_field<T>(
    status: &Fact<String>,
    name: &str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Fact<T> {
    status.as_ref().and_then(|text| match field(text, name) {
        None => Fact::Missing(Gap::FieldMissing {
            path: STATUS.into(),
            field: name.into(),
        }),
        Some(value) => match parse(value) {
            Some(parsed) => Fact::Known(parsed),
            None => Fact::Missing(malformed(STATUS, &format!("{name}: {value}"))),
        },
    })
}

/// A setting of 0 or more that not every kernel has. `absent` is what a kernel without it does.
fn setting(files: &Files, release: &Fact<String>, path: &str, absent: bool) -> Fact<bool> {
    match files.number::<u32>(path) {
        Fact::Known(value) => Fact::Known(value != 0),
        // The kernel's other settings can be seen, so this one does not exist.
        Fact::Missing(Gap::FileMissing { .. }) => release.as_ref().map(|_| absent),
        Fact::Missing(gap) => Fact::Missing(gap),
    }
}

fn overlay_filesystem(files: &Files, release: Fact<&String>) -> Fact<bool> {
    let listed = files.text(FILESYSTEMS).map(|text| {
        text.lines()
            .any(|line| line.split_ascii_whitespace().last() == Some("overlay"))
    });
    match listed {
        Fact::Known(false) => release.and_then(|release| overlay_module(files, release.trim())),
        listed => listed,
    }
}

/// Whether the kernel can load the overlay file system when it is first mounted.
fn overlay_module(files: &Files, release: &str) -> Fact<bool> {
    match files.number::<u32>("/proc/sys/kernel/modules_disabled") {
        Fact::Known(0) => {}
        Fact::Known(_) | Fact::Missing(Gap::FileMissing { .. }) => return Fact::Known(false),
        Fact::Missing(gap) => return Fact::Missing(gap),
    }
    let unseen = || {
        Fact::unavailable(
            "the overlay file system is not loaded, and the kernel's modules cannot be seen from here",
        )
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '+' | '~');
    if !release.starts_with(|c: char| c.is_ascii_digit()) || !release.chars().all(is_plain) {
        return unseen();
    }
    let path = format!("/lib/modules/{release}/modules.dep");
    match files.text_up_to(&path, MAX_MODULES_BYTES) {
        Fact::Known(text) if text.contains("/overlay.ko") => Fact::Known(true),
        Fact::Known(text) if (text.len() as u64) < MAX_MODULES_BYTES => Fact::Known(false),
        _ => unseen(),
    }
}

/// Called where the kernel's settings can be seen: then a missing file means that AppArmor is not built in.
fn apparmor_profile(files: &Files) -> Fact<Option<AppArmorProfile>> {
    let enabled = files.text_up_to("/sys/module/apparmor/parameters/enabled", 8);
    if !enabled.known().is_some_and(|text| text.starts_with('Y')) {
        return Fact::Known(None);
    }
    // The second one belongs to whichever security module is the first.
    files
        .text_up_to("/proc/self/attr/apparmor/current", 4096)
        .or_else(|| files.text_up_to("/proc/self/attr/current", 4096))
        .map(|text| Some(profile(&text)))
}

/// `unconfined`, `docker-default (enforce)` or `brimful (unconfined)`.
fn profile(text: &str) -> AppArmorProfile {
    let text = text.trim_matches(|c: char| c == '\0' || c.is_whitespace());
    let (name, mode) = match text.rsplit_once(" (") {
        Some((name, mode)) => (name, mode.trim_end_matches(')')),
        None => (text, ""),
    };
    AppArmorProfile {
        name: cut(name),
        enforced: matches!(mode, "enforce" | "kill"),
    }
}

/// The directory that a rehearsal chooses for scratch: the first usual one that is not in memory.
fn scratch(files: &Files, env: &Environment, mounts: &[Mount]) -> Fact<ScratchFilesystem> {
    let variable = |name: &str| env.get(name).filter(|path| path.starts_with('/')).cloned();
    let cache = variable(env_vars::XDG_CACHE_HOME)
        .or_else(|| variable(env_vars::HOME).map(|home| format!("{home}/.cache")));
    let directories = [
        variable(env_vars::TMPDIR).filter(|path| files.exists(path)),
        Some("/var/tmp".to_owned()),
        Some("/tmp".to_owned()),
        cache,
    ];
    for directory in directories.into_iter().flatten() {
        let Some(mount) = mount_of(mounts, &directory) else {
            return Fact::unavailable(format!(
                "/proc/self/mountinfo has no file system for {}",
                cut(&directory)
            ));
        };
        if !matches!(mount.kind.as_str(), "tmpfs" | "ramfs") {
            return Fact::Known(ScratchFilesystem {
                directory: cut(&directory),
                kind: cut(&mount.kind),
            });
        }
    }
    Fact::unavailable("no usual directory for scratch is on a disk")
}

/// The file system that a path is on: the last one of those that are mounted closest above it.
fn mount_of<'a>(mounts: &'a [Mount], path: &str) -> Option<&'a Mount> {
    mounts
        .iter()
        .filter(|mount| strip_path_prefix(path, &mount.mount_point).is_some())
        .max_by_key(|mount| mount.mount_point.trim_end_matches('/').len())
}

fn cut(text: &str) -> String {
    text.chars().take(MAX_NAME_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases() {
        let check = |text: &str, expected: Option<(u32, u32)>| {
            let found = kernel_version(text).map(|version| (version.major, version.minor));
            assert_eq!(found, expected, "{text:?}");
        };
        check("6.8.0-49-generic\n", Some((6, 8)));
        check("5.15.167.4-microsoft-standard-WSL2", Some((5, 15)));
        check("6.18", Some((6, 18)));
        check("", None);
        check("6", None);
        check("six.eight", None);
        check("99999999999.1", None);
    }

    #[test]
    fn profiles() {
        let check = |text: &str, name: &str, enforced: bool| {
            let found = profile(text);
            assert_eq!(
                (found.name.as_str(), found.enforced),
                (name, enforced),
                "{text:?}"
            );
        };
        check("unconfined\n", "unconfined", false);
        check("docker-default (enforce)\n\0", "docker-default", true);
        check("brimful (unconfined)\n", "brimful", false);
        check("a (b) (complain)\n", "a (b)", false);
        check("lsb_release//&web (kill)", "lsb_release//&web", true);
        check("", "", false);
        assert_eq!(
            profile(&"é".repeat(4000)).name.chars().count(),
            MAX_NAME_CHARS
        );
    }

    #[test]
    fn the_closest_and_last_mount_counts() {
        let mount = |mount_point: &str, kind: &str| Mount {
            root: "/".into(),
            mount_point: mount_point.into(),
            kind: kind.into(),
            options: String::new(),
        };
        let mounts = [
            mount("/", "rootfs"),
            mount("/", "overlay"),
            mount("/var", "xfs"),
            mount("/var/tm", "ext4"),
        ];
        let kind = |path: &str| mount_of(&mounts, path).map(|mount| mount.kind.as_str());
        assert_eq!(kind("/tmp"), Some("overlay"));
        assert_eq!(kind("/var/tmp"), Some("xfs"));
        assert_eq!(kind("/var/../tmp"), None);
        assert_eq!(mount_of(&[], "/tmp"), None);
    }
}
