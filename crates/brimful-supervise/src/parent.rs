//! A run that ends with the process that started brimful.

use rustix::process::{Pid, Signal};

/// Makes the kernel send SIGTERM to brimful when the process that started it ends; brimful passes it on.
///
/// `parent` is that process, as it was when brimful was started: it may have ended before the kernel was asked.
pub fn stop_with_parent(parent: u32) {
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::TERM));
    let now = rustix::process::getppid().map(Pid::as_raw_nonzero);
    if now.is_none_or(|now| u32::try_from(now.get()) != Ok(parent)) {
        let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::TERM);
    }
}
