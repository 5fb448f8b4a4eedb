//! Renames past libc. The `tempfile` crate of Rust, and with it safetensors, renames by an instruction of its own; the
//! file it renames lies in a layer, so the kernel would not find it.
//!
//! A seccomp filter turns `rename` and `link` without the token into a signal, and the handler does what the replaced
//! function would have done. Other calls are left alone: the file is opened through libc, and a program without this
//! library (a static one) dies of the signal, where it would otherwise get an error from Landlock.

#![cfg(target_arch = "x86_64")]

use std::ffi::{c_int, c_long, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{AT_FDCWD, siginfo_t, sock_filter, ucontext_t};

use crate::abi;
use crate::config::config;
use crate::names::link_at;
use crate::rename::rename_at;
use crate::sys::{self, Outcome, int, pointer};

const SYS_SECCOMP: c_int = 1;
const SET_MODE_FILTER: usize = 1;
const FLAG_TSYNC: usize = 1;
const ALLOW: u32 = 0x7fff_0000;
const TRAP: u32 = 0x0003_0000;
const ARCHITECTURE: u32 = 0xc000_003e;

/// Where the filter finds what it looks at.
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
const SIXTH_ARGUMENT_AT: u32 = 56;

const TRAPPED: [c_long; 5] = [
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_link,
    libc::SYS_linkat,
];

/// Set by the handler when it meets [`PROBE`].
static IS_TRAPPED: AtomicBool = AtomicBool::new(false);
/// A rename between directories that no descriptor leads to.
const PROBE: [usize; 6] = [usize::MAX - 77, 0, usize::MAX - 77, 0, 0, 0];

/// Runs when the library is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

extern "C" fn at_load() {
    abi::guard((), || {
        if config().is_some() && crate::environment::token() != 0 {
            watch()?;
        }
        Ok(())
    });
}

/// Sets up the handler, and the filter unless an ancestor has left it.
fn watch() -> Outcome<()> {
    // SAFETY: a plain structure of integers.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handle as *const c_void as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
    // SAFETY: a handler of the right kind; the old one is not wanted, since nothing has set one at load.
    let set = unsafe { libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut()) };
    abi::checked(set)?;
    let _ = sys::call(libc::SYS_renameat, PROBE);
    if IS_TRAPPED.load(Ordering::Relaxed) {
        return Ok(());
    }
    // Without it only root may add a filter; the sandbox has set it.
    let locked = sys::call(
        libc::SYS_prctl,
        [int(libc::PR_GET_NO_NEW_PRIVS), 0, 0, 0, 0, 0],
    )?;
    if locked != 1 {
        return Ok(());
    }
    let filter = filter(crate::environment::token() as u64);
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_ptr().cast_mut(),
    };
    let program = pointer(&raw const program);
    sys::call(
        libc::SYS_seccomp,
        [SET_MODE_FILTER, FLAG_TSYNC, program, 0, 0, 0],
    )?;
    Ok(())
}

fn filter(token: u64) -> [sock_filter; 15] {
    const LOAD: u16 = 0x20;
    const EQUAL: u16 = 0x15;
    const ANSWER: u16 = 0x06;
    let line = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    let number = |i: usize| TRAPPED.get(i).map_or(0, |number| *number as u32);
    [
        line(LOAD, 0, 0, ARCHITECTURE_AT),
        line(EQUAL, 0, 6, ARCHITECTURE),
        line(LOAD, 0, 0, NUMBER_AT),
        line(EQUAL, 5, 0, number(0)),
        line(EQUAL, 4, 0, number(1)),
        line(EQUAL, 3, 0, number(2)),
        line(EQUAL, 2, 0, number(3)),
        line(EQUAL, 1, 0, number(4)),
        line(ANSWER, 0, 0, ALLOW),
        line(LOAD, 0, 0, SIXTH_ARGUMENT_AT),
        line(EQUAL, 0, 3, token as u32),
        line(LOAD, 0, 0, SIXTH_ARGUMENT_AT + 4),
        line(EQUAL, 0, 1, (token >> 32) as u32),
        line(ANSWER, 0, 0, ALLOW),
        line(ANSWER, 0, 0, TRAP),
    ]
}

extern "C" fn handle(_signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    if info.is_null() || context.is_null() {
        return;
    }
    // SAFETY: the kernel's own description of the signal, whose fields for this code are a pointer and the number.
    let (code, number) = unsafe { ((*info).si_code, *info.cast::<c_int>().add(6)) };
    if code != SYS_SECCOMP {
        return;
    }
    // SAFETY: the registers of the interrupted call, which only this handler looks at.
    let registers = unsafe { &mut (*context.cast::<ucontext_t>()).uc_mcontext.gregs };
    let argument = |i: c_int| {
        let register = usize::try_from(i).ok().and_then(|i| registers.get(i));
        register.copied().unwrap_or(0) as usize
    };
    let arguments = [
        libc::REG_RDI,
        libc::REG_RSI,
        libc::REG_RDX,
        libc::REG_R10,
        libc::REG_R8,
    ]
    .map(argument);
    let before = sys::errno();
    let answer = std::panic::catch_unwind(|| redirect(c_long::from(number), arguments))
        .unwrap_or(Err(libc::EIO));
    sys::set_errno(before);
    let answer = match answer {
        Ok(value) => i64::from(value),
        Err(error) => -i64::from(error),
    };
    let result = usize::try_from(libc::REG_RAX).unwrap_or_default();
    if let Some(register) = registers.get_mut(result) {
        *register = answer;
    }
}

/// Does what a call asked for.
fn redirect(number: c_long, [first, second, third, fourth, fifth]: [usize; 5]) -> Outcome<c_int> {
    let path = std::ptr::with_exposed_provenance;
    let fd = sys::to_int;
    match number {
        libc::SYS_renameat if [first, second, third, fourth] == PROBE[..4] => {
            IS_TRAPPED.store(true, Ordering::Relaxed);
            Ok(0)
        }
        libc::SYS_rename => rename_at(AT_FDCWD, path(first), AT_FDCWD, path(second), 0),
        libc::SYS_renameat => rename_at(fd(first), path(second), fd(third), path(fourth), 0),
        libc::SYS_renameat2 => rename_at(
            fd(first),
            path(second),
            fd(third),
            path(fourth),
            fifth as u32,
        ),
        libc::SYS_link => link_at(AT_FDCWD, path(first), AT_FDCWD, path(second), 0),
        libc::SYS_linkat => link_at(fd(first), path(second), fd(third), path(fourth), fd(fifth)),
        _ => Err(libc::ENOSYS),
    }
}
