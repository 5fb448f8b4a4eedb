//! The last resort: the command replaces brimful.
//!
//! Where brimful cannot supervise at all, it becomes the training, in the same process and with the same streams, so the
//! exit code is right by construction. The same happens where brimful aborts before the training has begun: an
//! allocation that fails, a panic within a panic, a stack that overflows. For that, everything that `execve` needs is
//! prepared beforehand, since a signal handler may not allocate. After an abort while the training runs, brimful leaves
//! everything to the keeper, waits, and ends with the training's exit code.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::RawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use brimful::env_vars;
use libc::{c_char, c_int};
use rustix::process::{Pid, WaitOptions};

use crate::by_signal::end_by_signal;
use crate::caller::SignalState;
use crate::exit_status::Ended;
use crate::fault;

/// Where programs are looked for without PATH, as by the C library.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

const MESSAGE: &[u8] =
    b"brimful: running unsupervised: brimful aborted (out of memory, or a bug)\n";

/// Signals that are passed on to the training also after an abort.
const PASSED_ON: [c_int; 6] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
];

/// A command as `execve` takes it.
struct Prepared {
    /// The program's file, or where on PATH it may be, in order.
    programs: Vec<CString>,
    /// Pointers into `_strings`, with a null pointer at the end; likewise `variables`.
    arguments: Vec<*const c_char>,
    variables: Vec<*const c_char>,
    _strings: Vec<CString>,
}

static PREPARED: AtomicPtr<Prepared> = AtomicPtr::new(null_mut());
/// The training has not begun, and the command is prepared.
static ARMED: AtomicBool = AtomicBool::new(false);
/// Process numbers while the training runs, else 0: the training's, and the keeper's if there is one.
static TRAINING: AtomicI32 = AtomicI32::new(0);
static KEEPER: AtomicI32 = AtomicI32::new(0);
/// The socket to the keeper.
static LINE: AtomicI32 = AtomicI32::new(-1);
/// The record of the run, so far without a training; null where there is none.
static RECORD: AtomicPtr<c_char> = AtomicPtr::new(null_mut());
/// How a training ended: its exit code, or [`SIGNALED`] and the signal; else -1.
static END: AtomicI32 = AtomicI32::new(-1);
const SIGNALED: c_int = 1 << 8;
/// The signals of brimful's caller, for the handler: it may not look for them.
static CALLERS_BLOCKED: AtomicU64 = AtomicU64::new(0);
static CALLERS_IGNORED: AtomicU64 = AtomicU64::new(0);

/// From now on an abort of brimful starts this command in its place. A command with a null byte cannot be started at all,
/// and is left to whoever reports that.
pub(crate) fn arm(command: &[OsString], variables: &[(OsString, OsString)]) {
    let Some(prepared) = prepare(command, variables) else {
        return;
    };
    // Never freed: the handler may read it at any moment, and it is made once or twice per process.
    PREPARED.store(Box::into_raw(Box::new(prepared)), Ordering::Release);
    let signals = SignalState::of_caller();
    CALLERS_BLOCKED.store(signals.blocked, Ordering::Release);
    CALLERS_IGNORED.store(signals.ignored, Ordering::Release);
    ARMED.store(true, Ordering::Release);
    install();
}

/// A record that says nothing goes with the supervisor: it would be taken for a run that was cut off.
pub(crate) fn record_is(path: &Path) {
    if let Ok(path) = CString::new(path.as_os_str().as_bytes()) {
        RECORD.store(path.into_raw(), Ordering::Release);
    }
}

/// The training begins: from now on an abort must not start it a second time.
pub(crate) fn begins() {
    END.store(-1, Ordering::Release);
    ARMED.store(false, Ordering::Release);
}

/// The training runs, with a keeper of this process number and socket.
pub(crate) fn runs(training: Pid, keeper: Option<(u32, RawFd)>) {
    let (pid, line) = keeper.unwrap_or((0, -1));
    LINE.store(line, Ordering::Release);
    KEEPER.store(i32::try_from(pid).unwrap_or(0), Ordering::Release);
    TRAINING.store(training.as_raw_nonzero().get(), Ordering::Release);
}

/// The training, if it runs.
pub(crate) fn running() -> Option<Pid> {
    Pid::from_raw(TRAINING.load(Ordering::Acquire))
}

/// The training has ended.
pub(crate) fn ended(how: Ended) {
    let end = match how.signal() {
        Some(signal) => SIGNALED + signal,
        None => how.exit_code().into(),
    };
    END.store(end, Ordering::Release);
    TRAINING.store(0, Ordering::Release);
    KEEPER.store(0, Ordering::Release);
}

