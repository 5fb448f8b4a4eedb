//! Files that only this user can read, and files that the user named.
//!
//! The directory of the former has been checked (see `directory.rs`).

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::directory::{open_parent, parts};
use crate::{accounts, name, trust};

/// Exclusive creation fails only where somebody guesses random names.
const TRIES: u32 = 16;

/// A new file of mode 0600. Fails where there is anything of that name, also a link that leads nowhere.
pub fn create_new(path: &Path) -> io::Result<File> {
    create_new_at(rustix::fs::CWD, path, OFlags::RDWR, private())
}

/// Writes a new file of mode 0600; it fails as [`create_new`] does.
pub fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    create_new(path)?.write_all(bytes)
}

/// Copies a file to a new one of mode 0600; it fails as [`create_new`] does.
pub fn copy_new(from: &Path, to: &Path) -> io::Result<()> {
    let mut source = open_named(from)?;
    io::copy(&mut source, &mut create_new(to)?).map(drop)
}

/// Opens a file of ours to append to it and to read it, or makes it with mode 0600.
pub fn append(path: &Path, create: bool) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::APPEND;
    loop {
        match open_own(path, flags) {
            Err(error) if create && error.kind() == io::ErrorKind::NotFound => {}
            opened => return opened,
        }
        match create_new_at(rustix::fs::CWD, path, flags, private()) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // Somebody else was faster, or a link leads nowhere: opening it tells which.
                match open_own(path, flags) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    opened => return opened,
                }
            }
            created => return created,
        }
    }
}

/// Opens a regular file of ours (or of root) for reading. Never waits, whatever lies there.
pub fn open(path: &Path) -> io::Result<File> {
    open_own(path, OFlags::RDONLY)
}

/// Whether a regular file of ours (or of root) is there.
pub fn is_file(path: &Path) -> bool {
    rustix::fs::lstat(path).is_ok_and(|stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
            && trust::is_ours_or_of_root(stat.st_uid)
    })
}

/// Opens a regular file that the user named for reading, through links. Never waits.
pub fn open_named(path: &Path) -> io::Result<File> {
    let (file, _) = open_regular(path, OFlags::RDONLY)?;
    Ok(file)
}

/// The bytes of a regular file of ours; an error where there are more than `max_bytes`.
pub fn read(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let n_read = open(path)?
        .take(max_bytes.saturating_add(1))
        .read_to_end(&mut bytes)?;
    if n_read as u64 > max_bytes {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}

/// Puts a file of mode 0600 with these bytes in place of another one, or of none, in one step.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_with_mode(path, bytes, private())
}

/// The same for a file that the user named: its mode follows the umask. Only a regular file, or a link to whatever it
/// may be, is replaced: not a pipe, a device or a directory.
pub fn replace_named(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match rustix::fs::lstat(path) {
        Ok(stat)
            if !matches!(
                FileType::from_raw_mode(stat.st_mode),
                FileType::RegularFile | FileType::Symlink
            ) =>
        {
            return Err(not_regular(path));
        }
        _ => {}
    }
    replace_with_mode(path, bytes, Mode::from_raw_mode(0o666))
}

/// Writes a file that the user named, as other programs do: its mode follows the umask, and links are followed.
#[expect(clippy::disallowed_methods, reason = "the user named it")]
pub fn write_named(path: &Path, bytes: &[u8]) -> io::Result<()> {
    std::fs::write(path, bytes)
}

/// Opens a file that the user named to write it from its beginning, as [`write_named`] does.
#[expect(clippy::disallowed_methods, reason = "the user named it")]
pub fn create_named(path: &Path) -> io::Result<File> {
    File::create(path)
}

/// As [`write_named`], where there must not be one yet.
#[expect(clippy::disallowed_methods, reason = "the user named it")]
pub fn write_new_named(path: &Path, bytes: &[u8]) -> io::Result<()> {
    File::create_new(path)?.write_all(bytes)
}

