//! Sockets with a path. They lie under short names in `scratch/u`, because an address holds 107 bytes; the layer holds
//! a reference at the path that the script knows.

use std::ffi::{c_int, c_void};

use libc::{AT_FDCWD, sockaddr, sockaddr_un, socklen_t};

use crate::abi::{exports, next};
use crate::config::{self, Config, REAL, config};
use crate::connections;
use crate::layer::make_reference;
use crate::names::create_name;
use crate::path::is_kernel_path;
use crate::path::{self, PathBuf};
use crate::read::written_config;
use crate::resolve::{Last, Target, resolve};
use crate::stdio::random;
use crate::sys::{self, Fd, Outcome, int, pointer};

const PATH_START: usize = std::mem::offset_of!(sockaddr_un, sun_path);
const MAX_SOCKET_PATH: usize = size_of::<sockaddr_un>() - PATH_START;

/// The path of an address; `None` if it has none.
fn path_of<'a>(address: *const sockaddr, len: socklen_t) -> Option<&'a [u8]> {
    let len = usize::try_from(len).ok()?;
    if address.is_null() || len <= PATH_START || len > size_of::<sockaddr_un>() {
        return None;
    }
    // SAFETY: not null, and of `len` bytes by the contract of the functions that take an address.
    let bytes = unsafe { std::slice::from_raw_parts(address.cast::<u8>(), len) };
    let family = u16::from_ne_bytes([*bytes.first()?, *bytes.get(1)?]);
    if c_int::from(family) != libc::AF_UNIX {
        return None;
    }
    let path = bytes.get(PATH_START..)?.split(|byte| *byte == 0).next()?;
    // Abstract names begin with zero.
    (!path.is_empty()).then_some(path)
}

/// An address for a path that fits.
fn address_of(path: &[u8]) -> Outcome<(sockaddr_un, usize)> {
    // SAFETY: a plain structure of integers.
    let mut address: sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as u16;
    if path.len() >= MAX_SOCKET_PATH {
        return Err(libc::ENAMETOOLONG);
    }
    for (to, from) in address.sun_path.iter_mut().zip(path) {
        *to = from.cast_signed() as std::ffi::c_char;
    }
    Ok((address, PATH_START + path.len() + 1))
}

fn call_with_address(number: std::ffi::c_long, fd: c_int, path: &[u8]) -> Outcome<c_int> {
    let (address, len) = address_of(path)?;
    sys::call(number, [int(fd), pointer(&raw const address), len, 0, 0, 0]).map(sys::to_int)
}

/// Opens the directory or file at a path that is too long for an address, and gives the short way to it.
fn short_way(path: &mut PathBuf, flags: c_int) -> Outcome<(Fd, PathBuf)> {
    let fd = sys::open(path, libc::O_PATH | flags, 0)?;
    let mut way = PathBuf::from_bytes(b"/proc/self/fd/")?;
    way.push(fd.0.to_string().as_bytes())?;
    Ok((fd, way))
}

fn bind_path(config: &Config, fd: c_int, text: &[u8]) -> Outcome<Option<c_int>> {
    let mut target = Target::new();
    resolve(config, AT_FDCWD, text, Last::Name, &mut target)?;
    if target.top() == REAL {
        return Ok(None);
    }
    if target.found.is_some() {
        return Err(libc::EADDRINUSE);
    }
    let mut directory = PathBuf::from_bytes(&config.scratch)?;
    directory.push(b"/u")?;
    match sys::make_directory(&mut directory, 0o700) {
        Ok(()) | Err(libc::EEXIST) => {}
        Err(error) => return Err(error),
    }
    let name = format!("{:016x}", random());
    let mut socket = PathBuf::new();
    socket.set(&[directory.as_bytes(), b"/", name.as_bytes()])?;
    match call_with_address(libc::SYS_bind, fd, socket.as_bytes()) {
        Err(libc::ENAMETOOLONG) => {
            let (_open, mut way) = short_way(&mut directory, libc::O_DIRECTORY)?;
            way.push_component(name.as_bytes())?;
            call_with_address(libc::SYS_bind, fd, way.as_bytes())?;
        }
        other => {
            other?;
        }
    }
    let mut note = PathBuf::from_bytes(socket.as_bytes())?;
    note.push(b".name")?;
    let mut script_path = PathBuf::from_bytes(text)?;
    let _ = sys::symlink(script_path.as_ptr(), &mut note);
    let made = create_name(config, &mut target, |path, _| make_reference(&socket, path));
    if made.is_err() {
        let _ = sys::unlink(&mut socket, 0);
        let _ = sys::unlink(&mut note, 0);
    }
    made?;
    Ok(Some(0))
}

fn connect_path(config: &Config, fd: c_int, text: &[u8]) -> Outcome<Option<c_int>> {
    let mut target = Target::new();
    resolve(config, AT_FDCWD, text, Last::Follow, &mut target)?;
    let found = target.existing()?;
    if found.place == REAL {
        return Ok(None);
    }
    match call_with_address(libc::SYS_connect, fd, target.physical.as_bytes()) {
        Err(libc::ENAMETOOLONG) => {
            let (_open, way) = short_way(&mut target.physical, 0)?;
            call_with_address(libc::SYS_connect, fd, way.as_bytes()).map(Some)
        }
        other => other.map(Some),
    }
}