/// The training has not begun after all.
pub(crate) fn arm_again() {
    TRAINING.store(0, Ordering::Release);
    KEEPER.store(0, Ordering::Release);
    let prepared = !PREPARED.load(Ordering::Acquire).is_null();
    ARMED.store(prepared, Ordering::Release);
}

/// Whether the training has not begun.
pub(crate) fn is_armed() -> bool {
    ARMED.load(Ordering::Acquire)
}

/// Becomes the command. Returns only where it cannot be started.
pub(crate) fn become_command(
    command: &[OsString],
    variables: &[(OsString, OsString)],
) -> io::Error {
    ARMED.store(false, Ordering::Release);
    let Some((program, arguments)) = command.split_first() else {
        return io::ErrorKind::InvalidInput.into();
    };
    // What was started and given up has a moment to go: the training would find children that it does not know.
    let give_up = Instant::now() + Duration::from_millis(200);
    while Instant::now() < give_up {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) => std::thread::sleep(Duration::from_millis(1)),
            Err(_) => break,
        }
    }
    // Survives `execve`: the training would have to reap processes that it does not know.
    let _ = rustix::process::set_child_subreaper(None);
    let mut command = Command::new(program);
    command
        .args(arguments)
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .env_remove(fault::VARIABLE);
    SignalState::of_caller().restore_in(&mut command);
    command.exec()
}

fn prepare(command: &[OsString], variables: &[(OsString, OsString)]) -> Option<Prepared> {
    let words: Vec<CString> = command
        .iter()
        .map(|word| CString::new(word.as_bytes()).ok())
        .collect::<Option<_>>()?;
    let environment = environment(variables);
    let programs = programs(command.first()?);
    let pointers = |strings: &[CString]| {
        let strings = strings.iter().map(|string| string.as_ptr());
        strings.chain([null()]).collect::<Vec<_>>()
    };
    Some(Prepared {
        programs,
        arguments: pointers(&words),
        variables: pointers(&environment),
        _strings: words.into_iter().chain(environment).collect(),
    })
}

/// The environment as the training gets it.
fn environment(variables: &[(OsString, OsString)]) -> Vec<CString> {
    let is_set_here = |name: &OsStr| variables.iter().any(|(set, _)| set == name);
    std::env::vars_os()
        .filter(|(name, _)| !is_set_here(name))
        .chain(variables.iter().cloned())
        .filter_map(|(mut name, value)| {
            name.push("=");
            name.push(value);
            CString::new(name.into_vec()).ok()
        })
        .collect()
}

fn programs(program: &OsStr) -> Vec<CString> {
    let path = std::env::var_os(env_vars::PATH).unwrap_or_else(|| DEFAULT_PATH.into());
    let candidates: Vec<OsString> = if program.as_bytes().contains(&b'/') {
        vec![program.to_owned()]
    } else {
        std::env::split_paths(&path)
            .map(|directory| {
                // An empty entry is the working directory.
                let is_empty = directory.as_os_str().is_empty();
                let directory = if is_empty { Path::new(".") } else { &directory };
                directory.join(program).into_os_string()
            })
            .collect()
    };
    let candidates = candidates.into_iter().map(OsString::into_vec);
    candidates
        .filter_map(|path| CString::new(path).ok())
        .collect()
}

#[expect(
    unsafe_code,
    reason = "a handler that may replace the process has no safe form"
)]
fn install() {
    // SAFETY: the action is zeroed, which is a valid value of it, and its handler makes only calls that a signal handler
    // may make.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_abort as *const () as usize;
        // On the alternate stack, where there is one: the usual one may have overflowed.
        action.sa_flags = libc::SA_ONSTACK;
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(libc::SIGABRT, &raw const action, null_mut());
    }
}

extern "C" fn on_abort(_signal: c_int) {
    // Once: what aborts again ends brimful.
    if ARMED.swap(false, Ordering::AcqRel) {
        exec_prepared();
    }
    let end = END.load(Ordering::Acquire);
    if end >= SIGNALED {
        end_by_signal(end - SIGNALED);
        exit_now(128 + end - SIGNALED);
    }
    if end >= 0 {
        exit_now(end);
    }
    let training = TRAINING.load(Ordering::Acquire);
    if training > 0 {
        wait_for(training, KEEPER.load(Ordering::Acquire));
    }
}

