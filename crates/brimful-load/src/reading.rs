//! How the bytes of a file are read: mapped, read, read past the page cache, or asked for at an object store.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use brimful::units::Bytes;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::buffer::{Buffer, PAGE};
use crate::network;
use crate::remote::{self, Object};
use crate::value::Piece;
use brimful_mapping::Mapping;
use brimful_mapping::Truncated;

/// How bytes come from a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Through a memory map: no copy, and the page cache keeps what it can.
    Mapped,
    /// Into memory of ours, through the page cache.
    Read,
    /// Into memory of ours, past the page cache.
    Direct,
    /// Into memory of ours, by requests to an object store.
    Remote,
}

/// An access and the reason for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    pub access: Access,
    pub reason: String,
}

impl Choice {
    /// Opens a file as it was chosen. Where its file system cannot read past the page cache, the choice becomes what is
    /// done in fact.
    pub fn open(&mut self, path: &Path) -> io::Result<Reader> {
        let reader = Reader::open(path, self.access)?;
        if self.access == Access::Direct && reader.access() != Access::Direct {
            self.access = reader.access();
            self.reason += ", but the file system reads only through the page cache";
        }
        Ok(reader)
    }
}

/// How to read `data` bytes where `headroom` is left for them and the loader's own; nothing where that is not known.
///
/// Under a tight limit a map makes the kernel reclaim pages as fast as they are touched: measured 6 to 12 times slower
/// than direct reads (3.1 GB under 768 MB, Linux 6, November 2026). Where the data fits, the map costs least.
pub fn choose(data: Bytes, headroom: Option<Bytes>) -> Choice {
    match headroom {
        Some(headroom) if data > headroom => Choice {
            access: Access::Direct,
            reason: format!(
                "{data} of data do not fit into the {headroom} that are free for them, and a map would make the kernel \
                 reclaim pages all the time"
            ),
        },
        Some(headroom) => Choice {
            access: Access::Mapped,
            reason: format!("{data} of data fit into the {headroom} that are free for them"),
        },
        None => Choice {
            access: Access::Mapped,
            reason: format!("no limit below {data} of data is known"),
        },
    }
}

/// The same for files of which some may be objects in a store, as [`remote::is_remote`] tells; `data` counts the others.
pub fn choose_among<'a>(
    paths: impl IntoIterator<Item = &'a Path> + Clone,
    data: Bytes,
    headroom: Option<Bytes>,
) -> Choice {
    let is_remote = |path: &&Path| remote::is_remote(path);
    if let Some(path) = paths.clone().into_iter().find(is_remote) {
        return Choice {
            access: Access::Remote,
            reason: format!(
                "{} is in an object store, and every read of more than a few bytes is a request",
                remote::shown(path).display()
            ),
        };
    }
    let n_files = paths.clone().into_iter().count() as u64;
    not_mapped_on_network(choose(data, headroom), n_files, || network::first_of(paths))
}

/// A file that is on another machine is read where it would have been mapped: see [`network`].
fn not_mapped_on_network<'a>(
    choice: Choice,
    n_files: u64,
    on_network: impl FnOnce() -> Option<(&'a Path, &'static str)>,
) -> Choice {
    if choice.access != Access::Mapped {
        return choice;
    }
    let Some((path, name)) = on_network() else {
        return choice;
    };
    let reason = format!(
        "{}, but {} is on a network file system ({name})",
        choice.reason,
        path.display()
    );
    let max_files = network::max_open_files();
    if n_files > max_files {
        return Choice {
            access: Access::Mapped,
            reason: format!(
                "{reason}, where files are read instead; these are mapped all the same, since {n_files} are more than \
                 {max_files} that can be kept open (half of `ulimit -n`)"
            ),
        };
    }
    Choice {
        access: Access::Read,
        reason: format!("{reason}, where a map would not report errors"),
    }
}

/// One file, read by any number of threads at once.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    len: u64,
    backing: Backing,
    /// None of what is no file.
    stamp: Option<Stamp>,
}

