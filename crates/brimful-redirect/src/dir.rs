//! Directory streams: the lowest part of a merged directory is read by libc, names of the layers come after it.

use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use libc::{AT_FDCWD, DIR, dirent64};

use crate::abi::{checked_pointer, exports, next};
use crate::config::{self, Config, REAL, Realm};
use crate::list::{Names, layer_names};
use crate::names::may_list;
use crate::open::{lowest, open_at};
use crate::path::{self, PathBuf};
use crate::read::{find, written_config};
use crate::resolve::{Last, Target, resolve};
use crate::sys::{self, Outcome};

/// What the layers do to one open stream.
struct Listing {
    /// Names to leave out of the stream, and those to add after it.
    names: Names,
    added: Vec<(Vec<u8>, crate::entries::EntryKind)>,
    /// Whether anything but the dots is to be taken from the stream.
    reads_stream: bool,
    /// Which of the added names comes next; `None` while the stream is read.
    position: Option<usize>,
    entry: dirent64,
}

const N_SLOTS: usize = 1024;
const N_PROBES: usize = 64;

/// A stream that is merged, and what the layers do to it.
struct Slot {
    stream: AtomicPtr<DIR>,
    listing: AtomicPtr<Listing>,
}

/// A fixed table without a lock: a fork may happen at any time.
static SLOTS: [Slot; N_SLOTS] = [const {
    Slot {
        stream: AtomicPtr::new(std::ptr::null_mut()),
        listing: AtomicPtr::new(std::ptr::null_mut()),
    }
}; N_SLOTS];
static N_LISTINGS: AtomicUsize = AtomicUsize::new(0);
/// Positions from here on are names of the layers.
const FIRST_ADDED: c_long = c_long::MIN / 2;

fn slots(stream: *mut DIR) -> impl Iterator<Item = &'static Slot> {
    let start = (stream.addr() >> 4).wrapping_mul(0x9e37_79b9) % N_SLOTS;
    SLOTS.iter().cycle().skip(start).take(N_PROBES)
}

fn slot(stream: *mut DIR) -> Option<&'static Slot> {
    if N_LISTINGS.load(Ordering::Acquire) == 0 || stream.is_null() {
        return None;
    }
    slots(stream).find(|slot| slot.stream.load(Ordering::Acquire) == stream)
}

fn listing<'a>(stream: *mut DIR) -> Option<&'a mut Listing> {
    let listing = slot(stream)?.listing.load(Ordering::Acquire);
    // SAFETY: null, or a live listing of this stream, which one thread at a time uses and `forget` frees.
    unsafe { listing.as_mut() }
}

