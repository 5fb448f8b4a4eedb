//! `SharedList`: a view of a list in a shared copy.

use std::sync::Arc;

use brimful::units::Bytes;
use brimful_share::Item;
use pyo3::basic::CompareOp;
use pyo3::exceptions::{PyAttributeError, PyIndexError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyInt, PyList, PySlice, PyString};

use crate::share::decode::{to_plain, to_python};
use crate::share::held::{Held, damaged};
use crate::share::views::{SharedList, Slice};

/// How many items `repr` shows, and how much of each.
const SHOWN_ITEMS: usize = 3;
const SHOWN_CHARS: usize = 40;

/// How many items are asked of memory at once: their texts fit into the caches.
const AT_ONCE: usize = 64;

impl SharedList {
    #[inline]
    fn raw(&self, py: Python<'_>, idx: usize) -> PyResult<Item<'_>> {
        self.list
            .get(self.held.bytes(), self.slice.idx(idx))
            .map_err(|error| damaged(py, error))
    }

    #[inline]
    fn item<'py>(&self, py: Python<'py>, idx: usize) -> PyResult<Bound<'py, PyAny>> {
        self.held.read(py, || {
            let item = self.raw(py, idx)?;
            prefetch(item);
            to_python(py, &self.held, item, 0)
        })
    }

    #[inline]
    fn item_at<'py>(&self, py: Python<'py>, idx: isize) -> PyResult<Bound<'py, PyAny>> {
        self.item(py, self.place(idx)?)
    }

    /// An index as Python counts: negative ones from the end.
    #[inline]
    fn place(&self, idx: isize) -> PyResult<usize> {
        let len = self.slice.len;
        let place = if idx < 0 {
            idx.wrapping_add(len.cast_signed())
        } else {
            idx
        };
        let place = place.cast_unsigned();
        if place >= len {
            return Err(PyIndexError::new_err("list index out of range"));
        }
        Ok(place)
    }

    fn view(&self, slice: Slice) -> SharedList {
        SharedList::new(Arc::clone(&self.held), self.at, self.list, slice)
    }

    /// Where `value` is first, in that range.
    fn find(
        &self,
        value: &Bound<'_, PyAny>,
        range: std::ops::Range<usize>,
    ) -> PyResult<Option<usize>> {
        let py = value.py();
        let needle = Needle::of(value);
        self.held.read(py, || {
            for idx in range {
                let item = self.raw(py, idx)?;
                let is_same = match needle.same(item) {
                    Some(answer) => answer,
                    None => to_python(py, &self.held, item, 0)?.eq(value)?,
                };
                if is_same {
                    return Ok(Some(idx));
                }
            }
            Ok(None)
        })
    }
}

/// What is looked for, such that most items need not become objects.
enum Needle<'a> {
    Text(&'a [u8]),
    Number(i64),
    Other,
}

impl<'a> Needle<'a> {
    fn of(value: &'a Bound<'_, PyAny>) -> Needle<'a> {
        if let Ok(text) = value.cast_exact::<PyString>() {
            return text
                .to_str()
                .map_or(Needle::Other, |text| Needle::Text(text.as_bytes()));
        }
        if value.is_exact_instance_of::<PyInt>() {
            return value.extract().map_or(Needle::Other, Needle::Number);
        }
        Needle::Other
    }

    fn same(&self, item: Item<'_>) -> Option<bool> {
        match (self, item) {
            (Needle::Text(text), Item::Str(other)) => Some(*text == other),
            (Needle::Number(number), Item::Int(other)) => Some(*number == other),
            (Needle::Text(_), Item::Int(_) | Item::Float(_) | Item::None | Item::Bool(_))
            | (Needle::Number(_), Item::Str(_) | Item::None | Item::Bytes(_)) => Some(false),
            _ => None,
        }
    }
}

#[pymethods]
impl SharedList {
    fn __len__(&self) -> usize {
        self.slice.len
    }

