//! Signals to exactly the process that is meant.
//!
//! A process number is given to another process once the first one is gone. So a process is held by a pidfd first, then
//! its identity is checked (a number and a moment of its start are one process), then it is signalled. Where the kernel
//! has no pidfds (before 5.3) or a seccomp filter forbids them, the check alone remains, right before the signal.

use std::os::fd::OwnedFd;

use brimful_probe::{ProcessFacts, Processes};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

/// The training's first process. Nobody reaps it before brimful knows of its end, so its number stays its own.
#[derive(Debug)]
pub(crate) struct TrainingProcess {
    pub(crate) pid: Pid,
    pidfd: Option<OwnedFd>,
}

impl TrainingProcess {
    pub(crate) fn new(pid: Pid) -> TrainingProcess {
        TrainingProcess {
            pid,
            pidfd: pidfd_open(pid, PidfdFlags::empty()).ok(),
        }
    }

    /// Sends a signal. A process that has gone is not an error.
    pub(crate) fn send(&self, signal: Signal) {
        deliver(self.pidfd.as_ref(), self.pid, signal);
    }

    /// Whether no process of this number is left, not even one that waits to be reaped.
    pub(crate) fn is_gone(&self) -> bool {
        rustix::process::test_kill_process(self.pid) == Err(Errno::SRCH)
    }
}

/// The number of a process as the rest of brimful has it.
pub(crate) fn process_number(pid: Pid) -> u32 {
    u32::try_from(pid.as_raw_nonzero().get()).unwrap_or(0)
}

/// Sends a signal to these processes as they were seen, and to no later ones of the same numbers.
pub(crate) fn send_to(processes: &Processes, seen: &[ProcessFacts], signal: Signal) {
    // All are held before the first is signalled: its end may be the end of others, and of their numbers.
    let held: Vec<_> = seen
        .iter()
        .filter_map(|process| {
            let pid = i32::try_from(process.pid).ok().and_then(Pid::from_raw)?;
            match pidfd_open(pid, PidfdFlags::empty()) {
                Ok(pidfd) => Some((process, pid, Some(pidfd))),
                Err(Errno::SRCH) => None,
                Err(_) => Some((process, pid, None)),
            }
        })
        .collect();
    for (process, pid, pidfd) in held {
        let is_the_same = processes
            .one(process.pid)
            .is_some_and(|now| now.started_ticks == process.started_ticks);
        if is_the_same {
            deliver(pidfd.as_ref(), pid, signal);
        }
    }
}

fn deliver(pidfd: Option<&OwnedFd>, pid: Pid, signal: Signal) {
    let sent = pidfd.map(|pidfd| pidfd_send_signal(pidfd, signal));
    // A filter may allow to open a pidfd and not to use it.
    if matches!(sent, None | Some(Err(Errno::NOSYS | Errno::PERM))) {
        let _ = kill_process(pid, signal);
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn sleeping() -> (std::process::Child, ProcessFacts) {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let facts = Processes::live().one(child.id()).unwrap();
        (child, facts)
    }

    #[test]
    fn another_process_of_the_same_number_is_left_alone() {
        let (mut child, facts) = sleeping();
        let earlier = ProcessFacts {
            started_ticks: facts.started_ticks.wrapping_sub(1),
            ..facts.clone()
        };
        send_to(&Processes::live(), &[earlier], Signal::KILL);
        assert!(child.try_wait().unwrap().is_none());
        send_to(&Processes::live(), &[facts], Signal::KILL);
        assert!(!child.wait().unwrap().success());
    }

    #[test]
    fn a_process_that_has_gone_is_not_an_error() {
        let (mut child, facts) = sleeping();
        let training = TrainingProcess::new(Pid::from_child(&child));
        assert!(!training.is_gone());
        training.send(Signal::TERM);
        child.wait().unwrap();
        assert!(training.is_gone());
        training.send(Signal::TERM);
        send_to(&Processes::live(), &[facts], Signal::KILL);
    }

    #[test]
    fn without_pidfds_the_number_is_used() {
        let (mut child, _) = sleeping();
        deliver(None, Pid::from_child(&child), Signal::KILL);
        assert!(!child.wait().unwrap().success());
    }
}
