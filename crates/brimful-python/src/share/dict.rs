//! `SharedDict`: a view of a dict in a shared copy.

use std::sync::Arc;

use brimful::units::Bytes;
use pyo3::basic::CompareOp;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::share::decode::{plain_dict, to_python};
use crate::share::held::damaged;
use crate::share::key::key_of;
use crate::share::list::{SharedListIterator, reduced, shortened};
use crate::share::made::name;
use crate::share::views::{SharedDict, SharedList, Slice};

const SHOWN_ITEMS: usize = 3;

impl SharedDict {
    pub(crate) fn plain<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let plain = || plain_dict(py, &self.held, &self.dict, 0);
        self.held.read(py, plain)
    }

    fn find(&self, key: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
        let py = key.py();
        match key_of(key)? {
            Some(key) => self.held.read(py, || {
                self.dict
                    .find(self.held.bytes(), self.held.id(), &key)
                    .map_err(|error| damaged(py, error))
            }),
            None => Ok(None),
        }
    }

    fn value<'py>(&self, py: Python<'py>, idx: usize) -> PyResult<Bound<'py, PyAny>> {
        self.held.read(py, || {
            let item = self.dict.values().get(self.held.bytes(), idx);
            to_python(py, &self.held, item.map_err(|error| damaged(py, error))?, 0)
        })
    }

    fn key_at<'py>(&self, py: Python<'py>, idx: usize) -> PyResult<Bound<'py, PyAny>> {
        self.held.read(py, || {
            let item = self.dict.keys().get(self.held.bytes(), idx);
            to_python(py, &self.held, item.map_err(|error| damaged(py, error))?, 0)
        })
    }
}

#[pymethods]
impl SharedDict {
    fn __len__(&self) -> usize {
        self.dict.keys().len()
    }

    fn __getitem__<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        match self.find(key)? {
            Some(idx) => self.value(key.py(), idx),
            None => Err(PyKeyError::new_err((key.clone().unbind(),))),
        }
    }

    /// The value of a key, or `default` if it is not there.
    #[pyo3(signature = (key, default = None))]
    fn get<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.find(key)? {
            Some(idx) => self.value(key.py(), idx).map(Some),
            None => Ok(default),
        }
    }

    fn __contains__(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self.find(key)?.is_some())
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<SharedListIterator> {
        let list = self.dict.keys();
        // Only walked through: what it is a part of does not matter.
        let keys = SharedList::new(Arc::clone(&self.held), 0, list, Slice::whole(list.len()));
        SharedListIterator::over(py, keys)
    }

    /// The keys, in the order in which they came.
    fn keys<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        view(slf, name!(slf.py(), "SharedKeys"))
    }

    /// The values, in the order in which their keys came.
    fn values<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        view(slf, name!(slf.py(), "SharedValues"))
    }

    /// Pairs of keys and values, in the order in which they came.
    fn items<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        view(slf, name!(slf.py(), "SharedItems"))
    }

    /// Walks through the values.
    fn _iterate_values(&self, py: Python<'_>) -> PyResult<SharedListIterator> {
        let list = self.dict.values();
        let values = SharedList::new(Arc::clone(&self.held), 0, list, Slice::whole(list.len()));
        SharedListIterator::over(py, values)
    }

    fn __richcmp__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
        op: CompareOp,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = other.py();
        let is_dict = other.is_instance_of::<PyDict>() || other.is_instance_of::<SharedDict>();
        if !is_dict || !matches!(op, CompareOp::Eq | CompareOp::Ne) {
            return Ok(py.NotImplemented().into_bound(py));
        }
        let this = slf.get();
        let len = this.dict.keys().len();
        let mut is_same = other.len()? == len;
        let mut idx = 0;
        while is_same && idx < len {
            let key = this.key_at(py, idx)?;
            is_same = other.contains(&key)? && this.value(py, idx)?.eq(other.get_item(key)?)?;
            idx += 1;
        }
        let answer = is_same == matches!(op, CompareOp::Eq);
        Ok(answer.into_pyobject(py)?.to_owned().into_any())
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let len = self.dict.keys().len();
        let mut shown = Vec::new();
        for idx in 0..len.min(SHOWN_ITEMS) {
            let key = shortened(&self.key_at(py, idx)?)?;
            let value = shortened(&self.value(py, idx)?)?;
            shown.push(format!("{key}: {value}"));
        }
        if len > SHOWN_ITEMS {
            shown.push("…".to_owned());
        }
        let noun = if len == 1 { "key" } else { "keys" };
        let size = Bytes(self.nbytes());
        let shown = shown.join(", ");
        Ok(format!(
            "<SharedDict of {len} {noun} in {size}: {{{shown}}}>"
        ))
    }

    /// A plain dict of plain values, all the way down; arrays stay as they are.
    fn todict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.plain(py)?.into_any())
    }

    /// Bytes of the whole shared copy that this is a part of.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.held.bytes().len() as u64
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        reduced(py, &self.held, "dict", self.at, (0, 1, 0))
    }
}

/// One of the views of keys, values and items that are written in Python, made without its `__init__`: see `decode`.
fn view<'py>(
    dict: &Bound<'py, SharedDict>,
    class: &Bound<'py, PyString>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = dict.py();
    let class = py.import(name!(py, "brimful._share"))?.getattr(class)?;
    let view = class.call_method1(name!(py, "__new__"), (&class,))?;
    view.setattr(name!(py, "_mapping"), dict)?;
    Ok(view)
}
