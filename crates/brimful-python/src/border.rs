//! The border between Python and Rust: every call that does work goes through [`call`].

use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};

use brimful::units::BadSize;
use brimful::user_error::{ErrorKind, UserError};
use brimful_fleet::FleetError;
use brimful_workflow::{ExplainError, ReplayError, ReportError, WorkflowError};
use pyo3::prelude::*;

use crate::hints;

/// What goes wrong, as Python should see it: the kind, the message, and what to do next.
#[derive(Debug)]
pub(crate) enum Failure {
    Input {
        message: String,
        hints: Vec<String>,
    },
    Machine {
        message: String,
        hints: Vec<String>,
    },
    Internal {
        message: String,
    },
    /// An exception of Python's own, such as KeyboardInterrupt.
    Python(PyErr),
}

/// Runs `work` without holding Python's lock; an error or a panic in it becomes one of brimful's exceptions.
pub(crate) fn call<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, Failure> + Send,
) -> PyResult<T> {
    let outcome = py.detach(|| catch_unwind(AssertUnwindSafe(work)));
    outcome
        .unwrap_or_else(|_| {
            Err(Failure::Internal {
                message:
                    "brimful has a bug; please report it with the output of `brimful probe --json`"
                        .into(),
            })
        })
        .map_err(|failure| raise(py, failure))
}

/// The exception classes are Python's: only there can one class be an error of ours and a `ValueError`.
pub(crate) fn raise(py: Python<'_>, failure: Failure) -> PyErr {
    let (class, message, hints) = match failure {
        Failure::Input { message, hints } => ("InputError", message, hints),
        Failure::Machine { message, hints } => ("MachineError", message, hints),
        Failure::Internal { message } => ("InternalError", message, Vec::new()),
        Failure::Python(error) => return error,
    };
    let made = py
        .import("brimful._errors")
        .and_then(|module| module.getattr(class))
        .and_then(|class| class.call1((message, hints)));
    match made {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

impl Failure {
    pub(crate) fn internal(error: impl Error) -> Failure {
        Failure::Internal {
            message: error.to_string(),
        }
    }

    /// The exception for an error that carries its kind and its hints.
    fn of(error: &dyn UserError) -> Failure {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(source) = cause {
            message.push_str(": ");
            message.push_str(&source.to_string());
            cause = source.source();
        }
        if let Some(output) = error.script_output().map(str::trim_end)
            && !output.is_empty()
        {
            message.push_str("\n\nthe end of the script's output:\n");
            message.push_str(output);
        }
        let hints = error.hints().iter().map(hints::text).collect();
        match error.kind() {
            ErrorKind::Input | ErrorKind::Outcome => Failure::Input { message, hints },
            ErrorKind::Environment => Failure::Machine { message, hints },
            ErrorKind::Bug => Failure::Internal { message },
        }
    }
}

impl From<WorkflowError> for Failure {
    fn from(error: WorkflowError) -> Failure {
        Failure::of(&error)
    }
}

impl From<FleetError> for Failure {
    fn from(error: FleetError) -> Failure {
        Failure::of(&error)
    }
}

impl From<ExplainError> for Failure {
    fn from(error: ExplainError) -> Failure {
        Failure::of(&error)
    }
}

impl From<ReplayError> for Failure {
    fn from(error: ReplayError) -> Failure {
        Failure::of(&error)
    }
}

impl From<ReportError> for Failure {
    fn from(error: ReportError) -> Failure {
        Failure::of(&error)
    }
}

impl From<BadSize> for Failure {
    fn from(error: BadSize) -> Failure {
        Failure::of(&error)
    }
}
