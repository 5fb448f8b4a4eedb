//! What happens when the kernel cannot bring a page of a mapped file: SIGBUS.
//!
//! ```text
//!   fault ──▶ is the thread inside a guard, and the address in a mapped file of ours?
//!               │ yes: mark the file and the thread, map zeros up to the end of the file, go on;
//!               │      whoever has read looks at the marks and gives an error
//!               └ no:  the handler that was there before, or the default action: the process ends
//! ```
//!
//! The handler allocates nothing, takes no lock and touches no thread-local variable, which would be allocated at the
//! first touch. It runs on the alternate stack of a thread that has one.
//!
//! **Other handlers.** Python's `faulthandler`, torch's DataLoader workers and Rust's own runtime have handlers for SIGBUS.
//! Those that were there before are called for every fault that is not ours. One that is installed later lies above
//! this one, and would end the process before it is asked: so [`install`] puts this one on top again, wherever a file is
//! mapped and a loop begins. Handlers restore what they found before them and raise the signal again, or return and let
//! the instruction fault again: each time the next older one is called, so that two that name each other do not go in
//! circles.

use std::ffi::c_void;
use std::mem;
use std::ptr::{null, null_mut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use libc::{c_int, sigaction, siginfo_t};

use crate::guard::{Guarded, this_thread};
use crate::ranges::Range;

/// A fault at an address, as opposed to a signal that somebody has sent: `si_code` of SIGBUS, from the kernel's
/// `asm-generic/siginfo.h`. The second one is a page that a file does not have, or that cannot be read.
const BUS_ADRALN: c_int = 1;
const BUS_ADRERR: c_int = 2;
const BUS_OBJERR: c_int = 3;
const BUS_MCEERR_AR: c_int = 4;

/// Handlers that are remembered.
const MAX_PREVIOUS: usize = 8;

/// How often a handler is called for one address, if it returns and the address faults again.
const MAX_RETURNS: usize = 4;

/// Handlers that were installed before this one, or between two calls of [`install`]; the latest is the last. Null is the
/// default action. What they point to is never freed.
static PREVIOUS: [AtomicPtr<sigaction>; MAX_PREVIOUS] =
    [const { AtomicPtr::new(null_mut()) }; MAX_PREVIOUS];
static N_PREVIOUS: AtomicUsize = AtomicUsize::new(0);

/// The thread that is inside a previous handler, and how many are older than that.
static CALLING_THREAD: AtomicUsize = AtomicUsize::new(0);
static CALLING_LEVEL: AtomicUsize = AtomicUsize::new(0);

/// The address for which a previous handler has returned last, how often, and how many handlers are older.
static RETURNED_ADDRESS: AtomicUsize = AtomicUsize::new(0);
static RETURNED_TIMES: AtomicUsize = AtomicUsize::new(0);
static RETURNED_LEVEL: AtomicUsize = AtomicUsize::new(0);

/// Bytes of a page of this machine.
static PAGE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Makes this handler the first that is asked. One system call where it is already.
#[expect(
    unsafe_code,
    reason = "no safe wrapper installs a handler with an address"
)]
pub fn install() {
    static INSTALLING: Mutex<()> = Mutex::new(());
    // Where somebody else installs it now, that is enough.
    let Ok(_installing) = INSTALLING.try_lock() else {
        return;
    };
    PAGE_BYTES.store(rustix::param::page_size(), Ordering::Relaxed);
    // SAFETY: both actions are valid; the handler has the signature that SA_SIGINFO asks for, and calls only functions
    // that a handler may call.
    unsafe {
        let mut current: sigaction = mem::zeroed();
        if sigaction(libc::SIGBUS, null(), &raw mut current) != 0
            || current.sa_sigaction == handler_address()
        {
            return;
        }
        remember(current);
        let mut own: sigaction = mem::zeroed();
        own.sa_sigaction = handler_address();
        // A handler below this one raises the signal again, which has to come through.
        own.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER | libc::SA_RESTART;
        libc::sigemptyset(&raw mut own.sa_mask);
        sigaction(libc::SIGBUS, &raw const own, null_mut());
    }
}