/// Puts the script's own path into an address that the kernel gave.
fn show_name(address: *mut sockaddr, room: socklen_t, len: *mut socklen_t) {
    if address.is_null() || len.is_null() {
        return;
    }
    // SAFETY: both were written by the kernel just now.
    let real_len = unsafe { *len };
    let (Some(config), Some(path)) = (written_config(), path_of(address, real_len.min(room)))
    else {
        return;
    };
    let mut note = PathBuf::new();
    let mut logical = PathBuf::new();
    if note
        .set(&[&config.scratch, b"/u/", path::name(path), b".name"])
        .is_err()
        || sys::read_link(&mut note, &mut logical).is_err()
    {
        return;
    }
    if let Ok((shown, size)) = address_of(logical.as_bytes()) {
        // SAFETY: at most as many bytes as the caller has room for.
        unsafe {
            let size_shown = size.min(room as usize);
            std::ptr::copy_nonoverlapping(
                (&raw const shown).cast::<u8>(),
                address.cast::<u8>(),
                size_shown,
            );
            len.write(size as socklen_t);
        }
    }
}

fn name_call(
    number: std::ffi::c_long,
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> Outcome<c_int> {
    // SAFETY: null, or a length by the contract of the function.
    let room = unsafe { len.as_ref() }.copied().unwrap_or(0);
    let answer =
        sys::call(number, [int(fd), pointer(address), pointer(len), 0, 0, 0]).map(sys::to_int)?;
    show_name(address, room, len);
    Ok(answer)
}

exports! {
    fn bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int, -1; {
        connections::record_listener(address, len);
        if let (Some(config), Some(path)) = (config(), path_of(address, len))
            && !is_kernel_path(path)
            && let Some(answer) = bind_path(config, fd, path)?
        {
            return Ok(answer);
        }
        sys::call(libc::SYS_bind, [int(fd), pointer(address), len as usize, 0, 0, 0]).map(sys::to_int)
    }
    fn connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int, -1; {
        connections::record(address, len);
        if let Some(path) = path_of(address, len)
            && let Some(config) = config().filter(|_| config::generation() != 0)
            && !is_kernel_path(path)
            && let Some(answer) = connect_path(config, fd, path)?
        {
            return Ok(answer);
        }
        // Through libc, where it is a point at which threads can be cancelled.
        let answer = crate::abi::checked(next!(c"connect", fn(c_int, *const sockaddr, socklen_t) -> c_int)(fd, address, len));
        connections::record_local(address, len, answer);
        answer
    }
    fn listen(fd: c_int, backlog: c_int) -> c_int, -1; {
        let answer = sys::call(libc::SYS_listen, [int(fd), int(backlog), 0, 0, 0, 0]).map(sys::to_int)?;
        // The port may be one that the kernel has chosen.
        let mut address = std::mem::MaybeUninit::<libc::sockaddr_storage>::zeroed();
        let mut len = size_of::<libc::sockaddr_storage>() as socklen_t;
        let name = pointer(address.as_mut_ptr());
        if sys::call(libc::SYS_getsockname, [int(fd), name, pointer(&raw mut len), 0, 0, 0]).is_ok() {
            connections::record_listener(address.as_ptr().cast(), len);
        }
        Ok(answer)
    }
    fn getsockname(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int, -1; {
        name_call(libc::SYS_getsockname, fd, address, len)
    }
    fn getpeername(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int, -1; {
        name_call(libc::SYS_getpeername, fd, address, len)
    }
    fn sendto(fd: c_int, data: *const c_void, size: usize, flags: c_int, address: *const sockaddr, len: socklen_t) -> isize, -1; {
        connections::record(address, len);
        let send = next!(c"sendto", fn(c_int, *const c_void, usize, c_int, *const sockaddr, socklen_t) -> isize);
        sent(send(fd, data, size, flags, address, len))
    }
    fn sendmsg(fd: c_int, message: *const libc::msghdr, flags: c_int) -> isize, -1; {
        connections::record_message(message);
        sent(next!(c"sendmsg", fn(c_int, *const libc::msghdr, c_int) -> isize)(fd, message, flags))
    }
    fn sendmmsg(fd: c_int, messages: *mut libc::mmsghdr, count: std::ffi::c_uint, flags: c_int) -> c_int, -1; {
        for i in 0..count.min(1024) as usize {
            // SAFETY: `count` messages by the contract of the function.
            connections::record_message(unsafe { &raw const (*messages.add(i)).msg_hdr });
        }
        crate::abi::checked(next!(c"sendmmsg", fn(c_int, *mut libc::mmsghdr, std::ffi::c_uint, c_int) -> c_int)(fd, messages, count, flags))
    }
}

fn sent(result: isize) -> Outcome<isize> {
    if result < 0 {
        Err(sys::errno())
    } else {
        Ok(result)
    }
}
