//! Paths in buffers on the stack: the library is called in signal handlers and between `vfork` and `exec`, where the
//! heap is out of bounds.

use std::ffi::c_char;
use std::fmt;
use std::mem::MaybeUninit;

use crate::errno::Outcome;

/// A path of the script (at most `PATH_MAX`) behind the root of a layer.
const CAPACITY: usize = 4096 + 1024;

/// A path without a trailing slash; the root directory is the empty path, so that a layer's root can stand in front.
pub(crate) struct PathBuf {
    len: usize,
    bytes: [MaybeUninit<u8>; CAPACITY],
}

impl PathBuf {
    pub(crate) const fn new() -> Self {
        Self {
            len: 0,
            bytes: [const { MaybeUninit::uninit() }; CAPACITY],
        }
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Outcome<Self> {
        let mut path = Self::new();
        path.push(bytes)?;
        Ok(path)
    }

    /// Replaces the content by the given parts, one behind the other.
    pub(crate) fn set(&mut self, parts: &[&[u8]]) -> Outcome<()> {
        self.len = 0;
        parts.iter().try_for_each(|part| self.push(part))
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) -> Outcome<()> {
        let end = self.len + bytes.len();
        // One byte stays free for the terminating zero.
        let Some(free) = self.bytes.get_mut(self.len..end) else {
            return Err(libc::ENAMETOOLONG);
        };
        if end >= CAPACITY {
            return Err(libc::ENAMETOOLONG);
        }
        free.write_copy_of_slice(bytes);
        self.len = end;
        Ok(())
    }

    pub(crate) fn push_component(&mut self, name: &[u8]) -> Outcome<()> {
        self.push(b"/")?;
        self.push(name)
    }

    /// Removes the last component; the parent of the root is the root.
    pub(crate) fn pop(&mut self) {
        self.len = parent(self.as_bytes()).len();
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        // SAFETY: `push` is the only way to grow, and it initialises what it adds; `MaybeUninit<u8>` has the layout of
        // `u8`.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr().cast(), self.len) }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// For the kernel: terminated by zero, and `/` for the root.
    pub(crate) fn as_ptr(&mut self) -> *const c_char {
        if self.len == 0 {
            return c"/".as_ptr();
        }
        if let Some(byte) = self.bytes.get_mut(self.len) {
            byte.write(0);
        }
        self.bytes.as_ptr().cast()
    }

    /// A buffer of `CAPACITY` bytes for the kernel to write into; `filled` tells how many it wrote.
    pub(crate) fn fill(
        &mut self,
        write: impl FnOnce(*mut u8, usize) -> Outcome<usize>,
    ) -> Outcome<()> {
        self.len = 0;
        let len = write(self.bytes.as_mut_ptr().cast(), CAPACITY - 1)?;
        // The kernel initialised the first `len` bytes.
        self.len = len.min(CAPACITY - 1);
        Ok(())
    }
}

impl fmt::Debug for PathBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.as_bytes()))
    }
}

/// The path without its last component and the slash before it.
pub(crate) fn parent(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    path.get(..end).unwrap_or_default()
}

/// The last component.
pub(crate) fn name(path: &[u8]) -> &[u8] {
    let start = path
        .iter()
        .rposition(|byte| *byte == b'/')
        .map_or(0, |slash| slash + 1);
    path.get(start..).unwrap_or_default()
}

/// Whether `path` is `prefix` or lies below it.
pub(crate) fn is_at_or_below(path: &[u8], prefix: &[u8]) -> bool {
    path.strip_prefix(prefix)
        .is_some_and(|rest| rest.first().is_none_or(|byte| *byte == b'/'))
}

