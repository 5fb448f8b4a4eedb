//! `SharedArray`: an array or a tensor that was shared itself.

use std::sync::Arc;

use brimful::units::Bytes;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::share::decode::array;
use crate::share::held::Held;
use crate::share::list::reduced;

/// A NumPy array or a torch tensor in shared memory.
///
/// Made by `brimful.share`. Indexing returns regular arrays or tensors without a copy; other attributes are those of
/// the array or tensor (`shape`, `dtype`, `mean`, …); `value` is the whole array. Pickling sends a handle, not the data.
#[pyclass(frozen, module = "brimful")]
pub(crate) struct SharedArray {
    held: Arc<Held>,
    at: u64,
    is_tensor: bool,
    inner: Py<PyAny>,
}

impl SharedArray {
    pub(crate) fn open(
        py: Python<'_>,
        held: &Arc<Held>,
        at: u64,
        is_tensor: bool,
    ) -> PyResult<SharedArray> {
        Ok(SharedArray {
            held: Arc::clone(held),
            at,
            is_tensor,
            inner: array(py, held, at, is_tensor)?.unbind(),
        })
    }

    pub(crate) fn inner<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.inner.bind(py).clone()
    }
}

#[pymethods]
impl SharedArray {
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.inner.bind(py).len()
    }

    fn __getitem__<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.inner.bind(key.py()).get_item(key)
    }

    /// Many items at once, as the workers of a DataLoader ask for them.
    fn __getitems__<'py>(&self, indices: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let inner = self.inner.bind(indices.py());
        indices
            .try_iter()?
            .map(|idx| inner.get_item(idx?))
            .collect()
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.inner.bind(py).try_iter()?.into_any())
    }

    fn __getattr__<'py>(&self, name: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let name = name.cast::<PyString>()?;
        self.inner.bind(name.py()).getattr(name)
    }

    /// The array or tensor itself, without a copy. Pickling it would send the data.
    #[getter]
    fn value<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.inner(py)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let inner = self.inner.bind(py);
        let shape: Vec<u64> = inner.getattr("shape")?.extract()?;
        let dtype = inner.getattr("dtype")?.str()?.to_string();
        let size = Bytes(self.held.bytes().len() as u64);
        Ok(format!("<SharedArray of {dtype} {shape:?} in {size}>"))
    }

    /// Bytes of the whole shared copy.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.held.bytes().len() as u64
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let kind = if self.is_tensor { "tensor" } else { "array" };
        reduced(py, &self.held, kind, self.at, (0, 1, 0))
    }
}
