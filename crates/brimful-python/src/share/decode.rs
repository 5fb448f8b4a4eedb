//! From the copy to Python: plain values are made anew, lists and dicts are views, arrays are windows.

use std::sync::Arc;

use brimful_load::share::{ArrayNode, Damaged, Dict, Item, List, MAX_DEPTH};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

use crate::share::dict::SharedDict;
use crate::share::held::{Held, arrays, damaged};
use crate::share::list::{SharedList, Slice};

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
        let expected = "values that do not hold themselves";
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
    let open = if is_tensor {
        intern!(py, "open_tensor")
    } else {
        intern!(py, "open_array")
    };
    arrays(py)?
        .getattr(open)?
        .call1((held.map(py)?, node.dtype, shape, node.data, node.n_bytes))
}

fn rare<'py>(py: Python<'py>, item: Item<'_>) -> PyResult<Bound<'py, PyAny>> {
    match item {
        Item::BigInt(bytes) => arrays(py)?
            .getattr("big_int")?
            .call1((PyBytes::new(py, bytes),)),
        Item::LooseStr(text) => {
            PyBytes::new(py, text).call_method1("decode", ("utf-8", "surrogatepass"))
        }
        Item::Scalar(code, bytes) => arrays(py)?
            .getattr("open_scalar")?
            .call1((code, PyBytes::new(py, &bytes))),
        other => unreachable!("{other:?} is made elsewhere"),
    }
}