/// A fault of a thread that blocks the signal ends the process, handler or not. For threads of ours, which may be started
/// by one that blocks all signals.
#[expect(unsafe_code, reason = "no safe wrapper changes the mask of a thread")]
pub fn unblock() {
    // SAFETY: the set lives on this stack, and is initialized before it is used.
    unsafe {
        let mut signals = mem::zeroed();
        libc::sigemptyset(&raw mut signals);
        libc::sigaddset(&raw mut signals, libc::SIGBUS);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const signals, null_mut());
    }
}

fn handler_address() -> usize {
    on_bus_error as *const () as usize
}

/// Remembers what is called for faults that are not ours.
fn remember(action: sigaction) {
    let len = N_PREVIOUS.load(Ordering::Acquire);
    for level in 0..len {
        if previous(level).is_none_or_same(&action) {
            // It was on top again: what came after it is gone.
            N_PREVIOUS.store(level + 1, Ordering::Release);
            return;
        }
    }
    let level = len.min(MAX_PREVIOUS - 1);
    let pointer = match action.sa_sigaction {
        libc::SIG_DFL => null_mut(),
        _ => Box::into_raw(Box::new(action)),
    };
    PREVIOUS[level].store(pointer, Ordering::Release);
    N_PREVIOUS.store(level + 1, Ordering::Release);
}

