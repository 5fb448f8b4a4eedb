//! A part of a file that is read by position.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// What is sampled at once, in bytes.
pub(super) const BLOCK: usize = 4096;

/// A file, or what one archive takes of a file that holds several.
#[derive(Clone, Copy, Debug)]
pub(super) struct Region<'a> {
    file: &'a File,
    start: u64,
    length: u64,
}

impl<'a> Region<'a> {
    pub(super) fn whole(file: &'a File, length: u64) -> Region<'a> {
        Region {
            file,
            start: 0,
            length,
        }
    }

    /// The part from `start` on, where the region holds all of it.
    pub(super) fn part(&self, start: u64, length: u64) -> Option<Region<'a>> {
        let end = start.checked_add(length)?;
        (end <= self.length).then_some(Region {
            file: self.file,
            start: self.start + start,
            length,
        })
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }

    pub(super) fn read_exact_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        let is_inside = at
            .checked_add(bytes.len() as u64)
            .is_some_and(|end| end <= self.length);
        if !is_inside {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.file.read_exact_at(bytes, self.start + at)
    }

    /// Everything in it, where that is at most `max` bytes.
    pub(super) fn read_all(&self, max: u64) -> Option<Vec<u8>> {
        let length = usize::try_from(self.length).ok()?;
        if self.length > max {
            return None;
        }
        let mut bytes = vec![0; length];
        self.read_exact_at(&mut bytes, 0).ok()?;
        Some(bytes)
    }

    pub(super) fn n_blocks(&self) -> u64 {
        self.length.div_ceil(BLOCK as u64)
    }

    /// One block by its number; the last one may be shorter.
    pub(super) fn read_block<'b>(
        &self,
        block: u64,
        bytes: &'b mut [u8; BLOCK],
    ) -> Option<&'b [u8]> {
        let start = block.checked_mul(BLOCK as u64)?;
        let left = self.length.checked_sub(start)?;
        let length = usize::try_from(left).map_or(BLOCK, |left| left.min(BLOCK));
        let bytes = bytes.get_mut(..length)?;
        self.read_exact_at(bytes, start).ok()?;
        Some(bytes)
    }
}
