//! Keys of dicts as they are looked up.

use brimful_share::Key;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyFloat, PyInt, PyString, PyTuple};

/// The key that `value` is, or nothing where no dict of ours can hold it.
pub(crate) fn key_of(value: &Bound<'_, PyAny>) -> PyResult<Option<Key>> {
    let mut key = Key::default();
    Ok(push(&mut key, value, Use::LookedUp, 0)?.then_some(key))
}

/// What a key is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Python may keep its UTF-8, so that asking for the same key again costs nothing.
    LookedUp,
    /// A million keys must not each keep a second copy of themselves.
    Written,
}

/// Appends a key; false where it cannot be one.
pub(crate) fn push(
    key: &mut Key,
    value: &Bound<'_, PyAny>,
    wanted: Use,
    depth: usize,
) -> PyResult<bool> {
    const MAX_DEPTH: usize = 50;
    if let Ok(text) = value.cast::<PyString>() {
        if wanted == Use::LookedUp
            && let Ok(text) = text.to_str()
        {
            key.push_str(text.as_bytes());
        } else if let Ok(text) = text.encode_utf8() {
            key.push_str(text.as_bytes());
        } else {
            key.push_loose_str(loose(text)?.as_bytes());
        }
    } else if value.is_instance_of::<PyInt>() {
        push_int(key, value)?;
    } else if let Ok(float) = value.cast::<PyFloat>() {
        key.push_float(float.extract()?);
    } else if value.is_none() {
        key.push_none();
    } else if let Ok(bytes) = value.cast::<PyBytes>() {
        key.push_bytes(bytes.as_bytes());
    } else if let Ok(tuple) = value.cast::<PyTuple>() {
        key.push_tuple(tuple.len());
        for part in tuple {
            if depth > MAX_DEPTH || !push(key, &part, wanted, depth + 1)? {
                return Ok(false);
            }
        }
    } else if let Ok(index) = value.call_method0("__index__")
        && index.is_instance_of::<PyInt>()
    {
        // Integers of NumPy and torch.
        push_int(key, &index)?;
    } else {
        // As Python says it of lists and the like.
        value.hash()?;
        return Ok(false);
    }
    Ok(true)
}

fn push_int(key: &mut Key, value: &Bound<'_, PyAny>) -> PyResult<()> {
    match value.extract::<i64>() {
        Ok(small) => key.push_int(small),
        Err(_) => key.push_big_int(big(value)?.as_bytes()),
    }
    Ok(())
}

/// The bytes of an integer beyond 64 bits.
pub(crate) fn big<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let bytes = crate::share::held::arrays(value.py())?
        .getattr("big_int_bytes")?
        .call1((value,))?;
    Ok(bytes.cast_into()?)
}

/// Text with halves of surrogate pairs.
pub(crate) fn loose<'py>(text: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyBytes>> {
    let bytes = text.call_method1("encode", ("utf-8", "surrogatepass"))?;
    Ok(bytes.cast_into()?)
}
