//! From Python to the copy: what may be shared, and where something may not.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter};
use std::os::fd::AsRawFd;

use brimful_share::{ArrayKind, Key, ListBuilder, MAX_DEPTH, ShareError, Slot, Writer};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyBytes, PyDict, PyFloat, PyInt, PyIterator, PyList, PyRange, PyString, PyTuple,
};

use crate::border::{Failure, raise};
use crate::share::array::SharedArray;
use crate::share::decode::dtype;
use crate::share::held::{arrays, raised};
use crate::share::key::{self, Use};
use crate::share::views::{SharedDict, SharedList};

/// How often Ctrl-C is looked for.
const ITEMS_BETWEEN_LOOKS: u32 = 1 << 14;

/// Texts of keys up to so many bytes are compared with earlier ones.
const MAX_KEY_SET_BYTES: usize = 4096;

/// Walks through a value and writes it.
pub(crate) struct Encoder<'py> {
    py: Python<'py>,
    writer: Writer<BufWriter<File>>,
    /// Where the walk is, for messages; and that nothing holds itself.
    path: Vec<Step<'py>>,
    ancestors: Vec<usize>,
    /// Arrays that were written, by their address: one that stands in many places is written once. They are kept, so that
    /// no other comes to stand at their address.
    arrays: HashMap<usize, (Bound<'py, PyAny>, Slot)>,
    /// Items of an iterator must go when the next one comes.
    is_streamed: bool,
    has_arrays: bool,
    n_items: u32,
}

enum Step<'py> {
    Index(usize),
    Key(Bound<'py, PyAny>),
}

