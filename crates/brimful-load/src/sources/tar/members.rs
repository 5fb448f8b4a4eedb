//! The members of a tar archive, found by their headers alone.
//!
//! Read are the forms of POSIX (ustar, pax) and GNU, with their long names and large sizes. Links, devices and folders
//! hold no bytes and are passed over. Sparse members and archives of several volumes are refused: their bytes do not lie
//! in the file as they are. A header with a wrong checksum and an archive without an end are errors, since a file that
//! was cut at a bad place would lose samples in silence.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize, Serializer};

use crate::error::SourceError;
use crate::indexes::{IndexReader, IndexWriter, MAX_NAME_BYTES, torn};
use crate::opening::FileProgress;
use crate::reading::Reader;
use crate::sources::names::shown;
use crate::value::Piece;

const BLOCK: usize = 512;

/// Long names and pax records beyond this are not names.
const MAX_EXTENSION_LEN: u64 = MAX_NAME_BYTES as u64;

/// A regular file in an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) name: Vec<u8>,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

/// Calls `each` with every regular file, in order.
pub(crate) fn for_each_member(
    path: &Path,
    reader: &Reader,
    progress: &mut FileProgress<'_>,
    each: &mut dyn FnMut(Member) -> Result<(), SourceError>,
) -> Result<(), SourceError> {
    let len = reader.len();
    let mut archive = Archive {
        path,
        reader,
        at: 0,
    };
    // What pax records and long names say of the member that follows.
    let mut ahead = Ahead::default();
    loop {
        let mut block = [0; BLOCK];
        archive.read(archive.at, &mut block, "a header or the end of the archive")?;
        if block == [0; BLOCK] {
            return Ok(());
        }
        let header = archive.header(&block)?;
        let start = archive.at + BLOCK as u64;
        let size = match header.kind {
            // Folders, links and devices: a size there tells of something else.
            b'1'..=b'6' => 0,
            b'x' | b'g' | b'L' | b'K' => header.size,
            _ => ahead.size.unwrap_or(header.size),
        };
        let end = start
            .checked_add(size)
            .filter(|&end| end <= len)
            .ok_or_else(|| {
                archive.malformed(
                    format!("{size} bytes of a member"),
                    format!("{} to the end of the file", len.saturating_sub(start)),
                )
            })?;
        match header.kind {
            b'x' => ahead.take_records(&archive, &archive.extension(start, size)?)?,
            b'g' => {
                let mut global = Ahead::default();
                global.take_records(&archive, &archive.extension(start, size)?)?;
                if global != Ahead::default() {
                    return Err(archive.unsupported("a name or a size for all members"));
                }
            }
            b'L' => {
                let name = archive.extension(start, size)?;
                ahead.name = Some(until_zero(&name).to_vec());
            }
            b'K' => {}
            b'S' => return Err(archive.unsupported("a sparse member")),
            b'M' => return Err(archive.unsupported("a part of an archive of several volumes")),
            kind => {
                let name = ahead.name.take().unwrap_or(header.name);
                // Before there was a sign for folders, their names ended so.
                if matches!(kind, b'0' | b'\0' | b'7') && !name.ends_with(b"/") {
                    archive.check_name(&name)?;
                    each(Member {
                        name,
                        offset: start,
                        len: size,
                    })?;
                }
                ahead = Ahead::default();
            }
        }
        archive.at = end.next_multiple_of(BLOCK as u64);
        progress.is_at(archive.at);
    }
}

/// Puts a member into an index; `before` is the end of the one before it.
pub(crate) fn keep(keeping: &mut IndexWriter, member: &Member, before: u64) {
    keeping.entry(&IndexEntry {
        gap: member.offset - before,
        len: member.len,
        name: &member.name,
    });
}

/// A member as an index holds it.
#[derive(Debug, Serialize, Deserialize)]
struct IndexEntry<'a> {
    /// Bytes from the end of the member before it: its header, and what fills up the last block.
    gap: u64,
    len: u64,
    #[serde(serialize_with = "in_one_piece")]
    name: &'a [u8],
}

