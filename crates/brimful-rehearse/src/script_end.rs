//! How a script's process ended.

use std::fmt;
use std::process::ExitStatus;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptEnd {
    Code(i32),
    Signal(i32),
}

/// What the kernel sends to a process whose native code went wrong, and what such code sends itself.
const CRASHES: [(i32, &str); 5] = [
    (4, "SIGILL"),
    (6, "SIGABRT"),
    (7, "SIGBUS"),
    (8, "SIGFPE"),
    (11, "SIGSEGV"),
];
const KILL: i32 = 9;
const MAX_SIGNAL: i32 = 64;

impl ScriptEnd {
    /// Nothing for a success.
    pub(crate) fn of(status: ExitStatus) -> Option<ScriptEnd> {
        #[cfg(unix)]
        if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
            return Some(ScriptEnd::Signal(signal));
        }
        status.code().and_then(ScriptEnd::of_code)
    }

    /// Shells, and the process that waits for those of several GPUs, report signal N as 128 + N. Nothing for a success.
    pub(crate) fn of_code(code: i32) -> Option<ScriptEnd> {
        match code {
            0 => None,
            _ if (129..=128 + MAX_SIGNAL).contains(&code) => Some(ScriptEnd::Signal(code - 128)),
            _ => Some(ScriptEnd::Code(code)),
        }
    }

    pub(crate) fn is_kill(self) -> bool {
        self == ScriptEnd::Signal(KILL)
    }

    /// Whether native code crashed.
    pub(crate) fn is_crash(self) -> bool {
        matches!(self, ScriptEnd::Signal(signal) if CRASHES.iter().any(|(crash, _)| *crash == signal))
    }
}

impl fmt::Display for ScriptEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            ScriptEnd::Code(code) => write!(f, "exit code {code}"),
            ScriptEnd::Signal(KILL) => write!(f, "signal {KILL} (SIGKILL)"),
            ScriptEnd::Signal(signal) => match CRASHES.iter().find(|(crash, _)| *crash == signal) {
                Some((_, name)) => write!(f, "signal {signal} ({name}), a crash in native code"),
                None => write!(f, "signal {signal}"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_named_whoever_reports_it() {
        let crash = "signal 11 (SIGSEGV), a crash in native code";
        let shown = |code| ScriptEnd::of_code(code).map(|end| end.to_string());
        assert_eq!(shown(139).as_deref(), Some(crash));
        assert_eq!(shown(137).as_deref(), Some("signal 9 (SIGKILL)"));
        assert_eq!(shown(1).as_deref(), Some("exit code 1"));
        assert_eq!(shown(255).as_deref(), Some("exit code 255"));
        assert_eq!(shown(0), None);
        #[cfg(unix)]
        {
            use std::os::unix::process::ExitStatusExt as _;
            assert_eq!(
                ScriptEnd::of(ExitStatus::from_raw(11)).map(|end| end.to_string()),
                Some(crash.to_owned())
            );
        }
    }
}
