//! What `torch.save` writes: a zip archive whose list of contents stands at its end.
//!
//! Whole means: the list can be read, each of its entries lies inside the file behind a header of its own, and one of
//! them is `data.pkl`. Checksums are not computed: that would read every byte of the model.
//!
//! `torch.save` compresses nothing, so an entry can be read in place; a compressed one is never unpacked.

use std::ops::Range;

use crate::checkpoints::checkpoint::Incomplete;
use crate::checkpoints::region::Region;

const END: u32 = 0x0605_4b50;
const END_64: u32 = 0x0606_4b50;
const END_64_LOCATOR: u32 = 0x0706_4b50;
const LISTED: u32 = 0x0201_4b50;
const LOCAL: u32 = 0x0403_4b50;

const END_LENGTH: usize = 22;
/// Of the header before an entry, without its name and extra fields.
const LOCAL_LENGTH: usize = 30;
/// The flag of an entry that is encrypted.
const ENCRYPTED: u64 = 1;
const PICKLE: &str = "data.pkl";
/// A comment at the end may be this long.
const MAX_COMMENT: usize = 0xffff;
/// A model of a million tensors has a list of some 100 MB.
const MAX_LIST: u64 = 256 << 20;
/// Headers that are looked at. A hole in a file is rarely one header wide.
const MAX_HEADERS: usize = 20_000;

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

/// The list of contents of an archive.
pub(super) struct Archive<'a> {
    region: Region<'a>,
    /// Where the list is, and so where the last entry ends at the latest.
    list_start: u64,
    list: Vec<u8>,
    entries: Vec<Entry>,
}

/// One file in the archive.
pub(super) struct Entry {
    name: Range<usize>,
    /// Where its own header is.
    offset: u64,
    packed: u64,
    /// Neither compressed nor encrypted.
    is_plain: bool,
}

impl<'a> Archive<'a> {
    /// Reads the list, and holds that each entry lies before it.
    pub(super) fn open(region: Region<'a>) -> Result<Archive<'a>, Incomplete> {
        let directory = find_directory(region)?;
        if directory.length > MAX_LIST {
            return Err(Incomplete::Damaged("its list of contents is too long"));
        }
        let list_end = directory.start.checked_add(directory.length);
        if list_end.is_none_or(|end| end > directory.end) {
            return Err(Incomplete::Damaged("its list of contents is not inside"));
        }
        let size = usize::try_from(directory.length)
            .map_err(|_| Incomplete::Damaged("its list of contents is too long"))?;
        let mut list = vec![0; size];
        region.read_exact_at(&mut list, directory.start)?;
        let entries = entries(&directory, &list)?;
        Ok(Archive {
            region,
            list_start: directory.start,
            list,
            entries,
        })
    }

    /// Whether each entry begins with a header of its own, and one of them is `data.pkl`.
    fn check(&self) -> Result<(), Incomplete> {
        for entry in self.entries.iter().take(MAX_HEADERS) {
            let mut header = [0; 4];
            self.region.read_exact_at(&mut header, entry.offset)?;
            if u32::from_le_bytes(header) != LOCAL {
                return Err(Incomplete::Damaged("an entry is not where it should be"));
            }
        }
        match self.pickle_entry() {
            Some(_) => Ok(()),
            None => Err(Incomplete::Missing(PICKLE.into())),
        }
    }

    fn name(&self, entry: &Entry) -> &[u8] {
        self.list.get(entry.name.clone()).unwrap_or_default()
    }

    fn pickle_entry(&self) -> Option<&Entry> {
        self.entries.iter().find(|entry| {
            let name = self.name(entry);
            name.strip_suffix(PICKLE.as_bytes())
                .is_some_and(|root| root.is_empty() || root.ends_with(b"/"))
        })
    }

    /// The bytes of `data.pkl`, where it is not compressed and at most `max` long.
    pub(super) fn pickle(&self, max: u64) -> Option<Vec<u8>> {
        let entry = self.pickle_entry()?;
        self.data(entry)?.read_all(max)
    }

    /// The entries that hold tensors, each with its key: `archive/data/0` has `0`.
    pub(super) fn storages(&self) -> impl Iterator<Item = (&[u8], &Entry)> {
        let root = self
            .pickle_entry()
            .and_then(|entry| self.name(entry).strip_suffix(PICKLE.as_bytes()));
        self.entries.iter().filter_map(move |entry| {
            let inner = self.name(entry).strip_prefix(root?)?;
            let key = inner.strip_prefix(b"data/")?;
            (entry.packed > 0).then_some((key, entry))
        })
    }

    /// Where an entry's bytes are. Nothing where they are compressed, or its header is not as expected.
    pub(super) fn data(&self, entry: &Entry) -> Option<Region<'a>> {
        let mut header = [0; LOCAL_LENGTH];
        self.region.read_exact_at(&mut header, entry.offset).ok()?;
        if !entry.is_plain || number(&header, 0, 4) != Some(u64::from(LOCAL)) {
            return None;
        }
        let (name, extra) = (number(&header, 26, 2)?, number(&header, 28, 2)?);
        let start = entry
            .offset
            .checked_add(LOCAL_LENGTH as u64 + name + extra)?;
        let end = start.checked_add(entry.packed)?;
        if end > self.list_start {
            return None;
        }
        self.region.part(start, entry.packed)
    }
}

/// Whether an archive is whole.
pub(super) fn check(region: Region<'_>) -> Result<(), Incomplete> {
    Archive::open(region)?.check()
}

fn find_directory(file: Region<'_>) -> Result<Directory, Incomplete> {
    let length = file.length();
    let no_end = Incomplete::CutShort("the list of contents at its end is missing");
    let window = length.min((MAX_COMMENT + END_LENGTH) as u64);
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

fn entries(directory: &Directory, list: &[u8]) -> Result<Vec<Entry>, Incomplete> {
    let damaged = || Incomplete::Damaged("its list of contents cannot be read");
    let mut at = 0;
    let mut entries = Vec::new();
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
            .checked_add(LOCAL_LENGTH as u64)
            .and_then(|data| data.checked_add(sizes.packed))
            .is_some_and(|end| end <= directory.start);
        if !inside {
            return Err(Incomplete::CutShort("an entry is not inside"));
        }
        let (flags, method) = (field(8, 2), field(10, 2));
        entries.push(Entry {
            name: name_at..extra_at,
            offset: sizes.offset,
            packed: sizes.packed,
            is_plain: method == Some(0)
                && flags.is_some_and(|flags| flags & ENCRYPTED == 0)
                && sizes.packed == sizes.unpacked,
        });
        at = next;
    }
    if entries.len() as u64 != directory.n_entries {
        return Err(Incomplete::Damaged("entries are missing in its list"));
    }
    Ok(entries)
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
