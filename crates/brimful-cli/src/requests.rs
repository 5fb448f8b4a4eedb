//! Arguments as requests to the workflows.

use std::path::Path;
use std::time::Duration;

use brimful_isolate::{Isolation, Network};
use brimful_probe::{PythonHint, current_environment};
use brimful_supervise::StateDir;
use brimful_workflow::{
    IsolationOptions, JobRequest, Libraries, MachineRequest, RehearsalOptions, state_dir,
};

use crate::args::{
    IsolationChoice, JobArguments, NetworkChoice, ProtectionArguments, RehearsalArguments,
    StateArguments, VerifyArguments,
};

pub(crate) fn rehearsal(arguments: &RehearsalArguments) -> RehearsalOptions {
    RehearsalOptions {
        steps: arguments.steps,
        time_limit: Duration::from_secs(arguments.time_limit),
        libraries: Libraries::of_this_program(arguments.phantom.as_deref()),
        isolation: isolation(&arguments.protection),
    }
}

/// A rehearsal beside the GPU that is measured afterwards.
pub(crate) fn rehearsal_to_verify(arguments: &VerifyArguments) -> RehearsalOptions {
    RehearsalOptions {
        steps: arguments.steps,
        time_limit: Duration::from_secs(arguments.time_limit),
        libraries: Libraries::of_this_program(arguments.phantom.as_deref()),
        isolation: isolation(&arguments.protection),
    }
}

pub(crate) fn isolation(arguments: &ProtectionArguments) -> IsolationOptions {
    IsolationOptions {
        isolation: arguments.isolation.map(|choice| match choice {
            IsolationChoice::Overlay => Isolation::Overlay,
            IsolationChoice::Redirect => Isolation::Redirect,
        }),
        allow_writes: arguments.allow_writes,
        network: match arguments.network {
            NetworkChoice::Full => Network::Full,
            NetworkChoice::None => Network::None,
        },
        scratch: arguments.scratch,
    }
}

pub(crate) fn job(arguments: &JobArguments, overrides: &[String]) -> JobRequest {
    JobRequest {
        path: arguments.job.clone(),
        mode: arguments.mode.clone(),
        overrides: overrides.to_vec(),
    }
}

/// This machine, with the Python that a job of this directory would use.
pub(crate) fn machine() -> MachineRequest {
    MachineRequest {
        environment: current_environment(),
        python: python(None),
        ..MachineRequest::default()
    }
}

pub(crate) fn python(executable: Option<String>) -> PythonHint {
    let text = |path: &Path| path.to_str().map(Into::into);
    PythonHint {
        executable,
        program_directory: std::env::current_exe()
            .ok()
            .and_then(|program| text(program.parent()?)),
        working_directory: std::env::current_dir()
            .ok()
            .and_then(|directory| text(&directory)),
        ..PythonHint::default()
    }
}

pub(crate) fn state(arguments: &StateArguments) -> Option<StateDir> {
    state_dir(arguments.state_dir.clone())
}