#[expect(
    unsafe_code,
    reason = "system calls of a signal handler, on memory that was prepared for them"
)]
fn exec_prepared() {
    let prepared = PREPARED.load(Ordering::Acquire);
    // SAFETY: the pointer is null or of a value that is never freed nor changed; all calls are allowed in a handler.
    unsafe {
        let Some(prepared) = prepared.as_ref() else {
            return;
        };
        libc::write(libc::STDERR_FILENO, MESSAGE.as_ptr().cast(), MESSAGE.len());
        let record = RECORD.load(Ordering::Acquire);
        if !record.is_null() {
            libc::unlink(record);
        }
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0);
        // What is blocked or ignored now would stay so in the training.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        let signals = SignalState {
            blocked: CALLERS_BLOCKED.load(Ordering::Acquire),
            ignored: CALLERS_IGNORED.load(Ordering::Acquire),
        };
        signals.restore();
        let mut found = false;
        for program in &prepared.programs {
            libc::execve(
                program.as_ptr(),
                prepared.arguments.as_ptr(),
                prepared.variables.as_ptr(),
            );
            found |= *libc::__errno_location() != libc::ENOENT;
        }
        libc::_exit(if found { 126 } else { 127 });
    }
}

/// Leaves the training to its keeper, and ends as it does.
#[expect(unsafe_code, reason = "system calls of a signal handler")]
fn wait_for(training: c_int, keeper: c_int) {
    // SAFETY: all calls are allowed in a handler; the status is written to this stack.
    unsafe {
        libc::write(libc::STDERR_FILENO, MESSAGE.as_ptr().cast(), MESSAGE.len());
        for signal in PASSED_ON {
            if libc::signal(signal, pass_on as *const () as libc::sighandler_t) == libc::SIG_IGN {
                libc::signal(signal, libc::SIG_IGN);
            }
        }
        let mut awaited = training;
        if keeper > 0 {
            // As if brimful were gone: the keeper passes the output on, and ends as the training does.
            libc::shutdown(LINE.load(Ordering::Acquire), libc::SHUT_RDWR);
            awaited = keeper;
        }
        let Some(mut status) = wait_for_end(awaited) else {
            return;
        };
        // A keeper that was killed leaves its training to brimful; one that died as its training did has none any more.
        if awaited == keeper && libc::WIFSIGNALED(status) {
            status = wait_for_end(training).unwrap_or(status);
        }
        if libc::WIFEXITED(status) {
            libc::_exit(libc::WEXITSTATUS(status));
        }
        end_by_signal(libc::WTERMSIG(status));
        libc::_exit(128 + libc::WTERMSIG(status));
    }
}

/// The status of a child, once it has ended; `None` where it is no child of this process.
#[expect(unsafe_code, reason = "a system call of a signal handler")]
fn wait_for_end(child: c_int) -> Option<c_int> {
    let mut status = 0;
    // SAFETY: allowed in a handler; the status is written to this stack.
    unsafe {
        loop {
            if libc::waitpid(child, &raw mut status, 0) == child {
                return Some(status);
            }
            if *libc::__errno_location() != libc::EINTR {
                return None;
            }
        }
    }
}

#[expect(unsafe_code, reason = "system calls of a signal handler")]
extern "C" fn pass_on(signal: c_int) {
    // SAFETY: allowed in a handler. The training is not reaped while this handler is in place.
    unsafe {
        libc::kill(TRAINING.load(Ordering::Acquire), signal);
    }
}

#[expect(unsafe_code, reason = "system calls of a signal handler")]
fn exit_now(code: c_int) {
    // SAFETY: allowed in a handler.
    unsafe {
        libc::_exit(code);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_looked_for_as_a_shell_does() {
        let of = |program: &str| programs(OsStr::new(program));
        assert_eq!(of("./train.sh"), [CString::new("./train.sh").unwrap()]);
        assert!(of("sh").len() > 1 || std::env::var_os("PATH").is_none());
        assert!(
            of("sh")
                .iter()
                .all(|path| path.to_bytes().ends_with(b"/sh"))
        );
    }

    #[test]
    fn variables_of_the_job_win_over_those_of_the_environment() {
        let name = OsString::from("PATH");
        let set = environment(&[(name, "/only".into())]);
        let set: Vec<&CString> = set
            .iter()
            .filter(|text| text.to_bytes().starts_with(b"PATH="))
            .collect();
        assert_eq!(set, [&CString::new("PATH=/only").unwrap()]);
        let prepared = prepare(&["true".into()], &[]).unwrap();
        assert_eq!(prepared.arguments.len(), 2);
        assert!(prepare(&["a\0b".into()], &[]).is_none());
    }
}
