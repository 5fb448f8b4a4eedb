//! What an error means to the person who sees it: its kind, and what to do next.
//!
//! Error types carry both themselves, so that exit codes and Python exceptions are mappings of [`ErrorKind`] and nobody
//! classifies an error a second time. A [`Hint`] is a value because its words depend on where it is shown: the command
//! line names `--time-limit`, Python names `time_limit=`.

use std::borrow::Cow;
use std::error::Error;

use brimful_allocsim::settings::SettingsError;
use brimful_allocsim::version::VersionError;

use crate::cards::UnknownCard;
use crate::job::JobError;
use crate::profiles::UnknownProfile;
use crate::record::RecordUnreadable;
use crate::units::{BadSize, ImplausibleLimit};

/// Who can do something about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The user: an argument, a name, a file or the script is not as expected.
    Input,
    /// Whoever runs the machine: a platform, a permission, a disk or an installation.
    Environment,
    /// We: a bug in brimful.
    Bug,
    /// Nobody made a mistake: the answer is no, for example because nothing fits.
    Outcome,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// The same words everywhere.
    Text(Cow<'static, str>),
    ListMachines,
    ListGpus,
    /// A recorded machine can be described on any platform.
    DescribeRecordedMachine,
    /// A memory limit without a unit.
    AddUnit,
    /// Write the command as it is typed without brimful.
    WriteCommand,
    CreateJobFile,
    /// Run a command without a job file.
    RunWithoutJob,
    InstallPhantom,
    RaiseTimeLimit,
    /// More time, or fewer steps.
    RaiseTimeLimitOrLowerSteps,
    /// More time, or less work before the first step.
    RaiseTimeLimitOrDoLess,
    /// The script uses more GPUs than the request names.
    NameMoreGpus,
    NameFewerGpus,
    /// No isolation is available.
    AllowIsolation,
    RaiseScratch,
    /// More scratch space, or fewer writes in the first steps.
    RaiseScratchOrWriteLess,
    /// Checkpoints could not be copied aside: isolate the script, or give more scratch space.
    IsolateOrRaiseScratch,
    /// No settings fit: let more knobs change.
    AllowMoreKnobs,
    StartAsWanted,
    /// Resume from a checkpoint that looks wrong.
    ForceResume,
    StartFromBeginning,
    ListRuns,
    /// No run was recorded yet.
    RecordRun,
    ChooseStateDir,
}

impl Hint {
    pub fn text(words: impl Into<Cow<'static, str>>) -> Hint {
        Hint::Text(words.into())
    }
}

/// An error that a person sees.
pub trait UserError: Error {
    fn kind(&self) -> ErrorKind;

    /// What to do next, most helpful first.
    fn hints(&self) -> Vec<Hint> {
        Vec::new()
    }

    /// The end of the script's own output, where it may show more.
    fn script_output(&self) -> Option<&str> {
        None
    }
}

impl UserError for UnknownProfile {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Input
    }

    fn hints(&self) -> Vec<Hint> {
        vec![Hint::ListMachines]
    }
}

impl UserError for UnknownCard {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Input
    }

    fn hints(&self) -> Vec<Hint> {
        vec![Hint::ListGpus]
    }
}

impl UserError for BadSize {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Input
    }
}

impl UserError for ImplausibleLimit {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Input
    }

    fn hints(&self) -> Vec<Hint> {
        vec![Hint::AddUnit]
    }
}

impl UserError for JobError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Input
    }

    fn hints(&self) -> Vec<Hint> {
        JobError::hints(self).into_iter().map(Hint::text).collect()
    }
}

impl UserError for RecordUnreadable {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Input
    }
}

impl UserError for SettingsError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Input
    }
}

impl UserError for VersionError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Input
    }
}
