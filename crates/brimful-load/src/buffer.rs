//! Memory for samples and batches: aligned to pages, so that it serves direct reads, vector kernels and DLPack alike.

use std::fmt;

use bytemuck::{Pod, Zeroable};
use memmap2::MmapMut;

/// Bytes of a page, and the alignment of every buffer.
pub const PAGE: usize = 4096;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(4096))]
struct Page([u8; PAGE]);

/// From so many bytes on, a new buffer comes straight from the kernel and goes straight back to it. An allocator keeps
/// what other threads give back for later, which nobody counts: 40 MB beside batches of 2 MB.
const LARGE: usize = 128 << 10;

/// Bytes that begin at a page and can be used again without a new allocation.
#[derive(Default)]
pub struct Buffer {
    pages: Pages,
    len: usize,
}

enum Pages {
    Small(Vec<Page>),
    Large(MmapMut),
}

impl Default for Pages {
    fn default() -> Pages {
        Pages::Small(Vec::new())
    }
}

impl Pages {
    fn of_allocator(len: usize) -> Pages {
        Pages::Small(bytemuck::allocation::zeroed_vec(len.div_ceil(PAGE)))
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Pages::Small(pages) => bytemuck::cast_slice(pages),
            Pages::Large(map) => map,
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Pages::Small(pages) => bytemuck::cast_slice_mut(pages),
            Pages::Large(map) => map,
        }
    }
}

impl Buffer {
    /// So many zeros, for any thread to keep and to give back. Large ones cost nothing until they are written to.
    pub fn zeroed(len: usize) -> Buffer {
        let pages = if len >= LARGE
            && let Ok(map) = MmapMut::map_anon(len.next_multiple_of(PAGE))
        {
            Pages::Large(map)
        } else {
            Pages::of_allocator(len)
        };
        Buffer { pages, len }
    }

    /// Changes the length. Of what it holds then, nothing is promised.
    pub fn set_len(&mut self, len: usize) {
        if len > self.capacity() {
            // What it held goes before there is more, so that the two never add up.
            *self = Buffer::default();
            self.pages = Pages::of_allocator(len);
        }
        self.len = len;
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that it takes, used or not.
    pub fn capacity(&self) -> usize {
        self.pages.bytes().len()
    }

    pub fn bytes(&self) -> &[u8] {
        &self.pages.bytes()[..self.len]
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.pages.bytes_mut()[..self.len]
    }

    /// Whole pages, at least `len` bytes: what a direct read writes to.
    pub fn pages_mut(&mut self) -> &mut [u8] {
        &mut self.pages.bytes_mut()[..self.len.next_multiple_of(PAGE)]
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Buffer {
        let mut copy = Buffer::zeroed(self.len);
        copy.bytes_mut().copy_from_slice(self.bytes());
        copy
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_buffer_begins_at_a_page_and_takes_no_more_than_it_needs() {
        let mut buffer = Buffer::zeroed(LARGE);
        for len in [10, PAGE + 1, LARGE - 1, LARGE, 3 * LARGE + 5, 20, LARGE] {
            let before = buffer.capacity();
            buffer.set_len(len);
            assert_eq!(
                buffer.capacity(),
                before.max(len.next_multiple_of(PAGE)),
                "{len}"
            );
            assert_eq!(buffer.bytes().as_ptr().addr() % PAGE, 0);
            assert_eq!(buffer.pages_mut().len(), len.next_multiple_of(PAGE));
            buffer.bytes_mut().fill(u8::try_from(len % 251).unwrap());
            assert_eq!(buffer.clone().bytes(), buffer.bytes());
        }
    }
}
