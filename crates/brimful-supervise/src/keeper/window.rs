//! The size of the terminal that the training writes to.
//!
//! The kernel tells the foreground process group of the real terminal about a new size. The training's handler then asks
//! the terminal that it writes to, which is brimful's, so that one must have the new size first. The keeper is in the same
//! process group for that reason, and changes the size in its signal handler, before anything else. A training that was
//! faster still is told again.

use std::os::fd::AsRawFd;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicU16, Ordering};

use libc::{c_int, c_void, siginfo_t};
use rustix::process::Pid;
use rustix::termios::isatty;

use crate::status_line;

/// Descriptors of the real terminal and of the training's, which stay open as long as the keeper lives; else -1.
static REAL: AtomicI32 = AtomicI32::new(-1);
static TRAININGS: AtomicI32 = AtomicI32::new(-1);
/// The process group of the training; 0 before it runs and after its end.
static GROUP: AtomicI32 = AtomicI32::new(0);
/// Rows that the status line takes now.
static N_ROWS_KEPT: AtomicU16 = AtomicU16::new(0);

/// Follows the size of the terminal that one of these routes leads to. False where none does.
pub(super) fn follow<Source: AsRawFd, Destination: AsRawFd + std::os::fd::AsFd>(
    routes: &[Option<(Source, Destination)>],
) -> bool {
    let to_terminal = routes
        .iter()
        .flatten()
        .rfind(|(_, destination)| isatty(destination));
    let Some((source, destination)) = to_terminal else {
        return false;
    };
    REAL.store(destination.as_raw_fd(), Ordering::Release);
    TRAININGS.store(source.as_raw_fd(), Ordering::Release);
    install();
    true
}

/// The training runs in this process group.
pub(super) fn group_is(group: Pid) {
    GROUP.store(group.as_raw_nonzero().get(), Ordering::Release);
}

/// The training has ended, or this process has left its group.
pub(super) fn group_is_gone() {
    GROUP.store(0, Ordering::Release);
}

/// The status line is on the terminal, or not any more.
pub(super) fn status_line_is(up: bool) {
    let n_rows = if up { status_line::ROWS } else { 0 };
    N_ROWS_KEPT.store(n_rows, Ordering::Release);
}

#[expect(
    unsafe_code,
    reason = "who sent a signal is known only to a handler of this form"
)]
fn install() {
    // SAFETY: the action is zeroed, which is a valid value of it, and its handler makes only calls that a signal handler
    // may make.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_resize as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(libc::SIGWINCH, &raw const action, null_mut());
    }
}

#[expect(unsafe_code, reason = "system calls of a signal handler")]
extern "C" fn on_resize(_signal: c_int, sender: *mut siginfo_t, _context: *mut c_void) {
    // SAFETY: the kernel gives a valid siginfo; all calls are allowed in a handler, on descriptors that stay open, and
    // errno is as before at its end.
    unsafe {
        // One from a process, such as this one's own below, is for the training alone, which has it.
        if (*sender).si_code != libc::SI_KERNEL {
            return;
        }
        let errno = *libc::__errno_location();
        let mut size: libc::winsize = std::mem::zeroed();
        let real = REAL.load(Ordering::Acquire);
        if libc::ioctl(real, libc::TIOCGWINSZ, &raw mut size) == 0 {
            let n_rows_kept = N_ROWS_KEPT.load(Ordering::Acquire);
            size.ws_row = size.ws_row.saturating_sub(n_rows_kept).max(1);
            let trainings = TRAININGS.load(Ordering::Acquire);
            libc::ioctl(trainings, libc::TIOCSWINSZ, &raw const size);
            let group = GROUP.load(Ordering::Acquire);
            if group > 0 {
                libc::kill(-group, libc::SIGWINCH);
            }
        }
        *libc::__errno_location() = errno;
    }
}
