//! Job control: who has the terminal, and stopping together.
//!
//! The training leads a process group only if brimful does, as it would in brimful's place.
//!
//! On an interactive shell, brimful leads a job. The training then gets a process group of its own and the terminal with
//! it, so Ctrl-C and Ctrl-Z reach it as without brimful, and a signal sent to brimful is passed on once. In a pipeline or
//! a script, brimful shares its group with others; then the training stays in that group, and the terminal reaches all of
//! them by itself. So does everybody who signals the whole group: `process_control.rs` does not pass such a signal on.

use std::fs::{File, OpenOptions};

use brimful_probe::Processes;
use rustix::process::{Pid, Signal};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

use crate::streams::any_pipe;

/// The process group that brimful was started in.
#[derive(Clone, Copy, Debug)]
struct GroupOfBrimful {
    is_led_by_brimful: bool,
    has_terminal: bool,
    /// Other processes of a pipeline, or the shell of a script.
    has_others: bool,
}

impl GroupOfBrimful {
    /// Whether the training belongs in this group, and not in one that it leads. The others of a pipeline keep the
    /// terminal only if the training is beside them.
    fn is_for_training(self) -> bool {
        !self.is_led_by_brimful || (self.has_terminal && self.has_others)
    }
}

/// How signals from the terminal find the training.
#[derive(Debug)]
pub(crate) enum TerminalControl {
    /// The training has a group of its own and is handed the terminal.
    Handed { terminal: File },
    /// The training is in brimful's group; the terminal reaches both.
    Shared,
    /// The training has a group of its own, and there is no terminal.
    Own,
}

impl TerminalControl {
    pub(crate) fn choose() -> TerminalControl {
        let terminal = OpenOptions::new().read(true).write(true).open("/dev/tty");
        let place = GroupOfBrimful {
            // A group of another PID namespace has no number here, so nobody can be put into it.
            is_led_by_brimful: group_of_brimful()
                .is_none_or(|group| group == rustix::process::getpid()),
            has_terminal: terminal.is_ok(),
            has_others: any_pipe() || !alone_in_group(),
        };
        match terminal {
            _ if place.is_for_training() => TerminalControl::Shared,
            Ok(terminal) => TerminalControl::Handed { terminal },
            Err(_) => TerminalControl::Own,
        }
    }

    pub(crate) fn own_group(&self) -> bool {
        !matches!(self, TerminalControl::Shared)
    }

    /// What a new process needs to take the terminal by itself, if brimful has it now. It may read from it at once, and
    /// would be stopped if it came before [`TerminalControl::hand_over`].
    pub(crate) fn offer(&self) -> Option<Offer> {
        let TerminalControl::Handed { terminal } = self else {
            return None;
        };
        let is_ours = tcgetpgrp(terminal).is_ok_and(|group| Some(group) == group_of_brimful());
        let terminal = terminal.try_clone().ok().filter(|_| is_ours)?;
        Some(Offer { terminal })
    }

    /// Takes the terminal back from a process that could not be started.
    pub(crate) fn take_back_offer(&self) {
        if let TerminalControl::Handed { terminal } = self
            && let Some(own) = group_of_brimful()
        {
            let _ = tcsetpgrp(terminal, own);
        }
    }

    /// Hands the terminal to the training, if brimful has it now.
    pub(crate) fn hand_over(&self, to: Pid) {
        if let TerminalControl::Handed { terminal } = self
            && tcgetpgrp(terminal).is_ok_and(|group| Some(group) == group_of_brimful())
        {
            let _ = tcsetpgrp(terminal, to);
        }
    }

    /// Takes the terminal back from the training.
    pub(crate) fn take_back(&self, from: Pid) {
        if let TerminalControl::Handed { terminal } = self
            && tcgetpgrp(terminal).is_ok_and(|group| group == from)
            && let Some(own) = group_of_brimful()
        {
            let _ = tcsetpgrp(terminal, own);
        }
    }
}

/// The terminal, for a process that is about to become the training.
#[derive(Debug)]
pub(crate) struct Offer {
    terminal: File,
}

impl Offer {
    /// Called between fork and exec, in a process group of its own: makes system calls only.
    pub(crate) fn take(&self) {
        // From the background this would stop the process, as long as the signal for it is let through.
        mask_terminal_stop(libc::SIG_BLOCK);
        // It leads a group of its own.
        let _ = tcsetpgrp(&self.terminal, rustix::process::getpid());
        mask_terminal_stop(libc::SIG_UNBLOCK);
    }
}

/// The process group of this process; nothing where it belongs to another PID namespace, as that of a container's first
/// process may.
pub(crate) fn group_of_brimful() -> Option<Pid> {
    #[expect(
        unsafe_code,
        reason = "the wrapper takes a group without a number for impossible"
    )]
    // SAFETY: it cannot fail and touches nothing.
    let group = unsafe { libc::getpgrp() };
    Pid::from_raw(group)
}

/// Stops brimful itself as Ctrl-Z would have, until somebody lets it go on.
pub(crate) fn stop_here() {
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
}

/// Whether nobody else is in brimful's process group, such as the shell of a script.
fn alone_in_group() -> bool {
    let us = std::process::id();
    let table = Processes::live().all();
    let own = table
        .iter()
        .find(|process| process.pid == us)
        .map(|process| process.group);
    // Where /proc is missing nobody knows; to share the group is what a shell without job control does.
    own.is_some_and(|own| {
        table
            .iter()
            .all(|process| process.pid == us || process.is_zombie || process.group != own)
    })
}

/// Holds off the signal that would stop brimful when it writes to a terminal that the training has, or takes it back.
/// The training has what brimful's caller has blocked.
pub(crate) fn hold_off_terminal_stops() {
    mask_terminal_stop(libc::SIG_BLOCK);
}

#[expect(
    unsafe_code,
    reason = "no safe wrapper of pthread_sigmask is among our dependencies"
)]
fn mask_terminal_stop(how: libc::c_int) {
    // SAFETY: the set is made by sigemptyset before it is used, lives on this stack, and the old one is not asked for.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGTTOU);
        libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB_OF_A_SHELL: GroupOfBrimful = GroupOfBrimful {
        is_led_by_brimful: true,
        has_terminal: true,
        has_others: false,
    };
    const FIRST_IN_A_PIPELINE: GroupOfBrimful = GroupOfBrimful {
        has_others: true,
        ..JOB_OF_A_SHELL
    };
    const IN_A_SCRIPT: GroupOfBrimful = GroupOfBrimful {
        is_led_by_brimful: false,
        ..FIRST_IN_A_PIPELINE
    };
    const FIRST_OF_A_CONTAINER: GroupOfBrimful = GroupOfBrimful {
        has_terminal: false,
        ..JOB_OF_A_SHELL
    };

    #[test]
    fn the_training_leads_a_group_where_it_would_without_brimful() {
        assert!(!JOB_OF_A_SHELL.is_for_training());
        assert!(!FIRST_OF_A_CONTAINER.is_for_training());
        for has_terminal in [true, false] {
            let in_a_script = GroupOfBrimful {
                has_terminal,
                ..IN_A_SCRIPT
            };
            assert!(in_a_script.is_for_training());
        }
    }

    #[test]
    fn the_training_stays_beside_the_others_of_a_pipeline() {
        assert!(FIRST_IN_A_PIPELINE.is_for_training());
    }
}
