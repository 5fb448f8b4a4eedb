//! The mode of a directory in a layer, as the script sees it.

use libc::{mode_t, stat};

use crate::errno::Outcome;
use crate::markers::MODE;
use crate::path::PathBuf;
use crate::sys;

/// A directory of a layer whose mode stands in [`MODE`]. The bit means nothing on directories, so nobody misses it.
pub(crate) const HAS_MODE: mode_t = libc::S_ISUID;

const OWNER_ALL: mode_t = 0o700;

/// Sets the mode that the script sees of a directory in a layer.
pub(crate) fn set_directory_mode(path: &mut PathBuf, mode: mode_t, is_closed: bool) -> Outcome<()> {
    let mode = mode & !HAS_MODE;
    let before = sys::lstat(path)?;
    let is_plain = mode & OWNER_ALL == OWNER_ALL && !is_closed;
    if before.st_mode & HAS_MODE == 0 && is_plain {
        return sys::set_mode(path, mode);
    }
    let mut marker = PathBuf::new();
    marker.set(&[path.as_bytes(), b"/", MODE])?;
    match sys::unlink(&mut marker, 0) {
        Ok(()) | Err(libc::ENOENT) => {}
        other => return other,
    }
    let changed = if is_plain {
        sys::set_mode(path, mode)
    } else {
        let mut text = *b"0000:rw\0";
        for (i, byte) in text.iter_mut().take(4).enumerate() {
            *byte = b'0' + (mode >> (9 - 3 * i) & 7) as u8;
        }
        if is_closed {
            text[6] = b'o';
        }
        sys::symlink(text.as_ptr().cast(), &mut marker)?;
        sys::set_mode(path, mode | OWNER_ALL | HAS_MODE)
    };
    // The mark is not to be seen in the time of the last change.
    let _ = sys::set_times(path, &sys::times_of(&before));
    changed
}

/// The mode that the script sees, and whether the directory is closed to it.
pub(crate) fn directory_mode(path: &PathBuf, stat: &stat) -> (mode_t, bool) {
    let mode = stat.st_mode & 0o7777;
    if mode & HAS_MODE == 0 {
        return (mode, false);
    }
    let read = || -> Outcome<(mode_t, bool)> {
        let mut marker = PathBuf::new();
        marker.set(&[path.as_bytes(), b"/", MODE])?;
        let mut text = PathBuf::new();
        sys::read_link(&mut marker, &mut text)?;
        let digits = text.as_bytes().iter().take(4);
        let mode = digits.fold(0, |mode, digit| mode << 3 | mode_t::from(digit & 7));
        Ok((mode, text.as_bytes().ends_with(b"ro")))
    };
    read().unwrap_or((mode & !HAS_MODE, false))
}
