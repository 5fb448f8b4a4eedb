//! Local sockets that have a path: whose they are, seen from a network namespace that has none of the machine's.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

const PATH_AT: usize = std::mem::offset_of!(libc::sockaddr_un, sun_path);

/// The path of the socket that an address in a process's memory names, unless a process of the same network namespace has
/// bound it. An address that cannot be read counts as another's.
pub(crate) fn foreign_socket(pid: u32, at: u64, length: u64) -> Option<PathBuf> {
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let Ok(address) = read_address(pid, at, length) else {
        return Some(PathBuf::from("?"));
    };
    let path = path_in(&address)?;
    let bound = fs::read(format!("/proc/{pid}/net/unix")).unwrap_or_default();
    (!is_bound(&bound, path)).then(|| path.to_owned())
}

fn read_address(pid: u32, at: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut address = vec![0; length.min(size_of::<libc::sockaddr_un>())];
    File::open(format!("/proc/{pid}/mem"))?.read_exact_at(&mut address, at)?;
    Ok(address)
}

/// The path of a local address; nothing where it has another family, or a name without a path.
fn path_in(address: &[u8]) -> Option<&Path> {
    let family = u16::from_ne_bytes([*address.first()?, *address.get(1)?]);
    if i32::from(family) != libc::AF_UNIX {
        return None;
    }
    let path = address.get(PATH_AT..)?.split(|byte| *byte == 0).next()?;
    (!path.is_empty()).then(|| Path::new(OsStr::from_bytes(path)))
}

/// Whether a table of sockets, as `/proc/net/unix`, has one that is bound to a path with the same last component: it may
/// have been bound by a relative one.
fn is_bound(table: &[u8], path: &Path) -> bool {
    const FIELDS_BEFORE_PATH: usize = 7;
    table.split(|byte| *byte == b'\n').skip(1).any(|line| {
        let mut fields = line
            .split(|byte| *byte == b' ')
            .filter(|field| !field.is_empty());
        let bound = fields.nth(FIELDS_BEFORE_PATH);
        bound.is_some_and(|bound| {
            Path::new(OsStr::from_bytes(bound)).file_name() == path.file_name()
        })
    })
}

/// Adds a line to the list of connections.
pub(crate) fn note_refused(list: &Path, socket: &Path) {
    let Ok(line) =
        serde_json::to_string(&serde_json::json!({ "refused": socket.to_string_lossy() }))
    else {
        return;
    };
    #[expect(
        clippy::disallowed_methods,
        reason = "a file in the private directory of results"
    )]
    let list = OpenOptions::new().append(true).create(true).open(list);
    if let Ok(mut list) = list {
        let _ = list.write_all(format!("{line}\n").as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_an_address_is_found() {
        let family = |family: i32| u16::try_from(family).unwrap().to_ne_bytes().to_vec();
        let address = |start: Vec<u8>, rest: &[u8]| [start, rest.to_vec()].concat();
        let own = address(family(libc::AF_UNIX), b"/run/db\0rest");
        assert_eq!(path_in(&own), Some(Path::new("/run/db")));
        assert_eq!(path_in(&address(family(libc::AF_UNIX), b"\0bus")), None);
        assert_eq!(path_in(&address(family(libc::AF_INET), b"/run/db")), None);
        assert_eq!(path_in(&[1]), None);
    }

    #[test]
    fn a_socket_that_is_bound_here_is_no_other_programs() {
        let table = b"Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 19245 /tmp/pymp-1/listener\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 19250\n";
        assert!(is_bound(table, Path::new("/tmp/pymp-1/listener")));
        assert!(is_bound(table, Path::new("listener")));
        assert!(!is_bound(table, Path::new("/run/docker.sock")));
        assert!(!is_bound(b"", Path::new("/run/docker.sock")));
    }
}