fn register(stream: *mut DIR, listing: Listing) {
    for slot in slots(stream) {
        let empty = std::ptr::null_mut();
        if slot
            .stream
            .compare_exchange(empty, stream, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
        {
            let listing = Box::into_raw(Box::new(listing));
            slot.listing.store(listing, Ordering::Release);
            N_LISTINGS.fetch_add(1, Ordering::AcqRel);
            return;
        }
    }
}

fn forget(stream: *mut DIR) {
    let Some(slot) = slot(stream) else { return };
    let listing = slot.listing.swap(std::ptr::null_mut(), Ordering::AcqRel);
    slot.stream.store(std::ptr::null_mut(), Ordering::Release);
    N_LISTINGS.fetch_sub(1, Ordering::AcqRel);
    if !listing.is_null() {
        // SAFETY: out of the table, and the stream's only user is here.
        drop(unsafe { Box::from_raw(listing) });
    }
}

/// Registers what the layers do to a stream, if they do anything.
fn merge(config: &Config, stream: *mut DIR, logical: &[u8], reads_real: bool) -> Outcome<()> {
    let mut target = Target::new();
    let text = if logical.is_empty() { b"/" } else { logical };
    resolve(config, AT_FDCWD, text, Last::Keep, &mut target)?;
    let Some(found) = target.found.filter(crate::resolve::Found::is_directory) else {
        return Ok(());
    };
    let begins_shared = config
        .shared
        .iter()
        .any(|(prefix, _)| path::parent(prefix) == logical);
    if !found.state.is_layered() && !begins_shared {
        return Ok(());
    }
    let names = layer_names(config, logical, found.state)?;
    let added = names
        .iter()
        .filter_map(|(name, kind)| Some((name.clone(), (*kind)?)))
        .collect();
    let listing = Listing {
        names,
        added,
        reads_stream: reads_real && found.state.has(REAL),
        position: None,
        // SAFETY: a plain structure of integers.
        entry: unsafe { std::mem::zeroed() },
    };
    register(stream, listing);
    Ok(())
}

/// Finds out what a stream shows from its descriptor.
fn merge_open(stream: *mut DIR) {
    let Some(config) = written_config() else {
        return;
    };
    let mut path = PathBuf::new();
    // SAFETY: a live stream.
    let fd = unsafe { libc::dirfd(stream) };
    if config::fd_path(fd, &mut path).is_err() || path.as_bytes().first() != Some(&b'/') {
        return;
    }
    let is_layer = config.strip_root(&mut path);
    if path.as_bytes() == b"/" {
        path.truncate(0);
    }
    if is_layer || config.realm_of(path.as_bytes()) != Realm::Pass {
        let _ = merge(config, stream, path.as_bytes(), !is_layer);
    }
}

fn read(stream: *mut DIR) -> Outcome<*mut dirent64> {
    let read = next!(c"readdir64", fn(*mut DIR) -> *mut dirent64);
    let Some(listing) = listing(stream) else {
        sys::set_errno(0);
        let entry = read(stream);
        return match sys::errno() {
            error if entry.is_null() && error != 0 => Err(error),
            _ => Ok(entry),
        };
    };
    while listing.position.is_none() {
        sys::set_errno(0);
        let entry = read(stream);
        if entry.is_null() {
            if sys::errno() != 0 {
                return Err(sys::errno());
            }
            listing.position = Some(0);
            break;
        }
        // SAFETY: an entry that libc has just filled in.
        let name = unsafe { CStr::from_ptr((&raw const (*entry).d_name).cast()) }.to_bytes();
        let is_dot = name == b"." || name == b"..";
        if is_dot || listing.reads_stream && !listing.names.contains_key(name) {
            return Ok(entry);
        }
    }
    let position = listing.position.unwrap_or(0);
    let Some((name, kind)) = listing.added.get(position) else {
        return Ok(std::ptr::null_mut());
    };
    listing.position = Some(position + 1);
    let entry = &mut listing.entry;
    entry.d_ino = kind.inode;
    entry.d_type = kind.file_type;
    entry.d_off = FIRST_ADDED + position as c_long + 1;
    entry.d_reclen = size_of::<dirent64>() as u16;
    for (to, from) in entry.d_name.iter_mut().zip(name.iter().chain([&0])) {
        *to = from.cast_signed() as c_char;
    }
    Ok(entry)
}

fn open_stream(path: *const c_char) -> Outcome<*mut DIR> {
    let open = next!(c"opendir", fn(*const c_char) -> *mut DIR);
    let mut target = Target::new();
    let Some((config, found)) = find(AT_FDCWD, path, Last::Follow, &mut target)? else {
        return checked_pointer(open(path));
    };
    if !found.is_directory() {
        return if target.is_magic {
            checked_pointer(open(path))
        } else {
            Err(libc::ENOTDIR)
        };
    }
    if !may_list(&target.physical, found) {
        return Err(libc::EACCES);
    }
    let logical = target.logical.as_bytes();
    let stream = checked_pointer(open(lowest(config, logical, found)?.as_ptr()))?;
    if target.realm != Realm::Pass {
        let _ = merge(config, stream, logical, found.state.has(REAL));
    }
    Ok(stream)
}

fn read_into(stream: *mut DIR, entry: *mut dirent64, result: *mut *mut dirent64) -> c_int {
    let answer = match read(stream) {
        Ok(found) if found.is_null() => std::ptr::null_mut(),
        Ok(found) => {
            // SAFETY: an entry of at most this size; the caller's has room for the longest name.
            unsafe {
                let len = CStr::from_ptr((&raw const (*found).d_name).cast())
                    .to_bytes()
                    .len();
                let head = std::mem::offset_of!(dirent64, d_name);
                std::ptr::copy_nonoverlapping(
                    found.cast::<u8>(),
                    entry.cast::<u8>(),
                    head + len + 1,
                );
            }
            entry
        }
        Err(error) => return error,
    };
    if !result.is_null() {
        // SAFETY: not null, and writable by the contract of the function.
        unsafe { result.write(answer) };
    }
    0
}

exports! {
    fn opendir(path: *const c_char) -> *mut DIR, std::ptr::null_mut(); { open_stream(path) }
    fn fdopendir(fd: c_int) -> *mut DIR, std::ptr::null_mut(); {
        let stream = checked_pointer(next!(c"fdopendir", fn(c_int) -> *mut DIR)(fd))?;
        merge_open(stream);
        Ok(stream)
    }
    fn readdir(stream: *mut DIR) -> *mut dirent64, std::ptr::null_mut(); { read(stream) }
    fn readdir64(stream: *mut DIR) -> *mut dirent64, std::ptr::null_mut(); { read(stream) }
    fn readdir_r(stream: *mut DIR, entry: *mut dirent64, result: *mut *mut dirent64) -> c_int, libc::EIO; {
        Ok(read_into(stream, entry, result))
    }
    fn readdir64_r(stream: *mut DIR, entry: *mut dirent64, result: *mut *mut dirent64) -> c_int, libc::EIO; {
        Ok(read_into(stream, entry, result))
    }
    fn closedir(stream: *mut DIR) -> c_int, -1; {
        if !stream.is_null() {
            forget(stream);
        }
        crate::abi::checked(next!(c"closedir", fn(*mut DIR) -> c_int)(stream))
    }
    fn rewinddir(stream: *mut DIR) -> (), (); {
        forget(stream);
        next!(c"rewinddir", fn(*mut DIR) -> ())(stream);
        merge_open(stream);
        Ok(())
    }
    fn telldir(stream: *mut DIR) -> c_long, -1; {
        if let Some(position) = listing(stream).and_then(|listing| listing.position) {
            return Ok(FIRST_ADDED + position as c_long);
        }
        Ok(next!(c"telldir", fn(*mut DIR) -> c_long)(stream))
    }
    fn seekdir(stream: *mut DIR, position: c_long) -> (), (); {
        if let Some(listing) = listing(stream) {
            listing.position = usize::try_from(position - FIRST_ADDED).ok().filter(|_| position < 0);
            if listing.position.is_some() {
                return Ok(());
            }
        }
        next!(c"seekdir", fn(*mut DIR, c_long) -> ())(stream, position);
        Ok(())
    }
    fn scandir(path: *const c_char, list: *mut *mut *mut dirent64, select: Select, compare: Compare) -> c_int, -1; {
        scan(AT_FDCWD, path, list, select, compare)
    }
    fn scandir64(path: *const c_char, list: *mut *mut *mut dirent64, select: Select, compare: Compare) -> c_int, -1; {
        scan(AT_FDCWD, path, list, select, compare)
    }
    fn scandirat(at: c_int, path: *const c_char, list: *mut *mut *mut dirent64, select: Select, compare: Compare) -> c_int, -1; {
        scan(at, path, list, select, compare)
    }
    fn scandirat64(at: c_int, path: *const c_char, list: *mut *mut *mut dirent64, select: Select, compare: Compare) -> c_int, -1; {
        scan(at, path, list, select, compare)
    }
}

type Select = Option<extern "C" fn(*const dirent64) -> c_int>;
type Compare = Option<unsafe extern "C" fn(*const c_void, *const c_void) -> c_int>;

/// libc's own `scandir` reads the directory past this library.
fn scan(
    at: c_int,
    path: *const c_char,
    list: *mut *mut *mut dirent64,
    select: Select,
    compare: Compare,
) -> Outcome<c_int> {
    let fd = open_at(
        at,
        path,
        libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC,
        0,
    )?;
    let stream = fdopendir(fd);
    if stream.is_null() {
        let error = sys::errno();
        drop(sys::Fd(fd));
        return Err(error);
    }
    let mut entries: Vec<*mut dirent64> = Vec::new();
    let outcome = loop {
        match read(stream) {
            Err(error) => break Err(error),
            Ok(entry) if entry.is_null() => break Ok(()),
            Ok(entry) => {
                if select.is_none_or(|select| select(entry) != 0) {
                    // SAFETY: copies one entry, whose name ends with zero, into memory that the caller frees.
                    let copy = unsafe {
                        let name = CStr::from_ptr((&raw const (*entry).d_name).cast()).to_bytes();
                        let size = std::mem::offset_of!(dirent64, d_name) + name.len() + 1;
                        let copy = libc::malloc(size);
                        if !copy.is_null() {
                            std::ptr::copy_nonoverlapping(
                                entry.cast::<u8>(),
                                copy.cast::<u8>(),
                                size,
                            );
                        }
                        copy.cast::<dirent64>()
                    };
                    if copy.is_null() {
                        break Err(libc::ENOMEM);
                    }
                    entries.push(copy);
                }
            }
        }
    };
    closedir(stream);
    let count = entries.len();
    // SAFETY: memory that the caller frees, as large as the pointers that go into it.
    let out = unsafe {
        libc::malloc((count.max(1)) * size_of::<*mut dirent64>()).cast::<*mut dirent64>()
    };
    if outcome.is_err() || out.is_null() || list.is_null() {
        // SAFETY: all of them are from `malloc` above.
        unsafe {
            for entry in entries {
                libc::free(entry.cast());
            }
            libc::free(out.cast());
        }
        return Err(outcome.err().unwrap_or(libc::ENOMEM));
    }
    // SAFETY: `out` has room for all, and the caller's comparison takes pointers to entries.
    unsafe {
        std::ptr::copy_nonoverlapping(entries.as_ptr(), out, count);
        if compare.is_some() {
            libc::qsort(out.cast(), count, size_of::<*mut dirent64>(), compare);
        }
        list.write(out);
    }
    c_int::try_from(count).map_err(|_| libc::EOVERFLOW)
}