impl<'py> Encoder<'py> {
    pub(crate) fn new(py: Python<'py>, writer: Writer<BufWriter<File>>) -> Encoder<'py> {
        Encoder {
            py,
            writer,
            path: Vec::new(),
            ancestors: Vec::new(),
            arrays: HashMap::new(),
            is_streamed: false,
            has_arrays: false,
            n_items: 0,
        }
    }

    /// Whether something was written that is read through Python's own map of the copy.
    pub(crate) fn has_arrays(&self) -> bool {
        self.has_arrays
    }

    pub(crate) fn into_writer(self) -> Writer<BufWriter<File>> {
        self.writer
    }

    /// The value itself: something that holds others.
    pub(crate) fn root(&mut self, value: &Bound<'py, PyAny>) -> PyResult<Slot> {
        if value.is_exact_instance_of::<PyTuple>() {
            // A tuple would hold all of its items in every process: the view of a list does not.
            return self.sequence(value).map(Slot::list);
        }
        if let Some(slot) = self.container(value)? {
            return Ok(slot);
        }
        if let Ok(iterator) = value.cast::<PyIterator>() {
            self.is_streamed = true;
            return self.iterator(iterator).map(Slot::list);
        }
        if let Some(slot) = self.array(value)? {
            return Ok(slot);
        }
        let expected = "a list, dict, tuple, array, tensor or iterator";
        Err(self.refused(
            value,
            expected,
            "put a single value into a list: brimful.share([value])",
        ))
    }

    /// One item of a list.
    fn push(&mut self, list: &mut ListBuilder, value: &Bound<'py, PyAny>) -> PyResult<()> {
        self.n_items = self.n_items.wrapping_add(1);
        if self.n_items.is_multiple_of(ITEMS_BETWEEN_LOOKS) {
            self.py.check_signals()?;
        }
        if value.is_exact_instance_of::<PyString>() {
            let text = value.cast::<PyString>()?;
            // Not `to_str`, which would leave a second copy inside of every text that is not plain ASCII.
            match text.encode_utf8() {
                Ok(utf8) => list.push_str(&mut self.writer, utf8.as_bytes()),
                Err(_) => list.push_loose_str(&mut self.writer, key::loose(text)?.as_bytes()),
            }
            .map_err(|error| not_written(self.py, error))?;
        } else if value.is_exact_instance_of::<PyInt>() {
            match value.extract::<i64>() {
                Ok(small) => list.push_int(small),
                Err(_) => list
                    .push_big_int(&mut self.writer, key::big(value)?.as_bytes())
                    .map_err(|error| not_written(self.py, error))?,
            }
        } else if value.is_exact_instance_of::<PyFloat>() {
            list.push_float(value.extract()?);
        } else if value.is_exact_instance_of::<PyBool>() {
            list.push_bool(value.extract()?);
        } else if value.is_none() {
            list.push_slot(Slot::none());
        } else if value.is_exact_instance_of::<PyBytes>() {
            let bytes = value.cast::<PyBytes>()?.as_bytes();
            list.push_bytes(&mut self.writer, bytes)
                .map_err(|error| not_written(self.py, error))?;
        } else if let Some(slot) = self.container(value)? {
            list.push_slot(slot);
        } else if let Some(slot) = self.array(value)? {
            list.push_slot(slot);
        } else {
            return Err(self.unsupported(value));
        }
        Ok(())
    }

    /// A list, a tuple or a dict, or nothing if it is none of them.
    fn container(&mut self, value: &Bound<'py, PyAny>) -> PyResult<Option<Slot>> {
        Ok(Some(if value.is_exact_instance_of::<PyTuple>() {
            Slot::tuple(self.sequence(value)?)
        } else if value.is_exact_instance_of::<PyList>()
            || value.is_exact_instance_of::<PyRange>()
            || value.is_exact_instance_of::<SharedList>()
        {
            Slot::list(self.sequence(value)?)
        } else if value.is_exact_instance_of::<PyDict>() {
            self.inside(value, |encoder| {
                let dict = value.cast::<PyDict>()?;
                encoder.dict(&dict.keys(), &dict.values())
            })?
        } else if let Some((keys, values)) = other_dict(value)? {
            self.inside(value, |encoder| encoder.dict(&keys, &values))?
        } else {
            return Ok(None);
        }))
    }

    /// Runs `work` one level deeper.
    fn inside<T>(
        &mut self,
        value: &Bound<'py, PyAny>,
        work: impl FnOnce(&mut Self) -> PyResult<T>,
    ) -> PyResult<T> {
        let address = value.as_ptr() as usize;
        if self.ancestors.contains(&address) {
            let hint =
                "remove the circular reference, for example with indexes instead of references";
            return Err(self.refused(value, "values without circular references", hint));
        }
        if self.ancestors.len() >= MAX_DEPTH {
            let expected = format!("at most {MAX_DEPTH} levels of nesting");
            let hint = "flatten the data, or share its parts one by one";
            return Err(self.refused(value, &expected, hint));
        }
        self.ancestors.push(address);
        let done = work(self);
        self.ancestors.pop();
        done
    }

    fn sequence(&mut self, value: &Bound<'py, PyAny>) -> PyResult<u64> {
        self.inside(value, |encoder| {
            let mut list = ListBuilder::default();
            let length = value.len()?;
            for idx in 0..length {
                encoder.path.push(Step::Index(idx));
                encoder.push(&mut list, &value.get_item(idx)?)?;
                encoder.path.pop();
            }
            if value.len()? != length {
                return Err(PyRuntimeError::new_err(
                    "a list changed while it was shared",
                ));
            }
            encoder.finish(list)
        })
    }

    fn iterator(&mut self, iterator: &Bound<'py, PyIterator>) -> PyResult<u64> {
        let mut list = ListBuilder::default();
        for (idx, value) in iterator.clone().enumerate() {
            self.path.push(Step::Index(idx));
            self.push(&mut list, &value?)?;
            self.path.pop();
        }
        self.finish(list)
    }

    fn dict(&mut self, keys: &Bound<'py, PyList>, values: &Bound<'py, PyList>) -> PyResult<Slot> {
        let keys_at = match Self::key_set(keys) {
            Some(key_set) => match self.writer.known_keys(&key_set) {
                Some(at) => at,
                None => self.keys(keys, Some(&key_set))?,
            },
            None => self.keys(keys, None)?,
        };
        let mut list = ListBuilder::default();
        for (key, value) in keys.iter().zip(values.iter()) {
            self.path.push(Step::Key(key));
            self.push(&mut list, &value)?;
            self.path.pop();
        }
        let values_at = self.finish(list)?;
        let dict = self.writer.dict(keys_at, values_at);
        dict.map_err(|error| not_written(self.py, error))
    }

    fn keys(&mut self, keys: &Bound<'py, PyList>, key_set: Option<&[u8]>) -> PyResult<u64> {
        let mut list = ListBuilder::default();
        let mut hashes = Vec::with_capacity(keys.len());
        let mut canonical = Key::default();
        for value in keys {
            canonical.clear();
            if !is_plain_key(&value) || !key::push(&mut canonical, &value, Use::Written, 0)? {
                self.path.push(Step::Key(value.clone()));
                let expected = "keys that are a str, bytes, number, bool, None or a tuple of these";
                let hint = "convert the keys, for example with str(key)";
                return Err(self.refused(&value, expected, hint));
            }
            hashes.push(self.writer.hash(&canonical));
            self.push(&mut list, &value)?;
        }
        let node = self.finish(list)?;
        let keys = self.writer.keys(node, &hashes, key_set);
        keys.map_err(|error| not_written(self.py, error))
    }

    /// What a few short texts as keys are known by: records name the same fields again and again.
    fn key_set(keys: &Bound<'py, PyList>) -> Option<Vec<u8>> {
        let mut set = Key::default();
        for key in keys {
            let text = key.cast_exact::<PyString>().ok()?;
            set.push_str(text.encode_utf8().ok()?.as_bytes());
            if set.as_bytes().len() > MAX_KEY_SET_BYTES {
                return None;
            }
        }
        Some(set.as_bytes().to_vec())
    }

    /// An array, a tensor or a NumPy scalar, or nothing if it is none of them.
    fn array(&mut self, value: &Bound<'py, PyAny>) -> PyResult<Option<Slot>> {
        let value = match value.cast_exact::<SharedArray>() {
            Ok(shared) => shared.get().inner(self.py),
            Err(_) => value.clone(),
        };
        let address = value.as_ptr() as usize;
        if let Some((_, slot)) = self.arrays.get(&address) {
            return Ok(Some(*slot));
        }
        let found = arrays(self.py)?.getattr("taken_apart")?.call1((&value,))?;
        if found.is_none() {
            return Ok(None);
        }
        let (what, name): (String, String) =
            (found.get_item(0)?.extract()?, found.get_item(1)?.extract()?);
        match what.as_str() {
            "scalar" => {
                let (code, bytes): (u8, [u8; 8]) = found.get_item(2)?.extract()?;
                dtype(self.py, PyInt::new(self.py, code).into_any())?;
                Ok(Some(Slot::scalar(code, bytes)))
            }
            "refused" => {
                let hint: String = found.get_item(2)?.extract()?;
                Err(self.refused(&value, &name, &hint))
            }
            library => {
                self.has_arrays = true;
                let kind = if library == "torch" {
                    ArrayKind::Torch
                } else {
                    // Who reads it finds it made.
                    dtype(self.py, PyString::new(self.py, &name).into_any())?;
                    ArrayKind::NumPy
                };
                let shape: Vec<u64> = found.get_item(2)?.extract()?;
                let slot = self.array_data(kind, &name, &shape, &found.get_item(3)?)?;
                if !self.is_streamed {
                    self.arrays.insert(address, (value, slot));
                }
                Ok(Some(slot))
            }
        }
    }

    /// The bytes of an array: small ones as Python's `bytes`, larger ones written to the file by Python.
    fn array_data(
        &mut self,
        kind: ArrayKind,
        dtype: &str,
        shape: &[u64],
        data: &Bound<'py, PyAny>,
    ) -> PyResult<Slot> {
        let py = self.py;
        let not_written = |error| not_written(py, error);
        let at = self.writer.begin_array().map_err(not_written)?;
        if let Ok(bytes) = data.cast::<PyBytes>() {
            self.writer
                .array_bytes(bytes.as_bytes())
                .map_err(not_written)?;
        } else {
            self.writer.flush().map_err(not_written)?;
            let fd = self.writer.out().get_ref().as_raw_fd();
            let written = arrays(py)?.getattr("write_all")?.call1((fd, data));
            let n_bytes = written.map_err(|error| match error.value(py).extract() {
                Ok(code) => not_written(io::Error::from_raw_os_error(code)),
                Err(_) => error,
            });
            self.writer.skip(n_bytes?.extract()?);
        }
        self.writer
            .end_array(kind, at, dtype, shape)
            .map_err(not_written)
    }

    fn finish(&mut self, list: ListBuilder) -> PyResult<u64> {
        list.finish(&mut self.writer)
            .map_err(|error| not_written(self.py, error))
    }

    /// The error for a value of a type that cannot be shared.
    fn unsupported(&self, value: &Bound<'py, PyAny>) -> PyErr {
        let found = type_name(value);
        let hints = vec![
            hint_for(value, &found),
            "supported types are str, bytes, numbers, bool, None, list, tuple, dict, arrays and tensors".to_owned(),
        ];
        let message = format!("cannot share a value of type {found}{}", self.position());
        raise(self.py, Failure::Input { message, hints })
    }

    /// The error for a value that is not what is expected at this position.
    fn refused(&self, value: &Bound<'py, PyAny>, expected: &str, hint: &str) -> PyErr {
        let found = type_name(value);
        let message = format!("expected {expected}, found {found}{}", self.position());
        let hints = vec![hint.to_owned()];
        raise(self.py, Failure::Input { message, hints })
    }

    /// Where the encoder is inside the shared value: ` at [3]['meta']`, or nothing at its root.
    fn position(&self) -> String {
        let path: String = self
            .path
            .iter()
            .map(|step| match step {
                Step::Index(idx) => format!("[{idx}]"),
                Step::Key(key) => match key.repr() {
                    Ok(text) => format!("[{}]", shortened(&text.to_string_lossy())),
                    Err(_) => "[?]".to_owned(),
                },
            })
            .collect();
        match path.as_str() {
            "" => path,
            path => format!(" at {path}"),
        }
    }
}

/// Keys come back as they were: a subclass would come back as something else.
fn is_plain_key(value: &Bound<'_, PyAny>) -> bool {
    value.is_none()
        || value.is_exact_instance_of::<PyString>()
        || value.is_exact_instance_of::<PyInt>()
        || value.is_exact_instance_of::<PyFloat>()
        || value.is_exact_instance_of::<PyBool>()
        || value.is_exact_instance_of::<PyBytes>()
        || value
            .cast_exact::<PyTuple>()
            .is_ok_and(|tuple| tuple.iter().all(|part| is_plain_key(&part)))
}

type KeysAndValues<'py> = (Bound<'py, PyList>, Bound<'py, PyList>);

/// Dicts of other names that are read in the same way.
fn other_dict<'py>(value: &Bound<'py, PyAny>) -> PyResult<Option<KeysAndValues<'py>>> {
    if let Ok(shared) = value.cast_exact::<SharedDict>() {
        let py = value.py();
        let plain = shared.get().plain(py)?;
        return Ok(Some((plain.keys(), plain.values())));
    }
    let Ok(dict) = value.cast::<PyDict>() else {
        return Ok(None);
    };
    let name = type_name(value);
    let known = ["collections.OrderedDict", "collections.defaultdict"];
    Ok(known
        .contains(&name.as_str())
        .then(|| (dict.keys(), dict.values())))
}

