//! Job control: who has the terminal, and stopping together.
//!
//! On an interactive shell the training gets a process group of its own and the terminal with it, so Ctrl-C and Ctrl-Z
//! reach it as without brimful, and a signal sent to brimful is passed on once. In a pipeline or a script, brimful shares
//! its group with others; then the training stays in that group, and the terminal reaches all of them by itself.

use std::fs::{File, OpenOptions};

use brimful_probe::Processes;
use rustix::process::{Pid, Signal, getpgrp};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

use crate::streams::any_pipe;

/// How signals from the terminal find the training.
#[derive(Debug)]
pub(crate) enum TerminalControl {
    /// The training has a group of its own and is handed the terminal.
    Handed { terminal: File },
    /// The training is in brimful's group; the terminal reaches both.
    Shared,
    /// There is no terminal.
    None,
}

impl TerminalControl {
    pub(crate) fn choose() -> TerminalControl {
        let Ok(terminal) = OpenOptions::new().read(true).write(true).open("/dev/tty") else {
            return TerminalControl::None;
        };
        if any_pipe() || !alone_in_group() {
            TerminalControl::Shared
        } else {
            TerminalControl::Handed { terminal }
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
        let is_ours = tcgetpgrp(terminal).is_ok_and(|group| group == getpgrp());
        let terminal = terminal.try_clone().ok().filter(|_| is_ours)?;
        Some(Offer { terminal })
    }

    /// Takes the terminal back from a process that could not be started.
    pub(crate) fn take_back_offer(&self) {
        if let TerminalControl::Handed { terminal } = self {
            let _ = tcsetpgrp(terminal, getpgrp());
        }
    }

    /// Hands the terminal to the training, if brimful has it now.
    pub(crate) fn hand_over(&self, to: Pid) {
        if let TerminalControl::Handed { terminal } = self
            && tcgetpgrp(terminal).is_ok_and(|group| group == getpgrp())
        {
            let _ = tcsetpgrp(terminal, to);
        }
    }

    /// Takes the terminal back from the training.
    pub(crate) fn take_back(&self, from: Pid) {
        if let TerminalControl::Handed { terminal } = self
            && tcgetpgrp(terminal).is_ok_and(|group| group == from)
        {
            let _ = tcsetpgrp(terminal, getpgrp());
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
        let _ = tcsetpgrp(&self.terminal, getpgrp());
        mask_terminal_stop(libc::SIG_UNBLOCK);
    }
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
/// Programs started later begin with nothing held off.
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
