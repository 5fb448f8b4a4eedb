//! Signals to brimful, as a stream of events.

use std::io;
use std::sync::mpsc::Sender;

use brimful_probe::Processes;
use signal_hook::consts::signal::{
    SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH,
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
    let ignored = ignored_now();
    let wanted = PASSED_ON
        .into_iter()
        .filter(|signal| ignored & bit(*signal) == 0)
        .chain([SIGCHLD, SIGCONT, SIGWINCH]);
    let mut signals = SignalsInfo::<WithRawSiginfo>::new(wanted)?;
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

fn ignored_now() -> u64 {
    Processes::live()
        .ignored_signals(std::process::id())
        .unwrap_or(0)
}

fn bit(signal: i32) -> u64 {
    u32::try_from(signal)
        .ok()
        .and_then(|signal| 1_u64.checked_shl(signal.wrapping_sub(1)))
        .unwrap_or(0)
}
