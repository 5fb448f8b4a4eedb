//! The shared copies that this process has mapped, each once.

use std::collections::HashMap;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use brimful_share::{Damaged, Handle, Id, Item, Segment, ShareError};
use pyo3::prelude::*;

use crate::border::{Failure, raise};
use crate::share::made::Made;

/// One copy in this process. Views of it keep it.
pub(crate) struct Held {
    segment: Segment,
    /// Python's own map of the same file, for NumPy and torch; made when the first array is asked for.
    map: Made<PyAny>,
}

/// By id, so that what is unpickled a hundred times is mapped once. Only locked with Python's lock held and for a moment,
/// so that no fork finds it locked.
static KNOWN: Mutex<Option<HashMap<Id, Weak<Held>>>> = Mutex::new(None);

impl Held {
    pub(crate) fn new(segment: Segment) -> Arc<Held> {
        let id = segment.header().id;
        let held = Arc::new(Held {
            segment,
            map: Made::new(),
        });
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.get_or_insert_default();
        known.retain(|_, held| held.strong_count() > 0);
        known.insert(id, Arc::downgrade(&held));
        held
    }

    pub(crate) fn open(handle: &Handle) -> Result<Arc<Held>, ShareError> {
        let known = KNOWN
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .as_ref()
            .and_then(|known| known.get(&handle.id))
            .and_then(Weak::upgrade);
        match known {
            Some(held) => Ok(held),
            None => Segment::open(handle).map(Held::new),
        }
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        self.segment.bytes()
    }

    /// Calls what reads [`Held::bytes`]. An error, and no SIGBUS, where its file on disk has lost some of them.
    #[inline]
    pub(crate) fn read<T>(
        &self,
        py: Python<'_>,
        read: impl FnOnce() -> PyResult<T>,
    ) -> PyResult<T> {
        let made = self.segment.read(read);
        made.unwrap_or_else(|error| Err(raised(py, &error)))
    }

    pub(crate) fn id(&self) -> &Id {
        &self.segment.header().id
    }

    pub(crate) fn root(&self) -> Result<Item<'_>, Damaged> {
        self.segment.header().root.item(self.bytes())
    }

    pub(crate) fn handle(&self, py: Python<'_>) -> PyResult<Handle> {
        self.segment.handle().map_err(|error| raised(py, &error))
    }

    /// Python's map of it.
    pub(crate) fn map<'py>(&self, py: Python<'py>) -> PyResult<&Bound<'py, PyAny>> {
        self.map.get_or(py, || {
            let fd = self.segment.file().as_raw_fd();
            arrays(py)?
                .getattr("map_file")?
                .call1((fd, self.bytes().len()))
        })
    }
}

/// The Python file that knows NumPy and torch.
pub(crate) fn arrays(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    py.import("brimful._share_arrays")
}

pub(crate) fn raised(py: Python<'_>, error: &ShareError) -> PyErr {
    let message = error.to_string();
    let hints = vec![error.hint().to_owned()];
    raise(py, Failure::Machine { message, hints })
}

pub(crate) fn damaged(py: Python<'_>, error: Damaged) -> PyErr {
    raised(py, &error.into())
}
