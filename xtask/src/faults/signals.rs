//! Signals to processes of a fault.

use rustix::process::{Pid, Signal as Number, kill_process};

/// Sends a signal. Nothing is said about a process that is gone already.
pub(crate) fn send(pid: u32, number: Number) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        let _ = kill_process(pid, number);
    }
}
