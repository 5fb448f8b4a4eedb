//! Verifies the checksums of fixed and extensible arrays, the chunk indexes whose blocks `hdf5-reader` reads without.
//!
//! With a flipped bit in such a block, the address of a chunk is another one, and samples come from the bytes there.

use hdf5_reader::checksum::jenkins_lookup3;
use hdf5_reader::error::Error;
use hdf5_reader::io::Cursor;
use hdf5_reader::{Storage, StorageBuffer};

/// Bytes of a checksum, which follows the bytes that it covers.
const CHECKSUM: u64 = 4;
/// Bytes of a signature, the version and the kind of the array, which every block begins with.
const SIGNATURE: u64 = 6;

/// An index in a file.
#[derive(Clone, Copy)]
pub(super) struct IndexLocation<'a> {
    pub(super) storage: &'a dyn Storage,
    /// Of its header.
    pub(super) address: u64,
    /// Bytes of an address and of a length in this file.
    pub(super) offset_size: u8,
    pub(super) length_size: u8,
}

impl IndexLocation<'_> {
    pub(super) fn check_fixed_array(self) -> Result<(), Error> {
        let header_len = SIGNATURE + 2 + u64::from(self.length_size) + self.offset_len() + CHECKSUM;
        let header = self.verified(self.address, header_len)?;
        let mut fields = after(&header, SIGNATURE);
        let entry = u64::from(fields.read_u8()?);
        let page_bits = fields.read_u8()?;
        let n_entries = fields.read_length(self.length_size)?;
        let Some(block) = self.address_in(&mut fields)? else {
            return Ok(());
        };
        let prefix = SIGNATURE + self.offset_len();
        if n_entries <= page_len(page_bits) {
            let len = prefix.saturating_add(run_len(n_entries, entry));
            return self.verified(block, len).map(drop);
        }
        let per_page = page_len(page_bits);
        let n_pages = n_entries.div_ceil(per_page);
        let bitmap_len = n_pages.div_ceil(8);
        let written = self.verified(block, prefix + bitmap_len + CHECKSUM)?;
        let mut at = block.saturating_add(prefix + bitmap_len + CHECKSUM);
        for page in 0..n_pages {
            let len = run_len(per_page.min(n_entries - page * per_page), entry);
            if is_set(&written, prefix, page) {
                self.verified(at, len)?;
            }
            at = at.saturating_add(len);
        }
        Ok(())
    }

    pub(super) fn check_extensible_array(self) -> Result<(), Error> {
        let addresses = SIGNATURE + 6 + 6 * u64::from(self.length_size);
        let header_len = addresses + self.offset_len() + CHECKSUM;
        let header = self.verified(self.address, header_len)?;
        let mut fields = after(&header, SIGNATURE);
        let entry = u64::from(fields.read_u8()?);
        let bits = fields.read_u8()?;
        let n_inline = u64::from(fields.read_u8()?);
        let min_entries = fields.read_u8()?;
        let min_pointers = fields.read_u8()?;
        let array = ExtensibleArray {
            location: self,
            entry,
            prefix: SIGNATURE + self.offset_len() + u64::from(bits.div_ceil(8)),
            per_page: page_len(fields.read_u8()?),
        };
        let Some(index_block) = self.address_in(&mut after(&header, addresses))? else {
            return Ok(());
        };
        let is_sound =
            bits <= 64 && min_entries.is_power_of_two() && min_pointers.is_power_of_two();
        let n_supers = u32::from(bits).checked_sub(min_entries.trailing_zeros());
        let Some(n_supers) = n_supers.filter(|_| is_sound).map(|n| n + 1) else {
            // The reader refuses them.
            return Ok(());
        };
        // A super block is a number of data blocks with a number of entries each. Those of the first super blocks are found
        // from here, those of the others from a secondary block.
        let supers = |range: std::ops::Range<u32>| {
            range.map(|n| (1_u64 << (n / 2), u64::from(min_entries) << n.div_ceil(2)))
        };
        let n_direct = (2 * min_pointers.trailing_zeros()).min(n_supers);
        let n_pointers = 2 * (u64::from(min_pointers) - 1);
        let pointers = SIGNATURE + self.offset_len() + n_inline * entry;
        let len =
            pointers + (n_pointers + u64::from(n_supers - n_direct)) * self.offset_len() + CHECKSUM;
        let block = self.verified(index_block, len)?;

        let mut fields = after(&block, pointers);
        let direct = supers(0..n_direct).flat_map(|(n_blocks, n_entries)| {
            std::iter::repeat_n(n_entries, usize::try_from(n_blocks).unwrap_or(0))
        });
        for n_entries in direct {
            if let Some(address) = self.address_in(&mut fields)? {
                array.check_data_block(address, n_entries, |_| false)?;
            }
        }
        let mut fields = after(&block, pointers + n_pointers * self.offset_len());
        for (n_blocks, n_entries) in supers(n_direct..n_supers) {
            if let Some(address) = self.address_in(&mut fields)? {
                array.check_secondary_block(address, n_blocks, n_entries)?;
            }
        }
        Ok(())
    }

    /// Bytes that end with their checksum.
    fn verified(self, address: u64, len: u64) -> Result<StorageBuffer, Error> {
        let bytes = self
            .storage
            .read_range(address, usize::try_from(len).unwrap_or(usize::MAX))?;
        if let Some((covered, stored)) = bytes.split_last_chunk::<4>() {
            let (expected, actual) = (u32::from_le_bytes(*stored), jenkins_lookup3(covered));
            if expected != actual {
                return Err(Error::ChecksumMismatch { expected, actual });
            }
        }
        Ok(bytes)
    }

    /// The next address; nothing where there is no block yet.
    fn address_in(self, fields: &mut Cursor<'_>) -> Result<Option<u64>, Error> {
        let address = fields.read_offset(self.offset_size)?;
        Ok((!Cursor::is_undefined_offset(address, self.offset_size)).then_some(address))
    }

    fn offset_len(self) -> u64 {
        u64::from(self.offset_size)
    }
}

