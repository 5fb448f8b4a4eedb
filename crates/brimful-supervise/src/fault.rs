//! Faults on purpose, for the test of the start: in builds with debug assertions only.
//!
//! `BRIMFUL_FAULT=streams:emfile` makes one step fail once, `streams+:emfile` that step and all later ones.

/// The variable that names the fault. A release build does not read it.
pub const VARIABLE: &str = "BRIMFUL_FAULT";

/// Every kind of fault. `noproc` is what reading a missing /proc returns, `readonly` what an unwritable directory does;
/// `kill` is a SIGKILL, `panic` a bug of ours, `abort` an allocation that fails.
pub const KINDS: [&str; 10] = [
    "emfile", "eagain", "efbig", "enospc", "enomem", "noproc", "readonly", "kill", "panic", "abort",
];

#[cfg(debug_assertions)]
pub(crate) use injected::inject;

#[cfg(not(debug_assertions))]
#[expect(
    clippy::unnecessary_wraps,
    reason = "the same signature as in a debug build"
)]
pub(crate) fn inject(_step: crate::steps::StartStep) -> std::io::Result<()> {
    Ok(())
}

#[cfg(debug_assertions)]
mod injected {
    use std::alloc::Layout;
    use std::io;
    use std::sync::atomic::{AtomicBool, Ordering};

    use rustix::process::{Signal, getpid, kill_process};

    use crate::fault::VARIABLE;
    use crate::steps::StartStep;

    static REACHED: AtomicBool = AtomicBool::new(false);

    /// Fails here, if the variable says so.
    pub(crate) fn inject(step: StartStep) -> io::Result<()> {
        let Ok(wanted) = std::env::var(VARIABLE) else {
            return Ok(());
        };
        let Some((name, kind)) = wanted.split_once(':') else {
            return Ok(());
        };
        let lasting = name.ends_with('+');
        let is_here = name.trim_end_matches('+') == step.name();
        let before = REACHED.fetch_or(is_here, Ordering::Relaxed);
        let is_due = if lasting {
            is_here || before
        } else {
            is_here && !before
        };
        if is_due { fail(kind) } else { Ok(()) }
    }

    #[expect(clippy::panic, reason = "a panic is what was asked for")]
    fn fail(kind: &str) -> io::Result<()> {
        let errno = match kind {
            "emfile" => libc::EMFILE,
            "eagain" => libc::EAGAIN,
            "efbig" => {
                // As the kernel does: the signal first, which ends a process that does not expect it.
                let _ = kill_process(getpid(), Signal::XFSZ);
                libc::EFBIG
            }
            "enospc" => libc::ENOSPC,
            "enomem" => libc::ENOMEM,
            "noproc" => libc::ENOENT,
            "readonly" => libc::EROFS,
            "kill" => {
                let _ = kill_process(getpid(), Signal::KILL);
                return Ok(());
            }
            "panic" => panic!("injected"),
            "abort" => std::alloc::handle_alloc_error(Layout::new::<u64>()),
            _ => return Ok(()),
        };
        Err(io::Error::from_raw_os_error(errno))
    }
}
