//! Signals by name and number, and what each says.

use crate::explain::text::clean::Reading;
use crate::explain::text::phrases::{Hit, Phrase, ask, means};
use crate::explain::text::sign::{Rank, Sign};
use crate::explain::text::size::integer_at_start;
use crate::explain::{Cause, Detail};

use Cause::{Ambiguous, NotMemory};

pub(super) const PHRASES: &[Phrase] = &[
    ask("signal", named_signal),
    ask("SIGKILL", bare_name),
    ask("SIGSEGV", bare_name),
    ask("SIGBUS", bare_name),
    ask("SIGABRT", bare_name),
    ask("SIGILL", bare_name),
    ask("SIGFPE", bare_name),
    ask("SIGTERM", bare_name),
    ask("exit code", exit_code),
    ask("exitcode", exit_code),
    ask("exit status", exit_code),
    ask("return code", exit_code),
    ask("returncode", exit_code),
    ask("status code", exit_code),
    ask("exited with code", exit_code),
    ask("exited with status", exit_code),
    ask("exited with:", exit_code),
    ask("exited with", exit_code),
    ask("exit with code", exit_code),
    ask("terminated with code", exit_code),
    ask("failed with code", exit_code),
    ask("error code", exit_code),
    ask("exited (", exit_code),
    ask("exit value", exit_code),
    ask("exit:", exit_code),
    ask("non-zero status of", exit_code),
    means(
        "code=killed, status=9/KILL",
        Rank::Signaled,
        Ambiguous,
        Detail::Sigkill,
    ),
    ask("Segmentation fault", segfault),
    means(
        "access violation",
        Rank::Signaled,
        NotMemory,
        Detail::Segfault,
    ),
    means("0xC0000005", Rank::Signaled, NotMemory, Detail::Segfault),
    means("0xC0000409", Rank::Signaled, NotMemory, Detail::Crash),
    means("0xC00000FD", Rank::Signaled, NotMemory, Detail::Crash),
    means(
        "0xC0000017",
        Rank::Named,
        Cause::HostAllocFailed,
        Detail::Refused,
    ),
    means(
        "stack smashing detected",
        Rank::Signaled,
        NotMemory,
        Detail::Crash,
    ),
    means(
        "Illegal instruction",
        Rank::Signaled,
        NotMemory,
        Detail::Crash,
    ),
    means(
        "Floating point exception",
        Rank::Signaled,
        NotMemory,
        Detail::Crash,
    ),
    means("段错误", Rank::Signaled, NotMemory, Detail::Segfault),
    means(
        "Speicherzugriffsfehler",
        Rank::Signaled,
        NotMemory,
        Detail::Segfault,
    ),
    means(
        "Erreur de segmentation",
        Rank::Signaled,
        NotMemory,
        Detail::Segfault,
    ),
    means(
        "Violación de segmento",
        Rank::Signaled,
        NotMemory,
        Detail::Segfault,
    ),
    means(
        "Ошибка сегментирования",
        Rank::Signaled,
        NotMemory,
        Detail::Segfault,
    ),
    means(
        "Errore di segmentazione",
        Rank::Signaled,
        NotMemory,
        Detail::Segfault,
    ),
    means(
        "Falha de segmentação",
        Rank::Signaled,
        NotMemory,
        Detail::Segfault,
    ),
    means(
        "Fatal Python error: Aborted",
        Rank::Raised,
        Ambiguous,
        Detail::Aborted,
    ),
    ask("Bus error", bus_error),
    ask("总线错误", bus_error),
    ask("Bus-Zugriffsfehler", bus_error),
    ask("Erreur du bus", bus_error),
    ask("Error en el bus", bus_error),
    ask("Ошибка шины", bus_error),
    ask("バスエラー", bus_error),
];

/// Names as the C library and the launchers print them, without white space and in small letters.
const NAMES: &[(&str, i32)] = &[
    ("sigkill", 9),
    ("killed", 9),
    ("kill", 9),
    ("已杀死", 9),
    ("已砍掉", 9),
    ("getötet", 9),
    ("processusarrêté", 9),
    ("terminado(killed)", 9),
    ("убито", 9),
    ("強制終了", 9),
    ("죽었음", 9),
    ("ucciso", 9),
    ("sigsegv", 11),
    ("segmentationfault", 11),
    ("段错误", 11),
    ("sigbus", 7),
    ("buserror", 7),
    ("总线错误", 7),
    ("sigterm", 15),
    ("terminated", 15),
    ("sigabrt", 6),
    ("abort", 6),
    ("sigint", 2),
    ("interrupt", 2),
    ("sighup", 1),
    ("hangup", 1),
    ("sigfpe", 8),
    ("floatingpointexception", 8),
    ("sigill", 4),
    ("illegalinstruction", 4),
    ("sigusr1", 10),
    ("userdefinedsignal", 10),
    ("sigusr2", 12),
    ("sigxcpu", 24),
    ("sigpipe", 13),
    ("brokenpipe", 13),
];

