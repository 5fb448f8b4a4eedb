//! Namespaces for the command: of mounts, of System V and POSIX message queues, of the host's name, and where possible of
//! processes; of the network where asked.

use std::fs;
use std::io;

use rustix::process::{getegid, geteuid};
use rustix::thread::UnshareFlags;

use crate::request::{Network, Request};

/// Moves this process into new namespaces; its children are in the PID namespace. Says whether a user namespace was
/// needed for it.
pub(crate) fn enter(request: &Request, mounts: bool) -> io::Result<bool> {
    let mut flags = UnshareFlags::empty();
    if mounts {
        flags |= UnshareFlags::NEWNS | UnshareFlags::NEWIPC | UnshareFlags::NEWUTS;
        if request.pid_namespace {
            flags |= UnshareFlags::NEWPID;
        }
    }
    if request.network == Network::None {
        flags |= UnshareFlags::NEWNET;
    }
    let needed = leave(flags)?;
    if request.network == Network::None {
        bring_loopback_up()?;
    }
    Ok(needed)
}

/// Moves this process into a new mount namespace.
pub(crate) fn enter_mounts() -> io::Result<()> {
    leave(UnshareFlags::NEWNS).map(drop)
}

/// Moves this process into a new mount namespace if it may without a user namespace.
pub(crate) fn enter_mounts_as_root() -> io::Result<()> {
    unshare(UnshareFlags::NEWNS)
}

/// Leaves namespaces for new ones, and says whether that needed a user namespace.
fn leave(flags: UnshareFlags) -> io::Result<bool> {
    let (uid, gid) = (geteuid(), getegid());
    // Root that may mount needs no user namespace, and keeps its rights over everybody's files without one.
    match unshare(flags) {
        Ok(()) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            unshare(flags | UnshareFlags::NEWUSER)?;
            // Only the own identity can be mapped without privileges, and the group only without supplementary ones.
            write_kernel_file("/proc/self/setgroups", "deny")?;
            write_kernel_file("/proc/self/uid_map", &format!("{uid} {uid} 1"))?;
            write_kernel_file("/proc/self/gid_map", &format!("{gid} {gid} 1"))?;
            Ok(true)
        }
        Err(error) => Err(error),
    }
}

#[expect(clippy::disallowed_methods, reason = "files of the kernel")]
fn write_kernel_file(path: &str, text: &str) -> io::Result<()> {
    fs::write(path, text)
}

fn unshare(flags: UnshareFlags) -> io::Result<()> {
    if flags.is_empty() {
        return Ok(());
    }
    #[expect(unsafe_code, reason = "namespaces can only be left this way")]
    // SAFETY: the keeper has one thread, and no file descriptor is shared through CLONE_FILES, which is not asked for.
    unsafe { rustix::thread::unshare_unsafe(flags) }.map_err(Into::into)
}

/// `IFF_UP | IFF_RUNNING`.
const UP_AND_RUNNING: libc::c_short = 0x41;

/// In a new network namespace the loopback device exists but is down.
fn bring_loopback_up() -> io::Result<()> {
    use rustix::net::{AddressFamily, SocketType, socket};
    use std::os::fd::AsRawFd as _;

    let control = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    #[expect(unsafe_code, reason = "no crate of ours wraps this request")]
    // SAFETY: `ifreq` is plain data that the kernel reads, and the name is shorter than its field.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        for (to, from) in request.ifr_name.iter_mut().zip(c"lo".to_bytes()) {
            *to = libc::c_char::from_ne_bytes([*from]);
        }
        request.ifr_ifru.ifru_flags = UP_AND_RUNNING;
        if libc::ioctl(control.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