    fn __getitem__<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = key.py();
        if key.is_exact_instance_of::<PyInt>() {
            return match key.extract::<isize>() {
                Ok(idx) => self.item_at(py, idx),
                Err(_) => Err(PyIndexError::new_err("list index out of range")),
            };
        }
        if let Ok(slice) = key.cast::<PySlice>() {
            let view = self.view(self.slice.sliced(slice)?);
            return Ok(Bound::new(py, view)?.into_any());
        }
        match key.extract::<isize>() {
            Ok(idx) => self.item_at(py, idx),
            Err(_) => Err(PyTypeError::new_err(format!(
                "list indices must be integers or slices, not {}",
                key.get_type().name()?
            ))),
        }
    }

    /// Many items at once, as the workers of a DataLoader ask for them.
    fn __getitems__<'py>(&self, indices: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let py = indices.py();
        let mut places = Vec::with_capacity(indices.len().unwrap_or_default());
        for idx in indices.try_iter()? {
            places.push(self.place(idx?.extract()?)?);
        }
        let mut made = Vec::with_capacity(places.len());
        let mut items = Vec::with_capacity(AT_ONCE);
        self.held.read(py, || {
            for some in places.chunks(AT_ONCE) {
                items.clear();
                for place in some {
                    let item = self.raw(py, *place)?;
                    prefetch(item);
                    items.push(item);
                }
                for item in &items {
                    made.push(to_python(py, &self.held, *item, 0)?);
                }
            }
            Ok(())
        })?;
        Ok(made)
    }

    fn __iter__(slf: Bound<'_, Self>) -> SharedListIterator {
        SharedListIterator {
            list: slf.unbind(),
            next: 0,
        }
    }

    fn __reversed__(&self, py: Python<'_>) -> PyResult<SharedListIterator> {
        let len = self.slice.len;
        let reversed = Slice {
            start: self.slice.idx(len.saturating_sub(1)).cast_signed(),
            step: self.slice.step.wrapping_neg(),
            len,
        };
        SharedListIterator::over(py, self.view(reversed))
    }

    fn __contains__(&self, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self.find(value, 0..self.slice.len)?.is_some())
    }

    /// The first place of `value`; ValueError if it is not there.
    #[pyo3(signature = (value, start = 0, stop = None))]
    fn index(
        &self,
        value: &Bound<'_, PyAny>,
        start: isize,
        stop: Option<isize>,
    ) -> PyResult<usize> {
        let len = self.slice.len;
        let clamped = |idx: isize| {
            let from_end = idx.saturating_add(len.cast_signed()).max(0);
            let idx = if idx < 0 { from_end } else { idx };
            idx.cast_unsigned().min(len)
        };
        let range = clamped(start)..stop.map_or(len, clamped);
        self.find(value, range)?
            .ok_or_else(|| PyValueError::new_err("the value is not in the list"))
    }

    /// How often `value` is in it.
    fn count(&self, value: &Bound<'_, PyAny>) -> PyResult<usize> {
        let (mut count, mut from) = (0, 0);
        while let Some(idx) = self.find(value, from..self.slice.len)? {
            count += 1;
            from = idx + 1;
        }
        Ok(count)
    }

    fn __richcmp__<'py>(
        &self,
        other: &Bound<'py, PyAny>,
        op: CompareOp,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = other.py();
        let is_list = other.is_instance_of::<PyList>() || other.is_instance_of::<SharedList>();
        if !is_list || !matches!(op, CompareOp::Eq | CompareOp::Ne) {
            return Ok(py.NotImplemented().into_bound(py));
        }
        let mut is_same = other.len()? == self.slice.len;
        let mut idx = 0;
        while is_same && idx < self.slice.len {
            is_same = self.item(py, idx)?.eq(other.get_item(idx)?)?;
            idx += 1;
        }
        let answer = is_same == matches!(op, CompareOp::Eq);
        Ok(answer.into_pyobject(py)?.to_owned().into_any())
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let len = self.slice.len;
        let mut shown = Vec::new();
        for idx in 0..len.min(SHOWN_ITEMS) {
            shown.push(shortened(&self.item(py, idx)?)?);
        }
        if len > SHOWN_ITEMS {
            shown.push("…".to_owned());
        }
        let noun = if len == 1 { "item" } else { "items" };
        let size = Bytes(self.nbytes());
        let shown = shown.join(", ");
        Ok(format!("<SharedList of {len} {noun} in {size}: [{shown}]>"))
    }

    /// A plain list of plain values, all the way down; arrays stay as they are.
    fn tolist<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        self.held.read(py, || {
            (0..self.slice.len)
                .map(|idx| to_plain(py, &self.held, self.raw(py, idx)?, 0))
                .collect()
        })
    }

    /// Bytes of the whole shared copy that this is a part of.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.held.bytes().len() as u64
    }

    /// Lists of numbers become NumPy arrays without a copy; others have no such attribute.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let encoding = self.list.encoding();
        let (Some(number_type), true) = (encoding.number_type(), self.slice.len > 0) else {
            return Err(PyAttributeError::new_err("__array_interface__"));
        };
        let width = encoding.width();
        let first = self.list.table() + self.slice.idx(0) * width;
        let address = self.held.bytes().as_ptr().addr() + first;
        let stride = self.slice.step.wrapping_mul(width.cast_signed());
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("typestr", number_type)?;
        interface.set_item("shape", (self.slice.len,))?;
        interface.set_item("strides", (stride,))?;
        interface.set_item("data", (address, true))?;
        Ok(interface.into_any())
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let Slice { start, step, len } = self.slice;
        reduced(py, &self.held, "list", self.at, (start, step, len))
    }
}