/// Splits a list at its unescaped colons and removes the escapes; empty parts are left out.
pub(crate) fn split_list(text: &[u8]) -> Vec<ListPart> {
    let mut parts = vec![ListPart::default()];
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        let Some(part) = parts.last_mut() else { break };
        match byte {
            b'\\' => part.text.push(bytes.next().unwrap_or(b'\\')),
            b':' => parts.push(ListPart::default()),
            b'=' if part.equals.is_none() => {
                part.equals = Some(part.text.len());
                part.text.push(byte);
            }
            byte => part.text.push(byte),
        }
    }
    parts.retain(|part| !part.text.is_empty());
    parts
}

/// One part of a list, without escapes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ListPart {
    pub text: Vec<u8>,
    /// Where the first unescaped `=` stands in `text`.
    equals: Option<usize>,
}

impl ListPart {
    /// What stands before and behind the `=`.
    pub(crate) fn pair(&self) -> Option<(&[u8], &[u8])> {
        let (key, rest) = self.text.split_at_checked(self.equals?)?;
        Some((key, rest.get(1..)?))
    }
}

/// The inverse of [`split_list`] for one part.
pub(crate) fn escape(part: &[u8], list: &mut Vec<u8>) {
    for byte in part {
        if matches!(byte, b':' | b'\\' | b'=') {
            list.push(b'\\');
        }
        list.push(*byte);
    }
}

/// Paths that belong to the kernel as they stand: no walk is needed to know that they are not redirected.
pub(crate) fn is_kernel_path(text: &[u8]) -> bool {
    if is_at_or_below(text, b"/dev/shm") {
        // Files of programs, which may have a layer.
        return false;
    }
    let contains = |part: &[u8]| text.windows(part.len()).any(|window| window == part);
    if text.starts_with(b"/dev/") || text.starts_with(b"/sys/") {
        let leads_out =
            text.starts_with(b"/dev/fd/") && text.split(|byte| *byte == b'/').nth(4).is_some();
        return !leads_out && !contains(b"/..");
    }
    if !text.starts_with(b"/proc/") || contains(b"/..") || contains(b"/cwd/") || contains(b"/root/")
    {
        return false;
    }
    // `/proc/self/fd/3/name` leads out of the kernel's files.
    let mut parts = text
        .split(|byte| *byte == b'/')
        .skip_while(|part| *part != b"fd");
    parts.nth(2).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_has_no_bytes_and_is_its_own_parent() {
        let mut path = PathBuf::new();
        path.pop();
        assert!(path.is_empty());
        path.push_component(b"a").unwrap();
        path.push_component(b"b").unwrap();
        assert_eq!(path.as_bytes(), b"/a/b");
        assert_eq!(parent(path.as_bytes()), b"/a");
        assert_eq!(name(path.as_bytes()), b"b");
        path.pop();
        path.pop();
        assert_eq!(path.as_bytes(), b"");
    }

    #[test]
    fn a_prefix_ends_at_a_component() {
        assert!(is_at_or_below(b"/a/b", b"/a"));
        assert!(is_at_or_below(b"/a", b"/a"));
        assert!(!is_at_or_below(b"/ab", b"/a"));
        assert!(is_at_or_below(b"/ab", b""));
    }

    #[test]
    fn an_overlong_path_is_an_error() {
        assert_eq!(
            PathBuf::from_bytes(&[b'x'; 8192]).unwrap_err(),
            libc::ENAMETOOLONG
        );
        assert!(PathBuf::from_bytes(&[b'x'; 4095]).is_ok());
    }

    #[test]
    fn lists_are_escaped_and_split_again() {
        let names: [&[u8]; 3] = [b"/a:b", b"/c\\d", b"/e=f"];
        let mut list = Vec::new();
        for name in names {
            escape(name, &mut list);
            list.push(b':');
        }
        let parts: Vec<_> = split_list(&list)
            .into_iter()
            .map(|part| part.text)
            .collect();
        assert_eq!(parts, names);
        let pairs = split_list(b"/home/a\\=b=/layer:x");
        assert_eq!(
            pairs[0].pair(),
            Some((b"/home/a=b".as_slice(), b"/layer".as_slice()))
        );
        assert_eq!(pairs[1].pair(), None);
    }
}
