//! Lists of C strings for the kernel: arguments and environments.
//!
//! Short ones live on the stack: between `vfork` and `exec` the heap is the parent's.

use std::ffi::c_char;

use crate::abi::text;

pub(crate) type Strings = *const *const c_char;

const SHORT: usize = 256;
const SHORT_BYTES: usize = 4096;

/// A list of strings that live elsewhere.
pub(crate) struct List {
    short: [*const c_char; SHORT],
    long: Vec<*const c_char>,
    len: usize,
}

impl List {
    pub(crate) fn new() -> Self {
        Self {
            short: [std::ptr::null(); SHORT],
            long: Vec::new(),
            len: 0,
        }
    }

    pub(crate) fn push(&mut self, value: *const c_char) {
        if let Some(slot) = self
            .short
            .get_mut(self.len)
            .filter(|_| self.long.is_empty())
        {
            *slot = value;
        } else {
            if self.long.is_empty() {
                self.long.extend_from_slice(&self.short);
            }
            self.long.push(value);
        }
        self.len += 1;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// With a terminating null, which `push` has to have added.
    pub(crate) fn as_ptr(&self) -> Strings {
        if self.long.is_empty() {
            self.short.as_ptr()
        } else {
            self.long.as_ptr()
        }
    }
}

/// Strings that are made for a child. They stay where they are while this does.
pub(crate) struct Lines {
    short: [u8; SHORT_BYTES],
    len: usize,
    long: Vec<Vec<u8>>,
}

impl Lines {
    pub(crate) fn new() -> Self {
        Self {
            short: [0; SHORT_BYTES],
            len: 0,
            long: Vec::new(),
        }
    }

    /// The parts one behind the other, with a terminating zero.
    pub(crate) fn add<'a>(
        &mut self,
        parts: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> *const c_char {
        let size = parts.clone().map(<[u8]>::len).sum::<usize>() + 1;
        let bytes = parts.flatten().copied().chain([0]);
        let end = self.len.saturating_add(size);
        if let Some(free) = self.short.get_mut(self.len..end) {
            free.iter_mut()
                .zip(bytes)
                .for_each(|(slot, byte)| *slot = byte);
            self.len = end;
            return free.as_ptr().cast();
        }
        let line: Vec<u8> = bytes.collect();
        let pointer = line.as_ptr().cast();
        self.long.push(line);
        pointer
    }
}

/// The strings of a C list, without the terminating null.
pub(crate) fn strings(list: Strings) -> impl Iterator<Item = *const c_char> {
    let mut next = list;
    std::iter::from_fn(move || {
        if next.is_null() {
            return None;
        }
        // SAFETY: a list of the caller, which ends with null; nothing is read behind that.
        let value = unsafe { *next };
        if value.is_null() {
            return None;
        }
        next = next.wrapping_add(1);
        Some(value)
    })
}

/// The name and the value of a line of an environment.
pub(crate) fn split_line<'a>(line: *const c_char) -> (&'a [u8], &'a [u8]) {
    let line: &[u8] = text(line).unwrap_or_default();
    let mut parts = line.splitn(2, |byte| *byte == b'=');
    let name = parts.next().unwrap_or_default();
    (name, parts.next().unwrap_or_default())
}
