//! Memory for samples and batches: aligned to pages, so that it serves direct reads, vector kernels and DLPack alike.

use std::fmt;

use bytemuck::{Pod, Zeroable};

/// Bytes of a page, and the alignment of every buffer.
pub const PAGE: usize = 4096;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(4096))]
struct Page([u8; PAGE]);

/// Bytes that begin at a page and can be used again without a new allocation.
#[derive(Clone, Default)]
pub struct Buffer {
    pages: Vec<Page>,
    len: usize,
}

impl Buffer {
    /// So many zeros. Large ones are fresh from the kernel and cost nothing until they are written to.
    pub fn zeroed(len: usize) -> Buffer {
        Buffer {
            pages: bytemuck::allocation::zeroed_vec(len.div_ceil(PAGE)),
            len,
        }
    }

    /// Changes the length; bytes that were there stay, further ones hold anything that was there before.
    pub fn set_len(&mut self, len: usize) {
        let pages = len.div_ceil(PAGE);
        if pages > self.pages.len() {
            if pages > self.pages.capacity() && self.len == 0 {
                self.pages = bytemuck::allocation::zeroed_vec(pages);
            } else {
                // No more than is needed: what it holds is counted.
                self.pages.reserve_exact(pages - self.pages.len());
                self.pages.resize(pages, Page::zeroed());
            }
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
        self.pages.capacity() * PAGE
    }

    pub fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.pages)[..self.len]
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.pages)[..self.len]
    }

    /// Whole pages, at least `len` bytes: what a direct read writes to.
    pub fn pages_mut(&mut self) -> &mut [u8] {
        let len = self.len.next_multiple_of(PAGE);
        &mut bytemuck::cast_slice_mut(&mut self.pages)[..len]
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.len)
    }
}
