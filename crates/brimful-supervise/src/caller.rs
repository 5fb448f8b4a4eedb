//! What brimful's caller has set up and the training inherits, although brimful needs it otherwise for itself: blocked
//! and ignored signals, and open descriptors.

use std::fs;
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};

use libc::c_int;

use crate::signals::is_ignored;

/// The number of the last signal.
const MAX_SIGNAL: c_int = 64;

static BLOCKED: AtomicU64 = AtomicU64::new(0);
static IGNORED: AtomicU64 = AtomicU64::new(0);

/// Runs before Rust's runtime starts, which ignores SIGPIPE and so hides what the caller has set.
#[expect(
    unsafe_code,
    reason = "only a function in this section of the program runs before the runtime"
)]
// SAFETY: the C library calls the functions of this section once, before `main`. This one makes only system calls.
#[unsafe(link_section = ".init_array")]
#[used]
static BEFORE_RUNTIME: extern "C" fn() = remember_signals_of_caller;

/// Remembers which signals are blocked and ignored now, for the training.
extern "C" fn remember_signals_of_caller() {
    let now = SignalState::now();
    BLOCKED.store(now.blocked, Ordering::Relaxed);
    IGNORED.store(now.ignored, Ordering::Relaxed);
}

/// Blocked and ignored signals, one bit each; the lowest is that of signal 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SignalState {
    pub(crate) blocked: u64,
    pub(crate) ignored: u64,
}

impl SignalState {
    /// Those of brimful's caller.
    pub(crate) fn of_caller() -> SignalState {
        // A linker leaves out an object of a library that nothing refers to.
        std::hint::black_box(&raw const BEFORE_RUNTIME);
        SignalState {
            blocked: BLOCKED.load(Ordering::Relaxed),
            ignored: IGNORED.load(Ordering::Relaxed),
        }
    }

    #[expect(
        unsafe_code,
        reason = "no safe wrapper of pthread_sigmask is among our dependencies"
    )]
    fn now() -> SignalState {
        // SAFETY: no new mask is given, and the old one is written to memory of its type that lives on this stack.
        let blocked = unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            libc::pthread_sigmask(libc::SIG_BLOCK, null(), &raw mut set);
            bits(|signal| libc::sigismember(&raw const set, signal) == 1)
        };
        SignalState {
            blocked,
            ignored: bits(is_ignored),
        }
    }

    /// Starts a command in this state. Called after all else that is set up between fork and exec, since the standard
    /// library changes the action of SIGPIPE there.
    #[expect(
        unsafe_code,
        reason = "between fork and exec is the only place where this reaches the training alone"
    )]
    pub(crate) fn restore_in(self, command: &mut Command) {
        // SAFETY: it makes only system calls that may be made there.
        unsafe {
            command.pre_exec(move || {
                self.restore();
                Ok(())
            });
        }
    }

    /// Sets this state in a process that is about to become the training. Only system calls that a signal handler may
    /// make.
    #[expect(
        unsafe_code,
        reason = "no safe wrapper sets these between fork and exec"
    )]
    pub(crate) fn restore(self) {
        // SAFETY: all calls are allowed between fork and exec; the set lives on this stack.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in 1..=MAX_SIGNAL {
                if has(self.blocked, signal) {
                    libc::sigaddset(&raw mut set, signal);
                }
                if has(self.ignored, signal) {
                    libc::signal(signal, libc::SIG_IGN);
                }
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const set, null_mut());
        }
    }
}

fn bits(is_set: impl Fn(c_int) -> bool) -> u64 {
    (1..=MAX_SIGNAL)
        .filter(|signal| is_set(*signal))
        .fold(0, |bits, signal| bits | 1 << (signal - 1))
}

fn has(bits: u64, signal: c_int) -> bool {
    bits >> (signal - 1) & 1 == 1
}

/// Descriptors beside the three streams that this process has from its caller. They are for the training.
///
/// As long as brimful holds them too, whoever waits for the other end of a pipe or for a lock waits for brimful, even
/// after the training has closed its own.
#[derive(Debug, Default)]
pub(crate) struct CallersDescriptors(Vec<RawFd>);

impl CallersDescriptors {
    /// Called before this process opens any that a program inherits.
    pub(crate) fn now() -> CallersDescriptors {
        let entries = fs::read_dir("/proc/self/fd").into_iter().flatten();
        let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        CallersDescriptors(
            numbers
                .filter(|number| *number > 2 && is_inherited(*number))
                .collect(),
        )
    }

    /// All but those of these numbers.
    pub(crate) fn without(mut self, numbers: &[RawFd]) -> CallersDescriptors {
        self.0.retain(|number| !numbers.contains(number));
        self
    }

    /// Leaves them to the training alone.
    #[expect(
        unsafe_code,
        reason = "descriptors that nothing in this process owns are known by number only"
    )]
    pub(crate) fn close(self) {
        for number in self.0 {
            // SAFETY: it was open and inherited before this process opened any, so no value in it owns the descriptor.
            unsafe {
                libc::close(number);
            }
        }
    }
}

#[expect(
    unsafe_code,
    reason = "a descriptor that nothing in this process owns is known by number only"
)]
fn is_inherited(number: RawFd) -> bool {
    // SAFETY: reads the flags of a descriptor; one that is not open gives an error.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    flags >= 0 && flags & libc::FD_CLOEXEC == 0
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::descriptors::set_inherited;

    #[test]
    fn each_signal_has_its_bit() {
        let found = bits(|signal| [1, 13, 64].contains(&signal));
        for signal in 1..=MAX_SIGNAL {
            assert_eq!(has(found, signal), [1, 13, 64].contains(&signal));
        }
    }

    #[test]
    fn rusts_runtime_ignores_sigpipe() {
        assert!(has(SignalState::now().ignored, libc::SIGPIPE));
    }

    #[test]
    fn only_what_a_program_inherits_is_the_callers() {
        let (ours, callers) = std::io::pipe().unwrap();
        set_inherited(&callers, true).unwrap();
        let found = CallersDescriptors::now();
        assert!(found.0.contains(&callers.as_raw_fd()));
        assert!(!found.0.contains(&ours.as_raw_fd()));
        let rest = found.without(&[callers.as_raw_fd()]);
        assert!(!rest.0.contains(&callers.as_raw_fd()));
    }
}
