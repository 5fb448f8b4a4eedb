//! Files that are mapped into memory for reading, and what happens when one is truncated while it is read.
//!
//! The crate maps local files only, never writes to them, and installs one process-wide handler: that of SIGBUS.
//!
//! A page that a file no longer has cannot be read: the kernel sends SIGBUS, which ends the process. Here it becomes an
//! error. Mapped bytes are read inside a [`Guard`]; the handler puts zeros where the file has nothing,
//! and marks the file; and before anything that was read is believed, [`Mapping::check`] looks at the mark.
//!
//! Not every missing byte faults. The kernel fills the page in which a file ends with zeros, and says nothing. So the check
//! touches the last page that the file had: it faults if the file ends in an earlier one. Where bytes of the last page
//! itself are wanted, the file system is asked for the size.
//!
//! Read first: [`Mapping::look`], then `handler.rs`.
//!
//! ```
//! use std::fs::File;
//! use std::path::Path;
//!
//! let path = Path::new("Cargo.toml");
//! let mapping = brimful_mapping::Mapping::of(&File::open(path)?, path)?;
//! assert_eq!(mapping.look(0, 9, <[u8]>::to_vec)?, b"[package]");
//! # Ok::<(), std::io::Error>(())
//! ```

#![cfg_attr(
    test,
    expect(clippy::disallowed_methods, reason = "tests make files of all kinds")
)]

mod guard;
pub mod handler;
mod ranges;
#[cfg(test)]
mod tests;
mod truncated;

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

pub use crate::guard::Guard;
pub use crate::truncated::Truncated;

use crate::ranges::Range;

/// One file in memory, to be read only.
#[derive(Debug)]
pub struct Mapping {
    map: Mmap,
    range: &'static Range,
    file: MappedFile,
    /// Where the last page begins.
    last_page: usize,
}

/// What was mapped.
#[derive(Debug)]
struct MappedFile {
    path: PathBuf,
    /// Where it is found if the process changes its directory.
    absolute: PathBuf,
    device: u64,
    inode: u64,
}

impl Mapping {
    /// Maps all of a file, which has at least one byte.
    #[expect(unsafe_code, reason = "a memory map")]
    pub fn of(file: &File, path: &Path) -> io::Result<Mapping> {
        // SAFETY: the map is only read. Who writes to the file changes what is read, as with every access; a file that
        // is truncated is noticed before what was read is believed.
        let map = unsafe { Mmap::map(file)? };
        Mapping::over(map, file, path)
    }

    /// The same for a file that is mapped already. `path` leads to it.
    pub fn over(map: Mmap, file: &File, path: &Path) -> io::Result<Mapping> {
        handler::install();
        let metadata = file.metadata()?;
        let page = rustix::param::page_size();
        Ok(Mapping {
            range: Range::register(map.as_ptr().addr(), map.len()),
            last_page: map.len().saturating_sub(1) / page * page,
            file: MappedFile::of(path, &metadata),
            map,
        })
    }

    /// Gives some bytes to `look`, which lie within the file, and an error if not all of them were there.
    #[inline]
    pub fn look<T>(
        &self,
        start: usize,
        len: usize,
        look: impl FnOnce(&[u8]) -> T,
    ) -> io::Result<T> {
        let guard = Guard::enter();
        let looked = look(&self.map[start..start + len]);
        self.check_inside(start + len, &guard)?;
        Ok(looked)
    }

    /// The bytes, to be read inside a [`Guard`] only, and to be believed after a [`Mapping::check`].
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// An error if anything before `end` that was read until now may not have been what the file holds.
    #[inline]
    pub fn check(&self, end: usize) -> io::Result<()> {
        self.check_inside(end, &Guard::enter())
    }

    #[inline]
    fn check_inside(&self, end: usize, guard: &Guard) -> io::Result<()> {
        self.touch_last_page(guard);
        if self.range.has_zeros() {
            return Err(self.truncated());
        }
        if end > self.last_page {
            return self.check_size();
        }
        Ok(())
    }

    /// The same for all of the file, whatever was read.
    pub fn check_all(&self) -> io::Result<()> {
        self.check(self.map.len())
    }

    #[inline]
    #[expect(unsafe_code, reason = "a read that must not be left out")]
    fn touch_last_page(&self, _inside: &Guard) {
        let last = &raw const self.map[self.last_page];
        // SAFETY: a byte of the map.
        unsafe { last.read_volatile() };
    }

    #[cold]
    fn check_size(&self) -> io::Result<()> {
        match self.file.size() {
            Some(size) if size < self.map.len() as u64 => {
                // From now on all reads fail, as they do after a fault.
                self.range.mark_zeros();
                Err(self.truncated())
            }
            _ => Ok(()),
        }
    }

    #[cold]
    fn truncated(&self) -> io::Error {
        Truncated {
            path: self.file.path.clone(),
            expected: self.map.len() as u64,
            found: self.file.size(),
        }
        .into()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.range.release();
    }
}

impl MappedFile {
    fn of(path: &Path, metadata: &Metadata) -> MappedFile {
        MappedFile {
            path: path.to_owned(),
            absolute: std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
            device: metadata.dev(),
            inode: metadata.ino(),
        }
    }

    /// Its size now. Nothing if it has lost its name: then nobody truncates it by that name.
    fn size(&self) -> Option<u64> {
        let now = std::fs::metadata(&self.absolute).ok()?;
        ((now.dev(), now.ino()) == (self.device, self.inode)).then_some(now.len())
    }
}