fn type_name(value: &Bound<'_, PyAny>) -> String {
    let name = value.get_type().fully_qualified_name();
    match name {
        Ok(name) => name.to_string_lossy().into_owned(),
        Err(_) => "an object".to_owned(),
    }
}

fn hint_for(value: &Bound<'_, PyAny>, found: &str) -> String {
    let hint = if value.is_instance_of::<PyString>() {
        "convert it to a plain str: str(value)"
    } else if value.is_instance_of::<PyTuple>() {
        "convert it to a plain tuple: tuple(value)"
    } else if value.is_instance_of::<PyDict>() {
        "convert it to a plain dict: dict(value)"
    } else if value.is_instance_of::<PyList>() {
        "convert it to a plain list: list(value)"
    } else if value.is_instance_of::<PyInt>() {
        "convert it to a plain number: int(value)"
    } else if found.starts_with("pathlib") {
        "convert it to a str with str(path), and back with Path(text) where it is used"
    } else if found == "set" || found == "frozenset" {
        "convert it to a list, or to a dict with None values to keep lookups"
    } else if found == "bytearray" || found == "memoryview" {
        "convert it to bytes: bytes(value)"
    } else if found.starts_with("pandas") {
        "share its columns as arrays: {name: frame[name].to_numpy() for name in frame}"
    } else {
        "share plain values, for example `dataclasses.asdict(value)` or `vars(value)`, and create the objects where \
         they are used"
    };
    hint.to_owned()
}

fn shortened(text: &str) -> String {
    const MAX: usize = 60;
    if text.chars().count() <= MAX {
        return text.to_owned();
    }
    text.chars().take(MAX).chain(['…']).collect()
}

pub(crate) fn not_written(py: Python<'_>, cause: io::Error) -> PyErr {
    raised(py, &ShareError::NotWritten { cause })
}
