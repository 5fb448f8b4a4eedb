//! `ftw` and `nftw`, which libc runs past this library.

use std::ffi::{CStr, c_char, c_int};

use libc::stat;

use crate::abi::{checked, exports, next, text};
use crate::dir::{closedir, opendir, readdir64};
use crate::path;
use crate::read::{self, written_config};
use crate::sys::{self, Outcome};

const FTW_F: c_int = 0;
const FTW_D: c_int = 1;
const FTW_DNR: c_int = 2;
const FTW_NS: c_int = 3;
const FTW_SL: c_int = 4;
const FTW_DP: c_int = 5;
const FTW_SLN: c_int = 6;

const FTW_PHYS: c_int = 1;
const FTW_MOUNT: c_int = 2;
const FTW_CHDIR: c_int = 4;
const FTW_DEPTH: c_int = 8;
const FTW_ACTIONRETVAL: c_int = 16;
const FTW_STOP: c_int = 1;
const FTW_SKIP_SUBTREE: c_int = 2;
const FTW_SKIP_SIBLINGS: c_int = 3;

#[repr(C)]
pub(crate) struct Position {
    base: c_int,
    level: c_int,
}

type Old = extern "C" fn(*const c_char, *const stat, c_int) -> c_int;
type New = extern "C" fn(*const c_char, *const stat, c_int, *mut Position) -> c_int;

#[derive(Clone, Copy)]
enum Visit {
    Old(Old),
    New(New),
}

struct TreeWalk {
    visit: Visit,
    flags: c_int,
    device: libc::dev_t,
    /// The directories above, against links that lead back to one of them.
    above: Vec<(libc::dev_t, libc::ino_t)>,
}

impl TreeWalk {
    fn call(&self, path: &[u8], stat: &stat, kind: c_int) -> c_int {
        let mut name = path.to_vec();
        name.push(0);
        let base = path.len() - path::name(path).len();
        match self.visit {
            Visit::Old(visit) => visit(name.as_ptr().cast(), stat, kind.min(FTW_SL)),
            Visit::New(visit) => {
                let mut position = Position {
                    base: c_int::try_from(base).unwrap_or(0),
                    level: c_int::try_from(self.above.len()).unwrap_or(0),
                };
                visit(name.as_ptr().cast(), stat, kind, &raw mut position)
            }
        }
    }

    /// What lies at a path, and what it is called.
    fn look(&self, path: &[u8]) -> (stat, c_int) {
        let name = [path, b"\0"].concat();
        let mut found = sys::empty_stat();
        let look = |follow: bool, found: &mut stat| {
            let name = name.as_ptr().cast();
            if follow {
                read::stat(name, found)
            } else {
                read::lstat(name, found)
            }
        };
        if self.flags & FTW_PHYS == 0 && look(true, &mut found) == 0 {
            return (
                found,
                if sys::is_directory(&found) {
                    FTW_D
                } else {
                    FTW_F
                },
            );
        }
        if look(false, &mut found) != 0 {
            return (found, FTW_NS);
        }
        let kind = match sys::file_type(&found) {
            libc::S_IFDIR => FTW_D,
            libc::S_IFLNK if self.flags & FTW_PHYS != 0 => FTW_SL,
            libc::S_IFLNK => FTW_SLN,
            _ => FTW_F,
        };
        (found, kind)
    }

