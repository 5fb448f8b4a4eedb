//! Whom a program talks to: one line of JSON for each address and port, or path of a socket, when it is first seen. What
//! the program itself listens on gets a line too: talking to oneself is no connection.

use std::ffi::{CStr, c_char, c_int};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use libc::{addrinfo, sockaddr, sockaddr_in, sockaddr_in6, socklen_t};

use crate::abi::{exports, next};
use crate::environment::{CONNECTIONS, variable};
use crate::path::PathBuf;
use crate::sys::{self, Outcome, int, pointer};

const MAX_CONNECTIONS: usize = 256;
const MAX_HOST: usize = 253;
const DNS: u16 = 53;
const SOCKET_NAME_AT: usize = std::mem::offset_of!(libc::sockaddr_un, sun_path);

/// What was seen, by hash; zero is free.
static SEEN: [AtomicU64; MAX_CONNECTIONS] = [const { AtomicU64::new(0) }; MAX_CONNECTIONS];
static N_SEEN: AtomicUsize = AtomicUsize::new(0);
/// Only ever tried, never waited for: a fork may have left it locked.
static HOSTS: Mutex<Vec<(IpAddr, String)>> = Mutex::new(Vec::new());

/// The file's path, or an empty one, leaked at the first use.
static FILE: AtomicPtr<Vec<u8>> = AtomicPtr::new(std::ptr::null_mut());

fn file() -> Option<&'static [u8]> {
    let mut file = FILE.load(Ordering::Acquire);
    if file.is_null() {
        file = Box::into_raw(Box::new(variable(CONNECTIONS).unwrap_or_default()));
        FILE.store(file, Ordering::Release);
    }
    // SAFETY: leaked and never changed.
    let file = unsafe { file.as_ref() }?;
    (!file.is_empty()).then_some(file)
}

/// Records the destination of a call, if it is new.
pub(crate) fn record(address: *const sockaddr, len: socklen_t) {
    if file().is_none() {
        return;
    }
    let Some((ip, port)) = destination(address, len) else {
        return;
    };
    if port == DNS || !is_new(hash_of(ip, port)) {
        return;
    }
    let host = HOSTS.try_lock().ok().and_then(|hosts| {
        hosts
            .iter()
            .rev()
            .find(|(known, _)| *known == ip)
            .map(|(_, host)| host.clone())
    });
    let line = match host {
        Some(host) => format!("{{\"address\":\"{ip}\",\"port\":{port},\"host\":\"{host}\"}}\n"),
        None => format!("{{\"address\":\"{ip}\",\"port\":{port}}}\n"),
    };
    write_line(&line);
}

/// Records the local socket that a call has reached, or could not although it is there, if it is new.
pub(crate) fn record_local(address: *const sockaddr, len: socklen_t, outcome: Outcome<c_int>) {
    let role = match outcome {
        Ok(_) | Err(libc::EINPROGRESS | libc::EAGAIN | libc::EISCONN) => "socket",
        Err(libc::EACCES | libc::EPERM | libc::ECONNREFUSED) => "refused",
        Err(_) => return,
    };
    if file().is_some()
        && let Some(socket) = socket_name(address, len)
    {
        record_socket(role, socket);
    }
}

/// Records what a program listens on.
pub(crate) fn record_listener(address: *const sockaddr, len: socklen_t) {
    if file().is_none() {
        return;
    }
    if let Some(socket) = socket_name(address, len) {
        record_socket("listens_on", socket);
    } else if let Some((_, port)) = destination(address, len)
        && port != 0
        && is_new(hash_of(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port))
    {
        write_line(&format!("{{\"listens_at\":{port}}}\n"));
    }
}

