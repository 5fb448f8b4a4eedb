//! Copies of files: by reflink where the file system can, otherwise extent by extent, so that holes stay holes.

use std::ffi::c_int;

use libc::stat;

use crate::path::PathBuf;
use crate::sys::{self, Fd, Outcome, int, pointer};

const CHUNK: usize = 1 << 14;
/// How much one call may copy; a signal can come between two.
const STRETCH: u64 = 64 << 20;

/// Copies a regular file into a new one with its mode, times, owner and extended attributes.
pub(crate) fn copy_file(
    from: &mut PathBuf,
    to: &mut PathBuf,
    stat: &stat,
    with_data: bool,
) -> Outcome<()> {
    let target = sys::open(to, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL, 0o600)?;
    let source = sys::open(from, libc::O_RDONLY | libc::O_NOFOLLOW, 0);
    if with_data {
        copy_data(source.as_ref().map_err(|error| *error)?, &target)?;
    }
    if let Ok(source) = &source {
        copy_attributes(source.0, target.0);
    }
    if sys::effective_user() == 0 {
        let (user, group) = (stat.st_uid as usize, stat.st_gid as usize);
        let _ = sys::call_with_token(libc::SYS_fchown, [int(target.0), user, group, 0, 0]);
    }
    let mode = (stat.st_mode & 0o7777) as usize;
    sys::call_with_token(libc::SYS_fchmod, [int(target.0), mode, 0, 0, 0])?;
    let times = sys::times_of(stat);
    let _ = sys::call_with_token(
        libc::SYS_utimensat,
        [int(target.0), 0, pointer(times.as_ptr()), 0, 0],
    );
    Ok(())
}

fn copy_data(from: &Fd, to: &Fd) -> Outcome<()> {
    if sys::clone_file(from.0, to.0).is_ok() {
        return Ok(());
    }
    let size = sys::stat_fd(from.0)?.st_size;
    sys::call(libc::SYS_ftruncate, [int(to.0), size as usize, 0, 0, 0, 0])?;
    let mut offset = 0;
    while offset < size {
        let start = match seek(from, offset, libc::SEEK_DATA) {
            Ok(start) => start,
            // Nothing but a hole is left.
            Err(libc::ENXIO) => break,
            Err(_) => offset,
        };
        let end = seek(from, start, libc::SEEK_HOLE)
            .ok()
            .filter(|end| *end > start)
            .unwrap_or(size);
        copy_stretch(from, to, start, end)?;
        offset = end;
    }
    Ok(())
}

fn seek(fd: &Fd, offset: i64, whence: c_int) -> Outcome<i64> {
    sys::call(
        libc::SYS_lseek,
        [int(fd.0), offset as usize, int(whence), 0, 0, 0],
    )
    .map(|offset| offset as i64)
}

fn copy_stretch(from: &Fd, to: &Fd, start: i64, end: i64) -> Outcome<()> {
    let mut offset = start;
    while offset < end {
        let mut offsets = (offset, offset);
        let len = ((end - offset).cast_unsigned()).min(STRETCH) as usize;
        let copied = sys::call(
            libc::SYS_copy_file_range,
            [
                int(from.0),
                pointer(&raw mut offsets.0),
                int(to.0),
                pointer(&raw mut offsets.1),
                len,
                0,
            ],
        );
        match copied {
            // The file became shorter.
            Ok(0) => return Ok(()),
            Ok(n) => offset += n as i64,
            Err(libc::EINTR) => {}
            Err(error @ (libc::ENOSPC | libc::EDQUOT | libc::EIO)) => return Err(error),
            Err(_) => return copy_by_hand(from, to, offset, end),
        }
    }
    Ok(())
}

fn copy_by_hand(from: &Fd, to: &Fd, start: i64, end: i64) -> Outcome<()> {
    let mut buffer = [0_u8; CHUNK];
    let mut offset = start;
    while offset < end {
        let len = ((end - offset).cast_unsigned()).min(CHUNK as u64) as usize;
        let read = sys::call(
            libc::SYS_pread64,
            [
                int(from.0),
                pointer(buffer.as_mut_ptr()),
                len,
                offset as usize,
                0,
                0,
            ],
        );
        let n = match read {
            Ok(0) => return Ok(()),
            Ok(n) => n,
            Err(libc::EINTR) => continue,
            Err(error) => return Err(error),
        };
        let mut written = 0;
        while written < n {
            let part = buffer.get(written..n).unwrap_or_default();
            let at = offset as usize + written;
            match sys::call(
                libc::SYS_pwrite64,
                [int(to.0), pointer(part.as_ptr()), part.len(), at, 0, 0],
            ) {
                Ok(0) => return Err(libc::EIO),
                Ok(n) => written += n,
                Err(libc::EINTR) => {}
                Err(error) => return Err(error),
            }
        }
        offset += n as i64;
    }
    Ok(())
}

/// Copies what the user may set; what the target's file system refuses is left out.
fn copy_attributes(from: c_int, to: c_int) {
    let mut names = [0_u8; 4096];
    let Ok(len) = sys::call(
        libc::SYS_flistxattr,
        [int(from), pointer(names.as_mut_ptr()), names.len(), 0, 0, 0],
    ) else {
        return;
    };
    let mut value = [0_u8; 4096];
    for name in names
        .get(..len)
        .unwrap_or_default()
        .split_inclusive(|byte| *byte == 0)
    {
        if !name.starts_with(b"user.") {
            continue;
        }
        let name = pointer(name.as_ptr());
        if let Ok(size) = sys::call(
            libc::SYS_fgetxattr,
            [
                int(from),
                name,
                pointer(value.as_mut_ptr()),
                value.len(),
                0,
                0,
            ],
        ) {
            let _ = sys::call_with_token(
                libc::SYS_fsetxattr,
                [int(to), name, pointer(value.as_ptr()), size, 0],
            );
        }
    }
}
