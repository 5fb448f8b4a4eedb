//! System calls that name a process (signals, priorities, limits) or a local socket: the keeper looks at them first.
//!
//! A command may use them on its own processes only, and without a network on its own sockets only. A seccomp filter stops
//! each such call until the keeper has answered. Landlock denies signals too, on newer kernels; it knows nothing of
//! priorities and limits, and a network namespace nothing of sockets that have a path.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread::JoinHandle;

use libc::{c_long, sock_filter};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

use crate::request::Network;
use crate::sockets;
use crate::tree::{self, Process};

/// Which argument names the process, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Names {
    /// As `kill` does: a process, a group or everybody.
    Target(usize),
    /// A process or a thread; zero is the caller.
    Process(usize),
    /// As `setpriority` does: what the number in the argument before means.
    Priority(usize),
    /// A descriptor of a process.
    Descriptor(usize),
    /// An address; its length is in the argument behind.
    Address(usize),
}

const SYS_PIDFD_SEND_SIGNAL: c_long = 424;

/// The calls that are looked at where the command has no network.
const NETWORK_CALLS: [(c_long, Names); 2] = [
    (libc::SYS_connect, Names::Address(1)),
    (libc::SYS_sendto, Names::Address(4)),
];

/// The calls that are always looked at.
const CALLS: [(c_long, Names); 15] = [
    (libc::SYS_kill, Names::Target(0)),
    (libc::SYS_tkill, Names::Process(0)),
    (libc::SYS_tgkill, Names::Process(0)),
    (libc::SYS_rt_sigqueueinfo, Names::Process(0)),
    (libc::SYS_rt_tgsigqueueinfo, Names::Process(0)),
    (SYS_PIDFD_SEND_SIGNAL, Names::Descriptor(0)),
    (libc::SYS_setpriority, Names::Priority(1)),
    (libc::SYS_ioprio_set, Names::Priority(1)),
    (libc::SYS_prlimit64, Names::Process(0)),
    (libc::SYS_sched_setaffinity, Names::Process(0)),
    (libc::SYS_sched_setattr, Names::Process(0)),
    (libc::SYS_sched_setparam, Names::Process(0)),
    (libc::SYS_sched_setscheduler, Names::Process(0)),
    (libc::SYS_migrate_pages, Names::Process(0)),
    (libc::SYS_move_pages, Names::Process(0)),
];

/// `PRIO_PROCESS` and `PRIO_PGRP`; those of I/O are one more.
const PRIORITY_OF_PROCESS: u64 = 0;
const PRIORITY_OF_GROUP: u64 = 1;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// Answers to the kernel.
const CONTINUE: u32 = 1;
const RECEIVE: libc::Ioctl = 0xc050_2100_u32 as libc::Ioctl;
const ANSWER: libc::Ioctl = 0xc018_2101_u32 as libc::Ioctl;

/// `struct seccomp_notif`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Stopped {
    id: u64,
    pid: u32,
    flags: u32,
    number: i32,
    architecture: u32,
    instruction: u64,
    arguments: [u64; 6],
}

/// `struct seccomp_notif_resp`.
#[repr(C)]
struct Reply {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

/// Stops the calls of this process and its children from now on, and hands them to the keeper. For the time between fork
/// and exec.
pub(crate) fn hand_over(to: &UnixStream, network: Network) -> io::Result<()> {
    let filter = filter(network);
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).unwrap_or(0),
        filter: filter.as_ptr().cast_mut(),
    };
    #[expect(unsafe_code, reason = "no crate of ours asks for a listener")]
    // SAFETY: the program outlives the call, which gives a new descriptor or an error.
    let listener = unsafe {
        let number = libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        );
        if number < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(libc::c_int::try_from(number).map_err(io::Error::other)?)
    };
    let descriptors = [listener.as_fd()];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    rustix::net::sendmsg(
        to,
        &[IoSlice::new(b"l")],
        &mut ancillary,
        SendFlags::empty(),
    )?;
    Ok(())
}

/// The descriptor that a process has handed over; nothing where it could not install the filter.
pub(crate) fn take_over(from: &UnixStream) -> Option<OwnedFd> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    rustix::net::recvmsg(
        from,
        &mut [IoSliceMut::new(&mut byte)],
        &mut ancillary,
        flags,
    )
    .ok()?;
    ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    })
}