fn record_socket(role: &str, name: &[u8]) {
    let hash = name
        .iter()
        .chain(role.as_bytes())
        .fold(0, |hash: u64, byte| {
            (hash.rotate_left(5) ^ u64::from(*byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        });
    if is_new(hash | 1) {
        let name = json_text(name);
        write_line(&format!("{{\"{role}\":\"{name}\"}}\n"));
    }
}

/// What stands between the quotes of a string of JSON.
fn json_text(bytes: &[u8]) -> String {
    let mut text = String::new();
    for letter in String::from_utf8_lossy(bytes).chars() {
        match letter {
            '"' | '\\' => {
                text.push('\\');
                text.push(letter);
            }
            // As `ss` shows an abstract name.
            '\0' => text.push('@'),
            letter if letter.is_control() => text.push('?'),
            letter => text.push(letter),
        }
    }
    text
}

/// The path of a local socket, or its abstract name with zero in front.
fn socket_name<'a>(address: *const sockaddr, len: socklen_t) -> Option<&'a [u8]> {
    let len = usize::try_from(len).ok()?;
    if address.is_null() || len <= SOCKET_NAME_AT || len > size_of::<libc::sockaddr_un>() {
        return None;
    }
    // SAFETY: an address of `len` bytes by the contract of the caller's function.
    let bytes = unsafe { std::slice::from_raw_parts(address.cast::<u8>(), len) };
    let family = u16::from_ne_bytes([*bytes.first()?, *bytes.get(1)?]);
    if c_int::from(family) != libc::AF_UNIX {
        return None;
    }
    let name = bytes.get(SOCKET_NAME_AT..)?;
    if name.first() == Some(&0) {
        return Some(name);
    }
    name.split(|byte| *byte == 0)
        .next()
        .filter(|name| !name.is_empty())
}

fn write_line(line: &str) {
    let Some(Ok(mut path)) = file().map(PathBuf::from_bytes) else {
        return;
    };
    let flags =
        libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_NONBLOCK | libc::O_NOFOLLOW;
    if let Ok(fd) = sys::open(&mut path, flags, 0o600) {
        let _ = sys::call(
            libc::SYS_write,
            [int(fd.0), pointer(line.as_ptr()), line.len(), 0, 0, 0],
        );
    }
}

pub(crate) fn record_message(message: *const libc::msghdr) {
    if message.is_null() {
        return;
    }
    // SAFETY: not null, and a message by the contract of the caller's function.
    let message = unsafe { &*message };
    record(message.msg_name.cast(), message.msg_namelen);
}

fn destination(address: *const sockaddr, len: socklen_t) -> Option<(IpAddr, u16)> {
    let len = len as usize;
    if address.is_null() || len < size_of::<libc::sa_family_t>() {
        return None;
    }
    // SAFETY: an address of `len` bytes by the contract of the caller's function; its length is checked for its kind.
    unsafe {
        let family = c_int::from(address.cast::<libc::sa_family_t>().read_unaligned());
        if family == libc::AF_INET && len >= size_of::<sockaddr_in>() {
            let address = address.cast::<sockaddr_in>().read_unaligned();
            let ip = Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
            return Some((IpAddr::V4(ip), u16::from_be(address.sin_port)));
        }
        if family == libc::AF_INET6 && len >= size_of::<sockaddr_in6>() {
            let address = address.cast::<sockaddr_in6>().read_unaligned();
            let ip = IpAddr::V6(Ipv6Addr::from(address.sin6_addr.s6_addr)).to_canonical();
            return Some((ip, u16::from_be(address.sin6_port)));
        }
    }
    None
}

fn hash_of(ip: IpAddr, port: u16) -> u64 {
    let bytes = match ip {
        IpAddr::V4(ip) => u128::from(u32::from(ip)),
        IpAddr::V6(ip) => u128::from(ip),
    };
    let mix = |value: u64| (value ^ value >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mix(mix(bytes as u64) ^ mix((bytes >> 64) as u64).rotate_left(17) ^ u64::from(port)) | 1
}

/// Whether a hash, which is not zero, is seen for the first time.
fn is_new(hash: u64) -> bool {
    let start = (hash >> 32) as usize % MAX_CONNECTIONS;
    if N_SEEN.load(Ordering::Relaxed) >= MAX_CONNECTIONS {
        return false;
    }
    for slot in SEEN.iter().cycle().skip(start).take(MAX_CONNECTIONS) {
        match slot.compare_exchange(0, hash, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => {
                N_SEEN.fetch_add(1, Ordering::Relaxed);
                return true;
            }
            Err(known) if known == hash => return false,
            Err(_) => {}
        }
    }
    false
}

/// Remembers which name the addresses of an answer came from.
fn remember(host: *const c_char, mut answer: *const addrinfo) {
    if host.is_null() || file().is_none() {
        return;
    }
    // SAFETY: a C string by the contract of `getaddrinfo`.
    let host = unsafe { CStr::from_ptr(host) }.to_bytes();
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    if host.len() > MAX_HOST || !host.iter().all(is_plain) {
        return;
    }
    let host = String::from_utf8_lossy(host).into_owned();
    let Ok(mut hosts) = HOSTS.try_lock() else {
        return;
    };
    // SAFETY: the list that libc has just made; it ends with null.
    while let Some(entry) = unsafe { answer.as_ref() } {
        if let Some((ip, _)) = destination(entry.ai_addr, entry.ai_addrlen)
            && hosts.len() < MAX_CONNECTIONS
            && ip.to_string() != host
            && !hosts
                .iter()
                .any(|(known, name)| *known == ip && *name == host)
        {
            hosts.push((ip, host.clone()));
        }
        answer = entry.ai_next;
    }
}

exports! {
    fn getaddrinfo(host: *const c_char, service: *const c_char, hints: *const addrinfo, answer: *mut *mut addrinfo) -> c_int, libc::EAI_SYSTEM; {
        let ask = next!(c"getaddrinfo", fn(*const c_char, *const c_char, *const addrinfo, *mut *mut addrinfo) -> c_int);
        let result = ask(host, service, hints, answer);
        if result == 0 && !answer.is_null() {
            // SAFETY: libc has written there.
            remember(host, unsafe { *answer });
        }
        if result == libc::EAI_SYSTEM {
            return Err(sys::errno());
        }
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_new_once() {
        let ip = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        let is_new = |port| is_new(hash_of(ip, port));
        assert!(is_new(443));
        assert!(!is_new(443));
        assert!(is_new(80));
        for port in 1000..2000 {
            is_new(port);
        }
        assert!(!is_new(3000), "the number of lines is bounded");
    }

    #[test]
    fn names_of_sockets_are_json() {
        assert_eq!(json_text(b"/run/a \"b\"\\"), "/run/a \\\"b\\\"\\\\");
        assert_eq!(json_text(b"\0bus\n\xff"), "@bus?\u{fffd}");
    }
}
