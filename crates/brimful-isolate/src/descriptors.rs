//! Descriptors that a command would inherit from whoever started brimful, besides its standard streams.
//!
//! `(exec 3>>my.log; brimful predict …)` gives the command a descriptor that leads past every isolation: to the user's
//! file itself. The command gets a private copy under the same number, or something that takes what is written and keeps
//! nothing, or nothing. What the user names in the command (`/dev/fd/63`, as `<(…)` does) stays as it is.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom};
use std::os::fd::{AsFd as _, BorrowedFd, RawFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::{FdFlags, fcntl_getfd};

/// Of a larger file that the command may read, it gets nothing.
const MAX_COPY: u64 = 256 << 20;
/// Devices of the kernel that hold nothing of anybody's.
const HARMLESS_DEVICES: [(u32, u32); 5] = [(1, 3), (1, 5), (1, 7), (1, 8), (1, 9)];

/// What becomes of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Kept,
    Copied,
    /// Takes what is written.
    Discards,
    Closed,
}

/// What a descriptor leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    File { bytes: u64 },
    Pipe,
    HarmlessDevice,
    OtherDevice,
    Other,
}

/// What becomes of a descriptor that the command does not name.
fn outcome(kind: Kind, flags: OFlags) -> Outcome {
    let access = flags & OFlags::RWMODE;
    if flags.contains(OFlags::PATH) {
        return Outcome::Closed;
    }
    match kind {
        Kind::File { bytes } if bytes <= MAX_COPY || access == OFlags::WRONLY => Outcome::Copied,
        Kind::HarmlessDevice => Outcome::Kept,
        Kind::Pipe | Kind::OtherDevice if access != OFlags::RDONLY => Outcome::Discards,
        Kind::File { .. } | Kind::Pipe | Kind::OtherDevice | Kind::Other => Outcome::Closed,
    }
}

/// Replaces what the next program of this process would inherit.
pub(crate) fn detach(command: &[OsString], scratch: &Path) -> io::Result<()> {
    let named = named_in(command);
    for number in inherited()? {
        if !named.contains(&number) {
            replace(number, scratch)?;
        }
    }
    Ok(())
}

/// Descriptors that a command names: `/dev/fd/63`, `--config=/proc/self/fd/3`.
fn named_in(command: &[OsString]) -> Vec<RawFd> {
    let after_prefix = |word: &str| {
        ["/dev/fd/", "/proc/self/fd/"].iter().find_map(|prefix| {
            let (_, rest) = word.split_once(prefix)?;
            let digits = rest.split(|letter: char| !letter.is_ascii_digit()).next()?;
            digits.parse().ok()
        })
    };
    command
        .iter()
        .filter_map(|word| after_prefix(word.to_str()?))
        .collect()
}

/// The descriptors above the standard streams that are open after an exec.
fn inherited() -> io::Result<Vec<RawFd>> {
    let numbers: Vec<RawFd> = fs::read_dir("/proc/self/fd")?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|number| *number > 2)
        .collect();
    Ok(numbers
        .into_iter()
        .filter(|number| {
            // The one of the listing itself is closed by now.
            fcntl_getfd(borrow(*number)).is_ok_and(|flags| !flags.contains(FdFlags::CLOEXEC))
        })
        .collect())
}

fn borrow(number: RawFd) -> BorrowedFd<'static> {
    #[expect(unsafe_code, reason = "a number that this process has inherited")]
    // SAFETY: nothing of this process owns or closes it; a number that is not open gives an error.
    unsafe {
        BorrowedFd::borrow_raw(number)
    }
}

fn replace(number: RawFd, scratch: &Path) -> io::Result<()> {
    let flags = fcntl_getfl(borrow(number))?;
    let facts = fs::metadata(format!("/proc/self/fd/{number}"));
    let kind = facts.map_or(Kind::Other, |facts| kind_of(&facts));
    match outcome(kind, flags) {
        Outcome::Kept => Ok(()),
        Outcome::Copied => put_at(number, &copy(number, flags, scratch)?),
        Outcome::Discards => put_at(number, &OpenOptions::new().write(true).open("/dev/null")?),
        Outcome::Closed => {
            close(number);
            Ok(())
        }
    }
}

