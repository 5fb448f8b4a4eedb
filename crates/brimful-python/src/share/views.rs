//! Views of lists and dicts in a shared copy: what they hold. Their methods are in `list.rs` and `dict.rs`, which decode
//! items; items can be views again.

use std::sync::Arc;

use brimful_share::{Damaged, Dict, List};
use pyo3::prelude::*;
use pyo3::types::PySlice;

use crate::share::held::Held;

/// Which items of the list, and in which order. Checked: every index it gives is one of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slice {
    pub(super) start: isize,
    pub(super) step: isize,
    pub(super) len: usize,
}

impl Slice {
    pub(crate) fn whole(len: usize) -> Slice {
        Slice {
            start: 0,
            step: 1,
            len,
        }
    }

    /// A slice from elsewhere, of a list of `list_len` items.
    pub(crate) fn checked(
        start: isize,
        step: isize,
        len: usize,
        list_len: usize,
    ) -> Result<Slice, Damaged> {
        let last = isize::try_from(len.saturating_sub(1))
            .ok()
            .and_then(|last| last.checked_mul(step))
            .and_then(|last| start.checked_add(last));
        let inside = |idx: isize| usize::try_from(idx).is_ok_and(|idx| idx < list_len);
        if len == 0 || (inside(start) && last.is_some_and(inside)) {
            return Ok(Slice { start, step, len });
        }
        let expected = "a slice of the list";
        Err(Damaged { expected, at: 0 })
    }

    #[inline]
    pub(super) fn idx(self, idx: usize) -> usize {
        let idx = idx.cast_signed();
        self.start
            .wrapping_add(self.step.wrapping_mul(idx))
            .cast_unsigned()
    }

    pub(super) fn sliced(self, slice: &Bound<'_, PySlice>) -> PyResult<Slice> {
        let found = slice.indices(isize::try_from(self.len)?)?;
        Ok(Slice {
            start: self.start.wrapping_add(self.step.wrapping_mul(found.start)),
            step: self.step.wrapping_mul(found.step),
            len: found.slicelength,
        })
    }
}

/// A list in shared memory: it is read like a list and cannot be changed.
///
/// Made by `brimful.share`. Each access creates a new item; slices and nested lists are views.
/// Pickling sends a handle, not the data.
#[pyclass(frozen, module = "brimful")]
pub(crate) struct SharedList {
    pub(super) held: Arc<Held>,
    pub(super) at: u64,
    pub(super) list: List,
    pub(super) slice: Slice,
}

impl SharedList {
    pub(crate) fn new(held: Arc<Held>, at: u64, list: List, slice: Slice) -> SharedList {
        SharedList {
            held,
            at,
            list,
            slice,
        }
    }
}

/// A dict in shared memory: it is read like a dict and cannot be changed.
///
/// Made by `brimful.share`. Each access creates a new value; nested lists and dicts are views.
/// Pickling sends a handle, not the data.
#[pyclass(frozen, mapping, module = "brimful")]
pub(crate) struct SharedDict {
    pub(super) held: Arc<Held>,
    pub(super) at: u64,
    pub(super) dict: Dict,
}

impl SharedDict {
    pub(crate) fn open(held: &Arc<Held>, at: u64) -> Result<SharedDict, Damaged> {
        Ok(SharedDict {
            held: Arc::clone(held),
            at,
            dict: Dict::read(held.bytes(), at)?,
        })
    }
}
