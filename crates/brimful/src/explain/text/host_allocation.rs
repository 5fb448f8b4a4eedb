//! An allocation on the host was refused.

use crate::explain::text::clean::Reading;
use crate::explain::text::phrases::{Hit, Phrase, ask, means};
use crate::explain::text::sign::{Rank, Sign};
use crate::explain::text::size::size_at_start;
use crate::explain::{Cause, Detail};

use Cause::{CudaOomExhausted, HostAllocFailed, NotMemory};
use Rank::Named;

pub(super) const PHRASES: &[Phrase] = &[
    // PyTorch, from its first release on.
    ask("DefaultCPUAllocator", allocator),
    means(
        "Torch: not enough memory",
        Named,
        HostAllocFailed,
        Detail::Refused,
    ),
    means("posix_memalign", Named, HostAllocFailed, Detail::Refused),
    means("Buy new RAM", Named, HostAllocFailed, Detail::Refused),
    // Python, NumPy, Arrow, OpenCV, DuckDB, R.
    ask("MemoryError", memory_error),
    ask("Unable to allocate", array),
    ask("malloc of size", of_size),
    ask("realloc of size", of_size),
    means(
        "(-4:Insufficient memory)",
        Named,
        HostAllocFailed,
        Detail::Refused,
    ),
    means(
        "cannot allocate vector of size",
        Named,
        HostAllocFailed,
        Detail::Refused,
    ),
    ask("Out of Memory Error", in_words),
    // C and C++, Rust, Go, Java, JavaScript, LLVM, git.
    ask("bad_alloc", bad_alloc),
    means("bad allocation", Named, HostAllocFailed, Detail::Refused),
    means(
        "memory allocation of",
        Named,
        HostAllocFailed,
        Detail::Refused,
    ),
    means(
        "fatal error: runtime: out of memory",
        Named,
        HostAllocFailed,
        Detail::Refused,
    ),
    means(
        "heap out of memory",
        Named,
        HostAllocFailed,
        Detail::Refused,
    ),
    ask("java.lang.OutOfMemoryError", java),
    means(
        "LLVM ERROR: out of memory",
        Named,
        HostAllocFailed,
        Detail::Refused,
    ),
    means(
        "LLVM ERROR: Unable to allocate",
        Named,
        HostAllocFailed,
        Detail::Refused,
    ),
    means(
        "out of memory, malloc failed",
        Named,
        HostAllocFailed,
        Detail::Refused,
    ),
    means(
        "Memory allocation still failed after",
        Named,
        HostAllocFailed,
        Detail::Refused,
    ),
    means(
        "requires more system memory",
        Named,
        HostAllocFailed,
        Detail::Refused,
    ),
    means(
        "ggml_backend_cpu_buffer_type_alloc_buffer: failed",
        Named,
        HostAllocFailed,
        Detail::Refused,
    ),
    means(
        "insufficient memory for the Java Runtime Environment",
        Named,
        HostAllocFailed,
        Detail::Refused,
    ),
    means(
        "Native memory allocation (mmap) failed",
        Named,
        HostAllocFailed,
        Detail::Refused,
    ),
    means(
        "Native memory allocation (malloc) failed",
        Named,
        HostAllocFailed,
        Detail::Refused,
    ),
    // The kernel's answer.
    ask("(errno=12)", refused),
    ask("errno: 12", refused),
    ask("Cannot allocate memory", refused),
    ask("[Errno 12]", refused),
    ask("(os error 12)", refused),
    ask("ENOMEM", refused_by_name),
    ask("无法分配内存", refused),
    ask("Nicht genügend Hauptspeicher verfügbar", refused),
    ask("Impossible d'allouer de la mémoire", refused),
    ask("No se pudo asignar memoria", refused),
    ask("Не удалось выделить память", refused),
    ask("メモリを確保できません", refused),
    // Windows, whose number stands in every language.
    means(
        "[WinError 1455]",
        Named,
        HostAllocFailed,
        Detail::CommitLimit,
    ),
    means("os error 1455", Named, HostAllocFailed, Detail::CommitLimit),
    means(
        "paging file is too small",
        Named,
        HostAllocFailed,
        Detail::CommitLimit,
    ),
    means(
        "[WinError 1450]",
        Named,
        HostAllocFailed,
        Detail::CommitLimit,
    ),
    means("[WinError 8]", Named, HostAllocFailed, Detail::CommitLimit),
    means(
        "Not enough memory resources are available",
        Named,
        HostAllocFailed,
        Detail::CommitLimit,
    ),
    means(
        "Not enough storage is available to process this command",
        Named,
        HostAllocFailed,
        Detail::CommitLimit,
    ),
];

