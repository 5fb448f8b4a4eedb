//! Where a shared copy lives: a file without a name, which goes when the last process that has it open or mapped goes.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use brimful_mapping::{Guard, Mapping};
use memmap2::MmapOptions;
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::rand::GetRandomFlags;

use crate::error::ShareError;
use crate::layout::{HEADER_BYTES, Header, Id};

/// What holds a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Storage {
    /// Memory of no process in particular (memfd); not bounded by the size of /dev/shm.
    Memory,
    /// A file in this directory, whose pages the kernel can write and drop where memory is short.
    Directory(PathBuf),
}

/// Makes the file without a name, and the id of what will be in it.
pub fn create(storage: &Storage) -> Result<(File, Id), ShareError> {
    let mut id = Id::default();
    let not_created = |cause: Errno| ShareError::NotCreated {
        place: match storage {
            Storage::Memory => "in memory".to_owned(),
            Storage::Directory(folder) => format!("in {}", folder.display()),
        },
        cause: cause.into(),
    };
    rustix::rand::getrandom(&mut id, GetRandomFlags::empty()).map_err(not_created)?;
    let file = match storage {
        Storage::Memory => in_memory(),
        Storage::Directory(folder) => in_folder(folder, &id),
    };
    Ok((file.map_err(not_created)?, id))
}

fn in_memory() -> Result<File, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 do not know that flag; some later ones insist on it.
    rustix::fs::memfd_create("brimful-share", flags | MemfdFlags::NOEXEC_SEAL)
        .or_else(|_| rustix::fs::memfd_create("brimful-share", flags))
        .map(File::from)
}

fn in_folder(folder: &Path, id: &Id) -> Result<File, Errno> {
    brimful_private::create_missing_directories(folder).map_err(|error| errno(&error))?;
    let mode = Mode::RUSR | Mode::WUSR;
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    if let Ok(file) = rustix::fs::open(folder, flags | OFlags::TMPFILE, mode) {
        return Ok(file.into());
    }
    // Not every file system makes files without a name.
    let path = folder.join(format!("share-{:032x}", u128::from_be_bytes(*id)));
    let file = rustix::fs::open(&path, flags | OFlags::CREATE | OFlags::EXCL, mode)?;
    fs::remove_file(&path).map_err(|error| errno(&error))?;
    Ok(file.into())
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// A shared copy, open and mapped in this process.
#[derive(Debug)]
pub struct Segment {
    file: File,
    map: Mapping,
    header: Header,
    /// Nobody can truncate it.
    is_sealed: bool,
    /// Device and inode: a descriptor that was closed by others and used anew is noticed by them.
    inode: (u64, u64),
}

/// How another process opens a copy that this one holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle {
    pub pid: u32,
    pub fd: i32,
    pub id: Id,
}

impl Segment {
    /// Puts the header in, closes the file to all changes where that can be, and maps it.
    pub fn seal(file: File, header: Header) -> Result<Segment, ShareError> {
        file.write_all_at(&header.to_bytes(), 0)
            .map_err(|cause| ShareError::NotWritten { cause })?;
        let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        // Refused for files on disk: nothing knows their name, which has to do.
        let _ = rustix::fs::fcntl_add_seals(file.as_fd(), seals);
        Segment::map(file, header)
    }

    /// Opens the copy that another process holds, or this one.
    pub fn open(handle: &Handle) -> Result<Segment, ShareError> {
        let Handle { pid, fd, id } = *handle;
        let path = PathBuf::from(format!("/proc/{pid}/fd/{fd}"));
        // Whatever is there now, opening it must not block or change anything.
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = File::options()
            .read(true)
            .custom_flags(flags.bits().cast_signed())
            .open(&path);
        let file = opened.map_err(|cause| {
            if !Path::new(&format!("/proc/{pid}")).exists() {
                ShareError::OwnerGone { pid }
            } else if cause.kind() == io::ErrorKind::NotFound {
                ShareError::NotTheSame { pid, fd }
            } else {
                ShareError::NotOpened { pid, cause }
            }
        })?;
        let not_the_same = ShareError::NotTheSame { pid, fd };
        let Ok(metadata) = file.metadata() else {
            return Err(not_the_same);
        };
        let mut head = [0; HEADER_BYTES];
        if !metadata.is_file() || file.read_exact_at(&mut head, 0).is_err() {
            return Err(not_the_same);
        }
        match Header::read(&head) {
            Ok(header) if header.id == id && header.len == metadata.len() => {
                Segment::map(file, header)
            }
            _ => Err(not_the_same),
        }
    }

    fn map(file: File, header: Header) -> Result<Segment, ShareError> {
        let not_mapped = |cause| ShareError::NotMapped {
            len: header.len,
            cause,
        };
        let metadata = file.metadata().map_err(not_mapped)?;
        let map = mapped(&file).map_err(not_mapped)?;
        let seals = rustix::fs::fcntl_get_seals(&file).unwrap_or(SealFlags::empty());
        Ok(Segment {
            file,
            map,
            header,
            is_sealed: seals.contains(SealFlags::SHRINK),
            inode: (metadata.dev(), metadata.ino()),
        })
    }

    /// All of it, to be read by [`Segment::read`].
    pub fn bytes(&self) -> &[u8] {
        self.map.bytes()
    }

