//! Settings of processes in `/proc`, such as `oom_score_adj`: a program changes those of the rehearsal only, and none of
//! the machine.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::environment::{KEEPER, variable};
use crate::path::PathBuf;
use crate::sys::{self, Outcome, int, pointer};

/// Whoever is deeper below the keeper is taken for an outsider.
const MAX_GENERATIONS: usize = 1000;

const UNREAD: c_int = -1;
/// Zero where every process may be changed.
static KEEPER_PID: AtomicI32 = AtomicI32::new(UNREAD);

fn keeper() -> Option<c_int> {
    let mut keeper = KEEPER_PID.load(Ordering::Relaxed);
    if keeper == UNREAD {
        keeper = variable(KEEPER)
            .and_then(|value| number(&value))
            .unwrap_or(0);
        KEEPER_PID.store(keeper, Ordering::Relaxed);
    }
    (keeper != 0).then_some(keeper)
}

/// Whether a path of `/proc` may be opened for writing.
pub(crate) fn may_write(path: &[u8]) -> bool {
    let Some(rest) = path.strip_prefix(b"/proc/") else {
        return true;
    };
    let Some(keeper) = keeper() else {
        return true;
    };
    let first = rest.split(|byte| *byte == b'/').next().unwrap_or_default();
    match first {
        b"self" | b"thread-self" => true,
        _ => number(first).is_some_and(|pid| is_below(pid, keeper, parent_of)),
    }
}

/// Whether a process is a descendant of another one.
fn is_below(mut pid: c_int, ancestor: c_int, parent_of: impl Fn(c_int) -> Outcome<c_int>) -> bool {
    for _ in 0..MAX_GENERATIONS {
        match parent_of(pid) {
            Ok(parent) if parent == ancestor => return true,
            Ok(parent) if parent > 0 => pid = parent,
            _ => return false,
        }
    }
    false
}

/// The parent of a process.
fn parent_of(pid: c_int) -> Outcome<c_int> {
    let mut path = PathBuf::from_bytes(b"/proc/")?;
    path.push(pid.to_string().as_bytes())?;
    path.push(b"/stat")?;
    let file = sys::open(&mut path, libc::O_RDONLY, 0)?;
    let mut line = [0_u8; 512];
    let buffer = pointer(line.as_mut_ptr());
    let len = sys::call(libc::SYS_read, [int(file.0), buffer, line.len(), 0, 0, 0])?;
    parent_in(line.get(..len).unwrap_or_default()).ok_or(libc::ESRCH)
}

/// The fourth field of `/proc/PID/stat`; the second one is a name that may hold anything.
fn parent_in(stat: &[u8]) -> Option<c_int> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let mut fields = stat.get(end + 1..)?.split(|byte| *byte == b' ');
    number(fields.nth(2)?)
}

fn number(digits: &[u8]) -> Option<c_int> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_stands_behind_any_name() {
        assert_eq!(parent_in(b"12 (a) b) S 34 12 12 0"), Some(34));
        assert_eq!(parent_in(b"12 (x"), None);
        assert_eq!(parent_in(b""), None);
    }

    #[test]
    fn a_process_belongs_to_the_keeper_at_any_depth() {
        let parents = |pid: c_int| match pid {
            7 => Ok(6),
            6 => Ok(5),
            9 => Ok(1),
            1 => Ok(0),
            _ => Err(libc::ENOENT),
        };
        assert!(is_below(7, 5, parents));
        assert!(is_below(6, 5, parents));
        assert!(!is_below(5, 5, parents));
        assert!(!is_below(9, 5, parents));
        assert!(!is_below(1, 5, parents));
        assert!(!is_below(4, 5, |_| Ok(4)), "a circle ends");
    }

    #[test]
    fn a_real_parent_is_found() {
        let own = std::process::id() as c_int;
        assert_eq!(
            parent_of(own),
            Ok(std::os::unix::process::parent_id() as c_int)
        );
    }
}
