//! What a script can tell from the exit code.
//!
//! brimful's own codes keep clear of a trainer's: 1 (an exception), 2 (bad arguments) and 128 + n (a signal).

use std::process::ExitCode;

use brimful::user_error::ErrorKind;

/// How a command ended. The reference page is made from [`ExitStatus::ALL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// The command did what was asked.
    Success,
    /// A bug in brimful. The training is not to blame.
    InternalError,
    /// The user's turn: an argument, a name or a file is not as expected.
    BadInput,
    /// The machine's turn: a platform, a permission or a disk stands in the way.
    MachineRefuses,
    /// A finding as bad as `--fail-on` asks for.
    FindingMade,
    /// The training does not fit any of the cards asked for.
    DoesNotFit,
    /// `brimful run`: the training's own exit code, or 128 and the signal that ended it.
    Passed(u8),
}

impl ExitStatus {
    /// Every status of our own, by code.
    pub const ALL: [ExitStatus; 6] = [
        ExitStatus::Success,
        ExitStatus::InternalError,
        ExitStatus::BadInput,
        ExitStatus::MachineRefuses,
        ExitStatus::FindingMade,
        ExitStatus::DoesNotFit,
    ];

    /// Whether what was asked about fits.
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
            ExitStatus::MachineRefuses => 97,
            ExitStatus::FindingMade => 98,
            ExitStatus::DoesNotFit => 99,
            ExitStatus::Passed(code) => code,
        }
    }

    /// What it means, for the reference page and the manual.
    pub const fn meaning(self) -> &'static str {
        match self {
            ExitStatus::Success => "The command did what was asked.",
            ExitStatus::InternalError => {
                "A bug in brimful; the message says what to send. Nothing is wrong with the training."
            }
            ExitStatus::BadInput => {
                "An argument, a name or a file is not as expected; the message says how to go on."
            }
            ExitStatus::MachineRefuses => {
                "The machine stands in the way: an unsupported platform, a missing permission, a full disk."
            }
            ExitStatus::FindingMade => {
                "`brimful probe --fail-on` made a finding as bad as asked for."
            }
            ExitStatus::DoesNotFit => {
                "`brimful predict` or `brimful replay`: the training fits none of the cards asked for."
            }
            ExitStatus::Passed(_) => "`brimful run`: the training's own exit code.",
        }
    }
}

impl From<ErrorKind> for ExitStatus {
    fn from(kind: ErrorKind) -> ExitStatus {
        match kind {
            ErrorKind::Input => ExitStatus::BadInput,
            ErrorKind::Environment => ExitStatus::MachineRefuses,
            ErrorKind::Bug => ExitStatus::InternalError,
            ErrorKind::Outcome => ExitStatus::DoesNotFit,
        }
    }
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> ExitCode {
        ExitCode::from(status.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_codes_cannot_be_mistaken_for_a_trainers() {
        for status in ExitStatus::ALL {
            let code = status.code();
            assert!(code == 0 || (3..128).contains(&code), "{status:?}");
        }
    }
}
