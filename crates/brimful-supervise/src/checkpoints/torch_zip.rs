//! What `torch.save` writes: a zip archive whose list of contents stands at its end.
//!
//! Whole means: the list can be read, each of its entries lies inside of the file behind a header of its own, and one of
//! them is `data.pkl`. Checksums are not computed: that would read every byte of the model.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::checkpoints::Incomplete;

const END: u32 = 0x0605_4b50;
const END_64: u32 = 0x0606_4b50;
const END_64_LOCATOR: u32 = 0x0706_4b50;
const LISTED: u32 = 0x0201_4b50;
const LOCAL: u32 = 0x0403_4b50;

const END_LENGTH: usize = 22;
/// A comment at the end may be this long.
const LONGEST_COMMENT: usize = 0xffff;
/// A model of a million tensors has a list of some 100 MB.
const LONGEST_LIST: u64 = 256 << 20;
/// Headers that are looked at. A hole in a file is rarely one header wide.
const MOST_HEADERS: usize = 20_000;

/// How every entry of a zip file begins, and so every file that `torch.save` writes.
pub(super) const START: [u8; 4] = *b"PK\x03\x04";

/// Where the list of contents is.
struct Directory {
    n_entries: u64,
    start: u64,
    length: u64,
    /// Where what ends the archive begins.
    end: u64,
}

pub(super) fn check(file: &File, length: u64) -> Result<(), Incomplete> {
    let directory = find_directory(file, length)?;
    if directory.length > LONGEST_LIST {
        return Err(Incomplete::Damaged("its list of contents is too long"));
    }
    let list_end = directory.start.checked_add(directory.length);
    if list_end.is_none_or(|end| end > directory.end) {
        return Err(Incomplete::Damaged("its list of contents is not inside"));
    }
    let size = usize::try_from(directory.length)
        .map_err(|_| Incomplete::Damaged("its list of contents is too long"))?;
    let mut list = vec![0; size];
    file.read_exact_at(&mut list, directory.start)?;
    check_entries(file, &directory, &list)
}

fn find_directory(file: &File, length: u64) -> Result<Directory, Incomplete> {
    let no_end = Incomplete::CutShort("the list of contents at its end is missing");
    let window = length.min((LONGEST_COMMENT + END_LENGTH) as u64);
    let start = length - window;
    let mut tail = vec![0; usize::try_from(window).unwrap_or(0)];
    file.read_exact_at(&mut tail, start)?;
    // The last mark whose comment ends with the file.
    let at = (0..tail.len().saturating_sub(END_LENGTH - 1))
        .rev()
        .find(|at| {
            number(&tail, *at, 4) == Some(u64::from(END))
                && number(&tail, at + 20, 2)
                    .is_some_and(|comment| *at as u64 + END_LENGTH as u64 + comment == window)
        })
        .ok_or(no_end)?;
    let field = |offset: usize, width: usize| number(&tail, at + offset, width).unwrap_or(0);
    let end = start + at as u64;
    let plain = Directory {
        n_entries: field(10, 2),
        length: field(12, 4),
        start: field(16, 4),
        end,
    };
    // Large archives, and all of PyTorch's, have a second ending with wider fields before it.
    let mut locator = [0; 20];
    let Some(locator_at) = end.checked_sub(20) else {
        return Ok(plain);
    };
    file.read_exact_at(&mut locator, locator_at)?;
    if number(&locator, 0, 4) != Some(u64::from(END_64_LOCATOR)) {
        return Ok(plain);
    }
    let damaged = Incomplete::Damaged("its wide ending is not inside");
    let wide_at = number(&locator, 8, 8)
        .filter(|at| at.checked_add(56).is_some_and(|after| after <= locator_at))
        .ok_or_else(|| damaged.clone())?;
    let mut wide = [0; 56];
    file.read_exact_at(&mut wide, wide_at)?;
    if number(&wide, 0, 4) != Some(u64::from(END_64)) {
        return Err(damaged);
    }
    Ok(Directory {
        n_entries: number(&wide, 32, 8).unwrap_or(0),
        length: number(&wide, 40, 8).unwrap_or(0),
        start: number(&wide, 48, 8).unwrap_or(0),
        end: wide_at,
    })
}

