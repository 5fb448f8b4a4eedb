//! Internal: a rank of a job on several nodes, before it becomes the training.
//!
//! torchrun starts this with two arguments: the order of the attempt, and the Python that torchrun runs on.

use std::error::Error;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::Path;

use crate::exit::ExitStatus;
use crate::output;

/// Returns only if the rank does not become the training.
pub(crate) fn rank(arguments: &[OsString]) -> ExitStatus {
    let [order, python] = arguments else {
        output::print_line("brimful: expected an order and a Python");
        return ExitStatus::BadInput;
    };
    let error = brimful_workflow::become_rank(Path::new(order), Path::new(python), |line| {
        output::print_line(&format!("brimful: {line}"));
    });
    let mut message = format!("brimful: this rank was not started: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        let _ = write!(message, ": {cause}");
        source = cause.source();
    }
    output::print_line(&message);
    ExitStatus::EnvironmentError
}