/// Opens a file beside one that the user named, such as `NAME.part`, for writing: a new one that follows the umask, or
/// one that this user has left there. Nothing is cut off. Links, pipes and files of others are refused.
pub fn take_over_named(path: &Path) -> io::Result<File> {
    for _ in 0..TRIES {
        match open_regular(path, OFlags::RDWR | OFlags::NOFOLLOW) {
            Ok((file, stat)) if stat.st_uid == accounts::user() && stat.st_nlink == 1 => {
                return Ok(file);
            }
            Ok((_, stat)) => {
                let problem = "belongs to another user, or has several names";
                return Err(trust::refused(path, &stat, problem).into());
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let mode = Mode::from_raw_mode(0o666);
        match create_new_at(rustix::fs::CWD, path, OFlags::RDWR, mode) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => return created,
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

fn private() -> Mode {
    Mode::RUSR | Mode::WUSR
}

fn replace_with_mode(path: &Path, bytes: &[u8], mode: Mode) -> io::Result<()> {
    let (parent, file_name) = parts(path)?;
    let parent = open_parent(parent)?;
    let (part, mut file) = create_random(&parent, mode)?;
    let replaced = file
        .write_all(bytes)
        .and_then(|()| Ok(rustix::fs::renameat(&parent, &part, &parent, file_name)?));
    if replaced.is_err() {
        let _ = rustix::fs::unlinkat(&parent, &part, AtFlags::empty());
    }
    replaced
}

/// A new file under a name that nobody can know before.
fn create_random(parent: &OwnedFd, mode: Mode) -> io::Result<(String, File)> {
    for _ in 0..TRIES {
        let part = format!(".brimful-{}", name::random());
        match create_new_at(parent, Path::new(&part), OFlags::WRONLY, mode) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => return Ok((part, created?)),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

fn create_new_at(
    parent: impl std::os::fd::AsFd,
    path: &Path,
    access: OFlags,
    mode: Mode,
) -> io::Result<File> {
    let flags = access | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(parent, path, flags, mode)?;
    if mode == private() {
        // A strange umask may have taken our own bits away; an inherited access list cannot give any to others.
        if let Err(error) = rustix::fs::fchmod(&file, mode)
            // Some file systems have one mode for everything.
            && !trust::is_private(&rustix::fs::fstat(&file)?)
        {
            return Err(error.into());
        }
    }
    Ok(file.into())
}

fn open_own(path: &Path, access: OFlags) -> io::Result<File> {
    let (file, stat) = open_regular(path, access | OFlags::NOFOLLOW)?;
    if !trust::is_ours_or_of_root(stat.st_uid) {
        return Err(trust::refused(path, &stat, "belongs to another user").into());
    }
    Ok(file)
}

/// A FIFO is opened without waiting for its other end, and refused then.
fn open_regular(path: &Path, access: OFlags) -> io::Result<(File, rustix::fs::Stat)> {
    let flags = access | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| match error {
        Errno::LOOP => io::Error::other(format!("`{}` is a symbolic link", path.display())),
        // A FIFO without a reader that is opened for writing.
        Errno::NXIO => not_regular(path),
        error => error.into(),
    })?;
    let stat = rustix::fs::fstat(&file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(not_regular(path));
    }
    Ok((file.into(), stat))
}

fn not_regular(path: &Path) -> io::Error {
    let message = format!("`{}` is not a regular file", path.display());
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::path::PathBuf;

    use super::*;

    struct Place(tempfile::TempDir);

    impl Place {
        fn new() -> Place {
            Place(tempfile::tempdir().unwrap())
        }

        fn at(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn fifo(&self, name: &str) -> PathBuf {
            let path = self.at(name);
            let mode = Mode::RUSR | Mode::WUSR;
            rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, mode, 0).unwrap();
            path
        }
    }

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().mode() & 0o7777
    }

    #[test]
    fn new_files_are_private_and_never_ones_that_are_there() {
        let place = Place::new();
        let path = place.at("a");
        write_new(&path, b"x").unwrap();
        assert_eq!(
            (mode(&path), fs::read(&path).unwrap()),
            (0o600, b"x".into())
        );
        symlink("nowhere", place.at("link")).unwrap();
        place.fifo("fifo");
        for name in ["a", "link", "fifo"] {
            let error = write_new(&place.at(name), b"y").unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        }
        assert!(!place.at("nowhere").exists());
    }

    #[test]
    fn appending_makes_a_private_file_and_goes_on_with_it() {
        let place = Place::new();
        let path = place.at("a");
        let error = append(&path, false).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        append(&path, true).unwrap().write_all(b"x").unwrap();
        append(&path, false).unwrap().write_all(b"y").unwrap();
        assert_eq!(
            (mode(&path), read(&path, 2).unwrap()),
            (0o600, b"xy".into())
        );
        symlink("a", place.at("link")).unwrap();
        symlink("nowhere", place.at("dangling")).unwrap();
        place.fifo("fifo");
        for name in ["link", "dangling", "fifo", "."] {
            assert!(append(&place.at(name), true).is_err(), "{name}");
        }
        assert!(!place.at("nowhere").exists());
    }

    #[test]
    fn only_regular_files_are_read_and_only_so_far() {
        let place = Place::new();
        write_new(&place.at("a"), b"123").unwrap();
        symlink("a", place.at("link")).unwrap();
        place.fifo("fifo");
        assert_eq!(read(&place.at("a"), 3).unwrap(), b"123");
        let error = read(&place.at("a"), 2).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        for name in ["link", "fifo", ".", "missing"] {
            assert!(read(&place.at(name), 3).is_err(), "{name}");
            assert!(!is_file(&place.at(name)), "{name}");
        }
        assert!(is_file(&place.at("a")));
        assert!(open_named(&place.at("link")).is_ok());
        assert!(open_named(&place.at("fifo")).is_err());
    }

    #[test]
    fn a_file_is_replaced_and_what_a_link_leads_to_is_not() {
        let place = Place::new();
        for name in ["new", "old", "link"] {
            let path = place.at(name);
            match name {
                "old" => fs::write(&path, "old").unwrap(),
                "link" => {
                    fs::write(place.at("target"), "target").unwrap();
                    symlink("target", &path).unwrap();
                }
                _ => {}
            }
            replace(&path, b"text").unwrap();
            assert_eq!(
                (mode(&path), read(&path, 9).unwrap()),
                (0o600, b"text".into())
            );
        }
        assert_eq!(fs::read(place.at("target")).unwrap(), b"target");
        assert_eq!(fs::read_dir(place.0.path()).unwrap().count(), 4);
    }

    #[test]
    fn a_named_file_follows_the_umask_and_is_a_file() {
        let place = Place::new();
        let path = place.at("metrics.prom");
        fs::write(place.at("usual"), "").unwrap();
        replace_named(&path, b"text").unwrap();
        assert_eq!(mode(&path), mode(&place.at("usual")));
        let fifo = place.fifo("fifo");
        assert!(replace_named(&fifo, b"text").is_err());
        assert!(replace_named(place.0.path(), b"text").is_err());
        assert!(replace_named(&place.at("missing/x"), b"text").is_err());
        assert_eq!(fs::read_dir(place.0.path()).unwrap().count(), 3);
    }

    #[test]
    fn a_part_is_taken_over_from_ourselves_only() {
        let place = Place::new();
        let path = place.at("a.part");
        take_over_named(&path).unwrap().write_all(b"left").unwrap();
        assert!(take_over_named(&path).is_ok());
        assert_eq!(fs::read(&path).unwrap(), b"left");
        fs::hard_link(&path, place.at("second")).unwrap();
        symlink("a.part", place.at("link")).unwrap();
        place.fifo("fifo");
        for name in ["a.part", "link", "fifo"] {
            assert!(take_over_named(&place.at(name)).is_err(), "{name}");
        }
    }
}