/// Answers the calls of a command until none of its processes is left. Sockets that it could not connect to are added to
/// the file `refused`.
pub(crate) fn answer(listener: OwnedFd, refused: Option<PathBuf>) -> io::Result<JoinHandle<()>> {
    let keeper = rustix::process::getpid().as_raw_nonzero().get();
    let answers = move || {
        while let Some(stopped) = receive(&listener) {
            let sight = Sight {
                keeper,
                process: &tree::process,
                members_of: &tree::members_of,
                pid_behind: &|number| pid_behind(stopped.pid, number),
                is_own_socket: &|at, len| {
                    let foreign = sockets::foreign_socket(stopped.pid, at, len);
                    if let (Some(foreign), Some(list)) = (&foreign, &refused) {
                        sockets::note_refused(list, foreign);
                    }
                    foreign.is_none()
                },
            };
            let may = sight.allows(stopped.number, stopped.arguments);
            let reply = Reply {
                id: stopped.id,
                value: 0,
                error: if may { 0 } else { -refusal(stopped.number) },
                flags: if may { CONTINUE } else { 0 },
            };
            #[expect(unsafe_code, reason = "no crate of ours wraps this request")]
            // SAFETY: the kernel reads a reply of its own form. A call that is over needs none.
            let _ = unsafe { libc::ioctl(listener.as_raw_fd(), ANSWER, &raw const reply) };
        }
    };
    // Without the thread the descriptor is closed, and the kernel refuses the calls.
    std::thread::Builder::new()
        .name("process-calls".into())
        .spawn(answers)
}

/// The error that a call documents for what it may not do.
fn refusal(number: i32) -> i32 {
    let is_of_network = |(call, _): &(c_long, Names)| *call == c_long::from(number);
    if NETWORK_CALLS.iter().any(is_of_network) {
        libc::EACCES
    } else {
        libc::EPERM
    }
}

/// The next call; nothing when every process that could make one is gone.
fn receive(listener: &OwnedFd) -> Option<Stopped> {
    use rustix::event::{PollFd, PollFlags, poll};
    loop {
        let mut waits = [PollFd::new(listener, PollFlags::IN)];
        match poll(&mut waits, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
        let events = waits[0].revents();
        if events.contains(PollFlags::IN) {
            let mut stopped = Stopped::default();
            #[expect(unsafe_code, reason = "no crate of ours wraps this request")]
            // SAFETY: the kernel writes a call of its own form to memory of that form, which is zero as it demands.
            let outcome = unsafe { libc::ioctl(listener.as_raw_fd(), RECEIVE, &raw mut stopped) };
            if outcome == 0 {
                return Some(stopped);
            }
            // The caller was killed meanwhile.
        } else if events.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
            return None;
        }
    }
}

/// What is known of processes when a call is looked at.
struct Sight<'a> {
    keeper: i32,
    process: &'a dyn Fn(i32) -> Option<Process>,
    members_of: &'a dyn Fn(i32) -> Vec<i32>,
    pid_behind: &'a dyn Fn(i32) -> Option<i32>,
    /// For an address in the caller's memory, and its length.
    is_own_socket: &'a dyn Fn(u64, u64) -> bool,
}

impl Sight<'_> {
    /// Whether a call names processes of the command only. Signal 0 changes nothing.
    fn allows(&self, number: i32, arguments: [u64; 6]) -> bool {
        let number = c_long::from(number);
        let mut calls = CALLS.iter().chain(&NETWORK_CALLS);
        let Some((_, names)) = calls.find(|(call, _)| *call == number) else {
            return true;
        };
        let argument = |index: usize| arguments.get(index).copied().unwrap_or(0);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a number of a process is the lower half of a register"
        )]
        let pid = |index: usize| (argument(index) as u32).cast_signed();
        match names {
            Names::Target(_) if argument(1) == 0 => true,
            Names::Target(index) => match pid(*index) {
                -1 => false,
                pid if pid < 0 => self.is_group_inside(pid.saturating_neg()),
                pid => self.is_inside(pid),
            },
            Names::Process(index) => self.is_inside(pid(*index)),
            Names::Priority(index) => {
                let first = u64::from(number == libc::SYS_ioprio_set);
                match argument(index - 1).wrapping_sub(first) {
                    PRIORITY_OF_PROCESS => self.is_inside(pid(*index)),
                    PRIORITY_OF_GROUP => pid(*index) == 0 || self.is_group_inside(pid(*index)),
                    _ => false,
                }
            }
            Names::Address(index) => (self.is_own_socket)(argument(*index), argument(index + 1)),
            Names::Descriptor(index) => {
                (self.pid_behind)(pid(*index)).is_some_and(|pid| self.is_inside(pid))
            }
        }
    }

    fn is_group_inside(&self, group: i32) -> bool {
        let members = (self.members_of)(group);
        !members.is_empty() && members.into_iter().all(|pid| self.is_inside(pid))
    }

    /// Whether a process, or the one that a thread belongs to, descends from the keeper. Zero is the caller.
    fn is_inside(&self, pid: i32) -> bool {
        const MAX_GENERATIONS: usize = 1000;
        if pid == 0 {
            return true;
        }
        let mut next = pid;
        for _ in 0..MAX_GENERATIONS {
            match (self.process)(next) {
                Some(found) if found.pid == self.keeper => return false,
                Some(found) if found.parent == self.keeper => return true,
                Some(found) if found.parent > 0 => next = found.parent,
                _ => return false,
            }
        }
        false
    }
}