/// Serde writes a slice byte by byte unless told otherwise.
fn in_one_piece<S: Serializer>(bytes: &&[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}

/// Calls `each` with every member of an index that was kept of an archive of `len` bytes.
pub(crate) fn for_each_kept<E: From<io::Error>>(
    mut kept: IndexReader,
    len: u64,
    each: &mut dyn FnMut(Member) -> Result<(), E>,
) -> Result<(), E> {
    let mut before = 0_u64;
    while let Some(entry) = kept.entry::<IndexEntry<'_>>()? {
        let offset = before.checked_add(entry.gap);
        // There is a header before each: no more members than the archive has room for.
        let offset = offset
            .filter(|_| entry.gap >= BLOCK as u64)
            .ok_or_else(torn)?;
        let end = offset.checked_add(entry.len);
        before = end.filter(|&end| end <= len).ok_or_else(torn)?;
        each(Member {
            name: entry.name.to_vec(),
            offset,
            len: entry.len,
        })?;
    }
    Ok(())
}

struct Archive<'a> {
    path: &'a Path,
    reader: &'a Reader,
    /// Where the header is that is being read.
    at: u64,
}

struct Header {
    name: Vec<u8>,
    size: u64,
    kind: u8,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Ahead {
    name: Option<Vec<u8>>,
    size: Option<u64>,
}

impl Archive<'_> {
    fn read(&self, offset: u64, bytes: &mut [u8], what: &str) -> Result<(), SourceError> {
        let left = self.reader.len().saturating_sub(offset);
        if left < bytes.len() as u64 {
            return Err(self.malformed(what, "the end of the file"));
        }
        self.reader
            .read_to(offset, bytes, &mut Piece::default())
            .map_err(|cause| SourceError::Unreadable {
                path: self.path.to_owned(),
                cause,
            })
    }

    fn header(&self, block: &[u8; BLOCK]) -> Result<Header, SourceError> {
        let mut sum = 0;
        for (at, &byte) in block.iter().enumerate() {
            // The checksum counts as if it were spaces.
            sum += u64::from(if (148..156).contains(&at) { b' ' } else { byte });
        }
        if octal(&block[148..156]) != Some(sum) {
            let found = if self.at == 0 {
                "none"
            } else {
                "a wrong checksum"
            };
            return Err(self.malformed("a header", found));
        }
        let size = number(&block[124..136]).ok_or_else(|| {
            self.malformed("a size", format!("\"{}\"", block[124..136].escape_ascii()))
        })?;
        let mut name = until_zero(&block[..100]).to_vec();
        // Only POSIX continues names there.
        let prefix = until_zero(&block[345..500]);
        if &block[257..263] == b"ustar\0" && !prefix.is_empty() {
            name = [prefix, b"/", &name].concat();
        }
        Ok(Header {
            name,
            size,
            kind: block[156],
        })
    }

    fn extension(&self, start: u64, size: u64) -> Result<Vec<u8>, SourceError> {
        match usize::try_from(size) {
            Ok(len) if size <= MAX_EXTENSION_LEN => {
                let mut bytes = vec![0; len];
                self.read(start, &mut bytes, "a long name")?;
                Ok(bytes)
            }
            _ => Err(self.malformed(
                format!("a long name of at most {MAX_EXTENSION_LEN} bytes"),
                format!("{size} bytes"),
            )),
        }
    }

    /// Nothing is written anywhere, so no name does harm; but such an archive is not a dataset that somebody made.
    fn check_name(&self, name: &[u8]) -> Result<(), SourceError> {
        let leads_out =
            name.starts_with(b"/") || name.split(|&byte| byte == b'/').any(|part| part == b"..");
        if name.is_empty() || leads_out {
            return Err(self.malformed("a name inside the archive", format!("\"{}\"", shown(name))));
        }
        Ok(())
    }

    fn malformed(&self, expected: impl std::fmt::Display, found: impl Into<String>) -> SourceError {
        SourceError::Malformed {
            path: self.path.to_owned(),
            expected: format!("{expected} at byte {}", self.at),
            found: found.into(),
        }
    }

    fn unsupported(&self, what: &str) -> SourceError {
        SourceError::Unsupported {
            path: self.path.to_owned(),
            what: format!("{what} at byte {}", self.at),
            hint: "write the archive again with `tar --format=posix` without `--sparse`".to_owned(),
        }
    }
}