/// Nothing for the default action.
struct Previous(Option<&'static sigaction>);

impl Previous {
    fn is_none_or_same(&self, action: &sigaction) -> bool {
        self.0.map_or(libc::SIG_DFL, |own| own.sa_sigaction) == action.sa_sigaction
    }
}

#[expect(unsafe_code, reason = "a table that a signal handler reads")]
fn previous(level: usize) -> Previous {
    // SAFETY: it is null, or points to an action that was leaked, and was written completely before it was published.
    Previous(unsafe { PREVIOUS[level].load(Ordering::Acquire).as_ref() })
}

#[expect(unsafe_code, reason = "a signal handler")]
unsafe extern "C" fn on_bus_error(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel calls it with a valid `info`, in which `si_addr` is set for the codes for which it is read.
    // `errno` belongs to the code that was interrupted.
    unsafe {
        let errno = *libc::__errno_location();
        let fault = Fault::of(&*info);
        if !fault.is_answered() {
            pass_on(&fault, signal, info, context);
        }
        *libc::__errno_location() = errno;
    }
}

/// What the kernel says of a signal.
#[derive(Clone, Copy)]
struct Fault {
    code: c_int,
    /// 0 for a signal that somebody has sent.
    address: usize,
    /// Sent by this process: what `raise` does.
    is_raised: bool,
}

impl Fault {
    #[expect(unsafe_code, reason = "which fields are set depends on the code")]
    unsafe fn of(info: &siginfo_t) -> Fault {
        let code = info.si_code;
        let is_fault = matches!(code, BUS_ADRALN | BUS_ADRERR | BUS_OBJERR | BUS_MCEERR_AR);
        // SAFETY: the kernel sets the address for these codes, and the sender for the others that are read.
        let (address, is_raised) = unsafe {
            (
                if is_fault { info.si_addr() as usize } else { 0 },
                code == libc::SI_TKILL && info.si_pid().cast_unsigned() == std::process::id(),
            )
        };
        Fault {
            code,
            address,
            is_raised,
        }
    }

    /// Whether the instruction that faulted is run again when the handler returns.
    fn is_synchronous(self) -> bool {
        self.address != 0
    }

    fn is_answered(self) -> bool {
        let Some(thread) = Guarded::current() else {
            return false;
        };
        let is_called_by_us = CALLING_THREAD.load(Ordering::Relaxed) == this_thread();
        if self.is_raised && !is_called_by_us {
            // A handler that was installed above this one was asked first, could not help, has put this one in its place
            // and raises the signal: the instruction faults again, and comes here.
            return true;
        }
        if self.code != BUS_ADRERR {
            return false;
        }
        let Some(range) = Range::of(self.address) else {
            return false;
        };
        thread.mark_fault();
        range.mark_zeros();
        map_zeros(self.address, range.end())
    }
}

/// Puts zeros in the place of the file, from the page of an address on. All of it at once: a file that was truncated has
/// nothing behind that page, and a mapping for each page would soon be more than a process may have.
#[expect(unsafe_code, reason = "pages are replaced while they are read")]
fn map_zeros(address: usize, end: usize) -> bool {
    let page = PAGE_BYTES.load(Ordering::Relaxed);
    let start = address - address % page;
    // SAFETY: the addresses are those of a file that is mapped, and stay so: the thread that reads it keeps it. It is
    // only read, and nobody takes what is read before having looked at the mark of the file.
    let mapped = unsafe {
        libc::mmap(
            start as *mut c_void,
            end - start,
            libc::PROT_READ,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    mapped != libc::MAP_FAILED
}

/// Calls the handler that was there before, or the one before that.
#[expect(unsafe_code, reason = "calls functions of others by their address")]
unsafe fn pass_on(fault: &Fault, signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let thread = this_thread();
    let mut level = N_PREVIOUS.load(Ordering::Acquire);
    let has_returned = fault.is_synchronous()
        && RETURNED_ADDRESS.load(Ordering::Relaxed) == fault.address
        && RETURNED_TIMES.load(Ordering::Relaxed) >= MAX_RETURNS;
    if has_returned {
        level = level.min(RETURNED_LEVEL.load(Ordering::Relaxed));
        RETURNED_TIMES.store(0, Ordering::Relaxed);
    } else if fault.is_raised && CALLING_THREAD.load(Ordering::Relaxed) == thread {
        level = level.min(CALLING_LEVEL.load(Ordering::Relaxed));
    }
    let action = match level.checked_sub(1) {
        Some(below) => {
            level = below;
            previous(below).0
        }
        None => None,
    };
    let Some(action) = action else {
        return take_default(fault, signal);
    };
    if action.sa_sigaction == libc::SIG_IGN {
        // A fault cannot be ignored.
        if fault.is_synchronous() {
            take_default(fault, signal);
        }
        return;
    }
    if action.sa_flags & libc::SA_RESETHAND != 0 {
        PREVIOUS[level].store(null_mut(), Ordering::Release);
    }
    CALLING_LEVEL.store(level, Ordering::Relaxed);
    CALLING_THREAD.store(thread, Ordering::Relaxed);
    // SAFETY: the action was installed by whoever knows its signature, which its flags tell. It runs with the signals
    // blocked that it has asked for, as if the kernel had called it.
    unsafe {
        let mut blocked = action.sa_mask;
        if action.sa_flags & libc::SA_NODEFER == 0 {
            libc::sigaddset(&raw mut blocked, signal);
        }
        let mut before = mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const blocked, &raw mut before);
        if action.sa_flags & libc::SA_SIGINFO != 0 {
            let handler: unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void) =
                mem::transmute(action.sa_sigaction);
            handler(signal, info, context);
        } else {
            let handler: unsafe extern "C" fn(c_int) = mem::transmute(action.sa_sigaction);
            handler(signal);
        }
        // What was raised meanwhile comes now.
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, null_mut());
    }
    CALLING_THREAD.store(0, Ordering::Relaxed);
    if fault.is_synchronous() {
        let times = match RETURNED_ADDRESS.swap(fault.address, Ordering::Relaxed) {
            address if address == fault.address => RETURNED_TIMES.load(Ordering::Relaxed) + 1,
            _ => 1,
        };
        RETURNED_TIMES.store(times, Ordering::Relaxed);
        RETURNED_LEVEL.store(level, Ordering::Relaxed);
    }
}

/// Ends the process as if there were no handler.
#[expect(unsafe_code, reason = "no safe wrapper sets the default action")]
fn take_default(fault: &Fault, signal: c_int) {
    // SAFETY: the action is valid, and both functions may be called by handlers. A fault comes again when the handler
    // returns; what was sent has to be sent again.
    unsafe {
        let mut default: sigaction = mem::zeroed();
        default.sa_sigaction = libc::SIG_DFL;
        sigaction(signal, &raw const default, null_mut());
        if !fault.is_synchronous() {
            libc::raise(signal);
        }
    }
}
