//! From a path as the script writes it to where it lies: walks the merged view component by component.

use std::ffi::c_int;

use libc::{AT_FDCWD, stat};

use crate::cache;
use crate::config::{self, Config, REAL, Realm};
use crate::dir_state::{DirState, UNSEARCHABLE, bit};
use crate::directory_mode::{HAS_MODE, directory_mode};
use crate::markers::{OPAQUE, REFERENCE, WHITEOUT};
use crate::path::{self, PathBuf};
use crate::sys::{self, Outcome};

const MAX_LINKS: usize = 40;
/// The longest path that the kernel takes.
pub(crate) const MAX_PATH: usize = 4095;

/// What lies at a path.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    /// The topmost place that has it.
    pub place: u8,
    /// Of the link itself, if it is one.
    pub stat: stat,
    /// Whether the layer only refers to the file.
    pub is_reference: bool,
    /// For directories.
    pub state: DirState,
}

impl Found {
    pub(crate) fn is_directory(&self) -> bool {
        sys::is_directory(&self.stat)
    }

    pub(crate) fn is_link(&self) -> bool {
        sys::file_type(&self.stat) == libc::S_IFLNK
    }
}

/// A path of the script, resolved.
#[derive(Debug)]
pub(crate) struct Target {
    /// Absolute and without links, except perhaps the last component.
    pub logical: PathBuf,
    /// Where it lies, if it was found.
    pub physical: PathBuf,
    /// The state of the directory that holds it.
    pub parent: DirState,
    pub realm: Realm,
    /// The places that are to be looked at for it.
    pub mask: u32,
    pub found: Option<Found>,
    pub has_trailing_slash: bool,
    /// Whether the last component was `.`, `..` or the root.
    pub is_dot: bool,
    /// A link of the kernel, such as `/proc/self/fd/3`, which only the kernel can follow.
    pub is_magic: bool,
}

impl Target {
    pub(crate) fn new() -> Self {
        let nowhere = DirState {
            realm: Realm::Pass,
            mask: 0,
        };
        Self {
            logical: PathBuf::new(),
            physical: PathBuf::new(),
            parent: nowhere,
            realm: Realm::Pass,
            mask: 0,
            found: None,
            has_trailing_slash: false,
            is_dot: false,
            is_magic: false,
        }
    }

    /// What was found, or `ENOENT`.
    pub(crate) fn existing(&self) -> Outcome<Found> {
        self.found.ok_or(libc::ENOENT)
    }

    /// The layer that takes writes; `REAL` if they go through.
    pub(crate) fn top(&self) -> u8 {
        top(self.realm)
    }

    /// Whether it lies in the layer that takes writes.
    pub(crate) fn is_on_top(&self) -> bool {
        self.found
            .is_some_and(|found| found.place == self.top() && !found.is_reference)
    }
}

pub(crate) fn top(realm: Realm) -> u8 {
    match realm {
        Realm::Pass => REAL,
        Realm::Branch => 0,
        Realm::Shared(layer) => layer,
    }
}

/// What to do with a link as the last component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Last {
    Follow,
    /// Not followed, except with a slash behind it.
    Keep,
    /// Not followed at all: the name is created or removed.
    Name,
}

/// Resolves a path; what is missing at its end is no error.
pub(crate) fn resolve(
    config: &Config,
    at: c_int,
    text: &[u8],
    last: Last,
    target: &mut Target,
) -> Outcome<()> {
    if text.is_empty() {
        return Err(libc::ENOENT);
    }
    let mut rest = PathBuf::new();
    absolute(config, at, text, &mut rest)?;
    target.has_trailing_slash = text.last() == Some(&b'/');
    let follow = match last {
        Last::Follow => true,
        Last::Keep => target.has_trailing_slash,
        Last::Name => false,
    };
    walk(config, &mut rest, follow, target)?;
    if target.has_trailing_slash
        && last != Last::Name
        && !target.is_magic
        && target.found.is_some_and(|found| !found.is_directory())
    {
        return Err(libc::ENOTDIR);
    }
    Ok(())
}

/// The path from the root, as the script sees it, with links and dots.
pub(crate) fn absolute(config: &Config, at: c_int, text: &[u8], out: &mut PathBuf) -> Outcome<()> {
    if text.len() > MAX_PATH {
        return Err(libc::ENAMETOOLONG);
    }
    if text.first() == Some(&b'/') {
        out.set(&[text])?;
        config.strip_root(out);
        return Ok(());
    }
    if at == AT_FDCWD {
        current_directory(config, out)?;
    } else {
        config::fd_path(at, out)?;
        config.strip_root(out);
        if out.as_bytes().first().is_some_and(|byte| *byte != b'/') {
            return Err(libc::ENOTDIR);
        }
    }
    if out.as_bytes() == b"/" {
        out.truncate(0);
    }
    out.push_component(text)
}