fn kind_of(facts: &fs::Metadata) -> Kind {
    let kind = facts.file_type();
    if kind.is_file() {
        Kind::File { bytes: facts.len() }
    } else if kind.is_fifo() {
        Kind::Pipe
    } else if kind.is_char_device() {
        let device = (
            rustix::fs::major(facts.rdev()),
            rustix::fs::minor(facts.rdev()),
        );
        if HARMLESS_DEVICES.contains(&device) {
            Kind::HarmlessDevice
        } else {
            Kind::OtherDevice
        }
    } else {
        Kind::Other
    }
}

/// A private file with the same contents, at the same place in it.
fn copy(number: RawFd, flags: OFlags, scratch: &Path) -> io::Result<File> {
    let original = File::from(borrow(number).try_clone_to_owned()?);
    let length = original.metadata()?.len();
    let path = scratch.join(format!("descriptor-{number}"));
    let private = brimful_private::create_new(&path)?;
    private.set_len(length)?;
    if flags & OFlags::RWMODE != OFlags::WRONLY {
        copy_contents(&original, &private, length)?;
    }
    let position = (&original).stream_position()?;
    let access = flags & (OFlags::RWMODE | OFlags::APPEND);
    let mode = access & OFlags::RWMODE;
    let mut copy = OpenOptions::new()
        .read(mode != OFlags::WRONLY)
        .write(mode != OFlags::RDONLY)
        .custom_flags((access & OFlags::APPEND).bits().cast_signed())
        .open(&path)?;
    copy.seek(SeekFrom::Start(position))?;
    Ok(copy)
}

/// Without moving the original's position, which other processes share.
fn copy_contents(original: &File, private: &File, length: u64) -> io::Result<()> {
    use std::os::unix::fs::FileExt as _;
    let mut buffer = vec![0; 1 << 16];
    let mut at = 0;
    while at < length {
        let n_bytes = original.read_at(&mut buffer, at)?;
        if n_bytes == 0 {
            break;
        }
        private.write_all_at(&buffer[..n_bytes], at)?;
        at += n_bytes as u64;
    }
    Ok(())
}

fn put_at(number: RawFd, file: &File) -> io::Result<()> {
    #[expect(unsafe_code, reason = "a number that this process has inherited")]
    // SAFETY: two open descriptors; what the second one led to is nothing of this program's.
    let outcome = unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&file.as_fd()), number) };
    if outcome < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn close(number: RawFd) {
    #[expect(unsafe_code, reason = "a number that this process has inherited")]
    // SAFETY: nothing of this program uses it.
    unsafe {
        libc::close(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_found_in_a_command() {
        let named = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            named_in(&words)
        };
        assert_eq!(
            named(&["python", "/dev/fd/63", "--config=/proc/self/fd/3", "-x"]),
            [63, 3]
        );
        assert!(named(&["python", "/dev/fd/", "dev/fd", "/dev/fdx/3"]).is_empty());
    }

    #[test]
    fn nothing_that_others_see_is_kept() {
        let file = |bytes| Kind::File { bytes };
        for (kind, flags, expected) in [
            (file(10), OFlags::RDONLY, Outcome::Copied),
            (file(10), OFlags::WRONLY | OFlags::APPEND, Outcome::Copied),
            (file(1 << 40), OFlags::WRONLY, Outcome::Copied),
            (file(1 << 40), OFlags::RDWR, Outcome::Closed),
            (file(10), OFlags::PATH, Outcome::Closed),
            (Kind::Pipe, OFlags::WRONLY, Outcome::Discards),
            (Kind::Pipe, OFlags::RDONLY, Outcome::Closed),
            (Kind::HarmlessDevice, OFlags::RDWR, Outcome::Kept),
            (Kind::OtherDevice, OFlags::RDWR, Outcome::Discards),
            (Kind::Other, OFlags::RDWR, Outcome::Closed),
        ] {
            assert_eq!(outcome(kind, flags), expected, "{kind:?} {flags:?}");
        }
    }

    #[test]
    fn a_copy_has_the_contents_and_the_position_and_shares_neither() {
        use std::io::{Read as _, Write as _};
        use std::os::fd::AsRawFd as _;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        brimful_private::write_new(&path, b"start\n").unwrap();
        let mut original = OpenOptions::new()
            .read(true)
            .append(true)
            .open(&path)
            .unwrap();
        original.seek(SeekFrom::Start(2)).unwrap();
        let flags = fcntl_getfl(&original).unwrap();
        let mut copy = copy(original.as_raw_fd(), flags, directory.path()).unwrap();
        let mut rest = String::new();
        copy.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "art\n");
        copy.write_all(b"more").unwrap();
        copy.set_len(3).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "start\n");
        assert_eq!(original.stream_position().unwrap(), 2);
    }
}