/// What all blocks of an extensible array have in common.
struct ExtensibleArray<'a> {
    location: IndexLocation<'a>,
    /// Bytes of an entry.
    entry: u64,
    /// Bytes before the entries of a block.
    prefix: u64,
    per_page: u64,
}

impl ExtensibleArray<'_> {
    fn check_secondary_block(
        &self,
        address: u64,
        n_blocks: u64,
        n_entries: u64,
    ) -> Result<(), Error> {
        let n_pages = match n_entries {
            n if n <= self.per_page => 0,
            n => n.div_ceil(self.per_page),
        };
        let bitmap_len = n_blocks.saturating_mul(n_pages.div_ceil(8));
        let pointers = self.prefix.saturating_add(bitmap_len);
        let len = pointers
            .saturating_add(n_blocks.saturating_mul(self.location.offset_len()))
            .saturating_add(CHECKSUM);
        let block = self.location.verified(address, len)?;
        let mut fields = after(&block, pointers);
        for number in 0..n_blocks {
            if let Some(address) = self.location.address_in(&mut fields)? {
                self.check_data_block(address, n_entries, |page| {
                    is_set(&block, self.prefix, number * n_pages + page)
                })?;
            }
        }
        Ok(())
    }

    /// Of a block in pages, those that were written have a checksum each.
    fn check_data_block(
        &self,
        address: u64,
        n_entries: u64,
        is_written: impl Fn(u64) -> bool,
    ) -> Result<(), Error> {
        if n_entries <= self.per_page {
            let len = self.prefix.saturating_add(run_len(n_entries, self.entry));
            return self.location.verified(address, len).map(drop);
        }
        self.location.verified(address, self.prefix + CHECKSUM)?;
        let first = address.saturating_add(self.prefix + CHECKSUM);
        let len = run_len(self.per_page, self.entry);
        for page in (0..n_entries.div_ceil(self.per_page)).filter(|&page| is_written(page)) {
            let at = first.saturating_add(page.saturating_mul(len));
            self.location.verified(at, len)?;
        }
        Ok(())
    }
}

fn after(block: &[u8], offset: u64) -> Cursor<'_> {
    let mut fields = Cursor::new(block);
    fields.set_position(offset);
    fields
}

/// Entries of a page: all of them where there are no pages.
fn page_len(bits: u8) -> u64 {
    match bits {
        0 => u64::MAX,
        bits => 1_u64.checked_shl(u32::from(bits)).unwrap_or(u64::MAX),
    }
}

/// Bytes of entries and of their checksum.
fn run_len(n_entries: u64, entry: u64) -> u64 {
    n_entries.saturating_mul(entry).saturating_add(CHECKSUM)
}

/// A bit of a bitmap that begins at `start` of a block. The first one is the most significant of its byte.
fn is_set(block: &[u8], start: u64, bit: u64) -> bool {
    let byte = usize::try_from(start.saturating_add(bit / 8)).unwrap_or(usize::MAX);
    block
        .get(byte)
        .is_some_and(|byte| byte & (0x80 >> (bit % 8)) != 0)
}