/// The working directory as the script sees it; empty for the root.
pub(crate) fn current_directory(config: &Config, out: &mut PathBuf) -> Outcome<()> {
    out.fill(|buffer, size| {
        // With the terminating zero.
        sys::call(libc::SYS_getcwd, [sys::pointer(buffer), size, 0, 0, 0, 0])
            .map(|len| len.saturating_sub(1))
    })?;
    if out.as_bytes() == b"/" {
        out.truncate(0);
    }
    config.strip_root(out);
    Ok(())
}

fn root_state(config: &Config) -> DirState {
    let mask = config
        .layers_of(Realm::Branch)
        .fold(bit(REAL), |mask, place| mask | bit(place));
    DirState {
        realm: Realm::Branch,
        mask,
    }
}

/// Where to look for a name, given the directory that holds it.
pub(crate) fn around(config: &Config, directory: DirState, logical: &[u8]) -> DirState {
    let realm = config.realm_of(logical);
    // Below what passes, only shared layers begin.
    if realm == directory.realm
        || directory.realm == Realm::Pass && !matches!(realm, Realm::Shared(_))
    {
        return directory;
    }
    let mask = match realm {
        Realm::Shared(layer) => bit(layer) | directory.mask & (bit(REAL) | UNSEARCHABLE),
        Realm::Pass | Realm::Branch => bit(REAL) | directory.mask & UNSEARCHABLE,
    };
    DirState { realm, mask }
}

/// The state of a directory without links in its path.
pub(crate) fn state_of(config: &Config, logical: &[u8]) -> Outcome<DirState> {
    let generation = config::generation();
    let mut state = root_state(config);
    let mut path = PathBuf::new();
    let mut physical = PathBuf::new();
    for name in logical
        .split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty())
    {
        path.push_component(name)?;
        if let Some(known) = cache::get(path.as_bytes(), generation) {
            state = known;
            continue;
        }
        let around = around(config, state, path.as_bytes());
        match lookup(config, around, &path, &mut physical)? {
            Some(found) if found.is_directory() => {
                state = found.state;
                remember(&path, generation, state);
            }
            Some(_) => return Err(libc::ENOTDIR),
            None => return Err(libc::ENOENT),
        }
    }
    Ok(state)
}

fn remember(path: &PathBuf, generation: u64, state: DirState) {
    if generation != 0 && state.realm != Realm::Pass && config::generation_is_shared() {
        cache::put(path.as_bytes(), generation, state);
    }
}

fn walk(config: &Config, rest: &mut PathBuf, follow: bool, target: &mut Target) -> Outcome<()> {
    let generation = config::generation();
    let mut state = root_state(config);
    let mut n_links = 0;
    let mut position = 0;
    target.logical.truncate(0);
    target.is_magic = false;
    loop {
        let bytes = rest.as_bytes();
        let start = position
            + bytes
                .get(position..)
                .unwrap_or_default()
                .iter()
                .take_while(|byte| **byte == b'/')
                .count();
        let tail = bytes.get(start..).unwrap_or_default();
        if tail.is_empty() {
            return finish_directory(config, target);
        }
        let len = tail
            .iter()
            .position(|byte| *byte == b'/')
            .unwrap_or(tail.len());
        let name = tail.get(..len).unwrap_or_default();
        position = start + len;
        let is_last = tail.iter().skip(len).all(|byte| *byte == b'/');
        if matches!(name, b"." | b"..") && state.mask & UNSEARCHABLE != 0 {
            return Err(libc::EACCES);
        }
        if name == b"." {
            continue;
        }
        if name == b".." {
            target.logical.pop();
            state = state_of(config, target.logical.as_bytes())?;
            continue;
        }
        target.logical.push_component(name)?;
        if !is_last && let Some(known) = cache::get(target.logical.as_bytes(), generation) {
            state = known;
            continue;
        }
        let around = around(config, state, target.logical.as_bytes());
        let found = lookup(config, around, &target.logical, &mut target.physical)?;
        let is_followed = found.is_some_and(|found| found.is_link()) && (follow || !is_last);
        if is_followed && !(is_last && is_magic(target.logical.as_bytes())) {
            n_links += 1;
            if n_links > MAX_LINKS {
                return Err(libc::ELOOP);
            }
            let mut next = PathBuf::new();
            sys::read_link(&mut target.physical, &mut next)?;
            if next.is_empty() {
                return Err(libc::ENOENT);
            }
            if next.as_bytes().first() == Some(&b'/') {
                config.strip_root(&mut next);
                target.logical.truncate(0);
                state = root_state(config);
            } else {
                target.logical.pop();
            }
            next.push(rest.as_bytes().get(position..).unwrap_or_default())?;
            rest.set(&[next.as_bytes()])?;
            position = 0;
            continue;
        }
        if is_last {
            target.is_dot = false;
            target.is_magic = is_followed;
            target.parent = state;
            target.realm = around.realm;
            target.mask = around.mask;
            target.found = found;
            return Ok(());
        }
        match found {
            Some(found) if found.is_directory() => {
                state = found.state;
                remember(&target.logical, generation, state);
            }
            Some(_) => return Err(libc::ENOTDIR),
            None => return Err(libc::ENOENT),
        }
    }
}

