//! Objects that are made once.

use std::sync::OnceLock;

use pyo3::prelude::*;
use pyo3::types::PyString;

/// An object that is made by whoever needs it first.
///
/// `PyOnceLock` and `intern!` let go of Python's lock for a moment the first time. A daemon thread that takes it again
/// while Python ends is unwound (before 3.14), which Rust above it does not survive. Here two threads may both make one;
/// that of the first is kept.
#[derive(Debug)]
pub(crate) struct Made<T>(OnceLock<Py<T>>);

impl<T> Made<T> {
    pub(crate) const fn new() -> Made<T> {
        Made(OnceLock::new())
    }

    pub(crate) fn get_or<'py>(
        &self,
        py: Python<'py>,
        make: impl FnOnce() -> PyResult<Bound<'py, T>>,
    ) -> PyResult<&Bound<'py, T>> {
        if let Some(made) = self.0.get() {
            return Ok(made.bind(py));
        }
        let new = make()?.unbind();
        Ok(self.0.get_or_init(|| new).bind(py))
    }
}

impl Made<PyString> {
    /// A name by which attributes are looked up.
    pub(crate) fn name<'py>(&self, py: Python<'py>, text: &str) -> &Bound<'py, PyString> {
        let name = self.0.get_or_init(|| PyString::intern(py, text).unbind());
        name.bind(py)
    }
}

/// A name by which attributes are looked up, made once.
macro_rules! name {
    ($py:expr, $text:literal) => {{
        static NAME: $crate::share::made::Made<pyo3::types::PyString> =
            $crate::share::made::Made::new();
        NAME.name($py, $text)
    }};
}

pub(crate) use name;
