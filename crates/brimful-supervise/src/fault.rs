//! Faults on purpose, for the test of the start: in builds with debug assertions only.
//!
//! `BRIMFUL_FAULT=streams:emfile` makes one step fail once, `streams+:emfile` that step and all later ones,
//! `keeper:emfile;launch:kill` one after the other.

/// The variable that names the faults. A release build does not read it.
pub const VARIABLE: &str = brimful::env_vars::BRIMFUL_FAULT;

/// The variable that names a directory, in which each fault that happens leaves a file of the step's name.
pub const MARKS: &str = brimful::env_vars::BRIMFUL_FAULT_MARKS;

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
pub(crate) fn inject(_step: crate::start_step::StartStep) -> std::io::Result<()> {
    Ok(())
}

#[cfg(debug_assertions)]
mod injected {
    use std::alloc::Layout;
    use std::io;
    use std::path::Path;
    use std::sync::atomic::{AtomicU32, Ordering};

    use rustix::process::{Signal, getpid, kill_process};

    use crate::fault::{MARKS, VARIABLE};
    use crate::start_step::StartStep;

    /// Faults whose step was reached, by their places in the variable.
    static REACHED: AtomicU32 = AtomicU32::new(0);

    /// Fails here, if the variable says so.
    pub(crate) fn inject(step: StartStep) -> io::Result<()> {
        let wanted = std::env::var(VARIABLE).unwrap_or_default();
        for (idx, fault) in wanted.split(';').enumerate().take(32) {
            let Some((name, kind)) = fault.split_once(':') else {
                continue;
            };
            let is_here = name.trim_end_matches('+') == step.name();
            let bit = u32::from(is_here) << idx;
            let before = REACHED.fetch_or(bit, Ordering::Relaxed) >> idx & 1 == 1;
            let is_due = if name.ends_with('+') {
                is_here || before
            } else {
                is_here && !before
            };
            if is_due {
                mark(step);
                fail(kind)?;
            }
        }
        Ok(())
    }

    fn mark(step: StartStep) {
        if let Some(directory) = std::env::var_os(MARKS) {
            let _ = brimful_private::write_new(&Path::new(&directory).join(step.name()), b"");
        }
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