/// The signal a text begins with, by name or number.
pub(super) fn signal_at_start(text: &str) -> Option<i32> {
    if let Some((_, signal)) = NAMES.iter().find(|(name, _)| text.starts_with(name)) {
        return Some(*signal);
    }
    let number = integer_at_start(text.trim_start_matches('-'))?;
    (1..=64)
        .contains(&number)
        .then(|| i32::try_from(number).ok())?
}

/// What it says that a process was ended by this signal.
fn sign_of(reading: &Reading, hit: Hit, signal: i32) -> Option<Sign> {
    Some(match signal {
        9 => hit.sign(Rank::Signaled, Ambiguous, Detail::Sigkill),
        7 => return bus_error(reading, hit),
        11 => hit.sign(Rank::Signaled, NotMemory, Detail::Segfault),
        4 | 8 => hit.sign(Rank::Signaled, NotMemory, Detail::Crash),
        // What launchers send to the others once one has failed.
        1 | 2 | 10 | 12 | 15 | 24 => hit.sign(Rank::Raised, NotMemory, Detail::Terminated),
        // Whatever called `abort` printed a reason, which outranks this; without it, memory may be the reason too.
        6 => hit.sign(Rank::Raised, Ambiguous, Detail::Aborted),
        _ => return None,
    })
}

/// `killed by signal 9`, `exited on signal 11 (Segmentation fault)`, `died with <Signals.SIGKILL: 9>`.
fn named_signal(reading: &Reading, hit: Hit) -> Option<Sign> {
    let before = reading.before(hit.at, 24);
    // What a launcher itself sends.
    if [
        "closing",
        "sending",
        "send",
        "via",
        "sent",
        "viasignals.",
        "trap",
    ]
    .iter()
    .any(|word| before.ends_with(word) || before.trim_end_matches(['(', '<']).ends_with(word))
    {
        return None;
    }
    let after = reading.after(hit.end, 48);
    let after = after.strip_prefix("s.").unwrap_or(after);
    let after = after.trim_start_matches(['.', ':', '=', '(', '\'', '"', '`', '<', '#']);
    let after = after.strip_prefix("is").unwrap_or(after);
    let signal = signal_at_start(after)?;
    let by_number = after.starts_with(|c: char| c.is_ascii_digit());
    if by_number
        && !(HAPPENED.iter().any(|word| before.ends_with(word)) || explains_its_number(after))
    {
        return None;
    }
    let is_dataloader = before.ends_with("iskilledby");
    if is_dataloader {
        return None;
    }
    with_rank(reading, sign_of(reading, hit, signal)?)
}

/// What stands before `signal 9` when it is not the name of a file or a variable.
const HAPPENED: &[&str] = &[
    "by",
    "on",
    "with",
    "caught",
    "received",
    "got",
    "fatal",
    "dueto",
    "killed",
    "died",
    "prematurely:",
    "termination",
    "a",
];

/// `9 (SIGKILL)`, `11: SIGSEGV`, `9 (Killed)`.
fn explains_its_number(text: &str) -> bool {
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let rest = rest.trim_start_matches(['(', ':', ',']);
    NAMES.iter().any(|(name, _)| rest.starts_with(name))
}

/// `{SIGKILL(-9)}`, `SIGSEGV received`, `killed by SIGKILL`; not `sigkill_handler`, nor what a launcher sends.
fn bare_name(reading: &Reading, hit: Hit) -> Option<Sign> {
    let before = reading.before(hit.at, 24);
    let after = reading.after(hit.end, 16);
    // One of a list of guesses.
    if reading.before(hit.at, 160).contains("potentialrootcauses") {
        return None;
    }
    let is_part_of_a_name = after.starts_with('_') || before.ends_with('_');
    let is_own = [
        "via",
        "viasignals.",
        "sending",
        "send",
        "signal",
        "closingsignal",
        "sent",
        "with",
    ]
    .iter()
    .any(|word| before.ends_with(word));
    let is_sent = before.ends_with("wassent");
    if is_part_of_a_name || (is_own && !is_sent) {
        return None;
    }
    let is_said_to_have_happened = after.starts_with('(')
        || after.starts_with("received")
        || after.starts_with("signal")
        || after.starts_with('!')
        || [
            "by",
            "(",
            "{",
            "dueto",
            "duetoa",
            "wassent",
            "received",
            "receivesa",
            "got",
            ":",
            "*",
            "caught",
        ]
        .iter()
        .any(|word| before.ends_with(word));
    // "(1) killed by SIGKILL by OOM killer …" is one guess among others.
    if !is_said_to_have_happened {
        return None;
    }
    let signal = signal_at_start(reading.after(hit.at, 16))?;
    with_rank(reading, sign_of(reading, hit, signal)?)
}