    fn go(&mut self, path: &[u8]) -> Outcome<c_int> {
        let (stat, kind) = self.look(path);
        if kind == FTW_NS && self.above.is_empty() {
            return Err(libc::ENOENT);
        }
        if self.above.is_empty() {
            self.device = stat.st_dev;
        }
        if self.flags & FTW_MOUNT != 0 && stat.st_dev != self.device {
            return Ok(0);
        }
        if kind != FTW_D {
            return Ok(self.call(path, &stat, kind));
        }
        let own = (stat.st_dev, stat.st_ino);
        if self.flags & FTW_PHYS == 0 && self.above.contains(&own) {
            return Ok(0);
        }
        let Some(names) = names(path) else {
            return Ok(self.call(path, &stat, FTW_DNR));
        };
        if self.flags & FTW_DEPTH == 0 {
            match self.call(path, &stat, FTW_D) {
                0 => {}
                FTW_SKIP_SUBTREE if self.flags & FTW_ACTIONRETVAL != 0 => return Ok(0),
                other => return Ok(other),
            }
        }
        self.above.push(own);
        let result = self.go_below(path, &names);
        self.above.pop();
        let result = result?;
        if result == 0 && self.flags & FTW_DEPTH != 0 {
            return Ok(self.call(path, &stat, FTW_DP));
        }
        Ok(result)
    }

    fn go_below(&mut self, path: &[u8], names: &[Vec<u8>]) -> Outcome<c_int> {
        for name in names {
            let slash: &[u8] = if path.ends_with(b"/") { b"" } else { b"/" };
            match self.go(&[path, slash, name].concat())? {
                0 => {}
                FTW_SKIP_SIBLINGS if self.flags & FTW_ACTIONRETVAL != 0 => break,
                FTW_STOP if self.flags & FTW_ACTIONRETVAL != 0 => return Ok(FTW_STOP),
                other => return Ok(other),
            }
        }
        Ok(0)
    }
}

/// The names in a directory without the dots; `None` if it cannot be read.
fn names(path: &[u8]) -> Option<Vec<Vec<u8>>> {
    let path = [path, b"\0"].concat();
    let stream = opendir(path.as_ptr().cast());
    if stream.is_null() {
        return None;
    }
    let mut names = Vec::new();
    loop {
        let entry = readdir64(stream);
        if entry.is_null() {
            break;
        }
        // SAFETY: an entry of the stream, which is open.
        let name = unsafe { CStr::from_ptr((&raw const (*entry).d_name).cast()) }.to_bytes();
        if name != b"." && name != b".." {
            names.push(name.to_vec());
        }
    }
    closedir(stream);
    Some(names)
}

fn walk(path: *const c_char, visit: Visit, flags: c_int) -> Outcome<c_int> {
    let path = text(path)?;
    if path.is_empty() {
        return Err(libc::ENOENT);
    }
    let mut walk = TreeWalk {
        visit,
        flags,
        device: 0,
        above: Vec::new(),
    };
    walk.go(path)
}

fn old_walk(path: *const c_char, visit: Old, n_open: c_int) -> Outcome<c_int> {
    if written_config().is_none() {
        let next = next!(c"ftw", fn(*const c_char, Old, c_int) -> c_int);
        return checked(next(path, visit, n_open));
    }
    walk(path, Visit::Old(visit), 0)
}

fn new_walk(path: *const c_char, visit: New, n_open: c_int, flags: c_int) -> Outcome<c_int> {
    // With a changing working directory libc has to do it.
    if written_config().is_none() || flags & FTW_CHDIR != 0 {
        let next = next!(c"nftw", fn(*const c_char, New, c_int, c_int) -> c_int);
        return checked(next(path, visit, n_open, flags));
    }
    walk(path, Visit::New(visit), flags)
}

exports! {
    fn ftw(path: *const c_char, visit: Old, n_open: c_int) -> c_int, -1; { old_walk(path, visit, n_open) }
    fn ftw64(path: *const c_char, visit: Old, n_open: c_int) -> c_int, -1; { old_walk(path, visit, n_open) }
    fn nftw(path: *const c_char, visit: New, n_open: c_int, flags: c_int) -> c_int, -1; {
        new_walk(path, visit, n_open, flags)
    }
    fn nftw64(path: *const c_char, visit: New, n_open: c_int, flags: c_int) -> c_int, -1; {
        new_walk(path, visit, n_open, flags)
    }
}
