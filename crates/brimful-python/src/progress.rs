//! Progress of a workflow, passed to a Python callback.

use std::ops::ControlFlow;

use brimful_workflow::Progress;
use pyo3::prelude::*;

/// Python's lock is taken for every line, but only for one in this many idle events.
const IDLE_EVENTS_PER_CHECK: u32 = 16;

/// Calls the callback with lines and notices Ctrl-C or a notebook's "interrupt".
pub(crate) struct Callback {
    function: Option<Py<PyAny>>,
    /// The current rehearsal of a plan.
    label: Option<String>,
    n_events: u32,
    /// What the callback or the interrupt raised.
    raised: Option<PyErr>,
}

impl Callback {
    pub(crate) fn new(function: Option<Py<PyAny>>) -> Callback {
        Callback {
            function,
            label: None,
            n_events: 0,
            raised: None,
        }
    }

    pub(crate) fn report(&mut self, progress: Progress<'_>) -> ControlFlow<()> {
        self.n_events = self.n_events.wrapping_add(1);
        let line = match progress {
            Progress::Rehearsal { label } => Some(self.label.insert(label).clone()),
            Progress::Notice(note) => Some(note),
            Progress::Line(line) => Some(match &self.label {
                Some(label) => format!("{label}: {line}"),
                None => line,
            }),
            _ => None,
        };
        if line.is_none() && !self.n_events.is_multiple_of(IDLE_EVENTS_PER_CHECK) {
            return ControlFlow::Continue(());
        }
        let called = Python::attach(|py| {
            if let (Some(function), Some(line)) = (&self.function, line) {
                function.call1(py, (line,))?;
            }
            py.check_signals()
        });
        match called {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.raised = Some(error);
                ControlFlow::Break(())
            }
        }
    }

    /// The exception that ended the work, which goes before the work's own error.
    pub(crate) fn raised(self) -> Option<PyErr> {
        self.raised
    }
}