impl Ahead {
    /// Records are `LENGTH KEY=VALUE` and the end of a line; the length counts all of it.
    fn take_records(
        &mut self,
        archive: &Archive<'_>,
        mut records: &[u8],
    ) -> Result<(), SourceError> {
        let wrong = || archive.malformed("a record `LENGTH KEY=VALUE`", "another thing");
        // Zeros may fill up the last block.
        while records.first().is_some_and(|&byte| byte != 0) {
            let space = records
                .iter()
                .take(8)
                .position(|&byte| byte == b' ')
                .ok_or_else(wrong)?;
            let len = decimal(&records[..space])
                .and_then(|len| usize::try_from(len).ok())
                .ok_or_else(wrong)?;
            let (record, rest) = records.split_at_checked(len).ok_or_else(wrong)?;
            let record = record
                .get(space + 1..)
                .and_then(|record| record.strip_suffix(b"\n"))
                .ok_or_else(wrong)?;
            let equals = record
                .iter()
                .position(|&byte| byte == b'=')
                .ok_or_else(wrong)?;
            let (key, value) = (&record[..equals], &record[equals + 1..]);
            match key {
                b"path" => self.name = Some(value.to_vec()),
                b"size" => self.size = Some(decimal(value).ok_or_else(wrong)?),
                _ if key.starts_with(b"GNU.sparse.") => {
                    return Err(archive.unsupported("a sparse member"));
                }
                _ => {}
            }
            records = rest;
        }
        Ok(())
    }
}