    /// Calls `read`, which reads [`Segment::bytes`]. An error if some of them were not there, whatever it has made of
    /// them: outside of it the process ends with SIGBUS then.
    #[inline]
    pub fn read<T>(&self, read: impl FnOnce() -> T) -> Result<T, ShareError> {
        if self.is_sealed {
            return Ok(read());
        }
        let _guard = Guard::enter();
        let made = read();
        match self.map.check(0) {
            Ok(()) => Ok(made),
            Err(_) => Err(ShareError::Truncated {
                len: self.header.len,
            }),
        }
    }

    pub fn header(&self) -> &Header {
        &self.header
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    /// How others open it while this process lives and keeps it.
    pub fn handle(&self) -> Result<Handle, ShareError> {
        let fd = self.file.as_raw_fd();
        match self.file.metadata() {
            Ok(metadata) if (metadata.dev(), metadata.ino()) == self.inode => Ok(Handle {
                pid: std::process::id(),
                fd,
                id: self.header.id,
            }),
            _ => Err(ShareError::DescriptorLost { fd }),
        }
    }
}

#[expect(unsafe_code, reason = "a memory map")]
fn mapped(file: &File) -> io::Result<Mapping> {
    // SAFETY: the map is only read, and private. A file in memory is sealed against changes; one on disk has no name, and
    // who still writes to it through /proc does so on purpose: every read is checked, and text is checked when made.
    let map = unsafe { MmapOptions::new().map_copy_read_only(file)? };
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Mapping::over(map, file, Path::new(&path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Item, List, ListBuilder, Slot, Writer};

    fn shared(storage: &Storage) -> Segment {
        let (file, id) = create(storage).unwrap();
        let writer = Writer::new(file, id).unwrap();
        let (file, header) = writer.finish(Slot::int(7)).unwrap();
        Segment::seal(file, header).unwrap()
    }

    fn storages() -> (tempfile::TempDir, [Storage; 2]) {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("made/on/demand");
        (folder, [Storage::Memory, Storage::Directory(below)])
    }

    #[test]
    fn a_copy_is_opened_by_its_handle_and_leaves_no_name() {
        let (folder, storages) = storages();
        for storage in storages {
            let segment = shared(&storage);
            let again = Segment::open(&segment.handle().unwrap()).unwrap();
            drop(segment);
            assert_eq!(again.header().root.item(again.bytes()), Ok(Item::Int(7)));
            // Who opened it hands it on.
            assert!(Segment::open(&again.handle().unwrap()).is_ok());
            let below = folder.path().join("made/on/demand");
            if below.exists() {
                for made in [&below, &folder.path().join("made")] {
                    assert_eq!(fs::metadata(made).unwrap().mode() & 0o777, 0o700);
                }
                assert_eq!(again.file().metadata().unwrap().mode() & 0o777, 0o600);
                assert_eq!(fs::read_dir(below).unwrap().count(), 0);
            }
        }
    }

    #[test]
    fn a_copy_in_memory_cannot_be_changed() {
        let segment = shared(&Storage::Memory);
        assert!(segment.file().write_all_at(b"x", 0).is_err());
        assert!(segment.file().set_len(0).is_err());
    }

    #[test]
    fn a_copy_on_disk_that_is_truncated_is_an_error() {
        let (_folder, [_, on_disk]) = storages();
        let (file, id) = create(&on_disk).unwrap();
        let mut writer = Writer::new(file, id).unwrap();
        let mut numbers = ListBuilder::default();
        for number in 0..10_000 {
            numbers.push_int(number << 40);
        }
        let numbers = numbers.finish(&mut writer).unwrap();
        let (file, header) = writer.finish(Slot::list(numbers)).unwrap();
        let segment = Segment::seal(file, header).unwrap();
        let read = || {
            let list = List::read(segment.bytes(), numbers)?;
            list.get(segment.bytes(), 9000)
        };
        assert_eq!(segment.read(read).unwrap(), Ok(Item::Int(9000 << 40)));
        segment.file().set_len(8192).unwrap();
        let error = segment.read(read).unwrap_err();
        assert!(matches!(error, ShareError::Truncated { .. }), "{error}");
        assert!(!error.hint().is_empty());
    }

    #[test]
    fn a_handle_that_leads_elsewhere_is_refused() {
        let segment = shared(&Storage::Memory);
        let handle = segment.handle().unwrap();
        let other = shared(&Storage::Memory).header().id;
        let error = Segment::open(&Handle {
            id: other,
            ..handle
        })
        .unwrap_err();
        assert!(matches!(error, ShareError::NotTheSame { .. }), "{error}");
        let error = Segment::open(&Handle { fd: -5, ..handle }).unwrap_err();
        assert!(matches!(error, ShareError::NotTheSame { .. }), "{error}");
        let pid = u32::MAX;
        let error = Segment::open(&Handle { pid, ..handle }).unwrap_err();
        assert!(matches!(error, ShareError::OwnerGone { .. }), "{error}");
        assert!(!error.hint().is_empty());
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_told() {
        let storage = Storage::Directory("/proc/brimful".into());
        let error = create(&storage).unwrap_err();
        assert!(matches!(error, ShareError::NotCreated { .. }), "{error}");
    }
}
