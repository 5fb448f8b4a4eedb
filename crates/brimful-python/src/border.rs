//! The border between Python and Rust: every call that does work goes through [`call`].

use std::panic::{AssertUnwindSafe, catch_unwind};

use brimful::cards::UnknownCard;
use brimful::profiles::UnknownProfile;
use brimful::units::{BadSize, ImplausibleLimit};
use brimful_probe::PlatformUnsupported;
use pyo3::prelude::*;

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

/// The near miss, then where all the names are.
fn hints(close: &[&str], listed_by: &str) -> Vec<String> {
    let near = close.first().map(|name| format!("did you mean `{name}`?"));
    let listed = format!("`brimful.{listed_by}()` names all of them");
    near.into_iter().chain([listed]).collect()
}

impl From<UnknownProfile> for Failure {
    fn from(error: UnknownProfile) -> Failure {
        Failure::Input {
            message: error.to_string(),
            hints: hints(&error.close, "machine_names"),
        }
    }
}

impl From<UnknownCard> for Failure {
    fn from(error: UnknownCard) -> Failure {
        Failure::Input {
            message: error.to_string(),
            hints: hints(&error.close, "card_names"),
        }
    }
}

impl From<BadSize> for Failure {
    fn from(error: BadSize) -> Failure {
        Failure::Input {
            message: error.to_string(),
            hints: Vec::new(),
        }
    }
}

impl From<ImplausibleLimit> for Failure {
    fn from(error: ImplausibleLimit) -> Failure {
        Failure::Input {
            message: error.to_string(),
            hints: vec!["write the unit, as in \"16GiB\"".into()],
        }
    }
}

impl From<PlatformUnsupported> for Failure {
    fn from(error: PlatformUnsupported) -> Failure {
        Failure::Machine {
            message: error.to_string(),
            hints: vec![error.hint().into()],
        }
    }
}
