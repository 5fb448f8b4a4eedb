//! Dying of a signal, as the command did.
//!
//! A shell asks how its child ended. After Ctrl-C it leaves a loop only if the child died of SIGINT, and `make`, `xargs`
//! and `set -e` also distinguish a signal from an exit code. So where the command died of a signal, brimful does too.

use std::ptr::null_mut;

use libc::c_int;

/// Ends this process by a signal, without a core dump of its own. Only system calls that a signal handler may make.
///
/// Returns only where the kernel does not deliver the signal: to the first process of a container. That one ends with
/// 128 + N then, as the container's runtime would show it.
#[expect(
    unsafe_code,
    reason = "no safe wrapper restores the default action of any signal and raises it"
)]
pub fn end_by_signal(signal: c_int) {
    // SAFETY: all calls are allowed in a handler; they write to this stack and to the state of this process only.
    unsafe {
        // The command has written its core dump, if it writes any. Where dumps go to a program, the kernel asks it
        // whatever the limit is, but not about a process that is not dumpable.
        let none = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        libc::signal(signal, libc::SIG_DFL);
        let mut only: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut only);
        libc::sigaddset(&raw mut only, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const only, null_mut());
        libc::raise(signal);
    }
}
