//! Whether another user could replace what lies in a directory.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::Stat;

use crate::accounts::{is_private_group, user};

const STICKY: u32 = 0o1000;
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// The uid that the kernel shows for owners that a user namespace does not map.
const OVERFLOW_UID: u32 = 65534;

/// Another user could read or replace files below this path, so brimful does not use it.
#[derive(Debug, thiserror::Error)]
#[error("`{}` {problem} (owner {owner}, mode {mode:04o}); {remedy}", path.display())]
pub struct Untrusted {
    pub path: PathBuf,
    pub owner: u32,
    pub mode: u32,
    problem: &'static str,
    remedy: String,
}

impl From<Untrusted> for io::Error {
    fn from(untrusted: Untrusted) -> io::Error {
        io::Error::new(io::ErrorKind::PermissionDenied, untrusted)
    }
}

/// Refuses a directory in which somebody else could replace entries of ours.
pub(crate) fn check(path: &Path, stat: &Stat) -> Result<(), Untrusted> {
    let untrusted = |problem, remedy: String| Untrusted {
        path: path.to_owned(),
        owner: stat.st_uid,
        mode: stat.st_mode & 0o7777,
        problem,
        remedy,
    };
    if !is_ours_or_of_root(stat.st_uid) {
        return Err(untrusted(
            "belongs to another user",
            "use a directory that belongs to you, below directories that belong to you or root"
                .into(),
        ));
    }
    if is_writable_by_others(stat) && !is_sticky(stat) {
        let who = if stat.st_mode & 0o002 == 0 { "g" } else { "go" };
        return Err(untrusted(
            "can be changed by other users",
            format!("run `chmod {who}-w {}`", path.display()),
        ));
    }
    Ok(())
}

/// Refuses a link that another user put into a directory to which everybody may write.
pub(crate) fn check_link(path: &Path, link: &Stat) -> Result<(), Untrusted> {
    if is_ours_or_of_root(link.st_uid) {
        return Ok(());
    }
    Err(refused(
        path,
        link,
        "is a link that belongs to another user",
    ))
}

/// An error for something that must belong to this user.
pub(crate) fn refused(path: &Path, stat: &Stat, problem: &'static str) -> Untrusted {
    Untrusted {
        path: path.to_owned(),
        owner: stat.st_uid,
        mode: stat.st_mode & 0o7777,
        problem,
        remedy: "remove it, or use another directory".into(),
    }
}

/// Whether only the owner may do anything with it.
pub(crate) fn is_private(stat: &Stat) -> bool {
    let for_others = stat.st_mode & 0o077;
    for_others == 0
}

pub(crate) fn is_sticky(stat: &Stat) -> bool {
    stat.st_mode & STICKY != 0
}

/// Whether somebody besides this user and root may create entries in this directory.
pub(crate) fn is_writable_by_others(stat: &Stat) -> bool {
    match stat.st_mode & WRITABLE_BY_OTHERS {
        0 => false,
        0o020 => !is_private_group(stat.st_gid),
        _ => true,
    }
}

pub(crate) fn is_ours_or_of_root(owner: u32) -> bool {
    owner == 0 || owner == user() || owner == OVERFLOW_UID && is_in_a_user_namespace()
}

/// Whether this process runs in a user namespace that does not map every user, as unprivileged containers do: there
/// root's own directories seem to belong to nobody.
fn is_in_a_user_namespace() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        let mapped = map
            .lines()
            .filter_map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok())
            .sum::<u64>();
        mapped > 0 && mapped < u64::from(u32::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(owner: u32, mode: u32) -> Stat {
        let mut stat = rustix::fs::stat("/").unwrap();
        stat.st_uid = owner;
        // A group that is nobody's own.
        stat.st_gid = u32::MAX - 7;
        stat.st_mode = 0o040_000 | mode;
        stat
    }

    fn is_trusted(owner: u32, mode: u32) -> bool {
        check(Path::new("/x"), &stat(owner, mode)).is_ok()
    }

    #[test]
    fn directories_of_ours_and_of_root_are_trusted_if_nobody_else_writes_there() {
        for owner in [0, user()] {
            for mode in [0o700, 0o755, 0o711, 0o1777, 0o1770, 0o3775] {
                assert!(is_trusted(owner, mode), "{owner} {mode:o}");
            }
            for mode in [0o777, 0o775, 0o770, 0o757, 0o2775, 0o702] {
                assert!(!is_trusted(owner, mode), "{owner} {mode:o}");
            }
        }
        assert!(!is_trusted(user() + 17, 0o700));
        assert!(!is_trusted(user() + 17, 0o1777));
    }

    #[test]
    fn a_refusal_names_path_owner_mode_and_remedy() {
        let error = check(Path::new("/x"), &stat(0, 0o2775)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`/x` can be changed by other users (owner 0, mode 2775); run `chmod g-w /x`"
        );
        let error = io::Error::from(check(Path::new("/x"), &stat(0, 0o777)).unwrap_err());
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert!(error.to_string().ends_with("run `chmod go-w /x`"));
    }
}
