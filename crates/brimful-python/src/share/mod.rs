//! `brimful.share`: Python's values to one shared copy, and views of it back to Python.

mod array;
mod decode;
mod dict;
mod encode;
mod held;
mod key;
mod list;
mod made;
mod views;

pub(crate) use array::SharedArray;
pub(crate) use list::SharedListIterator;
pub(crate) use views::{SharedDict, SharedList};

use std::io::BufWriter;
use std::path::PathBuf;
use std::sync::Arc;

use brimful_share::{Handle, Id, Item, List, Segment, Storage, Writer, create};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::share::encode::Encoder;
use crate::share::held::Held;
use crate::share::views::Slice;

/// What is collected before it is written.
const BUFFER_BYTES: usize = 1 << 20;

/// Copies `value` into memory that other processes can map; into a file in `folder` if one is given.
///
/// A list, a tuple or an iterator becomes a `SharedList`, a dict a `SharedDict`, an array or a tensor a `SharedArray`.
#[pyfunction]
#[pyo3(signature = (value, *, folder))]
pub(crate) fn share<'py>(
    py: Python<'py>,
    value: &Bound<'py, PyAny>,
    folder: Option<PathBuf>,
) -> PyResult<Bound<'py, PyAny>> {
    let storage = folder.map_or(Storage::Memory, Storage::Directory);
    let (file, id) = create(&storage).map_err(|error| held::raised(py, &error))?;
    let out = BufWriter::with_capacity(BUFFER_BYTES, file);
    let writer = Writer::new(out, id).map_err(|error| encode::not_written(py, error))?;
    let mut encoder = Encoder::new(py, writer);
    let root = encoder.root(value)?;
    let has_arrays = encoder.has_arrays();
    let (out, header) = encoder
        .into_writer()
        .finish(root)
        .map_err(|error| encode::not_written(py, error))?;
    let file = out
        .into_inner()
        .map_err(|error| encode::not_written(py, error.into_error()))?;
    let segment = Segment::seal(file, header).map_err(|error| held::raised(py, &error))?;
    let held = Held::new(segment);
    if has_arrays {
        // Now, by who shares it, and not by the first thread that reads; that one tells what is wrong.
        drop(held.map(py));
    }
    held.read(py, || {
        let item = held.root().map_err(|error| held::damaged(py, error))?;
        match item {
            Item::Array(at) | Item::Tensor(at) => {
                let array = SharedArray::open(py, &held, at, matches!(item, Item::Tensor(_)))?;
                Ok(Bound::new(py, array)?.into_any())
            }
            item => decode::to_python(py, &held, item, 0),
        }
    })
}

/// What was pickled: how to open the copy, and which part of it this was.
#[pyfunction]
#[pyo3(signature = (pid, fd, id, kind, at, start, step, length))]
#[expect(clippy::too_many_arguments, reason = "the state of a pickle")]
pub(crate) fn shared_from_handle<'py>(
    py: Python<'py>,
    pid: u32,
    fd: i32,
    id: &Bound<'py, PyBytes>,
    kind: &str,
    at: u64,
    start: isize,
    step: isize,
    length: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let id = Id::try_from(id.as_bytes())?;
    let held = Held::open(&Handle { pid, fd, id }).map_err(|error| held::raised(py, &error))?;
    let damaged = |error| held::damaged(py, error);
    held.read(py, || {
        Ok(match kind {
            "list" => {
                let list = List::read(held.bytes(), at).map_err(damaged)?;
                let slice = Slice::checked(start, step, length, list.len()).map_err(damaged)?;
                let list = SharedList::new(Arc::clone(&held), at, list, slice);
                Bound::new(py, list)?.into_any()
            }
            "dict" => Bound::new(py, SharedDict::open(&held, at).map_err(damaged)?)?.into_any(),
            _ => Bound::new(py, SharedArray::open(py, &held, at, kind == "tensor")?)?.into_any(),
        })
    })
}
