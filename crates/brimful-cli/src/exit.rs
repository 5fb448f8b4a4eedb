//! Exit codes.
//!
//! brimful's own codes avoid those of training scripts: 1 (an exception), 2 (invalid arguments) and 128 + N (a signal).

use std::process::ExitCode;

use brimful::user_error::ErrorKind;

/// How a command ended. The reference page is generated from [`ExitStatus::ALL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// The command succeeded.
    Success,
    /// A bug in brimful.
    InternalError,
    /// An argument, a name or a file is invalid.
    BadInput,
    /// The environment prevents it: an unsupported platform, a missing permission, a full disk.
    EnvironmentError,
    /// A problem that is at least as severe as `--fail-on`, or a GPU that is in use.
    ProblemFound,
    /// The command or the job fits none of the GPUs.
    DoesNotFit,
    /// `brimful run`: the exit code of the command.
    Passed(u8),
    /// `brimful run`: signal N killed the command, so it ends brimful too. A shell shows 128 + N.
    Signaled(u8),
}

impl ExitStatus {
    /// brimful's own statuses, ordered by code.
    pub const ALL: [ExitStatus; 6] = [
        ExitStatus::Success,
        ExitStatus::InternalError,
        ExitStatus::BadInput,
        ExitStatus::EnvironmentError,
        ExitStatus::ProblemFound,
        ExitStatus::DoesNotFit,
    ];

    /// The status of a command that answers whether something fits.
    pub(crate) const fn of_fit(fits: bool) -> ExitStatus {
        if fits {
            ExitStatus::Success
        } else {
            ExitStatus::DoesNotFit
        }
    }

    pub const fn code(self) -> u8 {
        match self {
            ExitStatus::Success => 0,
            ExitStatus::InternalError => 70,
            ExitStatus::BadInput => 96,
            ExitStatus::EnvironmentError => 97,
            ExitStatus::ProblemFound => 98,
            ExitStatus::DoesNotFit => 99,
            ExitStatus::Passed(code) => code,
            ExitStatus::Signaled(signal) => 128 | signal,
        }
    }

    /// Its meaning, for the reference page and the manual.
    pub const fn meaning(self) -> &'static str {
        match self {
            ExitStatus::Success => "The command succeeded.",
            ExitStatus::InternalError => {
                "Internal error: a bug in brimful. The message says what to report."
            }
            ExitStatus::BadInput => {
                "Invalid input: an argument, a name or a file. The message says how to fix it."
            }
            ExitStatus::EnvironmentError => {
                "Environment error: an unsupported platform, a missing permission or a full disk."
            }
            ExitStatus::ProblemFound => {
                "`brimful probe --fail-on` found a problem of at least this severity, or the GPU that `brimful verify` was to measure is in use."
            }
            ExitStatus::DoesNotFit => {
                "Nothing fits: the command fits none of the GPUs (`predict`, `compare`, `replay`), its memory ran out (`verify`), or no settings of the job fit (`plan`, `compare`, `run`)."
            }
            ExitStatus::Passed(_) => "`brimful run`: the exit code of the command.",
            ExitStatus::Signaled(_) => "`brimful run`: the signal that killed the command.",
        }
    }
}

impl ExitStatus {
    /// Ends this process in this way. Returns where an exit code says it all.
    pub fn end(self) -> ExitCode {
        if let ExitStatus::Signaled(signal) = self {
            brimful_supervise::end_by_signal(signal.into());
        }
        ExitCode::from(self.code())
    }
}

impl From<ErrorKind> for ExitStatus {
    fn from(kind: ErrorKind) -> ExitStatus {
        match kind {
            ErrorKind::Input => ExitStatus::BadInput,
            ErrorKind::Environment => ExitStatus::EnvironmentError,
            ErrorKind::Bug => ExitStatus::InternalError,
            ErrorKind::Outcome => ExitStatus::DoesNotFit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_codes_differ_from_those_of_training_scripts() {
        for status in ExitStatus::ALL {
            let code = status.code();
            assert!(code == 0 || (3..128).contains(&code), "{status:?}");
        }
    }

    #[test]
    fn a_signal_has_the_code_that_a_shell_shows() {
        assert_eq!(ExitStatus::Signaled(2).code(), 130);
        assert_eq!(ExitStatus::Signaled(9).code(), 137);
        assert_eq!(ExitStatus::Signaled(64).code(), 192);
    }
}