fn until_zero(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// A size: octal digits, or where the first bit is set the other bits as a whole number.
fn number(field: &[u8]) -> Option<u64> {
    match field.split_first()? {
        (0x80, rest) => rest.iter().try_fold(0_u64, |value, &byte| {
            Some(value.checked_mul(256)? + u64::from(byte))
        }),
        _ => octal(field),
    }
}

/// Digits with spaces before and spaces or zeros after; nothing at all is zero.
fn octal(field: &[u8]) -> Option<u64> {
    let digits = until_zero(field).trim_ascii();
    digits.iter().try_fold(0_u64, |value, &byte| match byte {
        b'0'..=b'7' => Some(value.checked_mul(8)? + u64::from(byte - b'0')),
        _ => None,
    })
}

fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tar::{Builder, EntryType, Header as TarHeader};

    use super::*;
    use crate::indexes::written;
    use crate::opening::Progress;
    use crate::reading::Access;

    fn members(bytes: &[u8]) -> Result<Vec<Member>, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        let reader = Reader::open(file.path(), Access::Read).unwrap();
        let mut members = Vec::new();
        let progress = Progress::default();
        let mut progress = progress.file(reader.len());
        for_each_member(Path::new("x.tar"), &reader, &mut progress, &mut |member| {
            members.push(member);
            Ok(())
        })
        .map_err(|error| error.to_string())?;
        Ok(members)
    }

    fn append(builder: &mut Builder<Vec<u8>>, kind: EntryType, name: &str, data: &[u8]) {
        let mut header = TarHeader::new_gnu();
        header.set_entry_type(kind);
        header.set_size(data.len() as u64);
        header.set_mode(0o644);
        if kind.is_hard_link() || kind.is_symlink() {
            builder.append_link(&mut header, name, "elsewhere").unwrap();
        } else {
            builder.append_data(&mut header, name, data).unwrap();
        }
    }

    fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut builder = Builder::new(Vec::new());
        for (name, data) in files {
            append(&mut builder, EntryType::Regular, name, data);
        }
        builder.into_inner().unwrap()
    }

    /// An archive of one header, in which `change` may write, with the checksum made right.
    fn one_header(change: impl FnOnce(&mut [u8; BLOCK])) -> Vec<u8> {
        let mut header = TarHeader::new_ustar();
        header.set_path("a.txt").unwrap();
        header.set_size(0);
        change(header.as_mut_bytes());
        header.set_cksum();
        let mut bytes = header.as_bytes().to_vec();
        bytes.resize(3 * BLOCK, 0);
        bytes
    }

    fn check_refused(bytes: &[u8], message: &str) {
        assert_eq!(members(bytes).unwrap_err(), format!("x.tar: {message}"));
    }

    #[test]
    fn files_are_found_where_they_lie() {
        let bytes = archive(&[("a.txt", b"first"), ("b/c.jpg", &[7; 600]), ("empty", b"")]);
        let found = members(&bytes).unwrap();
        let names: Vec<_> = found.iter().map(|member| &member.name[..]).collect();
        assert_eq!(names, [&b"a.txt"[..], b"b/c.jpg", b"empty"]);
        for (member, data) in found.iter().zip([&b"first"[..], &[7; 600], b""]) {
            let start = usize::try_from(member.offset).unwrap();
            assert_eq!(&bytes[start..start + data.len()], data);
            assert_eq!(member.len, data.len() as u64);
        }
    }

    #[test]
    fn a_flipped_bit_of_a_header_is_an_error_or_changes_nothing() {
        let bytes = archive(&[("a.txt", b"first"), ("b/c.jpg", &[7; 600])]);
        let sound = members(&bytes).unwrap();
        // Two headers, and the zeros that end an archive.
        for start in [0, 2 * BLOCK, 5 * BLOCK] {
            for at in 0..BLOCK {
                let mut flipped = bytes.clone();
                flipped[start + at] ^= 1 << (at % 8);
                match members(&flipped) {
                    Ok(found) => assert_eq!(found, sound, "byte {at} of the block at {start}"),
                    Err(error) => assert!(error.contains("expected a header"), "{error}"),
                }
            }
        }
    }

    #[test]
    fn long_names_of_both_kinds_are_read() {
        let long = format!("{}/x.jpg", "folder/".repeat(40));
        let found = members(&archive(&[(&long, b"data")])).unwrap();
        assert_eq!(found[0].name, long.as_bytes());

        let mut builder = Builder::new(Vec::new());
        builder
            .append_pax_extensions([
                ("mtime", &b"1.5"[..]),
                ("path", long.as_bytes()),
                ("size", b"4"),
            ])
            .unwrap();
        append(&mut builder, EntryType::Regular, "short", b"data");
        append(&mut builder, EntryType::Regular, "next", b"");
        let found = members(&builder.into_inner().unwrap()).unwrap();
        assert_eq!((&found[0].name[..], found[0].len), (long.as_bytes(), 4));
        assert_eq!(found[1].name, b"next");
    }

    #[test]
    fn a_name_may_go_on_before_itself() {
        let bytes = one_header(|header| header[345..350].copy_from_slice(b"front"));
        assert_eq!(members(&bytes).unwrap()[0].name, b"front/a.txt");
    }

    #[test]
    fn links_folders_and_devices_are_passed_over() {
        let mut builder = Builder::new(Vec::new());
        for kind in [
            EntryType::Link,
            EntryType::Symlink,
            EntryType::Char,
            EntryType::Block,
            EntryType::Directory,
            EntryType::Fifo,
        ] {
            append(&mut builder, kind, "odd", b"");
        }
        append(&mut builder, EntryType::Regular, "last", b"x");
        let found = members(&builder.into_inner().unwrap()).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].name, b"last");
    }

    #[test]
    fn many_small_records_take_no_time_to_speak_of() {
        let records = "5 a=\n".repeat((1 << 20) / 5);
        let mut builder = Builder::new(Vec::new());
        append(&mut builder, EntryType::XHeader, "pax", records.as_bytes());
        append(&mut builder, EntryType::Regular, "last", b"x");
        let bytes = builder.into_inner().unwrap();
        let began = std::time::Instant::now();
        assert_eq!(members(&bytes).unwrap()[0].name, b"last");
        assert!(began.elapsed().as_secs() < 5, "{:?}", began.elapsed());
    }

    #[test]
    fn sparse_members_and_volumes_are_refused() {
        check_refused(
            &one_header(|header| header[156] = b'S'),
            "a sparse member at byte 0 is not supported",
        );
        check_refused(
            &one_header(|header| header[156] = b'M'),
            "a part of an archive of several volumes at byte 0 is not supported",
        );
        let mut builder = Builder::new(Vec::new());
        builder
            .append_pax_extensions([("GNU.sparse.major", &b"1"[..])])
            .unwrap();
        append(&mut builder, EntryType::Regular, "a", b"");
        check_refused(
            &builder.into_inner().unwrap(),
            "a sparse member at byte 0 is not supported",
        );
    }

    #[test]
    fn names_that_lead_out_are_refused() {
        for name in ["/etc/passwd", "../up.jpg", "a/../../b"] {
            let bytes = one_header(|header| {
                header[..100].fill(0);
                header[..name.len()].copy_from_slice(name.as_bytes());
            });
            check_refused(
                &bytes,
                &format!("expected a name inside the archive at byte 0, found \"{name}\""),
            );
        }
    }

    #[test]
    fn sizes_beyond_the_file_are_refused() {
        let huge = |field: [u8; 12]| one_header(|header| header[124..136].copy_from_slice(&field));
        check_refused(
            &huge(*b"77777777777\0"),
            "expected 8589934591 bytes of a member at byte 0, found 1024 to the end of the file",
        );
        let mut binary = [0xff; 12];
        binary[0] = 0x80;
        assert!(
            members(&huge(binary))
                .unwrap_err()
                .contains("expected a size at byte 0")
        );
        binary[1..4].fill(0);
        assert!(
            members(&huge(binary))
                .unwrap_err()
                .contains("18446744073709551615 bytes of a member")
        );
        let long = one_header(|header| {
            header[156] = b'L';
            header[124..136].copy_from_slice(b"00010000000\0");
        });
        let long = [&long[..BLOCK], &vec![b'a'; 3 << 20]].concat();
        assert!(
            members(&long)
                .unwrap_err()
                .contains("expected a long name of at most 1048576 bytes")
        );
    }

    #[test]
    fn an_archive_that_was_cut_is_an_error() {
        let bytes = archive(&[("a.txt", b"first"), ("b.txt", b"second")]);
        assert_eq!(bytes.len(), 6 * BLOCK);
        check_refused(
            &bytes[..4 * BLOCK],
            "expected a header or the end of the archive at byte 2048, found the end of the file",
        );
        check_refused(
            &bytes[..3 * BLOCK],
            "expected 6 bytes of a member at byte 1024, found 0 to the end of the file",
        );
        check_refused(
            &[],
            "expected a header or the end of the archive at byte 0, found the end of the file",
        );
        check_refused(&[b'x'; 2000], "expected a header at byte 0, found none");
    }

    proptest! {
        #[test]
        fn an_index_that_lies_gives_members_inside_of_the_file(
            steps in prop::collection::vec(
                (prop_oneof![0_u64..2000, any::<u64>()], prop_oneof![0_u64..2000, any::<u64>()], ".{0,9}"), 0..20,
            ),
            len in 0_u64..20_000,
        ) {
            let kept = written(|keeping| {
                for (gap, len, name) in &steps {
                    keeping.entry(&IndexEntry { gap: *gap, len: *len, name: name.as_bytes() });
                }
            });
            let (mut before, mut found) = (0, 0);
            let passed = for_each_kept(kept, len, &mut |member| {
                assert!(member.offset >= before + BLOCK as u64);
                before = member.offset + member.len;
                assert!(before <= len);
                found += 1;
                Ok::<_, io::Error>(())
            });
            prop_assert!(passed.is_err() || found == steps.len());
        }

        #[test]
        fn damaged_archives_are_errors_or_members_inside_of_the_file(
            cut in 0_usize..7000, flips in prop::collection::vec((0_usize..7000, any::<u8>()), 0..4), mend: bool,
        ) {
            let mut builder = Builder::new(Vec::new());
            builder.append_pax_extensions([("path", &b"pax.txt"[..]), ("size", b"5")]).unwrap();
            append(&mut builder, EntryType::Regular, "a.txt", b"first");
            append(&mut builder, EntryType::Regular, &"long/".repeat(30), b"second");
            append(&mut builder, EntryType::Symlink, "link", b"");
            let mut bytes = builder.into_inner().unwrap();
            for (at, byte) in flips {
                let at = at % bytes.len();
                bytes[at] = byte;
                let block = at / BLOCK * BLOCK;
                if mend {
                    let mut header = TarHeader::new_old();
                    header.as_mut_bytes().copy_from_slice(&bytes[block..block + BLOCK]);
                    header.set_cksum();
                    bytes[block..block + BLOCK].copy_from_slice(header.as_bytes());
                }
            }
            bytes.truncate(bytes.len() - cut % 3 * (cut / 4));
            for member in members(&bytes).unwrap_or_default() {
                prop_assert!(member.offset + member.len <= bytes.len() as u64);
            }
        }
    }
}