/// What tells a file from others, and from itself before it was changed.
#[derive(Clone, Copy, Debug)]
struct Stamp {
    device: u64,
    number: u64,
    /// Seconds and billionths.
    written: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Stamp {
        Stamp {
            device: metadata.dev(),
            number: metadata.ino(),
            written: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

#[derive(Debug)]
enum Backing {
    Mapped(Arc<Mapping>),
    Read(File),
    Direct(File),
    Remote(Object),
    Memory(bytes::Bytes),
}

impl Reader {
    /// Opens a file. Where the file system does not read past the page cache, it is read through it; an object is asked
    /// for at its store, whatever the access.
    pub fn open(path: &Path, access: Access) -> io::Result<Reader> {
        if remote::is_remote(path) {
            return Ok(Reader::of_object(Object::open(path)?));
        }
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        let len = metadata.len();
        let backing = match access {
            Access::Mapped if len > 0 => Backing::Mapped(Arc::new(Mapping::of(&file, path)?)),
            Access::Mapped | Access::Read | Access::Remote => Backing::Read(file),
            Access::Direct if set_direct(&file).is_err() => Backing::Read(file),
            // Some file systems refuse only the first read.
            Access::Direct if file.read_at(Buffer::zeroed(PAGE).pages_mut(), 0).is_err() => {
                set_through_cache(&file)?;
                Backing::Read(file)
            }
            Access::Direct => Backing::Direct(file),
        };
        Ok(Reader {
            path: path.to_owned(),
            len,
            backing,
            stamp: Some(Stamp::of(&metadata)),
        })
    }

    /// An object of which the beginning is not needed: only its size is asked for.
    pub fn open_unread(url: &Path) -> io::Result<Reader> {
        Ok(Reader::of_object(Object::open_unread(url)?))
    }

    fn of_object(object: Object) -> Reader {
        Reader {
            path: object.path().to_owned(),
            len: object.len(),
            backing: Backing::Remote(object),
            stamp: None,
        }
    }

    /// The same for one of many small files, the first of which [`Choice::open`] has opened: no read to try it out.
    pub(crate) fn open_as_before(path: &Path, access: Access) -> io::Result<Reader> {
        if access != Access::Direct {
            return Reader::open(path, access);
        }
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        let len = metadata.len();
        let backing = match set_direct(&file) {
            Ok(()) => Backing::Direct(file),
            Err(_) => Backing::Read(file),
        };
        Ok(Reader {
            path: path.to_owned(),
            len,
            backing,
            stamp: Some(Stamp::of(&metadata)),
        })
    }

    /// Bytes that were made from a file, to be read like one.
    pub(crate) fn of_memory(path: &Path, bytes: impl Into<bytes::Bytes>) -> Reader {
        let bytes = bytes.into();
        Reader {
            path: path.to_owned(),
            len: bytes.len() as u64,
            backing: Backing::Memory(bytes),
            stamp: None,
        }
    }

    /// Where it is, without credentials.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of the file when it was opened.
    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Words that no other version of the file has. None where a store tells no version, and where the file was changed
    /// less than `settled` ago: it could be changed again at what its clock takes for the same time.
    pub fn version(&self, settled: Duration) -> Option<String> {
        if let Backing::Remote(object) = &self.backing {
            return object.version();
        }
        let stamp = self.stamp?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        let latest = stamp.written.0.max(stamp.changed.0);
        let age = i64::try_from(now.as_secs()).ok()?.checked_sub(latest)?;
        if u64::try_from(age).ok()? <= settled.as_secs() {
            return None;
        }
        let Stamp {
            device,
            number,
            written,
            changed,
        } = stamp;
        Some(format!(
            "{device}:{number} {}.{:09} {}.{:09}",
            written.0, written.1, changed.0, changed.1
        ))
    }

    /// As if the file had been changed so much earlier.
    #[cfg(test)]
    pub(crate) fn age(&mut self, by: Duration) {
        let seconds = i64::try_from(by.as_secs()).unwrap();
        if let Some(stamp) = &mut self.stamp {
            stamp.written.0 -= seconds;
            stamp.changed.0 -= seconds;
        }
    }

    /// How it is read in fact.
    pub fn access(&self) -> Access {
        match self.backing {
            Backing::Mapped(_) => Access::Mapped,
            Backing::Read(_) | Backing::Memory(_) => Access::Read,
            Backing::Direct(_) => Access::Direct,
            Backing::Remote(_) => Access::Remote,
        }
    }

    /// Bytes that reading `len` bytes takes of memory at the most.
    pub fn held_for(&self, len: u64) -> u64 {
        match self.backing {
            Backing::Mapped(_) => 0,
            Backing::Read(_) | Backing::Memory(_) => len.next_multiple_of(PAGE as u64),
            Backing::Direct(_) => len.saturating_add(2 * PAGE as u64),
            Backing::Remote(_) => len
                .checked_next_multiple_of(PAGE as u64)
                .unwrap_or(u64::MAX)
                .saturating_add(remote::ON_THE_WAY),
        }
    }

    /// Reads `len` bytes at `offset` into `piece`, with the memory that it already has. Of a mapped file it refers to the
    /// map: see [`Piece::Mapped`].
    pub fn read(&self, offset: u64, len: usize, piece: &mut Piece) -> io::Result<()> {
        self.check_within(offset, len)?;
        match &self.backing {
            Backing::Mapped(map) => {
                let start = usize::try_from(offset).map_err(io::Error::other)?;
                *piece = Piece::Mapped {
                    map: Arc::clone(map),
                    start,
                    len,
                };
                Ok(())
            }
            Backing::Read(file) => self.read_file(file, piece.own(len), offset),
            Backing::Direct(file) => {
                let first = offset - offset % PAGE as u64;
                let before = usize::try_from(offset - first).map_err(io::Error::other)?;
                let buffer = piece.own_buffer(before, len, before + len);
                self.read_pages(file, buffer.pages_mut(), first, before + len)
            }
            Backing::Remote(object) => object.read_to(offset, piece.own(len)),
            Backing::Memory(bytes) => {
                piece.own(len).copy_from_slice(within(bytes, offset, len)?);
                Ok(())
            }
        }
    }

    /// Gives the `len` bytes at `offset` to `look`: mapped, or read into `scratch`. That begins at a page and has room for
    /// [`Reader::held_for`] so many. An error if they were not all there, whatever `look` has made of them.
    pub fn view<T>(
        &self,
        offset: u64,
        len: usize,
        scratch: &mut [u8],
        look: impl FnOnce(&[u8]) -> T,
    ) -> io::Result<T> {
        self.check_within(offset, len)?;
        let short = || io::Error::new(io::ErrorKind::InvalidInput, "too little scratch memory");
        match &self.backing {
            Backing::Mapped(map) => {
                let start = usize::try_from(offset).map_err(io::Error::other)?;
                map.look(start, len, look)
            }
            Backing::Read(file) => {
                let bytes = scratch.get_mut(..len).ok_or_else(short)?;
                self.read_file(file, bytes, offset)?;
                Ok(look(bytes))
            }
            Backing::Direct(file) => {
                let first = offset - offset % PAGE as u64;
                let before = usize::try_from(offset - first).map_err(io::Error::other)?;
                let whole = (before + len).next_multiple_of(PAGE);
                let pages = scratch.get_mut(..whole).ok_or_else(short)?;
                self.read_pages(file, pages, first, before + len)?;
                Ok(look(&pages[before..before + len]))
            }
            Backing::Remote(object) => {
                let bytes = scratch.get_mut(..len).ok_or_else(short)?;
                object.read_to(offset, bytes)?;
                Ok(look(bytes))
            }
            Backing::Memory(bytes) => Ok(look(within(bytes, offset, len)?)),
        }
    }

    /// The same with the memory of a piece. Counts no reference of a map, which threads would wait for.
    pub(crate) fn view_piece<T>(
        &self,
        offset: u64,
        len: usize,
        piece: &mut Piece,
        look: impl FnOnce(&[u8]) -> T,
    ) -> io::Result<T> {
        if let Backing::Mapped(_) = self.backing {
            return self.view(offset, len, &mut [], look);
        }
        self.read(offset, len, piece)?;
        Ok(look(piece.bytes()))
    }

    /// Fills `out` with the bytes at `offset`. Counts no reference of a map, which threads would wait for; only a direct
    /// read, which takes whole pages, goes through `spare`.
    pub fn read_to(&self, offset: u64, out: &mut [u8], spare: &mut Piece) -> io::Result<()> {
        self.check_within(offset, out.len())?;
        match &self.backing {
            Backing::Mapped(map) => {
                let start = usize::try_from(offset).map_err(io::Error::other)?;
                map.look(start, out.len(), |bytes| out.copy_from_slice(bytes))
            }
            Backing::Read(file) => self.read_file(file, out, offset),
            Backing::Direct(_) => {
                self.read(offset, out.len(), spare)?;
                out.copy_from_slice(spare.bytes());
                Ok(())
            }
            Backing::Remote(object) => object.read_to(offset, out),
            Backing::Memory(bytes) => {
                out.copy_from_slice(within(bytes, offset, out.len())?);
                Ok(())
            }
        }
    }

    /// Gives up what small reads of an object have brought along, for others to have the room.
    pub(crate) fn forget_windows(&self) {
        if let Backing::Remote(object) = &self.backing {
            object.forget_windows();
        }
    }

    /// An error if bytes up to `end` that were read of a map until now may not have been what the file holds.
    pub(crate) fn check(&self, end: u64) -> io::Result<()> {
        match &self.backing {
            Backing::Mapped(map) => map.check(usize::try_from(end).unwrap_or(usize::MAX)),
            Backing::Read(_) | Backing::Direct(_) | Backing::Remote(_) | Backing::Memory(_) => {
                Ok(())
            }
        }
    }

    /// An error if the file has lost bytes since it was opened, as far as that is known.
    pub(crate) fn check_whole(&self) -> io::Result<()> {
        match &self.backing {
            Backing::Mapped(map) => map.check_all(),
            Backing::Read(file) | Backing::Direct(file) => match self.truncated(file) {
                Some(truncated) => Err(truncated.into()),
                None => Ok(()),
            },
            Backing::Remote(_) | Backing::Memory(_) => Ok(()),
        }
    }

    fn read_file(&self, file: &File, out: &mut [u8], offset: u64) -> io::Result<()> {
        file.read_exact_at(out, offset)
            .map_err(|error| self.or_truncated(error, file))
    }

    fn read_pages(
        &self,
        file: &File,
        pages: &mut [u8],
        offset: u64,
        needed: usize,
    ) -> io::Result<()> {
        read_pages(file, pages, offset, needed).map_err(|error| self.or_truncated(error, file))
    }

    /// Says so where the file ends before the bytes that it had when it was opened.
    #[cold]
    fn or_truncated(&self, error: io::Error, file: &File) -> io::Error {
        match self.truncated(file) {
            Some(truncated) if error.kind() == io::ErrorKind::UnexpectedEof => truncated.into(),
            _ => error,
        }
    }

    fn truncated(&self, file: &File) -> Option<Truncated> {
        let now = file.metadata().ok()?.len();
        (now < self.len).then(|| Truncated {
            path: self.path.clone(),
            expected: self.len,
            found: Some(now),
        })
    }

    fn check_within(&self, offset: u64, len: usize) -> io::Result<()> {
        let end = offset.checked_add(len as u64);
        if end.is_some_and(|end| end <= self.len) {
            return Ok(());
        }
        Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!(
                "expected {len} bytes at {offset}, found a file of {} bytes",
                self.len
            ),
        ))
    }
}

/// So many bytes at an offset, which were checked to be there.
fn within(bytes: &[u8], offset: u64, len: usize) -> io::Result<&[u8]> {
    let start = usize::try_from(offset).map_err(io::Error::other)?;
    Ok(&bytes[start..start + len])
}

/// Fills whole pages; the end of the file may come within the last one, but not before `needed` bytes.
fn read_pages(file: &File, pages: &mut [u8], offset: u64, needed: usize) -> io::Result<()> {
    let mut done = 0;
    while done < needed {
        match file.read_at(&mut pages[done..], offset + done as u64) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            // What follows must begin at a page again; a read that ends elsewhere has met the end of the file.
            Ok(read) if read.is_multiple_of(PAGE) || done + read >= needed => done += read,
            Ok(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// From now on past the page cache. An error where the file system cannot.
fn set_direct(file: &File) -> io::Result<()> {
    let flags = fcntl_getfl(file)?;
    Ok(fcntl_setfl(file, flags | OFlags::DIRECT)?)
}

fn set_through_cache(file: &File) -> io::Result<()> {
    let flags = fcntl_getfl(file)?;
    Ok(fcntl_setfl(file, flags - OFlags::DIRECT)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_access_reads_the_same_bytes() {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = folder.path().join("data");
        let data: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        std::fs::write(&path, &data).unwrap();
        for access in [Access::Mapped, Access::Read, Access::Direct] {
            let reader = Reader::open(&path, access).unwrap();
            let mut piece = Piece::default();
            let mut scratch = Buffer::zeroed(4 * PAGE);
            for (offset, len) in [(0, 4096), (1, 1), (4095, 5000), (399_990, 10), (400_000, 0)] {
                reader.read(offset, len, &mut piece).unwrap();
                let start = usize::try_from(offset).unwrap();
                assert_eq!(piece.bytes(), &data[start..start + len], "{access:?}");
                let view = reader.view(offset, len, scratch.pages_mut(), <[u8]>::to_vec);
                assert_eq!(view.unwrap(), &data[start..start + len], "{access:?}");
                let view = reader.view_piece(offset, len, &mut piece, <[u8]>::to_vec);
                assert_eq!(view.unwrap(), &data[start..start + len], "{access:?}");
                let mut out = vec![0; len];
                reader.read_to(offset, &mut out, &mut piece).unwrap();
                assert_eq!(out, &data[start..start + len], "{access:?}");
            }
            assert!(reader.read(399_999, 2, &mut piece).is_err());
            assert!(reader.read(u64::MAX, 2, &mut piece).is_err());
        }
    }

    #[test]
    fn a_choice_is_what_is_done_in_fact() {
        let chosen = Choice {
            access: Access::Direct,
            reason: "it is tested".to_owned(),
        };
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = folder.path().join("data");
        std::fs::write(&path, b"data").unwrap();
        let mut choice = chosen.clone();
        choice.open(&path).unwrap();
        assert_eq!(choice, chosen);

        let mut choice = chosen;
        let reader = choice.open(Path::new("/proc/self/status")).unwrap();
        assert_eq!(reader.access(), Access::Read);
        assert_eq!(choice.access, Access::Read);
        assert_eq!(
            choice.reason,
            "it is tested, but the file system reads only through the page cache"
        );
        assert_eq!(
            Reader::open_as_before(Path::new("/proc/self/status"), Access::Direct)
                .unwrap()
                .access(),
            Access::Read
        );
    }

    #[test]
    fn files_on_a_network_are_read_where_they_would_be_mapped() {
        let data = Bytes::from_mib(1);
        let nfs = || Some((Path::new("/data/images.npy"), "NFS"));
        let choice = not_mapped_on_network(choose(data, None), 1, nfs);
        assert_eq!(choice.access, Access::Read);
        assert_eq!(
            choice.reason,
            "no limit below 1 MiB of data is known, but /data/images.npy is on a network file system (NFS), where a map \
             would not report errors"
        );
        let choice = not_mapped_on_network(choose(data, None), u64::MAX, nfs);
        assert_eq!(choice.access, Access::Mapped, "not enough open files");
        assert!(choice.reason.contains("ulimit -n"), "{}", choice.reason);
        let direct = choose(data, Some(Bytes::ZERO));
        assert_eq!(not_mapped_on_network(direct.clone(), 1, nfs), direct);
        let local = choose(data, None);
        assert_eq!(not_mapped_on_network(local.clone(), 1, || None), local);
    }

    #[test]
    fn data_that_fits_is_mapped_and_other_data_is_not() {
        let gib = Bytes::from_gib;
        assert_eq!(choose(gib(3), Some(gib(8))).access, Access::Mapped);
        assert_eq!(choose(gib(3), Some(gib(1))).access, Access::Direct);
        assert_eq!(choose(gib(3), None).access, Access::Mapped);
    }
}