/// The process that a descriptor of another process stands for.
fn pid_behind(pid: u32, number: i32) -> Option<i32> {
    let facts = std::fs::read_to_string(format!("/proc/{pid}/fdinfo/{number}")).ok()?;
    let line = facts.lines().find_map(|line| line.strip_prefix("Pid:"));
    match line {
        Some(pid) => pid.trim().parse().ok(),
        // A directory of /proc stands for its process too.
        None => std::fs::read_link(format!("/proc/{pid}/fd/{number}"))
            .ok()?
            .strip_prefix("/proc")
            .ok()?
            .to_str()?
            .parse()
            .ok(),
    }
}

/// Stops each of these calls, unless it means its own caller.
fn filter(network: Network) -> Vec<sock_filter> {
    const LOAD: u16 = 0x20;
    const EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const ALLOW: u32 = 0x7fff_0000;
    const NOTIFY: u32 = 0x7fc0_0000;
    const NUMBER_AT: u32 = 0;
    const ARCHITECTURE_AT: u32 = 4;
    const ARGUMENTS_AT: u32 = 16;
    let line = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    let mut lines = vec![
        line(LOAD, 0, 0, ARCHITECTURE_AT),
        line(EQUAL, 1, 0, ARCHITECTURE),
        line(RETURN, 0, 0, ALLOW),
        line(LOAD, 0, 0, NUMBER_AT),
    ];
    let more: &[_] = match network {
        Network::None => &NETWORK_CALLS,
        Network::Full => &[],
    };
    for (number, names) in CALLS.iter().chain(more).copied() {
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        match names {
            Names::Descriptor(_) | Names::Priority(_) => {
                lines.extend([line(EQUAL, 0, 1, number), line(RETURN, 0, 0, NOTIFY)]);
            }
            Names::Target(index) | Names::Process(index) | Names::Address(index) => {
                let at = ARGUMENTS_AT + 8 * u32::try_from(index).unwrap_or(0);
                lines.extend([
                    line(EQUAL, 0, 4, number),
                    line(LOAD, 0, 0, at),
                    // The caller itself, or no address.
                    line(EQUAL, 0, 1, 0),
                    line(RETURN, 0, 0, ALLOW),
                    line(RETURN, 0, 0, NOTIFY),
                ]);
            }
        }
    }
    lines.push(line(RETURN, 0, 0, ALLOW));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEEPER: i32 = 10;

    /// 11 and 12 are the command's, 12 a child of 11 with the thread 13; 20 is not.
    fn known(pid: i32) -> Option<Process> {
        let (pid, parent) = match pid {
            10 => (10, 1),
            11 => (11, 10),
            12 | 13 => (12, 11),
            20 => (20, 1),
            1 => (1, 0),
            _ => return None,
        };
        Some(Process { pid, parent })
    }

    fn check(call: c_long, arguments: [i64; 2], expected: bool) {
        let [first, second] = arguments.map(i64::cast_unsigned);
        let sight = Sight {
            keeper: KEEPER,
            process: &known,
            members_of: &|group| match group {
                11 => vec![11, 12],
                10 => vec![10, 11],
                20 => vec![20],
                _ => Vec::new(),
            },
            pid_behind: &|number| (number == 5).then_some(12),
            is_own_socket: &|at, _| at == 7,
        };
        let number = i32::try_from(call).unwrap();
        let allowed = sight.allows(number, [first, second, 0, 0, 0, 0]);
        assert_eq!(allowed, expected, "{call} {arguments:?}");
    }

    #[test]
    fn signals_reach_processes_of_the_command_only() {
        for (pid, expected) in [
            (11, true),
            (12, true),
            (13, true),
            (-11, true),
            (-10, false),
            (10, false),
            (20, false),
            (-20, false),
            (-1, false),
            (1, false),
            (99, false),
        ] {
            check(libc::SYS_kill, [pid, 15], expected);
            check(libc::SYS_kill, [pid, 0], true);
        }
        check(libc::SYS_tgkill, [12, 13], true);
        check(libc::SYS_tgkill, [20, 20], false);
        check(SYS_PIDFD_SEND_SIGNAL, [5, 15], true);
        check(SYS_PIDFD_SEND_SIGNAL, [6, 15], false);
    }

    #[test]
    fn priorities_and_limits_of_others_cannot_be_changed() {
        for (what, who, expected) in [
            (0, 0, true),
            (0, 12, true),
            (0, 20, false),
            (1, 0, true),
            (1, 11, true),
            (1, 20, false),
            (2, 0, false),
            (2, 1000, false),
        ] {
            check(libc::SYS_setpriority, [what, who], expected);
            check(libc::SYS_ioprio_set, [what + 1, who], expected);
        }
        check(libc::SYS_prlimit64, [12, 7], true);
        check(libc::SYS_prlimit64, [20, 7], false);
        check(libc::SYS_sched_setaffinity, [13, 8], true);
        check(libc::SYS_getpid, [20, 0], true);
    }

    #[test]
    fn sockets_of_others_cannot_be_connected_to() {
        check(libc::SYS_connect, [3, 7], true);
        check(libc::SYS_connect, [3, 8], false);
    }
}