fn check_entries(file: &File, directory: &Directory, list: &[u8]) -> Result<(), Incomplete> {
    let damaged = || Incomplete::Damaged("its list of contents cannot be read");
    let mut at = 0;
    let mut n_entries = 0;
    let mut has_pickle = false;
    while at < list.len() {
        let field = |offset: usize, width: usize| number(list, at + offset, width);
        if field(0, 4) != Some(u64::from(LISTED)) {
            return Err(damaged());
        }
        let width = |offset: usize| {
            let width = field(offset, 2).ok_or_else(damaged)?;
            usize::try_from(width).map_err(|_| damaged())
        };
        let (name, extra, comment) = (width(28)?, width(30)?, width(32)?);
        let name_at = at + 46;
        let (extra_at, next) = (name_at + name, name_at + name + extra + comment);
        let name = list.get(name_at..extra_at).ok_or_else(damaged)?;
        let extra = list.get(extra_at..extra_at + extra).ok_or_else(damaged)?;
        if next > list.len() {
            return Err(damaged());
        }
        let sizes = Sizes {
            packed: field(20, 4).ok_or_else(damaged)?,
            unpacked: field(24, 4).ok_or_else(damaged)?,
            offset: field(42, 4).ok_or_else(damaged)?,
        }
        .widened(extra)
        .ok_or_else(damaged)?;
        let inside = sizes
            .offset
            .checked_add(30)
            .and_then(|data| data.checked_add(sizes.packed))
            .is_some_and(|end| end <= directory.start);
        if !inside {
            return Err(Incomplete::CutShort("an entry is not inside"));
        }
        if n_entries < MOST_HEADERS {
            let mut header = [0; 4];
            file.read_exact_at(&mut header, sizes.offset)?;
            if u32::from_le_bytes(header) != LOCAL {
                return Err(Incomplete::Damaged("an entry is not where it should be"));
            }
        }
        has_pickle |= name == b"data.pkl" || name.ends_with(b"/data.pkl");
        n_entries += 1;
        at = next;
    }
    if n_entries as u64 != directory.n_entries {
        return Err(Incomplete::Damaged("entries are missing in its list"));
    }
    if !has_pickle {
        return Err(Incomplete::Missing("data.pkl".into()));
    }
    Ok(())
}

struct Sizes {
    packed: u64,
    unpacked: u64,
    offset: u64,
}

impl Sizes {
    /// Those of 4 bytes that are all ones stand in an extra field of 8, in this order.
    fn widened(mut self, extra: &[u8]) -> Option<Sizes> {
        const NARROW: u64 = 0xffff_ffff;
        let mut wanted: Vec<&mut u64> = [&mut self.unpacked, &mut self.packed, &mut self.offset]
            .into_iter()
            .filter(|size| **size == NARROW)
            .collect();
        if wanted.is_empty() {
            return Some(self);
        }
        let mut at = 0;
        while at + 4 <= extra.len() {
            let width = usize::try_from(number(extra, at + 2, 2)?).ok()?;
            if number(extra, at, 2)? == 1 {
                let field = extra.get(at + 4..at + 4 + width)?;
                for (idx, size) in wanted.iter_mut().enumerate() {
                    **size = number(field, idx * 8, 8)?;
                }
                return Some(self);
            }
            at += 4 + width;
        }
        None
    }
}

/// A little-endian number of so many bytes.
fn number(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(width)?)?;
    Some(
        bytes
            .iter()
            .rev()
            .fold(0, |number, byte| number << 8 | u64::from(*byte)),
    )
}