/// Walks through a `SharedList`.
#[pyclass(module = "brimful")]
pub(crate) struct SharedListIterator {
    list: Py<SharedList>,
    next: usize,
}

impl SharedListIterator {
    pub(crate) fn over(py: Python<'_>, list: SharedList) -> PyResult<SharedListIterator> {
        let list = Py::new(py, list)?;
        Ok(SharedListIterator { list, next: 0 })
    }
}

#[pymethods]
impl SharedListIterator {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let list = self.list.get();
        if self.next >= list.slice.len {
            return Ok(None);
        }
        let item = list.item(py, self.next)?;
        self.next += 1;
        Ok(Some(item))
    }

    fn __length_hint__(&self) -> usize {
        self.list.get().slice.len.saturating_sub(self.next)
    }
}

/// Asks for the memory of a text or bytes: those that are read in random order are in no cache, and waiting for them one
/// after the other is most of the time.
#[inline]
fn prefetch(item: Item<'_>) {
    const LINE: usize = 64;
    /// The processor notices longer runs by itself.
    const MAX: usize = 1024;
    let (Item::Str(text) | Item::Bytes(text)) = item else {
        return;
    };
    #[cfg(target_arch = "x86_64")]
    for line in text[..text.len().min(MAX)].chunks(LINE) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        #[expect(unsafe_code, reason = "an instruction without a safe name")]
        // SAFETY: a prefetch reads nothing and faults nowhere; every x86-64 processor has it.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (text, LINE, MAX);
}

/// What pickle takes: a function and how to call it.
pub(crate) fn reduced<'py>(
    py: Python<'py>,
    held: &Held,
    kind: &str,
    at: u64,
    slice: (isize, isize, usize),
) -> PyResult<Bound<'py, PyAny>> {
    let handle = held.handle(py)?;
    let open = py
        .import("brimful._native")?
        .getattr("shared_from_handle")?;
    let id = PyBytes::new(py, &handle.id);
    let (start, step, len) = slice;
    let state = (handle.pid, handle.fd, id, kind, at, start, step, len);
    Ok((open, state).into_pyobject(py)?.into_any())
}

/// One item as `repr` shows it.
pub(crate) fn shortened(item: &Bound<'_, PyAny>) -> PyResult<String> {
    // A long text is cut before it is shown, not after.
    let text = match item.cast::<PyString>() {
        Ok(text) if text.len()? > SHOWN_CHARS => {
            let slice = PySlice::new(item.py(), 0, SHOWN_CHARS.cast_signed(), 1);
            return Ok(format!("{}…", item.get_item(slice)?.repr()?));
        }
        _ => item.repr()?,
    };
    let text = text.to_string_lossy();
    if text.chars().count() <= 2 * SHOWN_CHARS {
        return Ok(text.into_owned());
    }
    Ok(text.chars().take(2 * SHOWN_CHARS).chain(['…']).collect())
}
