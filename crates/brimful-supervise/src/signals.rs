//! Signals to brimful, as a stream of events.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;

use signal_hook::consts::signal::{
    SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH, SIGXFSZ,
};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::raw::WithRawSiginfo;

/// A signal that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrived {
    pub(crate) signal: i32,
    /// By the terminal (Ctrl-C), which sends it to the whole group, and not by somebody's `kill`.
    pub(crate) by_terminal: bool,
}

/// Those that are passed on to the training.
pub(crate) const PASSED_ON: [i32; 6] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2];

/// Whether a signal that is passed on asks for the end. The others ask for a checkpoint, as on a cluster.
pub(crate) fn ends(signal: i32) -> bool {
    PASSED_ON.contains(&signal) && !matches!(signal, SIGUSR1 | SIGUSR2)
}

/// Sends every signal of interest into `events` from now on. One that was ignored when brimful started stays ignored,
/// here and in the training, as under `nohup`.
pub(crate) fn listen(events: Sender<Arrived>) -> io::Result<()> {
    let wanted = PASSED_ON
        .into_iter()
        .filter(|signal| !is_ignored(*signal))
        .chain([SIGCHLD, SIGCONT, SIGWINCH]);
    let wanted: Vec<i32> = wanted.collect();
    let mut signals = SignalsInfo::<WithRawSiginfo>::new(&wanted)?;
    // The caller may have blocked some; the training has them blocked then, but brimful must hear of them.
    unblock(&wanted);
    std::thread::Builder::new()
        .name("signals".into())
        .stack_size(256 << 10)
        .spawn(move || {
            for info in &mut signals {
                let arrived = Arrived {
                    signal: info.si_signo,
                    by_terminal: info.si_code == libc::SI_KERNEL,
                };
                if events.send(arrived).is_err() {
                    return;
                }
            }
        })?;
    Ok(())
}

/// Writing beyond the limit of a file's size (`ulimit -f`) fails from now on, where it would have ended brimful. Not by
/// ignoring the signal, which the training would inherit.
pub(crate) fn survive_file_size_limit() {
    if !is_ignored(SIGXFSZ) {
        let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
    }
}

/// Lets these signals reach this thread, whatever the caller has blocked.
#[expect(
    unsafe_code,
    reason = "no safe wrapper of pthread_sigmask is among our dependencies"
)]
pub(crate) fn unblock(signals: &[i32]) {
    // SAFETY: the set is made by sigemptyset before it is used, lives on this stack, and the old one is not asked for.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            libc::sigaddset(&raw mut set, *signal);
        }
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
    }
}

/// Whether this process ignores a signal, as after `nohup`.
#[expect(
    unsafe_code,
    reason = "no safe wrapper reads the action of a signal, and /proc may be missing"
)]
pub(crate) fn is_ignored(signal: i32) -> bool {
    // SAFETY: no new action is given, and the old one is written to memory of its type that lives on this stack.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}