fn allocator(reading: &Reading, hit: Hit) -> Option<Sign> {
    let after = reading.after(hit.end, 160);
    let mut sign = hit.sign(Named, HostAllocFailed, Detail::Refused);
    sign.facts.asked = after
        .find("allocate")
        .map(|at| &after[at..])
        .and_then(|rest| size_at_start(rest.trim_start_matches(|c: char| !c.is_ascii_digit())));
    Some(sign)
}

/// The builtin exception, or NumPy's and Arrow's; not `OutOfMemoryError`.
fn memory_error(reading: &Reading, hit: Hit) -> Option<Sign> {
    let before = reading.before(hit.at, 12);
    if before.ends_with("outof") {
        return None;
    }
    let line = &reading.lines[reading.line_at(hit.at)];
    if ["except ", "raise ", "class ", "#"]
        .iter()
        .any(|word| line.starts_with(word))
    {
        return None;
    }
    // RAPIDS raises it for the card's memory.
    if is_device(reading.after(hit.end, 200)) {
        return Some(hit.sign(Named, CudaOomExhausted, Detail::NoFigures));
    }
    let mut sign = hit.sign(Named, HostAllocFailed, Detail::Refused);
    let after = reading.after(hit.end, 60);
    sign.facts.asked = after
        .strip_prefix(":unabletoallocate")
        .and_then(size_at_start);
    Some(sign)
}

fn array(reading: &Reading, hit: Hit) -> Option<Sign> {
    let after = reading.after(hit.end, 80);
    let asked = size_at_start(after)?;
    let mut sign = if is_device(reading.around(hit.at, 60, 120)) {
        hit.sign(Named, CudaOomExhausted, Detail::NoFigures)
    } else {
        hit.sign(Named, HostAllocFailed, Detail::Refused)
    };
    sign.facts.asked = Some(asked);
    Some(sign)
}

/// Arrow: `malloc of size 4096 failed`.
fn of_size(reading: &Reading, hit: Hit) -> Option<Sign> {
    let after = reading.after(hit.end, 40);
    after
        .contains("failed")
        .then(|| hit.sign(Named, HostAllocFailed, Detail::Refused))
}

/// Thrown for host memory, and by CUDA's libraries for the card's.
fn bad_alloc(reading: &Reading, hit: Hit) -> Option<Sign> {
    Some(if is_device(reading.after(hit.end, 160)) {
        hit.sign(Named, CudaOomExhausted, Detail::NoFigures)
    } else {
        hit.sign(Named, HostAllocFailed, Detail::Refused)
    })
}

fn java(reading: &Reading, hit: Hit) -> Option<Sign> {
    let after = reading.after(hit.end, 60);
    Some(if after.contains("nativethread") {
        hit.sign(Named, NotMemory, Detail::ProcessLimit)
    } else {
        hit.sign(Named, HostAllocFailed, Detail::JavaHeap)
    })
}

/// DuckDB; not the class of another library.
fn in_words(reading: &Reading, hit: Hit) -> Option<Sign> {
    let is_in_words = reading.has_word(hit.at, "Out of Memory Error");
    (is_in_words && !reading.has_word(hit.at, "OutOfMemoryError"))
        .then(|| hit.sign(Named, HostAllocFailed, Detail::Refused))
}

fn refused_by_name(reading: &Reading, hit: Hit) -> Option<Sign> {
    reading
        .has_word(hit.at, "ENOMEM")
        .then(|| refused(reading, hit))?
}

fn refused(reading: &Reading, hit: Hit) -> Option<Sign> {
    let after = reading.after(hit.at, 80);
    if after.starts_with("cannotallocatememoryinstatictlsblock") {
        return Some(hit.sign(Named, NotMemory, Detail::StaticTls));
    }
    let before = reading.before(hit.at, 300);
    // Its own phrase decides there.
    if before
        .rfind("unabletommap")
        .is_some_and(|at| before.len() - at < 160)
    {
        return None;
    }
    if before.contains("ibv_") || before.contains("memlock") || before.contains("mlock") {
        return Some(hit.sign(Named, HostAllocFailed, Detail::LockedMemoryLimit));
    }
    let near = reading.around(hit.at, 300, 200);
    let detail = if near.contains("fork") {
        Detail::Fork
    } else {
        Detail::Refused
    };
    Some(hit.sign(Named, HostAllocFailed, detail))
}

fn is_device(text: &str) -> bool {
    ["cuda", "hip", "gpu", "rmm", "device"]
        .iter()
        .any(|word| text.contains(word))
}
