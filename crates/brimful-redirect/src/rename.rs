//! Renaming. What lies in the layer that takes writes is renamed there; what lies below is referred to, not copied, so
//! that moving a directory of checkpoints costs no space.

use std::ffi::{c_char, c_int, c_uint};

use libc::AT_FDCWD;

use crate::abi::{exports, text};
use crate::config::{self, Config, REAL};
use crate::dir_state::{DirState, bit};
use crate::layer::{
    self, Lock, copy_node, ensure_directory, make_opaque, make_reference, physical, put_whiteout,
    remove_tree, shows_below,
};
use crate::list;
use crate::names::{check_removable, remove_file, resolve_name};
use crate::path::{self, PathBuf, is_at_or_below};
use crate::resolve::{Found, MAX_PATH, Target, around, lookup, top};
use crate::sys::{self, Outcome, RENAME_EXCHANGE, RENAME_NOREPLACE};

pub(crate) fn rename_at(
    from_at: c_int,
    from: *const c_char,
    to_at: c_int,
    to: *const c_char,
    flags: c_uint,
) -> Outcome<c_int> {
    let same = || sys::rename_at([from_at, to_at], from, to, flags).map(|()| 0);
    let is_known = matches!(flags, 0 | RENAME_NOREPLACE | RENAME_EXCHANGE);
    if !is_known && config::config().is_some() {
        return Err(libc::EINVAL);
    }
    let resolved = resolve_name(from_at, from);
    if matches!(resolved, Err(libc::ENAMETOOLONG)) && text(from)?.len() <= MAX_PATH {
        // The kernel looks at both directories before it looks at names.
        resolve_name(to_at, to)?;
    }
    let Some((config, mut source)) = resolved? else {
        return same();
    };
    let resolved = resolve_name(to_at, to);
    if matches!(resolved, Err(libc::ENAMETOOLONG)) && text(to)?.len() <= MAX_PATH {
        // The kernel looks at the last component only if there is something to rename.
        source.existing()?;
    }
    let Some((_, mut target)) = resolved? else {
        return Err(libc::EXDEV);
    };
    if source.is_dot || target.is_dot && flags != RENAME_NOREPLACE {
        return Err(libc::EBUSY);
    }
    if target.is_dot {
        return Err(libc::EEXIST);
    }
    let found = source.existing()?;
    if flags == RENAME_NOREPLACE && target.found.is_some() {
        return Err(libc::EEXIST);
    }
    if flags == RENAME_EXCHANGE && target.found.is_none() {
        return Err(libc::ENOENT);
    }
    if !found.is_directory()
        && (source.has_trailing_slash || target.has_trailing_slash && flags != RENAME_EXCHANGE)
    {
        return Err(libc::ENOTDIR);
    }
    if source.logical.as_bytes() == target.logical.as_bytes() {
        return Ok(0);
    }
    if found.is_directory() && is_at_or_below(target.logical.as_bytes(), source.logical.as_bytes())
    {
        return Err(libc::EINVAL);
    }
    if is_at_or_below(source.logical.as_bytes(), target.logical.as_bytes()) {
        return Err(if flags == RENAME_EXCHANGE {
            libc::EINVAL
        } else {
            libc::ENOTEMPTY
        });
    }
    if source.top() == REAL && target.top() == REAL {
        let mut from = PathBuf::from_bytes(source.logical.as_bytes())?;
        let mut to = PathBuf::from_bytes(target.logical.as_bytes())?;
        return sys::rename(&mut from, &mut to, flags).map(|()| 0);
    }
    check_parents(config, &source, &target, found)?;
    if flags == RENAME_EXCHANGE {
        exchange(config, &mut source, &mut target)?;
    } else if found.is_directory() {
        rename_directory(config, &source, &target, found)?;
    } else {
        rename_file(config, &mut source, &mut target, found)?;
    }
    Ok(0)
}

fn check_parents(config: &Config, source: &Target, target: &Target, found: Found) -> Outcome<()> {
    if source.top() != REAL {
        check_removable(config, source, found)?;
    }
    if target.top() != REAL {
        match target.found {
            Some(replaced) => check_removable(config, target, replaced)?,
            None => layer::check_writable(
                config,
                path::parent(target.logical.as_bytes()),
                target.parent,
            )?,
        }
    }
    Ok(())
}

fn parents_on_top(config: &Config, target: &Target) -> Outcome<()> {
    ensure_directory(
        config,
        path::parent(target.logical.as_bytes()),
        target.parent,
    )
}

fn rename_file(
    config: &Config,
    source: &mut Target,
    target: &mut Target,
    found: Found,
) -> Outcome<()> {
    if let Some(replaced) = target.found {
        if replaced.is_directory() {
            return Err(libc::EISDIR);
        }
        // Two names of one file: nothing happens.
        if replaced.stat.st_ino == found.stat.st_ino && replaced.stat.st_dev == found.stat.st_dev {
            return Ok(());
        }
    }
    parents_on_top(config, target)?;
    let place = target.top();
    let mut to = physical(config, place, target.logical.as_bytes())?;
    if place == source.top() && found.place == place {
        // The entry of the layer itself, which may be a reference.
        let mut from = physical(config, place, source.logical.as_bytes())?;
        let hides = shows_below(config, source)?.is_some();
        sys::rename(&mut from, &mut to, 0)?;
        if hides {
            put_whiteout(config, place, source.logical.as_bytes())?;
        }
        config::written();
        return Ok(());
    }
    let mut unfinished = if place == REAL {
        let mut path = PathBuf::from_bytes(to.as_bytes())?;
        path.push(b".brimful-unfinished")?;
        path
    } else {
        layer::temporary(config, place)?
    };
    let is_frozen = place == source.top() && sys::file_type(&found.stat) == libc::S_IFREG;
    let made = if is_frozen {
        make_reference(&source.physical, &mut unfinished)
    } else {
        copy_node(&mut source.physical, &mut unfinished, &found.stat, true)
    };
    let moved = made.and_then(|()| sys::rename(&mut unfinished, &mut to, 0));
    if moved.is_err() {
        let _ = sys::unlink(&mut unfinished, 0);
    }
    moved?;
    config::written();
    remove_file(config, source, found)
}