/// Links that lead where no path leads.
fn is_magic(logical: &[u8]) -> bool {
    logical.starts_with(b"/proc/")
        && (path::name(path::parent(logical)) == b"fd"
            || matches!(path::name(logical), b"exe" | b"cwd" | b"root"))
}

/// The path ended at a directory that was already walked.
fn finish_directory(config: &Config, target: &mut Target) -> Outcome<()> {
    target.is_dot = true;
    let parent = path::parent(target.logical.as_bytes());
    target.parent = state_of(config, parent)?;
    if target.logical.is_empty() {
        target.physical.truncate(0);
        let stat = sys::lstat(&mut target.physical)?;
        target.realm = target.parent.realm;
        target.mask = target.parent.mask;
        target.found = Some(Found {
            place: REAL,
            stat,
            is_reference: false,
            state: target.parent,
        });
        return Ok(());
    }
    let around = around(config, target.parent, target.logical.as_bytes());
    target.realm = around.realm;
    target.mask = around.mask;
    target.found = lookup(config, around, &target.logical, &mut target.physical)?;
    target.existing().map(|_| ())
}

/// Looks for one name in the places of the directory that holds it.
pub(crate) fn lookup(
    config: &Config,
    around: DirState,
    logical: &PathBuf,
    physical: &mut PathBuf,
) -> Outcome<Option<Found>> {
    if around.mask & UNSEARCHABLE != 0 {
        return Err(libc::EACCES);
    }
    let mut found: Option<Found> = None;
    let mut below = PathBuf::new();
    for place in config.layers_of(around.realm).chain([REAL]) {
        if !around.has(place) {
            continue;
        }
        let probe = if found.is_some() {
            &mut below
        } else {
            &mut *physical
        };
        probe.set(&[config.root(place), logical.as_bytes()])?;
        let mut stat = match sys::lstat(probe) {
            Ok(stat) => stat,
            Err(libc::ENOENT | libc::ENOTDIR) => continue,
            Err(_) if found.is_some() => continue,
            Err(error) => return Err(error),
        };
        let mut is_reference = false;
        if place != REAL && sys::file_type(&stat) == libc::S_IFLNK {
            match special(probe)? {
                Special::Whiteout => break,
                Special::Reference(mut file) => {
                    if found.is_some() {
                        break;
                    }
                    is_reference = true;
                    stat = sys::lstat(&mut file)?;
                    probe.set(&[file.as_bytes()])?;
                }
                Special::None => {}
            }
        }
        let is_directory = sys::is_directory(&stat);
        match &mut found {
            Some(_) if !is_directory => break,
            Some(above) => above.state.mask |= bit(place),
            None => {
                let mut mask = bit(place);
                if is_directory
                    && place != REAL
                    && stat.st_mode & HAS_MODE != 0
                    && sys::effective_user() != 0
                    && directory_mode(probe, &stat).0 & 0o100 == 0
                {
                    mask |= UNSEARCHABLE;
                }
                found = Some(Found {
                    place,
                    stat,
                    is_reference,
                    state: DirState {
                        realm: around.realm,
                        mask,
                    },
                });
            }
        }
        if !is_directory || place != REAL && is_opaque(config, place, logical)? {
            break;
        }
    }
    Ok(found)
}

/// What a link in a layer stands for.
#[expect(clippy::large_enum_variant, reason = "the heap is out of bounds here")]
pub(crate) enum Special {
    None,
    Whiteout,
    Reference(PathBuf),
}

pub(crate) fn special(path: &mut PathBuf) -> Outcome<Special> {
    let mut link = PathBuf::new();
    sys::read_link(path, &mut link)?;
    if link.as_bytes() == WHITEOUT {
        return Ok(Special::Whiteout);
    }
    match link.as_bytes().strip_prefix(REFERENCE) {
        Some(file) => Ok(Special::Reference(PathBuf::from_bytes(file)?)),
        None => Ok(Special::None),
    }
}

/// Whether a layer hides what lies below this path of its.
pub(crate) fn is_whiteout(path: &mut PathBuf) -> bool {
    matches!(special(path), Ok(Special::Whiteout))
}

fn is_opaque(config: &Config, place: u8, logical: &PathBuf) -> Outcome<bool> {
    let mut marker = PathBuf::new();
    marker.set(&[config.root(place), logical.as_bytes(), b"/", OPAQUE])?;
    Ok(sys::lstat(&mut marker).is_ok())
}
