//! From the copy to Python: plain values are made anew, lists and dicts are views, arrays are windows.
//!
//! Functions written in Python are called once, by who shares the data, and not for each item: they take longer than all
//! the rest, and Python before 3.14 may end a daemon thread inside of one by unwinding it, which Rust above it does not
//! survive.

use std::sync::Arc;

use brimful_share::{ArrayNode, Damaged, Dict, Item, List, MAX_DEPTH};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

use crate::share::held::{Held, arrays, damaged};
use crate::share::made::{Made, name};
use crate::share::views::{SharedDict, SharedList, Slice};

/// One value; `depth` is how many tuples it lies in.
#[inline]
pub(crate) fn to_python<'py>(
    py: Python<'py>,
    held: &Arc<Held>,
    item: Item<'_>,
    depth: usize,
) -> PyResult<Bound<'py, PyAny>> {
    match item {
        Item::Str(text) => Ok(PyString::from_bytes(py, text)?.into_any()),
        Item::Int(value) => Ok(PyInt::new(py, value).into_any()),
        Item::Float(value) => Ok(PyFloat::new(py, value).into_any()),
        Item::Bytes(value) => Ok(PyBytes::new(py, value).into_any()),
        Item::Bool(value) => Ok(PyBool::new(py, value).to_owned().into_any()),
        Item::None => Ok(py.None().into_bound(py)),
        item => compound(py, held, item, depth),
    }
}

fn compound<'py>(
    py: Python<'py>,
    held: &Arc<Held>,
    item: Item<'_>,
    depth: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let damaged = |error| damaged(py, error);
    Ok(match item {
        Item::List(at) => {
            let list = List::read(held.bytes(), at).map_err(damaged)?;
            let view = SharedList::new(Arc::clone(held), at, list, Slice::whole(list.len()));
            Bound::new(py, view)?.into_any()
        }
        Item::Dict(at) => Bound::new(py, SharedDict::open(held, at).map_err(damaged)?)?.into_any(),
        Item::Tuple(at) => {
            let parts = parts(py, held, at, depth, to_python)?;
            PyTuple::new(py, parts)?.into_any()
        }
        Item::Array(at) => array(py, held, at, false)?,
        Item::Tensor(at) => array(py, held, at, true)?,
        other => rare(py, other)?,
    })
}

/// The same without views: lists and dicts all the way down. Arrays stay windows.
pub(crate) fn to_plain<'py>(
    py: Python<'py>,
    held: &Arc<Held>,
    item: Item<'_>,
    depth: usize,
) -> PyResult<Bound<'py, PyAny>> {
    Ok(match item {
        Item::List(at) => PyList::new(py, parts(py, held, at, depth, to_plain)?)?.into_any(),
        Item::Tuple(at) => PyTuple::new(py, parts(py, held, at, depth, to_plain)?)?.into_any(),
        Item::Dict(at) => {
            let dict = Dict::read(held.bytes(), at).map_err(|error| damaged(py, error))?;
            plain_dict(py, held, &dict, depth)?.into_any()
        }
        item => to_python(py, held, item, depth)?,
    })
}

pub(crate) fn plain_dict<'py>(
    py: Python<'py>,
    held: &Arc<Held>,
    dict: &Dict,
    depth: usize,
) -> PyResult<Bound<'py, PyDict>> {
    let plain = PyDict::new(py);
    let (keys, values) = (dict.keys(), dict.values());
    let at = |list: &List, idx| list.get(held.bytes(), idx).map_err(|e| damaged(py, e));
    for idx in 0..keys.len() {
        let key = to_python(py, held, at(&keys, idx)?, depth + 1)?;
        let value = to_plain(py, held, at(&values, idx)?, deeper(py, depth)?)?;
        plain.set_item(key, value)?;
    }
    Ok(plain)
}

type Decode<'py> = fn(Python<'py>, &Arc<Held>, Item<'_>, usize) -> PyResult<Bound<'py, PyAny>>;

fn parts<'py>(
    py: Python<'py>,
    held: &Arc<Held>,
    at: u64,
    depth: usize,
    decode: Decode<'py>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let list = List::read(held.bytes(), at).map_err(|error| damaged(py, error))?;
    let depth = deeper(py, depth)?;
    (0..list.len())
        .map(|idx| {
            let item = list.get(held.bytes(), idx);
            decode(py, held, item.map_err(|error| damaged(py, error))?, depth)
        })
        .collect()
}

/// What is written is bounded; bytes that were changed may go in circles.
fn deeper(py: Python<'_>, depth: usize) -> PyResult<usize> {
    if depth > MAX_DEPTH {
        let expected = "values without circular references";
        return Err(damaged(py, Damaged { expected, at: 0 }));
    }
    Ok(depth + 1)
}

/// A NumPy array or a tensor over the copy.
pub(crate) fn array<'py>(
    py: Python<'py>,
    held: &Arc<Held>,
    at: u64,
    is_tensor: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let node = ArrayNode::read(held.bytes(), at).map_err(|error| damaged(py, error))?;
    let shape = PyTuple::new(py, &node.shape)?;
    let map = held.map(py)?;
    if is_tensor {
        return arrays(py)?.getattr(name!(py, "open_tensor"))?.call1((
            map,
            node.dtype,
            shape,
            node.data,
            node.n_bytes,
        ));
    }
    let dtype = dtype(py, PyString::new(py, node.dtype).into_any())?;
    let readable = map.getattr(name!(py, "readable"))?;
    ndarray(py)?.call1((shape, dtype, readable, node.data))
}

/// NumPy's type, whose call is `(shape, dtype, buffer, offset)`.
fn ndarray(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static NDARRAY: Made<PyAny> = Made::new();
    NDARRAY.get_or(py, || py.import("numpy")?.getattr("ndarray"))
}

/// NumPy's type of items, by the name or the code that is written in the copy.
pub(crate) fn dtype<'py>(
    py: Python<'py>,
    written: Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    static KNOWN: Made<PyDict> = Made::new();
    let known = KNOWN.get_or(py, || Ok(PyDict::new(py)))?;
    if let Some(dtype) = known.get_item(&written)? {
        return Ok(dtype);
    }
    let dtype = arrays(py)?.getattr("dtype")?.call1((&written,))?;
    known.set_item(written, &dtype)?;
    Ok(dtype)
}

fn rare<'py>(py: Python<'py>, item: Item<'_>) -> PyResult<Bound<'py, PyAny>> {
    match item {
        Item::BigInt(bytes) => arrays(py)?
            .getattr("big_int")?
            .call1((PyBytes::new(py, bytes),)),
        Item::LooseStr(text) => {
            PyBytes::new(py, text).call_method1("decode", ("utf-8", "surrogatepass"))
        }
        Item::Scalar(code, bytes) => {
            let dtype = dtype(py, PyInt::new(py, code).into_any())?;
            let bytes = PyBytes::new(py, &bytes);
            let none = PyTuple::empty(py);
            ndarray(py)?.call1((&none, dtype, bytes))?.get_item(&none)
        }
        other => unreachable!("{other:?} is made elsewhere"),
    }
}