fn rename_directory(
    config: &Config,
    source: &Target,
    target: &Target,
    found: Found,
) -> Outcome<()> {
    if let Some(replaced) = target.found {
        if !replaced.is_directory() {
            return Err(libc::ENOTDIR);
        }
        if !list::is_empty(config, target.logical.as_bytes(), replaced.state)? {
            return Err(libc::ENOTEMPTY);
        }
    }
    let place = source.top();
    if place != target.top() || place == REAL {
        return Err(libc::EXDEV);
    }
    parents_on_top(config, target)?;
    flatten(config, source.logical.as_bytes(), found.state)?;
    let _lock = Lock::take(config, place);
    let mut from = physical(config, place, source.logical.as_bytes())?;
    let mut to = physical(config, place, target.logical.as_bytes())?;
    if shows_below(config, target)?.is_some() {
        make_opaque(&mut from)?;
    }
    let hides = shows_below(config, source)?.is_some();
    // An empty directory with marks in it, or a whiteout, makes room.
    let mut away = layer::temporary(config, place)?;
    match sys::lstat(&mut to) {
        Ok(stat) if sys::is_directory(&stat) => sys::rename(&mut to, &mut away, 0)?,
        Ok(_) => sys::unlink(&mut to, 0)?,
        Err(_) => {}
    }
    let moved = sys::rename(&mut from, &mut to, 0);
    remove_tree(&mut away);
    moved?;
    if hides {
        put_whiteout(config, place, source.logical.as_bytes())?;
    }
    config::changed();
    Ok(())
}

fn exchange(config: &Config, source: &mut Target, target: &mut Target) -> Outcome<()> {
    let place = source.top();
    if place != target.top() || place == REAL {
        return Err(libc::EXDEV);
    }
    for side in [&mut *source, &mut *target] {
        let found = side.existing()?;
        parents_on_top(config, side)?;
        if found.is_directory() {
            flatten(config, side.logical.as_bytes(), found.state)?;
        } else if found.place != place {
            refer(
                config,
                place,
                side.logical.as_bytes(),
                &mut side.physical,
                found,
            )?;
        }
    }
    let _lock = Lock::take(config, place);
    let mut from = physical(config, place, source.logical.as_bytes())?;
    let mut to = physical(config, place, target.logical.as_bytes())?;
    for (path, other, at) in [
        (&mut from, &*source, &*target),
        (&mut to, &*target, &*source),
    ] {
        if other.existing()?.is_directory() && shows_below(config, at)?.is_some() {
            make_opaque(path)?;
        }
    }
    sys::rename(&mut from, &mut to, RENAME_EXCHANGE)?;
    config::changed();
    Ok(())
}

/// Puts what lies below into a layer under the same path: a link as a copy, a file as a reference.
fn refer(
    config: &Config,
    place: u8,
    logical: &[u8],
    file: &mut PathBuf,
    found: Found,
) -> Outcome<()> {
    let mut to = physical(config, place, logical)?;
    let made = match sys::file_type(&found.stat) {
        libc::S_IFLNK | libc::S_IFIFO => copy_node(file, &mut to, &found.stat, true),
        _ => make_reference(file, &mut to),
    };
    match made {
        Err(libc::EEXIST) => Ok(()),
        other => other,
    }
}

/// Makes a directory of the layer that takes writes independent of what lies below it, without a copy of any file.
fn flatten(config: &Config, logical: &[u8], state: DirState) -> Outcome<()> {
    let state = state.opened();
    let place = top(state.realm);
    if state.mask == bit(place) {
        return Ok(());
    }
    ensure_directory(config, logical, state)?;
    let mut directory = physical(config, place, logical)?;
    let before = sys::lstat(&mut directory)?;
    let mut path = Box::new(PathBuf::from_bytes(logical)?);
    let mut file = Box::new(PathBuf::new());
    for name in list::visible(config, logical, state)? {
        path.truncate(logical.len());
        path.push_component(&name)?;
        let places = around(config, state, path.as_bytes());
        let Some(found) = lookup(config, places, &path, &mut file)? else {
            continue;
        };
        if found.is_directory() {
            flatten(config, path.as_bytes(), found.state)?;
        } else if found.place != place {
            refer(config, place, path.as_bytes(), &mut file, found)?;
        }
    }
    make_opaque(&mut directory)?;
    let _ = sys::set_times(&mut directory, &sys::times_of(&before));
    config::changed();
    Ok(())
}

exports! {
    fn rename(from: *const c_char, to: *const c_char) -> c_int, -1; { rename_at(AT_FDCWD, from, AT_FDCWD, to, 0) }
    fn renameat(from_at: c_int, from: *const c_char, to_at: c_int, to: *const c_char) -> c_int, -1; {
        rename_at(from_at, from, to_at, to, 0)
    }
    fn renameat2(from_at: c_int, from: *const c_char, to_at: c_int, to: *const c_char, flags: c_uint) -> c_int, -1; {
        rename_at(from_at, from, to_at, to, flags)
    }
}