/// `exitcode: -9`, `return code = -11`, `exit status 137`, `Exited (137)`.
fn exit_code(reading: &Reading, hit: Hit) -> Option<Sign> {
    let after = reading.after(hit.end, 40);
    let rest = after.trim_start_matches(|c: char| ":=()'\"`[{><,is".contains(c));
    let rest = rest.strip_prefix("of").unwrap_or(rest);
    if after.len() - rest.len() > 8 {
        return None;
    }
    let code = integer_at_start(rest)?;
    let signal = match code {
        -64..=-2 => i32::try_from(-code).ok()?,
        // 128 and the signal, as shells say it; Docker and Kubernetes too.
        129..=192 => i32::try_from(code - 128).ok()?,
        -1_073_741_819 | 3_221_225_477 => 11,
        -1_073_740_791 | 3_221_226_505 | -1_073_741_571 | 3_221_225_725 => 4,
        // Hydra, the launcher of MPICH and Intel MPI, gives the bare signal.
        4..=11 if reading.before(hit.at, 300).contains("badtermination") => {
            i32::try_from(code).ok()?
        }
        9 if reading.after(hit.end, 40).contains("sigkill") => 9,
        -1 | 1 | 2 | 255 => {
            return Some(hit.sign(Rank::Aftermath, Ambiguous, Detail::FailedElsewhere));
        }
        _ => return None,
    };
    // macOS counts bus errors as 10.
    let signal = if code == 138 || code == -10 {
        7
    } else {
        signal
    };
    with_rank(reading, sign_of(reading, hit, signal)?)
}

/// The rank in a launcher's own numbering, where the report names it nearby.
fn with_rank(reading: &Reading, mut sign: Sign) -> Option<Sign> {
    let near = reading.around(sign.at, 40, 80);
    for words in ["local_rank:", "rank:", "rank"] {
        let Some(at) = near.find(words) else { continue };
        if let Some(rank) = integer_at_start(&near[at + words.len()..]) {
            sign.facts.process_rank = u32::try_from(rank).ok();
            break;
        }
    }
    if let Some(at) = near.find("(pid:")
        && let Some(pid) = integer_at_start(&near[at + 5..])
    {
        sign.facts.pids.extend(u32::try_from(pid).ok());
    }
    Some(sign)
}

/// Said to have happened, not offered as one of several explanations.
fn segfault(reading: &Reading, hit: Hit) -> Option<Sign> {
    let before = reading.before(hit.at, 40);
    let is_guess = [
        "causedby", "couldbe", "mightbe", "maybe", "possibl", "suchas", "dueto",
    ]
    .iter()
    .any(|word| before.contains(word));
    (!is_guess).then(|| hit.sign(Rank::Signaled, NotMemory, Detail::Segfault))
}

/// A page of a mapped file could not be had: shared memory is full, or a data file shorter than it was.
fn bus_error(reading: &Reading, hit: Hit) -> Option<Sign> {
    let before = reading.before(hit.at, 24);
    // Hardware, and what the DataLoader says in words of its own.
    if before.ends_with("pcie")
        || before.ends_with("killedbysignal:")
        || before.ends_with("unexpected")
    {
        return None;
    }
    let near = reading.around(hit.at, 1200, 1200);
    let speaks_of = |words: &[&str]| words.iter().any(|word| near.contains(word));
    if speaks_of(&[
        "/dev/shm",
        "sharedmemory",
        "shm_open",
        "nccl-",
        "insufficientsharedstorage",
        "ncclshm",
        "ncclgroupend",
        "ncclcomminit",
        "libnccl",
        // How a worker hands a batch over.
        "torch/multiprocessing/reductions.py",
        "_utils/worker.py",
        // How UCX, which NVIDIA's containers use, tells a page that could not be had.
        "nonexistentphysicaladdress",
    ]) {
        return Some(hit.sign(Rank::Named, Cause::ShmExhausted, Detail::BusError));
    }
    Some(hit.sign(Rank::Signaled, Ambiguous, Detail::BusError))
}
